"""Fits the made-up trace `trace.presets.h20_dflash` to what was published, and says how close it comes.

Published for Qwen3-8B on one H20, temperature 0, mean of GSM8K, Math500, HumanEval, MBPP and MT-Bench: token
throughput, seconds a step by budget ratio, and D-cut's mean keep ratio. Tokens per request and step follow as
throughput x step / batch. Source: the D-cut authors' page (Tencent AngelSlim documentation).

    python benchmarks/fit_h20_trace.py          # how close the shipped numbers come
    python benchmarks/fit_h20_trace.py --fit    # fit them again, some minutes

The last line printed is one JSON object.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from scipy.optimize import minimize

from specsim.trace.hardness import Spread
from specsim.trace.presets import H20_FITTED, Fitted, h20_config
from specsim.trace.statistics import acceptance_by_position, calibration
from specsim.trace.synthetic import SyntheticTrace

DEPTH = 15
RATIOS = (0.25, 0.5, 0.75, 1.0)
STEP_MS = {
    4: (8.2, 8.7, 9.7, 10.9),
    8: (10.6, 12.8, 16.3, 19.6),
    16: (16.0, 22.7, 29.8, 35.8),
    32: (29.8, 43.1, 56.6, 70.1),
    64: (55.2, 82.2, 107.9, 133.9),
}
FULL_THROUGHPUT = {4: 1681.4, 8: 1904.9, 16: 2064.1, 32: 2137.4, 64: 2226.8}
DCUT_THROUGHPUT = {4: 1864.1, 8: 2560.4, 16: 2967.7, 32: 3209.1, 64: 3349.6}
DCUT_KEEP_RATIO = {4: 0.455, 8: 0.339, 16: 0.256, 32: 0.251, 64: 0.255}
FIRST_AUC = 0.82
"""AUC of a confidence head at the first draft. Source: DSpark paper (.818 on Alpaca)."""


def full_tokens() -> float:
    """Published tokens per request and step at full depth: the batches agree within 2 %, so their mean."""
    return float(np.mean([FULL_THROUGHPUT[b] * STEP_MS[b][-1] / 1000 / b for b in STEP_MS]))


def dcut_tokens(batch: int) -> float:
    """Published tokens per request and step of D-cut, its step time interpolated at its mean keep ratio."""
    step_ms = float(np.interp(DCUT_KEEP_RATIO[batch], RATIOS, STEP_MS[batch]))
    return DCUT_THROUGHPUT[batch] * step_ms / 1000 / batch


class Blocks:
    """Every block of a trace whose outputs are equally long: accepted drafts [N, P], survival scores [N, P, D]."""

    def __init__(self, trace: SyntheticTrace) -> None:
        blocks = [trace.blocks(index, 0) for index in range(len(trace))]
        self.accepted = np.stack([block.num_accepted for block in blocks])
        self.survival = np.cumprod(np.stack([block.scores["drawn_prob"] for block in blocks]), axis=2)

    def tokens_per_step(self, batch: int, keep_ratio: float, request_steps: int, rng: np.random.Generator) -> float:
        """Tokens per request and step when the best-ranked drafts of the batch fill `keep_ratio` of its positions.

        A ratio counts anchors as published: batch x 16 x ratio tokens are verified, one a request is its anchor.
        """
        requests, length = self.accepted.shape
        request = rng.integers(0, requests, batch)
        position = rng.integers(1, length - DEPTH, batch)
        mean_kept = keep_ratio * batch * (DEPTH + 1) - batch
        emitted = 0
        num_steps = request_steps // batch
        for _ in range(num_steps):
            kept = int(mean_kept + rng.random())
            ranked = np.argsort(-self.survival[request, position].ravel(), kind="stable")[:kept]
            prefix = np.bincount(ranked // DEPTH, minlength=batch)
            tokens = np.minimum(self.accepted[request, position], prefix) + 1
            emitted += int(tokens.sum())
            position += tokens
            ended = np.flatnonzero(position >= length - DEPTH)
            request[ended] = rng.integers(0, requests, len(ended))
            position[ended] = 1
        return emitted / (num_steps * batch)


def reached(fitted: Fitted, num_requests: int, request_steps: int, seed: int) -> dict[str, float]:
    """What a trace of these numbers gives for each published one."""
    workload = {"num_requests": num_requests, "num_output_tokens": (512, 512), "seed": seed}
    trace = SyntheticTrace(h20_config(fitted, **workload), cache_bytes=2**30)
    blocks, rng = Blocks(trace), np.random.default_rng(seed)
    found = {"full": blocks.tokens_per_step(32, 1.0, request_steps, rng)}
    for batch, ratio in DCUT_KEEP_RATIO.items():
        found[f"dcut_{batch}"] = blocks.tokens_per_step(batch, ratio, request_steps, rng)
    found["auc_first"] = calibration(trace, 0).by_position[0].auc
    return found


def published() -> dict[str, float]:
    """The targets, by the names of `reached`."""
    dcut = {f"dcut_{batch}": dcut_tokens(batch) for batch in STEP_MS}
    return {"full": full_tokens(), **dcut, "auc_first": FIRST_AUC}


def misfit(found: dict[str, float]) -> float:
    """Squared relative errors in per cent; the AUC, of another drafter's confidence, counts a quarter as much."""
    targets = published()
    errors = {name: (found[name] / targets[name] - 1) * 100 for name in targets}
    return sum(error**2 * (0.0625 if name == "auc_first" else 1.0) for name, error in errors.items())


def fit() -> Fitted:
    """Search the five numbers by Nelder-Mead on common random numbers."""

    def unpacked(x: np.ndarray) -> Fitted:
        first, last, request = (1 / (1 + np.exp(-x[:3]))).tolist()
        token, hidden = np.exp(x[3:]).tolist()
        return Fitted(first, last, Spread(request, token), hidden)

    def loss(x: np.ndarray) -> float:
        value = misfit(reached(unpacked(x), 120, 24_000, seed=0))
        print(f"misfit {value:8.2f}  {unpacked(x)}", file=sys.stderr)
        return value

    start = np.array([1.3, 1.6, -3.0, 0.1, 0.1])
    simplex = np.vstack([start, start + 0.4 * np.eye(5)])
    return unpacked(minimize(loss, start, method="Nelder-Mead", options={"initial_simplex": simplex, "maxfev": 150}).x)


def main() -> None:
    """Evaluate on requests that the fit did not see, and print each number beside the published one."""
    fitted = fit() if "--fit" in sys.argv[1:] else H20_FITTED
    runs = [reached(fitted, 240, 64_000, seed) for seed in (1, 2, 3)]
    found = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    print(fitted)
    for name, target in published().items():
        print(f"{name:10} published {target:6.3f}  reached {found[name]:6.3f}  {found[name] / target - 1:+.1%}")
    trace = SyntheticTrace(h20_config(fitted, num_requests=240, num_output_tokens=(512, 512), seed=1))
    survival = acceptance_by_position(trace, 0).survival
    print("survival", " ".join(f"{value:.3f}" for value in survival))
    rounded = {name: round(value, 4) for name, value in found.items()}
    print(json.dumps({"published": published(), "reached": rounded, "survival": survival.round(4).tolist()}))


if __name__ == "__main__":
    main()
