"""Stop drafting, for the whole batch, when one more position lowers the predicted goodput."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from pydantic.dataclasses import dataclass

from specsim.core import FIXED_POINT, Array, Draft, Score, StepCost
from specsim.policies.base import BudgetTiming
from specsim.policies.budget.depth_option import DepthOption
from specsim.policies.survival import namespace, survival_scores


@dataclass(frozen=True, kw_only=True)
class AdaSpec(DepthOption):
    """Draft position after position while tokens per second are predicted to grow; verify all that was drafted.

    goodput(k) = (B + sum over requests of s(1) + ... + s(k)) / seconds of a step drafted and verified to depth k

    Drafting ends with the first k whose goodput is below that of k - 1, goodput(0) being a plain step's. That
    position has been drafted by then, and is kept: a stop may look at tokens that it does not drop. The paper goes on
    to prune by the drawn tokens' own confidence, which is not exact and is left out.

    score      what the drafter says of each position
    depth      most draft tokens a request (None: the drafter's `max_depth`)

    Source: AdaSpec, also SpecServe (arXiv 2503.05096), adaptive drafting.
    """

    score: Score = "drawn_prob"

    timing: ClassVar[BudgetTiming] = "stop_after"

    def draft_lengths(self, draft: Draft, confidence: Array, price: Callable[[int], StepCost]) -> Array:
        """[B] int64, the same depth for all, less where fewer drafts were found."""
        xp = namespace(confidence)
        device = confidence.device
        batch, columns = confidence.shape
        scores = survival_scores(confidence, draft.num_drafts, xp)
        survives = xp.where(scores > 0.0, scores, 0.0)
        # Integers, so that the sum is the same in any order.
        accepted = xp.cumulative_sum(xp.sum(xp.astype(xp.round(survives * FIXED_POINT), xp.int64), axis=1))
        tokens = xp.astype(accepted + batch * int(FIXED_POINT), xp.float64)
        positions = xp.arange(columns, device=device)
        drafted = xp.cumulative_sum(xp.sum(xp.astype(positions[:, None] < draft.num_drafts, xp.int64), axis=1))
        seconds = xp.stack([xp.take(price(k + 1).seconds, drafted[k : k + 1], axis=0)[0] for k in range(columns)])
        plain = xp.full((1,), batch * FIXED_POINT, dtype=xp.float64, device=device) / price(0).seconds[:1]
        goodput = xp.concat([plain, tokens / seconds])
        falls = xp.astype(goodput[1:] < goodput[:-1], xp.int64)
        depth = 1 + xp.argmax(xp.concat([falls[:-1], xp.ones((1,), dtype=xp.int64, device=device)]), keepdims=True)
        return xp.where(depth < draft.num_drafts, depth, draft.num_drafts)

    def plan(self, draft: Draft, confidence: Array, cost: StepCost) -> Array:
        """[B] int64, every draft of every request."""
        return draft.num_drafts
