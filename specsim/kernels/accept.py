"""Which of the verified drafts the target accepts."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from specsim.core import Array
from specsim.kernels.candidates import Candidates, refuse_nan


def accept(candidates: Candidates, uniform: Array) -> Array:
    """Accept drafts up to the first that fails its test: uniform * draft_prob < target_prob.

    Strictly less: at uniform 0 a token that the target never emits fails, and where target and draft agree every
    uniform below 1 passes. A certain token has draft_prob 1.

    uniform  [B, D] float, in [0, 1), of each position
    returns  [B] int64, accepted drafts, in [0, num_verify]
    Raises   InputError where a law that is read holds NaN

    Source: Leviathan et al. (arXiv 2211.17192), algorithm 1.
    """
    xp = array_namespace(candidates.tokens, candidates.target_law)
    depth = candidates.tokens.shape[1]
    if depth == 0:
        return xp.zeros_like(candidates.num_verify)
    positions = xp.arange(depth, device=candidates.tokens.device)
    verified = positions < candidates.num_verify[:, None]
    tokens = xp.where(verified, candidates.tokens, 0)
    target_prob = _prob_of(tokens, candidates.target_law[:, :depth, :], verified, "target", xp)
    threshold = uniform
    if candidates.draft_law is not None:
        threshold = uniform * _prob_of(tokens, candidates.draft_law, verified, "draft", xp)
    return leading(threshold < target_prob, xp)  # where nothing is verified both are 0


def passes(uniform: Array, target_log_prob: Array, draft_log_prob: Array, xp: Any) -> Array:
    """The same test in logarithms, where no probability underflows: log(uniform) + draft_log_prob < target_log_prob.

    Evaluated as log(uniform) < target_log_prob - draft_log_prob: the sum would swallow the logarithm of a uniform near
    1, and reject where the laws agree. A draft log probability of NaN fails.

    uniform          float, in [0, 1)
    target_log_prob  float of that shape, -inf where the target never emits the token
    draft_log_prob   float of that shape
    returns          bool of that shape
    """
    sure = xp.where(uniform > 0.0, uniform, 1.0)
    log_uniform = xp.where(uniform > 0.0, xp.log(sure), -xp.inf)
    possible = target_log_prob > -xp.inf
    margin = xp.where(possible, target_log_prob, 0.0) - draft_log_prob
    return log_uniform < xp.where(possible, margin, -xp.inf)


def leading(passed: Array, xp: Any) -> Array:
    """How many tests pass before the first that fails.

    passed   [B, D] bool
    returns  [B] int64
    """
    failed = xp.astype(~passed, xp.int64)
    return xp.sum(xp.astype(xp.cumulative_sum(failed, axis=1) == 0, xp.int64), axis=1)


def _prob_of(tokens: Array, law: Array, verified: Array, whose: str, xp: Any) -> Array:
    """[B, D] float, probability of each token, 0 where none is verified."""
    prob = xp.take_along_axis(law, tokens[:, :, None], axis=2)[:, :, 0]
    prob = xp.where(verified, prob, 0.0)
    refuse_nan(prob, whose, xp)
    return prob
