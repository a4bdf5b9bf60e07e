"""`specsim tune`, and controller files as policies."""

from __future__ import annotations

import json

import pytest

from tests.study.tuning_world import build_tuning_world


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return build_tuning_world(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def tune(planted, specsim):
    """Runs `specsim tune` on the planted world."""

    def command(*arguments):
        fixed = ("--trace", planted / "trace", "--cost", planted / "table", "--batch", "1,2", "--requests", 6)
        return specsim("tune", *fixed, "--seeds", 2, "--validation-seeds", 3, "--jobs", 1, *arguments)

    return command


def test_it_shows_options_gains_and_verdict_in_80_columns(tune):
    code, out, err = tune("--policy", "dcut@three", "--search", "depth=1..15", "--search", "ratios", "--trials", 20)
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "validated on 6 others" in " ".join(out.split())
    assert ".25/.5/.75/1,.125/.25..." in out
    assert "validation, all" in out
    assert "tuning, all" in out
    assert "validation, 2" in out
    assert "throughput is" in " ".join(out.split())


def test_a_saved_controller_is_a_policy_of_simulate_and_compare(tune, specsim, planted, tmp_path):
    file = tmp_path / "tuned.json"
    code, out, _ = tune("--policy", "fixed_depth@three", "--search", "depth=1..15", "--save", file)
    assert code == 0
    assert f"wrote {file}, for --policy {file}" in out
    world = ("--trace", planted / "trace", "--cost", planted / "table", "--batch", 2, "--requests", 6)
    by_file = specsim("simulate", *world, "--policy", file, "--json")
    by_text = specsim("simulate", *world, "--policy", "fixed_depth:depth=3@three", "--json")
    assert json.loads(by_file[1])["metrics"] == json.loads(by_text[1])["metrics"]
    assert json.loads(by_file[1])["policy"] == "fixed_depth@three tuned for throughput"
    code, out, _ = specsim("compare", *world, "--policy", file, "--seeds", 2, "--jobs", 2, "--json")
    assert code == 0
    assert "fixed_depth@three tuned for throughput" in {cell["policy"] for cell in json.loads(out)["cells"]}


def test_a_learned_state_in_the_file_is_where_the_policy_starts(specsim, planted, tmp_path):
    world = ("--trace", planted / "trace", "--cost", planted / "table", "--batch", 2, "--requests", 6, "--json")
    policy = "fixed_depth:depth=3@ucb1"
    assert specsim("simulate", *world, "--policy", policy, "--save-controller", tmp_path / "state.json")[0] == 0
    state = json.loads((tmp_path / "state.json").read_text())
    config = {"budget": {"name": "fixed_depth", "options": {"depth": 3}}, "drafter": "ucb1"}
    (tmp_path / "learned.json").write_text(json.dumps({"config": config, "state": state}))
    again = specsim("simulate", *world, "--policy", tmp_path / "learned.json")
    loaded = specsim("simulate", *world, "--policy", policy, "--load-controller", tmp_path / "state.json")
    fresh = specsim("simulate", *world, "--policy", policy)
    assert again == loaded
    assert again != fresh


def test_a_killed_command_goes_on_with_resume(tune, refused, planted, tmp_path):
    asked = ("--policy", "fixed_depth@three", "--search", "depth=2..4", "--json", "--out", tmp_path / "out")
    first = tune(*asked)
    file = tmp_path / "out" / "runs.jsonl"
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    second = tune(*asked, "--resume")
    assert second[0] == 0
    assert sorted(file.read_text().splitlines()) == sorted(whole.splitlines())
    same = [json.loads(text) | {"command": ""} for text in (first[1], second[1])]
    assert same[0] == same[1]
    assert "holds runs already" in refused(
        "tune", "--trace", planted / "trace", "--cost", planted / "table", "--policy", "dcut@three", *asked[-2:]
    )


def test_p99_tpot_is_shown_in_milliseconds(tune):
    code, out, _ = tune("--policy", "fixed_depth@three", "--search", "depth=2..4", "--objective", "p99_tpot")
    assert code == 0
    assert "default, ms" in out
    assert "p99 TPOT is" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--search", "deepness=1..3"], "--search 'deepness': not an option of this policy; it has: budget.depth"),
        (["--search", "count"], "--search count: no values of its own (those with one: depth, ratios"),
        (["--search", "depth=a..3"], "the ends of a range of depth must be whole numbers"),
        (["--search", "depth=1..999"], "depth 999 is deeper than any drafter goes (three at most "),
        (["--search", "depth=1..2.5"], "the ends of a range of depth must be whole numbers"),
        (["--search", "depth=5..3"], "LOW must not exceed HIGH"),
        (["--search", "depth=0..3"], "--search depth=0..3: 0: input should be greater than or equal to 1"),
        (["--search", "numerator=1..3"], "numerator of dcut is no number; give its values with commas between"),
        (["--search", "numerator=paper,bones"], "'bones': input should be 'paper' or 'bonus'"),
        (["--search", "numerator=paper,,bonus"], "give different values with commas between"),
        (["--search", "numerator=paper,paper"], "give different values with commas between"),
        (["--search", "depth", "--search", "budget.depth=1..3"], "--search: option depth is given twice"),
        (["--objective", "speed"], "objective is 'speed'"),
        (["--trials", "0"], "trials is 0"),
        (["--seeds", "x"], "--seeds x: 'x' is not one"),
        (["--seeds", "1,1"], "seeds [1, 1] repeats a value"),
        (["--validation-seeds", "1"], "validation_seeds"),
        (["--seed", "-1"], "seed is -1"),
        (["--seed", str(2**32)], f"seed is {2**32}"),
        (["--jobs", "-1"], "'--jobs'"),
        (["--batch", "2,x"], "--batch 2,x: 'x' is not one"),
        (["--resume"], "--resume needs --out"),
        (["--save", "tuned.txt"], "--save tuned.txt: must end in .json"),
        (["--save", "/dev/null/x.json"], "--save: /dev/null is not a folder"),
        (["--out", "/dev/null/x"], "--out: /dev/null is not a folder"),
        (["--domain", "nothing"], "domain 'nothing' is not in the trace"),
        (["--max-num-seqs", "0"], "max_num_seqs"),
        (["--draft-cost", "a"], "--draft-cost a: write DRAFTER_OF_TRACE=DRAFTER_OF_TABLE"),
    ],
)
def test_bad_input_is_one_line(refused, planted, arguments, message):
    fixed = ("--trace", planted / "trace", "--cost", planted / "table", "--policy", "dcut@three")
    assert message in refused("tune", *fixed, *arguments)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("autoregressive", "autoregressive: nothing to search"),
        ("dcut@nobody", "unknown drafter policy or drafter 'nobody'"),
        ("dcut~isotonic@sliding_window_ucb", "--search window: several have it; write calibrator.window or drafter"),
    ],
)
def test_a_policy_that_cannot_be_tuned_is_one_line(refused, planted, policy, message):
    fixed = ("--trace", planted / "trace", "--cost", planted / "table", "--policy", policy)
    search = ("--search", "window=10..50") if "window" in policy else ()
    assert message in refused("tune", *fixed, *search)


def test_a_trace_of_one_request_is_one_line(refused, specsim, planted, tmp_path):
    from specsim.trace import Trace

    Trace.open(planted / "trace").slice(requests=[0], out=tmp_path / "one")
    fixed = ("--trace", tmp_path / "one", "--cost", planted / "table", "--policy", "dcut@three")
    assert "the trace has 1 request" in refused("tune", *fixed)


CONFIG = {"budget": {"name": "dcut"}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "it must be an object with the keys config, state, tuned"),
        ('{"budget_policy": {}}', "is a learned state alone; give the policy's text, and this as --load-controller"),
        (json.dumps({"config": CONFIG, "more": 1}), "unknown key 'more'; allowed: config, state, tuned"),
        ("{}", "key 'config' must be an object"),
        (json.dumps({"config": CONFIG | {"state": {}}}), "a state stands beside 'config', not in it"),
        (json.dumps({"config": CONFIG, "state": 3}), "key 'state' must be null or an object"),
        (json.dumps({"config": {"budget": {"nom": "dcut"}}}), "config.budget.name: field required"),
        (json.dumps({"config": CONFIG | {"drafter": "nobody"}}), "nobody"),
        (json.dumps({"config": CONFIG | {"drafter": "three"}, "state": {"drafters": ["a"]}}), "learned on drafters"),
        (
            json.dumps({"config": CONFIG | {"drafter": "three"}, "state": {"drafters": ["three", "same"]}}),
            "this state is not one of",
        ),
    ],
)
def test_a_bad_controller_file_is_one_line(refused, planted, tmp_path, content, message):
    file = tmp_path / "controller.json"
    if content is not None:
        file.write_text(content)
    world = ("--trace", planted / "trace", "--cost", planted / "table", "--batch", 2)
    assert message in refused("simulate", *world, "--policy", file)
    assert message in refused("compare", *world, "--policy", file, "--jobs", 1)


def test_a_file_of_any_name_is_read_by_its_path_but_none_can_take_a_policys_name(
    specsim, planted, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dcut@three").write_text("not a controller")
    world = ("--trace", planted / "trace", "--cost", planted / "table", "--batch", 2, "--requests", 2)
    assert specsim("simulate", *world, "--policy", "dcut@three")[0] == 0
    (tmp_path / "mine").write_text(json.dumps({"config": CONFIG | {"drafter": "three"}}))
    assert (
        specsim("simulate", *world, "--policy", "./mine")[1] == specsim("simulate", *world, "--policy", "dcut@three")[1]
    )
