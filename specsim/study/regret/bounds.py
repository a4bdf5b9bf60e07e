"""What theory says of regret on stationary Bernoulli arms: lines to read a curve against."""

from __future__ import annotations

import math

import numpy as np


def kl(p: float, q: float) -> float:
    """Relative entropy of Bernoulli laws, p ln(p / q) + (1 - p) ln((1 - p) / (1 - q)); infinite where q excludes p."""
    total = 0.0
    for chance, other in ((p, q), (1.0 - p, 1.0 - q)):
        if chance > 0.0:
            if other == 0.0:
                return math.inf
            total += chance * math.log(chance / other)
    return total


def lai_robbins(means: np.ndarray, num_steps: np.ndarray) -> np.ndarray:
    """sum of gap / kl(mean, best mean) over the worse arms, times ln T: where no consistent policy ends below.

    means       [A] chances
    num_steps   [C] T
    returns     [C]; an asymptote, so a curve may lie below it at finite T
    Source:     Lai and Robbins 1985, theorem 1.
    """
    best = float(means.max())
    factor = sum((best - mean) / kl(float(mean), best) for mean in means.tolist() if mean < best)
    line: np.ndarray = factor * np.log(num_steps)
    return line


def worst_case(num_arms: int, num_steps: np.ndarray) -> np.ndarray:
    """sqrt(K T ln T), the growth of UCB policies' regret over the hardest means, up to a constant.

    num_steps   [C] T
    Source:     Bubeck and Cesa-Bianchi 2012, section 2.4; the line that FlashSpec draws.
    """
    line: np.ndarray = np.sqrt(num_arms * num_steps * np.log(num_steps))
    return line


def ucb1_bound(means: np.ndarray, num_steps: np.ndarray) -> np.ndarray:
    """8 ln T sum of 1 / gap + (1 + pi^2 / 3) sum of gaps, which UCB1's regret stays below at every T.

    means       [A] chances
    num_steps   [C] T
    Source:     Auer, Cesa-Bianchi and Fischer 2002, theorem 1.
    """
    gaps = means.max() - means
    worse = gaps[gaps > 0.0]
    line: np.ndarray = 8.0 * np.log(num_steps) * (1.0 / worse).sum() + (1.0 + math.pi**2 / 3.0) * worse.sum()
    return line


def lines(acceptance: np.ndarray, num_steps: np.ndarray, bernoulli: bool) -> dict[str, list[float]]:
    """Every line that holds for arms of these means, by name.

    acceptance  [T, A] means at every step; lines that need constant ones are left out where they are not
    num_steps   [C] where to draw them
    bernoulli   whether every step is one accept test
    """
    means = acceptance[0]
    drawn = {"sqrt(K T ln T)": worst_case(len(means), num_steps)}
    if bernoulli and (acceptance == means).all() and means.min() < means.max():
        drawn["UCB1 bound"] = ucb1_bound(means, num_steps)
        drawn["Lai-Robbins"] = lai_robbins(means, num_steps)
    return {name: [float(value) for value in line] for name, line in drawn.items()}
