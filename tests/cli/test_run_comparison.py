"""`specsim run --compare, --ablate`: what each part of the policy brought."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs the extra `live`")

from specsim.cli.run_comparison import comparison_lines, identity, wrapped
from specsim.live.session_result import Difference
from tests.live import conftest as live

make_model, tokenizer, model_folder, prompt_file = live.make_model, live.tokenizer, live.model_folder, live.prompt_file
one_torch_thread = live.one_torch_thread

ARMS = ("--drafters", "ngram,exit2", "--policy", "dcut:ratios=all@ucb1", "--depth", 4)
LABELS = ["autoregressive", "without pruning", "ngram alone", "exit2 alone", "autoregressive, again"]


@pytest.fixture
def live_run(specsim, model_folder, prompt_file):
    def command(*arguments):
        given = ("run", "--model", model_folder, "--cost", "cpu-smollm2", "--prompts", prompt_file)
        return specsim(*given, "--max-new-tokens", 12, *ARMS, *arguments)

    return command


def test_an_ablation_prints_a_row_a_run_and_a_sentence_a_part(live_run):
    code, _, err = live_run("--ablate", "--concurrency", 3)
    assert code == 0
    lines = err.splitlines()
    assert all(len(line) <= 80 for line in lines)
    first = next(number for number, line in enumerate(lines) if line.startswith("the same prompts"))
    assert re.split(r"  +", lines[first].strip()) == [
        "the same prompts", "tokens/s", "speedup", "tokens a step", "verified",
    ]  # fmt: skip
    rows = [re.split(r"  +", line.strip()) for line in lines[first + 1 : first + 7]]
    assert [row[0] for row in rows] == ["this run", *LABELS]
    assert (rows[1][2:], rows[2][4]) == (["1.00×", "1.00", "–"], "100.0 %")
    assert not any(line.strip().startswith("%") for line in lines)
    said = " ".join(err.split())
    for words in (
        "speculation as controlled here: ", "pruning: ", "choosing the drafter: ", "against the best one (",
        "against one taken blindly", "the machine: plain decoding again, after all others: ",
        "identical to plain decoding: yes, all 9 outputs, token by token",
        "identical in all 4 other runs: yes, token by token",
    ):  # fmt: skip
        assert words in said


def test_json_has_every_comparison_and_what_was_left_out(live_run):
    code, out, _ = live_run("--ablate", "--json")
    facts = json.loads(out)
    assert code == 0
    assert [other["label"] for other in facts["comparisons"]] == LABELS
    assert all(other["identical"] and other["num_compared"] == 9 for other in facts["comparisons"])
    assert facts["autoregressive"] == facts["comparisons"][0]
    assert facts["comparisons"][1]["policy"].startswith("fixed_depth")
    assert facts["not_compared"] == []
    facts = json.loads(live_run("--compare", "fixed_depth:depth=1@ngram", "--compare-seconds", 0, "--json")[1])
    assert (facts["comparisons"], facts["autoregressive"]) == ([], None)
    assert facts["not_compared"] == ["fixed_depth:depth=1@ngram"]


def test_policies_named_are_compared_without_an_ablation(live_run):
    code, _, err = live_run("--compare", "fixed_depth:depth=1@ngram", "--compare-autoregressive")
    assert code == 0
    assert "fixed_depth:depth=1@ngram" in err
    assert "identical in the other run: yes, token by token" in err
    assert "choosing the drafter" not in err
    assert "not compared" not in err
    _, _, err = live_run("--compare", "fixed_depth:depth=1@ngram", "--compare-seconds", 0)
    assert "not compared, for want of time: fixed_depth:depth=1@ngram" in err


def other(part, label, speedup, difference=None):
    return SimpleNamespace(part=part, label=label, speedup=speedup, compared=9, difference=difference)


def result(*comparisons, left_out=()):
    plain = next((one for one in comparisons if one.part == "plain"), None)
    return SimpleNamespace(comparisons=comparisons, plain=plain, left_out=left_out)


def test_sentences_say_what_the_numbers_say():
    """The session does 40 tokens/s, plain decoding 20 and later 25, no pruning 32, the drafters alone 50 and 10."""
    shown = result(
        other("plain", "autoregressive", 2.0),
        other("unpruned", "without pruning", 1.25),
        other("alone", "good alone", 0.8),
        other("alone", "bad alone", 4.0),
        other("again", "autoregressive, again", 1.6),
    )
    lines = comparison_lines(shown)
    assert lines[0] == "speculation as controlled here: +100.0 % over autoregressive decoding"
    assert lines[1].startswith("pruning: +25.0 % over ")
    assert lines[2] == (  # blindly: a token takes the mean of 1/50 and 1/10 s, so 16.7 tokens/s
        "choosing the drafter: -20.0 % against the best one (good alone), +140.0 % against one taken blindly, "
        "+300.0 % against the worst (bad alone)"
    )
    assert "after all others: +25.0 %;" in lines[3]


def test_a_choice_is_told_of_drafters_that_were_compared():
    alone = [other("alone", f"{name} alone", 1.0) for name in "ab"]
    assert not any(line.startswith("choosing") for line in comparison_lines(result(alone[0])))
    some = comparison_lines(result(*alone, left_out=("c alone",)))
    assert some[0].startswith("choosing the drafter: +0.0 % against the best one compared (a alone), ")
    assert some[1] == "not compared, for want of time: c alone"


def test_a_number_stays_with_its_per_cent_sign():
    assert wrapped("a gain of +10.0 % here", 16) == "a gain of\n  +10.0 % here"


def test_every_run_whose_outputs_differ_is_named():
    apart = Difference(3, 17, 2)
    alike = result(
        other("plain", "autoregressive", 2.0), other("alone", "a alone", 1.0), other("alone", "b alone", 1.0)
    )
    assert identity(alike)[1:] == ["identical in all 2 other runs: yes, token by token"]
    differ = result(
        other("plain", "autoregressive", 2.0), other("alone", "a alone", 1.0, apart), other("alone", "b", 1.0)
    )
    assert identity(differ) == [
        "identical to plain decoding: yes, all 9 outputs, token by token",
        "identical to the run a alone: no, 2 of 9 outputs differ; first difference at token 17 of request 3",
    ]
