"""`run.json`: what a live run was, so that its steps can be taken again without a GPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from specsim.errors import InputError
from specsim.serving.engine_config import EngineConfig

RUN_FILE = "run.json"
COST_FOLDER = "cost"
STEPS_JOURNAL = "steps.partial"
"""Steps of a run under way, records of `telemetry.STEP_DTYPE` one after the other; gone once it is closed."""

End: TypeAlias = Literal["finished", "cancelled", "failed", "unfinished"]
Count: TypeAlias = Annotated[int, Field(ge=0)]
Seconds: TypeAlias = Annotated[float, Field(ge=0.0)]


class Section(BaseModel):
    """A part of run.json: unknown keys, silent conversions and NaN are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ControllerSection(Section):
    """The controller, as it was before the first step.

    text         its configuration as a user writes it
    config       the same in full, as `ControllerConfig`, without what it had learned
    allow_lossy  whether it was allowed to change the output's law
    state        what it had learned, as `Controller.state_dict`
    """

    text: str
    config: dict[str, JsonValue]
    allow_lossy: bool
    state: dict[str, JsonValue]


class CostSection(Section):
    """The cost table it decided by, which lies beside in the folder `cost`.

    name          the table's
    cells_sha256  of its cells
    draft_costs   drafters priced as drafters of the table
    extrapolate   whether the table answered outside what it measured
    """

    name: str
    cells_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    draft_costs: dict[str, str] = {}
    extrapolate: bool = False


class EngineSection(Section):
    """`EngineConfig` as the engine resolved it: what was None and derived from the model or the memory is a number."""

    max_num_seqs: Count
    max_num_batched_tokens: Count
    block_size: Count
    num_kv_blocks: Count | None
    max_model_len: Count | None
    max_tokens: Count | None
    prefill: Literal["charged", "excluded"]

    @property
    def limits(self) -> EngineConfig:
        """The same for a scheduler."""
        return EngineConfig(**self.model_dump())


class SamplingSection(Section):
    """How one request's tokens were chosen; see `live.sampling.SamplingParams`."""

    temperature: Seconds
    top_k: Count
    top_p: float
    seed: Count


class LastBlock(Section):
    """What was drafted for a request in the step that it failed in: behind its output, so the trace cannot hold it."""

    drafter: str
    num_drafts: Count
    scores: dict[str, list[float]]


class Submission(Section):
    """One request, in order of submission.

    request_id         its row in the trace, where it emitted a token
    prompt_id          number of its prompt in a trace of the same prompts (None: not told)
    limit              output tokens it could have had
    before_step        the first step that could see it
    arrived_at         seconds on the engine's clock
    end                how it ended; `unfinished`: it still ran when the recording was closed
    num_output_tokens  tokens it emitted
    failed_in_step     step in which its law held NaN (None: it did not fail)
    first_token_at     seconds (None: it got none)
    ended_at           seconds (None: unfinished)
    """

    sequence: Count
    request_id: Count
    prompt_id: int | None = None
    domain: str
    num_prompt_tokens: Annotated[int, Field(ge=1)]
    limit: Annotated[int, Field(ge=1)]
    before_step: Count
    arrived_at: Seconds
    sampling: SamplingSection
    end: End
    num_output_tokens: Count
    failed_in_step: Count | None = None
    first_token_at: Seconds | None = None
    ended_at: Seconds | None = None
    last_block: LastBlock | None = None


class Cancellation(Section):
    """A request that was cancelled, and the step before which it left."""

    sequence: Count
    before_step: Count


class RunFile(Section):
    """Everything of a live run that its trace does not say.

    complete            false until the recording is closed: a killed run stays so
    seed                of the policies' draws
    drafters            names, index = arm
    acceptance          how its outputs are marked (empty: the target judged)
    closed_loop         clients that each submitted their next request when their last one had ended (None: requests
                        came when they came)
    num_scores_zeroed   scores that were no finite number and are 0 in the trace
    submissions         in order of submission
    cancellations       in the order they happened
    """

    schema_version: Literal[1] = 1
    complete: bool
    controller: ControllerSection
    cost: CostSection
    engine: EngineSection
    seed: Count
    model: str
    drafters: list[str]
    acceptance: str
    device: str
    dtype: str
    versions: dict[str, str]
    closed_loop: Count | None = None
    num_steps: Count = 0
    num_scores_zeroed: Count = 0
    submissions: list[Submission] = []
    cancellations: list[Cancellation] = []


def write_run_file(folder: Path, run: RunFile) -> None:
    """Write run.json, whole or not at all, and wait until it is on disk."""
    try:
        text = json.dumps(run.model_dump(mode="json"), indent=1, allow_nan=False)
    except ValueError as error:  # floats of a state that JSON has no word for
        raise InputError(f"{folder / RUN_FILE}: not to be written as JSON: {error}") from None
    partial = folder / f".{RUN_FILE}.partial"
    with partial.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / RUN_FILE)


def read_run_file(folder: Path) -> RunFile:
    """The run.json of a folder.

    Raises  InputError naming the key and what is wrong with it
    """
    path = folder / RUN_FILE
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "; allowed: a folder that a live run was recorded to"
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}{hint}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {' '.join(str(error).split())}") from None
    try:
        return RunFile.model_validate(document)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the file"
        allowed = f"; allowed: {', '.join(_keys(fault['loc'][:-1]))}" if fault["type"] == "extra_forbidden" else ""
        raise InputError(f"{path}: {where}: {fault['msg'].lower()}{allowed}") from None


SECTIONS: dict[str, type[Section]] = {
    "controller": ControllerSection,
    "cost": CostSection,
    "engine": EngineSection,
    "sampling": SamplingSection,
    "last_block": LastBlock,
    "submissions": Submission,
    "cancellations": Cancellation,
}


def _keys(location: tuple[int | str, ...]) -> list[str]:
    """Keys that may stand at a place in the document."""
    names = [part for part in location if isinstance(part, str)]
    return list(SECTIONS.get(names[-1], RunFile).model_fields) if names else list(RunFile.model_fields)
