from __future__ import annotations

import pytest

from specsim.cost.examples import flat_table, linear_table, staircase_table
from tests.cost.tables import drafter


@pytest.mark.parametrize("context", [0.0, 777.0, 32768.0])
@pytest.mark.parametrize("batch", [1, 3, 200, 256])
def test_the_linear_example_is_linear_at_every_batch_and_context(batch, context):
    costs = linear_table(0.01, 0.002, drafters={"block": 0.005})
    seconds = costs.step_cost(drafter(), batch, 15, context).seconds
    for k in (0, 1, 7 * batch, 15 * batch):
        assert seconds[k] == pytest.approx(0.015 + 0.002 * (batch + k), rel=1e-12)
    assert costs.notes == ["the cost table is a made-up example"]


def test_the_staircase_example_has_its_heights_at_every_batch():
    costs = staircase_table({8: 1.0, 16: 2.0, 64: 3.0}, (1, 32), drafters={"block": 0.0}, max_depth=7)
    assert costs.step_cost(drafter(), 5, 3, 100.0).seconds.tolist() == [1.0] * 4 + [2.0] * 8 + [3.0] * 4
    assert costs.step_cost(None, 20, 0, 100.0).seconds.tolist() == [3.0]


def test_examples_price_prompts_and_switches():
    costs = flat_table(0.01, drafters={"block": 0.005})
    assert costs.prefill_seconds(100, 10.0) == 0.0
    assert costs.prefill_seconds(100, 10.0, alone=True) == 0.01
    assert costs.switch_seconds(drafter(), 8192) == 0.005
