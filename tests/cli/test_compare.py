"""`specsim compare`: the table, the files, the study file, and what it refuses."""

from __future__ import annotations

import json

import pytest

from specsim.study.result import StudyResult


@pytest.fixture
def base(world):
    return [
        "compare", "--trace", world / "trace", "--cost", world / "linear", "--policy", "dcut@strong",
        "--policy", "fixed_depth:depth=3@strong", "--batch", "2,4", "--seeds", 2, "--requests", 8, "--jobs", 1,
    ]  # fmt: skip


def test_it_prints_the_table_and_what_was_found_within_80_columns(specsim, base):
    code, out, err = specsim(*base)
    assert (code, err) == (0, "")
    assert "Speedup over autoregressive, cost table example-linear" in out
    for policy in ("autoregressive", "dcut@strong", "fixed_depth:depth=3@strong", "clairvoyant"):
        assert policy in out
    assert "is the fastest at batch 2" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_json_is_a_study_that_loads_again(specsim, base, tmp_path):
    code, out, err = specsim(*base, "--json")
    assert (code, err) == (0, "")
    (tmp_path / "study.json").write_text(out)
    result = StudyResult.load(tmp_path / "study.json")
    assert [cell.batch for cell in result.cells] == [2] * 4 + [4] * 4
    assert result.seeds == [0, 1]


def test_the_result_says_which_command_makes_it_again(specsim, base):
    _, out, _ = specsim(*base, "--json")
    command = json.loads(out)["command"]
    assert command.startswith("specsim compare --trace ")
    assert command.endswith("--batch 2,4 --seeds 2 --requests 8 --jobs 1 --json")


def test_it_writes_the_report_and_says_where(specsim, base, tmp_path):
    code, out, _ = specsim(*base, "--html", tmp_path / "deep" / "report.html")
    assert code == 0
    assert f"Report: {tmp_path / 'deep' / 'report.html'}" in out
    assert "<html" in (tmp_path / "deep" / "report.html").read_text()[:2000]


@pytest.mark.parametrize(("load", "where"), [(("--batch", "2"), "batch 2"), (("--rate", "1"), "rate 1/s")])
def test_outputs_of_one_token_leave_no_speedup(specsim, base, tmp_path, load, where):
    report = tmp_path / "report.html"
    code, out, err = specsim(*base[:7], *load, "--seeds", 2, "--jobs", 1, "--max-tokens", 1, "--html", report)
    assert (code, err) == (0, "")
    assert f"- No speedup is known at {where}: no finished request has a second token." in out
    assert report.is_file()


def test_runs_are_kept_and_taken_up_again(specsim, refused, base, tmp_path):
    assert specsim(*base, "--out", tmp_path / "out")[0] == 0
    assert "--resume" in refused(*base, "--out", tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").iterdir()}
    assert specsim(*base, "--out", tmp_path / "out", "--resume")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").iterdir()} == before


def test_options_win_over_the_study_file(specsim, world, tmp_path):
    (tmp_path / "study.yaml").write_text(
        f"trace: {world / 'trace'}\n"
        f"tables: [{{path: {world / 'linear'}, draft_costs: {{strong: weak}}}}]\n"
        "policies: [dcut@strong]\nbatches: [2]\nseeds: 2\nrequests: 8\nengine: {block_size: 8, max_num_seqs: 64}\n"
    )
    arguments = ["compare", "--config", tmp_path / "study.yaml", "--jobs", 1, "--json"]
    plain = json.loads(specsim(*arguments)[1])
    assert {cell["batch"] for cell in plain["cells"]} == {2}
    assert plain["tables"][0]["what-if prices"] == ["strong at the price of weak"]
    changed = json.loads(
        specsim(*arguments, "--batch", "4", "--block-size", 32, "--no-clairvoyant", "--seeds", "7,9")[1]
    )
    assert {cell["batch"] for cell in changed["cells"]} == {4}
    assert changed["engine"]["block_size"] == 32
    assert changed["engine"]["max_num_seqs"] == 64
    assert changed["seeds"] == [7, 9]
    assert not any(cell["clairvoyant"] for cell in changed["cells"])
    rates = json.loads(specsim(*arguments, "--rate", "2.5")[1])
    assert {(cell["batch"], cell["rate"]) for cell in rates["cells"]} == {(0, 2.5)}


def test_a_price_can_hold_for_one_table_alone(specsim, base, world):
    two = [*base, "--cost", world / "staircase", "--draft-cost", f"{world / 'staircase'}:strong=weak", "--json"]
    tables = json.loads(specsim(*two)[1])["tables"]
    assert ["what-if prices" in table for table in tables] == [False, True]


def test_goodput_is_reported_when_bounds_are_given(specsim, base):
    cells = json.loads(specsim(*base, "--slo-tpot", 1, "--json")[1])["cells"]
    assert all(cell["values"]["goodput"] > 0 for cell in cells)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "guess@strong"], "unknown budget policy 'guess': allowed autoregressive"),
        (["--policy", "dcut"], "dcut: this run has 2 drafters, choose one"),
        (["--policy", "dcut@strong"], "policy 'dcut@strong' is given twice"),
        (["--policy", "dcut:ratios=2@strong"], "dcut: option ratios"),
        (["--trace", "nowhere"], "nowhere: no such trace"),
        (["--cost", "nowhere"], "nowhere: no such cost"),
        (["--batch", "1,x"], "--batch 1,x: 'x' is not one; give whole numbers with commas between"),
        (["--batch", "1.5"], "--batch 1.5: '1.5' is not one"),
        (["--batch", ""], "--batch : '' is not one"),
        (["--batch", "0"], "batches.0 is 0"),
        (["--batch", "2,2"], "batches [2, 2] repeats a value"),
        (["--batch", "300"], "batch 300 exceeds max_num_seqs 256"),
        (["--rate", "fast"], "--rate fast: 'fast' is not one; give numbers with commas between"),
        (["--rate", "2"], "give either batches (closed loop) or rates (open loop)"),
        (["--seeds", "none"], "--seeds none: 'none' is not one"),
        (["--seeds", "0"], "seeds is 0"),
        (["--seeds", "1,1"], "seeds [1, 1] repeats a value"),
        (["--requests", "0"], "requests is 0"),
        (["--burstiness", "0"], "burstiness is 0.0"),
        (["--domain", "poetry"], "domain 'poetry' is not in the trace"),
        (["--draft-cost", "strong"], "--draft-cost strong: write DRAFTER_OF_TRACE=DRAFTER_OF_TABLE"),
        (["--draft-cost", "strong=none"], "cannot price strong as none: it has strong, weak"),
        (["--draft-cost", "third=weak"], "the trace has no such drafter"),
        (["--draft-cost", "h20:strong=weak"], "h20 is not among the cost tables"),
        (["--slo-ttft", "0"], "--slo-ttft is 0.0; it must be positive"),
        (["--draft-cost", "strong=weak", "--draft-cost", "strong=strong"], "strong is priced as weak already"),
        (["--burstiness", "2"], "--burstiness needs --rate"),
        (["--resume"], "--resume needs --out"),
        (["--html", "."], "--html .: is a folder"),
        (["--prefill", "free"], "engine.prefill is 'free'"),
        (["--max-num-seqs", "0"], "engine.max_num_seqs is 0"),
        (["--max-num-batched-tokens", "8"], "max_num_batched_tokens is 8"),
        (["--config", "nowhere.yaml"], "study nowhere.yaml: no such file"),
        (["--config", "setup.cfg"], "suffix '.cfg' is unknown; allowed: .yaml, .yml, .toml"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(refused, base, options, message):
    assert message in refused(*base, *options)


@pytest.mark.parametrize("option", ["--trace", "--cost", "--policy"])
def test_what_is_missing_is_named(refused, base, option):
    given = [str(argument) for argument in base]
    while option in given:
        del given[given.index(option) : given.index(option) + 2]
    assert f"{option} is missing: give it, or a study file with --config" in refused(*given)


def test_a_study_file_with_an_unknown_key_names_it(refused, tmp_path):
    (tmp_path / "study.toml").write_text('trace = "t"\ncolour = 1\n')
    line = refused("compare", "--config", tmp_path / "study.toml")
    assert "unknown key 'colour'; allowed: title, trace" in line or "key 'tables' is missing" in line


def test_a_cost_table_is_not_used_outside_its_range_unasked(refused, base, world):
    line = refused(*base[:3], "--cost", world / "staircase", *base[5:], "--batch", "20")
    assert "example-staircase" in line
    assert "--extrapolate" in line


def test_bad_input_in_another_process_is_one_line_too(refused, base, world):
    assert "example-staircase" in refused(
        *base[:3], "--cost", world / "staircase", *base[5:], "--batch", "4,20", "--jobs", 2
    )


def test_a_drafter_without_a_price_is_named_with_the_remedy(refused, base, world, tmp_path):
    from specsim.cost.examples import linear_table

    linear_table(0.01, 0.0001, drafters={"other": 0.001}, max_depth=7).save(tmp_path / "bare")
    line = refused(*base[:3], "--cost", tmp_path / "bare", *base[5:])
    assert "strong" in line
    assert "--draft-cost strong=" in line


def test_policies_are_listed_with_their_options(specsim):
    code, out, _ = specsim("policies")
    assert code == 0
    for word in ("dcut", "fixed_depth", "ucb1", "identity", "ratios=0.25/0.5/0.75/1", "BUDGET[:opt=value,...]"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 80
    listed = json.loads(specsim("policies", "--json")[1])
    assert set(listed) == {"BUDGET", "DRAFTER", "CALIBRATOR"}
    assert listed["DRAFTER"]["ucb1"]["options"]["c"] == "1.0"


def test_the_schema_is_that_of_a_study_file(specsim):
    from specsim.config import StudyConfig

    code, out, _ = specsim("schema")
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(StudyConfig.model_json_schema()))
