"""Verification of a step's drafts on packed logits, in Triton: the same verdicts as `kernels.verify`.

A row of logits is read in chunks, a program each, so that one request over a vocabulary of 128,000 keeps 32 programs
busy and none holds more than a chunk. Each row is read once; a draw reads one chunk of it again, since the sums of the
chunks say which. How a row is cut depends on the vocabulary alone, and so does every sum: a request's tokens do not
depend on its batch.

    certain drafts      _scan (chunks x places x requests), _draw (places x requests), _match (requests)
    drafts with a law   _scan, then test_drafts (requests), sum_residual (chunks x requests), draw_recovered (requests)

Sums are float32 (float64 for float64 logits), where the definition sums float32 weights in float64: a draw whose
uniform lies within that rounding of the edge between two tokens may take the neighbour.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specsim.errors import InputError
from specsim.kernels.inverse_triton import first_index, inverse, share_of_chunks, tempered
from specsim.kernels.launches import LAUNCHES
from specsim.kernels.recover import ROUNDING
from specsim.kernels.residual_triton import draw_recovered, sum_residual, test_drafts
from specsim.kernels.uniform import ACCEPT, TARGET
from specsim.kernels.uniform_triton import uniform_at
from specsim.kernels.verify import Proposal, Sampling, Verdict, check

CHUNK = 4096
"""Tokens a program reads at once: 8 KB of bfloat16."""

MOST_CELLS = 1 << 15
"""Places times chunks of one request, each padded to a power of two, that one program combines."""

FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


@triton.jit(do_not_specialize=["depth"])
def _scan(
    logits,
    rows,
    num_verify,
    temperature,
    most,
    best,
    total,
    vocabulary,
    depth,
    row_stride,
    token_stride,
    CHUNK: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Largest logit of a chunk (NaN if it holds one), its first token, the sum of exponentials relative to it."""
    chunk, place, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if place > tl.load(num_verify + request):
        return
    row = tl.load(rows + request) + place
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = token < vocabulary
    at = logits + row * row_stride + token.to(tl.int64) * token_stride
    value = tl.load(at, mask=inside, other=float("-inf")).to(WIDE)
    largest, first = tl.max(value, axis=0, return_indices=True, return_indices_tie_break_left=True)
    faulty = tl.max((value != value).to(tl.int32), axis=0)
    cell = (request * (depth + 1) + place).to(tl.int64) * tl.num_programs(0) + chunk
    tl.store(most + cell, tl.where(faulty > 0, float("nan"), largest))
    tl.store(best + cell, chunk * CHUNK + first)
    heat = tl.load(temperature + request).to(WIDE)
    if heat > 0:
        tl.store(total + cell, tl.sum(tl.exp(tempered(value, largest, heat)), axis=0))


@triton.jit(do_not_specialize=["depth", "chunks"])
def _draw(
    logits,
    rows,
    num_verify,
    temperature,
    seed,
    position,
    most,
    best,
    total,
    target,
    vocabulary,
    depth,
    chunks,
    row_stride,
    token_stride,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    TARGET: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The target's own token at a place, -1 where it has no law."""
    place, request = tl.program_id(0), tl.program_id(1)
    if place > tl.load(num_verify + request):
        return
    cell = (request * (depth + 1) + place).to(tl.int64)
    index = tl.arange(0, CHUNKS)
    held = index < chunks
    highs = tl.load(most + cell * chunks + index, mask=held, other=float("-inf"))
    largest = tl.max(highs, axis=0)
    lawful = (tl.max((highs != highs).to(tl.int32), axis=0) == 0) & (tl.abs(largest) < float("inf"))
    heat = tl.load(temperature + request).to(WIDE)
    chosen = first_index(held & (highs == largest), index, CHUNKS)
    if lawful & (heat > 0):
        sums = tl.load(total + cell * chunks + index, mask=held, other=0.0)
        sums = tl.where(highs > float("-inf"), sums * tl.exp(tempered(highs, largest, heat)), 0.0)
        uniform = uniform_at(tl.load(seed + request), tl.load(position + request) + place, TARGET).to(WIDE)
        chunk, share = share_of_chunks(sums, uniform, index, CHUNKS)
        each = tl.arange(0, CHUNK)
        token = chunk * CHUNK + each
        at = logits + (tl.load(rows + request) + place) * row_stride + token.to(tl.int64) * token_stride
        value = tl.load(at, mask=token < vocabulary, other=float("-inf")).to(WIDE)
        weights = tl.exp(tempered(value, largest, heat))
        tl.store(target + cell, (chunk * CHUNK + inverse(weights, share, each, CHUNK)).to(tl.int64))
    else:
        greedy = tl.load(best + cell * chunks + chosen, mask=lawful, other=-1)
        tl.store(target + cell, greedy.to(tl.int64))


@triton.jit(do_not_specialize=["depth"])
def _match(
    tokens,
    num_verify,
    target,
    num_accepted,
    next_token,
    faulty,
    depth,
    request_stride,
    draft_stride,
    DEPTH: tl.constexpr,
):
    """Accept while a draft is the target's own token at its place."""
    request = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, DEPTH)
    verified = tl.load(num_verify + request).to(tl.int32)
    read = place < verified
    own = tl.load(target + request * (depth + 1) + place, mask=read, other=-1)
    draft = tl.load(tokens + request * request_stride + place * draft_stride, mask=read, other=-1)
    accepted = tl.minimum(first_index(read & ((own != draft) | (own < 0)), place, DEPTH), verified)
    follows = tl.load(target + request * (depth + 1) + accepted)
    tl.store(num_accepted + request, accepted.to(tl.int64))
    tl.store(next_token + request, follows)
    tl.store(faulty + request, tl.where(follows < 0, accepted, -1).to(tl.int64))


def verify(logits: torch.Tensor, rows: torch.Tensor, proposal: Proposal, sampling: Sampling) -> Verdict:
    """What `specsim.kernels.verify.verify` defines, without a wait: a CUDA graph can hold it.

    Any strides. Raises InputError for what the definition refuses, for other types than int64 (temperature: float32;
    logits and the draft law: bfloat16, float16, float32, float64), and for more than 65,535 requests or 32,768 places
    times chunks.
    """
    check(logits, rows, proposal, sampling)
    _check_types(logits, rows, proposal, sampling)
    step = _Launch(logits, rows, proposal, sampling)
    if not step.batch:
        return step.verdict
    LAUNCHES["verify"] += 1
    step.scan()
    if proposal.log_prob is None or step.depth == 0:
        step.match()
    else:
        step.test(proposal.log_prob)
    return step.verdict


def _check_types(logits: torch.Tensor, rows: torch.Tensor, proposal: Proposal, sampling: Sampling) -> None:
    """Raise InputError where a type is another than the kernels read."""
    held = {"rows": rows, "tokens": proposal.tokens, "num_verify": proposal.num_verify}
    for name, values in (held | {"seed": sampling.seed, "position": sampling.position}).items():
        if values.dtype != torch.int64:
            raise InputError(f"{name} is {values.dtype}: allowed is torch.int64")
    if sampling.temperature.dtype != torch.float32:
        raise InputError(f"temperature is {sampling.temperature.dtype}: allowed is torch.float32")
    for name, values in (("logits", logits), ("the draft law", proposal.log_prob)):
        if values is not None and values.dtype not in FLOATS:
            raise InputError(f"{name} is {values.dtype}: allowed are {', '.join(map(str, FLOATS))}")


class _Launch:
    """Buffers and launches of one call."""

    def __init__(self, logits: torch.Tensor, rows: torch.Tensor, proposal: Proposal, sampling: Sampling) -> None:
        self.logits, self.rows, self.tokens = logits, rows.contiguous(), proposal.tokens
        self.num_verify, self.temperature = proposal.num_verify.contiguous(), sampling.temperature.contiguous()
        self.seed, self.position = sampling.seed.contiguous(), sampling.position.contiguous()
        self.batch, self.depth = proposal.tokens.shape
        self.vocabulary = logits.shape[1]
        self.chunks = triton.cdiv(self.vocabulary, CHUNK)
        self.padded_chunks = triton.next_power_of_2(self.chunks)
        self.padded_places = triton.next_power_of_2(self.depth + 1)
        if self.padded_chunks * self.padded_places > MOST_CELLS or self.batch > 65535:
            raise InputError(
                f"{self.batch} requests of {self.depth} drafts over {self.vocabulary} tokens: allowed are 65535"
                f" requests and {MOST_CELLS} places times chunks of {CHUNK} tokens, each padded to a power of two"
            )
        wide = logits.dtype == torch.float64
        self.wide, self.float = (tl.float64, torch.float64) if wide else (tl.float32, torch.float32)
        shape = (self.batch, self.depth + 1, self.chunks)
        self.most, self.total = self.empty(*shape, dtype=self.float), self.empty(*shape, dtype=self.float)
        self.best = self.empty(*shape, dtype=torch.int32)
        self.verdict = Verdict(*(self.empty(self.batch, dtype=torch.int64) for _ in range(3)))

    def empty(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self.logits.device)

    def scan(self) -> None:
        _scan[(self.chunks, self.depth + 1, self.batch)](
            self.logits, self.rows, self.num_verify, self.temperature, self.most, self.best, self.total,
            self.vocabulary, self.depth, *self.logits.stride(), CHUNK=CHUNK, WIDE=self.wide, num_warps=8,
        )  # fmt: skip

    def match(self) -> None:
        target = self.empty(self.batch, self.depth + 1, dtype=torch.int64)
        _draw[(self.depth + 1, self.batch)](
            self.logits, self.rows, self.num_verify, self.temperature, self.seed, self.position,
            self.most, self.best, self.total, target, self.vocabulary, self.depth, self.chunks, *self.logits.stride(),
            CHUNK=CHUNK, CHUNKS=self.padded_chunks, TARGET=TARGET, WIDE=self.wide, num_warps=8,
        )  # fmt: skip
        _match[(self.batch,)](
            self.tokens, self.num_verify, target, *self._said(), self.depth, *self.tokens.stride(),
            DEPTH=self.padded_places, num_warps=1,
        )  # fmt: skip

    def test(self, law: torch.Tensor) -> None:
        stop = self.empty(self.batch, dtype=torch.int32)
        largest, log_total = (self.empty(self.batch, dtype=self.float) for _ in range(2))
        target_sum, left_sum = (self.empty(self.batch, self.chunks, dtype=self.float) for _ in range(2))
        accepted, follows, faulty = self._said()
        test_drafts[(self.batch,)](
            self.logits, self.rows, self.tokens, self.num_verify, law, self.temperature, self.seed, self.position,
            self.most, self.best, self.total, stop, largest, log_total, accepted, follows, faulty,
            self.vocabulary, law.shape[2], self.depth, self.chunks,
            *self.logits.stride(), *self.tokens.stride(), *law.stride(),
            DEPTH=self.padded_places, CHUNKS=self.padded_chunks, ACCEPT=ACCEPT, WIDE=self.wide,
        )  # fmt: skip
        rounding = ROUNDING * torch.finfo(self.float).eps
        sum_residual[(self.chunks, self.batch)](
            self.logits, self.rows, law, self.temperature, stop, accepted, largest, log_total, target_sum, left_sum,
            self.vocabulary, law.shape[2], *self.logits.stride(), *law.stride(),
            CHUNK=CHUNK, ROUNDING=rounding, WIDE=self.wide, num_warps=8,
        )  # fmt: skip
        draw_recovered[(self.batch,)](
            self.logits, self.rows, law, self.temperature, self.seed, self.position, stop, accepted, largest, log_total,
            target_sum, left_sum, follows, faulty, self.vocabulary, law.shape[2], self.chunks,
            *self.logits.stride(), *law.stride(),
            CHUNK=CHUNK, CHUNKS=self.padded_chunks, ROUNDING=rounding, TARGET=TARGET, WIDE=self.wide, num_warps=8,
        )  # fmt: skip

    def _said(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.verdict.num_accepted, self.verdict.next_token, self.verdict.faulty
