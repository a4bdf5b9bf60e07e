"""Recording: a position-indexed trace that says what decoding would really have done."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from specsim.cli.main import run
from specsim.errors import InputError
from specsim.live.drafters import Proposals, build_drafter
from specsim.live.drafters.early_exit import first_layers
from specsim.live.greedy import decode_greedy
from specsim.live.prompts import read_prompts
from specsim.live.recorder import RecordOptions, judge, record, repetition
from specsim.trace import Trace, TraceWriter
from specsim.trace.statistics import walk

ROOT = Path(__file__).resolve().parents[2]
DEPTH = 4
OPTIONS = RecordOptions(max_new_tokens=24, batch_size=4)


@pytest.fixture(scope="module")
def target(make_target):
    return make_target(seed=5)


@pytest.fixture
def drafters(target):
    return [build_drafter(name, target, DEPTH) for name in ("ngram", "exit3")]


@pytest.fixture
def files(prompt_file):
    return read_prompts([prompt_file])


def rows(folder):
    """Everything a trace says of its requests, for comparison."""
    trace = Trace.open(folder)
    blocks = [trace.blocks(index, arm) for index in range(len(trace)) for arm in range(len(trace.drafters))]
    columns = [
        [block.num_drafts, block.num_accepted, block.num_verified, *(block.scores[name] for name in block.scores)]
        for block in blocks
    ]
    return trace.requests.records(), columns


def assert_same_rows(one, other):
    (requests, blocks), (other_requests, other_blocks) = rows(one), rows(other)
    assert requests == other_requests
    for columns, other_columns in zip(blocks, other_blocks, strict=True):
        for column, other_column in zip(columns, other_columns, strict=True):
            np.testing.assert_array_equal(column, other_column)


def test_the_trace_is_valid_and_names_how_it_was_made(target, drafters, files, tmp_path):
    reports = []
    manifest = record(target, drafters, files, tmp_path / "t", OPTIONS, report=reports.append)
    trace = Trace.open(tmp_path / "t", verify_hashes=True)
    trace.validate()
    assert manifest == trace.manifest
    assert trace.kind == "position_indexed"
    assert [spec.name for spec in trace.drafters] == ["ngram", "exit3"]
    assert [spec.structure for spec in trace.drafters] == ["parallel", "autoregressive"]
    assert (manifest.target, manifest.synthetic, manifest.sampling.temperature) == ("tiny", False, 0.0)
    assert manifest.prompt_sets[0].sha256 == files[0].sha256
    assert trace.requests.request_id.tolist() == [prompt.id for prompt in files[0].prompts]
    assert trace.requests.num_prompt_tokens[0] == len("abc abc")
    assert [(report.done, report.total) for report in reports] == [(n, 9) for n in range(1, 10)]


def test_a_streams_domain_changes_after_each_segment(target, drafters, files, tmp_path):
    prompts = files[0].prompts
    first, second = replace(files[0], prompts=prompts[:4]), replace(files[0], prompts=prompts[4:])
    options = replace(OPTIONS, segment=2)
    manifest = record(target, drafters, [first, second], tmp_path / "t", options)
    asked = [*prompts[:2], *prompts[4:6], *prompts[2:4], *prompts[6:]]
    requests = Trace.open(tmp_path / "t").requests
    assert requests.request_id.tolist() == list(range(9))
    assert requests.num_prompt_tokens.tolist() == [len(prompt.text) for prompt in asked]
    assert [requests.domains[code] for code in requests.domain] == [prompt.domain for prompt in asked]
    assert "2 of each file in turn" in manifest.how


def test_max_prob_of_a_greedy_exit_is_its_drawn_prob_and_the_margin_is_kept(target, drafters, files, tmp_path):
    record(target, drafters, files, tmp_path / "t", OPTIONS)
    trace = Trace.open(tmp_path / "t")
    scores = trace.blocks(1, 1).scores
    np.testing.assert_array_equal(scores["max_prob"], scores["drawn_prob"])
    assert (scores["margin"] > 0).any()
    assert set(trace.blocks(1, 0).scores) == {"drawn_prob"}


def test_every_position_is_judged_against_the_targets_own_path(target, drafters, files, tmp_path):
    record(target, drafters, files, tmp_path / "t", OPTIONS)
    trace = Trace.open(tmp_path / "t")
    prompts = [target.tokenizer.encode(prompt.text) for prompt in files[0].prompts]
    for index, ids in enumerate(prompts):
        output = decode_greedy(target, [np.array(ids)], OPTIONS.max_new_tokens)[0].token_ids
        for arm, drafter in enumerate(drafters):
            proposals = drafter.propose_everywhere(np.array(ids), output)
            expected = []
            for position in range(len(output)):
                drafts = proposals.token_ids[position, : proposals.num_drafts[position]].tolist()
                rest = output[position:].tolist()
                agree = [draft == token for draft, token in zip(drafts, rest, strict=False)]
                expected.append(agree.index(False) if False in agree else len(agree))
            assert trace.blocks(index, arm).num_accepted.tolist() == expected


def test_the_walk_along_the_trace_is_what_speculative_decoding_really_does(target, drafters, files, tmp_path):
    """Draft by full passes of the exit, verify by one pass of the target, and count: no cache, no tree, no trace."""
    record(target, drafters, files, tmp_path / "t", OPTIONS)
    trace = Trace.open(tmp_path / "t")
    exit_model = first_layers(target.model, 3)
    for index in (0, 4):
        ids = target.tokenizer.encode(files[0].prompts[index].text)
        length = int(trace.requests.num_output_tokens[index])
        steps = accepted = 0
        text = [*ids, _argmax(target.model, ids)[-1]]
        while len(text) - len(ids) < length:
            drafts = []
            for _ in range(DEPTH):
                drafts.append(_argmax(exit_model, [*text, *drafts])[-1])
            own = _argmax(target.model, [*text, *drafts])[len(text) - 1 :]
            kept = next((k for k in range(DEPTH) if drafts[k] != own[k]), DEPTH)
            kept = min(kept, length - (len(text) - len(ids)))
            text += own[: kept + 1]
            steps += 1
            accepted += kept
        found = walk(trace, 1, [index])
        assert (found.num_steps, found.num_accepted) == (steps, accepted)


def _argmax(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([ids]), use_cache=False).logits[0].argmax(-1).tolist()


def test_drafts_beyond_the_outputs_end_are_censored_and_a_stop_token_inside_a_block_counts():
    """CASES 9: draft [5, EOS, 7] on output [5, EOS]: two accepted of two verified, the third never judged."""
    token_ids = np.array([[5, 2, 7], [2, 7, 7]])
    proposals = Proposals(token_ids, np.array([3, 3]), np.full((2, 3), 0.5))
    blocks = judge(proposals, np.array([5, 2]), token_ids=True)
    assert blocks.num_verified.tolist() == [2, 1]
    assert blocks.num_accepted.tolist() == [2, 1]
    assert blocks.accept_prob.tolist() == [[1, 1, 0], [1, 0, 0]]


def test_padding_is_never_accepted():
    """CASES 12: a block of two drafts in a row of four."""
    proposals = Proposals(np.array([[4, 4, -1, -1]] * 6), np.array([2] * 6), np.zeros((6, 4)))
    blocks = judge(proposals, np.array([4] * 6), token_ids=False)
    assert blocks.num_accepted.tolist() == [2, 2, 2, 2, 2, 1]
    assert blocks.draft_token_ids is None


def test_a_draft_after_a_wrong_one_is_not_accepted():
    proposals = Proposals(np.array([[4, 9, 6, 7]]), np.array([4]), np.zeros((1, 4)))
    assert judge(proposals, np.array([4, 5, 6, 7]), token_ids=False).num_accepted.tolist()[0] == 1


def test_repetition_is_the_share_of_4_grams_seen_before():
    assert repetition(np.arange(10)) == 0.0
    assert repetition(np.array([1, 2, 3])) == 0.0
    assert repetition(np.array([7] * 11)) == pytest.approx(1 - 1 / 8)


KILLED = """
import os, signal
from pathlib import Path
from specsim.live.drafters import build_drafter
from specsim.live.models import load_model
from specsim.live.prompts import read_prompts
from specsim.live.recorder import RecordOptions, record

def die_after_the_sixth(progress):
    if progress.done == 6:
        os.kill(os.getpid(), signal.SIGKILL)

target = load_model({model!r})
arms = [build_drafter(name, target, {depth}) for name in ("ngram", "exit3")]
options = RecordOptions(max_new_tokens=24, batch_size=4)
record(target, arms, read_prompts([Path({prompts!r})]), Path({out!r}), options, report=die_after_the_sixth)
"""


def test_a_run_killed_in_a_batch_loses_nothing_and_resumes_to_the_same_rows(model_folder, prompt_file, tmp_path):
    out = tmp_path / "killed"
    script = KILLED.format(model=str(model_folder), depth=DEPTH, prompts=str(prompt_file), out=str(out))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
    process = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    from specsim.live.models import load_model

    target, files = load_model(str(model_folder)), read_prompts([prompt_file])
    arms = [build_drafter(name, target, DEPTH) for name in ("ngram", "exit3")]
    reports = []
    record(target, arms, files, out, OPTIONS, resume=True, report=reports.append)
    assert [report.done for report in reports] == [7, 8, 9]  # the six that were written are not recorded again
    record(target, arms, files, tmp_path / "whole", OPTIONS)
    assert_same_rows(out, tmp_path / "whole")


def test_a_run_is_not_resumed_with_other_settings(target, drafters, files, tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(progress):
        raise Interrupted

    with pytest.raises(Interrupted):
        record(target, drafters, files, tmp_path / "t", OPTIONS, report=interrupt)
    with pytest.raises(InputError, match="resume it"):
        record(target, drafters, files, tmp_path / "t", OPTIONS)
    other = RecordOptions(max_new_tokens=24, batch_size=3)
    with pytest.raises(InputError, match="same manifest"):
        record(target, drafters, files, tmp_path / "t", other, resume=True)


def test_a_prompt_beyond_the_context_is_refused_before_anything_is_written(make_target, files, tmp_path):
    target = make_target(max_position_embeddings=30)
    arms = [build_drafter("ngram", target, DEPTH)]
    with pytest.raises(InputError, match=r"prompt 10: 7 tokens and 24 new ones exceed the context of 'tiny', 30"):
        record(target, arms, files, tmp_path / "t", OPTIONS)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("names", [[], ["ngram", "ngram"]])
def test_drafters_must_be_given_and_differ(target, files, tmp_path, names):
    arms = [build_drafter(name, target, DEPTH) for name in names]
    with pytest.raises(InputError, match="at least one, each once"):
        record(target, arms, files, tmp_path / "t", OPTIONS)


@pytest.mark.parametrize("field", ["max_new_tokens", "batch_size", "segment"])
def test_counts_below_one_are_refused(target, drafters, files, tmp_path, field):
    with pytest.raises(InputError, match=f"{field} 0"):
        record(target, drafters, files, tmp_path / "t", RecordOptions(**{field: 0}))


@pytest.mark.parametrize(
    ("name", "told"), [("eagle", "must be 'ngram' or 'exitL'"), ("exit0", "must be"), ("exit4", "layer 1 to 3")]
)
def test_an_unknown_drafter_is_refused_with_the_allowed_names(target, name, told):
    with pytest.raises(InputError, match=told):
        build_drafter(name, target, DEPTH)


def arguments(model_folder, prompt_file, out, *more):
    fixed = ["record", "--model", str(model_folder), "--prompts", str(prompt_file), "--out", str(out), "--depth", "3"]
    return [*fixed, "--max-new-tokens", "8", "--threads", "1", *more]


def test_the_command_writes_a_trace_and_refuses_to_write_over_it(model_folder, prompt_file, tmp_path, capsys):
    out = tmp_path / "recorded"
    command = arguments(model_folder, prompt_file, out, "--drafters", "ngram, exit2", "--limit", "2")
    assert run(command) == 0
    trace = Trace.open(out)
    assert len(trace) == 2
    assert [spec.name for spec in trace.drafters] == ["ngram", "exit2"]
    told = capsys.readouterr().err
    assert "2 requests" in told
    assert all(len(line) <= 80 for line in told.splitlines() if str(out) not in line)
    assert run(command) == 2
    assert "holds a finished trace" in capsys.readouterr().err


def test_a_limit_is_of_prompts_in_all(model_folder, prompt_file, tmp_path):
    more = tmp_path / "more.jsonl"
    more.write_text("".join(f'{{"id": {number}, "domain": "math", "prompt": "{number}+1="}}\n' for number in range(4)))
    out = tmp_path / "recorded"
    command = arguments(model_folder, prompt_file, out, "--prompts", str(more), "--drafters", "ngram", "--limit", "3")
    assert run(command) == 0
    trace = Trace.open(out)
    assert trace.requests.request_id.tolist() == [0, 10, 11]
    assert [(one.name, one.num_prompts) for one in trace.manifest.prompt_sets] == [("words", 2), ("more", 1)]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--drafters", "medusa"], "drafter 'medusa': must be 'ngram' or 'exitL'"),
        (["--dtype", "int4"], "dtype 'int4'"),
        (["--depth", "0"], "depth"),
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl: no such prompt file"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(model_folder, prompt_file, tmp_path, capsys, more, told):
    assert run(arguments(model_folder, prompt_file, tmp_path / "t", *more)) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(lines) == 1
    assert told in lines[0]


def test_an_interrupt_keeps_what_was_recorded_and_says_how_to_go_on(
    model_folder, prompt_file, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "recorded"
    command = arguments(model_folder, prompt_file, out, "--drafters", "ngram", "--limit", "3", "--batch-size", "1")
    add = TraceWriter.add

    def interrupted(writer, *given):
        if writer.done:
            raise KeyboardInterrupt
        add(writer, *given)

    with monkeypatch.context() as patch:
        patch.setattr(TraceWriter, "add", interrupted)
        assert run(command) == 130
    said = f"specsim: interrupted: {out} keeps what was recorded; go on with --resume"
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert len(list(out.glob("parts/*.parquet"))) == 1
    assert run(command) == 2
    assert run([*command, "--resume"]) == 0
    assert "2 requests" in capsys.readouterr().err
    assert len(Trace.open(out)) == 3


def test_a_folder_that_cannot_be_made_is_refused_before_the_model_is_loaded(prompt_file, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run(arguments(tmp_path / "no-model", prompt_file, tmp_path / "file" / "t")) == 2
    assert capsys.readouterr().err == f"specsim: error: --out: {tmp_path / 'file'} is not a folder\n"


NOT_LOADED = "the model was loaded"


@pytest.fixture
def early(prompt_file, model_folder, tmp_path, capsys, monkeypatch):
    """Runs a recording that must be refused before a model is loaded; returns its one line."""
    monkeypatch.setattr("specsim.live.models.load_model", lambda *_, **__: pytest.fail(NOT_LOADED))

    def command(*more, out=tmp_path / "t"):
        assert run(arguments(model_folder, prompt_file, out, *map(str, more))) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line.removeprefix("specsim: error: ")

    return command


def test_drafters_that_are_not_there_are_refused_before_the_model_is_loaded(early, tmp_path):
    assert early("--drafters", "ngram,medusa").startswith("drafter 'medusa': must be 'ngram' or 'exitL'")
    assert early("--drafters", "ngram,drafter=./nowhere").startswith("./nowhere: no such drafter folder")
    assert "drafts" in early("--drafters", "exit2", "--draft-law", "sampled")
    head = tmp_path / "head"
    head.mkdir()
    assert early("--drafters", f"drafter={head}:sampled") == f"{head}: not a drafter (config.json is missing)"
    (head / "config.json").write_text("{}")
    (head / "pytorch_model.bin").touch()
    assert "weights are pickled" in early("--drafters", f"drafter={head}")
    assert "pytorch_model.bin: cannot be read" in early("--drafters", f"drafter={head}", "--allow-pickle")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--seed", 2**63), "seed is 9223372036854775808; it must be from 0 to 2^63 - 1"),
        (("--temperature", "inf"), "temperature is inf; it must be finite and at least 0"),
        (("--drafters", "ngram,ngram"), "--drafters ngram,ngram: give each once"),
        (("--drafters", " , "), "--drafters ' , ': give at least one"),
    ],
)
def test_what_no_model_can_be_recorded_with_is_refused_before_one_is_loaded(early, more, told):
    assert early(*more) == told


def test_a_folder_that_holds_a_recording_is_refused_before_the_model_is_loaded(
    early, target, drafters, files, tmp_path
):
    record(target, drafters, files, tmp_path / "done", OPTIONS)
    for more in ([], ["--resume"]):
        assert early(*more, out=tmp_path / "done").startswith(f"{tmp_path / 'done'}: holds a finished trace; allowed:")
    TraceWriter(tmp_path / "begun", Trace.open(tmp_path / "done").manifest.model_copy(update={"files": {}}))
    assert "holds a partly written trace; allowed: resume it" in early(out=tmp_path / "begun")
    (tmp_path / "other" / "parts").mkdir(parents=True)
    (tmp_path / "other" / "parts" / "1.parquet").touch()
    assert "other/parts: in use; allowed: a new or empty folder" in early(out=tmp_path / "other")
