"""A regret study on disk."""

import json
import math
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from specsim.errors import InputError
from specsim.study.regret.result import RegretResult


def test_a_saved_study_loads_as_it_was(result, tmp_path):
    result.save(tmp_path / "deep" / "regret.json")
    assert RegretResult.load(tmp_path / "deep" / "regret.json") == result
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["regret.json"]


def test_one_row_a_run(result, tmp_path):
    result.save_rows(tmp_path / "regret.parquet")
    rows = pq.read_table(tmp_path / "regret.parquet").to_pylist()
    assert len(rows) == len(result.environments) * len(result.policies) * len(result.seeds)
    assert rows[1] == {
        "environment": "stationary",
        "policy": "ucb1",
        "seed": result.seeds[1],
        **{name: values[1] for name, values in result.regrets[0].by_seed.items()},
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "cannot read regret study .*: No such file"),
        ("{", "is not JSON"),
        ("[]", "schema version None; this specsim reads 1"),
        ('{"schema_version": 9}', "schema version 9; this specsim reads 1"),
        ('{"schema_version": 1}', "is not a regret study"),
    ],
)
def test_what_is_no_regret_study_is_refused(text, fault, tmp_path):
    path = tmp_path / "regret.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=fault):
        RegretResult.load(path)


def test_an_unknown_field_is_refused(result, tmp_path):
    document = json.loads(result.to_json())
    document["regrets"][0]["mood"] = "good"
    (tmp_path / "regret.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"is not a regret study: .*mood"):
        RegretResult.load(tmp_path / "regret.json")


def test_a_file_is_replaced_whole(result, tmp_path):
    path = tmp_path / "regret.json"
    result.save(path)
    replace(result, title="Another").save(path)
    assert RegretResult.load(path).title == "Another"


def test_a_policy_that_is_told_of_every_arm_is_not_the_one_that_loses_least(result):
    assert result.of("stationary")[1].full_information
    assert result.least("stationary").policy == "ucb1"
    alone = replace(result, regrets=[found for found in result.regrets if found.full_information])
    assert alone.least("stationary").policy == "hedge:rate=.2"


def test_an_interval_that_is_unknown_is_null_and_comes_back_unknown(result, tmp_path):
    unknown = (math.nan, math.nan)
    regrets = [replace(found, regret_interval=unknown, seconds_interval=unknown) for found in result.regrets]
    replace(result, regrets=regrets).save(tmp_path / "regret.json")
    assert json.loads((tmp_path / "regret.json").read_text())["regrets"][0]["regret_interval"] == [None, None]
    loaded = RegretResult.load(tmp_path / "regret.json").regrets[0]
    assert all(map(math.isnan, (*loaded.regret_interval, *loaded.seconds_interval)))
    assert loaded.regret_band == result.regrets[0].regret_band
