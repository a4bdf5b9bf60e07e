"""One table from the syntaxes of three engines."""

import pytest

from specsim.errors import InputError
from specsim.interop.schedules import depth_at, from_sglang, from_tensorrt_llm, from_vllm, read_schedule

VLLM = [[1, 16, 3], [17, 64, 1]]
TENSORRT_LLM = {16: 3, 64: 1}
SGLANG = {"1": {"candidate_steps": [3]}, "17": {"candidate_steps": [1]}}
TABLE = ((1, 3), (17, 1))


def test_case_42_three_syntaxes_parse_to_the_same_table():
    assert from_vllm(VLLM) == TABLE
    assert from_sglang(SGLANG) == TABLE
    assert from_sglang({1: [3], 17: [1]}) == TABLE
    assert from_tensorrt_llm(TENSORRT_LLM) == (*TABLE, (65, 0))  # the same, and an end
    for batch in range(1, 65):
        expected = 3 if batch <= 16 else 1
        for schedule in (from_vllm(VLLM), from_tensorrt_llm(TENSORRT_LLM), from_sglang(SGLANG)):
            assert depth_at(schedule, batch) == expected


def test_case_42_past_the_end_vllm_carries_the_last_depth_and_tensorrt_llm_stops():
    assert depth_at(from_vllm(VLLM), 65) == 1
    assert depth_at(from_sglang(SGLANG), 65) == 1
    assert depth_at(from_tensorrt_llm(TENSORRT_LLM), 65) == 0


def test_a_gap_between_vllm_ranges_keeps_the_depth_before_it():
    schedule = from_vllm([[1, 16, 3], [64, 128, 2], [256, 4096, 0]])
    assert [depth_at(schedule, batch) for batch in (16, 17, 63, 64, 200, 256, 9999)] == [3, 3, 3, 2, 2, 0, 0]


def test_tensorrt_llm_keys_may_come_in_any_order_and_as_text():
    assert from_tensorrt_llm({"64": 1, "16": 3}) == from_tensorrt_llm(TENSORRT_LLM)


def test_rows_that_change_nothing_are_left_out():
    assert read_schedule("1:3/5:3/17:1") == TABLE


@pytest.mark.parametrize(
    "written",
    ["1:3/17:1", [[1, 3], [17, 1]], {"vllm": VLLM}, {"sglang": SGLANG}, {"tensorrt_llm": TENSORRT_LLM}],
)
def test_a_person_writes_rows_or_an_engines_syntax_under_its_name(written):
    assert read_schedule(written)[:2] == TABLE


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"vllm": [[2, 16, 3]]}, "vllm schedule: the first row must start at batch 1"),
        ({"vllm": [[1, 16, 3], [16, 64, 1]]}, "range from 16 overlaps the one up to 16"),
        ({"vllm": [[1, 16, 3], [64, 17, 1]]}, "range 64 to 17 ends before it starts"),
        ({"vllm": [[1, 16]]}, "3 whole numbers"),
        ({"vllm": {"1-16": 3}}, "not in vllm's syntax"),
        ({"tensorrt_llm": {16: -1}}, "must not be negative"),
        ({"tensorrt_llm": {}}, "tensorrt_llm schedule: it is empty, which would never draft; write {max_batch: K}"),
        ({"vllm": []}, "vllm schedule: the first row must start at batch 1"),
        ({"sglang": {}}, "sglang schedule: the first row must start at batch 1"),
        ({"tensorrt_llm": {0: 3}}, "start batches must ascend"),
        ({"tensorrt_llm": [16, 3]}, "not in tensorrt_llm's syntax"),
        ({"sglang": {1: [1, 3]}}, "ema_tiers chooses among several"),
        ({"sglang": {8: [1]}}, "sglang schedule: the first row must start at batch 1"),
        ({"mlc": {}}, "one engine's name is expected (vllm, tensorrt_llm, sglang)"),
        ("1:3/1:2", "start batches must ascend, got [1, 1]"),
        ("1:3.5", "2 whole numbers"),
        ([[True, 3]], "[True, 3] is not 2 whole numbers"),
        ({"tensorrt_llm": {16: True}}, "(16, True) is not 2 whole numbers"),
        ([[1, 3.5]], "2 whole numbers"),
        ("", "2 whole numbers"),
        ([], "the first row must start at batch 1"),
        (7, "is not a schedule"),
    ],
)
def test_anything_else_is_refused_saying_what_is_expected(written, words):
    with pytest.raises(InputError) as error:
        read_schedule(written)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
