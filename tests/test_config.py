"""Study files: what is read, and the one line for everything that is not."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.config import EngineSection, StudyConfig, build_study, read_study
from specsim.errors import InputError
from specsim.sim import EngineConfig

YAML = """
trace: smollm2-cpu
tables:
  - cpu-smollm2
  - path: h20-qwen3-8b
    draft_costs: {exit28: dflash}
policies:
  - fixed_depth:depth=7@ngram
  - budget: {name: dcut, options: {count: code}}
    drafter: exit28
    label: D-cut
batches: [1, 8]
seeds: 3
engine: {max_num_seqs: 64, prefill: charged}
slo: {tpot_seconds: 0.05}
"""

TOML = """
trace = "smollm2-cpu"
tables = ["cpu-smollm2", { path = "h20-qwen3-8b", draft_costs = { exit28 = "dflash" } }]
policies = [
    "fixed_depth:depth=7@ngram",
    { budget = { name = "dcut", options = { count = "code" } }, drafter = "exit28", label = "D-cut" },
]
batches = [1, 8]
seeds = 3
engine = { max_num_seqs = 64, prefill = "charged" }
slo = { tpot_seconds = 0.05 }
"""

MINIMAL = {"trace": "t", "tables": ["c"], "policies": ["dcut"], "batches": [1]}


def written(tmp_path, text, suffix=".yaml"):
    path = tmp_path / f"study{suffix}"
    path.write_text(text)
    return path


def test_a_study_in_yaml_reads_as_written(tmp_path):
    study = read_study(written(tmp_path, YAML))
    assert [table.path for table in study.tables] == ["cpu-smollm2", "h20-qwen3-8b"]
    assert study.tables[1].draft_costs == {"exit28": "dflash"}
    assert [str(policy) for policy in study.policies] == ["fixed_depth:depth=7@ngram", "dcut:count=code@exit28"]
    assert study.policies[1].label == "D-cut"
    assert (study.batches, study.seeds, study.engine.max_num_seqs) == ([1, 8], [0, 1, 2], 64)
    assert study.slo is not None
    assert study.slo.tpot_seconds == 0.05


def test_yaml_and_toml_say_the_same(tmp_path):
    assert read_study(written(tmp_path, YAML)) == read_study(written(tmp_path, TOML, ".toml"))


def test_defaults_are_exact_closed_loops_within_the_measured_range():
    study = build_study(MINIMAL)
    assert (study.allow_lossy, study.extrapolate, study.clairvoyant) == (False, False, True)
    assert study.seeds == [0, 1, 2, 3, 4]


def test_a_list_of_seeds_is_taken_as_it_is():
    assert build_study({**MINIMAL, "seeds": [7, 11]}).seeds == [7, 11]


def test_a_study_survives_its_own_json():
    study = build_study(MINIMAL)
    assert build_study(json.loads(study.model_dump_json())) == study


def test_the_engine_section_has_the_fields_of_the_engine():
    assert set(EngineSection.model_fields) == {field.name for field in dataclasses.fields(EngineConfig)}


def test_the_json_schema_describes_every_key_and_forbids_others():
    schema = StudyConfig.model_json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(StudyConfig.model_fields)
    undescribed = [name for name, entry in schema["properties"].items() if "description" not in entry]
    assert undescribed == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trcae": "x"}, r"unknown key 'trcae'; allowed: title, trace, domains, tables, draft_costs, policies"),
        ({"engine": {"block": 16}}, r"unknown key 'engine.block'; allowed: max_num_seqs, max_num_batched_tokens"),
        ({"slo": {"itl": 1}}, r"unknown key 'slo.itl'; allowed: ttft_seconds, tpot_seconds"),
        ({"tables": [{"path": "c", "x": 1}]}, r"unknown key 'tables.0.x'; allowed: path, draft_costs"),
        ({"policies": [{"budget": "dcut", "arm": "x"}]}, r"unknown key 'policies.0.arm'; allowed: budget, drafter"),
        ({"policies": ["dcut:rho"]}, r"policies.0 is 'dcut:rho': .*'rho' is no option of dcut"),
        ({"batches": [0]}, r"batches.0 is 0: input should be greater than or equal to 1"),
        ({"batches": ["many"]}, r"batches.0 is 'many'"),
        ({"batches": [True]}, r"batches.0 is True: a number is expected, not true or false"),
        ({"requests_per_slot": True}, r"requests_per_slot is True: a number is expected"),
        ({"seeds": [False]}, r"seeds.0 is False: a number is expected"),
        ({"burstiness": True}, r"burstiness is True: a number is expected"),
        ({"engine": {"num_kv_blocks": True}}, r"engine.num_kv_blocks is True: a number is expected"),
        ({"batches": [2, 2]}, r"batches \[2, 2\] repeats a value"),
        ({"batches": []}, r"give either batches \(closed loop\) or rates \(open loop\)"),
        ({"rates": [1.0]}, r"give either batches \(closed loop\) or rates \(open loop\)"),
        ({"seeds": []}, r"seeds is \[\]"),
        ({"seeds": 0}, r"seeds is 0"),
        ({"seeds": 10**12}, r"seeds is 1000000000000: at most 10,000 are allowed"),
        ({"seeds": [2**63]}, r"seeds.0 is 9223372036854775808: input should be less than or equal to"),
        ({"requests": 10**23}, r"requests is 1\d+: input should be less than or equal to 2147483647"),
        ({"seeds": [-1]}, r"seeds.0 is -1"),
        ({"engine": {"prefill": "free"}}, r"engine.prefill is 'free': input should be 'charged' or 'excluded'"),
        ({"slo": {"tpot_seconds": 0}}, r"slo.tpot_seconds is 0"),
        ({"burstiness": float("nan")}, r"burstiness is nan"),
        ({"tables": []}, r"tables is \[\]"),
        ({"tables": ["c", "c"]}, r"tables \['c', 'c'\] repeat one"),
        ({"policies": []}, r"policies is \[\]"),
    ],
)
def test_a_fault_is_one_line_that_names_the_key_and_what_is_allowed(change, message):
    with pytest.raises(InputError, match=message) as caught:
        build_study({**MINIMAL, **change})
    assert "\n" not in str(caught.value)


def test_a_missing_key_is_named():
    with pytest.raises(InputError, match=r"study: key 'trace' is missing"):
        build_study({key: value for key, value in MINIMAL.items() if key != "trace"})


@pytest.mark.parametrize(
    ("text", "suffix", "message"),
    [
        ("trace: [", ".yaml", r"study\.yaml, line 1: "),
        (
            "tables: [c]\nslo:\n  tpot_seconds: 1\n  tpot_seconds: 2\n",
            ".yaml",
            r"line 3: key 'tpot_seconds' appears twice",
        ),
        ("? [a]\n: b\n", ".yaml", r"line 1: found unhashable key"),
        ("trace: \x07", ".yaml", r"not readable: "),
        ("trace = a", ".toml", r"study\.toml: not readable: .*line 1"),
        ("- a\n", ".yaml", r"must be a mapping of keys; allowed: title, trace"),
        ("", ".yml", r"must be a mapping of keys"),
        ("{}", ".json", r"suffix '\.json' is unknown; allowed: \.yaml, \.yml, \.toml"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path, text, suffix, message):
    with pytest.raises(InputError, match=message) as caught:
        read_study(written(tmp_path, text, suffix))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.yaml: no such file or directory"):
        read_study(tmp_path / "nowhere.yaml")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(key=st.sampled_from([*StudyConfig.model_fields, "other"]), value=json_values)
def test_whatever_a_key_holds_is_a_study_or_one_line(key, value):
    message = ""
    try:
        build_study({**MINIMAL, key: value})
    except InputError as error:
        message = str(error)
    assert "\n" not in message
