from __future__ import annotations

from specsim.cost.plot import figure
from tests.cost.tables import draft, table, verify


def test_the_figure_has_a_line_a_batch_and_steps_only_where_graphs_are_captured():
    cells = [*verify({(1, 8): 0.001, (1, 16): 0.002, (1, 32): 0.004, (4, 8): 0.002}), *draft({(1, 7): 0.003})]
    lines = {line.name: line for line in figure(table(cells, (8, 16))).data}
    assert set(lines) == {"batch 1", "batch 1, eager", "batch 4", "block, depth 7"}
    assert lines["batch 1"].line.shape == "vh"
    assert lines["batch 1, eager"].line.shape == "linear"
    assert list(lines["batch 1"].x) == [8, 16]
    assert list(lines["batch 1"].y) == [1.0, 2.0]
    assert list(lines["block, depth 7"].y) == [3.0]


def test_lines_of_several_contexts_are_told_apart():
    cells = verify({(1, 1): 0.001}) + verify({(1, 1): 0.002}, 64)
    lines = figure(table(cells)).data
    assert [line.name for line in lines] == ["batch 1, context 0", "batch 1, context 64"]
    assert lines[0].line.dash != lines[1].line.dash
