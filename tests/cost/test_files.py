from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.cost import Cell, CostTable
from specsim.cost.cells import sha256
from specsim.cost.files import CELLS, MANIFEST
from specsim.errors import InputError
from tests.cost.tables import captured_tables, draft, drafter, eager_tables, table, verify


@pytest.fixture
def folder(tmp_path):
    cells = [*verify({(1, 1): 0.1, (1, 16): 0.2, (4, 4): 0.15, (4, 64): 0.5}), *draft({(1, 8): 0.01, (4, 8): 0.02})]
    table([*cells, Cell("host", 0.001, 1), Cell("host", 0.001, 4)]).save(tmp_path / "costs")
    return tmp_path / "costs"


def rewrite_cells(folder, change):
    """Replace cells.parquet by `change` of its table, and make the manifest agree."""
    pq.write_table(change(pq.read_table(folder / CELLS)), folder / CELLS)
    rewrite_manifest(folder, cells_sha256=sha256((folder / CELLS).read_bytes()))


def rewrite_manifest(folder, **changes):
    manifest = json.loads((folder / MANIFEST).read_text()) | changes
    (folder / MANIFEST).write_text(json.dumps({key: value for key, value in manifest.items() if value != "DROP"}))


def refused(folder) -> str:
    with pytest.raises(InputError) as error:
        CostTable.open(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def complaint(folder) -> str:
    """What is said of a folder, empty when it holds a table that answers. Anything but an InputError is raised."""
    try:
        CostTable.open(folder, extrapolate=True).step_cost(drafter(target_fraction=0.1), 1, 8, 0.0)
    except InputError as error:
        return str(error)
    return ""


@settings(max_examples=20)
@given(made=st.one_of(eager_tables(), captured_tables()))
def test_a_saved_table_comes_back_equal(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    made.save(folder)
    back = CostTable.open(folder)
    assert back.cells == made.cells
    assert back.meta.model_copy(update={"cells_sha256": None}) == made.meta


def test_saving_again_replaces_the_table(folder):
    table(verify({(1, 1): 9.0})).save(folder)
    assert CostTable.open(folder).cells == tuple(verify({(1, 1): 9.0}))
    assert sorted(path.name for path in folder.iterdir()) == [CELLS, MANIFEST]


def test_extrapolation_is_off_unless_asked_for(folder):
    with pytest.raises(InputError, match="verify batch 5"):
        CostTable.open(folder).step_cost(None, 5, 0, 0.0)
    assert CostTable.open(folder, extrapolate=True).step_cost(None, 5, 0, 0.0).seconds[0] > 0.15


@pytest.mark.parametrize("column", ["phase", "seconds", "batch", "tokens", "depth", "context", "drafter", "provenance"])
def test_a_missing_column_is_named(folder, column):
    rewrite_cells(folder, lambda cells: cells.drop_columns([column]))
    assert refused(folder) == f"{folder / CELLS}: column {column} is missing"


def test_an_unknown_column_is_named(folder):
    rewrite_cells(folder, lambda cells: cells.append_column("secnods", cells.column("seconds")))
    assert f"{folder / CELLS}: unknown column secnods (allowed: phase, seconds," in refused(folder)


def replace(cells: pa.Table, column: str, values: list) -> pa.Table:
    return cells.set_column(cells.column_names.index(column), column, [values])


@pytest.mark.parametrize(
    ("column", "first", "said"),
    [
        ("seconds", -0.1, "row 0: seconds is -0.1"),
        ("seconds", float("nan"), "row 0: seconds is nan"),
        ("seconds", None, "column seconds has nulls"),
        ("phase", "verfy", "row 0: phase 'verfy' is not one of verify, draft"),
        ("provenance", "heard", "row 0: provenance 'heard' is not one of"),
        ("batch", None, "column batch has nulls"),
        ("batch", 0, "row 0: batch is 0"),
        ("tokens", None, "row 0: tokens is None but needed"),
        ("tokens", 16, "row 1: duplicate cell"),
    ],
)
def test_a_bad_value_is_named_with_its_row(folder, column, first, said):
    rewrite_cells(folder, lambda cells: replace(cells, column, [first, *cells.column(column).to_pylist()[1:]]))
    assert f"{folder / CELLS}: {said}" in refused(folder)


@pytest.mark.parametrize("column", ["batch", "seconds"])
def test_a_column_of_the_wrong_type_is_named(folder, column):
    rewrite_cells(folder, lambda cells: replace(cells, column, ["few"] * len(cells)))
    assert f"{folder / CELLS}: column {column} is not" in refused(folder)


def test_a_batch_that_is_no_whole_number_is_refused(folder):
    rewrite_cells(folder, lambda cells: replace(cells, "batch", [1.5] * len(cells)))
    assert "column batch is not int64" in refused(folder)


def test_text_that_is_not_utf_8_is_refused(folder):
    def garble(cells: pa.Table) -> pa.Table:
        text = pa.array([b"\x80"] * len(cells), pa.binary())
        return replace(cells, "phase", pa.Array.from_buffers(pa.string(), len(cells), text.buffers()))

    rewrite_cells(folder, garble)
    assert "column phase is not string" in refused(folder)


def test_narrower_columns_are_widened(folder):
    before = CostTable.open(folder).cells
    rewrite_cells(
        folder, lambda cells: replace(cells, "batch", cells.column("batch").cast(pa.int16()).combine_chunks())
    )
    assert CostTable.open(folder).cells == before


def test_cells_that_the_manifest_did_not_hash_are_refused(folder):
    table(verify({(1, 1): 9.0})).save(folder.parent / "other")
    (folder / CELLS).write_bytes((folder.parent / "other" / CELLS).read_bytes())
    assert f"{folder / CELLS}: sha256 is" in refused(folder)


def test_a_truncated_file_is_refused_even_with_a_matching_hash(folder):
    data = (folder / CELLS).read_bytes()
    (folder / CELLS).write_bytes(data[: len(data) // 2])
    rewrite_manifest(folder, cells_sha256=sha256((folder / CELLS).read_bytes()))
    assert "not a readable Parquet file" in refused(folder)


def test_a_table_without_cells_file_is_refused(folder):
    (folder / CELLS).unlink()
    assert f"{folder / CELLS}: cannot be read" in refused(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"label": "guessed"}, "label"),
        ({"lable": "measured"}, "lable"),
        ({"source": "DROP"}, "source"),
        ({"licence": ""}, "licence"),
        ({"date": "yesterday"}, "date"),
        ({"capture_sizes": [16, 8]}, "capture sizes must rise"),
        ({"capture_sizes": [8, 8]}, "capture sizes must rise"),
        ({"capture_sizes": [0]}, "capture_sizes"),
        ({"capture_sizes": [100]}, "row 0: tokens is 1, but a step of that size is padded"),
        ({"ranges": {"batch": [1, 4]}}, "ranges.tokens"),
        ({"cells_sha256": None}, "sha256"),
    ],
)
def test_a_wrong_manifest_is_refused_by_key(folder, changes, said):
    rewrite_manifest(folder, **changes)
    assert said in refused(folder)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"name": NaN}'])
def test_a_manifest_that_is_no_json_object_is_refused(folder, text):
    (folder / MANIFEST).write_bytes(text)
    assert str(folder / MANIFEST) in refused(folder)


@settings(max_examples=60)
@given(cut=st.integers(0, 4000), place=st.integers(0, 4000), byte=st.integers(0, 255), hashed=st.booleans())
def test_a_damaged_file_is_an_input_error_or_a_table(cut, place, byte, hashed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    table([*verify({(1, 1): 0.1, (1, 16): 0.2}), *draft({(1, 8): 0.01})]).save(folder)
    data = bytearray((folder / CELLS).read_bytes())
    data[place % len(data)] = byte
    (folder / CELLS).write_bytes(bytes(data[: max(cut, 1)]))
    if hashed:
        rewrite_manifest(folder, cells_sha256=sha256((folder / CELLS).read_bytes()))
    assert "\n" not in complaint(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=80)
@given(data=st.data())
def test_a_damaged_manifest_is_an_input_error_or_a_table(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    table(verify({(1, 1): 0.1, (1, 16): 0.2})).save(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    key = data.draw(st.sampled_from(sorted(manifest)) | st.text(max_size=8))
    (folder / MANIFEST).write_text(json.dumps(manifest | {key: data.draw(JSON)}))
    assert "\n" not in complaint(folder)
