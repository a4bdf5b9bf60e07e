"""`depth=goodput`: how deep to draft, by what drafting to each depth has brought lately under the policy's pruning."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import DrafterSpec, Outcome, StepContext
from specsim.errors import InputError
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.parts import part
from specsim.policies.yield_memory import YieldMemory


def whole_or_goodput(value: Any) -> Any:
    """A depth as written; what is neither a number nor the word is refused with both named."""
    if isinstance(value, str) and value != "goodput" and not value.strip().lstrip("+-").isdigit():
        raise ValueError("allowed is a whole number of draft tokens, or goodput")
    return value


class DraftingPast:
    """What is remembered of each drafter, and whose step is under way.

    asked  drafters of the step under way, in arm order: more than one where its requests have different ones
    """

    def __init__(self, alpha: float, prior: float) -> None:
        self.alpha, self.prior = alpha, prior
        self.asked: list[str] = []
        self._step = -1
        self._yields: dict[str, YieldMemory] = {}

    def ask(self, step: int, drafter: str) -> YieldMemory:
        """What a drafter brought that may draft in a step; of the step before, nothing more is expected."""
        if step != self._step:
            self._step, self.asked = step, []
        if drafter not in self.asked:
            self.asked.append(drafter)
        return self.of(drafter)

    def of(self, drafter: str) -> YieldMemory:
        """What one drafter brought."""
        if drafter not in self._yields:
            self._yields[drafter] = YieldMemory(self.alpha, self.prior)
        return self._yields[drafter]

    def add(self, outcome: Outcome) -> None:
        """Count a step for the drafters asked for it, each by its own requests."""
        arms = outcome.order.arms
        for drafter, arm in zip(self.asked, self.asked if arms is None else np.unique(arms).tolist(), strict=True):
            self.of(drafter).add(outcome if arms is None else part(outcome, arms == arm))
        self.asked = []

    def state_dict(self) -> dict[str, Any]:
        """Each drafter's, JSON-able."""
        return {drafter: memory.state_dict() for drafter, memory in self._yields.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._yields, self.asked = {}, []
        for drafter, own in state.items():
            self.of(drafter).load_state_dict(own)


Depth = Annotated[Annotated[int, Field(ge=1)] | Literal["goodput"] | None, BeforeValidator(whole_or_goodput)]


@dataclass(frozen=True, kw_only=True)
class GoodputOption(DepthOption):
    """Draft to a depth settled before drafting, the same for all requests.

    goodput(d) = B (1 + g(1) + ... + g(d)) / seconds of a step that drafts d and verifies B (v(1) + ... + v(d))

    g(j) is the share of requests whose draft j was verified and accepted lately, v(j) of those whose draft j was
    verified, both among steps drafted that deep: what the policy's own pruning, however uneven in the batch, made of
    position j. A position that is not drafted any more forgets, see `YieldMemory`. Only earlier steps decide.

    depth  draft tokens a request (None: the drafter's `max_depth`), or `goodput`: that of the largest goodput, 0
           included and the least of equal ones, each drafter by its own past
    alpha  with `depth=goodput`, what every step with a drafter takes off the weight of those before it
    prior  with `depth=goodput`, chance assumed of a position before its first test, as strong as one test

    Source: the depth is chosen as in SmartSpec / TurboSpec (arXiv 2406.14066); that pruning is counted is specsim's.
    """

    depth: Depth = None  # type: ignore[assignment]  # a word more than other policies take
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.02
    prior: Annotated[float, Field(ge=0, le=1)] = 1.0

    drafting: ClassVar[DraftingPast]  # an attribute, not an option: it is no field

    def __post_init__(self) -> None:
        object.__setattr__(self, "drafting", DraftingPast(self.alpha, self.prior))

    @property
    def max_depth(self) -> int | None:
        """The option itself where it is a number: it is never exceeded."""
        return None if self.depth == "goodput" else self.depth

    @property
    def depth_by_drafter(self) -> bool:
        """Whether depth 0 is said of the drafter that was chosen, so that it is an observation of it."""
        return self.depth == "goodput"

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """The option, the drafter's most, or the depth of the largest goodput.

        Raises  InputError when the engine has no cost table and `depth` is `goodput`
        """
        if self.depth != "goodput":
            return super().draft_depth(context, drafter)
        if context.price is None:
            raise InputError("depth=goodput: this engine has no cost table to read seconds from; give a number")
        most, batch = drafter.max_depth, context.batch
        accepted, verified = self.drafting.ask(context.step, drafter.name).shares(most)
        tokens = 1.0 + accepted
        budgets = np.ceil(batch * verified).astype(np.int64)
        seconds = [float(context.price(drafter, depth).seconds[budgets[depth]]) for depth in range(most + 1)]
        return int(np.argmax(tokens / np.array(seconds)))

    def observe(self, outcome: Outcome) -> None:
        """Learn what became of the drafts."""
        if self.depth == "goodput":
            self.drafting.add(outcome)

    def state_dict(self) -> dict[str, Any]:
        """What each drafter brought; empty where the depth is no matter of the past."""
        return self.drafting.state_dict() if self.depth == "goodput" else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  ValueError when the depth is no matter of the past and the state is not empty
        """
        if self.depth != "goodput":
            super().load_state_dict(state)
        else:
            self.drafting.load_state_dict(state)
