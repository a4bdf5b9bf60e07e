"""Every budget policy with every kind of drafter and score: exact, or refused and shown to be biased."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from specsim.core import SCORES, DraftLaw, DrafterSpec, DraftStructure
from specsim.errors import InputError
from specsim.policies.build import BUDGETS, build_controller
from specsim.policies.controller import Controller
from specsim.study.exactness.emission import Emission, emission
from specsim.study.exactness.joint import distance, joint_law
from specsim.study.exactness.laws import RequestLaws, Shape, random_laws
from specsim.study.exactness.step import EnumeratedStep, Prices, random_prices

EXACT_BELOW = 1e-12
BIASED_ABOVE = 1e-3
SEEDS = 16
SEARCHED_SEEDS = 400
"""Seeds among which a refused combination must show its bias."""

MAX_DEPTH = 3
SHAPES = tuple(
    Shape(*size) for size in ((2, 2, 2), (2, 1, 2), (2, 2, 1), (3, 1, 2), (3, 2, 1), (2, 3, 1), (3, 2, 2), (2, 3, 2))
)
"""Vocabulary, depth and batch, in turn by seed."""

KINDS: tuple[tuple[DraftLaw, DraftStructure], ...] = (
    ("point_mass", "parallel"),
    ("point_mass", "autoregressive"),
    ("sampled", "parallel"),
    ("sampled", "autoregressive"),
)

OPTIONS: dict[str, tuple[str, ...]] = {
    "fixed_depth": ("", "depth=1"),
    "fixed_ratio": ("ratio=.5",),
    "batch_schedule": ("schedule=1:1/2:2",),
    "dcut": ("", "numerator=bonus,ratios=all"),
    "tetris": ("capacity=1",),
}
"""Options with which a policy leaves drafts unverified at these sizes; the defaults where a policy is not named."""

Outcome: TypeAlias = Literal["exact", "refused", "bound", "contradiction"]


@dataclass(frozen=True)
class Combination:
    """What one policy does with one kind of drafter.

    policy       as a user writes it
    score        the score it reads (None: none)
    law          how drafts are verified
    structure    whether draft laws depend on earlier drafts
    outcome      `exact`: allowed, and without bias; `refused`: refused, and biased when forced; `bound`: emits
                 nothing and is refused live; `contradiction`: what was found is not what the controller says
    bias         largest L1 distance from the target's law found
    pruned       whether it ever left a draft unverified
    says         the controller's reason where it refuses, or what contradicts it (empty otherwise)
    """

    policy: str
    score: str | None
    law: DraftLaw
    structure: DraftStructure
    outcome: Outcome
    bias: float
    pruned: bool
    says: str = ""


@dataclass(frozen=True)
class World:
    """What a seed stands for: laws, what is emitted under them, and prices."""

    requests: tuple[RequestLaws, ...]
    emitted: Emission
    prices: Prices


@lru_cache(maxsize=256)
def world(seed: int, law: DraftLaw, structure: DraftStructure) -> World:
    """The world of a seed. Kept, for every policy meets the same ones."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    requests = random_laws(rng, shape, structure)
    return World(requests, emission(requests, law), random_prices(rng, shape))


def policies() -> Iterator[tuple[str, str | None]]:
    """Every registered budget policy, with each score it can be told to read: its text, and the score."""
    for name, policy in BUDGETS.items():
        reads = [field.name for field in fields(policy) if field.name == "score"]
        for options in OPTIONS.get(name, ("",)):
            for score in SCORES if reads else (None,):
                text = _text(name, options, score)
                if score is None or _can_read(text):
                    yield text, score or _score_of(text)


def enumerate_table(
    chosen: Iterable[tuple[str, str | None]] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Combination]:
    """Every policy with every kind of drafter.

    chosen    policies and their scores (None: all, see `policies`)
    progress  called with combinations done and in all
    """
    every = list(itertools.product(policies() if chosen is None else chosen, KINDS))
    found = []
    for (text, score), (law, structure) in every:
        found.append(combination(text, score, law, structure))
        progress(len(found), len(every))
    return found


def combination(text: str, score: str | None, law: DraftLaw, structure: DraftStructure) -> Combination:
    """Enumerate one policy with one kind of drafter.

    text       the policy, as a user writes it
    score      what it reads
    law        how drafts are verified
    structure  whether draft laws depend on earlier drafts
    """
    drafter = DrafterSpec("draft", "synthetic", law, structure, SCORES, MAX_DEPTH)
    reason = refusal(text, drafter)
    if build_controller(text, [drafter], allow_lossy=True).clairvoyant:
        return _bound(text, law, structure, drafter)
    bias, pruned, impossible = 0.0, False, False
    for seed in range(SEARCHED_SEEDS):
        if seed >= SEEDS and (reason is None or bias > BIASED_ABOVE):
            break
        here = world(seed, law, structure)
        step = EnumeratedStep(build_controller(text, [drafter], allow_lossy=True), here.requests, here.prices, seed)
        bias = max(bias, distance(here.requests, joint_law(here.requests, here.emitted, step.verified)))
        pruned, impossible = pruned or step.pruned, impossible or here.emitted.impossible
    outcome: Outcome = "exact" if reason is None else "refused"
    says = reason or ""
    if impossible:
        outcome, says = "contradiction", "a token that the target never emits was let through"
    elif reason is None and bias > EXACT_BELOW:
        outcome, says = "contradiction", f"allowed, and biased by {bias:.2g}"
    elif reason is not None and bias <= BIASED_ABOVE:
        outcome, says = "contradiction", f"refused, and no bias above {BIASED_ABOVE:g} in {SEARCHED_SEEDS} seeds"
    return Combination(text, score, law, structure, outcome, bias, pruned, says)


def refusal(text: str, drafter: DrafterSpec) -> str | None:
    """Why a controller refuses a drafter (None: it does not).

    Raises  AssertionError when it refuses without calling the combination lossy, or the other way round
    """
    reason = build_controller(text, [drafter], allow_lossy=True).lossy_reason
    try:
        build_controller(text, [drafter])
    except InputError:
        assert reason is not None
        return reason
    assert reason is None
    return None


def _bound(text: str, law: DraftLaw, structure: DraftStructure, drafter: DrafterSpec) -> Combination:
    try:
        build_controller(text, [drafter], allow_lossy=True, live=True)
    except InputError as error:
        return Combination(text, None, law, structure, "bound", 0.0, False, str(error))
    says = "knows what the target accepts, and is allowed live"
    return Combination(text, None, law, structure, "contradiction", 0.0, False, says)


def _text(name: str, options: str, score: str | None) -> str:
    """As a user writes it; a margin is no probability by itself, so it goes through a calibrator."""
    given = ",".join(option for option in (options, f"score={score}" if score else "") if option)
    text = f"{name}:{given}" if given else name
    return f"{text}~logistic:warm_up=0" if score == "margin" else text


def _can_read(text: str) -> bool:
    return isinstance(_built(text), Controller)


def _score_of(text: str) -> Any:
    built = _built(text)
    if isinstance(built, InputError):
        raise built
    return built.budget_policy.score


def _built(text: str) -> Controller | InputError:
    """For a drafter that any policy may prune; an error there is about the policy's own options."""
    try:
        return build_controller(text, [DrafterSpec("draft", "synthetic", "point_mass", "parallel", SCORES, MAX_DEPTH)])
    except InputError as error:
        return error
