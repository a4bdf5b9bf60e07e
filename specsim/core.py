"""The nouns every part of specsim shares: what a drafter is, what it proposed, what was planned, what happened.

Axes in shape brackets: B requests in the step, D draft positions, P output positions of one request.
Nothing here knows whether a simulator or a GPU drives the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""Any array of the Python array API standard: numpy in the simulator, torch on the GPU."""

DraftLaw: TypeAlias = Literal["point_mass", "sampled"]
"""How drafts are verified: as certain tokens (greedy, n-gram), or as draws from a known law."""

DraftStructure: TypeAlias = Literal["parallel", "autoregressive"]
"""Whether every draft law of a block is fixed before a token is drawn, or the law at k+1 depends on token k."""

Score: TypeAlias = Literal["drawn_prob", "max_prob", "margin", "shifted_prob"]
"""What a drafter says of each position: probability of the drawn token, largest probability, top-2 logit
margin, or the drawn token's probability at the position before (1 at the first)."""

SCORES: tuple[Score, ...] = ("drawn_prob", "max_prob", "margin", "shifted_prob")

FIXED_POINT = float(2**30)
"""Sums that decide are int64 in units of 1 / FIXED_POINT, so that they are exact in any order."""


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """What a controller may know of a drafter before it drafts.

    name            the arm's name, unique among the drafters of a run
    kind            `ngram`, `early_exit`, `model`, `block`, `eagle` or `synthetic`
    law             how its drafts are verified
    structure       whether draft laws depend on earlier drafts of the block
    scores          the scores its drafts carry
    max_depth       most draft tokens it proposes a step
    max_context     longest sequence it can draft after, drafts included (None: no limit)
    passes          `per_depth` when each draft token costs a forward pass, `per_block` when one pass proposes all
    target_fraction seconds of one pass as a share of a plain target step, a hint for cost tables that
                    have not measured this drafter (None: no hint)
    """

    name: str
    kind: str
    law: DraftLaw
    structure: DraftStructure
    scores: tuple[Score, ...]
    max_depth: int
    max_context: int | None = None
    passes: Literal["per_depth", "per_block"] = "per_block"
    target_fraction: float | None = None

    def __hash__(self) -> int:
        """By name alone, which is unique in a run: look-ups by drafter are made at every step."""
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What is known before drafting. Everything here is the past, so choosing from it is always exact.

    step             index of this engine step, from 0
    now              instant of the step's start, seconds
    batch            number of running requests, B
    num_waiting      requests in the queue
    mean_context     mean sequence length of the running requests, tokens
    rng              the only source of randomness a policy may use
    domains          domain of each running request, for contextual policies (empty when unknown)
    price            what the step would take with a drafter at a depth: price(drafter, depth), depth 0 being a
                     plain step; None where an engine has no cost table
    requests         number of each running request, its own for ever (empty when unknown)
    """

    step: int
    now: float
    batch: int
    num_waiting: int
    mean_context: float
    rng: np.random.Generator
    domains: tuple[str, ...] = ()
    price: Callable[[DrafterSpec, int], StepCost] | None = None
    requests: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """What to draft: which drafter and how deep. Depth 0 is a plain autoregressive step.

    arm     index into the controller's drafters
    depth   draft tokens a request, 0 to the drafter's `max_depth`
    arms    [B] int64 numpy, the drafter of each request, where they have different ones; `arm` is then that of most
            (None: `arm` drafts for all)
    """

    arm: int
    depth: int
    arms: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """What a drafter proposed in one step.

    drafter         the drafter that proposed it
    num_drafts      [B] int64, drafted tokens of each request, in [0, D]
    scores          each offered score, [B, D] float64; probabilities in [0, 1]; 0 at and beyond `num_drafts`
    num_acceptable  [B] int64, drafts the target would accept; only a simulator knows it, and hands it only
                    to a clairvoyant policy (None otherwise)
    slots           [B] int64 numpy, a small number of each running request, its own until it leaves (None: unknown)
    ages            [B] int64 numpy, decode steps each request has had before this one (None: unknown)
    num_decoded     [B] int64 numpy, output tokens each request has had after its first (None: unknown)
    decode_seconds  [B] float64 numpy, seconds since each request's first output token (None: unknown)
    arms            [B] int64 numpy, the drafter of each request, where they have different ones; `drafter` then
                    says what holds of all of them (None: `drafter` proposed everything)
    """

    drafter: DrafterSpec
    num_drafts: Array
    scores: Mapping[Score, Array]
    num_acceptable: Array | None = None
    slots: np.ndarray | None = None
    ages: np.ndarray | None = None
    num_decoded: np.ndarray | None = None
    decode_seconds: np.ndarray | None = None
    arms: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class StepCost:
    """What the step would take at every possible budget.

    seconds     [B * D + 1] float64, end-to-end seconds of this step (draft, plan, verify, host, switch)
                if K drafts are verified beside B anchors, at index K; staircases are already in it
    envelope    [B * D + 1] float64, the largest convex curve that nowhere exceeds `seconds` (None: not worked out)
    """

    seconds: Array
    envelope: Array | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How many drafts of each request the target verifies: always a prefix.

    num_verify  [B] int64, in [0, num_drafts]
    """

    num_verify: Array


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds of one engine step by phase."""

    draft: float = 0.0
    plan: float = 0.0
    verify: float = 0.0
    host: float = 0.0
    switch: float = 0.0
    prefill: float = 0.0

    @property
    def total(self) -> float:
        """The step's end-to-end seconds."""
        return self.draft + self.plan + self.verify + self.host + self.switch + self.prefill


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What the emitted tokens say of every drafter, pulled or not.

    num_accepted    [A, B] int64 numpy, leading drafts of its block that are the emitted tokens
    num_tested      [A, B] int64 numpy, drafts of its block that the emitted tokens accept or contradict: those
                    accepted, and the first that differs if it lies within them; what lies beyond is unknown
    """

    num_accepted: np.ndarray
    num_tested: np.ndarray


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step brought, on the host, after acceptance.

    order           what was drafted
    draft           what the plan was made from (None after a plain step)
    num_verify      [B] int64 numpy, drafts verified
    num_accepted    [B] int64 numpy, verified drafts accepted
    num_emitted     [B] int64 numpy, tokens committed: accepted + 1 unless the request ended inside the block
    seconds         what it cost
    domains         domain of each request (empty when unknown)
    requests        number of each request (empty when unknown)
    counterfactual  what the emitted tokens say of every drafter (None unless the controller learns from all)
    """

    order: Order
    draft: Draft | None
    num_verify: np.ndarray
    num_accepted: np.ndarray
    num_emitted: np.ndarray
    seconds: StepSeconds
    domains: tuple[str, ...] = ()
    counterfactual: Counterfactual | None = None
    requests: tuple[int, ...] = ()

    @property
    def num_tested(self) -> np.ndarray:
        """[B] int64, verified drafts that met an accept test: those accepted, and the one rejected if any.

        A request that ended inside the block emitted no token after its accepted drafts: what follows was
        verified, but nobody will ever know whether it would have been accepted.
        """
        rejected = (self.num_accepted < self.num_verify) & (self.num_emitted > self.num_accepted)
        return self.num_accepted + rejected


@dataclass(frozen=True, slots=True)
class Blocks:
    """What one drafter proposes at every output position of one request, as recorded.

    num_drafts      [P] int64, drafts proposed
    num_accepted    [P] int64, leading drafts that the target accepts
    num_verified    [P] int64, drafts whose acceptance was observed; fewer than `num_drafts` when censored
    scores          each recorded score, [P, D] float64, 0 at and beyond `num_drafts`
    """

    num_drafts: np.ndarray
    num_accepted: np.ndarray
    num_verified: np.ndarray
    scores: Mapping[Score, np.ndarray]
