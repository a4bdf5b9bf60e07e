"""Made-up traces, for people who have not recorded one: parametric acceptance, generated request by request."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from scipy.optimize import brentq

from specsim import __version__
from specsim.core import Blocks, DrafterSpec, DraftStructure, Score
from specsim.errors import InputError
from specsim.telemetry import FINISH_REASONS
from specsim.trace.blocks import shifted
from specsim.trace.encode import RecordedBlocks, blocks_table
from specsim.trace.files import new_folder, seal, write_blocks, write_requests
from specsim.trace.hardness import Spread, calibrated_confidence, solve_hazards
from specsim.trace.manifest import BLOCKS_FILE, REQUESTS_FILE, DrafterEntry, Manifest, TraceKind
from specsim.trace.requests import Requests

CACHE_BYTES = 128 * 2**20
"""Generated blocks kept in memory, at most."""

MOST = 1000.0
"""Beyond it a spread, a noise or a difficulty leaves nothing that float32 resolves."""

LEAST_SPREAD = {"request": 1e-6, "token": 0.01}
"""A smaller variance is hardly one, and what integrates over it overflows: write 0."""

MOST_DEPTH, MOST_REQUESTS, MOST_OUTPUT_TOKENS, MOST_PROMPT_TOKENS = 1024, 10**7, 2**20, 2**31 - 1
"""Columns over all requests, and the blocks of one, have to fit in memory."""

TEXT, SHAPE, LUCK, NOISE = range(4)
"""What a random stream is for; streams of different purpose, drafter or request are independent."""


@dataclass(frozen=True)
class SyntheticDrafter:
    """A made-up drafter. Declare `rates` or `mean_acceptance_length`, not both.

    name                    the arm's name
    rates                   [D] share of drafts at k accepted among those whose predecessors all were, over every
                            position of a trace without end; constant beyond the last one given
    mean_acceptance_length  tokens a step over every such position, bonus included, from one constant rate
    max_depth               D
    hidden_variance         variance of the part of a token's hardness that the drafter cannot see; at 0 its
                            confidence is the true chance
    overconfidence          confidence = calibrated chance ^ (1 / overconfidence); 1 is calibrated
    noise                   standard deviation of Gaussian noise added to the confidence's logit
    domain_difficulty       factor on the difficulty of each domain (1 where not named)
    structure, passes, target_fraction    see `core.DrafterSpec`
    """

    name: str
    rates: tuple[float, ...] | None = None
    mean_acceptance_length: float | None = None
    max_depth: int = 15
    hidden_variance: float = 1.0
    overconfidence: float = 1.0
    noise: float = 0.0
    domain_difficulty: Mapping[str, float] = field(default_factory=dict)
    structure: DraftStructure = "parallel"
    passes: Literal["per_depth", "per_block"] = "per_block"
    target_fraction: float | None = None

    def __post_init__(self) -> None:
        where = f"synthetic drafter {self.name!r}"
        _require(1 <= self.max_depth <= MOST_DEPTH, where, "max_depth", self.max_depth, f"1 to {MOST_DEPTH:,}")
        for name in ("hidden_variance", "noise"):
            value = getattr(self, name)
            _require(0.0 <= value <= MOST, where, name, value, f"0 to {MOST:,.0f}")
        confident = 0.0 < self.overconfidence <= MOST
        _require(confident, where, "overconfidence", self.overconfidence, f"above 0, at most {MOST:,.0f}")
        for name, factor in self.domain_difficulty.items():
            _require(0.0 < factor <= MOST, where, f"difficulty of {name}", factor, f"above 0, at most {MOST:,.0f}")
        if (self.rates is None) == (self.mean_acceptance_length is None):
            raise InputError(f"{where}: allowed: either rates or mean_acceptance_length")
        if self.rates is not None:
            inside = 1 <= len(self.rates) <= self.max_depth and all(0.0 <= rate <= 1.0 for rate in self.rates)
            _require(inside, where, "rates", list(self.rates), "1 to max_depth numbers in [0, 1]")
        else:
            length = self.mean_acceptance_length
            assert length is not None
            _require(1.0 <= length <= self.max_depth + 1, where, "mean_acceptance_length", length, "1 to max_depth + 1")

    @property
    def conditional_rates(self) -> tuple[float, ...]:
        """[D] the conditional acceptance rate at each depth."""
        if self.rates is not None:
            return (*self.rates, *[self.rates[-1]] * (self.max_depth - len(self.rates)))
        assert self.mean_acceptance_length is not None
        accepted = self.mean_acceptance_length - 1.0
        depths = np.arange(1, self.max_depth + 1)
        rate = float(brentq(lambda c: float(np.sum(c**depths)) - accepted, 0.0, 1.0, xtol=1e-12))
        return (rate,) * self.max_depth

    @property
    def scores(self) -> tuple[Score, ...]:
        """Greedy drafts: the drawn token is the most likely one."""
        ahead: tuple[Score, ...] = ("shifted_prob",) if self.structure == "autoregressive" else ()
        return ("drawn_prob", "max_prob", *ahead)

    @property
    def entry(self) -> DrafterEntry:
        """The drafter as the manifest describes it."""
        return DrafterEntry(
            name=self.name,
            kind="synthetic",
            law="point_mass",
            structure=self.structure,
            scores=self.scores,
            max_depth=self.max_depth,
            passes=self.passes,
            target_fraction=self.target_fraction,
            score_source=(
                f"made up: the calibrated chance given the seen part of the hardness, hidden variance "
                f"{self.hidden_variance:g}, to the power 1/{self.overconfidence:g}, logit noise {self.noise:g}"
            ),
        )


@dataclass(frozen=True)
class SyntheticConfig:
    """A made-up workload.

    name                ends the trace's name, which begins with `synthetic-`
    drafters            the arms
    num_requests        requests of the trace
    domains             name -> share of the requests
    domain_order        `mixed`: drawn for each request; `sequential`: one domain after the other, a drift
    num_prompt_tokens   least and most, uniform
    num_output_tokens   least and most, uniform
    spread              how unevenly hard requests and tokens are
    distinct_requests   after this many, requests repeat under new ids (None: never)
    seed                0 to 2^63 - 1
    """

    name: str
    drafters: tuple[SyntheticDrafter, ...]
    num_requests: int = 256
    domains: Mapping[str, float] = field(default_factory=lambda: {"synthetic": 1.0})
    domain_order: Literal["mixed", "sequential"] = "mixed"
    num_prompt_tokens: tuple[int, int] = (128, 512)
    num_output_tokens: tuple[int, int] = (256, 512)
    spread: Spread = field(default_factory=lambda: Spread(request=0.1, token=1.0))
    distinct_requests: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        where = f"synthetic trace {self.name!r}"
        _require(len(self.drafters) >= 1, where, "drafters", "none", "at least one")
        enough = 1 <= self.num_requests <= MOST_REQUESTS
        _require(enough, where, "num_requests", self.num_requests, f"1 to {MOST_REQUESTS:,}")
        shares = self.domains.values()
        positive = len(shares) >= 1 and all(0.0 < share < np.inf for share in shares)
        _require(positive, where, "domains", dict(self.domains), "shares above 0")
        for drafter in self.drafters:
            for domain in drafter.domain_difficulty:
                _require(domain in self.domains, where, "domain_difficulty", domain, ", ".join(self.domains))
        for name, limit in (("num_prompt_tokens", MOST_PROMPT_TOKENS), ("num_output_tokens", MOST_OUTPUT_TOKENS)):
            least, most = getattr(self, name)
            _require(1 <= least <= most <= limit, where, name, (least, most), f"1 <= least <= most <= {limit:,}")
        request, token = self.spread.request, self.spread.token
        inside = request == 0.0 or LEAST_SPREAD["request"] <= request < 1.0
        _require(inside, where, "request spread", request, f"0, or {LEAST_SPREAD['request']:g} to below 1")
        inside = token == 0.0 or LEAST_SPREAD["token"] <= token <= MOST
        _require(inside, where, "token spread", token, f"0, or {LEAST_SPREAD['token']:g} to {MOST:,.0f}")
        distinct = self.distinct_requests
        _require(distinct is None or distinct >= 1, where, "distinct_requests", distinct, "at least 1, or None")
        _require(0 <= self.seed < 2**63, where, "seed", self.seed, "0 to 2^63 - 1")


class SyntheticTrace:
    """A trace made up on demand: request i is a function of (seed, i) alone, and costs no memory until asked for.

    Not recorded from any model: the manifest says `synthetic`, and the name begins with it.
    """

    def __init__(self, config: SyntheticConfig, cache_bytes: int = CACHE_BYTES) -> None:
        """Make up the trace of `config`; blocks are kept up to `cache_bytes`.

        Raises InputError for a parameter out of range (by the configuration's own checks).
        """
        self.config = config
        self._cache_bytes = cache_bytes
        self._kept: OrderedDict[tuple[int, int], Blocks] = OrderedDict()
        self._kept_bytes = 0
        self._shares = np.array(list(config.domains.values())) / sum(config.domains.values())
        self._factors = [
            [drafter.domain_difficulty.get(name, 1.0) for name in config.domains] for drafter in config.drafters
        ]
        self._hazards = [
            solve_hazards(
                drafter.conditional_rates,
                config.spread,
                drafter.hidden_variance,
                list(zip(self._shares.tolist(), factors, strict=True)),
            ).astype(np.float32)
            for drafter, factors in zip(config.drafters, self._factors, strict=True)
        ]

    @cached_property
    def manifest(self) -> Manifest:
        """What the trace is; every parameter stands in `how`."""
        return Manifest(
            name=f"synthetic-{self.config.name}",
            recorded_by=f"specsim {__version__}",
            how=f"Made up, not recorded: specsim.trace.synthetic with {json.dumps(asdict(self.config))}",
            synthetic=True,
            target="none (synthetic)",
            drafters=tuple(drafter.entry for drafter in self.config.drafters),
            hardware="none",
            versions={"numpy": np.__version__},
            licence="CC0-1.0",
        )

    @property
    def kind(self) -> TraceKind:
        """Every output position has a row for every drafter."""
        return "position_indexed"

    @cached_property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """The drafters, index = arm."""
        return self.manifest.specs

    @cached_property
    def requests(self) -> Requests:
        """The requests' columns; request_id = index."""
        config = self.config
        index = np.arange(config.num_requests)
        uniform = self._uniform[self._source(index)]
        domain = uniform[:, 0] if config.domain_order == "mixed" else (index + 0.5) / len(index)
        tokens = _between(config.num_output_tokens, uniform[:, 2])
        return Requests(
            request_id=index,
            domain=np.searchsorted(np.cumsum(self._shares)[:-1], domain, side="right"),
            domains=tuple(config.domains),
            num_prompt_tokens=_between(config.num_prompt_tokens, uniform[:, 1]),
            num_output_tokens=tokens,
            finish_reason=np.where(
                tokens == config.num_output_tokens[1], FINISH_REASONS.index("length"), FINISH_REASONS.index("stop")
            ),
            arrival_at=np.full(len(index), np.nan),
            prompt_id=np.zeros(len(index), dtype=np.int64),
            has_prompt_id=np.zeros(len(index), dtype=bool),
        )

    @cached_property
    def _uniform(self) -> np.ndarray:
        """[distinct, 4] domain, prompt length, output length and difficulty of each request, as quantiles.

        Row i is the i-th group of draws of one stream: it does not depend on how many rows there are.
        """
        rows = min(self.config.num_requests, self.config.distinct_requests or self.config.num_requests)
        return self._stream(SHAPE, 0, 0).random((rows, 4))

    def __len__(self) -> int:
        return self.config.num_requests

    def _source(self, index: np.ndarray) -> np.ndarray:
        return index % (self.config.distinct_requests or self.config.num_requests)

    def _stream(self, purpose: int, drafter: int, request: int) -> np.random.Generator:
        """Draws keyed by what they are for: the counter's lowest word is left to count the draws."""
        return np.random.Generator(np.random.Philox(counter=[0, request, drafter, purpose], key=[self.config.seed, 0]))

    def visits(self, index: int, drafter: int) -> tuple[np.ndarray, Blocks]:
        """The positions 0 .. num_output_tokens - 1, and the blocks there."""
        blocks = self.blocks(index, drafter)
        return np.arange(len(blocks.num_drafts)), blocks

    def blocks(self, index: int, drafter: int) -> Blocks:
        """What `drafter` proposes at every output position of the request at `index`, read-only."""
        if not 0 <= index < len(self):
            raise IndexError(f"request {index} of {len(self)}")
        key = (int(self._source(np.asarray(index))), int(self.requests.domain[index]) * len(self.drafters) + drafter)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        blocks = self._make(index, drafter)
        self._kept[key] = blocks
        self._kept_bytes += _num_bytes(blocks)
        while self._kept_bytes > self._cache_bytes and len(self._kept) > 1:
            self._kept_bytes -= _num_bytes(self._kept.popitem(last=False)[1])
        return blocks

    def _make(self, index: int, drafter: int) -> Blocks:
        config = self.config.drafters[drafter]
        length, depth = int(self.requests.num_output_tokens[index]), config.max_depth
        exposure, limit = self._tokens(index, drafter, length + depth)
        hazards = self._hazards[drafter]
        num_accepted = _leading_true(_windows(limit, length, depth) >= hazards)
        num_verified = np.minimum(depth, length - np.arange(length))
        confidence = self._confidence(index, drafter, exposure, length)
        num_drafts = np.full(length, depth)
        scores: dict[Score, np.ndarray] = {"drawn_prob": confidence, "max_prob": confidence}
        if config.structure == "autoregressive":
            scores["shifted_prob"] = shifted(confidence, num_drafts)
        blocks = Blocks(num_drafts, np.minimum(num_accepted, num_verified), num_verified, scores)
        for array in (blocks.num_drafts, blocks.num_accepted, blocks.num_verified, *scores.values()):
            array.setflags(write=False)
        return blocks

    def _tokens(self, index: int, drafter: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Of each token: known hardness x difficulty, and the largest hazard under which it is accepted; float32."""
        source = int(self._source(np.asarray(index)))
        variance = self.config.spread.token
        text, luck = self._stream(TEXT, 0, source), self._stream(LUCK, drafter, source)
        known = np.ones(count, dtype=np.float32)
        if variance > 0.0:
            known = text.standard_gamma(1.0 / variance, count, dtype=np.float32) * np.float32(variance)
        difficulty = float(self.config.spread.difficulty(self._uniform[source, 3]))
        difficulty *= self._factors[drafter][int(self.requests.domain[index])]
        exposure = np.maximum(known * np.float32(difficulty), np.float32(1e-30))
        # An exponential waiting time, divided by the hidden factor: accepted where it outlasts the exposure.
        patience = -np.log1p(-luck.random(count, dtype=np.float32))
        hidden = np.float32(self.config.drafters[drafter].hidden_variance)
        with np.errstate(over="ignore"):  # infinite patience: accepted under any hazard
            if hidden > 0.0:
                patience = np.expm1(hidden * patience) / hidden
            return exposure, patience / exposure

    def _confidence(self, index: int, drafter: int, exposure: np.ndarray, length: int) -> np.ndarray:
        config, hazards = self.config.drafters[drafter], self._hazards[drafter]
        seen = _windows(exposure, length, len(hazards)) * hazards
        chance = calibrated_confidence(seen, config.hidden_variance)
        if config.overconfidence != 1.0:
            chance = chance ** np.float32(1.0 / config.overconfidence)
        if config.noise > 0.0:
            source = int(self._source(np.asarray(index)))
            noise = self._stream(NOISE, drafter, source).standard_normal(chance.shape, dtype=np.float32)
            odds = np.maximum(chance, np.float32(1e-30)) / np.maximum(1.0 - chance, np.float32(1e-7))
            odds = odds * np.exp(np.clip(np.float32(config.noise) * noise, -60.0, 60.0))  # beyond it float32 overflows
            chance = odds / (1.0 + odds)
        return chance.astype(np.float64)  # float32 values, as a written trace holds them

    def write(self, path: str | Path) -> Manifest:
        """Write the trace to the new folder `path`: reading it gives the same blocks, bit for bit."""
        folder = Path(path)
        new_folder(folder)
        write_requests(folder / REQUESTS_FILE, self.requests.records())
        write_blocks(folder / BLOCKS_FILE, (self._table(index) for index in range(len(self))))
        return seal(folder, self.manifest)

    def _table(self, index: int) -> pa.Table:
        recorded = {}
        for arm, spec in enumerate(self.drafters):
            blocks = self.blocks(index, arm)
            recorded[spec.name] = RecordedBlocks(
                num_drafts=blocks.num_drafts,
                num_accepted=blocks.num_accepted,
                num_verified=blocks.num_verified,
                confidence=blocks.scores["drawn_prob"],
            )
        return blocks_table(index, recorded)


def _between(limits: tuple[int, int], uniform: np.ndarray) -> np.ndarray:
    least, most = limits
    return np.minimum(least + (uniform * (most - least + 1)).astype(np.int64), most)


def _windows(tokens: np.ndarray, count: int, depth: int) -> np.ndarray:
    """[count, depth] view: row p holds tokens[p : p + depth]."""
    return np.ndarray((count, depth), tokens.dtype, tokens, strides=tokens.strides * 2)


def _leading_true(accepted: np.ndarray) -> np.ndarray:
    """[P] int64, the number of leading True in each row of [P, D] bool."""
    first_rejected: np.ndarray = np.argmin(accepted, axis=1)
    all_accepted = accepted[np.arange(len(accepted)), first_rejected]
    first_rejected[all_accepted] = accepted.shape[1]
    return first_rejected


def _num_bytes(blocks: Blocks) -> int:
    arrays = {id(array): array.nbytes for array in blocks.scores.values()}
    return 3 * blocks.num_drafts.nbytes + sum(arrays.values())


def _require(holds: bool, where: str, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise InputError(f"{where}: {name} {value}; allowed: {allowed}")
