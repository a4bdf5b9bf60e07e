"""The controller: choose a drafter and a depth, plan what is verified, learn from what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from specsim.core import Array, Draft, DrafterSpec, Order, Outcome, Plan, Score, StepContext, StepCost
from specsim.errors import InputError
from specsim.policies.base import BudgetPolicy, Calibrator, DrafterPolicy, Drafters, DraftStop, RequestPolicy
from specsim.policies.calibrators.identity import IdentityCalibrator
from specsim.policies.config import ControllerConfig
from specsim.policies.exactness import exactness
from specsim.policies.learned_state import check_learned
from specsim.policies.parts import by_arm, each_drafters
from specsim.policies.survival import namespace

PlanKernel: TypeAlias = Callable[[Draft, Array, StepCost], Array]
"""Another implementation of one budget policy's `plan`, equal to it in bits."""


class Controller:
    """A drafter policy, a budget policy and a calibrator, driven alike by a simulator and by a live engine.

    label         what tables and plots call it
    clairvoyant   whether it knows what the target would accept: a bound, not a policy
    stops_drafting  whether drafting may end before the ordered depth, so that an engine must ask `draft_lengths`
    mixes         whether requests of one step may have different drafters, so that an engine must run several
    lossy         whether some arm it could pull does not keep the target's distribution
    lossy_reason  why (None when exact)
    config        the configuration it was built from (None when put together by hand)
    """

    def __init__(
        self,
        drafters: Drafters,
        drafter_policy: DrafterPolicy,
        budget_policy: BudgetPolicy,
        calibrator: Calibrator | None = None,
        *,
        allow_lossy: bool = False,
        live: bool = False,
        label: str = "",
        config: ControllerConfig | None = None,
    ) -> None:
        """Put a controller together.

        drafters        the drafters of the run, in arm order
        drafter_policy  which one drafts
        budget_policy   how deep, and how much is verified
        calibrator      raw score to acceptance chance (None: identity)
        allow_lossy     accept combinations that change the output's distribution, and mark them
        live            whether real tokens are generated, which a clairvoyant policy cannot do
        label           what tables call it (empty: the budget policy's class)
        config          what it was built from

        Raises  InputError when an arm lacks the score, the depth or the exactness the budget policy needs
        """
        self.drafters = tuple(drafters)
        self.drafter_policy = drafter_policy
        self.budget_policy = budget_policy
        self.calibrator: Calibrator = IdentityCalibrator() if calibrator is None else calibrator
        self.label = label or type(budget_policy).__name__
        self.config = config
        self.clairvoyant = budget_policy.clairvoyant
        self.stops_drafting = isinstance(budget_policy, DraftStop)
        self.mixes = budget_policy.drafts and getattr(drafter_policy, "scope", "batch") == "request"
        if live:
            self._check_live()
        self._check_mixing()
        self.depth_by_drafter: bool = budget_policy.drafts and getattr(budget_policy, "depth_by_drafter", False)
        self._resting: np.ndarray | None = None  # arms of a plain step's requests, where they have different ones
        self.lossy_reason: str | None = None
        if budget_policy.drafts:
            self._check_depth()
            self._check_scores()
            self._check_exactness(allow_lossy)

    @property
    def lossy(self) -> bool:
        """Whether some arm it could pull does not keep the target's distribution."""
        return self.lossy_reason is not None

    @property
    def full_information(self) -> bool:
        """Whether it learns from what every drafter would have had accepted, so that an engine must tell."""
        return self.budget_policy.drafts and getattr(self.drafter_policy, "full_information", False)

    @property
    def pullable(self) -> tuple[DrafterSpec, ...]:
        """Every drafter it could choose."""
        return tuple(self.drafters[arm] for arm in self.drafter_policy.arms)

    @property
    def max_depth(self) -> int:
        """Deepest draft it may ever order; an engine reserves that many lookahead slots a request, and one more."""
        if not self.budget_policy.drafts:
            return 0
        deepest = max(drafter.max_depth for drafter in self.pullable)
        limit = self.budget_policy.max_depth
        return deepest if limit is None else min(deepest, limit)

    def choose(self, context: StepContext) -> Order:
        """Before drafting: which drafter, how deep. Depth 0 is a plain autoregressive step."""
        budget = self.budget_policy
        if not budget.drafts:
            return Order(arm=0, depth=0)
        if self.mixes:
            return self._choose_each(context)
        arm = self.drafter_policy.pull(context, context.rng)
        return Order(arm=arm, depth=self._depth(context, arm))

    def _choose_each(self, context: StepContext) -> Order:
        """An arm for each request. Where all are the same it is an order like any other."""
        assert isinstance(self.drafter_policy, RequestPolicy)
        arms = np.array(self.drafter_policy.pull_each(context, context.rng), dtype=np.int64)
        pulled = np.bincount(arms, minlength=len(self.drafters))
        depth = max(self._depth(context, arm) for arm in np.flatnonzero(pulled).tolist())
        different = np.count_nonzero(pulled) > 1
        self._resting = arms if different and depth == 0 else None
        return Order(arm=int(pulled.argmax()), depth=depth, arms=arms if different and depth else None)

    def _depth(self, context: StepContext, arm: int) -> int:
        drafter = self.drafters[arm]
        return min(self.budget_policy.draft_depth(context, drafter), drafter.max_depth)

    def draft_lengths(self, draft: Draft, price: Callable[[int], StepCost]) -> Array:
        """While drafting: [B] int64, where each request's draft ends; all of it unless the policy stops early.

        draft   what drafting to the ordered depth proposes
        price   seconds of the step at every budget, had drafting stopped at a depth
        """
        if not isinstance(self.budget_policy, DraftStop):
            return draft.num_drafts
        columns = next(iter(draft.scores.values())).shape[1]
        return self.budget_policy.draft_lengths(draft, self._confidence(draft, price(columns)), price)

    def plan(self, draft: Draft, cost: StepCost, kernel: PlanKernel | None = None) -> Plan:
        """After drafting: how many drafts of each request the target verifies.

        draft   what was proposed; scores may hold NaN, which counts as no confidence at all
        cost    seconds at every budget
        kernel  gives what the budget policy's own `plan` gives, by other means (None: the policy's own)
        """
        if cost.seconds.shape[0] == 1:  # no room for a single draft: an empty batch, or a plain step
            return Plan(namespace(draft.num_drafts).zeros_like(draft.num_drafts))
        planned = self.budget_policy.plan if kernel is None else kernel
        num_verify = planned(draft, self._confidence(draft, cost), cost)
        if self.budget_policy.score is not None and self._warming_up(draft):
            return Plan(draft.num_drafts)
        return Plan(num_verify)

    def observe(self, outcome: Outcome) -> None:
        """After acceptance: learn from what was verified, accepted and emitted, and what it cost.

        A plain step says something of an arm only where it was chosen for that arm: then it is what pulling it brings.
        """
        self.budget_policy.observe(outcome)
        if self._resting is not None and self.depth_by_drafter:
            outcome = replace(outcome, order=replace(outcome.order, arms=self._resting))
        if outcome.order.arms is not None:
            for arm, own in by_arm(outcome, self.drafters):
                self.calibrator.observe(own)
                self.drafter_policy.update(arm, own)
            return
        self.calibrator.observe(outcome)
        rested = outcome.order.depth == 0
        if not rested or (self.depth_by_drafter and not self.full_information):
            self.drafter_policy.update(outcome.order.arm, outcome)

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, JSON-able."""
        return {
            "drafters": [drafter.name for drafter in self.drafters],
            "drafter_policy": self.drafter_policy.state_dict(),
            "budget_policy": self.budget_policy.state_dict(),
            "calibrator": self.calibrator.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`.

        Raises  InputError when the state was learned on other drafters, or by another policy
        """
        names = [drafter.name for drafter in self.drafters]
        if state.get("drafters") != names:
            learned = state.get("drafters")
            raise InputError(f"{self.label}: the state was learned on drafters {learned}, this run has {names}")
        for part in ("drafter_policy", "budget_policy", "calibrator"):
            policy = getattr(self, part)
            try:
                check_learned(state[part], policy.state_dict())
                policy.load_state_dict(state[part])
            except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
                said = f"no key {error}" if isinstance(error, KeyError) else str(error)
                raise InputError(f"{self.label}: this state is not one of {type(policy).__name__}: {said}") from error

    def _confidence(self, draft: Draft, cost: StepCost) -> Array:
        """[B, D] float64 in [0, 1]: calibrated scores, 0 where a score is NaN, zeros when the policy reads none."""
        score = self.budget_policy.score
        if score is None:
            xp = namespace(draft.num_drafts)
            batch = draft.num_drafts.shape[0]
            shape = (batch, (cost.seconds.shape[0] - 1) // batch)
            return xp.zeros(shape, dtype=xp.float64, device=draft.num_drafts.device)
        if score not in draft.scores:
            raise InputError(_missing_score(self.label, score, draft.drafter.name, tuple(draft.scores)))
        raw = draft.scores[score]
        budgets = raw.shape[0] * raw.shape[1] + 1
        if cost.seconds.shape[0] != budgets:
            raise ValueError(f"{self.label}: {cost.seconds.shape[0]} costs for the {budgets} budgets of this draft")
        xp = namespace(raw)
        confidence = self._calibrated(draft, score)
        usable = confidence > 0.0  # false for NaN
        if confidence is not raw:  # a calibrator may turn what is no number into one
            usable = usable & (raw == raw)
        confidence = xp.where(usable, confidence, 0.0)
        return xp.where(confidence < 1.0, confidence, 1.0)

    def _calibrated(self, draft: Draft, score: Score) -> Array:
        """[B, D] calibrated confidence; each drafter's own rows are calibrated as its own draft."""
        if draft.arms is None:
            return self.calibrator.calibrate(draft, score)
        confidence = namespace(draft.scores[score]).zeros_like(draft.scores[score])
        for own, alone in each_drafters(draft, self.drafters):
            confidence[own] = self.calibrator.calibrate(alone, score)
        return confidence

    def _warming_up(self, draft: Draft) -> bool:
        """Whether the calibrator knows one of the step's drafters too little."""
        if draft.arms is None:
            return self.calibrator.warming_up(draft)
        return any(self.calibrator.warming_up(alone) for _, alone in each_drafters(draft, self.drafters))

    def _check_live(self) -> None:
        """Refuse what only a simulator can know or do."""
        if self.clairvoyant:
            raise InputError(
                f"{self.label}: a clairvoyant policy knows what the target would accept; it runs in simulation only"
            )
        if self.full_information:
            raise InputError(
                f"{self.label}: learns from every drafter at every step, and a live engine runs the pulled one alone;"
                " it runs in simulation only"
            )

    def _check_mixing(self) -> None:
        if self.mixes and self.stops_drafting:
            raise InputError(
                f"{self.label}: stops drafting when a step's drafter has said enough, and one arm a request gives a"
                " step several drafters; use scope=batch, or another budget policy"
            )

    def _check_depth(self) -> None:
        asked = self.budget_policy.max_depth
        if asked is not None and asked > max(drafter.max_depth for drafter in self.pullable):
            limits = ", ".join(f"{drafter.name} at most {drafter.max_depth}" for drafter in self.pullable)
            raise InputError(f"{self.label}: depth {asked} is deeper than any drafter goes ({limits})")

    def _check_scores(self) -> None:
        score = self.budget_policy.score
        if score is None:
            return
        if score not in self.calibrator.scores:
            allowed = ", ".join(self.calibrator.scores)
            raise InputError(
                f"{self.label}: {type(self.calibrator).__name__} cannot turn score {score} into a probability"
                f" (it can: {allowed})"
            )
        for drafter in self.pullable:
            if score not in drafter.scores:
                raise InputError(_missing_score(self.label, score, drafter.name, drafter.scores))

    def _check_exactness(self, allow_lossy: bool) -> None:
        budget = self.budget_policy
        if budget.clairvoyant:  # a bound for reports: it emits no tokens whose distribution could be wrong
            return
        for drafter in self.pullable:
            verdict = exactness(drafter.law, drafter.structure, budget.score, budget.timing)
            if verdict.exact:
                continue
            reason = (
                f"{self.label} (score {budget.score}, budget by {budget.timing}) is not exact with drafter"
                f" {drafter.name} ({drafter.law}, {drafter.structure}): {verdict.reason}"
            )
            if not allow_lossy:
                raise InputError(f"{reason}; {verdict.remedy}, or pass --allow-lossy")
            self.lossy_reason = self.lossy_reason or reason


def _missing_score(label: str, score: str, drafter: str, offered: tuple[str, ...]) -> str:
    offer = ", ".join(offered) or "none"
    return f"{label}: reads score {score}, which drafter {drafter} does not offer (it offers: {offer})"
