"""What a live run did, written down so that the simulator can take every step of it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import specsim
from specsim.core import Draft, DrafterSpec, Score
from specsim.cost.files import read_table
from specsim.errors import InputError
from specsim.live.commit import Emission
from specsim.live.machine import hardware, versions
from specsim.live.requests import LiveRequest
from specsim.live.step import Step
from specsim.serving.run_file import (
    COST_FOLDER,
    STEPS_JOURNAL,
    Cancellation,
    ControllerSection,
    CostSection,
    End,
    EngineSection,
    LastBlock,
    RunFile,
    SamplingSection,
    Submission,
    write_run_file,
)
from specsim.telemetry import STEP_DTYPE
from specsim.trace import DrafterEntry, Manifest, RequestRow, Sampling, TraceWriter
from specsim.trace.journal import REQUESTS_JOURNAL, JournalledRequests, RequestJournal, VisitedBlocks

if TYPE_CHECKING:
    from specsim.live.engine import Engine

SCORE_KEPT_AS: dict[Score, str] = {
    "drawn_prob": "confidence",
    "max_prob": "confidence_max",
    "margin": "margin",
}
"""Columns of the trace by score; `shifted_prob` is computed from `confidence` again."""

NO_TOKENS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Offer:
    """What was drafted in a step before any policy cut it, and what became of it, on the host.

    counts     [5, B] int64: arm, output tokens before the step, drafts, accepted drafts and verified drafts of each
    token_ids  [B, D] int64
    scores     [S, B, D] float64, in order of `SCORE_KEPT_AS`, 0 for one that was not read
    """

    counts: np.ndarray
    token_ids: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that is to be written down.

    step  engine steps taken when it ended
    at    when the last of them was over, seconds
    """

    request: LiveRequest
    end: End
    step: int
    at: float


class TrajectoryRecorder:
    """Observes an engine from before its first step, and writes a run folder.

    The folder is a `trajectory` trace with its steps, and beside it run.json and the cost table. A step is in a journal
    once observers have been told of it, and a request once the pass of the step after its last one is under way, or
    `Engine.settle` has been called, so that no other request waits for that: a process that is killed loses neither.
    `close` makes the trace of them. Use it as a context manager, or call `close`.

    folder       new or empty
    engine       whose run is recorded; requests may wait in it, but no step may have been taken
    name         of the trace (empty: the folder's)
    licence      of the outputs' tokens that the trace holds
    closed_loop  clients that each submit their next request when their last one has ended, so that a prediction lets
                 them (None: requests come when they come)
    """

    def __init__(
        self,
        folder: str | Path,
        engine: Engine,
        name: str = "",
        licence: str = "not stated",
        closed_loop: int | None = None,
    ) -> None:
        if engine.tally.totals.num_steps:
            raise InputError(
                f"the engine has taken {engine.tally.totals.num_steps} steps; record a run from before its first one"
            )
        self.folder = Path(folder)
        self._engine = engine
        self._specs: tuple[DrafterSpec, ...] = engine.controller.drafters
        self._offered = np.array(
            [[score in spec.scores or score == "drawn_prob" for spec in self._specs] for score in SCORE_KEPT_AS]
        )
        self._manifest = _manifest(engine, name or self.folder.resolve().name, licence)
        self._header = _header(engine, closed_loop)
        self._writer = TraceWriter(self.folder, self._manifest)
        engine.cost.save(self.folder / COST_FOLDER)
        self._header = self._header.model_copy(update={"cost": _cost_section(engine, self.folder)})
        write_run_file(self.folder, self._header)
        self._requests = RequestJournal(self.folder)
        self._journal = (self.folder / STEPS_JOURNAL).open("wb", buffering=0)
        self._visits: dict[int, list[tuple[Offer, int]]] = {}
        self._ended: list[Ended] = []
        self._submissions: dict[int, Submission] = {}
        self._cancellations: list[Cancellation] = []
        self._prompt_ids: dict[int, int] = {}
        self._now = 0.0
        self._zeroed = 0
        self._closed = False
        engine.observers.append(self)

    def __enter__(self) -> TrajectoryRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close; after an exception only the journals, so that the folder says the run was cut short."""
        if kind is None:
            self.close()
        else:
            self._abandon()
            try:
                self._write_ended()
            finally:
                self._requests.close()

    def tag(self, request: LiveRequest, prompt_id: int) -> None:
        """Say which prompt of a prompt set a request is, so that a trace of the same prompts can be joined to it."""
        self._prompt_ids[request.sequence] = prompt_id

    def on_step(self, row: np.void, step: Step, emission: Emission | None) -> None:
        """See `Observer.on_step`."""
        self._journal.write(row.tobytes())
        self._now = float(row["started_at"]) + _total(row)
        if emission is None or step.seen is None:
            return
        # Copied here and taken apart when a request ends: the engine waits for this.
        offer = self._offer(step, step.seen, emission)
        for i, sequence in enumerate(step.members.sequences):
            self._visits.setdefault(sequence, []).append((offer, i))

    def on_request(self, request: LiveRequest) -> None:
        """See `Observer.on_request`."""
        self._engine.add_chore(self._write_next)  # one each: where one cannot be written, the others are
        self._ended.append(Ended(request, _end_of(request), self._engine.tally.totals.num_steps, self._now))

    def close(self) -> None:
        """Write what still runs as unfinished, and make the trace of everything.

        Raises  InputError when no request emitted a token: there is nothing to take again
        """
        if self._closed:
            return
        self._engine.settle()
        self._abandon()
        self._write_ended()
        scheduler, step = self._engine.scheduler, self._engine.tally.totals.num_steps
        running = [scheduler.slots.request(slot) for slot in scheduler.running]
        for request in (*running, *scheduler.waiting):
            assert isinstance(request, LiveRequest)
            self._keep(Ended(request, "unfinished", step, self._now))
        self._requests.close()
        steps = np.fromfile(self.folder / STEPS_JOURNAL, STEP_DTYPE)
        self._writer.finish_with(JournalledRequests(self.folder).blocks(self._specs), steps)
        ordered = [self._submissions[sequence] for sequence in sorted(self._submissions)]
        update = {
            "complete": True,
            "num_steps": len(steps),
            "num_scores_zeroed": self._zeroed,
            "submissions": ordered,
            "cancellations": self._cancellations,
        }
        write_run_file(self.folder, self._header.model_copy(update=update))
        for journal in (STEPS_JOURNAL, REQUESTS_JOURNAL):
            (self.folder / journal).unlink()

    def _write_ended(self) -> None:
        """Write down every request that has ended and was not written."""
        while self._ended:
            self._write_next()

    def _write_next(self) -> None:
        """Write down the request that ended first, if one is left."""
        if self._ended:
            self._keep(self._ended.pop(0))

    def _abandon(self) -> None:
        """Stop observing."""
        self._closed = True
        self._journal.close()
        if self in self._engine.observers:
            self._engine.observers.remove(self)

    def _offer(self, step: Step, seen: Draft, emission: Emission) -> Offer:
        num_drafts, tokens, scores = np.asarray(seen.num_drafts), step.tokens, step.scores
        if step.offered is not None and step.offered_tokens is not None:
            num_drafts, tokens = step.offered.num_drafts.cpu().numpy(), step.offered_tokens.cpu().numpy()
            scores = {name: values.cpu().numpy() for name, values in step.offered.scores.items()}
        counts = np.empty((5, len(num_drafts)), np.int64)
        counts[0] = step.order.arm if step.order.arms is None else step.order.arms
        counts[1] = [len(request.token_ids) for request in step.members.requests]
        counts[1] -= emission.num_emitted
        counts[2], counts[3], counts[4] = num_drafts, emission.num_accepted, step.verified
        kept = np.zeros((len(SCORE_KEPT_AS), *tokens.shape))
        for place, score in enumerate(SCORE_KEPT_AS):
            if score in scores:  # a step of several drafters tells what all of them offer
                kept[place] = scores[score]
        return Offer(counts, tokens.copy(), kept)

    def _visited(self, visits: list[tuple[Offer, int]]) -> VisitedBlocks:
        """One request's parts of its steps."""
        counts = np.array([offer.counts[:, row] for offer, row in visits], np.int64).reshape(-1, 5)
        lengths = counts[:, 2].tolist()
        rows = list(zip(visits, lengths, strict=True))
        tokens = [offer.token_ids[row, :length] for (offer, row), length in rows]
        parts = [offer.scores[:, row, :length] for (offer, row), length in rows]
        scores = np.concatenate([np.zeros((len(SCORE_KEPT_AS), 0)), *parts], axis=1)
        scores[~np.repeat(self._offered[:, counts[:, 0]], lengths, axis=1)] = 0.0
        return VisitedBlocks(
            arm=counts[:, 0], position=counts[:, 1], num_drafts=counts[:, 2], num_accepted=counts[:, 3],
            num_verified=counts[:, 4], draft_token_ids=np.concatenate([NO_TOKENS, *tokens]),
            scores=dict(zip(SCORE_KEPT_AS.values(), self._finite(scores), strict=True)),
        )  # fmt: skip

    def _finite(self, scores: np.ndarray) -> np.ndarray:
        """What is no number counts as no confidence at all."""
        wrong = ~np.isfinite(scores)
        self._zeroed += int(wrong.sum())
        scores[wrong] = 0.0
        return scores

    def _keep(self, ended: Ended) -> None:
        """Write one request down."""
        request, end, step = ended.request, ended.end, ended.step
        count = len(request.token_ids)
        visited = self._visited(self._visits.pop(request.sequence, []))
        if end == "cancelled":
            self._cancellations.append(Cancellation(sequence=request.sequence, before_step=step))
        self._submissions[request.sequence] = Submission(
            sequence=request.sequence,
            request_id=request.request_id,
            prompt_id=self._prompt_ids.get(request.sequence),
            domain=request.domain,
            num_prompt_tokens=request.num_prompt_tokens,
            limit=request.limit,
            before_step=request.submitted_before_step,
            arrived_at=request.arrived_at,
            sampling=_sampling(request),
            end=end,
            num_output_tokens=count,
            failed_in_step=step - 1 if end == "failed" else None,
            first_token_at=None if np.isnan(request.first_token_at) else request.first_token_at,
            ended_at=None if end == "unfinished" else max(ended.at, request.arrived_at),
            last_block=self._last_block(visited) if (visited.position >= count).any() else None,
        )
        if not count:
            return
        row = RequestRow(
            request.request_id, request.domain, request.num_prompt_tokens, count,
            "stop" if end == "finished" and request.finishes_by_stop else "length",
            request.arrived_at, self._prompt_ids.get(request.sequence),
        )  # fmt: skip
        self._requests.append(row, _within(visited, count))

    def _last_block(self, visited: VisitedBlocks) -> LastBlock:
        spec, length = self._specs[int(visited.arm[-1])], int(visited.num_drafts[-1])
        kept = {"confidence", *(column for score, column in SCORE_KEPT_AS.items() if score in spec.scores)}
        scores = {
            name: values[len(values) - length :].tolist() for name, values in visited.scores.items() if name in kept
        }
        return LastBlock(drafter=spec.name, num_drafts=length, scores=scores)


def _within(visited: VisitedBlocks, num_output_tokens: int) -> VisitedBlocks:
    """The blocks that begin inside the output, and of their verified drafts those that do not lie behind it."""
    inside = visited.position < num_output_tokens
    drafts = np.repeat(inside, visited.num_drafts)
    room = num_output_tokens - visited.position
    return VisitedBlocks(
        visited.arm[inside], visited.position[inside], visited.num_drafts[inside], visited.num_accepted[inside],
        np.minimum(visited.num_verified, room)[inside], visited.draft_token_ids[drafts],
        {name: values[drafts] for name, values in visited.scores.items()},
    )  # fmt: skip


def _total(row: np.void) -> float:
    """Seconds of a step, added in the order of `StepSeconds.total`."""
    total = 0.0
    for phase in ("draft", "plan", "verify", "host", "switch", "prefill"):
        total += float(row[f"{phase}_seconds"])
    return total


def _end_of(request: LiveRequest) -> End:
    assert request.status in ("finished", "cancelled", "failed"), request.status
    return request.status


def _sampling(request: LiveRequest) -> SamplingSection:
    params = request.params
    return SamplingSection(
        temperature=float(params.temperature), top_k=params.top_k, top_p=float(params.top_p), seed=request.seed
    )


def _manifest(engine: Engine, name: str, licence: str) -> Manifest:
    target = engine.setup.target
    judged = f", {engine.acceptor.label}" if engine.acceptor.label else ""
    return Manifest(
        name=name,
        kind="trajectory",
        recorded_by=f"specsim {specsim.__version__}",
        how=(
            f"A live run of {engine.controller.label}{judged}: the blocks its own policy visited. run.json says how "
            "each request was sampled; one that was cancelled, failed or left unfinished stands here as ended by length"
        ),
        target=target.name,
        model_hash=target.model_hash,
        tokenizer_hash=target.tokenizer_hash or None,  # random weights have no tokenizer
        drafters=tuple(DrafterEntry.of(drafter.spec, drafter.score_source) for drafter in engine.drafters),
        sampling=Sampling(),
        hardware=hardware(target.device),
        versions=versions(),
        licence=licence,
    )


def _header(engine: Engine, closed_loop: int | None) -> RunFile:
    """run.json of a run that has not begun."""
    controller, setup, config = engine.controller, engine.setup, engine.config
    if controller.config is None:
        raise InputError(f"{controller.label}: put together by hand, so no text builds it again; use build_controller")
    return RunFile(
        complete=False,
        controller=ControllerSection(
            text=str(controller.config),
            config=controller.config.model_copy(update={"state": None}).model_dump(mode="json"),
            allow_lossy=controller.lossy,
            state=json.loads(json.dumps(controller.state_dict(), allow_nan=False)),
        ),
        cost=CostSection(name=engine.cost.name, cells_sha256="0" * 64),
        engine=EngineSection(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            block_size=config.block_size,
            num_kv_blocks=setup.pool.num_blocks,
            max_model_len=setup.max_model_len,
            max_tokens=config.max_tokens,
            prefill=config.prefill,
        ),
        seed=engine.options.seed,
        model=setup.target.name,
        drafters=[drafter.spec.name for drafter in engine.drafters],
        acceptance=engine.acceptor.label,
        device=str(setup.device),
        dtype=setup.target.dtype,
        versions=versions(),
        closed_loop=closed_loop,
    )


def _cost_section(engine: Engine, folder: Path) -> CostSection:
    meta, _ = read_table(folder / COST_FOLDER)
    assert meta.cells_sha256 is not None
    return CostSection(
        name=meta.name,
        cells_sha256=meta.cells_sha256,
        draft_costs=engine.cost.prices,
        extrapolate=engine.cost.extrapolates,
    )
