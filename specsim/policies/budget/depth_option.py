"""The `depth` option that every drafting budget policy has."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.core import DrafterSpec, StepContext
from specsim.policies.stateless import Stateless


@dataclass(frozen=True, kw_only=True)
class DepthOption(Stateless):
    """Draft `depth` tokens a request, or as many as the drafter can if that is fewer.

    depth   draft tokens a request (None: the drafter's `max_depth`)
    """

    depth: Annotated[int, Field(ge=1)] | None = None

    clairvoyant: ClassVar[bool] = False
    drafts: ClassVar[bool] = True

    @property
    def max_depth(self) -> int | None:
        """The option itself: it is never exceeded."""
        return self.depth

    def draft_depth(self, context: StepContext, drafter: DrafterSpec) -> int:
        """The option, or the drafter's most."""
        return drafter.max_depth if self.depth is None else self.depth
