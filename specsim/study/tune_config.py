"""What a tuning is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationError, model_validator

from specsim.config import Count, EngineSection, Section, Seed, Seeds, Text
from specsim.errors import InputError
from specsim.policies.config import ControllerConfig

Objective: TypeAlias = Literal["throughput", "p99_tpot"]
Half: TypeAlias = Literal["tuning", "validation"]


class TuneConfig(Section):
    """Options of one policy, searched on half of a trace's requests and judged on the other half."""

    trace: Text = Field(description="folder of the trace, the name of a shipped one, or synthetic:NAME")
    domains: list[Text] | None = Field(default=None, description="domains of the trace to replay; absent: all")
    table: Text = Field(description="cost table: folder, or the name of a shipped one")
    draft_costs: dict[str, str] = Field(
        default_factory=dict, description="drafter of the trace -> drafter of the table whose price it pays"
    )
    policy: ControllerConfig = Field(description="the controller to start from; its options are what others must beat")
    search: list[Text] = Field(
        default_factory=list,
        description="OPTION, OPTION=LOW..HIGH[:log] or OPTION=VALUE,VALUE; none: every option with a space of its own",
    )
    objective: Objective = Field(default="throughput", description="what to make better")
    batches: Annotated[list[Count], Field(min_length=1)] = Field([1, 4, 16], description="concurrencies")
    requests: Count | None = Field(default=None, description="finished requests that end a run; absent: by the slots")
    requests_per_slot: Count = Field(default=4, description="finished requests a slot that end a run, 16 at least")
    trials: Count = Field(default=40, description="combinations tried, the untuned one included")
    seeds: Seeds = Field([0, 1, 2], description="runs of every trial on the tuning half; a number n means 0 to n - 1")
    validation_seeds: Annotated[Seeds, Field(min_length=2)] = Field(
        list(range(10)), description="runs of default and tuned on each half; one would leave the gain no interval"
    )
    seed: Seed = Field(default=0, le=2**32 - 1, description="of the split of the requests and of the sampler")
    engine: EngineSection = Field(default=EngineSection(), description="limits of one replica")
    allow_lossy: bool = Field(default=False, description="accept options that change the output's law, and mark them")
    extrapolate: bool = Field(default=False, description="use the cost table outside what it measured, and mark it")

    @model_validator(mode="after")
    def _distinct(self) -> TuneConfig:
        for name in ("batches", "seeds", "validation_seeds"):
            values: Sequence[int] = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name} {values} repeats a value")
        if self.policy.state is not None:
            raise ValueError("the policy brings a learned state, and tuning starts from policies that learned nothing")
        return self


def build_tuning(document: dict[str, Any]) -> TuneConfig:
    """A tuning from plain data.

    Raises  InputError naming the key and what is allowed
    """
    try:
        return TuneConfig.model_validate(document)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        message = " ".join(fault["msg"].split()).removeprefix("Value error, ")
        given = "" if fault["type"] == "missing" or not where else f" is {fault['input']!r}"
        raise InputError(
            f"tune: {where}{given}: {message[:1].lower()}{message[1:]}" if where else f"tune: {message}"
        ) from None
