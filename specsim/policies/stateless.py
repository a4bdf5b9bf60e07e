"""A policy that learns nothing: its state is empty and every outcome is ignored."""

from __future__ import annotations

from typing import Any

from specsim.core import Outcome


class Stateless:
    """Mixed into policies that are a rule and no more."""

    def observe(self, outcome: Outcome) -> None:
        """Nothing to learn."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing learned."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept only the empty state.

        Raises  ValueError when the state is another policy's
        """
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {sorted(state)}")
