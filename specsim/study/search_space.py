"""Which options of a policy are searched, over which values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import JsonValue, ValidationError

from specsim.errors import InputError
from specsim.policies.build import ARMS, BUDGETS, CALIBRATORS, GIVEN_BY_THE_RUN
from specsim.policies.config import ControllerConfig, PolicyConfig
from specsim.policies.controller import Controller
from specsim.study.default_spaces import DEFAULT_SPACES

Part: TypeAlias = Literal["budget", "calibrator", "drafter"]
Point: TypeAlias = dict[str, Any]
"""A value for each dimension, by its name."""

KNOWN: dict[Part, dict[str, type[Any]]] = {"budget": BUDGETS, "calibrator": CALIBRATORS, "drafter": ARMS}
RANGE = re.compile(r"^(?P<low>[^,]+?)\.\.(?P<high>[^,]+?)(?P<log>:log)?$")
DEEPEST = "max"
SIGNIFICANT = 4


@dataclass(frozen=True)
class Dimension:
    """One option and the values it may take.

    part            which policy of the controller it belongs to
    option          its name
    text            the values as written, such as `1..15`
    distribution    the same for the sampler
    """

    part: Part
    option: str
    text: str
    distribution: BaseDistribution

    @property
    def name(self) -> str:
        """What tables and the sampler call it."""
        return self.option if self.part == "budget" else f"{self.part}.{self.option}"

    def values(self) -> list[Any] | None:
        """All values there are; None for a continuous range."""
        if isinstance(self.distribution, CategoricalDistribution):
            return list(self.distribution.choices)
        if isinstance(self.distribution, IntDistribution):
            return list(range(self.distribution.low, self.distribution.high + 1))
        return None

    def written(self, value: Any) -> JsonValue:
        """A sampled value as the option gets it: a number of few digits, so that the policy's text stays short."""
        if not isinstance(self.distribution, FloatDistribution):
            return value  # type: ignore[no-any-return]
        short = float(f"{value:.{SIGNIFICANT}g}")
        return min(max(short, self.distribution.low), self.distribution.high)


def search_space(texts: Sequence[str], config: ControllerConfig, controller: Controller) -> list[Dimension]:
    """The dimensions that texts ask for.

    texts       `OPTION`, `OPTION=LOW..HIGH[:log]`, `OPTION=VALUE,VALUE`; none: all that have a space of their own
                and that the configuration leaves open
    config      what to tune
    controller  built from it
    Raises      InputError naming the text and what is allowed
    """
    asked = list(texts) or [
        f"{part}.{option}"
        for part, policy in _parts(config).items()
        for option in DEFAULT_SPACES.get(policy.name, {})
        if option not in policy.options
    ]
    if not asked:
        raise InputError(f"{config}: nothing to search; give --search OPTION=LOW..HIGH for one of its options")
    dimensions = [_dimension(text, controller) for text in asked]
    names = [dimension.name for dimension in dimensions]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--search: option {name} is given twice")
    return dimensions


def with_options(
    config: ControllerConfig, dimensions: Sequence[Dimension], point: Mapping[str, Any]
) -> ControllerConfig:
    """The configuration with the options that a point gives."""
    parts = _parts(config)
    for dimension in dimensions:
        policy = parts[dimension.part]
        options = {**policy.options, dimension.option: dimension.written(point[dimension.name])}
        parts[dimension.part] = PolicyConfig(name=policy.name, options=options)
    return config.model_copy(update={str(part): policy for part, policy in parts.items()})


def default_point(dimensions: Sequence[Dimension], controller: Controller) -> Point | None:
    """Where a controller lies in the space; None when it lies outside."""
    point: Point = {}
    for dimension in dimensions:
        value = _present(dimension, controller)
        if isinstance(dimension.distribution, CategoricalDistribution):
            same = [c for c in dimension.distribution.choices if _built(dimension, controller, c) == value]
            if not same:
                return None
            point[dimension.name] = same[0]
        else:
            bounds = dimension.distribution
            assert isinstance(bounds, IntDistribution | FloatDistribution)
            if not isinstance(value, int | float) or not bounds.low <= value <= bounds.high:
                return None
            point[dimension.name] = value
    return point


def size(dimensions: Sequence[Dimension]) -> int | None:
    """Points of the space; None when a dimension is continuous."""
    total = 1
    for dimension in dimensions:
        values = dimension.values()
        if values is None:
            return None
        total *= len(values)
    return total


def _config(controller: Controller) -> ControllerConfig:
    assert controller.config is not None
    return controller.config


def _parts(config: ControllerConfig) -> dict[Part, PolicyConfig]:
    """The policies of a controller that have options; a drafter's own name has none."""
    parts: dict[Part, PolicyConfig] = {"budget": config.budget, "calibrator": config.calibrator}
    if config.drafter is not None and config.drafter.name in ARMS:
        parts["drafter"] = config.drafter
    return parts


def _dimension(text: str, controller: Controller) -> Dimension:
    name, equals, values = (part.strip() for part in text.partition("="))
    part, option = _find(name, controller)
    policy = _parts(_config(controller))[part].name
    if not equals:
        spaces = DEFAULT_SPACES.get(policy, {})
        if option not in spaces:
            has = f"those with one: {', '.join(spaces)}" if spaces else f"{policy} has none"
            raise InputError(f"--search {text}: no values of its own ({has}); write {name}=LOW..HIGH or {name}=A,B")
        values = spaces[option]
    dimension = Dimension(part, option, *_distribution(text, policy, part, option, values, controller))
    _check(text, dimension, controller)
    return dimension


def _find(name: str, controller: Controller) -> tuple[Part, str]:
    """The policy that has an option of this name."""
    parts = _parts(_config(controller))
    head, dot, option = name.rpartition(".")
    found = [
        part for part, policy in parts.items() if option in _options(part, policy.name) and (not dot or head == part)
    ]
    if not found:
        known = [f"{part}.{known}" for part, policy in parts.items() for known in _options(part, policy.name)]
        raise InputError(f"--search {name!r}: not an option of this policy; it has: {', '.join(known) or 'none'}")
    if len(found) > 1:
        raise InputError(f"--search {name}: several have it; write {' or '.join(f'{part}.{option}' for part in found)}")
    return found[0], option


def _options(part: Part, policy: str) -> dict[str, Any]:
    """The options of a policy and the types they take."""
    kind = KNOWN[part][policy]
    hints = get_type_hints(kind)
    return {
        name: hints[name]
        for name, field in kind.__dataclass_fields__.items()
        if field.init and name not in GIVEN_BY_THE_RUN
    }


def _distribution(
    text: str, policy: str, part: Part, option: str, values: str, controller: Controller
) -> tuple[str, BaseDistribution]:
    """The values as shown, and for the sampler."""
    hint = _options(part, policy)[option]
    kinds = (hint, *get_args(hint))
    match = RANGE.match(values)
    if match is None:
        choices = [value.strip() for value in values.split(",")]
        if "" in choices or len(set(choices)) != len(choices):
            raise InputError(f"--search {text}: give different values with commas between, or LOW..HIGH")
        return ",".join(choices), CategoricalDistribution(choices)
    if float not in kinds and int not in kinds:
        raise InputError(f"--search {text}: {option} of {policy} is no number; give its values with commas between")
    deepest = str(max(drafter.max_depth for drafter in controller.pullable))
    high_text = deepest if match["high"] == DEEPEST else match["high"]
    kind = float if float in kinds else int
    try:
        low, high = kind(match["low"]), kind(high_text)
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise InputError(f"--search {text}: the ends of a range of {option} must be {what}") from None
    log = match["log"] is not None
    if not low <= high < float("inf") or (log and low <= 0):
        raise InputError(f"--search {text}: LOW must not exceed HIGH{', and exceed 0 with :log' if log else ''}")
    shown = f"{match['low']}..{high_text}{match['log'] or ''}"
    if kind is int:
        return shown, IntDistribution(int(low), int(high), log=log)
    return shown, FloatDistribution(low, high, log=log)


def _check(text: str, dimension: Dimension, controller: Controller) -> None:
    """Refuse values that the option never takes, and depths that no drafter has.

    Combinations that do not fit are found by trying them.
    """
    bounds = dimension.distribution
    tried = bounds.choices if isinstance(bounds, CategoricalDistribution) else (bounds.low, bounds.high)  # type: ignore[attr-defined]
    for value in tried:
        try:
            policy = _with_value(dimension, controller, value)
        except ValidationError as error:
            own = [fault for fault in error.errors() if fault["loc"][:1] == (dimension.option,)]
            if own:
                message = own[0]["msg"].removeprefix("Value error, ")
                raise InputError(f"--search {text}: {value!r}: {message[:1].lower()}{message[1:]}") from None
        else:
            if dimension.part == "budget":
                _check_depth(text, policy.max_depth, controller)


def _check_depth(text: str, depth: int | None, controller: Controller) -> None:
    """Refuse a depth (None: as deep as the drafter goes) beyond every drafter that some point may pull."""
    searchable = "drafter" in _parts(_config(controller))  # another arm may be searched
    drafters = controller.drafters if searchable else controller.pullable
    if depth is not None and depth > max(drafter.max_depth for drafter in drafters):
        limits = ", ".join(f"{drafter.name} at most {drafter.max_depth}" for drafter in drafters)
        raise InputError(f"--search {text}: depth {depth} is deeper than any drafter goes ({limits})")


def _built(dimension: Dimension, controller: Controller, value: Any) -> Any:
    """What the policy makes of an option's value."""
    return getattr(_with_value(dimension, controller, value), dimension.option)


def _with_value(dimension: Dimension, controller: Controller, value: Any) -> Any:
    """The policy with an option's value."""
    policy = _parts(_config(controller))[dimension.part]
    kind = KNOWN[dimension.part][policy.name]
    given = {"num_arms": len(controller.drafters)} if dimension.part == "drafter" else {}
    return kind(**given, **{**policy.options, dimension.option: value})


def _present(dimension: Dimension, controller: Controller) -> Any:
    """The value an option has now; a depth left out is the drafter's most."""
    owner = {
        "budget": controller.budget_policy,
        "drafter": controller.drafter_policy,
        "calibrator": controller.calibrator,
    }[dimension.part]
    value = getattr(owner, dimension.option)
    if value is None and dimension.option == "depth":
        return controller.max_depth
    return value
