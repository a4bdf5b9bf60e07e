"""An engine's steps and requests, told to Prometheus."""

from __future__ import annotations

import numpy as np

from specsim.live.commit import Emission
from specsim.live.engine import Engine
from specsim.live.prometheus import PrometheusMetrics
from specsim.live.requests import LiveRequest
from specsim.live.step import Step


class MetricsObserver:
    """Watches an engine, and keeps its metrics.

    engine   whose
    metrics  what can be served
    """

    def __init__(self, engine: Engine) -> None:
        self._tally = engine.tally
        self.metrics = PrometheusMetrics(
            model_name=engine.setup.target.name,
            drafters=engine.controller.drafters,
            num_kv_blocks=engine.setup.pool.num_blocks,
        )

    def on_step(self, row: np.void, step: Step, emission: Emission | None) -> None:
        """See `Observer.on_step`."""
        accepted = np.zeros(0, np.int64) if emission is None else emission.num_accepted
        drafted = np.zeros(0, np.int64) if step.seen is None else np.asarray(step.seen.num_drafts)
        self.metrics.observe_step(row, _by_position(accepted), _by_position(drafted))

    def on_request(self, request: LiveRequest) -> None:
        """See `Observer.on_request`; those that did not finish have no latencies."""
        if request.status == "finished":
            self.metrics.observe_request(self._tally.requests.table()[-1])


def _by_position(counts: np.ndarray) -> list[int]:
    """[B] numbers of drafts -> [D] requests that have a draft at each position."""
    return [int(np.count_nonzero(counts > position)) for position in range(int(counts.max(initial=0)))]
