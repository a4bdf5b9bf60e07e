"""Twin of Contextual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from specsim.policies.arms.contextual import Contextual
from specsim.policies.base import DrafterPolicy
from specsim.study.regret.feedback import Feedback
from specsim.study.regret.twins.twin import Twin


class ContextualTwin:
    """One twin of the wrapped policy for each domain; in the study all runs meet the same domain at the same time.

    build   makes the twin of a policy for S runs
    """

    def __init__(self, policy: Contextual, num_runs: int, build: Callable[[DrafterPolicy, int], Twin]) -> None:
        self.policy, self.num_runs, self.build = policy, num_runs, build
        self._by_domain: dict[str, Twin] = {}

    def pull(self, domain: str, rng: np.random.Generator) -> np.ndarray:
        """[S] what the domain's twin pulls."""
        if domain not in self._by_domain:
            self._by_domain[domain] = self.build(self.policy.build_wrapped(), self.num_runs)
        return self._by_domain[domain].pull(domain, rng)

    def update(self, arms: np.ndarray, feedback: Feedback) -> None:
        """Teach the domain's twin."""
        self._by_domain[feedback.domain].update(arms, feedback)
