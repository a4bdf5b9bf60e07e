"""Verification of a step's drafts on packed logits: how many are accepted, and which token follows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from specsim.core import Array
from specsim.errors import InputError
from specsim.kernels.accept import leading, passes
from specsim.kernels.recover import draw, residual
from specsim.kernels.uniform import ACCEPT, TARGET, uniform


@dataclass(frozen=True, slots=True)
class Proposal:
    """The drafts of one step. What lies at and beyond `num_verify` is never read.

    tokens      [B, D] int64, drafted tokens; one outside the target's vocabulary is never accepted
    num_verify  [B] int64, leading drafts that are verified, in [0, D]
    log_prob    [B, D, Vd] float, logarithms of the law each draft was drawn from, after temperature and every filter;
                Vd <= V, and what the drafter has no id for has probability 0 (None: drafts are certain tokens, as of
                a greedy or n-gram drafter)
    """

    tokens: Array
    num_verify: Array
    log_prob: Array | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How each request's tokens are chosen.

    temperature  [B] float32, at least 0; 0: the most likely token, the first of equals
    seed         [B] int64
    position     [B] int64, output position of the request's first draft, tokens emitted so far
    """

    temperature: Array
    seed: Array
    position: Array


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification says of each request.

    num_accepted  [B] int64, in [0, num_verify]
    next_token    [B] int64, the recovered or bonus token, in [0, V); -1 where `faulty`
    faulty        [B] int64, -1, or the first position read, in [0, num_verify], that has no law: its logits or its
                  draft's hold NaN, or the largest of its logits is infinite. Acceptance ends before it
    """

    num_accepted: Array
    next_token: Array
    faulty: Array


def verify(logits: Array, rows: Array, proposal: Proposal, sampling: Sampling) -> Verdict:
    """Accept the leading drafts that the target agrees with, and choose the token that follows them.

    logits   [N, V] float, the target's, packed; filtered already where a filter is wanted. Half types are computed in
             float32, others in their own type. Rows of nobody, as in a padded pass, are never read
    rows     [B] int64, row of each request's anchor: row + i holds the target's law of draft i, row + num_verify that
             of the bonus token
    returns  a `Verdict`
    Raises   InputError where shapes contradict each other; what the arrays hold is not looked at

    At temperature 0 a draft is accepted where it is the most likely token.

    Above 0, certain drafts are sampled and matched: the target's token at output position p is the inverse of its
    cumulated law softmax(logits / temperature) at uniform(seed, p, TARGET), and a draft is accepted where it is that
    token. A draft is so accepted with its target probability, and what is drawn where it is not has the residual's
    law: exact. And a request's output is a function of its seed: drafts, depth, pruning and the other requests of
    the batch decide how soon a token comes, never which.

    Drafts drawn from a law are accepted where log uniform(seed, p, ACCEPT) + draft_log_prob < target_log_prob, see
    `accept.passes`; after a rejection the token is drawn from the residual, see `recover.residual`, otherwise from the
    target, with uniform(seed, p, TARGET). Temperature comes before the logarithm of the softmax.

    Uniforms have 24 bits: a token rarer than 6e-8 comes with a multiple of that probability.

    Source: Leviathan et al. (arXiv 2211.17192), algorithm 1; sampling and matching is its coupling for certain drafts.
    """
    check(logits, rows, proposal, sampling)
    xp = array_namespace(logits, rows)
    step = _Step(logits, rows, proposal, sampling, xp)
    target, sound = _greedy(step)
    if not bool(xp.any(sampling.temperature > 0.0)):  # a host's cheap way out: no softmax is computed for nobody
        return _match(step, target, sound)
    if proposal.log_prob is None or step.depth == 0:
        return _match(step, _sampled(step, target), sound)
    return _test(step, target, sound, proposal.log_prob)


def check(logits: Array, rows: Array, proposal: Proposal, sampling: Sampling) -> None:
    """Raise InputError where shapes contradict each other."""
    if len(logits.shape) != 2 or logits.shape[1] == 0 or (logits.shape[0] == 0 and rows.shape[0] > 0):
        raise InputError(f"logits have shape {tuple(logits.shape)}: allowed is [N, V] with at least one of each")
    batch = rows.shape[0]
    if len(proposal.tokens.shape) != 2 or proposal.tokens.shape[0] != batch:
        raise InputError(f"tokens have shape {tuple(proposal.tokens.shape)}: allowed is [{batch}, D]")
    held = {"num_verify": proposal.num_verify, "temperature": sampling.temperature}
    for name, values in (held | {"seed": sampling.seed, "position": sampling.position}).items():
        if tuple(values.shape) != (batch,):
            raise InputError(f"{name} has shape {tuple(values.shape)}: allowed is [{batch}]")
    law = proposal.log_prob
    if law is None:
        return
    depth, vocabulary = proposal.tokens.shape[1], logits.shape[1]
    if len(law.shape) != 3 or tuple(law.shape[:2]) != (batch, depth) or not 0 < law.shape[2] <= vocabulary:
        allowed = f"[{batch}, {depth}, Vd] with Vd from 1 to the target's {vocabulary} tokens"
        raise InputError(f"the draft law has shape {tuple(law.shape)}: allowed is {allowed}")


class _Step:
    """The arguments of one call, and what every rule needs of them."""

    def __init__(self, logits: Array, rows: Array, proposal: Proposal, sampling: Sampling, xp: Any) -> None:
        self.logits, self.proposal, self.sampling, self.xp = logits, proposal, sampling, xp
        self.batch, self.depth = proposal.tokens.shape
        self.places = xp.arange(self.depth + 1, device=rows.device)
        self.read = self.places <= proposal.num_verify[:, None]  # [B, D + 1]
        self.verified = self.read[:, 1:]  # [B, D]
        self.tokens = xp.where(self.verified, proposal.tokens, 0)
        self.index = xp.where(self.read, rows[:, None] + self.places, rows[:, None])  # [B, D + 1]
        self.single = xp.float64 if logits.dtype == xp.float64 else xp.float32

    def uniform(self, request: Array, place: Array, stream: int) -> Array:
        """Uniforms of these requests at these places after their position."""
        xp, sampling = self.xp, self.sampling
        seed, position = xp.take(sampling.seed, request, axis=0), xp.take(sampling.position, request, axis=0)
        return xp.astype(uniform(seed, position + place, stream), self.single)

    def tempered(self, request: Array, place: Array) -> Array:
        """[S, V] float, logits over temperature of these requests at these places, the largest 0."""
        xp = self.xp
        row = xp.take(xp.reshape(self.index, (-1,)), request * (self.depth + 1) + place, axis=0)
        logits = xp.astype(xp.take(self.logits, row, axis=0), self.single)
        temperature = xp.astype(xp.take(self.sampling.temperature, request, axis=0), self.single)
        return (logits - xp.max(logits, axis=1, keepdims=True)) / temperature[:, None]


def _greedy(step: _Step) -> tuple[Array, Array]:
    """[B, D + 1] int64, the most likely token at each place; [B, D + 1] bool, whether that place has a law."""
    xp = step.xp
    best = xp.argmax(step.logits, axis=1)
    # Where a row holds NaN, the largest value of every library here is that NaN.
    largest = xp.take_along_axis(step.logits, best[:, None], axis=1)[:, 0]
    flat = xp.reshape(step.index, (-1,))
    shape = (step.batch, step.depth + 1)
    sound = xp.reshape(xp.take(xp.isfinite(largest), flat, axis=0), shape)
    return xp.reshape(xp.take(best, flat, axis=0), shape), sound


def _sampled_places(step: _Step) -> tuple[Array, Array, Array]:
    """Every law that a request which samples may read.

    returns  [S] int64, its request; [S] int64, its place; [B * (D + 1)] int64, which of the S is each place's
    """
    xp = step.xp
    wanted = xp.reshape(step.read & (step.sampling.temperature > 0.0)[:, None], (-1,))
    flat = xp.nonzero(wanted)[0]
    order = xp.cumulative_sum(xp.astype(wanted, xp.int64)) - 1
    return flat // (step.depth + 1), flat % (step.depth + 1), xp.where(order > 0, order, 0)


def _sampled(step: _Step, greedy: Array) -> Array:
    """[B, D + 1] int64, the target's own token at each place: drawn where a request samples."""
    xp = step.xp
    request, place, order = _sampled_places(step)
    drawn = draw(xp.exp(step.tempered(request, place)), step.uniform(request, place, TARGET))
    spread = xp.reshape(xp.take(drawn, order, axis=0), greedy.shape)
    return xp.where((step.sampling.temperature > 0.0)[:, None], spread, greedy)


def _match(step: _Step, target: Array, sound: Array) -> Verdict:
    """Accept while a draft is the target's own token at its place."""
    passed = step.verified & sound[:, :-1] & (step.tokens == target[:, :-1])
    num_accepted = leading(passed, step.xp)
    follows = step.xp.take_along_axis(target, num_accepted[:, None], axis=1)[:, 0]
    return _verdict(step, num_accepted, follows, sound)


@dataclass(frozen=True, slots=True)
class _Laws:
    """The target's laws that requests which sample may read.

    tempered   [S, V] float, logits over temperature, the largest 0
    log_total  [S] float, logarithm of the sum of their exponentials
    row        [B, D + 1] int64, which of them is each place's; any where none is
    """

    tempered: Array
    log_total: Array
    row: Array


def _test(step: _Step, greedy: Array, sound: Array, law: Array) -> Verdict:
    """Accept drafts drawn from a law by their chances, and draw what follows from the residual or the target."""
    xp = step.xp
    request, place, order = _sampled_places(step)
    tempered = step.tempered(request, place)
    log_total = xp.log(xp.sum(xp.exp(tempered), axis=1))
    laws = _Laws(tempered, log_total, xp.reshape(order, greedy.shape))
    samples = step.sampling.temperature > 0.0
    passed = xp.where(samples[:, None], _chances(step, laws, law), step.tokens == greedy[:, :-1])
    num_accepted = leading(step.verified & sound[:, :-1] & passed, xp)
    follows = xp.take_along_axis(greedy, num_accepted[:, None], axis=1)[:, 0]
    recovered, known = _recovered(step, num_accepted, laws, law)
    here = step.places == num_accepted[:, None]
    sound = sound & ~(here & (samples & ~known)[:, None])
    return _verdict(step, num_accepted, xp.where(samples, recovered, follows), sound)


def _chances(step: _Step, laws: _Laws, law: Array) -> Array:
    """[B, D] bool, whether each draft passes its test; a draft law of NaN fails."""
    xp = step.xp
    inside = (step.tokens >= 0) & (step.tokens < laws.tempered.shape[1])
    flat = laws.row[:, :-1] * laws.tempered.shape[1] + xp.where(inside, step.tokens, 0)
    logit = xp.reshape(xp.take(xp.reshape(laws.tempered, (-1,)), xp.reshape(flat, (-1,)), axis=0), flat.shape)
    total = xp.take(laws.log_total, xp.reshape(laws.row[:, :-1], (-1,)), axis=0)
    target_log_prob = xp.where(inside, logit - xp.reshape(total, flat.shape), -xp.inf)
    held = (step.tokens >= 0) & (step.tokens < law.shape[2])
    draft = xp.take_along_axis(law, xp.where(held, step.tokens, 0)[:, :, None], axis=2)[:, :, 0]
    draft_log_prob = xp.where(held, xp.astype(draft, step.single), -xp.inf)
    place = xp.zeros_like(step.tokens) + step.places[:-1]
    request = xp.zeros_like(step.tokens) + xp.arange(step.batch, device=place.device)[:, None]
    chance = step.uniform(xp.reshape(request, (-1,)), xp.reshape(place, (-1,)), ACCEPT)
    return passes(xp.reshape(chance, flat.shape), target_log_prob, draft_log_prob, xp)


def _recovered(step: _Step, num_accepted: Array, laws: _Laws, law: Array) -> tuple[Array, Array]:
    """[B] int64, the token after the accepted drafts; [B] bool, whether the rejected draft's law is free of NaN."""
    xp = step.xp
    row = xp.take_along_axis(laws.row, num_accepted[:, None], axis=1)[:, 0]
    target = xp.exp(xp.take(laws.tempered, row, axis=0) - xp.take(laws.log_total, row, axis=0)[:, None])
    rejected = num_accepted < step.proposal.num_verify
    place = xp.arange(step.batch, device=row.device) * step.depth + xp.where(rejected, num_accepted, 0)
    flat = xp.reshape(law, (step.batch * step.depth, law.shape[2]))
    draft = xp.exp(xp.astype(xp.take(flat, place, axis=0), step.single))
    draft = xp.where(rejected[:, None], draft, 0.0)
    padding = xp.zeros((step.batch, target.shape[1] - law.shape[2]), dtype=step.single, device=row.device)
    weights = residual(target, xp.concat([draft, padding], axis=1), xp)
    each = xp.arange(step.batch, device=row.device)
    token = draw(weights, step.uniform(each, num_accepted, TARGET))
    return token, ~xp.any(xp.isnan(draft), axis=1)


def _verdict(step: _Step, num_accepted: Array, follows: Array, sound: Array) -> Verdict:
    """What is said where a law that is read is none: its position, and no token."""
    xp = step.xp
    lawful = xp.take_along_axis(sound, num_accepted[:, None], axis=1)[:, 0]
    return Verdict(num_accepted, xp.where(lawful, follows, -1), xp.where(lawful, -1, num_accepted))
