"""Drafters of a live engine by name."""

from __future__ import annotations

from typing import Any

from specsim.core import DraftLaw
from specsim.errors import InputError
from specsim.live.drafters import EXIT_NAME
from specsim.live.drafters.batch import LiveDrafter
from specsim.live.drafters.early_exit import EarlyExit
from specsim.live.drafters.live_early_exit import LiveEarlyExit
from specsim.live.drafters.live_model import LiveModel
from specsim.live.drafters.live_ngram import LiveNgram
from specsim.live.engine import LiveSetup
from specsim.live.models import load_model
from specsim.live.runner import ModelRunner

MODEL_PREFIX = "model="
SAMPLED_SUFFIX = ":sampled"

ALLOWED = (
    "'ngram', 'exitL' with L layers of the target, such as 'exit24', or 'model=' and a model directory, GGUF file or "
    f"hub id; the last two may end in '{SAMPLED_SUFFIX}', which draws drafts instead of taking the most likely ones"
)


def build_live_drafter(name: str, setup: LiveSetup, depth: int, **loading: Any) -> LiveDrafter:
    """The drafter that a name stands for; a model's arm has the name of its folder.

    name        `ngram`, `exitL` or `model=SOURCE`, the latter two with `:sampled` where drafts are to be drawn
    setup       the device side of the engine it will draft in
    depth       draft tokens a block, from 1 to the setup's lookahead
    loading     options of `load_model` for a model; it gets the target's dtype unless told otherwise

    Raises      InputError naming what is allowed
    """
    lookahead = setup.state.history.shape[1] - setup.max_model_len - 1
    if not 1 <= depth <= lookahead:
        raise InputError(f"drafter {name!r}: depth {depth} must be from 1 to the engine's lookahead, {lookahead}")
    kind = name.removesuffix(SAMPLED_SUFFIX)
    law: DraftLaw = "point_mass" if kind == name else "sampled"
    exit_name = EXIT_NAME.fullmatch(kind)
    if exit_name is not None:
        return _early_exit(int(exit_name[1]), setup, depth, law)
    if kind.startswith(MODEL_PREFIX) and kind != MODEL_PREFIX:
        options = {"dtype": setup.target.dtype, "device": str(setup.device)} | loading
        return LiveModel(load_model(kind.removeprefix(MODEL_PREFIX), **options), setup, depth, law)
    if name == "ngram":
        return LiveNgram(depth, setup.device)
    if kind == "ngram":
        raise InputError(f"drafter {name!r}: copied tokens are drawn from no law; use 'ngram'")
    raise InputError(f"drafter {name!r}: must be {ALLOWED}")


def _early_exit(num_layers: int, setup: LiveSetup, depth: int, law: DraftLaw) -> LiveEarlyExit:
    definition = EarlyExit(setup.target, num_layers, depth)
    history = setup.state.history
    runner = ModelRunner(definition.model, setup.kv, setup.pool, history, setup.ops, setup.buckets)
    return LiveEarlyExit(definition, runner, law)
