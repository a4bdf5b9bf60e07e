"""The live parts on a GPU say what they say on the CPU."""

import numpy as np
import pytest

from specsim.live.drafters import build_drafter
from specsim.live.machine import hardware
from specsim.live.models import load_model
from specsim.live.profiler import ProfileOptions, profile
from specsim.live.prompts import read_prompts
from specsim.live.recorder import RecordOptions, record
from specsim.trace import Trace

pytestmark = pytest.mark.gpu
ARMS = ("ngram", "exit2")


def test_a_trace_recorded_on_the_gpu_is_the_cpus(model_folder, prompt_file, tmp_path):
    traces = []
    for device in ("cpu", "cuda"):
        target = load_model(str(model_folder), dtype="float64", device=device)
        arms = [build_drafter(name, target, 4) for name in ARMS]
        options = RecordOptions(max_new_tokens=24, batch_size=4)
        record(target, arms, read_prompts([prompt_file]), tmp_path / device, options)
        traces.append(Trace.open(tmp_path / device))
    on_cpu, on_gpu = traces
    assert on_gpu.requests.records() == on_cpu.requests.records()
    for index in range(len(on_cpu)):
        for arm in range(len(ARMS)):
            one, other = on_cpu.blocks(index, arm), on_gpu.blocks(index, arm)
            np.testing.assert_array_equal(other.num_accepted, one.num_accepted)
            np.testing.assert_allclose(other.scores["drawn_prob"], one.scores["drawn_prob"], rtol=0, atol=1e-6)


def test_a_cost_table_is_measured_on_the_gpu(model_folder):
    target = load_model(str(model_folder), dtype="bfloat16", device="cuda")
    arms = [build_drafter(name, target, 3) for name in ARMS]
    options = ProfileOptions(batches=(1, 2), contexts=(8,), max_tokens=16, depth=3, repeats=2)
    table = profile(target, arms, options)
    assert table.meta.hardware == hardware("cuda")
    assert "1 x " in table.meta.hardware
    assert all(cell.seconds > 0 for cell in table.cells if cell.phase in ("verify", "draft"))
