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


def test_measured_and_predicted_throughput_are_of_the_same_steps(run_script, table_folder, tmp_path):
    """Whatever the machine does meanwhile, the simulator takes the very steps that were measured."""

    def shrink(module):
        module.POLICIES = ("autoregressive", "fixed_depth:depth=7", "dcut")

    result = run_script("h200_grid", "--out", tmp_path, "--table", table_folder, shrink=shrink)
    assert result["label"] == "acceptance replayed from synthetic-h20-dflash"
    assert [(cell["batch"], cell["policy"]) for cell in result["cells"]] == [
        (batch, policy) for batch in (1, 2, 4) for policy in ("autoregressive", "fixed_depth:depth=7", "dcut")
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
        module.QUICK_STEPS, module.QUICK_POLICIES = 5, ("autoregressive", "fixed_ratio:ratio=0.5")

    result = run_script("h200_grid", "--quick", "--out", tmp_path, "--table", table_folder, shrink=shrink)
    assert result["quick"]
    assert [(cell["batch"], cell["policy"]) for cell in result["cells"]] == [
        (batch, policy) for batch in (1, 2, 4) for policy in ("autoregressive", "fixed_ratio:ratio=0.5")
    ]
    assert all(cell["steps"] <= 5 for cell in result["cells"])


def test_the_engine_emits_what_transformers_generates(run_script, tmp_path):
    result = run_script("engine_cpu", "--out", tmp_path / "result.json")
    assert result["equal_outputs"] == {"transformers": 8, "autoregressive": 8, "dcut": 8}
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert set(result["speedup_over_transformers"]) == {"autoregressive", "dcut"}
