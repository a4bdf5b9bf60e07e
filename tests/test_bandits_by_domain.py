"""The script that puts drafter policies on a stream of changing domains: order, oracle, and what it says of them."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specsim.cost.examples import linear_table
from specsim.errors import InputError
from specsim.policies.build import ARMS, build_controller
from specsim.serving import EngineConfig
from specsim.sim.simulate import simulate
from specsim.sim.workload import TraceArrivals
from specsim.trace import Trace

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks"
DCUT = "dcut:ratios=all,numerator=bonus"


@pytest.fixture
def load(monkeypatch):
    """A script as a module, told its command line."""

    def load(name, *arguments):
        monkeypatch.syspath_prepend(str(SCRIPTS))
        monkeypatch.setattr(sys, "argv", [str(SCRIPTS / f"{name}.py"), *map(str, arguments)])
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def streams(load):
    return load("bandit_streams")


@pytest.fixture
def bandits(load, streams):
    return load("bandits_by_domain", "--tiny", "--synthetic")


def test_a_stream_goes_from_domain_to_domain(streams):
    trace, _ = streams.made_up()
    study = streams.Study("synthetic", "", segments=5, requests=40, budget=DCUT)
    rows = streams.stream(trace, study, seed=3)
    requests = streams.InOrder(trace, rows).requests
    named = [requests.domains[code] for code in requests.domain]
    assert named == [name for name in ("chat", "code", "math", "chat", "code") for _ in range(40)]
    assert (rows == streams.stream(trace, study, seed=3)).all()
    assert (rows != streams.stream(trace, study, seed=4)).any()
    chat = np.flatnonzero(trace.requests.domain == trace.requests.domains.index("chat"))
    assert set(rows[:40]) == set(chat)  # each once before any comes again


def test_the_simulator_serves_a_stream_in_its_order(streams):
    study = streams.Study("synthetic", "", segments=3, requests=4, budget=DCUT)
    trace, cost = streams.materials(study)
    ordered = streams.InOrder(trace, streams.stream(trace, study, 0))
    controller = build_controller(f"{DCUT}@one", trace.drafters)
    run = simulate(ordered, cost, controller, EngineConfig(max_num_seqs=1), TraceArrivals())
    assert run.requests["index"].tolist() == list(range(12))
    assert run.requests["num_output_tokens"].tolist() == ordered.requests.num_output_tokens.tolist()


def test_segments_of_lone_requests_end_when_their_last_one_finishes(streams):
    study = streams.Study("synthetic", "", segments=3, requests=4, budget=DCUT)
    trace, cost = streams.materials(study)
    ordered = streams.InOrder(trace, streams.stream(trace, study, 0))
    controller = build_controller(f"{DCUT}@one", trace.drafters)
    limits, arrivals = EngineConfig(max_num_seqs=1), TraceArrivals()
    run = simulate(ordered, cost, controller, limits, arrivals, record_steps=True)
    ends = np.cumsum(streams.segments(ordered, run.steps, study))
    assert ends == pytest.approx(run.requests["finished_at"][3::4], rel=1e-9)


def test_segments_of_lone_requests_end_with_their_last_token(streams):
    study = streams.Study("synthetic", "", segments=3, requests=4, budget="fixed_depth:depth=4")
    played = streams.play(study, "two", batch=1, seed=0)
    assert played.by_segment.sum() == pytest.approx(played.seconds, rel=1e-9)
    assert played.by_segment.argmin() == 1  # the second segment is code, where drafter two is at home
    assert played.shares["two"] == 1.0


def test_drafters_at_home_in_different_domains_leave_room_for_a_choice(bandits, capsys):
    assert bandits.main() == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    (cell,) = result["cells"]
    assert (cell["batch"], cell["arms"], result["order"]) == (2, ["one", "two", "three"], "shuffled within each domain")
    rows = cell["policies"]
    assert cell["oracle_over_best_fixed"] > 1.05
    assert rows[cell["best_fixed"]]["interval"] == [1.0, 1.0]
    fixed = {name: rows[name]["tokens_per_second"] for name in ("one", "two", "three")}
    assert cell["best_fixed"] == max(fixed, key=fixed.get)
    assert {name for name, row in rows.items() if row["kind"] == "fixed"} == {*fixed, "autoregressive"}
    assert rows["autoregressive"]["shares"] == {"plain": 1.0}
    assert all(row["over_oracle"] < 1 for name, row in rows.items())
    below = [name for name, row in rows.items() if row["verdict"] == "below the best fixed drafter"]
    assert cell["below_the_best_fixed"] == [name for name in below if rows[name]["kind"] != "fixed"]
    for row in rows.values():  # every second of the stream belongs to a phase
        assert sum(row["phases"].values()) == pytest.approx(1, abs=0.01)


def test_some_drafters_alone_are_played_as_if_the_others_were_not_there(streams, bandits):
    study = streams.Study("synthetic", "", segments=3, requests=4, budget="fixed_depth:depth=4")
    some = replace(study, drafters=("three", "one"))
    for name in ("one", "three"):
        whole, part = (streams.play(own, name, batch=1, seed=0) for own in (study, some))
        assert part.seconds == whole.seconds
        assert set(part.shares) == {"one", "three", "plain"}
    assert set(streams.play(some, "round_robin", 1, 0).shares) == {"three", "one", "plain"}
    with pytest.raises(InputError, match="drafter 'four': the trace has one, two, three"):
        streams.arms_of(streams.made_up()[0], replace(study, drafters=("four",)))


def test_the_recorded_order_is_the_traces_own_and_refused_where_segments_are_mixed(streams):
    trace = Trace.open(ROOT / "traces" / "smollm2-domains")
    study = streams.Study("smollm2-domains", "", segments=18, requests=8, budget=DCUT, recorded=True)
    rows = streams.stream(trace, study, seed=3)
    assert rows.tolist() == [*range(72)] * 2
    requests = streams.InOrder(trace, rows).requests
    named = [requests.domains[code] for code in requests.domain]
    assert named == [name for name in ("chat", "code", "math") * 6 for _ in range(8)]
    with pytest.raises(InputError, match="segment 0 of 12 requests holds chat, code: not one domain"):
        streams.stream(trace, replace(study, segments=6, requests=12), 0)
    with pytest.raises(InputError, match="two segments of 4 requests in a row are of the same domain"):
        streams.stream(trace, replace(study, segments=4, requests=4), 0)


def test_nine_segments_of_eight_are_every_request_once_whatever_the_seed(streams):
    trace = Trace.open(ROOT / "traces" / "smollm2-domains")
    study = streams.Study("smollm2-domains", "", segments=9, requests=8, budget=DCUT)
    for seed in range(3):
        rows = streams.stream(trace, study, seed)
        assert sorted(rows.tolist()) == list(range(72))
        domains = trace.requests.domain[rows].reshape(9, 8)
        assert (domains == domains[:, :1]).all()


def test_the_real_drafters_are_judged_on_the_same_tokens(streams, bandits, monkeypatch):
    trace = Trace.open(ROOT / "traces" / "smollm2-domains")
    cost = linear_table(0.05, 1.5e-3, (1, 2048), drafters={spec.name: 0.005 for spec in trace.drafters})
    monkeypatch.setattr(streams, "materials", lambda study: (trace, cost))
    study = streams.Study("smollm2-domains", "", 9, 8, "fixed_depth:depth=4", ("eagle-chat", "eagle-math"), True)
    runs = {name: [streams.play(study, name, 8, 0)] for name in ("eagle-chat", "eagle-math", "round_robin")}
    found = bandits.judged(runs, ["eagle-chat", "eagle-math"])
    assert found["tokens"] == [int(trace.requests.num_output_tokens.sum())]
    assert found["oracle_over_best_fixed"] > 1.02
    maths = runs["eagle-math"][0].by_segment / runs["eagle-chat"][0].by_segment
    assert (maths[2::3] < 1).all()  # at home
    assert (maths[0::3] > 1).all()


def test_every_drafter_policy_is_played(bandits):
    assert {name.split(":")[0] for name in bandits.policies()} == set(ARMS) - {"fixed_arm"}
    for name, candidates in bandits.CANDIDATES.items():
        assert {candidate.split(":")[0] for candidate in candidates} == {name}


def test_options_are_chosen_on_streams_that_are_not_judged(bandits, streams, monkeypatch, capsys):
    played = []

    def play(study, name, batch, seed):
        played.append((study.trace, name, seed))
        speed = 2.0 if name == "ucb1:reward=throughput,c=0.05" else 1.0
        return streams.Played(100, 100 / speed, np.array([50 / speed] * 2), {"a": 1.0}, {"draft": 1.0})

    monkeypatch.setattr(bandits, "play", play)
    monkeypatch.setattr(bandits, "materials", lambda study: streams.made_up())
    monkeypatch.setattr(sys, "argv", ["it", "--tiny", "--trace", "judged", "--tune", "other"])
    assert bandits.main() == 0
    (cell,) = json.loads(capsys.readouterr().out.splitlines()[-1])["cells"]
    assert "ucb1:reward=throughput,c=0.05" in cell["tuned"]
    assert [name.split(":")[0] for name in cell["tuned"]] == list(bandits.CANDIDATES)
    assert cell["policies"]["ucb1:reward=throughput,c=0.05"]["kind"] == "tuned"
    assert cell["policies"]["ucb1:reward=throughput"]["kind"] == "policy"
    assert any(name == "ucb1:reward=throughput" for trace, name, _ in played if trace == "other")
    assert {seed for trace, _, seed in played if trace == "other"} == {1000, 1001}
    assert {seed for trace, _, seed in played if trace == "judged"} == {0, 1}


def test_a_policy_is_judged_by_its_interval_over_seeds(bandits, streams, monkeypatch):
    def runs(*throughputs, tokens=100):
        return [
            streams.Played(tokens, tokens / speed, np.array([tokens / 2 / speed] * 2), {"a": 1.0}, {"draft": 1.0})
            for speed in throughputs
        ]

    monkeypatch.setattr(bandits, "policies", lambda: ["slow", "fast", "even"])
    played = {"a": runs(10, 20), "b": runs(9, 18), "slow": runs(9, 19), "fast": runs(11, 21), "even": runs(11, 18)}
    found = bandits.judged(played, ["a", "b"])
    assert found["best_fixed"] == "a"
    assert found["oracle_over_best_fixed"] == 1.0
    assert found["below_the_best_fixed"] == ["slow"]
    totals = (200 / (100 / 9 + 100 / 19)) / (200 / 15)  # of tokens and of seconds, not of ratios
    assert found["policies"]["slow"]["over_best_fixed"] == pytest.approx(totals, abs=1e-4)
    assert found["policies"]["fast"]["verdict"] == "above it"
    assert found["policies"]["even"]["verdict"] == "no difference seen"
    with pytest.raises(ValueError, match="the same requests"):
        bandits.judged(played | {"other": runs(10, 20, tokens=99)}, ["a", "b"])


def test_a_drafter_that_is_not_there_is_one_line(bandits, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["it", "--tiny", "--synthetic", "--arms", "one,nobody"])
    assert bandits.main() == 2
    assert capsys.readouterr().err.splitlines() == ["drafter 'nobody': the trace has one, two, three"]


def test_what_another_table_said_is_kept_and_another_study_is_not_mixed_in(bandits, monkeypatch, tmp_path, capsys):
    file = tmp_path / "out.json"
    base = ["it", "--tiny", "--synthetic", "--out", str(file)]
    monkeypatch.setattr(sys, "argv", base)
    assert bandits.main() == 0
    first = json.loads(file.read_text())
    assert first == json.loads(capsys.readouterr().out.splitlines()[-1])
    other = first | {"cells": [first["cells"][0] | {"cost": "other"}, *first["cells"]]}
    file.write_text(bandits.compact(other))
    assert json.loads(file.read_text()) == other
    monkeypatch.setattr(sys, "argv", [*base, "--keep"])
    assert bandits.main() == 0
    assert json.loads(file.read_text()) == other  # its own cells were played again, alike
    monkeypatch.setattr(sys, "argv", [*base, "--keep", "--recorded"])
    monkeypatch.setattr(bandits, "studied", lambda arguments: first | {"order": "recorded"})
    assert bandits.main() == 2
    assert "order is shuffled within each domain, here recorded" in capsys.readouterr().err
    assert json.loads(file.read_text()) == other
