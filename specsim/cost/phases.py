"""Every phase of a step as a function of what it is measured over: batch, tokens or depth, and context."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from specsim.cost.cells import Cell
from specsim.cost.curves import Curve, Edge, bracket, lerp
from specsim.cost.verify import Floats, Ints, VerifySurface

S = TypeVar("S")

UNRESOLVED = "the cost table resolves no context: a step is charged the same at every context"


class ByContext(Generic[S]):
    """Look-ups of one phase at each measured context, and straight lines between them.

    Below the smallest context that one is charged. A phase measured at one context only costs the same at
    all, which is said.
    """

    def __init__(self, what: str, cells: Iterable[Cell], build: Callable[[list[Cell]], S], resolved: bool) -> None:
        """Group cells by context.

        what      the phase, in words
        cells     of this phase
        build     a look-up from the cells of one context
        resolved  whether any phase of the table was measured at several contexts
        """
        self.what = what
        self._resolved = resolved
        groups: dict[int, list[Cell]] = {}
        for cell in cells:
            groups.setdefault(cell.context, []).append(cell)
        self.surfaces = {context: build(groups[context]) for context in sorted(groups)}
        self.contexts = list(self.surfaces)

    def at(self, context: int, edge: Edge, read: Callable[[S], Any]) -> Any:
        """What `read` finds at a context, interpolated.

        context   tokens, on the grid
        edge      what to do beyond the largest measured context
        read      seconds from the look-up of one measured context
        """
        last = self.contexts[-1]
        if len(self.contexts) == 1 and context != last:
            only = f"{self.what} was measured at context {last} only: it is charged the same at every context"
            edge.note(only if self._resolved else UNRESOLVED)
        elif context > last:
            edge.beyond(f"context of {self.what}", context, f"up to {last}")
        low, high, weight = bracket(self.contexts, context)
        first = read(self.surfaces[low])
        return first if low == high else lerp(first, read(self.surfaces[high]), weight)


class DraftSurface:
    """Seconds of drafting over batch and depth, of one drafter at one context."""

    def __init__(self, cells: list[Cell]) -> None:
        rows: dict[int, dict[int, float]] = {}
        for cell in cells:
            assert cell.depth is not None
            rows.setdefault(cell.batch, {})[cell.depth] = cell.seconds
        self._rows = {batch: Curve(rows[batch]) for batch in sorted(rows)}
        self._batches = list(self._rows)
        self._name = cells[0].drafter

    def at(self, batch: int, depth: int, per_depth: bool, edge: Edge) -> float:
        """Seconds of drafting `depth` tokens for each of `batch` requests.

        per_depth   whether each token costs a pass: then a depth below the smallest measured one is charged
                    in proportion, else as that one
        """
        if not self._batches[0] <= batch <= self._batches[-1]:
            edge.beyond(f"batch of drafting by {self._name}", batch, f"{self._batches[0]} to {self._batches[-1]}")
        low, high, weight = bracket(self._batches, batch)
        first, last = (self._row(b, depth, per_depth, edge) for b in (low, high))
        return float(lerp(first, last, weight))

    def _row(self, batch: int, depth: int, per_depth: bool, edge: Edge) -> float:
        row = self._rows[batch]
        if depth > row.high:
            edge.beyond(f"depth of drafting by {self._name}", depth, f"up to {row.high} at batch {batch}")
        seconds = float(row.at(np.float64(depth)))
        if depth >= row.low:
            return seconds
        rule = "in proportion" if per_depth else "as that depth: one pass proposes the whole block"
        edge.note(f"drafting by {self._name} below depth {row.low}, the smallest measured, is charged {rule}")
        return seconds * depth / row.low if per_depth else seconds


class BatchCurve:
    """Seconds over batch alone: planning, host work. No cells: 0, as when another phase contains it."""

    def __init__(self, cells: list[Cell]) -> None:
        self._phase = cells[0].phase if cells else ""
        self._curve = Curve({cell.batch: cell.seconds for cell in cells}) if cells else None

    def at(self, batch: int, edge: Edge) -> float:
        """Seconds at a batch."""
        if self._curve is None:
            return 0.0
        if not self._curve.low <= batch <= self._curve.high:
            edge.beyond(f"{self._phase} batch", batch, f"{self._curve.low} to {self._curve.high}")
        return float(self._curve.at(np.float64(batch)))

    def nearest(self, batch: int) -> float:
        """Seconds at a batch, or at the nearest that was measured."""
        if self._curve is None:
            return 0.0
        return float(self._curve.at(np.float64(min(max(batch, self._curve.low), self._curve.high))))


class JoinSurface:
    """Seconds of requests that join a step over batch and their number, none for nobody. No cells: 0."""

    def __init__(self, cells: list[Cell]) -> None:
        rows: dict[int, dict[int, float]] = {}
        for cell in cells:
            rows.setdefault(cell.batch, {0: 0.0})[cell.tokens or 0] = cell.seconds
        self._rows = {batch: Curve(rows[batch]) for batch in sorted(rows)}
        self._batches = list(self._rows)

    def at(self, batch: int, requests: int) -> float:
        """Seconds of so many requests; those beyond the most measured cost as much each as the last ones measured.

        batch   beyond the measured ones it is read at the nearest
        """
        if not self._batches:
            return 0.0
        low, high, weight = bracket(self._batches, min(batch, self._batches[-1]))
        first, last = (self._rows[at].at(np.float64(requests)) for at in (low, high))
        return float(lerp(first, last, weight))


class TokenCurve:
    """Seconds over a number of tokens alone, none at 0: prefill, catching up a drafter's cache.

    More tokens than measured are processed in several passes, so they are charged as passes of the largest
    measured number and the rest.
    """

    def __init__(self, cells: list[Cell]) -> None:
        self._phase = cells[0].phase
        self._curve = Curve({0: 0.0} | {cell.tokens or 0: cell.seconds for cell in cells})

    def at(self, tokens: int, edge: Edge) -> float:
        """Seconds of a number of tokens."""
        most = self._curve.high
        if tokens <= most:
            return float(self._curve.at(np.float64(tokens)))
        edge.note(f"{self._phase} of more than {most} tokens, the most measured, is charged as several passes")
        passes, rest = divmod(tokens, most)
        return passes * float(self._curve.at(np.float64(most))) + float(self._curve.at(np.float64(rest)))


class Phases:
    """The look-ups of all phases. Immutable, so tables may share it."""

    def __init__(self, cells: Iterable[Cell], capture_sizes: tuple[int, ...]) -> None:
        groups: dict[tuple[str, str | None], list[Cell]] = {}
        for cell in cells:
            groups.setdefault((cell.phase, cell.drafter), []).append(cell)

        def drafters(phase: str) -> list[str]:
            return [name for found, name in groups if found == phase and name is not None]

        def by_context(what: str, found: list[Cell], make: Callable[[list[Cell]], S]) -> ByContext[S]:
            return ByContext(what, found, make, resolved)

        resolved = any(len({cell.context for cell in found}) > 1 for found in groups.values())
        self.verify = by_context("verify", groups["verify", None], lambda found: VerifySurface(found, capture_sizes))
        self.draft = {d: by_context(f"drafting by {d}", groups["draft", d], DraftSurface) for d in drafters("draft")}
        prefill = groups.get(("prefill", None))
        self.prefill = by_context("prefill", prefill, TokenCurve) if prefill else None
        self.plan = BatchCurve(groups.get(("plan", None), []))
        self.host = BatchCurve(groups.get(("host", None), []))
        self.hidden = BatchCurve(groups.get(("hidden", None), []))
        self.late = BatchCurve(groups.get(("late", None), []))
        self.late_draft = BatchCurve(groups.get(("late_draft", None), []))
        self.join = JoinSurface(groups.get(("join", None), []))
        self.switch = {d: TokenCurve(groups["switch", d]) for d in drafters("switch")}

    def verify_seconds(self, batch: int, tokens: Ints, context: int, edge: Edge) -> Floats:
        """[N] float64 seconds of verifying [N] rising token counts."""
        return np.asarray(self.verify.at(context, edge, lambda surface: surface.at(batch, tokens, edge)))

    def draft_seconds(self, drafter: str, batch: int, depth: int, per_depth: bool, context: int, edge: Edge) -> float:
        """Seconds of drafting by a drafter that has cells."""
        return float(self.draft[drafter].at(context, edge, lambda s: s.at(batch, depth, per_depth, edge)))

    @property
    def flat(self) -> bool:
        """Whether verifying more costs nothing, to 1 %, everywhere measured."""
        return all(surface.flat for surface in self.verify.surfaces.values())
