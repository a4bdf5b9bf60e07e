"""Streams of requests whose domain changes in segments, and what a drafter policy makes of one in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice

import numpy as np

from specsim.core import Blocks, DrafterSpec
from specsim.cost import CostTable
from specsim.cost.examples import linear_table
from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.serving.engine_config import EngineConfig
from specsim.shipped import shipped_path
from specsim.sim.simulate import simulate
from specsim.sim.workload import TraceArrivals
from specsim.trace import Trace, TraceLike
from specsim.trace.manifest import Manifest, TraceKind
from specsim.trace.requests import Requests
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

ORDER_OF_DOMAINS = ("chat", "code", "math")
"""Others follow as the trace names them."""


@dataclass(frozen=True)
class InOrder:
    """A trace whose requests come in a given order, some of them several times, all waiting from the start.

    trace  whose
    rows   [N] int64, its request at each place
    arms   indices of the drafters that take part (empty: all)
    """

    trace: TraceLike
    rows: np.ndarray
    arms: tuple[int, ...] = ()

    @property
    def manifest(self) -> Manifest:
        """See `TraceLike`."""
        return self.trace.manifest

    @property
    def kind(self) -> TraceKind:
        """See `TraceLike`."""
        return self.trace.kind

    @property
    def drafters(self) -> tuple[DrafterSpec, ...]:
        """See `TraceLike`."""
        return tuple(self.trace.drafters[arm] for arm in self.arms) if self.arms else self.trace.drafters

    @property
    def requests(self) -> Requests:
        """The requests in their order."""
        taken = self.trace.requests.take(self.rows)
        return replace(taken, arrival_at=np.zeros(len(self.rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, index: int, drafter: int) -> Blocks:
        """See `TraceLike`."""
        return self.trace.blocks(int(self.rows[index]), self._arm(drafter))

    def visits(self, index: int, drafter: int) -> tuple[np.ndarray, Blocks]:
        """See `TraceLike`."""
        return self.trace.visits(int(self.rows[index]), self._arm(drafter))

    def _arm(self, drafter: int) -> int:
        return self.arms[drafter] if self.arms else drafter


@dataclass(frozen=True)
class Study:
    """What is played.

    trace, cost    names or folders; the trace `synthetic` is made up, with costs of its own
    segments       in all
    requests       of a segment
    budget         what is verified, whoever drafts
    drafters       names of those that take part (empty: all of the trace)
    recorded       whether requests come as the trace has them, again and again, whatever the seed
    """

    trace: str
    cost: str
    segments: int
    requests: int
    budget: str
    drafters: tuple[str, ...] = ()
    recorded: bool = False


@dataclass(frozen=True)
class Played:
    """One policy on one seed's stream.

    tokens, seconds  in all
    by_segment       [segments] float64, seconds in which each segment's tokens came, wherever they belong
    shares           share of decode steps by drafter
    phases           share of the seconds by phase of a step, switching and drafting among them
    """

    tokens: int
    seconds: float
    by_segment: np.ndarray
    shares: dict[str, float]
    phases: dict[str, float]

    @property
    def throughput(self) -> float:
        """Output tokens a second."""
        return self.tokens / self.seconds


@cache
def materials(study: Study) -> tuple[TraceLike, CostTable]:
    """The trace and the cost table."""
    if study.trace == "synthetic":
        return made_up()
    return Trace.open(shipped_path("trace", study.trace)), CostTable.open(study.cost, extrapolate=True)


def made_up() -> tuple[TraceLike, CostTable]:
    """Three made-up drafters of equal cost, each at home in one domain."""
    home = {"chat": "one", "code": "two", "math": "three"}
    drafters = tuple(
        SyntheticDrafter(
            name,
            mean_acceptance_length=3.5,
            domain_difficulty={domain: 0.6 if own == name else 1.6 for domain, own in home.items()},
            max_depth=7,
        )
        for name in home.values()
    )
    config = SyntheticConfig(
        "domains",
        drafters,
        96,
        domains=dict.fromkeys(home, 1.0),
        num_prompt_tokens=(32, 128),
        num_output_tokens=(64, 192),
    )
    prices = dict.fromkeys(home.values(), 0.001)
    return SyntheticTrace(config), linear_table(8e-3, 4e-5, (1, 2048), drafters=prices)


def arms_of(trace: TraceLike, study: Study) -> tuple[int, ...]:
    """Indices of the drafters that take part.

    Raises  InputError for one that the trace lacks
    """
    names = [drafter.name for drafter in trace.drafters]
    for name in study.drafters:
        if name not in names:
            raise InputError(f"drafter {name!r}: the trace has {', '.join(names)}")
    return tuple(names.index(name) for name in study.drafters or names)


def stream(trace: TraceLike, study: Study, seed: int) -> np.ndarray:
    """[segments * requests] int64, rows of the trace.

    As recorded, or domain after domain with the requests of a domain in a random order, each once before any comes
    again.

    Raises  InputError where a recorded segment is not of one domain, or the next one is of the same
    """
    requests = trace.requests
    if study.recorded:
        rows = np.resize(np.arange(len(requests)), study.segments * study.requests)
        check_segments(requests.domain[rows].reshape(study.segments, study.requests), requests.domains)
        return rows
    rng = np.random.default_rng([seed, 77])
    known = [name for name in (*ORDER_OF_DOMAINS, *requests.domains) if name in requests.domains]
    names = list(dict.fromkeys(known))
    own = {name: np.flatnonzero(requests.domain == requests.domains.index(name)) for name in names}
    turns = {name: cycle(rng.permutation(rows).tolist()) for name, rows in own.items() if len(rows)}
    order = islice(cycle(list(turns)), study.segments)
    return np.array([row for name in order for row in islice(turns[name], study.requests)], np.int64)


def check_segments(domains: np.ndarray, names: Sequence[str]) -> None:
    """Refuse a recorded order whose domain does not change from segment to segment [segments, requests]."""
    mixed = np.flatnonzero((domains != domains[:, :1]).any(axis=1))
    if len(mixed):
        found = sorted({names[code] for code in domains[mixed[0]]})
        raise InputError(f"segment {mixed[0]} of {domains.shape[1]} requests holds {', '.join(found)}: not one domain")
    if (domains[1:, 0] == domains[:-1, 0]).any():
        raise InputError(f"two segments of {domains.shape[1]} requests in a row are of the same domain")


def play(study: Study, arms: str, batch: int, seed: int) -> Played:
    """One policy, or one drafter by its name, or `autoregressive`, on one seed's stream."""
    trace, cost = materials(study)
    ordered = InOrder(trace, stream(trace, study, seed), arms_of(trace, study))
    spec = arms if arms == "autoregressive" else f"{study.budget}@{arms}"
    controller = build_controller(spec, ordered.drafters)
    engine = EngineConfig(max_num_seqs=batch)
    run = simulate(ordered, cost, controller, engine, TraceArrivals(), seed=seed, record_steps=True)
    assert run.steps is not None
    names = [*(drafter.name for drafter in run.drafters), "plain"]
    shares = dict(zip(names, (run.arm_steps / max(run.arm_steps.sum(), 1)).tolist(), strict=True))
    tokens = run.totals.num_emitted + run.totals.num_first
    phases = {
        name.removesuffix("_seconds"): float(run.steps[name].sum()) / run.duration for name in phases_of(run.steps)
    }
    return Played(tokens, run.duration, segments(ordered, run.steps, study), shares, phases)


def phases_of(steps: np.ndarray) -> list[str]:
    """Columns of a step's phases, in seconds."""
    return [name for name in steps.dtype.names or () if name.endswith("_seconds")]


def segments(trace: InOrder, steps: np.ndarray, study: Study) -> np.ndarray:
    """[segments] float64 seconds of a run between the tokens that end one segment and the next.

    Requests run side by side, so the last ones of a segment overlap with the first ones of the next. Counting the
    stream's decoded tokens, whosesoever, splits every run of the stream at the same places.
    """
    decoded = trace.requests.num_output_tokens.reshape(study.segments, study.requests).sum(axis=1) - study.requests
    ends = np.cumsum(decoded)
    phases = [steps[name] for name in phases_of(steps)]
    instants = np.concatenate([[0.0], steps["started_at"] + sum(phases)])
    emitted = np.concatenate([[0], np.cumsum(steps["num_emitted"])])
    step = np.searchsorted(emitted, ends)  # the first one after which so many are there
    share = (ends - emitted[step - 1]) / (emitted[step] - emitted[step - 1])
    last = instants[step - 1] + share * (instants[step] - instants[step - 1])
    return np.diff(np.concatenate([[0.0], last]))
