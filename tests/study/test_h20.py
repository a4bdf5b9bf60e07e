"""The published D-cut study on the H20, made again from its cost table and a trace calibrated to its acceptance."""

from __future__ import annotations

import pytest

from specsim.config import build_study
from specsim.study.compare import compare
from tests.published_h20 import TOKEN_THROUGHPUT

BATCHES = [4, 8, 16, 32, 64]
POLICIES = ["fixed_depth:depth=15", "dcut"]


@pytest.fixture(scope="module")
def speedups():
    """By policy and batch."""
    document = {
        "trace": "synthetic:h20-dflash",
        "tables": ["h20-qwen3-8b"],
        "policies": POLICIES,
        "batches": BATCHES,
        "seeds": 2,
        "requests_per_slot": 2,
        "clairvoyant": False,
    }
    return {(cell.policy, cell.batch): cell for cell in compare(build_study(document)).cells}


@pytest.mark.parametrize("batch", [32, 64])
def test_fixed_depth_15_falls_below_autoregressive_and_d_cut_restores_it(speedups, batch):
    assert speedups["fixed_depth:depth=15", batch].slower_than_autoregressive
    assert not speedups["dcut", batch].slower_than_autoregressive
    assert speedups["dcut", batch].values["speedup"] > 1.25 * speedups["fixed_depth:depth=15", batch].values["speedup"]


@pytest.mark.parametrize("batch", BATCHES)
def test_d_cut_is_never_behind_the_depth_it_prunes(speedups, batch):
    assert speedups["dcut", batch].values["speedup"] >= speedups["fixed_depth:depth=15", batch].values["speedup"]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("policy", POLICIES)
def test_speedups_are_the_published_ones(speedups, policy, batch):
    """Within 6 %: the means over five data sets come from one trace here."""
    expected = TOKEN_THROUGHPUT[policy][batch] / TOKEN_THROUGHPUT["autoregressive"][batch]
    assert speedups[policy, batch].values["speedup"] == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("batch", BATCHES)
def test_autoregressive_throughput_is_the_published_one(speedups, batch):
    expected = TOKEN_THROUGHPUT["autoregressive"][batch]
    own = speedups["autoregressive", batch].values
    assert own["mean_batch"] / own["mean_step_seconds"] == pytest.approx(expected, rel=1e-3)
