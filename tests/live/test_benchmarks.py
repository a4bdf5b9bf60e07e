"""The scripts behind published numbers run, small, and say what they found in one JSON object."""

import importlib.util
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType

from specsim.cost import CostTable

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def run_script(monkeypatch, capsys):
    """Run a script in this process, since importing torch takes longer than the script."""

    def run(name, *arguments, shrink=None):
        monkeypatch.syspath_prepend(str(SCRIPTS))
        monkeypatch.setattr(sys, "argv", [str(SCRIPTS / f"{name}.py"), "--tiny", *map(str, arguments)])
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if shrink:
            shrink(module)
        code = module.main() if name == "engine_cpu" else sys.modules["replay_run"].command(module.main, "", **OPTIONS)
        assert code == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


OPTIONS = {
    "table": {"default": None},
    "smollm2": {"default": "smollm2-135m"},
    "quick": {"action": "store_true"},
    "prefix": {"default": ""},
    "shapes": {"default": "llama-3-8b,smollm2-135m"},
    "batches": {"type": lambda text: tuple(map(int, text.split(","))), "default": None},
    "minutes": {"type": float, "default": 5.0},
}


@pytest.fixture(scope="module")
def table_folder(tmp_path_factory):
    """A cost table of the tiny shape."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        import replay_run

        folder = tmp_path_factory.mktemp("tables") / "tiny"
        replay_run.World(replay_run.TINY).measure_table().save(folder)
    return folder


def test_profiles_of_both_models_are_written_as_tables(run_script, tmp_path):
    result = run_script("h200_profile", "--out", tmp_path)
    assert result["tiny"]
    assert json.loads((tmp_path / "h200_profile.json").read_text()) == result
    for name, drafters in (("llama-3-8b", ("dflash",)), ("smollm2-135m", ("dflash", "ngram"))):
        table = CostTable.open(tmp_path / f"{name}-float32")
        assert table.drafters == drafters
        assert any("layers:1" in remark for remark in table.meta.remarks)
        assert set(result["tables"][name]["steps"]) == {"1", "2", "4"}


def test_one_shape_may_be_profiled_alone(run_script, tmp_path):
    result = run_script(
        "h200_profile", "--out", tmp_path, "--shapes", "smollm2-135m", "--minutes", "0", "--prefix", "a-"
    )
    assert CostTable.open(tmp_path / "smollm2-135m-float32").name == "a-smollm2-135m"
    assert set(result["tables"]) == {"smollm2-135m"}
    assert result["tables"]["smollm2-135m"]["fewest_samples"] == 1  # no time for more rounds than have to be


def test_a_shape_that_nobody_knows_is_named(run_script, tmp_path, capsys):
    with pytest.raises(AssertionError):
        run_script("h200_profile", "--out", tmp_path, "--shapes", "llama-9-9b")
    assert "shapes llama-9-9b: allowed are llama-3-8b, smollm2-135m" in capsys.readouterr().err


def test_measured_and_predicted_throughput_are_of_the_same_steps(run_script, table_folder, tmp_path):
    """Whatever the machine does meanwhile, the simulator takes the very steps that were measured."""

    def shrink(module):
        module.POLICIES = ("autoregressive", "fixed_depth:depth=7", "dcut")

    result = run_script("h200_grid", "--out", tmp_path, "--table", table_folder, shrink=shrink)
    assert result["label"] == "acceptance replayed from synthetic-h20-dflash"
    assert [(cell["policy"], cell["batch"]) for cell in result["cells"]] == [
        (policy, batch) for policy in ("autoregressive", "fixed_depth:depth=7", "dcut") for batch in (1, 2, 4)
    ]
    assert all(cell["same_steps"] == 1.0 and cell["steps"] > 3 for cell in result["cells"])
    assert result["max_error"] >= result["mean_error"] > 0
    assert result["verifying_15_drafts"]["batch"] == 4
    assert result["speedups"]["autoregressive"] == {"1": 1.0, "2": 1.0, "4": 1.0}


def test_the_share_of_waiting_is_of_the_steps_seconds(run_script, table_folder, tmp_path):
    def shrink(module):
        module.POLICIES, module.MOST_STEPS = ("dcut",), 3

    result = run_script("h200_overhead", "--out", tmp_path, "--table", table_folder, shrink=shrink)
    assert [cell["batch"] for cell in result["cells"]] == [1, 2, 4]
    for cell in result["cells"]:
        assert cell["busy_ms"] > 0
        assert cell["waiting_share"] == pytest.approx(1 - cell["busy_ms"] / cell["step_ms"], abs=0.01)


def test_idle_between_kernels_of_a_graph_is_no_waiting_for_the_host(run_script, table_folder, tmp_path, monkeypatch):
    """Kernels of one launch are those of a graph; a launch of one kernel, the host's calls and annotations are not."""
    seen = [(1, 3.0), (2, 5.0), (2, 7.0), (2, 1.0), (3, 2.0), (9, 400.0), (8, 300.0)]
    events = [
        SimpleNamespace(
            id=launch,
            device_type=DeviceType.CPU if launch == 9 else DeviceType.CUDA,
            is_user_annotation=launch == 8,
            time_range=SimpleNamespace(elapsed_us=lambda took=took: took),
        )
        for launch, took in seen
    ]

    def look(module):
        with monkeypatch.context() as patch:
            patch.setattr(
                torch.profiler, "profile", lambda activities: nullcontext(SimpleNamespace(events=lambda: events))
            )
            found = module.profiled(lambda: None, "cuda")
        assert (found.busy, found.in_graphs) == (pytest.approx(18e-6), 3)
        module.POLICIES = ("autoregressive",)

        def profiled(run, device):
            run()
            return module.Seen(1e-6, 6_000_000)

        module.profiled, module.between_kernels = profiled, lambda device, batch: 1e-9

    result = run_script("h200_overhead", "--quick", "--out", tmp_path, "--table", table_folder, shrink=look)
    for cell in result["cells"]:
        assert cell["between_kernels_ms"] > 0
        idle = cell["idle_share"] - cell["between_kernels_ms"] / cell["step_ms"]
        assert cell["waiting_share"] == pytest.approx(idle, abs=1e-3)


def test_a_quick_grid_takes_fewer_policies_and_steps(run_script, table_folder, tmp_path):
    def shrink(module):
        module.QUICK_STEPS, module.QUICK_POLICIES = (5, 5), ("autoregressive", "fixed_ratio:ratio=0.5")

    result = run_script("h200_grid", "--quick", "--out", tmp_path, "--table", table_folder, shrink=shrink)
    assert result["quick"]
    assert [(cell["policy"], cell["batch"]) for cell in result["cells"]] == [
        (policy, batch) for policy in ("autoregressive", "fixed_ratio:ratio=0.5") for batch in (1, 2, 4)
    ]
    assert all(cell["steps"] <= 5 for cell in result["cells"])


def test_a_quick_run_takes_fewer_steps_the_more_requests_a_step_has(run_script, table_folder, tmp_path):
    def look(module):
        assert [module.quick_steps(batch) for batch in (1, 8, 32, 64, 128)] == [100, 100, 60, 40, 40]
        module.QUICK_POLICIES = ()

    run_script("h200_grid", "--quick", "--out", tmp_path, "--table", table_folder, shrink=look)


def test_a_policy_that_cannot_be_built_costs_the_others_nothing(run_script, table_folder, tmp_path):
    def shrink(module):
        module.QUICK_STEPS, module.QUICK_POLICIES = (5, 5), ("fixed_depth:depth=99", "autoregressive")

    result = run_script(
        "h200_grid", "--quick", "--out", tmp_path, "--batches", "2,4", "--table", table_folder, shrink=shrink
    )
    assert [(cell["policy"], cell["batch"]) for cell in result["cells"]] == [
        ("autoregressive", 2),
        ("autoregressive", 4),
    ]
    assert [(left["policy"], left["batch"]) for left in result["left_out"]] == [
        ("fixed_depth:depth=99", 2),
        ("fixed_depth:depth=99", 4),
    ]
    assert all("depth" in left["why"] for left in result["left_out"])


@pytest.mark.parametrize(("name", "cells"), [("h200_grid", 21), ("h200_overhead", 9)])
def test_what_the_time_does_not_allow_is_left_out_and_named(run_script, table_folder, tmp_path, name, cells):
    result = run_script(name, "--quick", "--minutes", "0", "--out", tmp_path, "--table", table_folder)
    assert result["cells"] == []
    assert len(result["left_out"]) == cells


@pytest.mark.parametrize(("name", "function"), [("h200_grid", "cell"), ("h200_overhead", "waiting")])
def test_a_run_that_is_killed_has_left_what_it_had_measured(run_script, table_folder, tmp_path, name, function):
    class KilledError(Exception):
        pass

    def shrink(module):
        measure, seen = getattr(module, function), []

        def until_killed(*arguments):
            if len(seen) == 2:
                raise KilledError
            seen.append(None)
            return measure(*arguments)

        module.QUICK_STEPS = (5, 5) if name == "h200_grid" else 5
        setattr(module, function, until_killed)

    with pytest.raises(KilledError):
        run_script(name, "--quick", "--out", tmp_path, "--table", table_folder, shrink=shrink)
    left = json.loads((tmp_path / f"{name}.json").read_text())
    assert left["tiny"]
    assert left["cells"][0]["policy"] == "autoregressive"
    assert len(left["cells"]) == 2


def test_batches_measured_apart_are_merged_into_one_result(run_script, table_folder, tmp_path, monkeypatch):
    def shrink(module):
        module.QUICK_STEPS, module.QUICK_POLICIES = (5, 5), ("autoregressive", "dcut")

    parts = [
        run_script(
            "h200_grid", "--quick", "--out", tmp_path / own, "--batches", own, "--table", table_folder, shrink=shrink
        )
        for own in ("1,4", "2")
    ]
    merge = load_merge(monkeypatch, str(tmp_path), "--out", str(tmp_path / "all"))
    assert merge.main() == 0
    found = json.loads((tmp_path / "all" / "h200_grid.json").read_text())
    assert found["cells"] == parts[0]["cells"] + parts[1]["cells"]
    assert found["verifying_15_drafts"] == parts[0]["verifying_15_drafts"]
    assert found["max_error"] == max(part["max_error"] for part in parts)
    assert found["speedups"]["dcut"] == parts[0]["speedups"]["dcut"] | parts[1]["speedups"]["dcut"]


def load_merge(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["h200_merge.py", *arguments])
    spec = importlib.util.spec_from_file_location("h200_merge", SCRIPTS / "h200_merge.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_parts_that_do_not_belong_together_are_refused(tmp_path, monkeypatch, capsys):
    cell = {"policy": "dcut", "batch": 1, "error": 0.1, "measured": 1.0, "predicted": 1.1}
    part = {"tiny": False, "label": "one", "cells": [cell]}
    for place, other in (
        ("settings", part | {"label": "other", "cells": []}),
        ("cells", part),
    ):
        for name, found in (("a", part), ("b", other)):
            (tmp_path / place / name).mkdir(parents=True)
            (tmp_path / place / name / "h200_grid.json").write_text(json.dumps(found))
    said = {}
    for place in ("settings", "cells", "nowhere"):
        merge = load_merge(monkeypatch, str(tmp_path / place), "--out", str(tmp_path / "all"))
        assert merge.main() == 2
        said[place] = capsys.readouterr().err
    assert said["settings"] == "h200_grid.json: label is 'one' in one part and 'other' in another\n"
    assert said["cells"] == "h200_grid.json: measured in two parts: dcut at batch 1\n"
    assert said["nowhere"].startswith("no h200_*.json in ")
    assert not (tmp_path / "all").exists()


def test_the_engine_emits_what_transformers_generates(run_script, tmp_path):
    result = run_script("engine_cpu", "--out", tmp_path / "result.json")
    assert result["equal_outputs"] == {"transformers": 8, "autoregressive": 8, "dcut": 8}
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert set(result["speedup_over_transformers"]) == {"autoregressive", "dcut"}
