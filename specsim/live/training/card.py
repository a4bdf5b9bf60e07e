"""The card of a trained drafter: where it comes from and what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.live.drafters.checkpoints import DrafterNet
from specsim.live.training.data import KINDS, TokenData
from specsim.live.training.evaluate import table
from specsim.live.training.features import Target
from specsim.live.training.recipe import Recipe
from specsim.live.training.trainer import TrainingRun


@dataclass(frozen=True)
class Origin:
    """What a card says beside what was measured.

    data      the training data, in words, with their hash
    held_out  the held-out data, likewise
    hardware  the device, in words
    licence   of the weights
    command   that was given
    """

    data: str
    held_out: str
    hardware: str
    licence: str
    command: str


def training_notes(recipe: Recipe, target: Target, run: TrainingRun, origin: Origin) -> dict[str, Any]:
    """What config.json keeps of the training."""
    return {
        "hardware": origin.hardware,
        "licence": origin.licence,
        "seconds": round(run.seconds, 1),
        "seed": recipe.seed,
        "steps": run.steps,
        "target": target.name,
        "target_hash": target.model_hash,
    }


def write_card(
    recipe: Recipe,
    target: Target,
    data: TokenData,
    run: TrainingRun,
    net: DrafterNet,
    origin: Origin,
    results: dict[str, Any] | None,
) -> str:
    """README.md of a drafter's folder, in Markdown."""
    names: Sequence[str] = recipe.domains or data.domains
    rows = data.rows_of(names)
    found = set(data.domain[rows].tolist())
    names = [name for name in names if data.domains.index(name) in found]
    outputs = int((data.lengths - data.prompt_len)[rows].sum())
    drawn = ", ".join(f"{int((data.kind[rows] == index).sum())} {name}" for index, name in enumerate(KINDS))
    what = (
        f"a block drafter (DFlash): {recipe.block_size - 1} drafts in one pass"
        if recipe.kind == "block"
        else "an EAGLE-3 head: drafts one token after another"
    )
    size = sum(weight.numel() for weight in net.parameters())
    final = f"{run.losses[-1][2]:.3f}" if run.losses else "not read"
    step = f"{recipe.rows} rows x {recipe.anchors} anchors a step"
    facts = {
        "target": f"{target.name}, sha256 of its weights {target.model_hash or 'not known'}",
        "trained on": f"{origin.data}: {len(rows):,} outputs of the target ({drawn}), {outputs:,} tokens",
        "domains": ", ".join(names),
        "started from": started_from(recipe.init),
        "training": f"{run.steps:,} steps, {run.seconds:.0f} s, seed {recipe.seed}; {step}; last loss {final}",
        "hardware": origin.hardware,
        "command": f"`{origin.command}`",
        "licence": origin.licence,
    }
    lines = [
        f"# {recipe.name}",
        "",
        f"A drafter for speculative decoding with {target.name}: {what}. {size:,} parameters, {recipe.layers} decoder",
        f"layer{'s' if recipe.layers > 1 else ''}, feed-forward width {recipe.ffn}. The embedding and the LM head are "
        "the target's and are not stored.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in facts.items()),
        "",
        "## Evaluation",
        "",
        f"Held out: {origin.held_out}. Acceptance lengths are mean tokens emitted by one verification, bonus token",
        "included, along the target's greedy outputs, with 7 and 15 drafts a block; an output loops when more than",
        "40 % of its 4-grams repeat. ECE and AUC are those of the draft's probability, given that all drafts before",
        "it were accepted.",
        "",
        table(results) if results else "Not evaluated.",
    ]
    return "\n".join(lines)


def started_from(init: str) -> str:
    """What training began with, in words: a folder by its name alone, since where it lies is nobody's business.

    init  folder or hub id of a drafter (empty: none)
    """
    if not init:
        return "random weights"
    return Path(init).resolve().name if Path(init).is_dir() else init
