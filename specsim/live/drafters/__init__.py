"""Drafters of recordings by name; those of a live engine are built by `build_live`."""

from __future__ import annotations

import re

from specsim.core import DraftLaw
from specsim.errors import InputError
from specsim.live.drafters.early_exit import EarlyExit
from specsim.live.drafters.ngram import Ngram
from specsim.live.drafters.proposals import Drafter, Proposals
from specsim.live.models import LoadedModel
from specsim.shipped import shipped_names

__all__ = ["Drafter", "EarlyExit", "Ngram", "Proposals", "build_drafter", "check_name"]

EXIT_NAME = re.compile(r"exit([1-9][0-9]{0,3})")


def build_drafter(
    name: str, target: LoadedModel, depth: int, law: DraftLaw = "point_mass", *, allow_pickle: bool = False
) -> Drafter:
    """The drafter that a name stands for, to be asked at every position of an output.

    name            `ngram`; `exitL` with L the number of layers, e.g. `exit24`; `drafter=SOURCE` with a trained
                    drafter's folder or hub id, or the name of one that ships, each with `:sampled` where drafts are to
                    be drawn
    target          the model it drafts for
    depth           draft tokens a block, at least 1; a block drafter drafts at most as many as its block has places for
    law             of trained drafters whose name does not say it
    allow_pickle    read a trained drafter's weights where they are not safetensors

    Raises          InputError naming the allowed names or layers
    """
    # The engine imports parts of this package, and these import the engine.
    from specsim.live.drafters.named import load_named, read_name
    from specsim.live.drafters.trained_everywhere import TrainedEverywhere

    check_name(name, law, allow_pickle=allow_pickle)
    if depth < 1:
        raise InputError(f"depth {depth}: must be at least 1")
    context = target.model.config.get_text_config().max_position_embeddings
    if depth > context:
        raise InputError(f"depth {depth}: must be at most {context}, the context of {target.name!r}")
    if name == "ngram":
        return Ngram(depth)
    exit_name = EXIT_NAME.fullmatch(name)
    if exit_name is not None:
        return EarlyExit(target, int(exit_name[1]), depth)
    named = read_name(name)
    assert named is not None
    net = load_named(named, target, allow_pickle)
    return TrainedEverywhere(named.arm, net, target, depth, "sampled" if named.law == "sampled" else law)


def check_name(name: str, law: DraftLaw = "point_mass", *, allow_pickle: bool = False) -> None:
    """Refuse a name that no target has a drafter for, see `build_drafter`; no weights are read.

    Raises          InputError naming the allowed names
    """
    from specsim.live.drafters.checkpoints import check_drafter
    from specsim.live.drafters.named import read_name

    if EXIT_NAME.fullmatch(name) is not None and law == "sampled":
        raise InputError(f"drafter {name!r}: only trained drafters are recorded with drawn drafts")
    if name == "ngram" or EXIT_NAME.fullmatch(name) is not None:
        return
    named = read_name(name)
    if named is None:
        raise InputError(f"drafter {name!r}: must be {_allowed()}")
    check_drafter(named.source, allow_pickle=allow_pickle)


def _allowed() -> str:
    names = ", ".join(shipped_names("model"))
    return (
        "'ngram' or 'exitL' with L layers, such as 'exit24', or 'drafter=' and a trained drafter's folder or hub id, "
        f"or the name of one that ships{f' ({names})' if names else ''}; the last two may end in ':sampled'"
    )
