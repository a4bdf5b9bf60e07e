"""D-cut against the fixed ratio one would have chosen had one known: on the shipped trace and the H20's costs."""

from __future__ import annotations

import pytest

from specsim.config import build_study
from specsim.study.compare import compare

PAPER = (0.25, 0.5, 0.75, 1.0)
FINER = (0.02, 0.05, 0.1, 0.15)
ANY_BUDGET = "dcut:ratios=all,numerator=bonus@ngram"


@pytest.fixture(scope="module")
def throughput():
    """Tokens a second by policy and batch; the mean over seeds."""
    ratios = [
        {"budget": f"fixed_ratio:ratio={ratio}", "drafter": "ngram", "label": str(ratio)} for ratio in (*PAPER, *FINER)
    ]
    document = {
        "trace": "smollm2-cpu",
        "tables": ["h20-qwen3-8b"],
        "policies": [*ratios, "dcut@ngram", ANY_BUDGET],
        "batches": [32, 64],
        "seeds": 2,
        "requests_per_slot": 2,
        "clairvoyant": False,
    }
    cells = compare(build_study(document)).cells
    return {(cell.policy, cell.batch): cell.values["steady_token_throughput"] for cell in cells}


@pytest.mark.parametrize("batch", [32, 64])
def test_d_cut_keeps_up_with_the_best_of_its_own_ratios(throughput, batch):
    best = max(throughput[str(ratio), batch] for ratio in PAPER)
    assert throughput["dcut@ngram", batch] >= 0.97 * best


@pytest.mark.parametrize("batch", [32, 64])
def test_with_any_budget_it_keeps_up_with_ratios_the_paper_does_not_try(throughput, batch):
    best = max(throughput[str(ratio), batch] for ratio in (*PAPER, *FINER))
    assert throughput[ANY_BUDGET, batch] >= 0.97 * best
    assert best > 1.1 * throughput["dcut@ngram", batch]  # so this is no repetition of the other test
