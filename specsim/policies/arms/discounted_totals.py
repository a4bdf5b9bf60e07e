"""What each arm brought lately, as sums that fade at every step."""

from __future__ import annotations

from typing import Any

from specsim.policies.learned_state import check_counts


class DiscountedTotals:
    """Weight, gain and exposure of each arm, where a step of k steps ago counts discount^k.

    The weight of steps without exposure is struck out once their arm meets a test, see `ArmTotals`.

    num_arms  drafters of the run
    discount  factor by which everything fades at every step, whichever arm it pulled

    Source: Garivier and Moulines 2011 (arXiv 0805.3415), section 2.1.
    """

    def __init__(self, num_arms: int, discount: float) -> None:
        self.discount = discount
        self.weight = [0.0] * num_arms
        self.untested = [0.0] * num_arms  # of the weight, that since the arm's last test
        self.gain = [0.0] * num_arms
        self.exposure = [0.0] * num_arms

    def add(self, arm: int, gain: float, exposure: float) -> None:
        """Fade every arm, then count one step."""
        self.weight = [weight * self.discount for weight in self.weight]
        self.untested = [weight * self.discount for weight in self.untested]
        self.gain = [earlier * self.discount for earlier in self.gain]
        self.exposure = [earlier * self.discount for earlier in self.exposure]
        if exposure > 0:
            self.weight[arm] -= self.untested[arm]
            self.untested[arm] = 0.0
        else:
            self.untested[arm] += 1.0
        self.weight[arm] += 1.0
        self.gain[arm] += gain
        self.exposure[arm] += exposure

    def means(self) -> list[float]:
        """Ratio of faded totals of each arm; 0 for one that met no test."""
        return [
            gain / exposure if exposure > 0 else 0.0 for gain, exposure in zip(self.gain, self.exposure, strict=True)
        ]

    def unpulled(self) -> int | None:
        """The first arm without weight (None: all have some)."""
        return self.weight.index(0.0) if 0.0 in self.weight else None

    def state_dict(self) -> dict[str, Any]:
        """Everything counted, JSON-able."""
        return {
            "weight": list(self.weight),
            "untested": list(self.untested),
            "gain": list(self.gain),
            "exposure": list(self.exposure),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`; one that does not know `untested` weight has none.

        Raises  ValueError when it is not one, or of another number of arms
        """
        state = {"untested": [0.0] * len(self.weight), **state}
        same_shape = {name: len(values) for name, values in self.state_dict().items()}
        if {name: len(values) for name, values in state.items()} != same_shape:
            raise ValueError(f"discounted totals need {same_shape} values, got {state}")
        check_counts(weight=state["weight"], untested=state["untested"], exposure=state["exposure"])
        self.weight, self.untested = list(state["weight"]), list(state["untested"])
        self.gain, self.exposure = list(state["gain"]), list(state["exposure"])
