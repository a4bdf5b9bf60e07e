"""`specsim run --acceptance`: real passes, recorded acceptance, and nothing that could be taken for an output."""

import io
import json
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs the extra `live`")

from rich.console import Console

from specsim.cli.live_options import draft_prices
from specsim.cli.run_display import Blocks
from specsim.errors import InputError
from specsim.live.session import LiveSession
from specsim.live.session_config import SessionConfig, Weights
from specsim.live.session_replay import Acceptance
from specsim.trace import Trace
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace
from tests.live import conftest as live

make_model, tokenizer, model_folder = live.make_model, live.tokenizer, live.model_folder
one_torch_thread = live.one_torch_thread

LABEL = "acceptance replayed from synthetic-small"


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace on disk whose drafters have the names of the demo model's, so that its cost table prices them."""
    drafters = tuple(
        SyntheticDrafter(name, mean_acceptance_length=length, max_depth=6, target_fraction=0.5)
        for name, length in (("ngram", 1.5), ("exit24", 2.5))
    )
    lengths = {"num_prompt_tokens": (3, 8), "num_output_tokens": (4, 12)}
    folder = tmp_path_factory.mktemp("traces") / "small"
    SyntheticTrace(SyntheticConfig("small", drafters, num_requests=6, **lengths)).write(folder)
    return folder


@pytest.fixture
def replay(specsim, model_folder, trace):
    """Runs it on random weights of the tiny shape."""

    def command(*arguments):
        given = ("--model", model_folder, "--load-format", "dummy", "--cost", "cpu-smollm2", "--policy", "dcut@ucb1")
        return specsim("run", "--acceptance", f"trace:{trace}", *given, *arguments)

    return command


def test_a_line_a_request_and_the_summary_say_that_acceptance_is_replayed(replay, trace):
    code, out, err = replay("--requests", 5, "--concurrency", 2)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 5
    assert all(line.endswith(LABEL) and " tokens" in line for line in lines)
    assert f"{LABEL}: real passes" in err
    for words in (
        "drafted by ngram",
        "drafted by exit24",
        "tokens are fillers: there is no text",
        "ngram free, exit24 fr",
    ):
        assert words in err.replace("\n", " ")
    assert "identical to plain decoding" not in err
    assert "random, so" not in err
    code, out, _ = replay("--requests", 1, "--concurrency", 1)
    assert (code, out.count(LABEL), out.count("\n")) == (0, 1, 1)


def test_json_says_so_too_and_holds_no_tokens(replay, trace):
    code, out, _ = replay("--requests", 4, "--draft-work", "layers:1", "--draft-work", "ngram=free", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["acceptance"] == LABEL
    assert LABEL in facts["notes"]
    assert "what drafting itself takes here: ngram free, exit24 layers:1" in facts["notes"]
    recorded = Trace.open(trace).requests
    lengths = dict(zip(recorded.request_id.tolist(), recorded.num_output_tokens.tolist(), strict=True))
    for output in facts["outputs"]:
        assert (output["text"], output["token_ids"]) == (None, None)
        assert output["num_output_tokens"] == lengths[output["prompt_id"]]
    assert facts["metrics"]["num_output_tokens"] == sum(output["num_output_tokens"] for output in facts["outputs"])


def test_its_telemetry_has_parity_and_says_what_it_is(replay, specsim, tmp_path):
    folder = tmp_path / "run"
    code, out, _ = replay("--requests", 6, "--concurrency", 3, "--out", folder, "--quiet")
    assert (code, out) == (0, "")
    assert json.loads((folder / "run.json").read_text())["acceptance"] == LABEL
    assert LABEL in json.loads((folder / "manifest.json").read_text())["how"]
    code, out, _ = specsim("parity", folder)
    assert code == 0
    assert "EQUAL" in out
    assert LABEL in out.replace("\n", " ")
    code, _, err = specsim("run", "--acceptance", f"trace:{folder}")
    assert code == 2
    assert "a trajectory trace holds only the blocks" in err


def test_a_limit_and_a_depth_cut_what_was_recorded(replay):
    code, out, _ = replay("--requests", 4, "--max-new-tokens", 3, "--depth", 2, "--json")
    facts = json.loads(out)
    assert code == 0
    assert {output["num_output_tokens"] for output in facts["outputs"]} == {3}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--temperature", "1"), "temperature is 1.0: a replay's tokens are fillers"),
        (("--top-k", "5"), "top_k is 5"),
        (("--stop", "a"), "stop is"),
        (("--prompts", "x"), "--prompts: --acceptance serves the trace's requests"),
        (("--prompt", "x", "--limit", "2"), "--prompt, --limit: --acceptance serves"),
        (("--no-chat-template",), "--no-chat-template: --acceptance serves"),
        (("--compare-autoregressive",), "run it again with the other policy, such as autoregressive"),
        (("--depth", "7"), "depth 7: synthetic-small was recorded to depth 6"),
        (("--drafters", "ngram,exit28"), "has no such drafter; it has ngram, exit24"),
        (("--draft-work", "layers"), "draft work 'layers': must be free, or layers:K"),
        (("--draft-work", "free", "--draft-work", "layers:1"), "every drafter takes free already"),
        (("--draft-cost", "ngram"), "--draft-cost ngram: write DRAFTER=DRAFTER_OF_TABLE"),
        (("--draft-cost", "ngram=none"), "cannot price ngram as none"),
        (("--draft-cost", "exit28=ngram"), "draft cost of 'exit28': the run has no such drafter"),
        (("--acceptance", "small"), "must be trace:NAME"),
        (("--acceptance", "trace:./nowhere"), "nowhere: no such trace"),
        (("--acceptance", "trace:h20-dflash"), "--draft-cost dflash=NAME"),
    ],
)
def test_what_makes_no_sense_is_one_line_before_a_model_is_loaded(replay, monkeypatch, options, words):
    monkeypatch.setattr("specsim.live.models.load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    code, out, err = replay(*options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


def test_options_of_a_replay_do_not_stand_alone(refused):
    assert refused("run", "--requests", 3) == "--requests needs --acceptance (of prompts, --limit)"
    assert refused("run", "--draft-work", "free") == "--draft-work needs --acceptance"


def test_prices_are_read_from_their_last_equals_sign():
    assert draft_prices(["model=small=exit24", "a=b"]) == {"model=small": "exit24", "a": "b"}
    with pytest.raises(InputError, match="--draft-cost a=c"):
        draft_prices(["a=b", "a=c"])


def test_prompts_on_random_weights_say_that_outputs_mean_nothing(specsim, model_folder):
    code, _, err = specsim(
        "run", "--model", model_folder, "--load-format", "dummy", "--cost", "cpu-smollm2", "--prompt", "abcd efgh",
        "--max-new-tokens", 3,
    )  # fmt: skip
    assert code == 0
    assert "note: the weights are random" in err
    assert "--acceptance trace:NAME" in err


def test_the_table_of_running_requests_says_so_in_its_bottom_line(model_folder, trace):
    config = SessionConfig(
        Weights(str(model_folder), load_format="dummy"), (), "dcut@ucb1", "cpu-smollm2",
        acceptance=replace(Acceptance.named(f"trace:{trace}"), num_requests=3),
    )  # fmt: skip
    session = LiveSession(config)
    shown = Blocks(session.engine, [job.prompt for job in session.jobs], None, texts=False)
    screen = Console(file=io.StringIO(), width=200)
    screen.print(shown._picture(200))
    assert screen.file.getvalue().rstrip().endswith(f"; {LABEL}")
