from __future__ import annotations

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specsim.errors import InputError
from specsim.trace import RecordedBlocks, RequestRow, Trace, TraceWriter
from tests.trace.traces import (
    drafter,
    drop_row,
    edit_manifest,
    manifest,
    repeat_row,
    replace_column,
    reseal,
    retype,
    set_value,
    spoil,
    write_small,
)


def fault_of(folder) -> str:
    """The message with which the trace is refused, which must be one line."""
    with pytest.raises(InputError) as caught:
        Trace.open(folder, verify_hashes=True).validate()
    message = str(caught.value)
    assert "\n" not in message
    assert "allowed:" in message
    return message


def test_a_valid_trace_is_counted(folder):
    report = Trace.open(folder).validate()
    assert (report.num_requests, report.num_rows, report.num_steps, report.num_files) == (3, 2 * 19, 0, 2)


# Rows of the small trace: request 10 has 6 positions for `ngram` (rows 0-5), then for `exit` (rows 6-11).
BLOCK_FAULTS = {
    "null confidence": (set_value("confidence", 3, None), "column 'confidence', row 3: null"),
    "position beyond the output": (set_value("position", 5, 6), "column 'position', row 5: 6 in an output of 6 tokens"),
    "negative position": (set_value("position", 5, -1), "column 'position', row 5: -1"),
    "unknown drafter": (set_value("drafter", 2, "eagle"), "column 'drafter', row 2: 'eagle' is not a drafter"),
    "null drafter": (set_value("drafter", 2, None), "column 'drafter', row 2: null"),
    "null position": (set_value("position", 2, None), "column 'position', row 2: null"),
    "null request": (set_value("request_id", 2, None), "column 'request_id', row 2: null"),
    "unknown request": (set_value("request_id", 2, 99), "column 'request_id', row 2: request 99 is not in requests"),
    "rows of a request apart": (set_value("request_id", 37, 10), "column 'request_id', row 37: request 10 again"),
    "too many drafts": (set_value("num_drafts", 8, 4), "column 'num_drafts', row 8: 4, above 3"),
    "negative drafts": (set_value("num_drafts", 8, -1), "column 'num_drafts', row 8: -1"),
    "accepted beyond drafted": (set_value("num_accepted", 4, 5), "column 'num_accepted', row 4: 5, above"),
    "negative accepted": (set_value("num_accepted", 4, -2), "column 'num_accepted', row 4: -2"),
    "verified beyond drafted": (set_value("num_verified", 4, 5), "column 'num_verified', row 4: 5, above"),
    "negative verified": (set_value("num_verified", 4, -1), "column 'num_verified', row 4: -1"),
    "duplicate key": (repeat_row(7), "row 8: (10, 1, 'exit') appears twice"),
    "missing row": (drop_row(8), "request 10 has no row at position 2 for drafter 'exit'"),
    "missing last row": (drop_row(37), "request 12 has no row at position 3 for drafter 'exit'"),
    "missing column": (lambda table: table.drop_columns(["num_verified"]), "column 'num_verified' is missing"),
    "missing list": (lambda table: table.drop_columns(["confidence"]), "column 'confidence' is missing"),
    "float ids": (retype("request_id", pa.float64()), "column 'request_id' has type double"),
    "unsigned ids": (retype("request_id", pa.uint64()), "column 'request_id' has type uint64"),
    "float positions": (retype("position", pa.float32()), "column 'position' has type float"),
    "text counts": (
        lambda table: replace_column(table, "num_drafts", pa.array(["1"] * len(table))),
        "column 'num_drafts' has type string",
    ),
    "flat confidence": (
        lambda table: replace_column(table, "confidence", pa.array([0.5] * len(table))),
        "column 'confidence' has type double",
    ),
    "integer confidence": (
        lambda table: replace_column(table, "confidence", pa.array([[1]] * len(table))),
        "column 'confidence' has type list<",
    ),
    "coded drafter": (
        lambda table: replace_column(table, "drafter", pa.array([0] * len(table))),
        "column 'drafter' has type int64",
    ),
    "unknown column": (
        lambda table: table.append_column("confidence_maximum", table.column("confidence")),
        "unknown column 'confidence_maximum'",
    ),
    "column twice": (
        lambda table: table.append_column("position", table.column("position")),
        "column 'position' appears twice",
    ),
}


@pytest.mark.parametrize("fault", BLOCK_FAULTS)
def test_a_fault_of_the_blocks_is_named_with_file_column_and_row(folder, fault):
    change, expected = BLOCK_FAULTS[fault]
    spoil(folder, "blocks.parquet", change)
    message = fault_of(folder)
    assert str(folder / "blocks.parquet") in message
    assert expected in message


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("confidence", [0.5, 1.5], "1.5 at draft 2; allowed: in [0, 1]"),
        ("confidence", [-0.25, 0.5], "-0.25 at draft 1; allowed: in [0, 1]"),
        ("confidence", [0.5, math.nan], "nan at draft 2; allowed: in [0, 1]"),
        ("confidence", [0.5], "1 entries for 2 drafts"),
        ("confidence", [0.5, 0.5, 0.5], "3 entries for 2 drafts"),
        ("confidence_max", [0.5, 1.5], "1.5 at draft 2; allowed: in [0, 1]"),
        ("accept_prob", [0.5, 1.0001], "at draft 2; allowed: in [0, 1]"),
        ("accept_prob", [math.nan, 1.0], "nan at draft 1; allowed: in [0, 1]"),
        ("margin", [0.5, -1.0], "-1.0 at draft 2; allowed: finite, at least 0"),
        ("margin", [math.inf, 1.0], "inf at draft 1; allowed: finite, at least 0"),
        ("survival", [0.5, 0.75], "0.75 at draft 2; allowed: survival that does not rise with depth"),
        ("survival", [1.5, 0.75], "1.5 at draft 1; allowed: in [0, 1]"),
        ("draft_token_ids", [7, -1], "-1 at draft 2; allowed: token ids, at least 0"),
    ],
)
def test_a_fault_inside_a_list_names_the_draft(tmp_path, column, values, expected):
    fine = {"confidence_max": [0.75, 0.5], "margin": [8.0, 0.0], "accept_prob": [1.0, 0.0], "survival": [0.75, 0.5]}
    folder = write_pairs(tmp_path / "trace", **fine, draft_token_ids=[7, 8])
    Trace.open(folder).validate()
    spoil(folder, "blocks.parquet", set_value(column, 1, values))
    message = fault_of(folder)
    assert f"column {column!r}, row 1: " in message
    assert expected in message


def write_pairs(folder, **columns):
    """A trace of one request whose every block holds two drafts."""
    writer = TraceWriter(folder, manifest(drafter("only", max_depth=2)))
    lists = {name: [values] * 3 for name, values in columns.items()}
    writer.add(
        RequestRow(1, "chat", 5, 3, "stop"),
        {"only": RecordedBlocks([2, 2, 2], [0, 0, 0], [2, 2, 1], [[0.5, 0.25]] * 3, **lists)},
    )
    writer.finish()
    return folder


def test_the_row_is_counted_from_the_start_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("specsim.trace.files.ROW_GROUP_ROWS", 1)
    folder = write_small(tmp_path / "trace")
    table = pq.read_table(folder / "blocks.parquet")
    for column, value in (("num_accepted", 5), ("confidence", [2.0] * table.column("num_drafts")[20].as_py())):
        pq.write_table(set_value(column, 20, value)(table), folder / "blocks.parquet", row_group_size=12)
        reseal(folder)
        assert f"column {column!r}, row 20: " in fault_of(folder)


def test_a_null_inside_a_list_is_refused(tmp_path):
    folder = write_pairs(tmp_path / "trace")
    spoil(folder, "blocks.parquet", set_value("confidence", 1, [0.5, None]))
    assert "column 'confidence': a null inside a list" in fault_of(folder)


def test_verified_drafts_beyond_the_output_are_refused(tmp_path):
    folder = write_pairs(tmp_path / "trace")
    spoil(folder, "blocks.parquet", set_value("num_verified", 2, 2))
    assert "column 'num_verified', row 2: 2, above 1; allowed: 0 to num_output_tokens - position" in fault_of(folder)


def test_accepted_drafts_beyond_the_verified_are_refused(tmp_path):
    folder = write_pairs(tmp_path / "trace")
    spoil(folder, "blocks.parquet", set_value("num_accepted", 2, 2))
    assert "column 'num_accepted', row 2: 2, above 1; allowed: 0 to num_verified" in fault_of(folder)


def test_a_censored_block_cannot_be_part_of_a_position_indexed_trace(tmp_path):
    folder = write_pairs(tmp_path / "trace")
    spoil(folder, "blocks.parquet", set_value("num_verified", 0, 1))
    assert "column 'num_verified', row 0: 1, a censored observation" in fault_of(folder)
    edit_manifest(folder, lambda record: record.update(kind="trajectory"))
    Trace.open(folder).validate()


def test_a_trajectory_trace_may_lack_rows_but_not_repeat_them(folder):
    edit_manifest(folder, lambda record: record.update(kind="trajectory"))
    spoil(folder, "blocks.parquet", drop_row(8))
    assert Trace.open(folder).validate().num_rows == 37
    spoil(folder, "blocks.parquet", repeat_row(20))
    assert "appears twice" in fault_of(folder)


def test_a_request_without_rows_is_missing_all_of_them(folder):
    spoil(folder, "blocks.parquet", lambda table: table.slice(0, 30))
    assert "request 12 has no row at position 0 for drafter 'ngram'" in fault_of(folder)


def test_a_score_that_a_drafter_offers_must_be_recorded(tmp_path):
    folder = write_pairs(tmp_path / "trace", margin=[1.0, 1.0])
    edit_manifest(folder, lambda record: record["drafters"][0].update(scores=["drawn_prob", "margin"]))
    Trace.open(folder).validate()
    spoil(folder, "blocks.parquet", set_value("margin", 1, None))
    assert "column 'margin', row 1: no value, though drafter 'only' offers margin" in fault_of(folder)
    spoil(folder, "blocks.parquet", lambda table: table.drop_columns(["margin"]))
    assert "column 'margin' is missing, though drafter 'only' offers margin" in fault_of(folder)


def test_sampled_drafts_do_not_pass_off_their_drawn_probability_as_the_largest(tmp_path):
    folder = write_pairs(tmp_path / "trace")
    edit_manifest(folder, lambda record: record["drafters"][0].update(law="sampled"))
    assert "column 'confidence_max' is missing, though drafter 'only' offers max_prob" in fault_of(folder)


REQUEST_FAULTS = {
    "duplicate id": (set_value("request_id", 2, 10), "column 'request_id', row 2: 10 again"),
    "negative id": (set_value("request_id", 2, -10), "column 'request_id', row 2: -10; allowed: at least 0"),
    "null id": (set_value("request_id", 2, None), "column 'request_id', row 2: null"),
    "no prompt": (set_value("num_prompt_tokens", 1, 0), "column 'num_prompt_tokens', row 1: 0; allowed: at least 1"),
    "no output": (set_value("num_output_tokens", 1, 0), "column 'num_output_tokens', row 1: 0; allowed: at least 1"),
    "null domain": (set_value("domain", 0, None), "column 'domain', row 0: null"),
    "finish reason": (set_value("finish_reason", 0, "eos"), "row 0: 'eos'; allowed: stop or length"),
    "null finish reason": (set_value("finish_reason", 0, None), "column 'finish_reason', row 0: null"),
    "negative arrival": (set_value("arrival_at", 1, -1.0), "column 'arrival_at', row 1: -1.0"),
    "NaN arrival": (set_value("arrival_at", 1, math.nan), "column 'arrival_at', row 1: nan"),
    "infinite arrival": (set_value("arrival_at", 1, math.inf), "column 'arrival_at', row 1: inf"),
    "float id": (retype("request_id", pa.float64()), "column 'request_id' has type double"),
    "missing column": (lambda table: table.drop_columns(["arrival_at"]), "column 'arrival_at' is missing"),
    "unknown column": (lambda table: table.append_column("user", table.column("domain")), "unknown column 'user'"),
    "no rows": (lambda table: table.slice(0, 0), "no rows; allowed: at least one request"),
}


@pytest.mark.parametrize("fault", REQUEST_FAULTS)
def test_a_fault_of_the_requests_is_named_with_file_column_and_row(folder, fault):
    change, expected = REQUEST_FAULTS[fault]
    spoil(folder, "requests.parquet", change)
    message = fault_of(folder)
    assert str(folder / "requests.parquet") in message
    assert expected in message


MANIFEST_FAULTS = {
    "newer schema": (lambda m: m.update(schema_version=2, novelty=1), "schema_version 2 is not supported; allowed: 1"),
    "no schema": (lambda m: m.pop("schema_version"), "schema_version None is not supported"),
    "boolean schema": (lambda m: m.update(schema_version=True), "schema_version True is not supported"),
    "unknown key": (lambda m: m.update(temperature=1), "unknown key 'temperature'; allowed: schema_version, name"),
    "unknown drafter key": (lambda m: m["drafters"][1].update(k=3), "unknown key 'drafters.1.k'; allowed: name, kind"),
    "unknown sampling key": (
        lambda m: m["sampling"].update(beams=3),
        "unknown key 'sampling.beams'; allowed: temperature",
    ),
    "missing key": (lambda m: m.pop("target"), "key 'target' is missing"),
    "unknown law": (lambda m: m["drafters"][0].update(law="greedy"), "key 'drafters.0.law' is 'greedy'"),
    "unknown score": (lambda m: m["drafters"][0].update(scores=["entropy"]), "'entropy'"),
    "score twice": (lambda m: m["drafters"][0].update(scores=["margin", "margin"]), "at most once"),
    "zero depth": (lambda m: m["drafters"][0].update(max_depth=0), "key 'drafters.0.max_depth' is 0"),
    "text depth": (lambda m: m["drafters"][0].update(max_depth="4"), "key 'drafters.0.max_depth' is '4'"),
    "same name": (lambda m: m["drafters"][1].update(name="ngram"), "repeat a name"),
    "no drafters": (lambda m: m.update(drafters=[]), "key 'drafters' is []"),
    "unknown kind": (lambda m: m.update(kind="sparse"), "key 'kind' is 'sparse'"),
    "file outside": (lambda m: m["files"].update({"../x.parquet": "0" * 64}), "'../x.parquet' is not a data file"),
    "short hash": (lambda m: m["files"].update({"requests.parquet": "00"}), "key 'files.requests.parquet' is '00'"),
    "other hash": (lambda m: m["files"].update({"requests.parquet": "0" * 64}), "sha256 is"),
    "missing file": (lambda m: m["files"].update({"steps.parquet": "0" * 64}), "missing, though the manifest lists it"),
    "unlisted file": (lambda m: m["files"].pop("blocks.parquet"), "no sha256 in the manifest's files"),
}


@pytest.mark.parametrize("fault", MANIFEST_FAULTS)
def test_a_fault_of_the_manifest_names_the_key(folder, fault):
    change, expected = MANIFEST_FAULTS[fault]
    edit_manifest(folder, change)
    assert expected in fault_of(folder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not a JSON object"),
        ("", "not a JSON object"),
        ("[]", "a list; allowed: a JSON object"),
        ('{"schema_version": 1, "schema_version": 1}', "key 'schema_version' appears twice"),
        ('{"schema_version": NaN}', "schema_version nan is not supported"),
    ],
)
def test_a_manifest_that_is_no_json_object_is_refused(folder, text, expected):
    (folder / "manifest.json").write_text(text)
    assert expected in fault_of(folder)


def test_a_manifest_that_is_no_text_is_refused(folder):
    (folder / "manifest.json").write_bytes(b"\xff\xfe{}")
    assert "not a JSON object" in fault_of(folder)


def test_a_changed_byte_is_found_by_its_hash(folder):
    path = folder / "blocks.parquet"
    changed = bytearray(path.read_bytes())
    changed[40] ^= 1
    path.write_bytes(changed)
    message = fault_of(folder)
    assert f"{path}: sha256 is" in message
    assert json.loads((folder / "manifest.json").read_text())["files"]["blocks.parquet"] in message


def test_validation_compares_hashes_though_opening_did_not(folder):
    edit_manifest(folder, lambda record: record["files"].update({"blocks.parquet": "0" * 64}))
    trace = Trace.open(folder)
    with pytest.raises(InputError, match="sha256 is"):
        trace.validate()


@pytest.mark.parametrize("file", ["requests.parquet", "blocks.parquet"])
@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_a_truncated_file_is_called_damaged(folder, file, kept):
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:kept])
    reseal(folder)
    assert f"{folder / file}: damaged or not Parquet" in fault_of(folder)


def test_two_blocks_tables_are_refused(folder):
    (folder / "blocks").mkdir()
    content = (folder / "blocks.parquet").read_bytes()
    (folder / "blocks" / "part-0.parquet").write_bytes(content)
    assert "part-0.parquet: no sha256 in the manifest" in fault_of(folder)
    edit_manifest(folder, lambda record: record["files"].update({"blocks/part-0.parquet": "0" * 64}))
    reseal(folder)
    assert "two blocks tables" in fault_of(folder)


def test_no_blocks_table_is_refused(folder):
    (folder / "blocks.parquet").unlink()
    edit_manifest(folder, lambda record: record["files"].pop("blocks.parquet"))
    assert "no blocks table" in fault_of(folder)


def test_a_path_that_is_no_trace_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nothing", __file__):
        with pytest.raises(InputError, match="no"):
            Trace.open(path)
