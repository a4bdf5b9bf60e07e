"""The definitions themselves, one object a run: what every twin must equal, and the way for policies without a twin."""

from __future__ import annotations

import copy

import numpy as np

from specsim.core import Counterfactual, Order, Outcome, StepContext, StepSeconds
from specsim.policies.base import DrafterPolicy
from specsim.study.regret.feedback import Feedback


class OneByOne:
    """S copies of a drafter policy that share one generator, asked in the order of the runs.

    policy      fresh
    num_runs    S
    """

    def __init__(self, policy: DrafterPolicy, num_runs: int) -> None:
        self.policies = [copy.deepcopy(policy) for _ in range(num_runs)]
        self._step = 0

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] what each pulls."""
        domains = (domain,) if domain else ()
        context = StepContext(self._step, 0.0, 1, 0, 0.0, rng, domains)
        return np.array([policy.pull(context, rng) for policy in self.policies], np.int64)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Tell each what its step brought."""
        self._step += 1
        for run, policy in enumerate(self.policies):
            policy.update(int(arms[run]), outcome(int(arms[run]), run, feedback))


def outcome(arm: int, run: int, feedback: Feedback) -> Outcome:
    """One run's step as an engine would report it: all its accept tests as those of one request."""
    accepted, tested = int(feedback.accepted[run]), int(feedback.tested[run])
    rejected = tested - accepted
    # Requests side by side: one with every accepted draft, and one with a single draft for each rejection.
    num_verify = np.array([accepted] + [1] * rejected, np.int64)
    num_accepted = np.array([accepted] + [0] * rejected, np.int64)
    num_emitted = np.array([int(feedback.tokens[run]) - rejected] + [1] * rejected, np.int64)
    return Outcome(
        order=Order(arm, max(accepted, 1)),
        draft=None,
        num_verify=num_verify,
        num_accepted=num_accepted,
        num_emitted=num_emitted,
        seconds=StepSeconds(verify=float(feedback.seconds[run])),
        domains=(feedback.domain,) * len(num_verify) if feedback.domain else (),
        counterfactual=Counterfactual(
            feedback.all_accepted[run].astype(np.int64)[:, None], feedback.all_tested[run].astype(np.int64)[:, None]
        ),
    )
