"""A valid trace spoiled at random is refused with one line; a damaged file never gives anything but InputError."""

from __future__ import annotations

import contextlib
import io
import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from specsim.cli.main import run
from specsim.errors import InputError
from specsim.trace import Trace
from tests.trace.traces import drop_row, edit_manifest, repeat_row, reseal, set_value, spoil

NUM_ROWS = 38  # rows of the blocks of the small trace
rows = st.integers(0, NUM_ROWS - 1)
outside = st.one_of(
    st.floats(1.0, exclude_min=True, width=32), st.floats(max_value=-0.0078125, width=32), st.just(math.nan)
)


@st.composite
def block_faults(draw):
    """A change of the blocks table that makes it invalid, whatever row it hits."""
    row = draw(rows)
    kind = draw(st.sampled_from(["counts", "confidence", "length", "key", "missing", "twice", "column", "null"]))
    if kind == "counts":
        column = draw(st.sampled_from(["num_drafts", "num_accepted", "num_verified"]))
        return set_value(column, row, draw(st.integers(5, 2**15 - 1) | st.integers(-(2**15), -1)))
    if kind == "confidence":
        value = draw(outside)
        return lambda table: set_value("confidence", row, _with_entry(table, row, value))(table)
    if kind == "length":
        return lambda table: set_value("confidence", row, [*table.column("confidence")[row].as_py(), 0.5])(table)
    if kind == "key":
        column, value = draw(
            st.sampled_from([("position", 9), ("position", -1), ("drafter", "eagle"), ("request_id", 1)])
        )
        return set_value(column, row, value)
    if kind == "null":
        column = draw(
            st.sampled_from(["request_id", "position", "drafter", "num_drafts", "num_verified", "confidence"])
        )
        return set_value(column, row, None)
    if kind == "column":
        column = draw(st.sampled_from(["request_id", "position", "num_accepted", "confidence"]))
        return lambda table: table.drop_columns([column])
    return drop_row(row) if kind == "missing" else repeat_row(row)


def _with_entry(table, row: int, value: float) -> list[float]:
    """The row's confidences with one of them replaced; with one more when it has none."""
    entries = table.column("confidence")[row].as_py()
    return [value, *entries[1:]]


@st.composite
def manifest_faults(draw):
    key = draw(st.sampled_from(["schema_version", "name", "kind", "drafters", "target", "synthetic", "files", "novel"]))
    value = draw(st.sampled_from([None, 7, -1.5, [], [1], {"a": 1}]))
    if key == "files":
        value = draw(st.sampled_from([None, 7, [], {}, {"requests.parquet": "0" * 64}]))
    return lambda record: record.update({key: value})


def judged(folder: Path) -> tuple[int, list[str]]:
    """Exit code and lines on stderr of `specsim trace validate`."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = run(["trace", "validate", str(folder)])
    return code, errors.getvalue().splitlines()


@contextlib.contextmanager
def copied(template: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield shutil.copytree(template, Path(place) / "trace")


def test_the_command_accepts_the_trace_that_is_spoiled_below(template):
    assert judged(template) == (0, [])


@settings(max_examples=80)
@given(fault=block_faults())
def test_spoiled_blocks_give_one_line_and_exit_code_2(template, fault):
    with copied(template) as folder:
        spoil(folder, "blocks.parquet", fault)
        code, lines = judged(folder)
        assert code == 2
        assert len(lines) == 1
        assert "blocks.parquet: " in lines[0]
        assert "allowed: " in lines[0]


@settings(max_examples=30)
@given(fault=manifest_faults())
def test_a_spoiled_manifest_gives_one_line_and_exit_code_2(template, fault):
    with copied(template) as folder:
        edit_manifest(folder, fault)
        code, lines = judged(folder)
        assert code == 2
        assert len(lines) == 1
        assert "allowed: " in lines[0]


@settings(max_examples=80)
@example(file="manifest.json", place=1 - 2**-53, damage=b"\0", cut=True, fitting_hash=False)
@given(
    file=st.sampled_from(["requests.parquet", "blocks.parquet", "manifest.json"]),
    place=st.floats(0, 1, exclude_max=True),
    damage=st.binary(min_size=1, max_size=8),
    cut=st.booleans(),
    fitting_hash=st.booleans(),
)
def test_damaged_bytes_never_give_a_traceback(template, file, place, damage, cut, fitting_hash):
    with copied(template) as folder:
        content = (folder / file).read_bytes()
        at = int(place * len(content))
        (folder / file).write_bytes(content[:at] if cut else content[:at] + damage + content[at + len(damage) :])
        if fitting_hash and file != "manifest.json":
            reseal(folder)
        code, lines = judged(folder)
        assert (code, len(lines)) in ((0, 0), (2, 1))
        changed = (folder / file).read_bytes().rstrip() != content.rstrip()  # JSON may lose its last newline
        if changed and (cut or (file != "manifest.json" and not fitting_hash)):
            assert code == 2
        with contextlib.suppress(InputError):  # read without looking at hashes first
            trace = Trace.open(folder)
            for index in range(len(trace)):
                for arm in range(len(trace.drafters)):
                    trace.blocks(index, arm)
