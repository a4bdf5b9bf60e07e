"""The manifest of a cost table: where its numbers come from, and how far they reach."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from specsim.errors import InputError

Label: TypeAlias = Literal["measured", "published", "derived", "example"]
"""Measured by specsim; published by others; computed from something else; made up for a test or a tutorial."""

Text: TypeAlias = Annotated[str, Field(min_length=1)]
Count: TypeAlias = Annotated[int, Field(ge=0)]


class Ranges(BaseModel):
    """Where the table may be asked without extrapolating, both ends included.

    batch     running requests
    tokens    verified tokens of a step, one anchor a request included
    context   mean sequence length; may reach further than the cells where the source does not resolve it
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: tuple[Count, Count]
    tokens: tuple[Count, Count]
    context: tuple[Count, Count]


class CostMeta(BaseModel):
    """What a cost table says of itself.

    name            the table's name
    label           how its numbers were got
    engine          what ran the steps
    versions        library versions, by name
    hardware        device, and how many
    dtype           weights and activations
    model           the target
    date            when it was measured, or published
    source          who measured it, where it can be read
    licence         terms of the numbers
    method          how the cells were made
    capture_sizes   token buckets of the captured graphs, rising; empty when every step runs eagerly
    ranges          validity; None: the span of the cells
    remarks         what a reader should know before using it
    cells_sha256    hash of cells.parquet
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    name: Text
    label: Label
    engine: Text
    versions: dict[str, str] = {}
    hardware: Text
    dtype: Text
    model: Text
    date: datetime.date
    source: Text
    licence: Text
    method: str = ""
    capture_sizes: tuple[Annotated[int, Field(ge=1)], ...] = ()
    ranges: Ranges | None = None
    remarks: tuple[str, ...] = ()
    cells_sha256: str | None = None

    @field_validator("capture_sizes")
    @classmethod
    def _rising(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if any(later <= earlier for earlier, later in pairwise(sizes)):
            raise ValueError(f"capture sizes must rise, got {list(sizes)}")
        return sizes

    @property
    def eager(self) -> bool:
        """Whether no step runs as a captured graph."""
        return not self.capture_sizes


def parse_meta(text: str | bytes, where: str) -> CostMeta:
    """Read a manifest.

    text     JSON
    where    the file, for the error
    Raises   InputError naming the first key that is wrong
    """
    try:
        return CostMeta.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(f"{where}: {key}: {first['msg']}".replace("\n", " ")) from None
