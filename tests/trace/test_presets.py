from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from specsim.trace.presets import H20_DIFFICULTY, PRESETS, h20_dflash
from specsim.trace.statistics import acceptance_by_position, by_domain, calibration, walk
from tests.published_h20 import RATIOS, STEP_MS, TOKEN_THROUGHPUT

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def h20():
    return h20_dflash(num_requests=120, num_output_tokens=(512, 512))


def benchmark():
    spec = importlib.util.spec_from_file_location("fit_h20_trace", ROOT / "benchmarks" / "fit_h20_trace.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_preset_says_that_it_is_synthetic():
    for make in PRESETS.values():
        manifest = make(num_requests=1).manifest
        assert manifest.synthetic
        assert manifest.name.startswith("synthetic-")


def test_the_h20_trace_emits_the_published_tokens_a_step_at_full_depth(h20):
    assert walk(h20, 0).mean_acceptance_length == pytest.approx(4.64, rel=0.03)


def test_the_h20_trace_s_survival_falls_with_depth(h20):
    assert (np.diff(acceptance_by_position(h20, 0).survival) < 0).all()


def test_the_h20_trace_s_confidence_ranks_like_published(h20):
    assert calibration(h20, 0).by_position[0].auc == pytest.approx(0.78, abs=0.02)


def test_the_h20_trace_s_domains_differ_like_published(h20):
    lengths = by_domain(h20, lambda members: walk(h20, 0, members, depth=7).mean_acceptance_length)
    assert lengths["math"] > lengths["code"] > lengths["chat"] + 0.5
    shares = np.bincount(h20.requests.domain) / len(h20)
    assert shares == pytest.approx([0.4, 0.4, 0.2], abs=0.1)
    assert list(h20.requests.domains) == list(H20_DIFFICULTY)


def test_the_best_drafts_of_a_batch_bring_the_published_tokens_a_step(h20):
    fit = benchmark()
    blocks, rng = fit.Blocks(h20), np.random.default_rng(0)
    for batch, tolerance in ((4, 0.05), (32, 0.05)):
        found = blocks.tokens_per_step(batch, fit.DCUT_KEEP_RATIO[batch], 20_000, rng)
        assert found == pytest.approx(fit.dcut_tokens(batch), rel=tolerance)


def test_a_keep_ratio_of_nothing_keeps_the_anchors(h20):
    fit = benchmark()
    assert fit.Blocks(h20).tokens_per_step(8, 1 / 16, 800, np.random.default_rng(0)) == 1.0


def test_the_benchmark_s_figures_are_the_published_ones():
    fit = benchmark()
    assert {batch: tuple(row) for batch, row in fit.STEP_MS.items()} == STEP_MS
    assert TOKEN_THROUGHPUT["fixed_depth:depth=15"] == fit.FULL_THROUGHPUT
    assert TOKEN_THROUGHPUT["dcut"] == fit.DCUT_THROUGHPUT
    assert tuple(fit.RATIOS) == RATIOS
