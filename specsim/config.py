"""What a study file may say, in YAML or TOML: an unknown key is an error, and so is a wrong value."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from specsim.errors import InputError
from specsim.policies.config import ControllerConfig


def _no_truth_value(value: Any) -> Any:
    """To Python true and false are the numbers 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a number is expected, not true or false")
    return value


Number = BeforeValidator(_no_truth_value)
Count = Annotated[int, Number, Field(ge=1, le=2**31 - 1)]
Seed = Annotated[int, Number, Field(ge=0, le=2**63 - 1)]
Positive = Annotated[float, Number, Field(gt=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]

MOST_SEEDS = 10**4
"""Of one cell of a study: every one is a run."""


def _seeds_from_count(value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return value
    if value > MOST_SEEDS:
        raise ValueError(f"at most {MOST_SEEDS:,} are allowed")
    return list(range(value))


Seeds = Annotated[list[Seed], BeforeValidator(_seeds_from_count), Field(min_length=1)]


class Section(BaseModel):
    """A part of a study file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineSection(Section):
    """Limits of one replica; the fields of `sim.EngineConfig`."""

    max_num_seqs: Count = Field(default=256, description="most running requests")
    max_num_batched_tokens: Count = Field(
        default=8192, description="most tokens in a step: anchors, drafts, prompt chunks"
    )
    block_size: Count = Field(default=16, description="tokens a KV block")
    num_kv_blocks: Count | None = Field(default=None, description="KV blocks of a replica; absent: never the limit")
    max_model_len: Count | None = Field(default=None, description="longest sequence, prompt included; absent: no limit")
    max_tokens: Count | None = Field(default=None, description="longest output; absent: what is left of max_model_len")
    prefill: Literal["charged", "excluded"] = Field(
        default="excluded", description="`charged`: prompts are computed and paid for; `excluded`: decoding alone"
    )


class SloSection(Section):
    """Bounds of goodput."""

    ttft_seconds: Positive | None = Field(default=None, description="most seconds to the first token; absent: no bound")
    tpot_seconds: Positive | None = Field(
        default=None, description="most mean seconds a further token; absent: no bound"
    )


class TableSection(Section):
    """A cost table, and the what-if prices used with it. A text reads as its path."""

    path: Text = Field(description="folder of the table, or the name of a shipped one")
    draft_costs: dict[str, str] = Field(
        default_factory=dict, description="drafter of the trace -> drafter of this table whose price it pays"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class StudyConfig(Section):
    """Policies x loads x cost tables x seeds on one trace."""

    title: Text = Field(default="Policies compared", description="heading of tables and reports")
    trace: Text = Field(description="folder of the trace, the name of a shipped one, or synthetic:NAME")
    domains: list[Text] | None = Field(default=None, description="domains of the trace to replay; absent: all")
    tables: Annotated[list[TableSection], Field(min_length=1)] = Field(description="cost tables")
    draft_costs: dict[str, str] = Field(
        default_factory=dict, description="drafter of the trace -> drafter of every table whose price it pays"
    )
    policies: Annotated[list[ControllerConfig], Field(min_length=1)] = Field(
        description="controllers, as BUDGET[:opt=value,...][@DRAFTER[:opt=value,...]] or as mappings"
    )
    batches: list[Count] = Field(default_factory=list, description="concurrencies of a closed loop")
    rates: list[Positive] = Field(default_factory=list, description="requests a second of an open loop")
    burstiness: Positive = Field(
        1.0, description="shape of the Gamma arrivals at `rates`: 1 is Poisson, less is burstier"
    )
    requests: Count | None = Field(
        default=None, description="finished requests that end a run; absent: requests_per_slot, 64 in an open loop"
    )
    requests_per_slot: Count = Field(
        default=4, description="finished requests a slot that end a closed loop, 8 in all at least"
    )
    seeds: Seeds = Field([0, 1, 2, 3, 4], description="one run of each cell a seed; a number n means 0 to n - 1")
    engine: EngineSection = Field(default=EngineSection(), description="limits of one replica")
    slo: SloSection | None = Field(default=None, description="bounds of goodput; absent: goodput is not reported")
    clairvoyant: bool = Field(default=True, description="add the clairvoyant bound")
    allow_lossy: bool = Field(default=False, description="accept policies that change the output's law, and mark them")
    extrapolate: bool = Field(default=False, description="use cost tables outside what they measured, and mark it")

    @model_validator(mode="after")
    def _one_kind_of_load(self) -> StudyConfig:
        if bool(self.batches) == bool(self.rates):
            raise ValueError("give either batches (closed loop) or rates (open loop)")
        for name in ("batches", "rates", "seeds"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name} {values} repeats a value")
        paths = [table.path for table in self.tables]
        if len(set(paths)) != len(paths):
            raise ValueError(f"tables {paths} repeat one")
        return self


def read_study(path: str | Path) -> StudyConfig:
    """The study that a YAML or TOML file describes.

    path    ends in .yaml, .yml or .toml
    Raises  InputError naming the file, the key and what is allowed
    """
    file = Path(path)
    parse = PARSERS.get(file.suffix)
    if parse is None:
        raise InputError(f"study {file}: suffix {file.suffix!r} is unknown; allowed: {', '.join(PARSERS)}")
    try:
        document = parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"study {file}: {(error.strerror or str(error)).lower()}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"study {file}, line {line}: {error.problem or error.context}") from None
    except (ValueError, yaml.YAMLError) as error:  # TOML, bytes that are not UTF-8, characters YAML forbids
        raise InputError(f"study {file}: not readable: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise InputError(f"study {file}: it must be a mapping of keys; allowed: {', '.join(StudyConfig.model_fields)}")
    return build_study(document, f"study {file}")


def build_study(document: dict[str, Any], where: str = "study") -> StudyConfig:
    """A study from plain data.

    document    as a study file holds it
    where       what to call it in an error
    Raises      InputError naming the key and what is allowed
    """
    try:
        return StudyConfig.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_fault(error)}") from None


class _UniqueKeys(yaml.SafeLoader):  # type: ignore[misc]
    """YAML as its specification has it: a key twice in one mapping is an error, not the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} appears twice", node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _parse_yaml(text: str) -> Any:
    return yaml.load(text, _UniqueKeys)


PARSERS: dict[str, Callable[[str], Any]] = {".yaml": _parse_yaml, ".yml": _parse_yaml, ".toml": tomllib.loads}


def _first_fault(error: ValidationError) -> str:
    """The first fault as one line: the key, its value, what is allowed."""
    fault = error.errors(include_url=False)[0]
    location = fault["loc"]
    where = ".".join(str(part) for part in location)
    if fault["type"] == "extra_forbidden":
        return f"unknown key {where!r}; allowed: {', '.join(_section(location[:-1]).model_fields)}"
    if fault["type"] == "missing":
        return f"key {where!r} is missing"
    message = " ".join(fault["msg"].split()).removeprefix("Value error, ")
    if not where:
        return message
    return f"{where} is {_short(fault['input'])}: {message[:1].lower()}{message[1:]}"


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _section(location: tuple[int | str, ...]) -> type[BaseModel]:
    """The model whose keys are allowed at a place in the document."""
    model: type[BaseModel] = StudyConfig
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            model = next(iter(_models_in(model.model_fields[part].annotation)), model)
    return model


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
