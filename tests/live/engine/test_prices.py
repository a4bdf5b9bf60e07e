"""The next context's prices are looked up before they are asked for."""

from dataclasses import replace

from specsim.core import DrafterSpec
from specsim.cost import CostTable
from specsim.cost.examples import linear_table
from specsim.live.prices import Prices
from tests.live.engine.engines import build_engine, some_prompts
from tests.live.parity_runs import record, take_again

TABLE = linear_table(1e-3, 1e-5, (1, 8), {"ngram": 1e-4}, 4)
SPEC = DrafterSpec("ngram", "ngram", "point_mass", "parallel", ("drawn_prob",), 4)


class Counted:
    """A table that counts what is looked up anew."""

    def __init__(self, most=1024):
        cells = [replace(cell, context=most) if cell.context else cell for cell in TABLE.cells]
        self.table = CostTable.from_cells(TABLE.meta.model_copy(update={"ranges": None}), cells)
        self.ranges, self.missed, self._seen = self.table.ranges, [], set()

    def step_cost(self, drafter, batch, depth, context):
        key = (drafter, batch, depth, -(-context // 64))
        if key not in self._seen:
            self.missed.append(key)
        self._seen.add(key)
        return self.table.step_cost(drafter, batch, depth, context)


def test_what_a_step_asked_is_known_at_the_next_context_before_it_comes():
    cost = Counted()
    prices = Prices(cost)
    for context in (10.0, 30.0, 64.0):
        for depth in (0, 2, 4):
            prices.step_cost(SPEC, 2, depth, context)
        prices.look_ahead()
    assert len(cost.missed) == 6  # three at this context, three at the next
    cost.missed.clear()
    assert (
        prices.step_cost(SPEC, 2, 4, 65.0).seconds.tolist() == cost.table.step_cost(SPEC, 2, 4, 65.0).seconds.tolist()
    )
    assert not cost.missed
    prices.look_ahead()
    assert [key[1:] for key in cost.missed] == [(2, 4, 3)]


def test_another_batch_is_looked_up_again_and_nothing_where_nothing_was_asked():
    cost = Counted()
    prices = Prices(cost)
    prices.look_ahead()
    assert not cost.missed
    prices.step_cost(None, 2, 0, 10.0)
    prices.look_ahead()
    prices.step_cost(None, 3, 0, 10.0)
    prices.look_ahead()
    assert [key[1:] for key in cost.missed] == [(2, 0, 1), (2, 0, 2), (3, 0, 1), (3, 0, 2)]


def test_nothing_is_looked_up_beyond_the_measured_contexts():
    cost = Counted(most=128)
    prices = Prices(cost)
    prices.step_cost(None, 2, 0, 100.0)
    prices.look_ahead()
    assert len(cost.missed) == 1


def test_the_engine_looks_up_ahead_and_decides_the_same(endless, speaking, tmp_path):
    engine = build_engine(endless, "dcut", ["exit2"])
    asked = []
    looked = engine._stepper._prices.look_ahead
    engine._stepper._prices.look_ahead = lambda: (asked.append(len(engine._stepper._prices._asked)), looked())
    for prompt in some_prompts()[:2]:
        engine.submit(prompt)
    engine.run()
    assert len(asked) == len(engine.tally.steps)
    assert max(asked) > 0
    record(speaking, "dcut:depth=goodput@exit3", tmp_path / "run")
    assert take_again(tmp_path / "run")[1] is None
