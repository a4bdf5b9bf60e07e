"""Which policies a session's requests are served under again, to tell what each part of its own brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from specsim.core import DrafterSpec
from specsim.policies.build import ARMS, build_controller
from specsim.policies.config import ControllerConfig, PolicyConfig, parse
from specsim.policies.controller import Controller

if TYPE_CHECKING:
    from specsim.live.session_config import SessionConfig

Part: TypeAlias = Literal["plain", "unpruned", "alone", "other", "again"]
"""What is left out of the session's policy: drafts, pruning, the choice of a drafter; `other` for a policy named.

`again` is plain decoding once more: what it takes now says how steady the machine was meanwhile.
"""

PLAIN = ControllerConfig(budget=PolicyConfig(name="autoregressive"))


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy that serves the requests again.

    part        what it leaves out
    label       what tables call it
    controller  decides; it has learned nothing
    """

    part: Part
    label: str
    controller: Controller


def rivals(config: SessionConfig, specs: Sequence[DrafterSpec]) -> list[Rival]:
    """The policies that a session is compared with, in the order of their runs, each once.

    specs    the arms, in order
    Raises   InputError when one is unknown, or inexact
    """
    asked: list[tuple[Part, str, ControllerConfig]] = []
    if config.ablate:
        asked += _ablations(config, [spec.name for spec in specs])
    asked += [_named(text) for text in config.compare]
    if config.ablate and len(asked) > 1:
        asked.append(("again", "autoregressive, again", PLAIN))
    found: dict[tuple[str, bool], Rival] = {}
    for part, label, policy in asked:
        key = (str(policy), part == "again")
        if key not in found:
            arms = () if policy == PLAIN else tuple(specs)
            controller = build_controller(policy, arms, allow_lossy=config.allow_lossy, live=True)
            found[key] = Rival(part, label, controller)
    return list(found.values())


def _named(text: str) -> tuple[Part, str, ControllerConfig]:
    policy = parse(text)
    part: Part = "plain" if policy.budget == PLAIN.budget else "other"
    return part, policy.label or str(policy), PLAIN if part == "plain" else policy


def _ablations(config: SessionConfig, names: Sequence[str]) -> list[tuple[Part, str, ControllerConfig]]:
    """The session's policy without drafts, without pruning, and with each drafter alone.

    names  of the arms
    """
    own = parse(config.policy)
    found: list[tuple[Part, str, ControllerConfig]] = [("plain", "autoregressive", PLAIN)]
    if own.budget.name == "autoregressive":
        return found
    if own.budget.name != "fixed_depth":
        depth = own.budget.options.get("depth")
        options = {"depth": depth} if str(depth).isdecimal() else {}
        everything = PolicyConfig(name="fixed_depth", options=options)
        found.append(("unpruned", "without pruning", ControllerConfig(budget=everything, drafter=own.drafter)))
    if own.drafter is not None and own.drafter.name in ARMS:
        for name in names:
            alone = own.model_copy(update={"drafter": PolicyConfig(name=name), "label": None, "state": None})
            found.append(("alone", f"{name} alone", alone))
    return found
