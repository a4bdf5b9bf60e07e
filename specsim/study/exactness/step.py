"""One step of a controller on enumerated drafts, after a past that has nothing to do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from specsim.core import Draft, DrafterSpec, Order, Outcome, Score, StepContext, StepCost, StepSeconds
from specsim.cost.envelope import lower_envelope
from specsim.policies.controller import Controller
from specsim.study.exactness.laws import LARGEST_MARGIN, RequestLaws

HISTORY_STEPS = 4

Plan: TypeAlias = tuple[int, tuple[int, ...]]
"""Depth ordered, and the verified length of each request."""


@dataclass(frozen=True)
class Prices:
    """What a step costs at every budget; the curve does not depend on the drafter.

    seconds  [B * D + 1] float64
    """

    seconds: np.ndarray
    batch: int

    def at(self, depth: int) -> StepCost:
        """Of a step drafted that deep."""
        seconds = self.seconds[: self.batch * depth + 1]
        return StepCost(seconds, lower_envelope(seconds))

    def of(self, drafter: DrafterSpec, depth: int) -> StepCost:
        """What policies ask before drafting; what lies deeper than any draft of the step costs nothing more."""
        cost = self.at(depth)
        return replace(cost, seconds=np.pad(cost.seconds, (0, self.batch * depth + 1 - len(cost.seconds)), mode="edge"))


def random_prices(rng: np.random.Generator, requests: Sequence[RequestLaws]) -> Prices:
    """Curves on which looking ahead would pay.

    One in four has stairs of every height, one a dear first stair. The others have a single stair, about as high as
    what lies beyond it is worth with a drafter of middling confidence, so that a little confidence decides.
    """
    batch, depth = len(requests), requests[0].depth
    drafts = batch * depth
    kind = int(rng.integers(4))
    if kind == 0:
        return Prices(np.cumsum([1.0, rng.uniform(0.5, 1.0), *rng.uniform(0.0, 0.3, drafts - 1)]), batch)
    if kind == 1:
        return Prices(np.cumsum([rng.uniform(0.2, 1.0), *rng.exponential(0.5, drafts) ** 2]), batch)
    survival = np.sort(rng.uniform(0.5, 1.0, (batch, depth)).cumprod(axis=1).ravel())[::-1]
    tokens = np.concatenate([[0.0], survival.cumsum()]) + (batch if kind == 2 else 0.0)
    foot = int(rng.integers(0 if kind == 2 else 1, max(drafts, 2)))
    seconds = np.where(np.arange(drafts + 1) <= foot, 1.0, tokens[-1] / tokens[min(foot, drafts)])
    return Prices(seconds * (1.0 + 1e-3 * np.arange(drafts + 1)), batch)


class EnumeratedStep:
    """A controller with a past, asked for its plan of every draft a step could bring.

    depth   draft tokens ordered; what lies deeper is never drafted
    pruned  whether any plan so far left a draft unverified, or stopped drafting before that depth
    plans   the depth and the verified lengths of all plans so far
    """

    def __init__(self, controller: Controller, requests: Sequence[RequestLaws], prices: Prices, seed: int) -> None:
        """Play a past and order the step.

        requests  laws of the step's requests
        prices    what it costs
        seed      of the past, and of whatever a policy draws
        """
        self.controller, self.requests, self.prices = controller, requests, prices
        # A policy gets the one score it says it reads, so that it cannot read another.
        self.score: Score = controller.budget_policy.score or "max_prob"
        rng = np.random.default_rng([seed, 1])
        for index in range(HISTORY_STEPS):
            self._play(index, rng)
        self.order = controller.choose(self._context(HISTORY_STEPS, rng))
        self.depth = min(self.order.depth, requests[0].depth)
        self.pruned = False
        self.plans: set[Plan] = set()

    def verified(self, drafts: tuple[int, ...]) -> list[int]:
        """Verified length of each request when each drafts so.

        drafts  index of each request's draft
        """
        if self.depth == 0:
            return [0] * len(drafts)
        of_each = [own.scores[self.score][draft] for own, draft in zip(self.requests, drafts, strict=True)]
        _, num_verify = self._plan(self._draft(np.stack(of_each), self.depth, HISTORY_STEPS))
        self.pruned |= bool((num_verify < self.depth).any())
        lengths = [int(length) for length in num_verify]
        self.plans.add((self.depth, tuple(lengths)))
        return lengths

    def _plan(self, draft: Draft) -> tuple[Draft, np.ndarray]:
        """What is left of the draft where the policy stops drafting early, and how much of that is verified."""
        depth = int(draft.num_drafts.max())
        if self.controller.stops_drafting:
            lengths = np.asarray(self.controller.draft_lengths(draft, self.prices.at))
            depth = max(1, int(lengths.max()))
            kept = np.where(np.arange(depth) < lengths[:, None], draft.scores[self.score][:, :depth], 0.0)
            draft = replace(draft, num_drafts=lengths, scores={self.score: kept})
        return draft, np.asarray(self.controller.plan(draft, self.prices.at(depth)).num_verify)

    def _play(self, index: int, rng: np.random.Generator) -> None:
        """One step of the past: drafts of any confidence, of which about two of three are acceptable."""
        order = self.controller.choose(self._context(index, rng))
        depth = min(order.depth, self.requests[0].depth)
        order = Order(order.arm, depth)
        batch, none = len(self.requests), np.zeros(len(self.requests), np.int64)
        confidence = rng.random((batch, depth))
        acceptable = rng.binomial(depth, 0.66, batch) if depth else none
        if depth == 0:
            self.controller.observe(
                Outcome(order, None, none, none, none + 1, StepSeconds(verify=self.prices.seconds[0]))
            )
            return
        if self.score == "margin":
            confidence = LARGEST_MARGIN * confidence**4
        draft, num_verify = self._plan(self._draft(confidence, depth, index))
        accepted = np.minimum(acceptable, num_verify)
        seconds = StepSeconds(verify=float(self.prices.seconds[int(num_verify.sum())]))
        self.controller.observe(Outcome(order, draft, num_verify, accepted, accepted + 1, seconds))

    def _draft(self, score: np.ndarray, depth: int, age: int) -> Draft:
        batch = len(self.requests)
        full = np.full(batch, depth, dtype=np.int64)
        return Draft(
            drafter=self.controller.drafters[0],
            num_drafts=full,
            scores={self.score: score[:, :depth]},
            slots=np.arange(batch),
            ages=np.full(batch, age),
            num_decoded=np.full(batch, 2 * age),
            decode_seconds=np.full(batch, 1.5 * age * self.prices.seconds[0]),
        )

    def _context(self, index: int, rng: np.random.Generator) -> StepContext:
        batch = len(self.requests)
        return StepContext(
            step=index,
            now=float(index),
            batch=batch,
            num_waiting=0,
            mean_context=64.0,
            rng=rng,
            domains=("all",) * batch,
            requests=tuple(range(batch)),
            price=self.prices.of,
        )
