"""An outcome taken apart: what it brought to each domain, to each request, or through each drafter."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from specsim.core import Counterfactual, Draft, DrafterSpec, Order, Outcome, StepSeconds

Key = TypeVar("Key", bound=Hashable)

PER_REQUEST = tuple(field.name for field in fields(Draft) if field.name not in ("drafter", "scores"))
"""Fields of a draft that hold one value a request."""


def parts(outcome: Outcome, keys: Sequence[Key]) -> Iterator[tuple[Key | str, Outcome]]:
    """The requests of each key, in the order in which keys appear; their seconds are their share of the requests.

    keys  [B] of each request (empty: all are one part, whose key is the empty text)
    """
    distinct = list(dict.fromkeys(keys))
    if len(distinct) <= 1:
        yield (distinct[0] if distinct else ""), outcome
        return
    of = np.array([distinct.index(key) for key in keys])
    for index, key in enumerate(distinct):
        yield key, part(outcome, of == index)


def by_arm(outcome: Outcome, drafters: Sequence[DrafterSpec]) -> Iterator[tuple[int, Outcome]]:
    """An outcome whose requests had different drafters, as each drafter would have seen it alone.

    drafters  in arm order
    """
    assert outcome.order.arms is not None
    for arm in dict.fromkeys(outcome.order.arms.tolist()):
        own = part(outcome, outcome.order.arms == arm)
        draft = None if own.draft is None else replace(own.draft, drafter=drafters[arm], arms=None)
        yield arm, replace(own, order=Order(arm, outcome.order.depth), draft=draft)


def part(outcome: Outcome, own: np.ndarray) -> Outcome:
    """Some requests of an outcome.

    own  [B] bool, which
    """
    order = outcome.order
    return replace(
        outcome,
        order=order if order.arms is None else replace(order, arms=order.arms[own]),
        draft=None if outcome.draft is None else drafted_by(outcome.draft, own),
        num_verify=outcome.num_verify[own],
        num_accepted=outcome.num_accepted[own],
        num_emitted=outcome.num_emitted[own],
        seconds=_scaled(outcome.seconds, float(own.mean())),
        domains=_chosen(outcome.domains, own),
        requests=_chosen(outcome.requests, own),
        counterfactual=_columns(outcome.counterfactual, own),
    )


def drafted_by(draft: Draft, own: np.ndarray) -> Draft:
    """The drafts of some requests."""
    scores = {score: values[own] for score, values in draft.scores.items()}
    rows = {name: getattr(draft, name) for name in PER_REQUEST if getattr(draft, name) is not None}
    return replace(draft, scores=scores, **{name: values[own] for name, values in rows.items()})


def each_drafters(draft: Draft, drafters: Sequence[DrafterSpec]) -> Iterator[tuple[np.ndarray, Draft]]:
    """A draft of several drafters as each drafter's own, with the rows it has in the whole.

    drafters  in arm order
    returns   [B] bool, which rows; and their draft
    """
    assert draft.arms is not None
    for arm in np.unique(draft.arms).tolist():
        own = draft.arms == arm
        yield own, replace(drafted_by(draft, own), drafter=drafters[arm], arms=None)


def _chosen(values: tuple[Key, ...], own: np.ndarray) -> tuple[Key, ...]:
    return tuple(value for value, wanted in zip(values, own.tolist(), strict=True) if wanted) if values else ()


def _scaled(seconds: StepSeconds, share: float) -> StepSeconds:
    return StepSeconds(**{phase.name: getattr(seconds, phase.name) * share for phase in fields(seconds)})


def _columns(counterfactual: Counterfactual | None, own: np.ndarray) -> Counterfactual | None:
    if counterfactual is None:
        return None
    return Counterfactual(counterfactual.num_accepted[:, own], counterfactual.num_tested[:, own])
