"""A study's result as JSON."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from specsim.errors import InputError
from specsim.study.compare import compare
from specsim.study.result import StudyResult


@pytest.fixture
def result(study):
    return compare(study(policies=["dcut@strong"], batches=[2], seeds=[0]))


def test_a_result_comes_back_as_it_was(result, tmp_path):
    result.save(tmp_path / "deep" / "study.json")
    loaded = StudyResult.load(tmp_path / "deep" / "study.json")
    assert repr(dataclasses.asdict(loaded)) == repr(dataclasses.asdict(result))
    assert list((tmp_path / "deep").iterdir()) == [tmp_path / "deep" / "study.json"]


def test_unknown_numbers_are_null_in_json_and_nan_again_afterwards(result, tmp_path):
    assert math.isnan(result.cells[0].values["acceptance_rate"])
    result.save(tmp_path / "study.json")
    text = (tmp_path / "study.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["cells"][0]["values"]["acceptance_rate"] is None
    assert math.isnan(StudyResult.load(tmp_path / "study.json").cells[0].values["acceptance_rate"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"study\.json is not JSON"),
        ("[]", r"has schema version None; this specsim reads 1"),
        ('{"schema_version": 2}', r"has schema version 2; this specsim reads 1"),
        ('{"schema_version": 1}', r"is not a study: 'cells'"),
        ('{"schema_version": 1, "cells": [], "drafters": [], "colour": 1}', r"is not a study: .*colour"),
    ],
)
def test_what_is_no_study_is_refused_in_one_line(tmp_path, text, message):
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        StudyResult.load(tmp_path / "study.json")
    assert "\n" not in str(caught.value)


def test_a_missing_study_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read study .*none\.json: No such file"):
        StudyResult.load(tmp_path / "none.json")


def test_rows_come_by_table_and_load(study, world):
    tables = [str(world / "linear"), str(world / "staircase")]
    result = compare(study(policies=["dcut@strong"], tables=tables, seeds=[0]))
    assert [(table, batch, len(cells)) for table, batch, cells in result.rows()] == [
        ("example-linear", 2, 3),
        ("example-linear", 8, 3),
        ("example-staircase", 2, 3),
        ("example-staircase", 8, 3),
    ]
