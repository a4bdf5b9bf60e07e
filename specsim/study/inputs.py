"""Opens what a study names: its trace and its cost tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specsim.config import StudyConfig
from specsim.core import DrafterSpec
from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.shipped import shipped_path
from specsim.trace import Trace, TraceLike
from specsim.trace.presets import PRESETS

MADE_UP = "synthetic:"


def open_trace(name: str, domains: list[str] | None = None) -> TraceLike:
    """The trace of that name.

    name        a folder, the name of a shipped trace, or synthetic:PRESET for a made-up one
    domains     the domains to keep (None: all)
    Raises      InputError when there is none, or it lacks a domain
    """
    if name.startswith(MADE_UP):
        return _made_up(name.removeprefix(MADE_UP), domains)
    trace = Trace.open(shipped_path("trace", name))
    return trace if domains is None else trace.slice(domains=domains)


def _made_up(preset: str, domains: list[str] | None) -> TraceLike:
    if preset not in PRESETS:
        raise InputError(f"trace {MADE_UP}{preset}: unknown preset; allowed: {', '.join(PRESETS)}")
    if domains is not None:
        raise InputError(
            f"trace {MADE_UP}{preset}: a made-up trace is not cut by domain; write it with `specsim trace preset` first"
        )
    return PRESETS[preset]()


def open_table(path: str, prices: dict[str, str], extrapolate: bool = False) -> CostTable:
    """The cost table of that name, with what-if prices.

    path        a folder, or the name of a shipped table
    prices      drafter of the trace -> drafter of the table
    extrapolate answer outside the measured range, with a note
    Raises      InputError when there is none, or it lacks a drafter
    """
    table = CostTable.open(path, extrapolate=extrapolate)
    return table.with_draft_costs(prices) if prices else table


def check_prices(prices: Mapping[str, str], drafters: Sequence[DrafterSpec]) -> None:
    """Raise InputError for a price of a drafter that the trace lacks."""
    names = [drafter.name for drafter in drafters]
    for drafter in prices:
        if drafter not in names:
            raise InputError(f"draft cost of {drafter!r}: the trace has no such drafter; it has {', '.join(names)}")


def open_inputs(study: StudyConfig) -> tuple[TraceLike, list[CostTable]]:
    """The trace and the tables of a study.

    Raises  InputError when one is missing, a price names a drafter that the trace lacks, or two tables share a name
    """
    trace = open_trace(study.trace, study.domains)
    tables = []
    for section in study.tables:
        prices = study.draft_costs | section.draft_costs
        check_prices(prices, trace.drafters)
        tables.append(open_table(section.path, prices, study.extrapolate))
    names = [table.name for table in tables]
    if len(set(names)) != len(names):
        raise InputError(f"cost tables {', '.join(names)}: two share a name, so results could not be told apart")
    return trace, tables
