"""What a run writes down: one row a request, one row an engine step, and counts that never grow.

The simulator and the live engine both write these, so every metric is computed by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from specsim.core import DrafterSpec
from specsim.histogram import LogHistogram

FinishReason: TypeAlias = Literal["stop", "length"]
FINISH_REASONS: tuple[FinishReason, ...] = ("stop", "length")

REQUEST_DTYPE = np.dtype(
    [
        ("index", np.int64),  # row of the trace's request table
        ("request_id", np.int64),
        ("replica", np.int64),
        ("arrived_at", np.float64),  # seconds
        ("admitted_at", np.float64),
        ("first_token_at", np.float64),
        ("finished_at", np.float64),
        ("num_prompt_tokens", np.int64),
        ("num_output_tokens", np.int64),
        ("num_steps", np.int64),  # decode steps it took part in
        ("num_preemptions", np.int64),
        ("finish_reason", np.int64),  # index into FINISH_REASONS
    ]
)
"""One row a finished request, in the order they finished."""

STEP_DTYPE = np.dtype(
    [
        ("started_at", np.float64),
        ("replica", np.int64),
        ("batch", np.int64),  # requests that decode in this step
        ("arm", np.int64),  # index into the run's drafters, -1 for a plain step
        ("depth", np.int64),
        ("num_drafted", np.int64),
        ("num_verified", np.int64),
        ("num_tested", np.int64),  # verified positions that met an accept test: accepted, or the first rejected
        ("num_accepted", np.int64),
        ("num_emitted", np.int64),
        ("num_tokens_paid", np.int64),  # anchors and verified drafts, padded to the token bucket the step ran in
        ("prefill_tokens", np.int64),
        ("draft_seconds", np.float64),
        ("plan_seconds", np.float64),
        ("verify_seconds", np.float64),
        ("host_seconds", np.float64),
        ("switch_seconds", np.float64),
        ("prefill_seconds", np.float64),
        ("kv_blocks_used", np.int64),
        ("num_running", np.int64),  # decoding and prefilling
        ("num_waiting", np.int64),
        ("plan_hash", np.int64),  # crc32 of the verified length of each request, in batch order
    ]
)
"""One row an engine step."""


class Rows:
    """An append-only table of one numpy record type that grows by doubling.

    dtype   the record type of a row
    """

    def __init__(self, dtype: np.dtype) -> None:
        self._rows = np.zeros(256, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, row: tuple[float, ...]) -> None:
        """Add one row, its values in the order of the record type."""
        if self._length == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._length] = row
        self._length += 1

    def column(self, name: str) -> np.ndarray:
        """[rows] one column, contiguous."""
        return np.ascontiguousarray(self._rows[name][: self._length])

    def table(self) -> np.ndarray:
        """[rows] all rows as a record array."""
        return self._rows[: self._length].copy()


@dataclass
class StepTotals:
    """Sums over all steps, whatever their number.

    num_steps           engine steps, prefill-only steps included
    num_decode_steps    steps in which at least one request decoded
    request_steps       decode steps summed over requests
    num_drafted, num_verified, num_tested, num_accepted, num_emitted    tokens; the first token of a request,
                        which its prefill yields, is in `num_first` and not in `num_emitted`
    num_first           first tokens, one a request
    *_seconds           seconds by phase; `idle` is time in which no step ran
    """

    num_steps: int = 0
    num_decode_steps: int = 0
    request_steps: int = 0
    num_drafted: int = 0
    num_verified: int = 0
    num_tested: int = 0
    num_accepted: int = 0
    num_emitted: int = 0
    num_first: int = 0
    num_prefilled: int = 0
    num_preemptions: int = 0
    kv_block_seconds: float = 0.0
    kv_blocks_peak: int = 0
    draft_seconds: float = 0.0
    plan_seconds: float = 0.0
    verify_seconds: float = 0.0
    host_seconds: float = 0.0
    switch_seconds: float = 0.0
    prefill_seconds: float = 0.0


@dataclass
class Run:
    """Everything one run left behind.

    label           the controller's label
    drafters        the arms
    seed            the run's seed
    concurrency     running requests the workload aims at (0: open loop)
    duration        seconds from the first arrival to the last finish
    steady_at       instant at which the first slot could not be refilled; until then a closed loop is
                    in steady state (equals `duration` for an open loop)
    steady_tokens   output tokens emitted until `steady_at`
    totals          sums over steps
    counts          [A, D + 1, D + 1] int64, request-steps by arm, verified and accepted drafts
    drafted         [A, D + 1] int64, request-steps by arm and drafted length
    tested          [A, D + 1] int64, request-steps by arm and drafts that met an accept test; differs from
                    verified and accepted where a request ended inside the block
    arm_steps       [A + 1] int64, decode steps by arm (by that of most requests, where they have different ones); the
                    last counts plain steps
    arm_seconds     [A + 1] float64, seconds of those steps
    arm_tokens      [A + 1] int64, tokens emitted in them
    itl             inter-token latencies, seconds, one weight a token
    requests        finished requests, REQUEST_DTYPE
    steps           engine steps, STEP_DTYPE (None unless asked for)
    num_kv_blocks   KV blocks of one replica (0: never the limit)
    num_replicas    replicas
    lossy_reason    why the output law is not the target's (None: it is)
    clairvoyant     whether the controller knew what would be accepted
    notes           what a reader must know: extrapolated costs, estimates, what-if prices
    """

    label: str
    drafters: tuple[DrafterSpec, ...]
    seed: int
    concurrency: int
    duration: float
    steady_at: float
    steady_tokens: int
    totals: StepTotals
    counts: np.ndarray
    drafted: np.ndarray
    tested: np.ndarray
    arm_steps: np.ndarray
    arm_seconds: np.ndarray
    arm_tokens: np.ndarray
    itl: LogHistogram
    requests: np.ndarray
    steps: np.ndarray | None
    num_kv_blocks: int
    num_replicas: int
    lossy_reason: str | None = None
    clairvoyant: bool = False
    notes: tuple[str, ...] = field(default=())
