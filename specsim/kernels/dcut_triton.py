"""D-cut's plan as one Triton program: scores and plans equal the definition's bit for bit."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specsim.core import Draft, StepCost
from specsim.errors import InputError
from specsim.kernels.launches import LAUNCHES
from specsim.policies.budget.dcut import DCut
from specsim.policies.survival import UNDRAFTED

MOST_SCORES = 16_384
"""Requests times positions, each padded to a power of two: what one program sorts."""


@triton.jit(do_not_specialize=["batch", "depth"])
def _plan(
    confidence,
    num_drafts,
    seconds,
    fractions,
    scores,
    num_verify,
    batch,
    depth,
    confidence_request,
    confidence_position,
    BATCH: tl.constexpr,
    DEPTH: tl.constexpr,
    FRACTIONS: tl.constexpr,
    EVERY: tl.constexpr,
    INCLUDE_ZERO: tl.constexpr,
    CODE_COUNT: tl.constexpr,
    BONUS: tl.constexpr,
    UNDRAFTED: tl.constexpr,
):
    SIZE: tl.constexpr = BATCH * DEPTH
    request, position = tl.arange(0, BATCH), tl.arange(0, DEPTH)
    drafted = tl.load(num_drafts + request, mask=request < batch, other=0)

    # A left fold, each score by itself: a scan would associate otherwise.
    score = tl.full([BATCH, DEPTH], 1.0, tl.float64)
    for step in range(DEPTH):
        at = confidence + request.to(tl.int64) * confidence_request + step * confidence_position
        factor = tl.load(at, mask=request < tl.where(step < depth, batch, 0), other=1.0)
        score = tl.where(position[None, :] >= step, score * factor[:, None], score)
    score = tl.where(position[None, :] < drafted[:, None], score, UNDRAFTED)  # padding, too, is undrafted
    real = (request[:, None] < batch) & (position[None, :] < depth)
    tl.store(scores + position[None, :] * batch + request[:, None], score, mask=real)
    negated = tl.sort(tl.reshape(-score, [SIZE]))

    # Adding and taking away 1.5 * 2^52 rounds to an integer, half to even; the product before is exact.
    index = tl.arange(0, SIZE)
    fixed = -((negated * 1073741824.0 + 6755399441055744.0) - 6755399441055744.0).to(tl.int64)
    bonus = tl.zeros([], tl.int64)
    if BONUS:
        bonus += batch.to(tl.int64) * 1073741824
    total = tl.sum(drafted, axis=0)

    best = tl.zeros([], tl.int64)
    if EVERY:
        kept = tl.minimum(index + 1, total)
        tokens = tl.cumsum(fixed, 0) + bonus
        utility = tokens.to(tl.float64) / tl.load(seconds + kept)
        highest, first = tl.max(utility, axis=0, return_indices=True, return_indices_tie_break_left=True)
        nothing = bonus.to(tl.float64) / tl.load(seconds)
        best = tl.where(highest > nothing, first + 1, 0).to(tl.int64)
    else:
        highest = tl.full([], float("-inf"), tl.float64)
        if INCLUDE_ZERO:
            highest = bonus.to(tl.float64) / tl.load(seconds)
        for ratio in range(FRACTIONS):
            numerator, denominator = tl.load(fractions + ratio), tl.load(fractions + FRACTIONS + ratio)
            kept = total
            if CODE_COUNT:
                kept += batch
            kept = (numerator * kept + (denominator - 1)) // denominator
            if CODE_COUNT:
                kept = tl.maximum(kept - batch, 0)
            tokens = tl.sum(tl.where(index < kept, fixed, 0), axis=0) + bonus
            utility = tokens.to(tl.float64) / tl.load(seconds + kept)
            better = utility > highest
            best = tl.where(better, kept, best)
            highest = tl.where(better, utility, highest)

    # The score at the cut separates; of those level with it the first by (request, position) fill what room is left.
    cut = -tl.sum(tl.where(index == tl.maximum(best - 1, 0), negated, 0.0), axis=0)
    above = tl.sum((score > cut).to(tl.int64), axis=1)
    level = tl.sum((score == cut).to(tl.int64), axis=1)
    room = tl.maximum(best - tl.sum(above, axis=0) - (tl.cumsum(level, 0) - level), 0)
    tl.store(num_verify + request, above + tl.minimum(room, level), mask=request < batch)


def plan(policy: DCut, draft: Draft, confidence: torch.Tensor, cost: StepCost) -> torch.Tensor:
    """[B] int64, verified prefix length of each request: what `policy.plan(draft, confidence, cost)` gives.

    confidence  [B, D] float64, in [0, 1], as a controller hands it to a policy: NaN has become 0
    Raises      InputError for another policy, other types or shapes, and more than 16,384 scores

    No wait: a CUDA graph can hold it.
    """
    return scores_and_plan(policy, draft, confidence, cost)[1]


def scores_and_plan(
    policy: DCut, draft: Draft, confidence: torch.Tensor, cost: StepCost
) -> tuple[torch.Tensor, torch.Tensor]:
    """[D, B] float64, survival scores as of `policies.survival.survival_scores`; [B] int64, the plan made of them."""
    _check(policy, draft, confidence, cost)
    batch, depth = confidence.shape
    device = confidence.device
    scores = torch.empty((depth, batch), dtype=torch.float64, device=device)
    num_verify = torch.empty(batch, dtype=torch.int64, device=device)
    if not batch:
        return scores, num_verify
    fractions = _fractions(policy, device)
    size = triton.next_power_of_2(batch) * triton.next_power_of_2(depth)
    LAUNCHES["plan"] += 1
    _plan[(1,)](
        confidence, draft.num_drafts.contiguous(), cost.seconds.contiguous(), fractions, scores, num_verify,
        batch, depth, *confidence.stride(),
        BATCH=triton.next_power_of_2(batch), DEPTH=triton.next_power_of_2(depth), FRACTIONS=fractions.shape[1],
        EVERY=policy.ratios == "all",
        INCLUDE_ZERO=policy.include_zero, CODE_COUNT=policy.count == "code", BONUS=policy.numerator == "bonus",
        UNDRAFTED=UNDRAFTED, num_warps=max(1, min(16, size // 128)),
    )  # fmt: skip
    return scores, num_verify


def fits(batch: int, depth: int) -> bool:
    """Whether that many requests of that many drafts can be planned here."""
    return depth > 0 and triton.next_power_of_2(max(batch, 1)) * triton.next_power_of_2(depth) <= MOST_SCORES


_ON_DEVICE: dict[tuple[bytes, str], torch.Tensor] = {}
"""Ratios as the kernel reads them: a copy from the host is no part of a captured step."""


def _fractions(policy: DCut, device: torch.device) -> torch.Tensor:
    """[2, R] int64 on the device, copied there once."""
    fractions = policy.fractions
    key = (fractions.tobytes(), str(device))
    if key not in _ON_DEVICE:
        _ON_DEVICE[key] = torch.asarray(fractions, device=device)
    return _ON_DEVICE[key]


def _check(policy: DCut, draft: Draft, confidence: torch.Tensor, cost: StepCost) -> None:
    """Raise InputError for what the kernel does not plan."""
    if type(policy) is not DCut:
        raise InputError(f"the policy is {type(policy).__name__}: allowed is DCut itself")
    if confidence.ndim != 2 or confidence.dtype != torch.float64 or not confidence.shape[1]:
        raise InputError(f"confidence is {confidence.dtype} {tuple(confidence.shape)}: allowed is torch.float64 [B, D]")
    batch, depth = confidence.shape
    for name, values, dtype, length in (
        ("num_drafts", draft.num_drafts, torch.int64, batch),
        ("seconds", cost.seconds, torch.float64, batch * depth + 1),
    ):
        if values.dtype != dtype or tuple(values.shape) != (length,):
            raise InputError(f"{name} is {values.dtype} {tuple(values.shape)}: allowed is {dtype} [{length}]")
    if not fits(batch, depth):
        raise InputError(
            f"{batch} requests of {depth} drafts: allowed are {MOST_SCORES} scores, requests and drafts each padded to"
            " a power of two"
        )
