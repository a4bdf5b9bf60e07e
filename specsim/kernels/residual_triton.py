"""Drafts drawn from a law, in Triton: their accept tests, the residual after a rejection and the draw from it."""

from __future__ import annotations

import triton
import triton.language as tl

from specsim.kernels.inverse_triton import first_index, inverse, share_of_chunks, tempered
from specsim.kernels.uniform_triton import uniform_at


@triton.jit(do_not_specialize=["depth", "chunks"])
def test_drafts(
    logits,
    rows,
    tokens,
    num_verify,
    law,
    temperature,
    seed,
    position,
    most,
    best,
    total,
    stop,
    largest_at_stop,
    log_total_at_stop,
    num_accepted,
    next_token,
    faulty,
    vocabulary,
    law_vocabulary,
    depth,
    chunks,
    row_stride,
    token_stride,
    request_stride,
    draft_stride,
    law_request,
    law_draft,
    law_token,
    DEPTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    ACCEPT: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Accept tests of a request; at its end, what `_residual` and `_recover` need of the row that was read last."""
    request = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, DEPTH)
    index = tl.arange(0, CHUNKS)
    verified = tl.load(num_verify + request).to(tl.int32)
    read = place <= verified
    cell = (request * (depth + 1) + place) * chunks
    held = read[:, None] & (index < chunks)[None, :]
    highs = tl.load(most + cell[:, None] + index[None, :], mask=held, other=float("-inf"))
    largest = tl.max(highs, axis=1)
    lawful = (tl.max((highs != highs).to(tl.int32), axis=1) == 0) & (tl.abs(largest) < float("inf"))
    heat = tl.load(temperature + request).to(WIDE) + tl.zeros([DEPTH], WIDE)
    samples = heat > 0
    heat = tl.where(samples, heat, 1.0)

    sums = tl.load(total + cell[:, None] + index[None, :], mask=held & samples[:, None], other=0.0)
    real = held & (highs > float("-inf"))
    sums = tl.where(real, sums * tl.exp(tempered(highs, largest[:, None], heat[:, None])), 0.0)
    log_total = tl.log(tl.where(lawful & samples, tl.sum(sums, axis=1), 1.0))

    draft = tl.load(tokens + request * request_stride + place * draft_stride, mask=place < verified, other=-1)
    known = lawful & (draft >= 0) & (draft < vocabulary)
    at = logits + (tl.load(rows + request) + place) * row_stride + draft * token_stride
    value = tl.load(at, mask=known, other=float("-inf")).to(WIDE)
    target_log_prob = tempered(value, largest, heat) - log_total
    drawable = (place < verified) & (draft >= 0) & (draft < law_vocabulary)
    at = law + request * law_request + place * law_draft + draft * law_token
    draft_log_prob = tl.load(at, mask=drawable, other=float("-inf")).to(WIDE)

    seeds = tl.load(seed + request) + tl.zeros([DEPTH], tl.int64)
    uniform = uniform_at(seeds, tl.load(position + request) + place, ACCEPT).to(WIDE)
    log_uniform = tl.where(uniform > 0.0, tl.log(tl.where(uniform > 0.0, uniform, 1.0)), float("-inf"))
    possible = value > float("-inf")
    margin = tl.where(possible, tl.where(possible, target_log_prob, 0.0) - draft_log_prob, float("-inf"))
    # The first chunk that holds the largest logit, then that logit's token.
    chosen = tl.min(tl.where(held & (highs == largest[:, None]), index[None, :], CHUNKS), axis=1)
    greedy = tl.load(best + cell + chosen, mask=read & lawful, other=-1).to(tl.int64)
    passed = tl.where(samples, log_uniform < margin, draft == greedy) & lawful
    accepted = tl.minimum(first_index((place < verified) & ~passed, place, DEPTH), verified)

    here = place == accepted
    sound = tl.max((here & lawful).to(tl.int32), axis=0) > 0
    tl.store(num_accepted + request, accepted.to(tl.int64))
    tl.store(faulty + request, tl.where(sound, -1, accepted).to(tl.int64))
    follows = tl.max(tl.where(here, greedy, -1), axis=0)
    # 0: nothing is left to draw, 1: a bonus, 2: a recovered token.
    draws = sound & (tl.load(temperature + request) > 0)
    tl.store(stop + request, tl.where(draws, tl.where(accepted < verified, 2, 1), 0))
    tl.store(next_token + request, tl.where(sound, follows, -1))  # where it draws, that of `_recover` comes later
    tl.store(largest_at_stop + request, tl.max(tl.where(here, largest, float("-inf")), axis=0))
    tl.store(log_total_at_stop + request, tl.sum(tl.where(here & lawful, log_total, 0.0), axis=0))


@triton.jit
def _target_and_residual(
    row, law, token, vocabulary, law_vocabulary, token_stride, law_token, largest, log_total, heat, recovers,
    ROUNDING: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Target probabilities of these tokens, what is left of them beyond rounding, and whether the draft's hold NaN."""
    value = tl.load(row + token * token_stride, mask=token < vocabulary, other=float("-inf")).to(WIDE)
    log_target = tempered(value, largest, heat) - log_total
    target = tl.exp(log_target)
    held = token < tl.where(recovers, law_vocabulary, 0)
    draft = tl.exp(tl.load(law + token * law_token, mask=held, other=float("-inf")).to(WIDE))
    excess = target - draft
    unit = ROUNDING * (1.0 - tl.where(value > float("-inf"), log_target, 0.0)) * target
    left = tl.where(excess > unit, excess, 0.0)
    return target, left, tl.max((draft != draft).to(tl.int32), axis=0)


@triton.jit
def sum_residual(
    logits,
    rows,
    law,
    temperature,
    stop,
    num_accepted,
    largest_at_stop,
    log_total_at_stop,
    target_sum,
    left_sum,
    vocabulary,
    law_vocabulary,
    row_stride,
    token_stride,
    law_request,
    law_draft,
    law_token,
    CHUNK: tl.constexpr,
    ROUNDING: tl.constexpr,
    WIDE: tl.constexpr,
):
    """What a chunk of the row read last sums to: of the target, and of what the draft's law leaves of it."""
    chunk, request = tl.program_id(0), tl.program_id(1).to(tl.int64)
    state = tl.load(stop + request)
    if state == 0:
        return
    accepted = tl.load(num_accepted + request)
    target, left, faulty = _target_and_residual(
        logits + (tl.load(rows + request) + accepted) * row_stride,
        law + request * law_request + accepted * law_draft, (chunk * CHUNK + tl.arange(0, CHUNK)).to(tl.int64),
        vocabulary, law_vocabulary, token_stride, law_token, tl.load(largest_at_stop + request),
        tl.load(log_total_at_stop + request), tl.load(temperature + request).to(WIDE), state == 2, ROUNDING, WIDE,
    )  # fmt: skip
    cell = request * tl.num_programs(0) + chunk
    tl.store(target_sum + cell, tl.sum(target, axis=0))
    tl.store(left_sum + cell, tl.where(faulty > 0, float("nan"), tl.sum(left, axis=0)))


@triton.jit(do_not_specialize=["chunks"])
def draw_recovered(
    logits,
    rows,
    law,
    temperature,
    seed,
    position,
    stop,
    num_accepted,
    largest_at_stop,
    log_total_at_stop,
    target_sum,
    left_sum,
    next_token,
    faulty,
    vocabulary,
    law_vocabulary,
    chunks,
    row_stride,
    token_stride,
    law_request,
    law_draft,
    law_token,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROUNDING: tl.constexpr,
    TARGET: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Draw from what is left, or from the target where nothing is."""
    request = tl.program_id(0).to(tl.int64)
    state = tl.load(stop + request)
    if state == 0:
        return
    accepted = tl.load(num_accepted + request)
    index = tl.arange(0, CHUNKS)
    held = index < chunks
    left_sums = tl.load(left_sum + request * chunks + index, mask=held, other=0.0)
    if tl.max((left_sums != left_sums).to(tl.int32), axis=0) > 0:
        tl.store(next_token + request, tl.full([], -1, tl.int64))
        tl.store(faulty + request, accepted)
        return
    target_sums = tl.load(target_sum + request * chunks + index, mask=held, other=0.0)
    is_left = tl.max(left_sums, axis=0) > 0.0
    uniform = uniform_at(tl.load(seed + request), tl.load(position + request) + accepted, TARGET).to(WIDE)
    chunk, share = share_of_chunks(tl.where(is_left, left_sums, target_sums), uniform, index, CHUNKS)
    each = tl.arange(0, CHUNK)
    target, left, _ = _target_and_residual(
        logits + (tl.load(rows + request) + accepted) * row_stride,
        law + request * law_request + accepted * law_draft, (chunk * CHUNK + each).to(tl.int64),
        vocabulary, law_vocabulary, token_stride, law_token, tl.load(largest_at_stop + request),
        tl.load(log_total_at_stop + request), tl.load(temperature + request).to(WIDE), state == 2, ROUNDING, WIDE,
    )  # fmt: skip
    token = chunk * CHUNK + inverse(tl.where(is_left, left, target), share, each, CHUNK)
    tl.store(next_token + request, token.to(tl.int64))
