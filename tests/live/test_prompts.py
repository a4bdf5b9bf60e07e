"""Prompt files: what they say, and what is wrong with one."""

import json

import pytest

from specsim.errors import InputError
from specsim.live.prompts import limited, read_prompts, shipped_prompts
from specsim.live.session_order import interleave

GOOD = {"id": 1, "domain": "chat", "prompt": "hello"}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_folder_is_read_in_name_order_and_lines_keep_theirs(tmp_path):
    write(tmp_path / "b.jsonl", GOOD | {"id": 3})
    write(tmp_path / "a.jsonl", GOOD | {"id": 9}, "", GOOD | {"id": 2})
    write(tmp_path / "notes.txt", "not prompts")
    files = read_prompts([tmp_path])
    assert [(file.name, [prompt.id for prompt in file.prompts]) for file in files] == [("a", [9, 2]), ("b", [3])]


def test_a_prompt_may_hold_any_line_separator(tmp_path):
    text = "one\u2028two\u0085three\nfour"
    path = tmp_path / "a.jsonl"
    path.write_bytes((json.dumps(GOOD | {"prompt": text}, ensure_ascii=False) + "\r\n").encode())
    assert [prompt.text for prompt in read_prompts([path])[0].prompts] == [text]


def test_an_id_of_63_bits_is_kept_exactly(tmp_path):
    """CASES 40, here for the prompts' side of it."""
    path = write(tmp_path / "a.jsonl", GOOD | {"id": 9007199254740993})
    assert read_prompts([path])[0].prompts[0].id == 9007199254740993


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: has list"),
        ({"id": 1, "prompt": "x"}, "line 2: has id, prompt; must be an object with exactly id, domain, prompt"),
        (GOOD | {"extra": 1}, "line 2: has id, domain, prompt, extra"),
        (GOOD | {"id": "7"}, "line 2: id '7'; must be an integer"),
        (GOOD | {"id": True}, "line 2: id True"),
        (GOOD | {"id": -1}, "line 2: id -1"),
        (GOOD | {"id": 2**63}, "line 2: id 9223372036854775808"),
        (GOOD | {"prompt": " "}, "line 2: prompt ' '"),
        (GOOD | {"domain": None}, "line 2: domain None"),
        (GOOD | {"prompt": "\ud800"}, "line 2: prompt holds half of a surrogate pair"),
        ('{"id": ' + "9" * 5000 + "}", "line 2: not JSON"),
        (GOOD, "id 1 is taken already"),
    ],
)
def test_a_bad_line_is_named_with_what_is_allowed(tmp_path, row, told):
    path = write(tmp_path / "a.jsonl", GOOD, row)
    with pytest.raises(InputError) as error:
        read_prompts([path])
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_an_id_may_not_come_back_in_another_file(tmp_path):
    paths = [write(tmp_path / name, GOOD) for name in ("a.jsonl", "b.jsonl")]
    with pytest.raises(InputError, match="b: id 1 is taken already \\(in a\\)"):
        read_prompts(paths)


@pytest.mark.parametrize(
    ("content", "told"), [(None, "no such prompt file"), (b"", "holds no prompt"), (b"\xff\xfe", "UTF-8")]
)
def test_a_file_without_prompts_is_refused(tmp_path, content, told):
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=told):
        read_prompts([path])


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no"):
        read_prompts([tmp_path])


def two_files(tmp_path):
    write(tmp_path / "a.jsonl", GOOD, GOOD | {"id": 2}, GOOD | {"id": 3}, GOOD | {"id": 4})
    write(tmp_path / "b.jsonl", GOOD | {"id": 8}, GOOD | {"id": 9})
    return read_prompts([tmp_path])


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (1, {"a": [1]}),
        (2, {"a": [1], "b": [8]}),
        (3, {"a": [1, 2], "b": [8]}),
        (5, {"a": [1, 2, 3], "b": [8, 9]}),
        (9, {"a": [1, 2, 3, 4], "b": [8, 9]}),
        (10**23, {"a": [1, 2, 3, 4], "b": [8, 9]}),
        (None, {"a": [1, 2, 3, 4], "b": [8, 9]}),
    ],
)
def test_a_limit_is_of_prompts_in_all_taken_in_turn_from_each_file(tmp_path, limit, kept):
    files = two_files(tmp_path)
    cut = limited(files, limit)
    assert {file.name: [prompt.id for prompt in file.prompts] for file in cut} == kept
    assert [file.sha256 for file in cut] == [file.sha256 for file in files][: len(cut)]


@pytest.mark.parametrize("limit", [*range(1, 8), 2**63, None])
def test_a_recording_and_a_run_mean_the_same_prompts_by_a_limit(tmp_path, limit):
    files = two_files(tmp_path)
    recorded = [prompt for file in limited(files, limit) for prompt in file.prompts]
    assert sorted(prompt.id for prompt in recorded) == sorted(prompt.id for prompt in interleave(files, limit))


def test_the_shipped_prompts_are_many_varied_and_of_three_domains():
    files = read_prompts([shipped_prompts()])
    assert [file.name for file in files] == ["chat", "code", "math"]
    for file in files:
        assert {prompt.domain for prompt in file.prompts} == {file.name}
        words = sorted(len(prompt.text.split()) for prompt in file.prompts)
        assert len(words) >= 24
        assert words[0] < 20
        assert words[-1] > 80
    texts = [prompt.text for file in files for prompt in file.prompts]
    assert len(set(texts)) == len(texts)
