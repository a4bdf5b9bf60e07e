"""`depth=goodput`: how deep to draft, by what drafting to each depth has brought lately under the policy's pruning."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from specsim.core import DrafterSpec, Outcome, StepContext
from specsim.errors import InputError
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.drafting_past import DraftingPast

ALPHA, PRIOR, RISK = 0.01, 1.0, 0.01


def whole_or_goodput(value: Any) -> Any:
    """A depth as written; what is neither a number nor the word is refused with both named."""
    if isinstance(value, str) and value != "goodput" and not value.strip().lstrip("+-").isdigit():
        raise ValueError("allowed is a whole number of draft tokens, or goodput")
    return value


Depth = Annotated[Annotated[int, Field(ge=1)] | Literal["goodput"] | None, BeforeValidator(whole_or_goodput)]


@dataclass(frozen=True, kw_only=True)
class GoodputOption(DepthOption):
    """Draft to a depth settled before drafting, the same for all requests.

    goodput(d) = B (1 + g(1) + ... + g(d)) / seconds of a step that drafts d and verifies B (v(1) + ... + v(d))

    g(j) is the share of requests whose draft j was verified and accepted lately, v(j) of those whose draft j was
    verified, both among steps drafted that deep: what the policy's own pruning, uneven as it is within a batch, made of
    position j. Of a shallower depth it is taken to keep the same drafts, so far as there are any. A position that is
    not drafted any more forgets, see `YieldMemory`. Only earlier steps decide, so this is exact for every draft law.

    depth  draft tokens a request (None: the drafter's `max_depth`), or `goodput`: that of the largest goodput, 0
           included and the least of equal ones, each drafter by its own past
    alpha  what every step with a drafter takes off the weight of those before it
    prior  share of drafts assumed to go on at a position that was not drafted yet, as strong as one request
    risk   share of plain decoding's tokens that drafting may lose; a depth that could lose more than is left of it is
           not drafted, see `DrafterPast`

    The last three are options of `depth=goodput` alone.

    Source: the depth is chosen as in SmartSpec / TurboSpec (arXiv 2406.14066); that pruning and catching up are
    counted, and what may be lost, are specsim's.
    """

    depth: Depth = None  # type: ignore[assignment]  # a word more than other policies take
    alpha: Annotated[float, Field(gt=0, lt=1)] = ALPHA
    prior: Annotated[float, Field(ge=0, le=1)] = PRIOR
    risk: Annotated[float, Field(ge=0, le=1)] = RISK

    drafting: ClassVar[DraftingPast]  # an attribute, not an option: it is no field

    def __post_init__(self) -> None:
        if self.depth != "goodput" and (self.alpha, self.prior, self.risk) != (ALPHA, PRIOR, RISK):
            raise ValueError("alpha, prior and risk are options of depth=goodput")
        object.__setattr__(self, "drafting", DraftingPast(self.alpha, self.prior, self.risk))

    @property
    def max_depth(self) -> int | None:
        """The option itself where it is a number: it is never exceeded."""
        return None if self.depth == "goodput" else self.depth

    @property
    def depth_by_drafter(self) -> bool:
        """Whether depth 0 is said of the drafter that was chosen, so that it is an observation of it."""
        return self.depth == "goodput"

    @property
    def prunes_for_goodput(self) -> bool:
        """Whether its pruning leaves unverified what does not pay, all of it if need be."""
        raise NotImplementedError

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """The option, the drafter's most, or the depth of the largest goodput.

        Raises  InputError when the engine has no cost table and `depth` is `goodput`
        """
        if self.depth != "goodput":
            return super().draft_depth(context, drafter)
        if context.price is None:
            raise InputError("depth=goodput: this engine has no cost table to read seconds from; give a number")
        return self.drafting.depth(context, drafter, self.prunes_for_goodput)

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
