"""Trained drafters by name: a folder, a hub id, or one that ships in `models/`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from specsim.core import DraftLaw
from specsim.live.drafters.checkpoints import NOTES, DrafterNet, load_drafter, locate, read_config
from specsim.live.models import LoadedModel
from specsim.shipped import shipped_names, shipped_path

logger = logging.getLogger(__name__)

TRAINED_PREFIX = "drafter="
SAMPLED_SUFFIX = ":sampled"


@dataclass(frozen=True, slots=True)
class NamedDrafter:
    """What a name of a trained drafter says.

    source  its folder, or a hub id
    law     how it drafts
    """

    source: str
    law: DraftLaw

    @property
    def arm(self) -> str:
        """The arm's name: its folder's."""
        return Path(self.source).resolve().name


def split_law(name: str) -> tuple[str, DraftLaw]:
    """A drafter's name without its law, and the law it asks for."""
    kind = name.removesuffix(SAMPLED_SUFFIX)
    return kind, "point_mass" if kind == name else "sampled"


def read_name(name: str) -> NamedDrafter | None:
    """What `drafter=SOURCE` or the name of a shipped drafter stands for, each with `:sampled` where drafts are drawn.

    returns  None for any other name
    """
    kind, law = split_law(name)
    source = kind.removeprefix(TRAINED_PREFIX)
    if source != kind:
        return NamedDrafter(source, law) if source else None
    if kind in shipped_names("model"):
        return NamedDrafter(str(shipped_path("model", kind)), law)
    return None


def load_named(named: NamedDrafter, target: LoadedModel, allow_pickle: bool = False) -> DrafterNet:
    """The net, in the target's dtype and on its device.

    Raises  InputError when it is not there, or no drafter

    It warns where the drafter's notes name another target: outputs stay the target's own, but few drafts may be right.
    """
    folder = locate(named.source)
    notes = read_config(folder).get(NOTES)
    notes = notes if isinstance(notes, dict) else {}
    made_for = notes.get("target_hash")
    if made_for and target.model_hash and made_for != target.model_hash:
        logger.warning(
            "drafter %r was trained for %s (weights %.12s); %r has other weights (%.12s), and may accept few drafts",
            named.arm, notes.get("target") or "another target", made_for, target.name, target.model_hash,
        )  # fmt: skip
    dtype = getattr(torch, target.dtype)
    return load_drafter(folder, dtype=dtype, device=target.device, allow_pickle=allow_pickle)
