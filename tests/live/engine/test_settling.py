"""Who is told of a step after the next one's pass was launched hears the same, in the same order."""

import pytest

from specsim.live.sampling import SamplingParams
from tests.live.engine.engines import build_engine, some_prompts

PROMPTS = some_prompts()
LENGTHS = (12, 3, 7, 1, 9, 5)


class Log:
    """What observers and listeners are told, in order."""

    def __init__(self):
        self.told = []

    def on_step(self, row, step, emission):
        there = [step.members.requests[i].sequence for i in range(len(step.slots))]
        self.told.append(("step", int(row["num_emitted"]), int(row["kv_blocks_used"]), int(row["plan_hash"]), there))
        assert row["num_running"] >= len(there)

    def on_request(self, request):
        self.told.append(("ended", request.sequence, request.finish_reason))

    def on_chunk(self, chunk):
        self.told.append(("chunk", chunk.request_id, list(chunk.token_ids), chunk.text, chunk.finish_reason))


def play(target, settled, listen, **limits):
    log = Log()
    engine = build_engine(target, "dcut@exit2", ["exit2"], observers=[log], **limits)
    for prompt, length in zip(PROMPTS, LENGTHS, strict=True):
        engine.submit(prompt, SamplingParams(length), on_chunk=log.on_chunk if listen else None, want_text=True)
    while engine.step(settled):
        pass
    return log.told, [request.text for request in engine.ended], engine


@pytest.mark.parametrize("listen", [False, True])
@pytest.mark.parametrize("limits", [{}, {"max_num_seqs": 3}, {"max_num_seqs": 4, "num_kv_blocks": 14}])
def test_everyone_is_told_the_same_in_the_same_order(endless, listen, limits):
    at_once, later = (play(endless, settled, listen, **limits) for settled in (True, False))
    assert later[:2] == at_once[:2]
    assert len([event for event in later[0] if event[0] == "step"]) > 5
    one, other = (played[2].tally for played in (at_once, later))
    decided = ["batch", "num_drafted", "num_verified", "num_tested", "num_accepted", "num_emitted", "kv_blocks_used"]
    assert [row.tolist() for row in one.steps.table()[decided]] == [
        row.tolist() for row in other.steps.table()[decided]
    ]
    assert one.totals.num_steps == other.totals.num_steps


def test_a_step_in_which_nobody_ends_is_told_of_behind_the_next_pass(endless):
    log = Log()
    engine = build_engine(endless, "fixed_depth", observers=[log])
    run = engine.setup.runner.run

    def launched(*arguments):
        log.told.append("pass")
        return run(*arguments)

    engine.setup.runner.run = launched
    engine.submit(PROMPTS[0], SamplingParams(40))
    for _ in range(4):
        engine.step(settled=False)
    order = [event if event == "pass" else event[0] for event in log.told]
    assert order == ["pass", "step", "pass", "pass", "step", "pass", "step"]  # a prompt's last step is told of at once
    engine.settle()
    assert log.told[-1][0] == "step"
    engine.settle()
    assert len(log.told) == 8


def test_who_cancels_while_told_ends_the_request_before_another_step_counts(endless):
    engine = build_engine(endless, "fixed_depth")
    request = engine.submit(PROMPTS[0], SamplingParams(40), on_chunk=lambda chunk: engine.cancel(request))
    engine.run()
    assert request.status == "cancelled"
    assert engine.tally.totals.num_steps == len(engine.tally.steps) < 4


def test_a_request_that_is_cancelled_between_steps_hears_of_them_before_its_end(endless):
    log = Log()
    engine = build_engine(endless, "fixed_depth", observers=[log])
    request = engine.submit(PROMPTS[0], SamplingParams(40), on_chunk=log.on_chunk)
    for _ in range(3):
        engine.step(settled=False)
    engine.cancel(request)
    engine.run()
    order = [event[0] for event in log.told]
    assert order == ["step", "chunk", "step", "chunk", "step", "chunk", "ended", "chunk"]


def test_a_chore_is_done_behind_the_next_pass_once_and_in_order(endless):
    done = []
    engine = build_engine(endless, "fixed_depth")
    run, readback = engine.setup.runner.run, engine._stepper._committer._readback
    fetch = readback.fetch
    engine.setup.runner.run = lambda *given: (done.append("pass"), run(*given))[1]
    readback.fetch = lambda: (done.append("read"), fetch())[1]
    engine.submit(PROMPTS[0], SamplingParams(40))
    engine.step(settled=False)
    done.clear()
    for name in ("first", "second"):
        engine.add_chore(lambda name=name: done.append(name))
    assert done == []
    engine.step(settled=False)
    assert done == ["pass", "first", "second", "read"]
    engine.add_chore(lambda: done.append("settled"))
    engine.settle()
    engine.settle()
    assert done[4:] == ["settled"]


def test_a_chore_that_another_one_asks_for_is_done_when_the_next_are(endless):
    done = []
    engine = build_engine(endless, "fixed_depth")
    engine.add_chore(lambda: engine.add_chore(lambda: done.append("second")))
    engine.settle()
    assert done == []
    assert not engine.step(settled=False)  # nothing is left to do, so nothing is put off
    assert done == ["second"]


@pytest.mark.parametrize("by", ["step", "settle", "run"])
def test_what_a_chore_raises_comes_out_as_an_observers_and_the_others_are_done(endless, by):
    engine = build_engine(endless, "fixed_depth", ["exit2"])
    expected = [list(request.token_ids) for request in play_alone(endless)]
    requests = [engine.submit(prompt, SamplingParams(9)) for prompt in PROMPTS[:2]]
    for _ in range(3):
        engine.step(settled=False)
    done, steps = [], engine.tally.totals.num_steps
    for name in ("first", "wrong", "second", "wrong", "third"):
        engine.add_chore(lambda name=name: done.append(name) if name != "wrong" else {}[name])
    with pytest.raises(KeyError, match="wrong") as caught:
        {"step": lambda: engine.step(settled=False), "settle": engine.settle, "run": engine.run}[by]()
    assert caught.value.__notes__ == ["1 more observers or listeners of the same step raised: KeyError"]
    assert done == ["first", "second", "third"]
    assert engine._stepper.step_index == (3 if by == "settle" else 4)  # the step that it came out of is complete
    assert engine.tally.totals.num_steps >= steps
    engine.run()
    assert done == ["first", "second", "third"]
    assert [request.token_ids for request in requests] == expected


def play_alone(target):
    engine = build_engine(target, "fixed_depth", ["exit2"])
    requests = [engine.submit(prompt, SamplingParams(9)) for prompt in PROMPTS[:2]]
    engine.run()
    return requests
