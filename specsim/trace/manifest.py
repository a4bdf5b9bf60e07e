"""`manifest.json`: what a trace is, how it was made, and the sha256 of every file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from specsim.core import SCORES, DrafterSpec, DraftLaw, DraftStructure, Score
from specsim.errors import InputError

SCHEMA_VERSION = 1

MANIFEST_FILE = "manifest.json"
REQUESTS_FILE = "requests.parquet"
BLOCKS_FILE = "blocks.parquet"
STEPS_FILE = "steps.parquet"

DATA_FILE = re.compile(r"(requests|blocks|steps)\.parquet|blocks/[A-Za-z0-9_.-]+\.parquet")
"""The names a trace's data files may have, relative to its folder."""

TraceKind = Literal["position_indexed", "trajectory"]
"""Whether every output position has a row for every drafter, or only those one policy visited."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Record(BaseModel):
    """A part of the manifest: unknown keys and silent conversions are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class DrafterEntry(Record):
    """A drafter as recorded: the fields of `core.DrafterSpec`, and how its confidence was made.

    score_source  one sentence: what the `confidence` column holds and how it was computed
    """

    name: Annotated[str, Field(min_length=1)]
    kind: Annotated[str, Field(min_length=1)]
    law: DraftLaw
    structure: DraftStructure
    scores: Annotated[tuple[Score, ...], Field(strict=False)]
    max_depth: Annotated[int, Field(ge=1)]
    max_context: Annotated[int, Field(ge=1)] | None = None
    passes: Literal["per_depth", "per_block"] = "per_block"
    target_fraction: Annotated[float, Field(ge=0.0)] | None = None
    score_source: str

    @field_validator("scores")
    @classmethod
    def _scores_are_distinct(cls, scores: tuple[Score, ...]) -> tuple[Score, ...]:
        if len(set(scores)) != len(scores):
            raise ValueError(f"scores {list(scores)} repeat; allowed: each of {list(SCORES)} at most once")
        return scores

    @property
    def spec(self) -> DrafterSpec:
        """What a controller may know of this drafter."""
        return DrafterSpec(**self.model_dump(exclude={"score_source"}))

    @classmethod
    def of(cls, spec: DrafterSpec, score_source: str) -> DrafterEntry:
        """The entry of `spec`, whose confidence was made as `score_source` says."""
        names = [name for name in cls.model_fields if name != "score_source"]
        return cls(**{name: getattr(spec, name) for name in names}, score_source=score_source)


class Sampling(Record):
    """How the target's tokens were chosen. Temperature 0 is greedy."""

    temperature: Annotated[float, Field(ge=0.0)] = 0.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Fraction | None = None
    seed: int | None = None
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None


class PromptSet(Record):
    """Where prompts came from."""

    name: str
    num_prompts: Annotated[int, Field(ge=1)]
    origin: str = ""
    licence: str = ""
    sha256: Sha256 | None = None


class Manifest(Record):
    """What a trace is, how it was made, and the sha256 of every file.

    name            the trace's name, shown in tables and reports
    recorded_by     program and version that wrote it
    how             one or two sentences: the method and the command
    synthetic       true when acceptance was made up by a model of it, not recorded from one
    target          name of the target model
    model_hash      sha256 of the target's weights file (None: unknown)
    tokenizer_hash  sha256 of the tokenizer file (None: unknown)
    hardware        what it was recorded on
    versions        library name -> version
    licence         licence of the trace's data
    files           data file -> sha256; filled by `TraceWriter.finish`
    """

    schema_version: int = SCHEMA_VERSION
    name: Annotated[str, Field(min_length=1)]
    kind: TraceKind = "position_indexed"
    recorded_by: str
    how: str
    synthetic: bool = False
    target: str
    drafters: Annotated[tuple[DrafterEntry, ...], Field(min_length=1, strict=False)]
    sampling: Sampling = Sampling()
    model_hash: Sha256 | None = None
    tokenizer_hash: Sha256 | None = None
    hardware: str = ""
    versions: dict[str, str] = {}
    prompt_sets: Annotated[tuple[PromptSet, ...], Field(strict=False)] = ()
    licence: str
    files: dict[str, Sha256] = {}

    @field_validator("schema_version")
    @classmethod
    def _version_is_known(cls, version: int) -> int:
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema version {version} is not supported; allowed: {SCHEMA_VERSION}")
        return version

    @field_validator("files")
    @classmethod
    def _files_are_data_files(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            if not DATA_FILE.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a data file; allowed: {REQUESTS_FILE}, {BLOCKS_FILE}, "
                    f"blocks/*.parquet, {STEPS_FILE}"
                )
        return files

    @model_validator(mode="after")
    def _drafter_names_are_distinct(self) -> Manifest:
        names = [drafter.name for drafter in self.drafters]
        if len(set(names)) != len(names):
            raise ValueError(f"drafters {names} repeat a name; allowed: each name once")
        return self

    @property
    def specs(self) -> tuple[DrafterSpec, ...]:
        """The drafters as controllers know them, in manifest order: index = arm."""
        return tuple(drafter.spec for drafter in self.drafters)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the trace in `folder`.

    Raises InputError for a missing, unreadable or invalid manifest, naming the key and what is allowed.
    """
    path = folder / MANIFEST_FILE
    try:
        record = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_distinct_keys)
    except FileNotFoundError:
        raise InputError(f"{path}: missing; allowed: a trace folder holds it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON object: {_first_line(error)}; allowed: UTF-8 JSON") from None
    return parse_manifest(record, path)


def parse_manifest(record: Any, path: Path) -> Manifest:
    """`record` as a manifest; `path` names it in errors.

    The schema version is looked at first: another version's keys would only confuse.
    """
    if not isinstance(record, dict):
        raise InputError(f"{path}: a {type(record).__name__}; allowed: a JSON object")
    version = record.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise InputError(f"{path}: schema_version {version!r} is not supported; allowed: {SCHEMA_VERSION}")
    try:
        return Manifest.model_validate(record)
    except ValidationError as error:
        raise InputError(f"{path}: {describe_invalid(error, Manifest)}") from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest` to `folder`, complete or not at all."""
    text = json.dumps(manifest.model_dump(mode="json"), indent=2, ensure_ascii=False)
    temporary = folder / f".{MANIFEST_FILE}.partial"
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(folder / MANIFEST_FILE)


def describe_invalid(error: ValidationError, model: type[BaseModel]) -> str:
    """The first fault of `error` as one line: key, value, what is allowed."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"unknown key {where!r}; allowed: {_allowed_keys(model, fault['loc'])}"
    if fault["type"] == "missing":
        return f"key {where!r} is missing; allowed: required in every manifest"
    message = _first_line(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "value_error":  # one of ours, which says what is allowed
        return message
    allowed = re.sub(r"^\w+ should (be |have |match )?", "", message)
    return f"key {where!r} is {_short(fault['input'])}; allowed: {allowed}"


def _allowed_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    owners: dict[str, type[BaseModel]] = {"drafters": DrafterEntry, "sampling": Sampling, "prompt_sets": PromptSet}
    owner = owners.get(str(location[0]), model) if len(location) > 1 else model
    return ", ".join(owner.model_fields)


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {repeated!r} appears twice")
    return record


def _first_line(error: object) -> str:
    return " ".join(str(error).split())


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
