"""The twin of each drafter policy, in one literal dict."""

from __future__ import annotations

from typing import Any

from specsim.policies.arms.change_point import ChangePoint
from specsim.policies.arms.contextual import Contextual
from specsim.policies.arms.discounted_thompson_beta import DiscountedThompsonBeta
from specsim.policies.arms.discounted_thompson_gaussian import DiscountedThompsonGaussian
from specsim.policies.arms.discounted_ucb import DiscountedUCB
from specsim.policies.arms.epsilon_greedy import EpsilonGreedy
from specsim.policies.arms.exp3s import EXP3S
from specsim.policies.arms.fixed_arm import FixedArm
from specsim.policies.arms.hedge import Hedge
from specsim.policies.arms.kl_ucb import KLUCB
from specsim.policies.arms.round_robin import RoundRobin
from specsim.policies.arms.sliding_window_ucb import SlidingWindowUCB
from specsim.policies.arms.thompson_beta import ThompsonBeta
from specsim.policies.arms.thompson_gaussian import ThompsonGaussian
from specsim.policies.arms.ucb1 import UCB1
from specsim.policies.base import DrafterPolicy
from specsim.study.regret.twins.change_point import ChangePointTwin
from specsim.study.regret.twins.contextual import ContextualTwin
from specsim.study.regret.twins.discounted_thompson_beta import DiscountedThompsonBetaTwin
from specsim.study.regret.twins.discounted_thompson_gaussian import DiscountedThompsonGaussianTwin
from specsim.study.regret.twins.discounted_ucb import DiscountedUCBTwin
from specsim.study.regret.twins.epsilon_greedy import EpsilonGreedyTwin
from specsim.study.regret.twins.exp3s import EXP3STwin
from specsim.study.regret.twins.fixed_arm import FixedArmTwin
from specsim.study.regret.twins.hedge import HedgeTwin
from specsim.study.regret.twins.kl_ucb import KLUCBTwin
from specsim.study.regret.twins.one_by_one import OneByOne
from specsim.study.regret.twins.round_robin import RoundRobinTwin
from specsim.study.regret.twins.sliding_window_ucb import SlidingWindowUCBTwin
from specsim.study.regret.twins.thompson_beta import ThompsonBetaTwin
from specsim.study.regret.twins.thompson_gaussian import ThompsonGaussianTwin
from specsim.study.regret.twins.twin import Twin
from specsim.study.regret.twins.ucb1 import UCB1Twin

TWINS: dict[type[Any], type[Any]] = {
    ChangePoint: ChangePointTwin,
    DiscountedThompsonBeta: DiscountedThompsonBetaTwin,
    DiscountedThompsonGaussian: DiscountedThompsonGaussianTwin,
    DiscountedUCB: DiscountedUCBTwin,
    EXP3S: EXP3STwin,
    EpsilonGreedy: EpsilonGreedyTwin,
    FixedArm: FixedArmTwin,
    Hedge: HedgeTwin,
    KLUCB: KLUCBTwin,
    RoundRobin: RoundRobinTwin,
    SlidingWindowUCB: SlidingWindowUCBTwin,
    ThompsonBeta: ThompsonBetaTwin,
    ThompsonGaussian: ThompsonGaussianTwin,
    UCB1: UCB1Twin,
}


def build_twin(policy: DrafterPolicy, num_runs: int) -> Twin:
    """The policy in many runs: its twin, or its copies one by one where it has none (slower, the same pulls).

    policy      fresh
    num_runs    S
    """
    if isinstance(policy, Contextual):
        return ContextualTwin(policy, num_runs, build_twin)
    twin = TWINS.get(type(policy))
    built: Twin = OneByOne(policy, num_runs) if twin is None else twin(policy, num_runs)
    return built
