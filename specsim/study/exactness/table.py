"""Every budget policy with every kind of drafter and score: exact, or refused and shown to be biased."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from specsim.core import SCORES, DrafterSpec, DraftLaw, DraftStructure
from specsim.errors import InputError
from specsim.policies.build import BUDGETS, build_controller
from specsim.policies.controller import Controller
from specsim.study.exactness.emission import Emission, emission
from specsim.study.exactness.joint import distance, joint_law
from specsim.study.exactness.laws import RequestLaws, Shape, random_laws
from specsim.study.exactness.step import EnumeratedStep, Plan, random_prices

EXACT_BELOW = 1e-12
BIASED_ABOVE = 1e-3
SEEDS = 8
SEARCHED_SEEDS = 400
"""Seeds among which a refused combination must show its bias: the same laws again, at other prices."""

MAX_DEPTH = 3
SIZES = ((2, 2, 2), (2, 1, 2), (2, 2, 1), (3, 1, 2), (3, 2, 1), (2, 3, 1), (2, 2, 2), (2, 3, 2))
SHAPES = tuple(Shape(*size) for size in SIZES)
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
    "confidence_stop": ("threshold=.7", "threshold=.7,keep=true"),
    "specdec_pp": ("threshold=.3",),
    "dcut": ("", "numerator=bonus,ratios=all", "numerator=bonus,ratios=all,depth=goodput"),
    "dcut_causal": ("", "depth=goodput"),
    "slo_dcut": ("step_seconds=2.5,tpot_seconds=1.2", "step_seconds=2.5,depth=goodput"),
    "tetris": ("capacity=1",),
}
"""Options with which a policy leaves drafts unverified at these sizes; the defaults where a policy is not named."""

MARGIN_CALIBRATOR = "~logistic:warm_up=0"
"""Turns a margin, which is no probability, into one: before its first refit, a two-way softmax."""

Finding: TypeAlias = Literal["exact", "refused", "idle", "bound", "contradiction"]


@dataclass(frozen=True)
class Combination:
    """What one policy does with one kind of drafter.

    policy       as a user writes it
    score        the score it reads (None: none)
    law          how drafts are verified
    structure    whether draft laws depend on earlier drafts
    finding      `exact`: allowed, and without bias; `refused`: refused, and biased when forced; `idle`: refused for
                 what it reads, but no score ever decided how much was verified, so that there was no bias to show;
                 `bound`: emits nothing and is refused live; `contradiction`: what was found is not what the
                 controller says
    bias         largest L1 distance from the target's law found
    pruned       whether it ever left a draft unverified
    says         the controller's reason where it refuses, or what contradicts it (empty otherwise)
    """

    policy: str
    score: str | None
    law: DraftLaw
    structure: DraftStructure
    finding: Finding
    bias: float
    pruned: bool
    says: str = ""

    @property
    def label(self) -> str:
        """The policy but for what says which score it reads."""
        return (
            self.policy.removesuffix(MARGIN_CALIBRATOR)
            .replace(f",score={self.score}", "")
            .removesuffix(f":score={self.score}")
        )


@dataclass(frozen=True)
class Found:
    """What some laws and prices showed of one policy with one kind of drafter.

    bias        largest L1 distance from the target's law
    pruned      whether it ever left a draft unverified
    impossible  whether a token came out that the target never emits
    plans       all plans it made
    """

    bias: float = 0.0
    pruned: bool = False
    impossible: bool = False
    plans: frozenset[Plan] = frozenset()

    @property
    def idle(self) -> bool:
        """Whether it always made the same plan of as many drafts, whatever they were: no score decided anything."""
        return len(self.plans) == len({(depth, len(lengths)) for depth, lengths in self.plans})

    def __or__(self, other: Found) -> Found:
        return Found(
            max(self.bias, other.bias),
            self.pruned or other.pruned,
            self.impossible or other.impossible,
            self.plans | other.plans,
        )


@dataclass(frozen=True)
class World:
    """Laws of a step's requests, and what is emitted under them."""

    requests: tuple[RequestLaws, ...]
    emitted: Emission


@lru_cache(maxsize=256)
def world(seed: int, law: DraftLaw, structure: DraftStructure) -> World:
    """The world of a seed. Kept, for every policy meets the same ones."""
    requests = random_laws(np.random.default_rng(seed), SHAPES[seed % len(SHAPES)], structure)
    return World(requests, emission(requests, law))


def found_in(here: World, controller: Controller, seed: int) -> Found:
    """What one step shows at the prices of a seed."""
    prices = random_prices(np.random.default_rng([seed, 2]), here.requests)
    step = EnumeratedStep(controller, here.requests, prices, seed)
    bias = distance(here.requests, joint_law(here.requests, here.emitted, step.verified))
    return Found(bias, step.pruned, here.emitted.impossible, frozenset(step.plans))


def policies() -> Iterator[str]:
    """Every registered budget policy with each score it can be told to read, as a user writes them."""
    for name, policy in BUDGETS.items():
        scores = SCORES if any(field.name == "score" for field in fields(policy)) else (None,)
        for options in OPTIONS.get(name, ("",)):
            for score in scores:
                text = _text(name, options, score)
                if score is None or _can_read(text):
                    yield text


def enumerate_table(
    chosen: Sequence[str] | None = None, seeds: int = SEEDS, progress: Callable[[int, int], None] = lambda *_: None
) -> list[Combination]:
    """Every policy with every kind of drafter.

    chosen    policies, as a user writes them (None: all, see `policies`)
    seeds     laws and prices with which each is enumerated, at least 1
    progress  called with combinations done and in all

    Raises    InputError when a policy cannot be built
    """
    every = list(itertools.product(tuple(policies()) if chosen is None else chosen, KINDS))
    found = []
    for text, (law, structure) in every:
        found.append(combination(text, law, structure, seeds))
        progress(len(found), len(every))
    return found


def combination(text: str, law: DraftLaw, structure: DraftStructure, seeds: int = SEEDS) -> Combination:
    """Enumerate one policy with one kind of drafter.

    text       the policy, as a user writes it
    law        how drafts are verified
    structure  whether draft laws depend on earlier drafts
    seeds      laws and prices; where a bias must show and does not, more prices are tried
    """
    drafter = _drafter(law, structure)
    controller = build_controller(text, [drafter], allow_lossy=True)
    score = controller.budget_policy.score
    if controller.clairvoyant:
        return Combination(text, score, law, structure, *_bound(text, drafter))
    reason = refusal(text, drafter)
    found = Found()
    for seed in range(max(seeds, SEARCHED_SEEDS)):
        if seed >= seeds and (reason is None or found.bias > BIASED_ABOVE):
            break
        here = world(seed % max(seeds, SEEDS), law, structure)
        found |= found_in(here, build_controller(text, [drafter], allow_lossy=True), seed)
    finding, says = _finding(reason, found)
    return Combination(text, score, law, structure, finding, found.bias, found.pruned, says)


def _finding(reason: str | None, found: Found) -> tuple[Finding, str]:
    """Whether what was found is what the controller says, and why it refuses or what contradicts it.

    reason  why it refuses (None: it does not)
    """
    if found.impossible:
        return "contradiction", "a token that the target never emits was let through"
    if reason is None or found.idle:  # a plan that nothing decides cannot bias anything, whatever the policy reads
        if found.bias > EXACT_BELOW:
            return "contradiction", f"{'idle' if reason else 'allowed'}, and biased by {found.bias:.2g}"
        return ("idle", reason) if reason else ("exact", "")
    if found.bias <= BIASED_ABOVE:
        return "contradiction", f"refused, and no bias above {BIASED_ABOVE:g} was found"
    return "refused", reason


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


def _bound(text: str, drafter: DrafterSpec) -> tuple[Finding, float, bool, str]:
    """Finding, bias, pruned and says of a policy that knows what will be accepted."""
    try:
        build_controller(text, [drafter], live=True)
    except InputError as error:
        return "bound", 0.0, False, str(error)
    return "contradiction", 0.0, False, "knows what the target accepts, and is allowed live"


def _text(name: str, options: str, score: str | None) -> str:
    """As a user writes it."""
    given = ",".join(option for option in (options, f"score={score}" if score else "") if option)
    text = f"{name}:{given}" if given else name
    return text + MARGIN_CALIBRATOR if score == "margin" else text


def _can_read(text: str) -> bool:
    """Whether the policy takes that score; asked with a drafter that any policy may prune.

    Raises  InputError when the policy cannot be built whatever it reads
    """
    try:
        build_controller(text, [_drafter("point_mass", "parallel")])
    except InputError as error:
        if "score" in str(error):
            return False
        raise
    return True


def _drafter(law: DraftLaw, structure: DraftStructure) -> DrafterSpec:
    return DrafterSpec("draft", "synthetic", law, structure, SCORES, MAX_DEPTH)
