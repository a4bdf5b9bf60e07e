"""What a regret study says in words: who loses least where, and what not noticing a change costs."""

from __future__ import annotations

import math

from specsim.study.regret.result import PolicyRegret, Surroundings

ROUNDING = 1.0 + 1e-9
"""Losing as much as the best fixed arm is not losing more."""

MANY_TIMES = 4.0
"""A policy that loses this many times what the best loses is named."""


def findings(environments: list[Surroundings], regrets: list[PolicyRegret]) -> list[str]:
    """Sentences, environment by environment; intervals are 90 % bootstrap intervals of means."""
    sentences = []
    for environment in environments:
        own = [found for found in regrets if found.environment == environment.name]
        sentences += [f"{environment.name}: {sentence}" for sentence in _of(own, environment)]
    return sentences


def _of(own: list[PolicyRegret], environment: Surroundings) -> list[str]:
    """Policies that are told of every arm are not ranked with those that are told of their own."""
    ranked = sorted((found for found in own if not found.full_information), key=lambda found: found.regret)
    told = [f"{found.policy} ({_round(found.regret)})" for found in own if found.full_information]
    return _ranking(ranked, told, environment) if len(ranked) > 1 else []


def _ranking(ranked: list[PolicyRegret], told: list[str], environment: Surroundings) -> list[str]:
    best, rest = ranked[0], ranked[1:]
    tied = [found for found in rest if found.regret_interval[0] <= best.regret_interval[1]]
    sentence = f"{best.policy} loses least ({_amount(best)})"
    if tied:
        sentence += f", not distinguishable from {_listed([found.policy for found in tied])}"
    else:
        sentence += f", then {rest[0].policy} ({_amount(rest[0])})"
    far = [f"{found.policy} ({_round(found.regret)})" for found in rest if found.regret > MANY_TIMES * best.regret]
    if far:
        verb = "loses" if len(far) == 1 else "lose"
        sentence += f"; {_listed(far)} {verb} more than {MANY_TIMES:g} times as much"
    if told:
        sentence += f". Told of every arm: {_listed(told)}"
    sentences = [f"{sentence}."]
    behind = [found.policy for found in ranked if found.regret > environment.fixed_regret * ROUNDING > 0]
    if behind:
        sentences.append(f"never switching from {environment.best_fixed} would do better than {_listed(behind)}.")
    return sentences + _in_seconds(ranked, best)


def _in_seconds(own: list[PolicyRegret], best: PolicyRegret) -> list[str]:
    """Named only where switching changes who wins."""
    fastest = min(own, key=lambda found: found.seconds_regret)
    if fastest is best or fastest.seconds_interval[1] >= best.seconds_interval[0]:
        return []
    return [
        f"counted in seconds, {fastest.policy} loses least: {_seconds(fastest)} with "
        f"{fastest.switches:,.0f} switches, and {best.policy} {_seconds(best)} with {best.switches:,.0f}."
    ]


def _amount(found: PolicyRegret) -> str:
    low, high = found.regret_interval
    return f"{_round(found.regret)}, {_round(low)} to {_round(high)}" if math.isfinite(low) else _round(found.regret)


def _seconds(found: PolicyRegret) -> str:
    value = found.seconds_regret
    return f"{value:.2f} s" if 0 < abs(value) < 9.995 else f"{_round(value) if value else 0} s"


def _round(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
