"""From a configuration to a controller: every name a user may write, in one literal dict each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from pydantic import JsonValue, ValidationError

from specsim.errors import InputError
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
from specsim.policies.base import DrafterPolicy, Drafters
from specsim.policies.budget.adaspec import AdaSpec
from specsim.policies.budget.autoregressive import Autoregressive
from specsim.policies.budget.batch_schedule import BatchSchedule
from specsim.policies.budget.clairvoyant import Clairvoyant
from specsim.policies.budget.confidence_stop import ConfidenceStop
from specsim.policies.budget.dcut import DCut
from specsim.policies.budget.dcut_causal import DCutCausal
from specsim.policies.budget.dcut_lagged import DCutLagged
from specsim.policies.budget.dspark import DSpark
from specsim.policies.budget.ema_tiers import EmaTiers
from specsim.policies.budget.fixed_depth import FixedDepth
from specsim.policies.budget.fixed_ratio import FixedRatio
from specsim.policies.budget.goodput_depth import GoodputDepth
from specsim.policies.budget.nightjar import Nightjar
from specsim.policies.budget.slo_dcut import SloDCut
from specsim.policies.budget.specdec_pp import SpecDecPP
from specsim.policies.budget.tetris import Tetris
from specsim.policies.calibrators.identity import IdentityCalibrator
from specsim.policies.calibrators.isotonic import Isotonic
from specsim.policies.calibrators.logistic import Logistic
from specsim.policies.calibrators.temperature import Temperature
from specsim.policies.config import ControllerConfig, PolicyConfig, parse
from specsim.policies.controller import Controller

BUDGETS: dict[str, type[Any]] = {
    "autoregressive": Autoregressive,
    "fixed_depth": FixedDepth,
    "fixed_ratio": FixedRatio,
    "batch_schedule": BatchSchedule,
    "ema_tiers": EmaTiers,
    "goodput_depth": GoodputDepth,
    "nightjar": Nightjar,
    "confidence_stop": ConfidenceStop,
    "specdec_pp": SpecDecPP,
    "adaspec": AdaSpec,
    "dcut": DCut,
    "dcut_causal": DCutCausal,
    "dcut_lagged": DCutLagged,
    "dspark": DSpark,
    "tetris": Tetris,
    "slo_dcut": SloDCut,
    "clairvoyant": Clairvoyant,
}

ARMS: dict[str, type[Any]] = {
    "fixed_arm": FixedArm,
    "round_robin": RoundRobin,
    "epsilon_greedy": EpsilonGreedy,
    "ucb1": UCB1,
    "kl_ucb": KLUCB,
    "thompson_beta": ThompsonBeta,
    "thompson_gaussian": ThompsonGaussian,
    "sliding_window_ucb": SlidingWindowUCB,
    "discounted_ucb": DiscountedUCB,
    "discounted_thompson_beta": DiscountedThompsonBeta,
    "discounted_thompson_gaussian": DiscountedThompsonGaussian,
    "exp3s": EXP3S,
    "change_point": ChangePoint,
    "hedge": Hedge,
    "contextual": Contextual,
}

CALIBRATORS: dict[str, type[Any]] = {
    "identity": IdentityCalibrator,
    "temperature": Temperature,
    "logistic": Logistic,
    "isotonic": Isotonic,
}

GIVEN_BY_THE_RUN = ("num_arms",)
"""Constructor arguments that are facts of the run, not options."""


def build_controller(
    spec: str | ControllerConfig, drafters: Drafters, allow_lossy: bool = False, live: bool = False
) -> Controller:
    """Build a controller.

    spec         its text or configuration, see `ControllerConfig`
    drafters     the drafters of the run, in arm order
    allow_lossy  accept combinations that change the output's distribution, and mark them
    live         whether real tokens are generated

    returns      a controller whose `config` builds it again
    Raises       InputError on an unknown name, option or value, or an inexact combination
    """
    config = parse(spec) if isinstance(spec, str) else spec
    budget = _build("budget policy", config.budget, BUDGETS, {})
    arms, drafter_config = _drafter_policy(config, [drafter.name for drafter in drafters], budget.drafts)
    calibrator = _build("calibrator", config.calibrator, CALIBRATORS, {})
    canonical = config.model_copy(
        update={
            "budget": _config_of(config.budget.name, budget),
            "drafter": drafter_config,
            "calibrator": _config_of(config.calibrator.name, calibrator),
        }
    )
    controller = Controller(
        drafters,
        arms,
        budget,
        calibrator,
        allow_lossy=allow_lossy,
        live=live,
        label=canonical.label or str(canonical),
        config=canonical,
    )
    if config.state is not None:
        controller.load_state_dict(config.state)
    return controller


def check_parts(spec: str | ControllerConfig, names: Sequence[str]) -> None:
    """Check what can be checked of a controller before its drafters are loaded: its parts, each by itself.

    spec    its text or configuration
    names   of the drafters of the run, in arm order

    Raises  InputError on an unknown name, option or value, or where a choice among drafters is missing
    """
    config = parse(spec) if isinstance(spec, str) else spec
    budget = _build("budget policy", config.budget, BUDGETS, {})
    _drafter_policy(config, list(names), budget.drafts)
    _build("calibrator", config.calibrator, CALIBRATORS, {})


def build_arms(config: PolicyConfig, num_arms: int) -> DrafterPolicy:
    """Build a drafter policy by itself.

    config    its name and options
    num_arms  drafters of the run
    Raises    InputError on an unknown name, option or value
    """
    policy: DrafterPolicy = _build("drafter policy", config, ARMS, {"num_arms": num_arms})
    return policy


def _drafter_policy(
    config: ControllerConfig, names: list[str], needed: bool
) -> tuple[DrafterPolicy, PolicyConfig | None]:
    given = {"num_arms": max(len(names), 1)}
    if needed and not names:
        raise InputError(f"{config}: this run has no drafter; only autoregressive does without")
    if config.drafter is None:
        if needed and len(names) > 1:
            choice = ", ".join(f"@{name}" for name in (*names, *ARMS))
            raise InputError(f"{config}: this run has {len(names)} drafters, choose one or a drafter policy: {choice}")
        return FixedArm(**given), None
    name = config.drafter.name
    if name in names and name in ARMS:
        raise InputError(f"{config}: @{name} is both a drafter and a drafter policy; rename the drafter")
    if name in names:
        if config.drafter.options:
            raise InputError(f"{config}: @{name} is a drafter, it has no options")
        return FixedArm(**given, arm=names.index(name)), config.drafter
    arms = _build("drafter policy or drafter", config.drafter, ARMS, given, also=names)
    return arms, _config_of(name, arms)


def _build(
    role: str,
    config: PolicyConfig,
    known: Mapping[str, type[Any]],
    given: dict[str, Any],
    also: list[str] | None = None,
) -> Any:
    if config.name not in known:
        raise InputError(f"unknown {role} {config.name!r}: allowed {', '.join([*known, *(also or [])])}")
    policy = known[config.name]
    allowed = _options(policy)
    for option in config.options:
        if option not in allowed:
            raise InputError(f"{config.name}: unknown option {option!r}: allowed {', '.join(allowed) or 'none'}")
    _check_truth_values(config, policy)
    try:
        return policy(**given, **config.options)
    except ValidationError as error:
        raise InputError(_first_problem(config.name, error)) from None


def _check_truth_values(config: PolicyConfig, policy: type[Any]) -> None:
    """Refuse true and false for options that are none: to Python they are the numbers 1 and 0."""
    hints = get_type_hints(policy)
    for option, value in config.options.items():
        if _holds_truth_value(value) and hints[option] is not bool:
            raise InputError(f"{config.name}: option {option} = {value!r}: true and false are no values of it")


def _holds_truth_value(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_truth_value(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_truth_value(item) for item in value)
    return isinstance(value, bool)


def _options(policy: type[Any]) -> list[str]:
    return [field.name for field in fields(policy) if field.init and field.name not in GIVEN_BY_THE_RUN]


def _config_of(name: str, policy: Any) -> PolicyConfig:
    """The configuration that builds `policy` again: the options that differ from their defaults."""
    options: dict[str, JsonValue] = {}
    for field in fields(policy):
        value = getattr(policy, field.name)
        if field.init and field.name not in GIVEN_BY_THE_RUN and (field.default is MISSING or value != field.default):
            options[field.name] = _as_lists(value)
    return PolicyConfig(name=name, options=options)


def _as_lists(value: Any) -> JsonValue:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def _first_problem(name: str, error: ValidationError) -> str:
    problem = error.errors()[0]
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{name}: option {problem['loc'][0]} is required"
    return (
        f"{name}: option {problem['loc'][0]} = {problem['input']!r}: {message}"
        if problem["loc"]
        else f"{name}: {message}"
    )
