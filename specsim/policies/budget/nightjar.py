"""A bandit over depths, apart for each range of batch sizes, that counts what switching drafting on again costs."""

from __future__ import annotations

from bisect import bisect_right
from math import ceil, sqrt
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import DrafterSpec, Outcome, StepContext
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.dcut import listed
from specsim.policies.budget.verify_all import VerifyAll


def ascending(values: tuple[int, ...]) -> tuple[int, ...]:
    """The values, if each is above the one before.

    Raises  ValueError otherwise
    """
    if list(values) != sorted(set(values)):
        raise ValueError(f"values must ascend, got {list(values)}")
    return values


Ascending = Annotated[tuple[int, ...], Field(min_length=1), BeforeValidator(listed), AfterValidator(ascending)]


class DepthBandit:
    """ADA-BINGREEDY over depths: blocks of 1, 2, 4, 8 ... steps, cut into bins that keep to one depth.

    A block of H steps has bins of ceil(sqrt(H)). Its b-th bin explores with chance 1 / b, so its first always does:
    any depth alike. The others take the depth with the least seconds a token.
    """

    def __init__(self) -> None:
        self.block = 0  # number of the block under way
        self.bin = 0  # number of the bin under way, in its block
        self.block_left = 0  # steps left of the block, beyond the bin under way
        self.bin_left = 0  # steps left of the bin
        self.depth = 0
        self.seconds: dict[int, float] = {}  # by depth, times requests
        self.tokens: dict[int, float] = {}

    def pull(self, depths: list[int], switch: float, rng: np.random.Generator) -> int:
        """Depth of the next step.

        depths  what may be chosen
        switch  seconds that drafting costs in addition, because the step before did not draft; spread over the depth
        """
        if self.bin_left == 0 or self.depth not in depths:
            self._next_bin()
            tried = [depth for depth in depths if self.tokens.get(depth)]
            if not tried or rng.random() * self.bin < 1.0:
                self.depth = depths[int(rng.integers(len(depths)))]
            else:
                self.depth = min(tried, key=lambda depth: self.loss(depth) + (switch / depth if depth else 0.0))
        self.bin_left -= 1
        return self.depth

    def loss(self, depth: int) -> float:
        """Seconds a request waits for a token at a depth that was tried."""
        return self.seconds[depth] / self.tokens[depth]

    def add(self, depth: int, seconds: float, tokens: float) -> None:
        """Count one step: its seconds times requests, and the tokens of all of them."""
        self.seconds[depth] = self.seconds.get(depth, 0.0) + seconds
        self.tokens[depth] = self.tokens.get(depth, 0.0) + tokens

    def _next_bin(self) -> None:
        if self.block_left == 0:
            self.block, self.bin, self.block_left = self.block + 1, 0, 2**self.block
        self.bin += 1
        self.bin_left = min(ceil(sqrt(2 ** (self.block - 1))), self.block_left)
        self.block_left -= self.bin_left

    def state_dict(self) -> dict[str, Any]:
        """Everything counted, JSON-able."""
        place = [self.block, self.bin, self.block_left, self.bin_left, self.depth]
        return {"place": place, "tried": [[d, self.seconds[d], self.tokens[d]] for d in self.seconds]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.block, self.bin, self.block_left, self.bin_left, self.depth = state["place"]
        self.seconds = {depth: seconds for depth, seconds, _ in state["tried"]}
        self.tokens = {depth: tokens for depth, _, tokens in state["tried"]}


class NightjarMemory:
    """A bandit for each drafter and range of batch sizes, and what switching on cost so far."""

    def __init__(self) -> None:
        self.bandits: dict[str, dict[int, DepthBandit]] = {}
        self.current: DepthBandit | None = None
        self.was_off = False  # whether the latest step drafted nothing
        self.switch_seconds = 0.0  # of all steps that switched drafting on
        self.switches = 0

    def switch_cost(self) -> float:
        """Mean seconds of switching drafting on."""
        return self.switch_seconds / self.switches if self.switches else 0.0


@dataclass(frozen=True, kw_only=True)
class Nightjar(VerifyAll):
    """Learn for each range of batch sizes which depth has the least latency a token; depth 0 switches drafting off.

    Latency is the seconds of the steps at a depth times their requests, over their tokens. Prompts and catching up are
    left out of it; switching on costs its mean seconds so far, spread over the depth, and is added when the step
    before did not draft.

    depths  to choose among (None: every depth of the drafter, and 0)
    bins    least batch of each range

    Source: Nightjar (arXiv 2512.22420): ADA-BINGREEDY, exploration chance 1 / bin, block lengths and the switch cost.
    The length of a bin, the square root of its block's, is our reading; so are ranges instead of single batch sizes.
    """

    depths: Ascending | None = None
    bins: Ascending = (1, 2, 4, 8, 16, 32, 64, 128)

    timing: ClassVar[BudgetTiming] = "past"
    memory: ClassVar[NightjarMemory]  # an attribute, not an option: it is no field

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", NightjarMemory())
        if self.depths is not None and self.depths[0] < 0:
            raise ValueError(f"depths must not be negative, got {list(self.depths)}")
        if self.bins[0] != 1:
            raise ValueError(f"bins must start at batch 1, got {list(self.bins)}")

    @property
    def max_depth(self) -> int | None:
        """The deepest that was asked for."""
        return None if self.depths is None else max(self.depths)

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """What the bandit of this drafter and batch size pulls."""
        memory = self.memory
        wanted = self.depths if self.depths is not None else range(drafter.max_depth + 1)
        depths = sorted({min(depth, drafter.max_depth) for depth in wanted})
        start = self.bins[bisect_right(self.bins, max(context.batch, 1)) - 1]
        memory.current = memory.bandits.setdefault(drafter.name, {}).setdefault(start, DepthBandit())
        return memory.current.pull(depths, memory.switch_cost() if memory.was_off else 0.0, context.rng)

    def observe(self, outcome: Outcome) -> None:
        """Count seconds and tokens of the step, and what switching on cost."""
        memory, depth, seconds = self.memory, outcome.order.depth, outcome.seconds
        if memory.current is not None:
            alone = seconds.total - seconds.switch - seconds.prefill
            ordered = memory.current.depth  # what was pulled; drafting may have ended earlier
            memory.current.add(ordered, alone * len(outcome.num_emitted), float(outcome.num_emitted.sum()))
        if depth and memory.was_off:
            memory.switch_seconds += seconds.switch
            memory.switches += 1
        memory.was_off, memory.current = not depth, None

    def state_dict(self) -> dict[str, Any]:
        """Every bandit, and the switches so far."""
        memory = self.memory
        bandits = {
            drafter: [[start, bandit.state_dict()] for start, bandit in ranges.items()]
            for drafter, ranges in memory.bandits.items()
        }
        return {"bandits": bandits, "switch": [memory.was_off, memory.switch_seconds, memory.switches]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        memory = NightjarMemory()
        memory.was_off, memory.switch_seconds, memory.switches = state["switch"]
        for drafter, ranges in state["bandits"].items():
            memory.bandits[drafter] = {}
            for start, saved in ranges:
                memory.bandits[drafter][start] = DepthBandit()
                memory.bandits[drafter][start].load_state_dict(saved)
        object.__setattr__(self, "memory", memory)
