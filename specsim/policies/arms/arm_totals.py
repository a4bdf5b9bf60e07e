"""What each arm brought so far, as sums."""

from __future__ import annotations

from typing import Any

from specsim.policies.learned_state import check_counts


class ArmTotals:
    """Pulls, gain and exposure of each arm; an arm's mean is its gain over its exposure, a ratio of totals.

    A step without exposure says nothing of its arm's mean, so its pull is struck out once the arm meets a test: until
    then it counts, or an arm that proposes nothing would be pulled for ever.

    num_arms  drafters of the run
    """

    def __init__(self, num_arms: int) -> None:
        self.pulls = [0] * num_arms
        self.untested = [0] * num_arms  # of the pulls, those since the arm's last test
        self.gain = [0.0] * num_arms
        self.exposure = [0.0] * num_arms

    def add(self, arm: int, gain: float, exposure: float) -> None:
        """Count one step."""
        if exposure > 0:
            self.pulls[arm] -= self.untested[arm]
            self.untested[arm] = 0
        else:
            self.untested[arm] += 1
        self.pulls[arm] += 1
        self.gain[arm] += gain
        self.exposure[arm] += exposure

    def means(self) -> list[float]:
        """Ratio of totals of each arm; 0 for one that never met a test, so that only its bonus brings it back."""
        return [
            gain / exposure if exposure > 0 else 0.0 for gain, exposure in zip(self.gain, self.exposure, strict=True)
        ]

    def unpulled(self) -> int | None:
        """The first arm that was never pulled (None: all were)."""
        return self.pulls.index(0) if 0 in self.pulls else None

    def state_dict(self) -> dict[str, Any]:
        """Everything counted, JSON-able."""
        return {
            "pulls": list(self.pulls),
            "untested": list(self.untested),
            "gain": list(self.gain),
            "exposure": list(self.exposure),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`; one that does not know `untested` pulls has none.

        Raises  ValueError when it is not one, or of another number of arms
        """
        state = {"untested": [0] * len(self.pulls), **state}
        same_shape = {name: len(values) for name, values in self.state_dict().items()}
        if {name: len(values) for name, values in state.items()} != same_shape:
            raise ValueError(f"arm totals need {same_shape} values, got {state}")
        check_counts(pulls=state["pulls"], untested=state["untested"], exposure=state["exposure"])
        if any(untested > pulls for untested, pulls in zip(state["untested"], state["pulls"], strict=True)):
            raise ValueError(f"untested pulls {state['untested']} are more than all pulls {state['pulls']}")
        self.pulls, self.untested = list(state["pulls"]), list(state["untested"])
        self.gain, self.exposure = list(state["gain"]), list(state["exposure"])
