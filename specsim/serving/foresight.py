"""When the beginning of a step may be launched before the step in front of it is known: engine and simulator agree."""

from __future__ import annotations

SAME_ORDERS = 4
"""Orders in a row that must have been the same before the next one is taken to be it, too."""

MEMORY = 64
"""Plain steps that the share of surprises is of, the older counting less."""

UNKNOWN_GAIN = 0.04
"""Share of a pass that launching it ahead gains where no table says it: that of an 8B model at 128 requests is .1."""


class Surprises:
    """Counts foreseen plain steps that came otherwise: somebody joined, or the batch is another.

    A pass that was launched for nothing is waited for, all but the time that the host took meanwhile; one that was
    launched ahead gains that time. So with a share s of surprises launching pays while s * (pass - gain) is
    below (1 - s) * gain, that is while s is below gain / pass.

    share   of the latest foreseen steps, the older counting less
    """

    def __init__(self) -> None:
        self.share = 0.0

    def learn(self, surprised: bool) -> None:
        """One more foreseen step is known."""
        self.share += (surprised - self.share) / MEMORY

    def allow(self, gain: float | None) -> bool:
        """Whether launching the next plain pass ahead pays.

        gain  of a right launch as a share of the pass (None: not known)
        """
        return self.share < (UNKNOWN_GAIN if gain is None else gain)
