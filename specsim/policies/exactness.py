"""Which combinations of drafter and budget policy keep the target's distribution: docs/exactness.md as a function."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.core import DraftLaw, DraftStructure, Score
from specsim.policies.base import BudgetTiming

DISTRIBUTION_SCORES: tuple[Score, ...] = ("max_prob", "margin")
"""Scores that read the draft law alone, never the token drawn from it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a combination is exact, and if not, why and what to do instead.

    exact   whether the output keeps the target's distribution
    reason  why not (empty when exact)
    remedy  what to change (empty when exact)
    """

    exact: bool
    reason: str = ""
    remedy: str = ""


EXACT = Verdict(exact=True)

OWN_TOKEN = Verdict(
    exact=False,
    reason="whether a draft is verified would depend on the draft itself",
    remedy="rank by score=max_prob, or verify the drafts as certain tokens (law point_mass)",
)

LOOKS_AHEAD_LAWS = Verdict(
    exact=False,
    reason="the best of all budgets reads draft laws that depend on the drafts being cut",
    remedy="choose the budget from earlier steps or fix it (fixed_ratio, fixed_depth)",
)

LOOKS_AHEAD_SCORES = Verdict(
    exact=False,
    reason="the best of all budgets reads scores that depend on the drafts being cut",
    remedy="rank by score=max_prob, or fix the budget (fixed_ratio, fixed_depth)",
)


def exactness(law: DraftLaw, structure: DraftStructure, score: Score | None, timing: BudgetTiming) -> Verdict:
    """Whether pruning keeps the target's distribution.

    law        how the drafts are verified
    structure  whether draft laws depend on earlier drafts of the block
    score      what the ranking reads (None: nothing)
    timing     what the budget is chosen from

    A budget is non-anticipating when position k's being verified depends neither on draft k's value nor on
    anything drawn after it. Point masses draw nothing, so they may read anything.
    """
    if law == "point_mass" or score is None:
        return EXACT
    if score not in DISTRIBUTION_SCORES and score != "shifted_prob":
        return OWN_TOKEN
    if timing != "argmax":
        return EXACT
    if structure == "autoregressive":
        return LOOKS_AHEAD_LAWS
    return EXACT if score in DISTRIBUTION_SCORES else LOOKS_AHEAD_SCORES
