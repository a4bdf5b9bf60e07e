"""How numbers are written for people: few digits, a unit, and a dash where there is none."""

from __future__ import annotations

import math

NOTHING = "–"
"""Shown where a number does not exist."""


def digits(value: float) -> str:
    """Three significant digits from 1 on, two decimals below, thousands with a comma."""
    if not math.isfinite(value):
        return NOTHING
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def times(value: float) -> str:
    """A ratio: `1.65×`."""
    return f"{digits(value)}×" if math.isfinite(value) else NOTHING


def percent(share: float) -> str:
    """A share of one: `12.5 %`."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else NOTHING


def signed_percent(share: float) -> str:
    """A relative difference, its sign always written: `+3.2 %`."""
    return f"{100 * share:+.1f} %" if math.isfinite(share) else NOTHING


def milliseconds(seconds: float) -> str:
    """A duration without its unit, which the heading gives."""
    return digits(1e3 * seconds)


def span(interval: tuple[float, float]) -> str:
    """An interval's two ends: `1.62–1.68`."""
    low, high = interval
    return f"{digits(low)}–{digits(high)}" if math.isfinite(low) and math.isfinite(high) else ""


def half_width(interval: tuple[float, float]) -> str:
    """Half of an interval's width, as short as can be: `±.03`."""
    half = (interval[1] - interval[0]) / 2
    return f"±{digits(half).removeprefix('0')}" if math.isfinite(half) else ""
