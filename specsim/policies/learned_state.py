"""Refuse a learned state whose values could not have been learned, before a policy takes it over."""

from __future__ import annotations

import math
from typing import Any

LARGEST = 2.0**63
"""Counts and sums of a run stay below it; what is larger could not be computed with."""

ROUNDING = 1e-6
"""What taking steps out of a sum may leave below zero."""

Path = tuple[str, ...]


def check_learned(state: Any, fresh: Any, path: Path = ()) -> None:
    """Compare the values of a state with those of a policy that has learned nothing.

    state   what a `state_dict` gave, read back from JSON
    fresh   the `state_dict` of the same policy before its first step: says where numbers, texts and lists stand, and
            that counts do not fall below zero (None: nothing is known there)
    path    where in the state this is, for the error

    Raises  ValueError naming the place of a value of another kind, or of a number that is not finite
    """
    if _is_number(state):
        # Compared as int where it is one: a huge int has no float.
        if not -LARGEST < state < LARGEST:  # false for NaN, too
            raise ValueError(f"{_place(path)} is {_short(state)}; it must be a finite number")
        if isinstance(fresh, int) and state < min(0, fresh):
            raise ValueError(f"{_place(path)} is {_short(state)}; it must be at least {min(0, fresh)}")
    if fresh is not None and _kind(state) != _kind(fresh):
        raise ValueError(f"{_place(path)} is {_kind(state)}; it must be {_kind(fresh)}")
    if isinstance(state, dict):
        known = fresh if isinstance(fresh, dict) else {}
        for key, value in state.items():
            check_learned(value, known.get(key), (*path, str(key)))
    elif isinstance(state, list):
        for place, value in enumerate(state):
            check_learned(value, _fresh_at(fresh, place), (*path, str(place)))


def check_counts(**values: list[float]) -> None:
    """Refuse sums that only grow, and are below zero.

    Raises  ValueError naming the first
    """
    for name, numbers in values.items():
        if any(not (math.isfinite(number) and number >= -ROUNDING) for number in numbers):
            raise ValueError(f"{name} are {_short(numbers)}; each must be at least 0")


def _fresh_at(fresh: Any, place: int) -> Any:
    """What a list held there before the first step; one that grows, and is of one kind, holds more like its first."""
    if not isinstance(fresh, list) or not fresh:
        return None
    if place < len(fresh):
        return fresh[place]
    return fresh[0] if len({_kind(value) for value in fresh}) == 1 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "a truth value"
    for kind, name in ((str, "a text"), (dict, "an object"), (list, "a list")):
        if isinstance(value, kind):
            return name
    return "a number"


def _place(path: Path) -> str:
    return ".".join(path) or "the state"


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "beyond 2^63"
    return repr(value)[:80]
