"""docs/traces.md shows the schema that the code has, and code that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specsim.trace import Manifest, Trace
from specsim.trace.schema import BLOCK_COLUMNS, REQUEST_COLUMNS, STEP_COLUMNS, Column
from specsim.trace.statistics import walk

PAGE = Path(__file__).resolve().parents[2] / "docs" / "traces.md"


def table(columns: tuple[Column, ...]) -> str:
    """The columns as the page's Markdown table."""
    lines = ["| column | type | meaning, unit, range |", "|---|---|---|"]
    for column in columns:
        kind = str(column.type).replace("dictionary<values=string, indices=int32, ordered=0>", "string")
        kind = re.sub(r"list<\w+: (\w+)>", r"list of \1", kind)
        asides = [word for word, holds in (("optional", column.optional), ("nullable", column.nullable)) if holds]
        aside = f" ({', '.join(asides)})" if asides else ""
        lines.append(f"| `{column.name}` | {kind}{aside} | {column.meaning} |")
    return "\n".join(lines)


@pytest.mark.parametrize("columns", [REQUEST_COLUMNS, BLOCK_COLUMNS, STEP_COLUMNS])
def test_the_page_shows_every_column_as_the_code_has_it(columns):
    assert table(columns) in PAGE.read_text()


def test_the_page_names_every_key_of_the_manifest():
    shown = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert set(Manifest.model_fields) <= set(shown)


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(code, scope)
    mine = Trace.open("mine", verify_hashes=True)
    assert mine.validate().num_requests == 1
    assert walk(mine, 0).num_steps == 2
    assert Trace.open("made-up").manifest.synthetic
