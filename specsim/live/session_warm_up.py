"""Before anything of a session is timed or learned from: kernels compile, and graphs are captured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from specsim.live.drafters.batch import LiveDrafter
from specsim.live.engine import Engine
from specsim.live.sampling import SamplingParams
from specsim.policies.build import build_controller
from specsim.policies.controller import Controller

if TYPE_CHECKING:
    from specsim.live.session import LiveSession

WARM_UP_TOKENS = 4
CAPTURED_PROMPT = 8
"""Tokens of a prompt where only its drafts' passes matter."""


@torch.inference_mode()
def warm_up(session: LiveSession, drafters: Sequence[LiveDrafter]) -> None:
    """Let every kernel run once, and capture every graph that the run will need.

    session   that will run; its first prompt is decoded a little, and nothing is kept
    drafters  its arms
    """
    controllers = _controllers(session)
    drafting = drafters if any(controller.budget_policy.drafts for controller in controllers) else ()
    if session.setup.runner.buckets:
        _capture(session, drafting)
    _decode(session, session._plain_engine(), 1)
    for drafter in drafting:
        _decode(session, _engine_of(session, drafter, min(2, drafter.spec.max_depth)), 1)


def _capture(session: LiveSession, drafters: Sequence[LiveDrafter]) -> None:
    """Capture before the run what would else be captured in a step of it, and be taken for what the step takes.

    Larger graphs come first, so that smaller ones find their memory to share.
    """
    runner, slots = session.setup.runner, session.engine_config.max_num_seqs
    deepest = max(controller.max_depth for controller in _controllers(session))
    longest = min(max(len(job.token_ids) for job in session.jobs), session.engine_config.max_num_batched_tokens)
    for count in _halving(slots):
        # A full batch may meet prompts of many requests; a smaller one is that of the run's beginning or end.
        most = None if count == slots else count * (1 + deepest) + longest
        runner.capture(count, most)
    # A drafter captures its own passes when a batch first needs them: batches differ as they do in their bucket.
    for count in sorted({*(size for size in runner.buckets if size < slots), slots}, reverse=True):
        for drafter in drafters:
            _decode(session, _engine_of(session, drafter, drafter.spec.max_depth), count, CAPTURED_PROMPT)


def _controllers(session: LiveSession) -> tuple[Controller, ...]:
    """Whoever will decide: the session's own, and those that it is compared with."""
    return (session.controller, *(rival.controller for rival in session.rivals))


def _engine_of(session: LiveSession, drafter: LiveDrafter, depth: int) -> Engine:
    return session._engine([drafter], build_controller(f"fixed_depth:depth={depth}", (drafter.spec,), live=True))


def _decode(session: LiveSession, engine: Engine, count: int, most: int | None = None) -> None:
    """Decode a few tokens of a batch.

    count  requests
    most   tokens of a prompt (None: all)
    """
    for number in range(count):
        job = session.jobs[number % len(session.jobs)]
        params: SamplingParams = job.params or session.config.sampling
        few = replace(params, max_tokens=min(WARM_UP_TOKENS, params.max_tokens), stop=())
        engine.submit(job.token_ids[:most], few, index=job.index)
    engine.run()


def _halving(most: int) -> Iterator[int]:
    """`most`, and the powers of two below it, falling: graphs are of a power of two of requests, or of all."""
    yield most
    power = 1 << (most - 1).bit_length() >> 1
    while 0 < power < most:
        yield power
        power >>= 1
