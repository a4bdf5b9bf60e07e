"""Passes of token buckets: on a CPU a replayed graph is stood in for by the pass itself, over the captured inputs.

So everything but CUDA is really run: padding, static inputs, outputs in place, and which graph a pass takes.
"""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specsim.live import packed_passes
from specsim.live.engine import LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.packed_passes import PackedPasses, Rows
from specsim.live.profiler import ProfileOptions, profile
from specsim.serving import EngineConfig

BUCKETS = (1, 2, 4, 8, 16)


class Captured(list):
    """Keys; whether replaying does anything."""

    replays = True


@pytest.fixture
def captured(monkeypatch):
    """Graphs that are replayed by running the pass again; (tokens, requests) of those that were captured."""
    keys = Captured()

    def capture(passes, size, num_requests, extra, key):
        keys.append((size, num_requests))
        fed = torch.zeros((3, num_requests), dtype=torch.int64)
        slots, starts, counts = fed
        for _ in range(2):
            passes._body(slots, starts, counts, size, extra)
        out = passes._body(slots, starts, counts, size, extra)

        def replay():
            if not keys.replays:
                return
            again = passes._body(slots, starts, counts, size, extra)
            out.logits.copy_(again.logits)
            out.query_start.copy_(again.query_start)

        passes._graphs[key] = packed_passes._Graph(SimpleNamespace(replay=replay), fed, extra, out)

    monkeypatch.setattr(PackedPasses, "_capture", capture)
    return keys


def build(make_target, buckets):
    """A setup of 6 slots whose texts are drawn, each with blocks of its own."""
    target = make_target("float64")
    setup = LiveSetup(target, EngineConfig(6, block_size=4, max_model_len=40), 3, EngineOptions())
    setup.runner._passes.buckets = buckets
    text = np.random.default_rng(0).integers(1, 40, tuple(setup.state.history.shape))
    setup.state.history.copy_(torch.from_numpy(text))
    for slot in range(6):
        assert setup.pool.reserve(slot, 40)
    return setup


def rows(slots, starts, counts):
    return Rows(*(torch.tensor(values) for values in (slots, starts, counts)), sum(counts))


PASSES = (
    rows([0, 1, 2], [0, 0, 0], [3, 5, 4]),
    rows([4], [0], [7]),
    rows([2, 0], [4, 3], [1, 2]),  # fewer requests than the graph before had
    rows([1, 4, 2, 0], [5, 7, 5, 5], [4, 1, 1, 1]),
    rows([0, 1, 2, 4], [6, 9, 6, 8], [6, 5, 4, 5]),  # beyond the largest bucket: eager
    rows([5], [0], [1]),
)


def test_a_captured_pass_says_what_an_eager_one_says(make_target, captured):
    setups = [build(make_target, buckets) for buckets in ((), BUCKETS)]
    for each in PASSES:
        eager, padded = (setup.runner.run(each) for setup in setups)
        torch.testing.assert_close(padded.logits[: each.total], eager.logits, rtol=0, atol=1e-10)
        assert padded.query_start.tolist() == eager.query_start.tolist()
        keep = torch.tensor([each.total - 1, 0])
        kept = setups[1].runner.run(each, keep)
        torch.testing.assert_close(kept.logits, eager.logits[keep], rtol=0, atol=1e-10)
    assert captured == [(16, 4), (8, 1), (4, 2), (8, 4), (1, 1)]


def test_requests_of_an_earlier_pass_feed_nothing_in_a_later_one_of_fewer(make_target, captured):
    setup = build(make_target, BUCKETS)
    setup.runner.run(rows([0, 1, 2, 4], [0, 0, 0, 0], [2, 2, 2, 2]))
    setup.runner.run(rows([2, 0, 1], [2, 2, 2], [2, 1, 2]))
    assert captured == [(8, 4)]
    (held,) = setup.runner._passes._graphs.values()
    assert held.fed.tolist()[2] == [2, 1, 2, 0]
    setup.runner.run(rows([0, 1, 2, 4], [3, 4, 4, 2], [1, 2, 1, 2]))
    assert held.fed.tolist() == [[0, 1, 2, 4], [3, 4, 4, 2], [1, 2, 1, 2]]


def test_plain_steps_replay_the_same_graph_where_it_is_said(make_target, captured):
    setup = build(make_target, BUCKETS[:3])
    graphs = {}
    for count in range(1, 7):
        passes = setup.runner._passes
        passes._graphs.clear()
        setup.runner.run(rows(range(count), [0] * count, [1] * count))
        graphs[count] = set(passes._graphs)
    for one, two in product(graphs, graphs):
        assert setup.runner.same_graph(one, two) == bool(graphs[one] & graphs[two])
    assert [bool(graphs[count]) for count in graphs] == [True] * 4 + [False] * 2
    assert setup.runner.same_graph(3, 4)
    assert not setup.runner.same_graph(2, 3)


def test_padding_writes_to_the_block_nobody_holds(make_target, captured):
    setup = build(make_target, BUCKETS)
    before = [pool.clone() for pool in setup.kv.keys]
    setup.runner.run(rows([3], [2], [5]))
    mine = setup.pool.blocks_of(3)
    others = [block for block in range(1, setup.pool.num_blocks + 1) if block not in mine]
    for pool, old in zip(setup.kv.keys, before, strict=True):
        assert torch.equal(pool[others], old[others])
        assert not torch.equal(pool[mine], old[mine])


def test_what_is_captured_ahead_is_what_a_batch_will_need(make_target, captured):
    setup = build(make_target, BUCKETS)
    setup.runner.capture(3, 10)
    assert captured == [(16, 4), (8, 4), (4, 4), (2, 2), (1, 1)]
    setup.runner.run(rows([0, 1, 2], [0, 0, 0], [3, 3, 3]))
    assert len(captured) == 5
    setup.runner.capture()
    assert captured[5:] == [(16, 6), (8, 6)]
    setup.runner.capture(1, 3)
    assert captured[7:] == [(4, 1), (2, 1)]


def test_a_profile_of_captured_passes_has_the_staircase_of_its_buckets(make_target, captured, monkeypatch):
    captured.replays = False  # a graph's passes are not counted, so neither may be a stand-in's
    options = ProfileOptions(batches=(1, 3), contexts=(8, 16), max_tokens=16, depth=3, repeats=1)
    grid = ProfileOptions(batches=(1, 3), contexts=(8, 16), max_tokens=16, depth=3).grid("cuda")
    monkeypatch.setattr(ProfileOptions, "grid", lambda options, device: grid)
    made = LiveSetup.__init__

    def with_buckets(setup, *arguments):
        made(setup, *arguments)
        setup.buckets = setup.runner._passes.buckets = grid.buckets

    monkeypatch.setattr(LiveSetup, "__init__", with_buckets)
    table = profile(make_target("float32"), [], options)
    assert table.meta.capture_sizes == (1, 2, 4, 8, 16)
    verify = {(cell.batch, cell.tokens) for cell in table.cells if cell.phase == "verify"}
    assert verify == {(1, 1), (1, 2), (1, 4), (3, 4), (3, 8), (3, 16)}
    seconds = table.step_cost(None, 3, 0, 16).seconds
    assert seconds.shape == (1,)
