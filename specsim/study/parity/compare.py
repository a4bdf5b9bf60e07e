"""Parity of one recorded live run: every decision taken again, and the run predicted from the cost table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specsim.errors import InputError
from specsim.sim.rerun import Difference, Rerun
from specsim.sim.rerun_predict import Prediction, predict
from specsim.sim.rerun_run import LiveRun
from specsim.study.parity.measures import Pair, outcomes, phase_seconds, step_seconds
from specsim.trace import Trace


@dataclass(frozen=True)
class Parity:
    """What was found.

    folder       of the run
    controller   its label, as text
    model, drafters, device, dtype, acceptance, table   of the run
    num_requests requests submitted
    num_steps    engine steps of the run
    num_equal    steps up to the first difference
    difference   the first one (None: every decision is equal)
    cells        measured step seconds beside the table's, by batch size
    phases       the same by phase
    outcomes     the run beside its simulation (empty: it could not be simulated)
    kind         `exact` or `estimate`: what the simulation replayed; `none` where there is none
    notes        what a reader must know
    """

    folder: str
    controller: str
    model: str
    drafters: tuple[str, ...]
    device: str
    dtype: str
    acceptance: str
    table: str
    num_requests: int
    num_steps: int
    num_equal: int
    difference: Difference | None
    cells: tuple[Pair, ...]
    phases: tuple[Pair, ...]
    outcomes: tuple[Pair, ...]
    kind: str
    notes: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether every decision of the run is the simulator's, bit for bit."""
        return self.difference is None

    def document(self) -> dict[str, Any]:
        """The same as plain data; unknown numbers are None."""
        document = asdict(self)
        for name in ("cells", "phases", "outcomes"):
            document[name] = [asdict(pair) | {"error": pair.error} for pair in getattr(self, name)]
        plain: dict[str, Any] = _without_nan({"equal": self.equal} | document)
        return plain


def parity(
    folder: str | Path, trace: str | Path | None = None, report: Callable[[int, int], None] = lambda done, total: None
) -> Parity:
    """Take a recorded live run again, and predict it.

    folder  of the run
    trace   a position-indexed trace of the same prompts, for an exact prediction (None: there is none)
    report  called with the steps done and all steps
    Raises  InputError for a folder or trace that is not what it should be
    """
    run = LiveRun.open(folder)
    joined = None if trace is None else Trace.open(trace)
    rerun = Rerun(run)
    taken = []
    for step in rerun.steps():
        taken.append(step)
        report(len(taken), len(run.steps))
    facts = run.facts
    notes = _facts_to_know(run)
    prediction, why = _predict(run, joined)
    kind = "none" if prediction is None else "exact" if prediction.exact else "estimate"
    return Parity(
        folder=str(folder),
        controller=facts.controller.text,
        model=facts.model,
        drafters=tuple(facts.drafters),
        device=facts.device,
        dtype=facts.dtype,
        acceptance=facts.acceptance,
        table=facts.cost.name,
        num_requests=len(facts.submissions),
        num_steps=len(run.steps),
        num_equal=len(taken),
        difference=rerun.difference,
        cells=tuple(step_seconds(taken, run.steps["prefill_tokens"][: len(taken)])),
        phases=tuple(phase_seconds(taken)),
        outcomes=() if prediction is None else tuple(outcomes(run, prediction)),
        kind=kind,
        notes=(*notes, *why, *(prediction.notes if prediction else ())),
    )


def _predict(run: LiveRun, trace: Trace | None) -> tuple[Prediction | None, list[str]]:
    """The prediction, and what is to be said of it. A trace that does not fit is an error; a missing price is not."""
    if trace is not None:
        found = predict(run, trace)
        return found, _reservations(found, given=True)
    try:
        found = predict(run)
    except InputError as error:
        return None, [f"no prediction: {error}"]
    return found, _reservations(found, given=False)


def _reservations(found: Prediction, given: bool) -> list[str]:
    """What keeps a prediction from being exact."""
    said = []
    if found.contradicted:
        said.append(f"{found.contradicted} blocks of the run are accepted otherwise in the trace given")
    if found.resampled:
        said.append(
            f"estimate: {found.resampled} of {found.num_blocks} blocks lie where the run never was, and are resampled "
            "from where it was; --trace with a position-indexed trace of the same prompts makes it exact"
        )
    if found.censored:
        said.append(
            f"estimate: {found.censored} of {found.num_blocks} blocks were verified less far in the run, so accepted "
            "drafts are undercounted there" + ("" if given else "; --trace makes it exact")
        )
    return said


def _facts_to_know(run: LiveRun) -> list[str]:
    facts, said = run.facts, []
    if facts.acceptance:
        said.append(f"the outputs are not the target's own: {facts.acceptance}")
    ends = [one.end for one in facts.submissions]
    for end in ("cancelled", "failed", "unfinished"):
        if end in ends:
            said.append(f"{ends.count(end)} requests {end}: simulated to the length they reached, not in latencies")
    if facts.num_scores_zeroed:
        said.append(f"{facts.num_scores_zeroed} scores were no finite number and are taken as 0")
    return said


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
