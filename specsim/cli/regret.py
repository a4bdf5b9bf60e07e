"""`specsim regret`: what choosing a drafter while learning costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from specsim.cli import options
from specsim.cli.compare import command_line, num_processors, progress_bar
from specsim.errors import InputError

if TYPE_CHECKING:
    from specsim.policies.config import PolicyConfig
    from specsim.study.regret.environment import Environment

ARMS_PANEL = "Bernoulli arms"
MOST_STEPS = 10**6
MOST_SEEDS = 10**4
TRACE_PANEL = "Arms of a trace"


@dataclass(frozen=True)
class Asked:
    """What was asked for of the environments, as given."""

    names: list[str] | None
    steps: int
    means: str
    seconds: float
    switch_seconds: float
    trace: str | None
    cost: str | None
    draft_cost: list[str] | None
    extrapolate: bool
    cycles: int
    batch: int


def regret(
    context: typer.Context,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="Drafter policy, such as ucb1:c=.5; see `specsim policies`. May be repeated (default: all).",
        ),
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            "--environment",
            metavar="NAME",
            help="stationary, one_swap, three_swaps, slow_drift or hidden_improvement. May be repeated (default: all; "
            "with --trace none of them).",
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", metavar="T", help="Steps of a run.")] = 10_000,
    seeds: Annotated[str, typer.Option("--seeds", metavar="N|A,B,...", help="How many seeds, or which ones.")] = "200",
    means: Annotated[
        str,
        typer.Option("--means", metavar="P/P/...", help="Chance of each arm at first.", rich_help_panel=ARMS_PANEL),
    ] = ".3/.7/.5",
    step_ms: Annotated[
        float, typer.Option("--step-ms", metavar="MS", help="Milliseconds of a step, where no table prices it.")
    ] = 10.0,
    switch_ms: Annotated[
        float, typer.Option("--switch-ms", metavar="MS", help="Milliseconds of a switch, where no table prices it.")
    ] = 2.0,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace",
            metavar="TRACE",
            help="Draw arms from this trace, its domains in turn: folder, or name of a shipped one.",
            rich_help_panel=TRACE_PANEL,
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(
            "--cost", metavar="TABLE", help="Price its steps and switches with this table.", rich_help_panel=TRACE_PANEL
        ),
    ] = None,
    draft_cost: options.DraftCosts = None,
    extrapolate: options.Extrapolate = None,
    cycles: Annotated[
        int | None,
        typer.Option(
            "--cycles", metavar="N", help="Times every domain is served (default: 2).", rich_help_panel=TRACE_PANEL
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", help="Requests a step (default: 1).", rich_help_panel=TRACE_PANEL),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page to this file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write regret.json and regret.parquet (one row a run) here."),
    ] = None,
    as_json: options.AsJson = False,
    jobs: options.Jobs = None,
) -> None:
    """Study what drafter policies lose while they learn which drafter is best.

    Every policy plays the same luck, hundreds of seeds side by side, where
    nothing changes, where drafters swap places, drift or improve unseen, or on a
    recorded trace whose domain changes.

    Example: specsim regret --policy ucb1 --policy thompson_beta --seeds 50
    """
    from specsim.study.regret.study import DEFAULT_POLICIES, study_regret

    policies = _policies(policy or list(DEFAULT_POLICIES))
    chosen = _seeds(seeds)
    asked = Asked(
        environment,
        steps,
        means,
        step_ms / 1e3,
        switch_ms / 1e3,
        trace,
        cost,
        draft_cost,
        bool(extrapolate),
        2 if cycles is None else cycles,
        1 if batch is None else batch,
    )
    environments, notes = _environments(asked)
    if trace is None and (cycles is not None or batch is not None or extrapolate):
        raise InputError("--cycles, --batch and --extrapolate are about a trace: give --trace")
    options.check_file(html, "--html")
    options.check_folder(out, "--out")
    with progress_bar() as bar:
        task = bar.add_task("policies and environments", total=len(policies) * len(environments))
        result = study_regret(
            environments,
            policies,
            chosen,
            jobs=jobs or num_processors(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            command=command_line(context),
            notes=notes,
        )
    if out is not None:
        result.save(out / "regret.json")
        result.save_rows(out / "regret.parquet")
    if html is not None:
        from specsim.report.regret import write_regret_report

        write_regret_report(result, html)
    if as_json:
        typer.echo(result.to_json())
        return
    from specsim.report.regret_terminal import render_regret

    render_regret(result, Console(), html)


def _policies(texts: list[str]) -> list[PolicyConfig]:
    from specsim.policies.config import PolicyConfig, parse

    # A controller's grammar has drafter policies after @; the words before it do not matter here.
    found = [parse(f"fixed_depth@{text}").drafter for text in texts]
    policies = [policy for policy in found if isinstance(policy, PolicyConfig)]
    repeated = [str(policy) for index, policy in enumerate(policies) if policy in policies[:index]]
    if repeated:
        raise InputError(f"--policy {repeated[0]} is given twice")
    return policies


def _seeds(text: str) -> list[int]:
    found = options.numbers(text, "--seeds", int)
    if "," not in text and found[0] > MOST_SEEDS:
        raise InputError(f"--seeds {text}: allowed up to {MOST_SEEDS}, which play side by side in memory")
    seeds = found if "," in text else list(range(found[0]))
    if not seeds or min(seeds) < 0 or max(seeds) >= 2**63 or len(set(seeds)) != len(seeds):
        raise InputError(f"--seeds {text}: give a number of seeds from 1 on, or different ones below 2^63 with commas")
    return seeds


def _environments(asked: Asked) -> tuple[list[Environment], list[str]]:
    """The environments, and what a reader must know of them."""
    from specsim.study.regret.bernoulli import COURSES, bernoulli

    if asked.steps > MOST_STEPS:
        raise InputError(f"--steps {asked.steps}: allowed up to {MOST_STEPS}, which are kept in memory for every seed")
    for option, value in (("--cycles", asked.cycles), ("--batch", asked.batch)):
        if value < 1:
            raise InputError(f"{option} {value}: allowed 1 or more")
    if asked.trace is None and (asked.cost or asked.draft_cost):
        raise InputError("--cost and --draft-cost price the drafters of a trace: give --trace")
    if asked.draft_cost and not asked.cost:
        raise InputError("--draft-cost needs --cost, the table whose prices to use")
    means = options.numbers(asked.means.replace("/", ","), "--means", float)
    names = asked.names if asked.names is not None else [] if asked.trace is not None else list(COURSES)
    if len(set(names)) != len(names):
        raise InputError(f"--environment {', '.join(names)}: one is given twice")
    found: list[Environment] = [
        bernoulli(name, asked.steps, means, asked.seconds, asked.switch_seconds) for name in names
    ]
    if asked.trace is None:
        return found, []
    arms, notes = _trace_arms(asked, asked.trace)
    return [*found, arms], notes


def _trace_arms(asked: Asked, trace: str) -> tuple[Environment, list[str]]:
    from specsim.study.inputs import open_table, open_trace
    from specsim.study.regret.trace_arms import trace_arms

    opened = open_trace(trace)
    table = None
    if asked.cost:
        table = open_table(asked.cost, options.draft_costs(asked.draft_cost, [asked.cost])[0], asked.extrapolate)
    arms = trace_arms(
        opened,
        asked.steps,
        cycles=asked.cycles,
        batch=asked.batch,
        cost=table,
        seconds=asked.seconds,
        switch_seconds=asked.switch_seconds,
    )
    notes = [] if table is None else [f"{table.name}: {note}" for note in table.notes]
    return arms, [*notes, *(["the trace is made up, not recorded"] if opened.manifest.synthetic else [])]
