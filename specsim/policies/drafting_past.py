"""What drafting with each drafter brought, the depth that promises most, and what may be lost on finding out."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.core import DrafterSpec, Outcome, StepContext
from specsim.policies.parts import part
from specsim.policies.yield_memory import YieldMemory

FIRST_CREDIT = 4.0
"""Tokens a request that a drafter may lose before it is known."""

MOST_CREDIT = 32.0
"""Tokens a request that may be lost, however much was gained before."""


class Asked:
    """What a drafter was asked for in the step under way, and what the step takes.

    seconds  for each depth, [B * depth + 1] float64 of the step at every budget
    rested   whether it did not draft in the step before
    """

    def __init__(self, seconds: list[np.ndarray], rested: bool) -> None:
        self.seconds, self.rested = seconds, rested

    def plain_steps(self, depth: int, budget: int) -> float:
        """What a step takes, in plain steps."""
        return float(self.seconds[depth][budget] / self.seconds[0][0])


class DrafterPast:
    """What drafting with one drafter brought, and what may be lost to it yet.

    credit    tokens a request that drafting may lose against plain decoding: `risk` is added at every step, and what
              drafting gained, to `MOST_CREDIT` at most; what it lost is taken off
    catch_up  what bringing the drafter up to date took when it last drafted after a rest, in plain steps
    """

    def __init__(self, alpha: float, prior: float, risk: float) -> None:
        self.yields = YieldMemory(alpha, prior)
        self.risk = risk
        self.credit = FIRST_CREDIT
        self.catch_up = 0.0

    def depth(self, asked: Asked, batch: int, prunes_for_goodput: bool) -> int:
        """The depth of the largest goodput, the least of equal ones, among those that the credit covers.

        A depth is covered when the credit outlasts a step in which nothing that it drafts is accepted. Where drafting
        all the way makes the step longer by no more than `risk`, a policy that prunes for goodput gets it all: what
        this step's scores say then is better than what the past says.

        prunes_for_goodput  whether the policy leaves unverified what does not pay, all of it if need be
        """
        to_pay = self.catch_up if asked.rested else 0.0
        accepted, verified = self.yields.shares(len(asked.seconds) - 1)
        budgets = np.ceil(batch * verified).astype(np.int64).tolist()
        steps = np.array([asked.plain_steps(depth, budget) for depth, budget in enumerate(budgets)])
        covered = (steps - 1.0 + to_pay <= self.credit) | (np.arange(len(steps)) == 0)
        best = int(np.argmax(np.where(covered, (1.0 + accepted) / steps, 0.0)))
        most, budget = len(steps) - 1, budgets[best]
        free = asked.plain_steps(most, budget) <= (1.0 + self.risk) * asked.plain_steps(best, budget)
        return most if prunes_for_goodput and free and covered[most] else best

    def add(self, outcome: Outcome, asked: Asked, batch: int) -> None:
        """Count one step; a plain one costs the credit nothing, whatever it took.

        outcome  of the drafter's own requests
        batch    all requests of the step: it is priced as if the drafter had drafted for each of them
        """
        self.yields.add(outcome)
        gained = 0.0
        if outcome.order.depth:
            depth = min(outcome.order.depth, len(asked.seconds) - 1)
            budget = int(outcome.num_verify.sum()) * batch // len(outcome.num_verify)
            catch_up = outcome.seconds.switch / float(asked.seconds[0][0])
            gained = float(outcome.num_emitted.mean()) - asked.plain_steps(depth, budget) - catch_up
            self.catch_up = catch_up if asked.rested else self.catch_up
        self.credit = min(self.credit + self.risk + gained, MOST_CREDIT)

    def state_dict(self) -> dict[str, Any]:
        """The counts and the credit, JSON-able."""
        return {"credit": self.credit, "catch_up": self.catch_up, **self.yields.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.credit, self.catch_up = float(state["credit"]), float(state["catch_up"])
        self.yields.load_state_dict(state)


class DraftingPast:
    """What is remembered of each drafter, and whose step is under way."""

    def __init__(self, alpha: float, prior: float, risk: float) -> None:
        self._options = alpha, prior, risk
        self._drafters: dict[str, DrafterPast] = {}
        self._asked: dict[str, Asked] = {}  # in arm order; several where a step's requests have different drafters
        self._step = -1
        self._drafted: list[str] = []  # who drafted in the step before

    def depth(self, context: StepContext, drafter: DrafterSpec, prunes_for_goodput: bool) -> int:
        """How deep a drafter should draft; `context.price` is there."""
        assert context.price is not None
        if context.step != self._step:
            self._step, self._asked = context.step, {}
        # The deepest first: what shallower steps take is a part of what it takes, which a table then knows.
        seconds = [context.price(drafter, depth).seconds for depth in range(drafter.max_depth, -1, -1)][::-1]
        asked = self._asked[drafter.name] = Asked(seconds, drafter.name not in self._drafted)
        return self._of(drafter.name).depth(asked, context.batch, prunes_for_goodput)

    def add(self, outcome: Outcome) -> None:
        """Count a step for the drafters asked for it, each by its own requests."""
        order, batch = outcome.order, len(outcome.num_verify)
        arms = [None] * len(self._asked) if order.arms is None else np.unique(order.arms).tolist()
        for (drafter, asked), arm in zip(self._asked.items(), arms, strict=True):
            self._of(drafter).add(outcome if arm is None else part(outcome, order.arms == arm), asked, batch)
        self._drafted = list(self._asked) if order.depth else []
        self._asked = {}

    def state_dict(self) -> dict[str, Any]:
        """Each drafter's, JSON-able."""
        drafters = {drafter: past.state_dict() for drafter, past in self._drafters.items()}
        return {"drafted": list(self._drafted), "drafters": drafters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._drafters, self._asked, self._drafted = {}, {}, list(state["drafted"])
        for drafter, own in state["drafters"].items():
            self._of(drafter).load_state_dict(own)

    def _of(self, drafter: str) -> DrafterPast:
        if drafter not in self._drafters:
            self._drafters[drafter] = DrafterPast(*self._options)
        return self._drafters[drafter]
