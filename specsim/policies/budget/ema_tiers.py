"""A depth from a short list, climbed and descended by how many drafts were accepted lately."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat
from pydantic.dataclasses import dataclass

from specsim.core import DrafterSpec, Outcome, StepContext
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.verify_all import VerifyAll

Tiers = tuple[tuple[int, ...], ...]
"""Rows of a start batch followed by the depths to choose among."""

SGLANG_TIERS: Tiers = ((1, 1, 3, 5, 7), (8, 0, 1, 3), (32, 0, 1), (64, 0))
OLDER_TIERS: Tiers = ((1, 1, 3, 7),)


def rows_of(value: Any) -> Any:
    """Rows as written in a controller's text, `1:1:3:5:7/8:0:1:3`."""
    return [row.split(":") for row in value.split("/")] if isinstance(value, str) else value


def ascending(tiers: Tiers) -> Tiers:
    """Tiers that start at batch 1 and ascend, each with ascending depths.

    Raises  ValueError otherwise
    """
    starts = [row[0] for row in tiers]
    if starts[:1] != [1] or starts != sorted(set(starts)):
        raise ValueError(f"start batches must ascend from 1, got {starts}")
    for start, *depths in tiers:
        if not depths or depths[0] < 0 or depths != sorted(set(depths)):
            raise ValueError(f"the tier from batch {start} needs ascending depths from 0 on, got {depths}")
    return tiers


class Tier:
    """One list of depths, the depth it stands at, and the mean accepted length it goes by.

    depths  to choose among, ascending
    start   depth to begin with (the middle one, when it is not among them)
    """

    def __init__(self, depths: tuple[int, ...], start: int) -> None:
        self.depths = depths
        self.depth = start if start in depths else depths[len(depths) // 2]
        self.mean = float(self.depth - 1)
        self.steps = 0

    def watch(self, outcome: Outcome, alpha: float) -> None:
        """Move the mean by one step; a step without a draft says nothing."""
        self.steps += 1
        if not self.depth or not len(outcome.num_accepted):
            return
        accepted = outcome.num_accepted
        # All drafts accepted but fewer than asked for: it would have accepted at least these.
        at_least = (outcome.num_tested == accepted) & (accepted < self.depth)
        counted = np.where(at_least, np.maximum(accepted, self.mean), accepted)
        self.mean += alpha * (float(counted.mean()) - self.mean)

    def climb(self, up: float, down: float) -> None:
        """One decision by thresholds on the mean."""
        index = self.depths.index(self.depth)
        if self.depth == 0:
            self.depth = self.depths[min(1, len(self.depths) - 1)]
            if self.mean < 0:  # never drafted: begin as if the first probe were met half-way
                self.mean = float(self.depth - 1)
            return
        moved = index
        while moved > 0 and self.mean <= max(self.depths[moved - 1], 1) - 0.5 + down:
            moved -= 1
        if moved == index:
            while moved < len(self.depths) - 1 and self.mean > self.depths[moved] - 0.5 + up:
                moved += 1
        self.depth = self.depths[moved]

    def follow(self) -> None:
        """One decision by the older rule: one draft more than the rounded mean, or the next depth above."""
        wanted = round(self.mean) + 1
        self.depth = next((depth for depth in self.depths if depth >= wanted), self.depths[-1])


class TierMemory:
    """The tiers of every drafter, and the one the step under way was drafted by."""

    def __init__(self) -> None:
        self.tiers: dict[str, list[Tier]] = {}
        self.current: Tier | None = None


@dataclass(frozen=True, kw_only=True)
class EmaTiers(VerifyAll):
    """Draft deeper while the mean accepted length nearly fills the depth, less deep while it falls short.

    Every `interval` steps after `warmup`, with m the mean:
    down while m <= max(lower, 1) - .5 + down, lower being the next depth below in the list;
    if not down, up while m > depth - .5 + up. From depth 0, which observes nothing, always one up, to try again.

    A request whose drafts were all accepted though they were fewer than the depth would have accepted at least that
    many: it counts as the larger of its number and m, so that short drafts never lower the depth.

    rule      `tiers`: as above. `older`: the least depth not below round(m) + 1, or the deepest
    tiers     rows of a start batch and its depths (None: SGLang's, or 1, 3, 7 under the older rule, of which a
              drafter drafts what it can)
    alpha     weight of a step in the mean
    interval  steps between decisions
    warmup    steps before the first
    up        added to the threshold for going up
    down      added to the threshold for going down (None: -.25, and 0 in lists that hold depth 0, as shipped)
    start     depth to begin with, where the list has it

    Source: SGLang, adaptive speculative decoding: pull requests 21599 and 24055, and the defaults shipped since.
    """

    rule: Literal["tiers", "older"] = "tiers"
    tiers: Annotated[Tiers, BeforeValidator(rows_of), AfterValidator(ascending)] | None = None
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.2
    interval: Annotated[int, Field(ge=1)] = 5
    warmup: Annotated[int, Field(ge=0)] = 10
    up: FiniteFloat = 0.0
    down: FiniteFloat | None = None
    start: Annotated[int, Field(ge=0)] = 3

    timing: ClassVar[BudgetTiming] = "past"
    memory: ClassVar[TierMemory]  # an attribute, not an option: it is no field

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", TierMemory())

    @property
    def rows(self) -> Tiers:
        """The tiers in use."""
        if self.tiers is not None:
            return self.tiers
        return SGLANG_TIERS if self.rule == "tiers" else OLDER_TIERS

    @property
    def max_depth(self) -> int | None:
        """The deepest that was asked for; by default as deep as the drafter goes."""
        return None if self.tiers is None else max(row[-1] for row in self.tiers)

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """Where the tier of this batch size stands."""
        tiers = self.memory.tiers.setdefault(drafter.name, self._fresh())
        tier = tiers[bisect_right([row[0] for row in self.rows], max(context.batch, 1)) - 1]
        self.memory.current = tier
        return tier.depth

    def observe(self, outcome: Outcome) -> None:
        """Move the mean of the tier that drafted, and decide when it is time."""
        tier, self.memory.current = self.memory.current, None
        if tier is None:
            return
        tier.watch(outcome, self.alpha)
        past = tier.steps - self.warmup
        if past <= 0 or past % self.interval:
            return
        if self.rule == "older":
            tier.follow()
            return
        shipped = 0.0 if tier.depths[0] == 0 else -0.25
        tier.climb(self.up, shipped if self.down is None else self.down)

    def state_dict(self) -> dict[str, Any]:
        """Depth, mean and steps of every tier."""
        return {
            "tiers": {
                drafter: [[tier.depth, tier.mean, tier.steps] for tier in tiers]
                for drafter, tiers in self.memory.tiers.items()
            }
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when it was made with other tiers
        """
        loaded = {drafter: self._fresh() for drafter in state["tiers"]}
        for drafter, values in state["tiers"].items():
            for tier, (depth, mean, steps) in zip(loaded[drafter], values, strict=True):
                if depth not in tier.depths:
                    raise ValueError(f"the state stands at depth {depth}, this policy has {tier.depths}")
                tier.depth, tier.mean, tier.steps = int(depth), float(mean), int(steps)
        self.memory.tiers, self.memory.current = loaded, None

    def _fresh(self) -> list[Tier]:
        return [Tier(row[1:], self.start) for row in self.rows]
