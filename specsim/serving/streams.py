"""The random streams of one seed: none depends on another, so that runs can be compared draw by draw."""

from __future__ import annotations

import numpy as np

ORDER_STREAM = 1
ARRIVAL_STREAM = 2
POLICY_STREAM = 3
"""Independent random streams of one seed: the order of requests and their arrivals never depend on the
policy, so every policy of a study meets the same requests at the same instants."""


def policy_rng(seed: int, replica: int) -> np.random.Generator:
    """The draws of a controller's policies: the same in a simulated replica and in a live engine."""
    return np.random.default_rng([seed, POLICY_STREAM, replica])
