"""Train several drafters one after the other within a time limit: the target and its hidden states are loaded once."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specsim.errors import InputError
from specsim.live.drafters.checkpoints import load_drafter, save_drafter
from specsim.live.training.card import Origin, training_notes, write_card
from specsim.live.training.data import TokenData
from specsim.live.training.evaluate import evaluate, table
from specsim.live.training.features import FeatureCache, Target, cache_features
from specsim.live.training.recipe import Recipe
from specsim.live.training.trainer import Budget, train_drafter

logger = logging.getLogger(__name__)

CLOSING_SECONDS = 8.0
"""Kept free for writing and judging each drafter."""


@dataclass(frozen=True)
class Session:
    """What the drafters of a plan have in common.

    target              the frozen model
    data                rows to train on
    held_out            rows to judge on (None: nothing is judged)
    origin              what cards say
    out                 folder for the drafters and results.json
    seconds             for everything, counted from `began_at`
    began_at            `time.monotonic()` when the command began
    steps               train exactly so many steps instead (None: by time)
    flat                write NAME.safetensors instead of folders: fewer files to carry
    checkpoint_seconds  between checkpoints (0: none are kept)
    cache_bytes         most memory for hidden states (None: what is free, less a reserve)
    single              the one drafter's folder is `out` itself
    resume              go on from checkpoints in `out`, and leave out drafters that results.json holds already
    """

    target: Target
    data: TokenData
    held_out: TokenData | None
    origin: Origin
    out: Path
    seconds: float
    began_at: float
    steps: int | None = None
    flat: bool = False
    checkpoint_seconds: float = 60.0
    cache_bytes: int | None = None
    single: bool = False
    resume: bool = False

    def __post_init__(self) -> None:
        if self.single and self.flat:
            raise InputError("flat: only the drafters of a plan are written as files")


def run_plan(recipes: Sequence[Recipe], session: Session) -> dict[str, Any]:
    """Train, write and judge each drafter; results are written after each.

    returns     results by drafter, also in out/results.json: a drafter that failed has only `error`

    A drafter that fails does not cost the others. Time left over by one goes to those after it.
    """
    session.out.mkdir(parents=True, exist_ok=True)
    results = _earlier(recipes, session)
    recipes = [recipe for recipe in recipes if recipe.name not in results]
    if not recipes:
        return results
    depth = int(session.target.config.num_hidden_layers)
    layers = tuple(sorted({layer for recipe in recipes for layer in _features(recipe, depth)}))
    data = _needed(recipes, session.data)
    cache = cache_features(
        session.target, data, layers, limit_bytes=session.cache_bytes, dtype=session.target.head.dtype
    )
    for place, recipe in enumerate(recipes):
        try:
            results[recipe.name] = _one(recipe, session, cache, _seconds(recipes[place:], session))
        except (InputError, RuntimeError, FloatingPointError, ValueError, OSError, AssertionError) as error:
            logger.error("%s failed:\n%s", recipe.name, traceback.format_exc())
            results[recipe.name] = {"error": f"{type(error).__name__}: {error}"}
        _write_json(session.out / "results.json", results)
        gc.collect()  # a failed drafter's frames hold its tensors in cycles
        if session.target.device.type == "cuda":
            torch.cuda.empty_cache()
    return results


def _earlier(recipes: Sequence[Recipe], session: Session) -> dict[str, Any]:
    """Results of drafters that were trained before a resumed run; otherwise nothing, and no checkpoints stay."""
    file = session.out / "results.json"
    if not session.resume:
        for recipe in recipes:
            (session.out / f"{recipe.name}.state").unlink(missing_ok=True)
        return {}
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    names = {recipe.name for recipe in recipes}
    return {name: result for name, result in found.items() if name in names and "error" not in result}


def _features(recipe: Recipe, depth: int) -> tuple[int, ...]:
    """Layers that a drafter reads; a fine-tuned one those it was made with."""
    if not recipe.init:
        return recipe.feature_layers(depth)
    config = load_drafter(recipe.init).config
    return config.feature_layers or config.layers_of(depth)  # type: ignore[union-attr]


def _needed(recipes: Sequence[Recipe], data: TokenData) -> TokenData:
    """Rows of the domains that any drafter is trained on."""
    if any(not recipe.domains for recipe in recipes):
        return data
    return data.select(data.rows_of(sorted({name for recipe in recipes for name in recipe.domains})))


def _seconds(left: Sequence[Recipe], session: Session) -> float:
    """Training time of the next of the drafters that are left."""
    remaining = session.seconds - (time.monotonic() - session.began_at) - CLOSING_SECONDS * len(left)
    return max(1.0, remaining * left[0].share / sum(recipe.share for recipe in left))


def _one(recipe: Recipe, session: Session, cache: FeatureCache, seconds: float) -> dict[str, Any]:
    target, origin = session.target, session.origin
    logger.info("%s: training for %.0f s", recipe.name, seconds)
    budget = Budget(seconds=seconds, steps=session.steps, checkpoint_seconds=session.checkpoint_seconds)
    state = session.out / f"{recipe.name}.state" if session.checkpoint_seconds else None
    run = train_drafter(recipe, target, cache, budget, state)
    folder = session.out if session.single else session.out / recipe.name
    notes = training_notes(recipe, target, run, origin)
    save_drafter(run.net, folder, notes=notes, card=write_card(recipe, target, cache.data, run, run.net, origin, None))
    result: dict[str, Any] = notes | {"parameters": sum(weight.numel() for weight in run.net.parameters())}
    result["losses"] = [[round(value, 4) for value in entry] for entry in run.losses]
    if session.held_out is not None:
        began = time.monotonic()
        # Judged as it was written: rounded to bfloat16, with the scales folded in.
        result["evaluation"] = evaluate(load_drafter(folder, device=str(target.device)), target, session.held_out)
        logger.info("%s, judged in %.1f s:\n%s", recipe.name, time.monotonic() - began, table(result["evaluation"]))
        card = write_card(recipe, target, cache.data, run, run.net, origin, result["evaluation"])
        save_drafter(run.net, folder, notes=notes, card=card)
    if session.flat:
        os.replace(folder / "model.safetensors", session.out / f"{recipe.name}.safetensors")
        shutil.rmtree(folder)
    if state is not None:
        state.unlink(missing_ok=True)  # the drafter is there now
    return result


def _write_json(file: Path, value: Any) -> None:
    unfinished = file.with_suffix(".part")
    unfinished.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(unfinished, file)
