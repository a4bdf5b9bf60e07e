"""Drafters of a live engine by name."""

from __future__ import annotations

from typing import Any

from specsim.core import DraftLaw
from specsim.errors import InputError
from specsim.live.drafters import EXIT_NAME
from specsim.live.drafters.batch import LiveDrafter
from specsim.live.drafters.block_net import BlockNet
from specsim.live.drafters.checkpoints import check_drafter
from specsim.live.drafters.early_exit import EarlyExit
from specsim.live.drafters.live_block import LiveBlock
from specsim.live.drafters.live_eagle import LiveEagle
from specsim.live.drafters.live_early_exit import LiveEarlyExit
from specsim.live.drafters.live_model import LiveModel
from specsim.live.drafters.live_ngram import LiveNgram
from specsim.live.drafters.named import SAMPLED_SUFFIX, NamedDrafter, load_named, read_name, split_law
from specsim.live.engine import LiveSetup
from specsim.live.models import check_source, load_model
from specsim.live.runner import ModelRunner
from specsim.shipped import shipped_names

MODEL_PREFIX = "model="

ALLOWED = (
    "'ngram', 'exitL' with L layers of the target, such as 'exit24', 'model=' and a model directory, GGUF file or hub "
    "id, 'drafter=' and a trained drafter's folder or hub id, or the name of a drafter that ships{shipped}; all but "
    f"the first may end in '{SAMPLED_SUFFIX}', which draws drafts instead of taking the most likely ones"
)


def build_live_drafter(name: str, setup: LiveSetup, depth: int | None = None, **loading: Any) -> LiveDrafter:
    """The drafter that a name stands for; the arm of a model or a trained drafter has the name of its folder.

    name        `ngram`, `exitL`, `model=SOURCE`, `drafter=SOURCE` or the name of a shipped drafter; all but the first
                with `:sampled` where drafts are to be drawn
    setup       the device side of the engine it will draft in
    depth       draft tokens a block, from 1 to the setup's lookahead (None: that many); a block drafter drafts as
                many as its block has places for, at most
    loading     options of `load_model` for a model; it gets the target's dtype unless told otherwise

    Raises      InputError naming what is allowed
    """
    lookahead = setup.state.history.shape[1] - setup.max_model_len - 1
    depth = lookahead if depth is None else depth
    if not 1 <= depth <= lookahead:
        raise InputError(f"drafter {name!r}: depth {depth} must be from 1 to the engine's lookahead, {lookahead}")
    check_live_name(name, **loading)
    kind, law = split_law(name)
    exit_name = EXIT_NAME.fullmatch(kind)
    if exit_name is not None:
        return _early_exit(int(exit_name[1]), setup, depth, law)
    if kind.startswith(MODEL_PREFIX):
        options = {"dtype": setup.target.dtype, "device": str(setup.device)} | loading
        return LiveModel(load_model(kind.removeprefix(MODEL_PREFIX), **options), setup, depth, law)
    if kind == "ngram":
        return LiveNgram(depth, setup.device)
    named = read_name(name)
    assert named is not None
    return _trained(named, setup, depth, bool(loading.get("allow_pickle", False)))


def check_live_name(name: str, *, allow_pickle: bool = False, load_format: str = "auto", **_: Any) -> None:
    """Refuse a name that no target has a drafter for; no weights are read.

    name         see `build_live_drafter`
    allow_pickle, load_format   as it is told

    Raises       InputError naming what is allowed
    """
    kind, _law = split_law(name)
    if name == "ngram" or EXIT_NAME.fullmatch(kind) is not None:
        return
    if kind == "ngram":
        raise InputError(f"drafter {name!r}: copied tokens are drawn from no law; use 'ngram'")
    named = read_name(name)
    if named is not None:
        check_drafter(named.source, allow_pickle=allow_pickle)
    elif not kind.startswith(MODEL_PREFIX) or kind == MODEL_PREFIX:
        raise InputError(f"drafter {name!r}: must be {allowed_names()}")
    elif load_format == "auto":
        check_source(kind.removeprefix(MODEL_PREFIX))


def allowed_names() -> str:
    """What a live drafter may be called, in words."""
    names = ", ".join(shipped_names("model"))
    return ALLOWED.format(shipped=f" ({names})" if names else "")


def _trained(named: NamedDrafter, setup: LiveSetup, depth: int, allow_pickle: bool) -> LiveDrafter:
    net = load_named(named, setup.target, allow_pickle)
    if isinstance(net, BlockNet):
        return LiveBlock(named.arm, net, setup, min(depth, net.config.block_size - 1), named.law)
    return LiveEagle(named.arm, net, setup, depth, named.law)


def _early_exit(num_layers: int, setup: LiveSetup, depth: int, law: DraftLaw) -> LiveEarlyExit:
    definition = EarlyExit(setup.target, num_layers, depth)
    history = setup.state.history
    runner = ModelRunner(definition.model, setup.kv, setup.pool, history, setup.ops, setup.buckets)
    return LiveEarlyExit(definition, runner, law)
