"""Counts of a run while it happens: appends in the step, sums now and then."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

from specsim.core import DrafterSpec, Order, StepSeconds
from specsim.histogram import LogHistogram
from specsim.serving.slots import Request
from specsim.telemetry import REQUEST_DTYPE, STEP_DTYPE, Rows, StepTotals


class Block(NamedTuple):
    """One decode step of a batch, request by request; the arrays are kept, so nobody may change them.

    num_drafts, num_verify, num_accepted, num_emitted   [B] int64
    """

    num_drafts: np.ndarray
    num_verify: np.ndarray
    num_accepted: np.ndarray
    num_emitted: np.ndarray


class Tally:
    """Everything a run counts, over all replicas.

    drafters        the arms
    record_steps    whether to keep one row an engine step
    """

    FLUSH_EVERY = 256

    def __init__(self, drafters: tuple[DrafterSpec, ...], record_steps: bool) -> None:
        self.drafters = drafters
        self.width = max((spec.max_depth for spec in drafters), default=0) + 1
        num_arms = len(drafters)
        self.counts = np.zeros((num_arms, self.width, self.width), np.int64)
        self.drafted = np.zeros((num_arms, self.width), np.int64)
        # Lists, since one element at a time is added to; the last stands for plain steps.
        self.arm_steps = [0] * (num_arms + 1)
        self.arm_seconds = [0.0] * (num_arms + 1)
        self.arm_tokens = [0] * (num_arms + 1)
        self.totals = StepTotals()
        self.itl = LogHistogram()
        self.requests = Rows(REQUEST_DTYPE)
        self.steps = Rows(STEP_DTYPE) if record_steps else None
        self.tested = np.zeros((num_arms, self.width), np.int64)
        self._blocks: list[list[Block]] = [[] for _ in drafters]

    def decode(self, arm: int, block: Block, gaps: np.ndarray) -> None:
        """Count one decode step of a batch.

        arm     index, -1 for a plain step
        block   what was drafted, verified, accepted and emitted
        gaps    [B] float64, seconds since the request's last token
        """
        self.itl.add_spread(gaps, block.num_emitted)
        if arm >= 0:
            self._blocks[arm].append(block)
            if len(self._blocks[arm]) >= self.FLUSH_EVERY:
                self._flush(arm)

    def decode_mixed(self, arms: np.ndarray, block: Block, gaps: np.ndarray) -> None:
        """Count one decode step whose requests had different drafters.

        arms    [B] int64
        """
        for arm in np.unique(arms).tolist():
            own = arms == arm
            self.decode(arm, Block(*(values[own] for values in block)), gaps[own])

    def _flush(self, arm: int) -> None:
        if not self._blocks[arm]:
            return
        drafts, verify, accepted, emitted = (np.concatenate(column) for column in zip(*self._blocks[arm], strict=True))
        rejected = (accepted < verify) & (emitted > accepted)
        joint = np.bincount(verify * self.width + accepted, minlength=self.width**2)
        self.counts[arm] += joint.reshape(self.width, self.width)
        self.drafted[arm] += np.bincount(drafts, minlength=self.width)
        self.tested[arm] += np.bincount(accepted + rejected, minlength=self.width)
        self._blocks[arm].clear()

    def step(self, order: Order, seconds: StepSeconds, batch: int, emitted: int, kv_blocks: int) -> None:
        """Count one engine step's time and tokens."""
        totals = self.totals
        totals.num_steps += 1
        totals.draft_seconds += seconds.draft
        totals.plan_seconds += seconds.plan
        totals.verify_seconds += seconds.verify
        totals.host_seconds += seconds.host
        totals.switch_seconds += seconds.switch
        totals.prefill_seconds += seconds.prefill
        totals.kv_block_seconds += kv_blocks * seconds.total
        if kv_blocks > totals.kv_blocks_peak:
            totals.kv_blocks_peak = kv_blocks
        if batch:
            totals.num_decode_steps += 1
            totals.request_steps += batch
            totals.num_emitted += emitted
            arm = order.arm if order.depth else -1
            self.arm_steps[arm] += 1
            self.arm_seconds[arm] += seconds.total
            self.arm_tokens[arm] += emitted

    def request(self, request: Request, replica: int, finished_at: float) -> None:
        """Write down a finished request."""
        self.requests.append(
            (
                request.index,
                request.request_id,
                replica,
                request.arrived_at,
                request.admitted_at,
                request.first_token_at,
                finished_at,
                request.num_prompt_tokens,
                request.num_emitted,
                request.num_steps,
                request.num_preemptions,
                0 if request.finishes_by_stop else 1,
            )
        )

    def finish(self) -> StepTotals:
        """Bring every sum up to date."""
        for arm in range(len(self.drafters)):
            self._flush(arm)
        totals = self.totals
        depths = np.arange(self.width)
        totals.num_drafted = int((self.drafted * depths).sum())
        totals.num_verified = int((self.counts * depths[None, :, None]).sum())
        totals.num_accepted = int((self.counts * depths[None, None, :]).sum())
        totals.num_tested = int((self.tested * depths).sum())
        return totals


def plan_hash(num_verify: np.ndarray) -> int:
    """crc32 of the verified length of each request, [B] int64 in batch order, little endian."""
    return zlib.crc32(num_verify.astype("<i8").tobytes())
