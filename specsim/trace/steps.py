"""The optional steps table: one row an engine step of the run that a trace was recorded from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specsim.core import DrafterSpec
from specsim.telemetry import STEP_DTYPE
from specsim.trace.check import Place, check_counts
from specsim.trace.parquet import floats, integers, reading
from specsim.trace.schema import STEP_COLUMNS, arrow_schema, check_columns


def read_steps(path: Path, drafters: tuple[DrafterSpec, ...]) -> np.ndarray:
    """The steps table at `path` as records of `telemetry.STEP_DTYPE`, every value checked.

    Raises InputError naming column, row and allowed values.
    """
    with reading(path):
        table = pq.read_table(path, memory_map=True, page_checksum_verification=True, partitioning=None)
        check_columns(table.schema, STEP_COLUMNS, path)
        steps = np.zeros(len(table), STEP_DTYPE)
        place = Place(path)
        for column in STEP_COLUMNS:
            read = floats if pa.types.is_floating(column.type) else integers
            steps[column.name], there = read(table.column(column.name))
            place.require(column.name, there, lambda i: "null", "a value in every row")
    _check(steps, drafters, place)
    return steps


def steps_table(steps: np.ndarray) -> pa.Table:
    """Records of `telemetry.STEP_DTYPE` as an Arrow table of schema version 1."""
    columns = [np.ascontiguousarray(steps[column.name]) for column in STEP_COLUMNS]
    return pa.Table.from_arrays([pa.array(values) for values in columns], schema=arrow_schema(STEP_COLUMNS))


def _check(steps: np.ndarray, drafters: tuple[DrafterSpec, ...], place: Place) -> None:
    arm = steps["arm"]
    place.require("arm", (arm >= -1) & (arm < len(drafters)), lambda i: arm[i], f"-1 to {len(drafters) - 1}")
    # Where requests had different drafters the arm is that of most, and the depth that of the deepest.
    max_depth = np.where(arm >= 0, max((spec.max_depth for spec in drafters), default=0), 0)
    unlimited = np.full(len(steps), np.iinfo(np.int64).max)
    limits = {
        "depth": (max_depth, "0 to the deepest drafter's max_depth"),
        "num_drafted": (steps["batch"] * steps["depth"], "0 to batch x depth"),
        "num_verified": (steps["num_drafted"], "0 to num_drafted"),
        "num_tested": (steps["num_verified"], "0 to num_verified"),
        "num_accepted": (steps["num_tested"], "0 to num_tested"),
    }
    for column in STEP_COLUMNS:
        values = steps[column.name]
        if column.name in limits:
            check_counts(place, column.name, values, *limits[column.name])
        elif pa.types.is_floating(column.type):
            holds = np.isfinite(values) & (values >= 0.0)
            place.require(column.name, holds, lambda i, values=values: values[i], "finite seconds, at least 0")  # type: ignore[misc]
        elif column.name not in ("arm", "plan_hash"):
            check_counts(place, column.name, values, unlimited, "at least 0")
