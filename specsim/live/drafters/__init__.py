"""Drafters that need no training: prompt lookup and early exit."""

from __future__ import annotations

import re

from specsim.errors import InputError
from specsim.live.drafters.early_exit import EarlyExit
from specsim.live.drafters.ngram import Ngram
from specsim.live.drafters.proposals import Drafter, Proposals
from specsim.live.models import LoadedModel

__all__ = ["Drafter", "EarlyExit", "Ngram", "Proposals", "build_drafter"]

EXIT_NAME = re.compile(r"exit([1-9][0-9]*)")


def build_drafter(name: str, target: LoadedModel, depth: int) -> Drafter:
    """The drafter that a name stands for.

    name        `ngram`, or `exitL` with L the number of layers, e.g. `exit24`
    target      the model it drafts for
    depth       draft tokens a block, at least 1

    Raises      InputError naming the allowed names or layers
    """
    if depth < 1:
        raise InputError(f"depth {depth}: must be at least 1")
    if name == "ngram":
        return Ngram(depth)
    exit_name = EXIT_NAME.fullmatch(name)
    if exit_name is None:
        raise InputError(f"drafter {name!r}: must be 'ngram' or 'exitL' with L layers, such as 'exit24'")
    return EarlyExit(target, int(exit_name[1]), depth)
