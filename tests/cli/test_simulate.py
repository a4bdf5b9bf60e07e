"""`specsim simulate`: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest


@pytest.fixture
def base(world):
    return ["simulate", "--trace", world / "trace", "--cost", world / "linear", "--policy", "dcut@strong"]


def test_it_prints_latencies_and_metrics_within_80_columns(specsim, base):
    code, out, _ = specsim(*base)
    assert code == 0
    head = "trace synthetic-small, cost table example-linear\n8 requests at a time, seed 0"
    assert out.startswith(f"dcut@strong\n{head}\n\n")
    for word in ("TTFT", "TPOT", "ITL", "E2E", "throughput", "mean acceptance length", "% of verified drafts"):
        assert word in out
    assert "note: prompts cost nothing (--prefill excluded)" in out
    assert "note: the cost table is a made-up example" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_load_is_told_in_words(specsim, base):
    assert "\n1 request at a time, seed 3\n" in specsim(*base, "--batch", 1, "--seed", 3)[1]
    assert "\n2.5 requests/s, seed 0\n" in specsim(*base, "--rate", 2.5, "--requests", 8)[1]


def test_notes_on_several_drafters_are_one_and_its_further_lines_stand_below_its_first(specsim):
    shipped = ["--trace", "smollm2-drafters", "--cost", "cpu-smollm2-drafters", "--extrapolate"]
    _, out, _ = specsim("simulate", *shipped, "--policy", "dcut:depth=3@ucb1", "--batch", 1, "--requests", 4)
    lines = out.splitlines()
    (first,) = [index for index, line in enumerate(lines) if "measured context of drafting by" in line]
    assert lines[first].startswith("note: extrapolated")
    assert lines[first + 1].startswith("      ")
    assert " and ngram" in lines[first + 1]
    assert max(map(len, lines)) <= 80


def test_the_same_command_prints_the_same(specsim, base):
    assert specsim(*base, "--json") == specsim(*base, "--json")
    assert specsim(*base, "--json") != specsim(*base, "--json", "--seed", 1)


def test_json_is_all_it_prints_when_asked(specsim, base):
    code, out, err = specsim(*base, "--batch", 4, "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert (document["policy"], document["concurrency"]) == ("dcut@strong", 4)
    assert document["metrics"]["goodput"] is None


def test_an_open_loop_has_queueing_and_goodput(specsim, base):
    _, out, _ = specsim(*base, "--rate", 4, "--prefill", "charged", "--slo-ttft", 10, "--slo-tpot", 1, "--json")
    metrics = json.loads(out)["metrics"]
    assert metrics["ttft_p50"] > 0
    assert metrics["goodput"] == pytest.approx(metrics["request_throughput"])
    assert metrics["num_requests"] == 64


def test_burstier_arrivals_wait_longer(specsim, base):
    def wait(*options):
        return json.loads(specsim(*base, "--rate", 5, "--requests", 300, "--json", *options)[1])["metrics"]["ttft_mean"]

    assert wait("--burstiness", 0.1, "--max-num-seqs", 4) > wait("--max-num-seqs", 4) > 0


def test_replicas_share_the_load(specsim, base):
    one, two = (
        json.loads(
            specsim(*base, "--rate", 40, "--requests", 100, "--replicas", n, "--router", "least_loaded", "--json")[1]
        )
        for n in (1, 2)
    )
    assert two["num_replicas"] == 2
    assert two["metrics"]["e2e_mean"] < one["metrics"]["e2e_mean"]


def test_a_single_domain_can_be_replayed(specsim, base, tmp_path, world):
    from specsim.trace import Trace

    specsim(*base, "--domain", "chat", "--out", tmp_path / "run")
    trace = Trace.open(world / "trace").slice(domains=["chat"])
    finished = pq.read_table(tmp_path / "run" / "requests.parquet").column("request_id").to_pylist()
    assert set(finished) <= set(trace.requests.request_id.tolist())


def test_it_writes_requests_steps_and_metrics(specsim, base, tmp_path):
    code, out, _ = specsim(*base, "--out", tmp_path / "run")
    assert code == 0
    for name in ("requests.parquet", "steps.parquet", "summary.json"):
        assert f"wrote {tmp_path / 'run' / name}" in out
    steps = pq.read_table(tmp_path / "run" / "steps.parquet")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert steps.num_rows >= summary["metrics"]["num_decode_steps"]


def test_what_a_policy_learned_starts_the_next_run(specsim, base, tmp_path):
    bandit = [*base[:-1], "dcut@ucb1"]
    state = tmp_path / "state.json"
    assert specsim(*bandit, "--save-controller", state)[0] == 0
    pulls = json.loads(state.read_text())["drafter_policy"]["pulls"]
    assert specsim(*bandit, "--load-controller", state, "--save-controller", state)[0] == 0
    again = json.loads(state.read_text())["drafter_policy"]["pulls"]
    assert sum(again) > sum(pulls) > 0


def test_a_lossy_policy_is_marked(specsim, base, world, tmp_path):
    from specsim.core import DrafterSpec
    from specsim.trace import DrafterEntry, Manifest, RecordedBlocks, RequestRow, TraceWriter

    spec = DrafterSpec("soft", "model", "sampled", "parallel", ("drawn_prob", "max_prob"), 2)
    manifest = Manifest(
        name="sampled", recorded_by="test", how="by hand", target="none", licence="none",
        drafters=(DrafterEntry.of(spec, "by hand"),),
    )  # fmt: skip
    writer = TraceWriter(tmp_path / "trace", manifest)
    confidence = [[0.9, 0.8]] * 6
    blocks = RecordedBlocks([2] * 6, [1] * 6, [2] * 4 + [2, 1], confidence, confidence_max=confidence)
    writer.add(RequestRow(1, "chat", 4, 6, "length"), {"soft": blocks})
    writer.finish()
    arguments = ["simulate", "--trace", tmp_path / "trace", "--cost", world / "linear", "--policy", "dcut",
                 "--draft-cost", "soft=strong", "--batch", 1, "--requests", 2]  # fmt: skip
    code, _, err = specsim(*arguments)
    assert code == 2
    assert "--allow-lossy" in err
    code, out, _ = specsim(*arguments, "--allow-lossy")
    assert code == 0
    assert "LOSSY:" in out


def test_a_bound_is_marked(specsim, base):
    _, out, _ = specsim(*base[:-1], "clairvoyant@strong")
    assert "A bound, not a policy" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "guess"], "unknown budget policy 'guess': allowed autoregressive"),
        (["--policy", "dcut"], "dcut: this run has 2 drafters, choose one"),
        (["--policy", "dcut@nobody"], "'nobody': allowed"),
        (["--policy", "dcut:rho=1@strong"], "dcut: unknown option 'rho': allowed depth"),
        (["--policy", "fixed_depth:depth=9@strong"], "depth 9 is deeper than any drafter goes"),
        (["--policy", ""], "a policy's name is missing"),
        (["--trace", "nowhere"], "nowhere: no such trace"),
        (["--trace", "synthetic:none"], "unknown preset; allowed: h20-dflash"),
        (["--cost", "nowhere"], "nowhere: no such cost"),
        (["--batch", "0"], "concurrency is 0; it must be from 1"),
        (["--batch", "-3"], "concurrency is -3; it must be from 1"),
        (["--batch", "x"], "Invalid value for '--batch'"),
        (["--batch", "257"], "--batch 257 exceeds --max-num-seqs 256"),
        (["--rate", "0"], "rate is 0.0; it must be positive"),
        (["--rate", "nan"], "rate is nan; it must be positive and finite"),
        (["--rate", "2", "--batch", "2"], "--batch and --rate: give one of them"),
        (["--burstiness", "2"], "--burstiness needs --rate"),
        (["--rate", "2", "--burstiness", "0"], "burstiness is 0.0; it must be positive"),
        (["--trace-arrivals", "1"], "24 requests have no arrival to replay"),
        (["--trace-arrivals", "1", "--requests", "3"], "--requests does not go with --trace-arrivals"),
        (["--requests", "0"], "num_requests is 0; it must be from 1"),
        (["--domain", "poetry"], "domain 'poetry' is not in the trace"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--replicas", "0"], "Invalid value for '--replicas'"),
        (["--router", "random"], "random"),
        (["--draft-cost", "strong"], "--draft-cost strong: write DRAFTER_OF_TRACE=DRAFTER_OF_TABLE"),
        (["--draft-cost", "strong="], "--draft-cost strong=: write DRAFTER_OF_TRACE=DRAFTER_OF_TABLE"),
        (["--draft-cost", "strong=none"], "cannot price strong as none: it has strong, weak"),
        (["--draft-cost", "h20:strong=weak"], "h20 is not among the cost tables"),
        (["--draft-cost", "third=weak"], "the trace has no such drafter; it has strong, weak"),
        (["--slo-ttft", "0"], "--slo-ttft is 0.0; it must be positive"),
        (["--slo-tpot", "-1"], "--slo-tpot is -1.0; it must be positive"),
        (["--prefill", "free"], "prefill is 'free'; allowed: charged, excluded"),
        (["--max-num-seqs", "0"], "max_num_seqs is 0; it must be at least 1"),
        (["--max-num-batched-tokens", "8"], "max_num_batched_tokens is 8"),
        (["--block-size", "0"], "block_size is 0; it must be at least 1"),
        (["--num-kv-blocks", "0"], "num_kv_blocks is 0; it must be at least 1"),
        (["--num-kv-blocks", "1"], "KV blocks"),
        (["--max-model-len", "1"], "leaves no room under max_model_len 1"),
        (["--max-tokens", "0"], "max_tokens is 0; it must be at least 1"),
        (["--load-controller", "nowhere.json"], "--load-controller nowhere.json: no such file"),
        (["--save-controller", "."], "--save-controller .: is a folder"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(refused, base, options, message):
    assert message in refused(*base, *options)


def test_a_cost_table_is_not_used_outside_its_range_unasked(refused, specsim, world):
    arguments = ["simulate", "--trace", world / "trace", "--cost", world / "staircase", "--policy", "dcut@strong",
                 "--batch", "20"]  # fmt: skip
    assert "example-staircase" in (line := refused(*arguments))
    assert "--extrapolate" in line
    code, out, _ = specsim(*arguments, "--extrapolate")
    assert code == 0
    assert "extrapolated" in out


def test_what_no_request_had_is_a_dash(specsim, base):
    code, out, _ = specsim(*base, "--max-tokens", 1)
    assert code == 0
    assert re.search(r"^TTFT( +[\d.]+){4} +to the first token", out, re.MULTILINE)
    assert re.search(r"^TPOT( +–){4} +a further token", out, re.MULTILINE)


def test_a_state_of_another_policy_is_refused(refused, base, tmp_path):
    state = tmp_path / "state.json"
    for text, message in (
        ("{", "not a state of"),
        ("[" * 100_000, "not a state of"),
        ("[]", "not a state of"),
        ("{}", "the state was learned on drafters None"),
        ('{"drafters": ["other"]}', "the state was learned on drafters ['other']"),
    ):
        state.write_text(text)
        assert message in refused(*base, "--load-controller", state)


def test_a_file_where_a_folder_should_be_is_refused(refused, base, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is not a folder" in refused(*base, "--out", tmp_path / "file")
    assert "is not a folder" in refused(*base, "--save-controller", tmp_path / "file" / "state.json")
