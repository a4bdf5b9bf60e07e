"""Which policies a session is compared with, and what comes out of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specsim.errors import InputError
from specsim.live.prompts import read_prompts
from specsim.live.sampling import SamplingParams
from specsim.live.session import LiveSession
from specsim.live.session_compare import rivals
from specsim.live.session_config import UNTRAINED, SessionConfig, Weights, check_session

SPECS = tuple(
    replace(UNTRAINED[kind], name=name, max_depth=4) for kind, name in (("ngram", "ngram"), ("exit", "exit2"))
)
TOKENS = 12


@pytest.fixture(scope="module")
def target(make_target):
    return make_target("float64")


@pytest.fixture
def prompts(prompt_file):
    return list(read_prompts([prompt_file])[0].prompts)


@pytest.fixture
def config(model_folder):
    def make(**changes):
        given = {
            "weights": Weights(str(model_folder)),
            "drafters": ("ngram", "exit2"),
            "policy": "dcut:ratios=all@ucb1",
            "cost": "cpu-smollm2",
            "depth": 4,
            "sampling": SamplingParams(max_tokens=TOKENS),
        }
        return SessionConfig(**given | changes)

    return make


def policies(config):
    return [(rival.part, rival.label, str(rival.controller.config)) for rival in rivals(config, SPECS)]


def test_an_ablation_leaves_out_drafts_then_pruning_then_the_choice_of_a_drafter(config):
    names = [(part, label) for part, label, _ in policies(config(ablate=True))]
    assert names == [
        ("plain", "autoregressive"),
        ("unpruned", "without pruning"),
        ("alone", "ngram alone"),
        ("alone", "exit2 alone"),
        ("again", "autoregressive, again"),
    ]
    _, unpruned, first, second, _ = rivals(
        config(ablate=True, policy="dcut:depth=3,ratios=all~temperature@ucb1:c=.5"), SPECS
    )
    own = unpruned.controller.config
    assert (str(own.budget), own.drafter.name, own.drafter.options["c"]) == ("fixed_depth:depth=3", "ucb1", 0.5)
    for rival, name in ((first, "ngram"), (second, "exit2")):
        assert (rival.controller.config.budget.name, rival.controller.config.drafter.name) == ("dcut", name)
        assert rival.controller.config.budget.options["depth"] == 3
        assert rival.controller.config.calibrator.name == "temperature"


@pytest.mark.parametrize(
    ("policy", "parts"),
    [
        ("autoregressive", ["plain"]),
        ("fixed_depth:depth=2@ngram", ["plain"]),
        ("fixed_depth:depth=2@round_robin", ["plain", "alone", "alone", "again"]),
        ("dcut@exit2", ["plain", "unpruned", "again"]),
    ],
)
def test_what_a_policy_does_not_do_is_not_left_out_of_it(config, policy, parts):
    assert [part for part, _, _ in policies(config(ablate=True, policy=policy))] == parts


def test_policies_named_come_behind_and_each_once(config):
    compare = ("autoregressive", "fixed_depth:depth=2@exit2", "fixed_depth:depth=2@exit2", "dcut:ratios=all@ngram")
    labels = [(part, label) for part, label, _ in policies(config(compare=compare))]
    assert labels == [
        ("plain", "autoregressive"),
        ("other", "fixed_depth:depth=2@exit2"),
        ("other", "dcut:ratios=all@ngram"),
    ]
    both = policies(config(compare=compare, ablate=True))
    assert [part for part, _, _ in both] == ["plain", "unpruned", "alone", "alone", "other", "again"]


def test_every_policy_serves_the_same_requests_and_says_the_same(config, prompts, target):
    session = LiveSession(config(ablate=True, concurrency=3), prompts, target=target)
    told = {}
    result = session.run(on_compared=lambda label, done, expected: told.update({label: (done, expected)}))
    tokens = result.summary.num_output_tokens
    assert [other.label for other in result.comparisons] == list(told)
    assert {expected for _, expected in told.values()} == {tokens}
    assert all(0 < done <= tokens for done, _ in told.values())
    for other in result.comparisons:
        assert (other.compared, other.difference) == (len(prompts), None)
        assert other.summary.num_output_tokens == tokens
        assert other.speedup == result.summary.token_throughput / other.summary.token_throughput
    plain, unpruned, *alone, again = result.comparisons
    assert result.plain is plain
    assert plain.run.totals.num_drafted == again.run.totals.num_drafted == 0
    assert unpruned.summary.budget_ratio == 1.0
    for arm, other in enumerate(alone):
        assert other.run.arm_steps[arm] == other.run.totals.num_decode_steps - other.run.arm_steps[-1]
        assert other.run.arm_steps[1 - arm] == 0
    assert session.setup.pool.used == 0


def test_a_comparison_learns_nothing_from_the_run_before_it_nor_teaches_it(config, prompts, target):
    session = LiveSession(config(compare=("fixed_depth@ucb1",)), prompts, target=target)
    untouched = session.rivals[0].controller.state_dict()
    stopped = session.run(on_chunk=lambda chunk: session.stop())
    assert (stopped.comparisons, stopped.interrupted) == ((), True)
    assert session.rivals[0].controller.state_dict() == untouched
    again = LiveSession(config(compare=("fixed_depth@ucb1",)), prompts, target=target)
    learned = []
    again.run(on_compared=lambda *_: learned.append(again.controller.state_dict()))
    assert all(state == learned[0] for state in learned)


def test_no_comparison_begins_once_its_time_is_over(config, prompts, target):
    none = LiveSession(config(ablate=True, compare_seconds=0.0), prompts, target=target).run()
    assert (none.comparisons, none.plain, none.interrupted) == ((), None, False)
    assert none.left_out == ("autoregressive", "without pruning", "ngram alone", "exit2 alone", "autoregressive, again")
    session = LiveSession(config(ablate=True, compare_seconds=100.0), prompts, target=target)
    real, late = session.engine.clock.now, False
    session.engine.clock.now = lambda: real() + 100.0 * late

    def on_compared(*_):
        nonlocal late
        late = True

    some = session.run(on_compared=on_compared)
    assert [other.label for other in some.comparisons] == ["autoregressive", "autoregressive, again"]
    assert some.left_out == ("without pruning", "ngram alone", "exit2 alone")


def test_a_comparison_that_cannot_be_is_refused_before_the_model_is_loaded(config, prompts, monkeypatch):
    monkeypatch.setattr("specsim.live.session.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    for changes, match in (
        ({"compare": ("magic@ucb1",)}, "unknown budget policy 'magic'"),
        ({"compare": ("dcut",)}, "choose one or a drafter policy"),
        ({"compare": ("clairvoyant@ngram",)}, "runs in simulation only"),
        ({"compare": ("dcut@a@b",), "drafters": ("drafter=x",)}, "at most one @DRAFTER|at most one ~"),
        ({"compare_seconds": -1.0}, "time for comparisons is -1.0 s"),
        ({"compare_seconds": 5.0}, "time for comparisons is 5.0 s, and there are none: give --compare"),
        ({"compare": ("fixed_depth@ngram",), "policy": "autoregressive", "cost": None}, "no cost table is shipped"),
    ):
        with pytest.raises(InputError, match=match):
            check_session(config(**changes), prompts)
