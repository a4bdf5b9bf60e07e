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

OWN_TOKEN = "whether a draft is verified would depend on the draft itself"
LATER_LAWS = "the best of all budgets reads draft laws that depend on the drafts being cut"
LATER_SCORES = "the best of all budgets reads scores that depend on the drafts being cut"

RANK_BY_LAW = "rank by score=max_prob"
SETTLE_BUDGET = "settle the budget beforehand (fixed_ratio, fixed_depth)"
VERIFY_AS_CERTAIN = "verify the drafts as certain tokens (law point_mass)"


def exactness(law: DraftLaw, structure: DraftStructure, score: Score | None, timing: BudgetTiming) -> Verdict:
    """Whether pruning keeps the target's distribution.

    law        how the drafts are verified
    structure  whether draft laws depend on earlier drafts of the block
    score      what the ranking reads (None: nothing)
    timing     what the budget is chosen from

    A budget is non-anticipating when position k's being verified depends neither on draft k's value nor on
    anything drawn after it. Point masses draw nothing, so they may read anything; and so may a stop that keeps the
    draft it stopped at, since the next one has not been drawn.
    """
    if law == "point_mass" or score is None or timing == "stop_after":
        return EXACT
    looks_ahead = timing == "argmax" and structure == "autoregressive"
    if score in DISTRIBUTION_SCORES:
        return Verdict(False, LATER_LAWS, f"{SETTLE_BUDGET} or {VERIFY_AS_CERTAIN}") if looks_ahead else EXACT
    rank = f"{RANK_BY_LAW} and {SETTLE_BUDGET}" if looks_ahead else RANK_BY_LAW
    if score != "shifted_prob":
        return Verdict(False, OWN_TOKEN, f"{rank}, or {VERIFY_AS_CERTAIN}")
    if timing != "argmax":
        return EXACT
    return Verdict(False, LATER_SCORES, f"{SETTLE_BUDGET if looks_ahead else rank}, or {VERIFY_AS_CERTAIN}")
