"""How numbers are written for people: few digits, a unit, and a dash where there is none."""

from __future__ import annotations

import math

NOTHING = "–"
"""Shown where a number does not exist."""


def digits(value: float, more: int = 0) -> str:
    """Three significant digits from 1 on, two decimals below, thousands with a comma; nothing at all is `0`.

    more    further decimals
    """
    if not math.isfinite(value):
        return NOTHING
    size = abs(value)
    if size == 0:
        return "0"
    decimals = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:,.{decimals + more}f}"


def times(value: float) -> str:
    """A ratio: `1.65×`."""
    return f"{digits(value)}×" if math.isfinite(value) else NOTHING


def percent(share: float) -> str:
    """A share of one: `12.5 %`."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else NOTHING


def counted(value: float) -> str:
    """A whole number with all its digits, thousands with a comma; any other as `digits` has it."""
    return f"{value:,.0f}" if float(value).is_integer() else digits(value)


def signed_percent(share: float) -> str:
    """A relative difference, its sign always written: `+3.2 %`."""
    return f"{100 * share:+.1f} %" if math.isfinite(share) else NOTHING


def milliseconds(seconds: float) -> str:
    """A duration without its unit, which the heading gives."""
    return digits(1e3 * seconds)


def span(interval: tuple[float, float]) -> str:
    """An interval's two ends: `1.62–1.68`; one digit more where that tells them apart: `1.018–1.022`."""
    low, high = interval
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    more = int(low < high and digits(low) == digits(high))
    return f"{digits(low, more)}–{digits(high, more)}"


def half_width(interval: tuple[float, float]) -> str:
    """Half of an interval's width, as short as can be: `±.03`."""
    half = (interval[1] - interval[0]) / 2
    return f"±{digits(half).removeprefix('0') or '0'}" if math.isfinite(half) else ""
