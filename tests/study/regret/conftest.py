"""Drafter policies by their text, and a made-up trace whose best drafter depends on the domain."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from specsim.core import Blocks, DrafterSpec
from specsim.policies.base import DrafterPolicy
from specsim.policies.build import build_arms
from specsim.policies.config import PolicyConfig
from specsim.study.regret.bernoulli import bernoulli
from specsim.study.regret.result import RegretResult
from specsim.study.regret.study import study_regret
from specsim.trace.requests import Requests


@pytest.fixture
def policy() -> Callable[..., DrafterPolicy]:
    """A fresh drafter policy from its text."""
    return lambda text, num_arms=3: build_arms(PolicyConfig.model_validate(text), num_arms)


@dataclass
class SmallTrace:
    """Three requests a domain, two drafters of four and two tokens, the second silent now and then; see TraceLike."""

    domains: tuple[str, ...] = ("chat", "code")
    length: int = 40
    kind: str = "position_indexed"
    chances: tuple[tuple[float, ...], ...] = ((0.3, 0.8), (0.7, 0.4))  # by domain and drafter

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        return tuple(
            DrafterSpec(name, "synthetic", "point_mass", "parallel", ("drawn_prob",), depth)
            for name, depth in (("deep", 4), ("short", 2))
        )

    @property
    def requests(self) -> Requests:
        count = 3 * len(self.domains)
        return Requests(
            request_id=np.arange(count),
            domain=np.repeat(np.arange(len(self.domains)), 3),
            domains=self.domains,
            num_prompt_tokens=np.full(count, 10),
            num_output_tokens=np.full(count, self.length),
            finish_reason=np.zeros(count, np.int64),
            arrival_at=np.full(count, np.nan),
            prompt_id=np.zeros(count, np.int64),
            has_prompt_id=np.zeros(count, bool),
        )

    def __len__(self) -> int:
        return len(self.requests)

    def blocks(self, index: int, drafter: int) -> Blocks:
        depth = self.drafters[drafter].max_depth
        rng = np.random.default_rng([index, drafter])
        passed = rng.random((self.length, depth)) < self.chances[index // 3][drafter]
        left = self.length - np.arange(self.length)
        accepted = np.minimum(np.cumprod(passed, axis=1).sum(axis=1), left)
        num_drafts = np.where((drafter == 1) & (np.arange(self.length) % 5 == 0), 0, depth)
        accepted = np.minimum(accepted, num_drafts)
        return Blocks(num_drafts, accepted, np.minimum(num_drafts, left), {})


@pytest.fixture
def small_trace() -> SmallTrace:
    return SmallTrace()


@pytest.fixture(scope="session")
def result() -> RegretResult:
    """Two policies in two environments, five seeds."""
    policies = [PolicyConfig.model_validate(text) for text in ("ucb1", "hedge:rate=.2")]
    environments = [bernoulli("stationary", 400), bernoulli("one_swap", 400)]
    return study_regret(environments, policies, [0, 1, 2, 3, 4], command="specsim regret")
