"""What a live run did, written down so that the simulator can take every step of it again."""

from __future__ import annotations

import json
import os
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
from specsim.trace import DrafterEntry, Manifest, RecordedBlocks, RequestRow, Sampling, TraceWriter

if TYPE_CHECKING:
    from specsim.live.engine import Engine

SCORE_KEPT_AS: dict[Score, str] = {
    "drawn_prob": "confidence",
    "max_prob": "confidence_max",
    "margin": "margin",
}
"""Columns of the trace by score; `shifted_prob` is computed from `confidence` again."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request's block of one step.

    position      output tokens before it
    arm           index of the drafter
    num_verify    drafts the plan let through
    num_accepted  drafts in the output
    token_ids     K of them
    scores        K each, by column of the trace
    """

    position: int
    arm: int
    num_verify: int
    num_accepted: int
    token_ids: list[int]
    scores: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Offer:
    """What was drafted in a step before any policy cut it, and what became of it, on the host.

    positions     [B] int64, output tokens of each request before the step
    arms          [B] int64
    num_drafts    [B] int64
    num_verify    [B] int64
    num_accepted  [B] int64
    token_ids     [B, D] int64
    scores        [B, D] float64 each
    """

    positions: np.ndarray
    arms: np.ndarray
    num_drafts: np.ndarray
    num_verify: np.ndarray
    num_accepted: np.ndarray
    token_ids: np.ndarray
    scores: dict[Score, np.ndarray]


class TrajectoryRecorder:
    """Observes an engine from before its first step, and writes a run folder.

    The folder is a `trajectory` trace with its steps, and beside it run.json and the cost table. A request is on disk
    once it has ended; `close` makes the trace of them. Use it as a context manager, or call `close`.

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
        self._manifest = _manifest(engine, name or self.folder.resolve().name, licence)
        self._header = _header(engine, closed_loop)
        self._writer = TraceWriter(self.folder, self._manifest)
        engine.cost.save(self.folder / COST_FOLDER)
        self._header = self._header.model_copy(update={"cost": _cost_section(engine, self.folder)})
        write_run_file(self.folder, self._header)
        self._journal = (self.folder / STEPS_JOURNAL).open("wb")
        self._visits: dict[int, list[tuple[Offer, int]]] = {}
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
        """Close; after an exception only the journal, so that the folder says the run was cut short."""
        if kind is None:
            self.close()
        else:
            self._abandon()

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
        self._keep(request, _end_of(request))

    def close(self) -> None:
        """Write what still runs as unfinished, and make the trace of everything.

        Raises  InputError when no request emitted a token: there is nothing to take again
        """
        if self._closed:
            return
        self._engine.settle()
        self._abandon()
        scheduler = self._engine.scheduler
        running = [scheduler.slots.request(slot) for slot in scheduler.running]
        for request in (*running, *scheduler.waiting):
            assert isinstance(request, LiveRequest)
            self._keep(request, "unfinished")
        steps = np.fromfile(self.folder / STEPS_JOURNAL, STEP_DTYPE)
        self._writer.finish(steps)
        ordered = [self._submissions[sequence] for sequence in sorted(self._submissions)]
        update = {
            "complete": True,
            "num_steps": len(steps),
            "num_scores_zeroed": self._zeroed,
            "submissions": ordered,
            "cancellations": self._cancellations,
        }
        write_run_file(self.folder, self._header.model_copy(update=update))
        (self.folder / STEPS_JOURNAL).unlink()

    def _abandon(self) -> None:
        """Stop observing."""
        self._closed = True
        self._journal.close()
        if self in self._engine.observers:
            self._engine.observers.remove(self)

    def _offer(self, step: Step, seen: Draft, emission: Emission) -> Offer:
        num_drafts, tokens, scores = np.array(seen.num_drafts), step.tokens, step.scores
        if step.offered is not None and step.offered_tokens is not None:
            num_drafts, tokens = step.offered.num_drafts.cpu().numpy(), step.offered_tokens.cpu().numpy()
            scores = {name: values.cpu().numpy() for name, values in step.offered.scores.items()}
        return Offer(
            np.array([len(request.token_ids) for request in step.members.requests]) - emission.num_emitted,
            np.full(len(step.slots), step.order.arm) if step.order.arms is None else step.order.arms.copy(),
            num_drafts.copy(), step.verified.copy(), emission.num_accepted.copy(), tokens.copy(),
            {name: values.copy() for name, values in scores.items()},
        )  # fmt: skip

    def _visit(self, offer: Offer, row: int) -> Visit:
        """One request's part of a step."""
        arm, count = int(offer.arms[row]), int(offer.num_drafts[row])
        return Visit(
            int(offer.positions[row]), arm, int(offer.num_verify[row]), int(offer.num_accepted[row]),
            offer.token_ids[row, :count].tolist(), self._kept(offer, row, count, self._specs[arm]),
        )  # fmt: skip

    def _kept(self, offer: Offer, row: int, count: int, spec: DrafterSpec) -> dict[str, list[float]]:
        """Scores of one block by column of the trace; what is no number counts as no confidence at all."""
        kept: dict[str, list[float]] = {}
        for score, column in SCORE_KEPT_AS.items():
            if score not in spec.scores and column != "confidence":
                continue
            # A step of several drafters tells what all of them offer: the rest was not read.
            there = score in offer.scores
            values = offer.scores[score][row, :count].copy() if there else np.zeros(count)
            wrong = ~np.isfinite(values)
            self._zeroed += int(wrong.sum())
            values[wrong] = 0.0
            kept[column] = values.tolist()
        return kept

    def _keep(self, request: LiveRequest, end: End) -> None:
        """Write one request down; its blocks are on disk when this returns."""
        self._journal_to_disk()
        count = len(request.token_ids)
        visits = [self._visit(offer, row) for offer, row in self._visits.pop(request.sequence, [])]
        step = self._engine.tally.totals.num_steps
        if end == "cancelled":
            self._cancellations.append(Cancellation(sequence=request.sequence, before_step=step))
        behind = [visit for visit in visits if visit.position >= count]
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
            ended_at=None if end == "unfinished" else max(self._now, request.arrived_at),
            last_block=self._last_block(behind[-1]) if behind else None,
        )
        if not count:
            return
        row = RequestRow(
            request.request_id, request.domain, request.num_prompt_tokens, count,
            "stop" if end == "finished" and request.finishes_by_stop else "length",
            request.arrived_at, self._prompt_ids.get(request.sequence),
        )  # fmt: skip
        self._writer.add(row, self._blocks([visit for visit in visits if visit.position < count], count))

    def _journal_to_disk(self) -> None:
        if not self._journal.closed:
            self._journal.flush()
            os.fsync(self._journal.fileno())

    def _last_block(self, visit: Visit) -> LastBlock:
        name = self._specs[visit.arm].name
        return LastBlock(drafter=name, num_drafts=len(visit.token_ids), scores=visit.scores)

    def _blocks(self, visits: list[Visit], num_output_tokens: int) -> dict[str, RecordedBlocks]:
        """The rows of one request by drafter; a drafter that never drafted has none, but its columns."""
        blocks = {}
        for arm, spec in enumerate(self._specs):
            own = [visit for visit in visits if visit.arm == arm]
            seen = [min(visit.num_verify, num_output_tokens - visit.position) for visit in own]
            blocks[spec.name] = RecordedBlocks(
                num_drafts=[len(visit.token_ids) for visit in own],
                num_accepted=[visit.num_accepted for visit in own],
                num_verified=seen,
                draft_token_ids=[visit.token_ids for visit in own],
                position=[visit.position for visit in own],
                confidence=[visit.scores["confidence"] for visit in own],
                confidence_max=_column(own, spec, "max_prob"),
                margin=_column(own, spec, "margin"),
            )
        return blocks


def _column(visits: list[Visit], spec: DrafterSpec, score: Score) -> list[list[float]] | None:
    """One score of every visit (None: the drafter does not offer it)."""
    return [visit.scores[SCORE_KEPT_AS[score]] for visit in visits] if score in spec.scores else None


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
