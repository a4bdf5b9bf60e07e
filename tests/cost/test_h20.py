"""The shipped table against the numbers it was built from."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from specsim.cost import CostTable
from specsim.errors import InputError
from tests.cost.tables import drafter
from tests.published_h20 import RATIOS, STEP_MS, TOKEN_THROUGHPUT

ROOT = Path(__file__).resolve().parents[2]
DFLASH = drafter("dflash")


@pytest.fixture
def costs():
    return CostTable.open(ROOT / "traces" / "costs" / "h20-qwen3-8b")


def test_the_shipped_table_is_what_its_script_builds(costs):
    spec = importlib.util.spec_from_file_location("build_h20", ROOT / "traces" / "costs" / "build_h20.py")
    build_h20 = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_h20)
    built = build_h20.table()
    assert costs.cells == built.cells
    assert costs.meta.model_copy(update={"cells_sha256": None}) == built.meta


def test_every_published_step_is_the_sum_of_its_phases(costs):
    for batch, steps in STEP_MS.items():
        for ratio, milliseconds in zip(RATIOS, steps, strict=True):
            kept = round(batch * 16 * ratio) - batch
            step = costs.phases(DFLASH, batch, 15, kept, 1000.0)
            assert step.total * 1e3 == pytest.approx(milliseconds, rel=1e-12)


def test_a_plain_step_yields_the_published_throughput(costs):
    for batch, throughput in TOKEN_THROUGHPUT["autoregressive"].items():
        seconds = costs.step_cost(None, batch, 0, 1000.0).seconds[0]
        assert batch / seconds == pytest.approx(throughput, rel=1e-12)


def test_drafting_is_what_the_line_through_the_two_smallest_budgets_leaves(costs):
    # By hand for 32 requests: 29.8 - 96 * 13.3 / 128 - 32 / 2663.1 * 1000.
    found = {batch: costs.phases(DFLASH, batch, 15, 0, 0.0).draft * 1e3 for batch in (4, 8, 16, 32, 64)}
    assert found == {
        4: pytest.approx(0.32, abs=0.005),
        8: pytest.approx(1.09, abs=0.005),
        16: pytest.approx(2.01, abs=0.005),
        32: pytest.approx(29.8 - 96 * 13.3 / 128 - 32 / 2663.1 * 1e3),
        64: pytest.approx(16.38, abs=0.005),
    }


def test_it_says_which_numbers_are_published_and_which_derived(costs):
    assert costs.meta.label == "published"
    provenance = {(cell.phase, cell.tokens == cell.batch): cell.provenance for cell in costs.cells}
    assert provenance[("verify", True)] == "published"
    assert {value for key, value in provenance.items() if key != ("verify", True)} == {"derived"}


def test_a_full_block_costs_more_than_it_emits_from_32_requests_on(costs):
    # The authors' mean acceptance length of the full block at 32 requests: 1 + 201.2 / 32 tokens.
    block = (32 + 201.2) / costs.step_cost(DFLASH, 32, 15, 0.0).seconds[-1]
    quarter = (32 + 124.6) / costs.step_cost(DFLASH, 32, 15, 0.0).seconds[128]
    plain = 32 / costs.step_cost(None, 32, 0, 0.0).seconds[0]
    assert block < quarter
    assert quarter > plain


def test_fewer_than_four_requests_were_not_published_and_are_refused(costs):
    with pytest.raises(InputError, match=r"h20-qwen3-8b: verify batch 3 .*4 to 64"):
        costs.step_cost(None, 3, 0, 0.0)


def test_between_published_batches_costs_lie_between_theirs(costs):
    for batch in range(5, 64):
        plain = costs.step_cost(None, batch, 0, 0.0).seconds[0]
        full = costs.step_cost(DFLASH, batch, 15, 0.0).seconds[-1]
        assert costs.step_cost(None, batch - 1, 0, 0.0).seconds[0] < plain
        assert costs.step_cost(DFLASH, batch - 1, 15, 0.0).seconds[-1] < full
