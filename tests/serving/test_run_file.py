"""run.json is read strictly: what is wrong is named, with what is allowed."""

from __future__ import annotations

import json

import pytest

from specsim.errors import InputError
from specsim.serving.run_file import RUN_FILE, RunFile, Section, Submission, read_run_file, write_run_file
from tests.sim.simulated_run import write_run


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return (write_run(tmp_path_factory.mktemp("run") / "run") / RUN_FILE).read_text()


@pytest.fixture
def spoil(tmp_path, original):
    """Writes run.json after `change(document)`; returns its folder."""

    def write(change):
        document = json.loads(original)
        change(document)
        (tmp_path / RUN_FILE).write_text(json.dumps(document))
        return tmp_path

    return write


def test_a_run_file_comes_back_as_it_was_written(spoil):
    run = read_run_file(spoil(lambda document: None))
    write_run_file(spoil(lambda document: None), run)
    assert read_run_file(spoil(lambda document: None)) == run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(extra=1), "extra: extra inputs are not permitted; allowed: schema_version, complete,"),
        (lambda d: d["engine"].update(slots=1), "engine.slots: .*; allowed: max_num_seqs, max_num_batched_tokens,"),
        (lambda d: d["submissions"][2].update(x=1), r"submissions.2.x: .*; allowed: sequence, request_id, prompt_id,"),
        (lambda d: d["submissions"][1]["sampling"].update(x=1), r"sampling.x: .*; allowed: temperature, top_k,"),
        (lambda d: d.pop("seed"), "seed: field required"),
        (lambda d: d.update(seed="3"), "seed: input should be a valid integer"),
        (lambda d: d.update(schema_version=2), "schema_version: input should be 1"),
        (lambda d: d["submissions"][0].update(arrived_at=float("nan")), "arrived_at: input should be"),
        (lambda d: d["submissions"][0].update(end="gone"), "end: input should be 'finished', 'cancelled'"),
        (lambda d: d["cost"].update(cells_sha256="abc"), "cost.cells_sha256: string should match pattern"),
    ],
)
def test_what_is_wrong_is_named(spoil, change, message):
    with pytest.raises(InputError, match=message):
        read_run_file(spoil(change))


def test_a_folder_without_one_and_a_file_that_is_no_json_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"run\.json: no such file or directory; allowed: a folder that a live run"):
        read_run_file(tmp_path)
    (tmp_path / RUN_FILE).write_text("{")
    with pytest.raises(InputError, match=r"run\.json: not JSON"):
        read_run_file(tmp_path)


def test_a_state_that_json_has_no_word_for_is_refused_when_written(spoil, tmp_path):
    run = read_run_file(spoil(lambda document: None))
    state = dict(run.controller.state) | {"best": float("inf")}
    broken = run.model_copy(update={"controller": run.controller.model_copy(update={"state": state})})
    with pytest.raises(InputError, match="not to be written as JSON"):
        write_run_file(tmp_path, broken)


def test_every_part_is_closed_to_unknown_keys():
    for part in (RunFile, Submission):
        assert issubclass(part, Section)
        assert part.model_config["extra"] == "forbid"
