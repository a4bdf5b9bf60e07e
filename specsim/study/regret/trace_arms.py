"""Arms drawn from a recorded trace: each step meets random positions of the domain that is served at the time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.study.regret.environment import Prices, Truth
from specsim.study.regret.feedback import Draws
from specsim.trace import TraceLike

MOST_REQUESTS = 256
"""Requests of a domain that are read, from its first on: beyond that their means hardly move, and memory is bounded."""

MOST_BATCH = 4096
"""Positions a step, all of which are drawn for every run."""

PIECE_BYTES = 64 * 2**20
"""Drawn positions that are in memory at once."""

CATCH_UP_TOKENS = 1024
"""Missed tokens at which catching up is priced; the price of one is its share."""


@dataclass(frozen=True)
class Positions:
    """Every output position of a domain, for each arm.

    accepted, tested, tokens    [N, A] float64: accepted drafts, drafts that would meet an accept test, tokens emitted
                                if the whole block is verified there
    """

    accepted: np.ndarray
    tested: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True)
class TraceArms:
    """Arms of a trace whose domain changes; see `Environment`.

    domains     of each step
    positions   by domain
    batch       positions a step
    """

    name: str
    description: str
    arms: tuple[str, ...]
    prices: Prices
    truth: Truth
    domains: tuple[str, ...]
    positions: dict[str, Positions]
    batch: int

    def domain(self, step: int) -> str:
        """The domain served at a step."""
        return self.domains[step]

    def draw(self, rngs: list[np.random.Generator], start: int, stop: int) -> Draws:
        """`batch` positions a step and run, drawn with replacement from the step's domain, the same for every arm."""
        size = max(1, PIECE_BYTES // (8 * len(rngs) * self.batch * len(self.arms)))
        return _joined([self._draw(rngs, at, min(at + size, stop)) for at in range(start, stop, size)])

    def _draw(self, rngs: list[np.random.Generator], start: int, stop: int) -> Draws:
        share = np.stack([rng.random((stop - start, self.batch)) for rng in rngs], axis=1)
        parts: list[Draws] = []
        for first, last, domain in self._stretches(start, stop):
            found = self.positions[domain]
            rows = (share[first - start : last - start] * len(found.accepted)).astype(np.int64)
            summed = (values[rows].sum(axis=2) for values in (found.accepted, found.tested, found.tokens))
            parts.append(Draws(*summed))
        return _joined(parts)

    def _stretches(self, start: int, stop: int) -> list[tuple[int, int, str]]:
        """First step, end and domain of each run of equal domains."""
        cuts = [step for step in range(start + 1, stop) if self.domains[step] != self.domains[step - 1]]
        bounds = [start, *cuts, stop]
        return [(a, b, self.domains[a]) for a, b in pairwise(bounds)]


def _joined(parts: list[Draws]) -> Draws:
    """Draws of stretches that follow each other."""
    return Draws(
        np.concatenate([part.accepted for part in parts]),
        np.concatenate([part.tested for part in parts]),
        np.concatenate([part.tokens for part in parts]),
    )


def trace_arms(
    trace: TraceLike,
    num_steps: int = 10_000,
    *,
    cycles: int = 2,
    batch: int = 1,
    cost: CostTable | None = None,
    seconds: float = 0.010,
    switch_seconds: float = 0.002,
) -> TraceArms:
    """Arms of a trace. Its domains are served one after the other, and all of them again in each cycle.

    num_steps       T
    cycles          times every domain is served
    batch           positions a step
    cost            prices steps of `batch` requests that verify whole blocks, and what an idle drafter missed
    seconds, switch_seconds     prices without a table, alike for all drafters
    Raises          InputError when the trace has a single drafter, there are more domains than steps, or too many
                    requests a step
    """
    arms = tuple(drafter.name for drafter in trace.drafters)
    names = trace.requests.domains
    if len(arms) < 2:
        raise InputError(f"the trace has one drafter ({', '.join(arms)}), and choosing takes two")
    if not 1 <= batch <= MOST_BATCH:
        raise InputError(f"{batch} requests a step: allowed 1 to {MOST_BATCH:,}")
    if cycles * len(names) > num_steps:
        raise InputError(f"{num_steps} steps are too few for {cycles} cycles of {len(names)} domains")
    positions = {name: read_positions(trace, index) for index, name in enumerate(names)}
    order = names * cycles
    served = [order[step * len(order) // num_steps] for step in range(num_steps)]
    code = np.array([names.index(name) for name in served])
    acceptance = np.stack([_acceptance(positions[name]) for name in names])
    tokens = np.stack([positions[name].tokens.mean(axis=0) for name in names]) * batch
    return TraceArms(
        name="trace",
        description=f"Positions of a recorded trace, {', '.join(names)} in turn, {cycles} times.",
        arms=arms,
        prices=Prices.alike(len(arms), seconds, switch_seconds) if cost is None else table_prices(trace, cost, batch),
        truth=Truth(acceptance[code], tokens[code]),
        domains=tuple(served),
        positions=positions,
        batch=batch,
    )


def read_positions(trace: TraceLike, domain: int) -> Positions:
    """Every position of a domain's first requests.

    domain  index into the trace's domains
    """
    requests = np.flatnonzero(trace.requests.domain == domain)[:MOST_REQUESTS]
    columns: list[list[np.ndarray]] = [[], [], []]
    for index in requests.tolist():
        left = int(trace.requests.num_output_tokens[index]) - np.arange(int(trace.requests.num_output_tokens[index]))
        blocks = [trace.blocks(index, arm) for arm in range(len(trace.drafters))]
        accepted = np.stack([block.num_accepted for block in blocks], axis=1)
        verified = np.stack([block.num_verified for block in blocks], axis=1)
        columns[0].append(accepted)
        columns[1].append(accepted + (accepted < verified))
        columns[2].append(np.minimum(accepted + 1, left[:, None]))
    accepted, tested, tokens = (np.concatenate(column).astype(np.float64) for column in columns)
    return Positions(accepted, tested, tokens)


def table_prices(trace: TraceLike, cost: CostTable, batch: int) -> Prices:
    """Seconds of each drafter's step when whole blocks are verified at the trace's mean context.

    Raises  InputError when the table cannot price a drafter
    """
    requests = trace.requests
    context = float(requests.num_prompt_tokens.mean() + requests.num_output_tokens.mean() / 2)
    steps = [cost.step_cost(drafter, batch, drafter.max_depth, context).seconds[-1] for drafter in trace.drafters]
    catch_up = [cost.switch_seconds(drafter, CATCH_UP_TOKENS) / CATCH_UP_TOKENS for drafter in trace.drafters]
    return Prices(np.array(steps, dtype=np.float64), np.zeros(len(steps)), np.array(catch_up))


def _acceptance(positions: Positions) -> np.ndarray:
    """[A] ratio of totals, 0 for a drafter that proposed nothing."""
    tested = positions.tested.sum(axis=0)
    ratio: np.ndarray = positions.accepted.sum(axis=0) / np.where(tested > 0, tested, 1.0)
    return ratio
