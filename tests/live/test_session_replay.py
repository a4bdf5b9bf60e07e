"""Sessions that replay acceptance: they serve the trace's requests, take the simulator's steps, and say so."""

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from specsim.cost import CostTable
from specsim.cost.examples import linear_table
from specsim.errors import InputError
from specsim.live.prompts import Prompt
from specsim.live.sampling import SamplingParams
from specsim.live.session import NO_MEANING, LiveSession
from specsim.live.session_config import SessionConfig, Weights, check_session
from specsim.live.session_replay import Acceptance
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig
from specsim.sim.simulate import simulate
from specsim.sim.workload import ClosedLoop, request_order
from specsim.study.parity.compare import parity
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

LABEL = "acceptance replayed from synthetic-small"
DEPTH = 5
DECIDED = ("batch", "num_drafted", "num_verified", "num_accepted", "num_emitted", "plan_hash")
TRACE = SyntheticTrace(
    SyntheticConfig(
        "small",
        (
            SyntheticDrafter("steady", mean_acceptance_length=3.0, max_depth=DEPTH),
            SyntheticDrafter("daring", mean_acceptance_length=2.0, max_depth=3, overconfidence=2.0),
        ),
        num_requests=9,
        domains={"code": 1.0, "chat": 1.0},
        num_prompt_tokens=(3, 12),
        num_output_tokens=(5, 20),
        seed=1,
    )
)
COST = linear_table(1e-3, 2e-4, drafters=dict.fromkeys(("steady", "daring"), 2e-4))


@pytest.fixture(scope="module")
def target(make_target):
    return make_target("float32")


@pytest.fixture
def config(model_folder):
    """A run of the made-up trace's drafters on random weights."""

    def make(**changes):
        replay = Acceptance(TRACE, **changes.pop("replay", {}))
        given = {
            "weights": Weights(str(model_folder), load_format="dummy"),
            "drafters": (),
            "policy": "dcut:ratios=all@ucb1",
            "cost": COST,
            "concurrency": 3,
            "acceptance": replay,
        }
        return SessionConfig(**given | changes)

    return make


def test_a_replay_serves_as_many_tokens_as_were_recorded_in_the_simulators_order(config, target):
    session = LiveSession(config(replay={"num_requests": 13}), target=target)
    chunks = []
    result = session.run(chunks.append)
    order = list(islice(request_order(len(TRACE), 0), 13))
    assert [job.index for job in session.jobs] == order
    requests = TRACE.requests
    assert [request.num_prompt_tokens for request in result.requests] == requests.num_prompt_tokens[order].tolist()
    assert [len(request.token_ids) for request in result.requests] == requests.num_output_tokens[order].tolist()
    assert [prompt.id for prompt in result.prompts] == requests.request_id[order].tolist()
    assert {request.domain for request in result.requests} == {"code", "chat"}
    assert {request.status for request in result.requests} == {"finished"}
    assert not any(chunk.text for chunk in chunks)
    assert set(result.arm_shares) == {"steady", "daring"}


@pytest.mark.parametrize("drafter", ["steady", "daring"])
def test_a_replay_takes_the_steps_of_the_simulator_on_the_same_trace(config, target, drafter):
    policy, few = f"dcut:ratios=all@{drafter}", 12
    session = LiveSession(config(policy=policy, replay={"num_requests": few}), target=target)
    rows = session.run().run.steps
    engine = replace(session.engine_config, prefill="charged")
    controller = build_controller(policy, session.controller.drafters, live=True)
    run = simulate(TRACE, COST, controller, engine, ClosedLoop(3, few + 3), seed=0, record_steps=True)
    full = int(np.flatnonzero(rows["num_running"] == 3)[-1])  # as long as each client has a next request
    assert full > 20
    for name in (*DECIDED, "arm"):
        np.testing.assert_array_equal(rows[name][:full], run.steps[name][:full], err_msg=name)
    alone = LiveSession(config(policy=policy, drafters=(drafter,), replay={"num_requests": few}), target=target)
    only = alone.run().run.steps
    for name in DECIDED:
        np.testing.assert_array_equal(only[name], rows[name], err_msg=name)


def test_everything_that_a_replay_leaves_behind_is_labelled_and_its_telemetry_has_parity(config, target, tmp_path):
    result = LiveSession(
        config(replay={"num_requests": 5, "draft_work": {"": "layers:2", "daring": "free"}}), target=target
    ).run(out=tmp_path / "run")
    assert result.replayed == LABEL
    assert result.run.notes[0] == LABEL
    assert "what drafting itself takes here: steady layers:2, daring free" in result.run.notes
    manifest, run = (json.loads((tmp_path / "run" / name).read_text()) for name in ("manifest.json", "run.json"))
    assert LABEL in manifest["how"]
    assert run["acceptance"] == LABEL
    assert manifest["kind"] == "trajectory"
    sources = [drafter["score_source"] for drafter in manifest["drafters"]]
    assert sources == [f"{LABEL}; drafting itself is {work}" for work in ("layers:2", "free")]
    found = parity(tmp_path / "run")
    assert found.equal
    with pytest.raises(InputError, match="a trajectory trace holds only the blocks its own policy visited"):
        Acceptance.named(f"trace:{tmp_path / 'run'}")


def test_some_of_the_drafters_may_be_replayed_less_deep_than_recorded(config, target):
    session = LiveSession(config(drafters=("daring",), policy="fixed_depth@daring", depth=2), target=target)
    assert [(spec.name, spec.max_depth) for spec in session.controller.drafters] == [("daring", 2)]
    rows = session.run().run.steps
    assert set(rows["depth"].tolist()) <= {0, 2}
    deep = LiveSession(config(depth=4), target=target)
    assert [spec.max_depth for spec in deep.controller.drafters] == [4, 3]


def test_outputs_end_early_where_a_limit_says_so(config, target):
    capped = LiveSession(config(engine=EngineConfig(max_tokens=6)), target=target).run()
    assert max(len(request.token_ids) for request in capped.requests) == 6
    assert not any("are cut" in note for note in capped.run.notes)
    short = LiveSession(config(engine=EngineConfig(max_model_len=14)), target=target).run()
    assert max(request.num_prompt_tokens + len(request.token_ids) for request in short.requests) == 14
    assert any("of 12 outputs are cut at 14 tokens, the longest sequence" in note for note in short.run.notes)


def test_so_many_requests_are_served_unless_told_otherwise():
    assert [Acceptance(TRACE).num_served(clients) for clients in (None, 1, 3)] == [32, 8, 12]
    assert Acceptance(TRACE, 2).num_served(8) == 2


def test_made_up_and_shipped_traces_are_found_by_name():
    for name in ("trace:h20-dflash", "trace:synthetic:h20-dflash"):
        assert Acceptance.named(name).trace.manifest.name == "synthetic-h20-dflash"
    assert list(Acceptance.named("trace:smollm2-cpu").drafters) == ["ngram", "exit24", "exit28"]
    for name, match in (
        ("smollm2-cpu", "must be trace:NAME"),
        ("trace:", "must be trace:NAME"),
        ("trace:nowhere", "nowhere: no such trace"),
        ("trace:synthetic:none", "unknown preset; allowed: h20-dflash"),
    ):
        with pytest.raises(InputError, match=match):
            Acceptance.named(name)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sampling": SamplingParams(temperature=0.5)}, "temperature is 0.5: a replay's tokens are fillers"),
        ({"sampling": SamplingParams(max_tokens=9)}, "max_tokens is 9"),
        ({"sampling": SamplingParams(stop=("a",))}, "stop is"),
        ({"compare": ("autoregressive",)}, "run it again with the other policy, such as autoregressive"),
        (
            {"drafters": ("steady", "wild")},
            "drafter 'wild': the trace synthetic-small has no such drafter; it has steady",
        ),
        ({"depth": 6}, "depth 6: synthetic-small was recorded to depth 5"),
        ({"depth": 4, "drafters": ("daring",), "policy": "dcut"}, "was recorded to depth 3"),
        ({"policy": "fixed_depth:depth=6@steady"}, "deeper than any drafter goes"),
        ({"cost": "cpu-smollm2"}, "no draft costs of drafter steady .* --draft-cost steady=NAME"),
        ({"draft_costs": {"wild": "steady"}}, "draft cost of 'wild': the run has no such drafter"),
        ({"replay": {"num_requests": 0}}, "requests is 0"),
        ({"replay": {"draft_work": {"wild": "free"}}}, "draft work of 'wild'"),
        ({"replay": {"draft_work": {"": "layers:0"}}}, "draft work 'layers:0': must be free, or layers:K"),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused_before_a_model_is_loaded(config, changes, match, monkeypatch):
    monkeypatch.setattr("specsim.live.session.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    with pytest.raises(InputError, match=match):
        LiveSession(config(**changes))


def test_prompts_are_refused_beside_a_replay(config):
    with pytest.raises(InputError, match="serves the trace's requests; give it no prompts"):
        check_session(config(), [Prompt(0, "chat", "a")])


def test_drawn_drafts_cannot_be_replayed(config):
    class Drawn(SyntheticTrace):
        @property
        def drafters(self):
            return tuple(replace(spec, law="sampled") for spec in super().drafters)

    with pytest.raises(InputError, match="drafter 'steady': its drafts were drawn"):
        check_session(replace(config(), acceptance=Acceptance(Drawn(TRACE.config))), [])


def test_more_layers_than_the_target_has_and_prompts_without_room_are_refused(config, target):
    for changes, match in (
        ({"replay": {"draft_work": {"": "layers:5"}}}, "layers:K' with K from 1 to 4"),
        ({"engine": EngineConfig(max_model_len=5)}, "of synthetic-small: its .* prompt tokens leave no room"),
        ({"engine": EngineConfig(num_kv_blocks=1)}, "request .*: needs 2 KV blocks .* there are 1"),
    ):
        with pytest.raises(InputError, match=match):
            LiveSession(config(**changes), target=target)


def test_priced_as_another_drafter_means_the_tables_price_of_that_one(config, target):
    cost = linear_table(1e-3, 2e-4, drafters={"block": 5e-3})
    what_if = {"steady": "block", "daring": "block"}
    result = LiveSession(config(cost=cost, draft_costs=what_if, replay={"num_requests": 2}), target=target).run()
    assert "what-if: drafting by steady is priced as block" in result.run.notes
    # Such as an early exit, which needs no catching up; nor does a replay.
    cacheless = CostTable.from_cells(cost.meta, [cell for cell in cost.cells if cell.phase != "switch"])
    with pytest.raises(InputError, match="no draft costs of drafter daring"):
        check_session(config(cost=cacheless, draft_costs={"steady": "block"}), [])
    session = LiveSession(config(cost=cacheless, draft_costs=what_if, replay={"num_requests": 2}), target=target)
    assert session.engine.cost.switch_seconds(session.controller.drafters[0], 100) == 0.0
    assert session.run().summary.num_requests == 2


def test_random_weights_without_a_replay_say_that_they_mean_nothing(config, prompt_file):
    plain = replace(config(), acceptance=None, drafters=("ngram",), policy="autoregressive", sampling=SamplingParams(3))
    result = LiveSession(plain, [Prompt(0, "chat", "abc abc")]).run()
    assert result.run.notes[-1] == NO_MEANING
    assert result.replayed == ""
