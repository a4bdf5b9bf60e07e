"""`specsim trace`: look at acceptance traces, check them, cut them, make them up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from specsim.errors import InputError
from specsim.shipped import shipped_names
from specsim.trace import Trace
from specsim.trace.hardness import Spread
from specsim.trace.presets import PRESETS
from specsim.trace.show import render
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

app = typer.Typer(name="trace", help="Look at acceptance traces, check, cut and make them up.", no_args_is_help=True)

TracePath = Annotated[str, typer.Argument(metavar="TRACE", help="Folder of a trace, or the name of a shipped one.")]


@app.command()
def info(
    trace: TracePath,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Print what a trace holds and how its drafters fare."""
    with _status("reading the trace"):
        described = Trace.open(trace).info()
    if as_json:
        typer.echo(json.dumps(described, indent=1))
        return
    console = Console()
    for part in render(described):
        console.print(part)


@app.command()
def validate(trace: TracePath) -> None:
    """Check every byte and row of a trace; the first fault is one line, and exit code 2."""
    with _status("checking the trace"):
        report = Trace.open(trace, verify_hashes=True).validate()
    typer.echo(
        f"{report.path}: valid, {report.num_requests:,} requests, {report.num_rows:,} blocks, "
        f"{report.num_steps:,} steps, sha256 of {report.num_files} files"
    )


@app.command("slice")
def cut(
    trace: TracePath,
    out: Annotated[Path, typer.Argument(help="New folder for the copy.")],
    domain: Annotated[list[str] | None, typer.Option(help="Keep this domain; may be repeated.")] = None,
    requests: Annotated[
        str | None, typer.Option(metavar="START:STOP", help="Keep these of the requests, counted from 0.")
    ] = None,
) -> None:
    """Write a copy with some of the requests: those of START:STOP that are of a domain named."""
    with _status("writing the copy"):
        copy = Trace.open(trace).slice(domains=domain, requests=_span(requests), out=out)
    typer.echo(f"{copy.path}: {len(copy):,} requests, {int(copy.requests.num_output_tokens.sum()):,} output tokens")


@app.command("list")
def list_traces() -> None:
    """List the shipped traces."""
    for name in shipped_names("trace"):
        typer.echo(name)


@app.command()
def synthesize(
    out: Annotated[Path, typer.Argument(help="New folder for the trace.")],
    name: Annotated[str, typer.Option(help="Ends the trace's name, which begins with `synthetic-`.")] = "trace",
    rates: Annotated[
        str | None, typer.Option(help="Conditional acceptance by draft position, such as .85,.8,.75; the last goes on.")
    ] = None,
    mean_acceptance_length: Annotated[
        float | None, typer.Option(help="Tokens a step, bonus included, instead of --rates (default: 3).")
    ] = None,
    depth: Annotated[int, typer.Option(help="Draft tokens a block.")] = 15,
    requests: Annotated[int, typer.Option(help="Number of requests.")] = 64,
    prompt_tokens: Annotated[str, typer.Option(metavar="LEAST:MOST", help="Prompt lengths.")] = "128:512",
    output_tokens: Annotated[str, typer.Option(metavar="LEAST:MOST", help="Output lengths.")] = "128:256",
    domains: Annotated[
        str, typer.Option(help="NAME=DIFFICULTY of each domain, comma separated; equal shares, 1 is average.")
    ] = "synthetic=1",
    domain_order: Annotated[str, typer.Option(help="mixed, or sequential: one domain after the other.")] = "mixed",
    request_spread: Annotated[float, typer.Option(help="Variance of the requests' difficulty, 0 to below 1.")] = 0.1,
    token_spread: Annotated[float, typer.Option(help="Variance of the hardness drafters see in a token.")] = 1.0,
    hidden_variance: Annotated[float, typer.Option(help="Variance of the hardness they do not see.")] = 1.0,
    overconfidence: Annotated[float, typer.Option(help="Confidence = chance^(1/this); 1 is calibrated.")] = 1.0,
    noise: Annotated[float, typer.Option(help="Standard deviation of noise on the confidence's logit.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same trace.")] = 0,
) -> None:
    """Write a made-up trace, labelled synthetic, for work without a recorded one."""
    difficulty = _difficulties(domains)
    if rates is None and mean_acceptance_length is None:
        mean_acceptance_length = 3.0
    drafter = SyntheticDrafter(
        name="synthetic",
        rates=None if rates is None else _numbers("--rates", rates),
        mean_acceptance_length=mean_acceptance_length,
        max_depth=depth,
        hidden_variance=hidden_variance,
        overconfidence=overconfidence,
        noise=noise,
        domain_difficulty=difficulty,
    )
    config = SyntheticConfig(
        name=name,
        drafters=(drafter,),
        num_requests=requests,
        domains=dict.fromkeys(difficulty, 1.0),
        domain_order=_domain_order(domain_order),
        num_prompt_tokens=_least_most("--prompt-tokens", prompt_tokens),
        num_output_tokens=_least_most("--output-tokens", output_tokens),
        spread=Spread(request_spread, token_spread),
        seed=seed,
    )
    with _status("making the trace up"):
        manifest = SyntheticTrace(config).write(out)
    typer.echo(f"{out}: {manifest.name}, {requests:,} requests; SYNTHETIC, recorded from no model")


@app.command()
def preset(
    name: Annotated[str, typer.Argument(help="h20-dflash: DFlash block 16, Qwen3-8B on an H20, as published.")],
    out: Annotated[Path, typer.Argument(help="New folder for the trace.")],
    requests: Annotated[int, typer.Option(help="Number of requests.")] = 64,
    output_tokens: Annotated[str, typer.Option(metavar="LEAST:MOST", help="Output lengths.")] = "256:768",
    seed: Annotated[int, typer.Option(help="The same seed makes the same trace.")] = 0,
) -> None:
    """Write a made-up trace that is calibrated to published acceptance, labelled synthetic."""
    if name not in PRESETS:
        raise InputError(f"preset {name!r}; allowed: {', '.join(PRESETS)}")
    limits = _least_most("--output-tokens", output_tokens)
    with _status("making the trace up"):
        manifest = PRESETS[name](num_requests=requests, num_output_tokens=limits, seed=seed).write(out)
    typer.echo(f"{out}: {manifest.name}, {requests:,} requests; SYNTHETIC, recorded from no model")


@contextmanager
def _status(message: str) -> Iterator[None]:
    """A spinner on stderr while a person waits; nothing when nobody watches."""
    with Console(stderr=True).status(message):
        yield


def _span(text: str | None) -> slice | None:
    if text is None:
        return None
    start, colon, stop = text.partition(":")
    if not colon or not all(part.isdecimal() or part == "" for part in (start, stop)):
        raise InputError(f"--requests {text!r}; allowed: START:STOP, such as 0:20")
    return slice(int(start or 0), int(stop) if stop else None)


def _least_most(option: str, text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    if not least.isdecimal() or not (most or least).isdecimal():
        raise InputError(f"{option} {text!r}; allowed: LEAST:MOST, such as 128:512, or one number")
    return int(least), int(most or least)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text!r}; allowed: numbers in [0, 1], comma separated") from None


def _difficulties(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, factor = part.partition("=")
        if not name or name in found:
            raise InputError(f"--domains {text!r}; allowed: NAME=DIFFICULTY, comma separated, each name once")
        found[name] = _numbers("--domains", factor or "1")[0]
    return found


def _domain_order(text: str) -> Literal["mixed", "sequential"]:
    if text not in ("mixed", "sequential"):
        raise InputError(f"--domain-order {text!r}; allowed: mixed or sequential")
    return "mixed" if text == "mixed" else "sequential"
