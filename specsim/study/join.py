"""Several studies shown as one: different traces, or loads that differ from table to table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from specsim.errors import InputError
from specsim.study.findings import findings
from specsim.study.result import StudyResult


def join(results: Sequence[StudyResult], title: str, command: str) -> StudyResult:
    """The cells of several studies in one result.

    results     of different traces or cost tables; a table that several share is told apart by the trace
    title       heading of the whole
    command     the command that makes it again
    Raises      InputError when two studies have the same table and trace, or other engines or seeds
    """
    first = results[0]
    for other in results[1:]:
        if (other.engine, other.seeds) != (first.engine, first.seeds):
            raise InputError("studies of different engines or seeds cannot be shown as one")
    shared = _shared([table for result in results for table in dict.fromkeys(cell.table for cell in result.cells)])
    names = [_names(result, shared) for result in results]
    everywhere = [name for own in names for name in own.values()]
    if len(set(everywhere)) != len(everywhere):
        raise InputError("two studies of the same trace and cost table cannot be shown as one")
    cells = [
        dataclasses.replace(cell, table=own[cell.table])
        for result, own in zip(results, names, strict=True)
        for cell in result.cells
    ]
    return StudyResult(
        title=title,
        command=command,
        created_at=max(result.created_at for result in results),
        version=first.version,
        trace={result.trace["name"]: _described(result.trace) for result in results},
        tables=[
            table | {"name": own[table["name"]]}
            for result, own in zip(results, names, strict=True)
            for table in result.tables
        ],
        engine=first.engine,
        workload=_workload(results, names),
        seeds=first.seeds,
        cells=cells,
        drafters=list({(s.name, s.domain): s for result in results for s in result.drafters}.values()),
        findings=findings(cells),
        notes=_notes(results, names),
        policies=_policies(results),
    )


def _shared(tables: list[str]) -> set[str]:
    return {table for table in tables if tables.count(table) > 1}


def _names(result: StudyResult, shared: set[str]) -> dict[str, str]:
    """The study's tables under the names they have in the whole."""
    tables = dict.fromkeys(cell.table for cell in result.cells)
    return {table: f"{table}, {result.trace['name']}" if table in shared else table for table in tables}


def _described(trace: dict[str, Any]) -> str:
    origin = (
        "made up" if trace["synthetic"] else f"recorded on {trace['hardware']}" if trace["hardware"] else "recorded"
    )
    drafters = ", ".join(trace["drafters"])
    return f"{origin}; target {trace['target']}; drafters {drafters}; {trace['requests']} requests"


def _workload(results: Sequence[StudyResult], names: list[dict[str, str]]) -> dict[str, Any]:
    """What all have in common, and by table what they have not."""
    workloads = [result.workload for result in results]
    common = {key: value for key, value in workloads[0].items() if all(w.get(key) == value for w in workloads)}
    for workload, own in zip(workloads, names, strict=True):
        for key, value in workload.items():
            if key not in common:
                common |= {f"{key}, {name}": value for name in own.values()}
    return common


def _policies(results: Sequence[StudyResult]) -> dict[str, str]:
    """What each label stands for; both, where two studies call two policies the same."""
    texts: dict[str, dict[str, None]] = {}
    for result in results:
        for label, text in result.policies.items():
            texts.setdefault(label, {})[text] = None
    return {label: " or ".join(found) for label, found in texts.items()}


def _notes(results: Sequence[StudyResult], names: list[dict[str, str]]) -> list[str]:
    notes: dict[str, None] = {}
    for result, own in zip(results, names, strict=True):
        for note in result.notes:
            table, colon, rest = note.partition(": ")
            notes[f"{own[table]}: {rest}" if colon and table in own else note] = None
    return list(notes)
