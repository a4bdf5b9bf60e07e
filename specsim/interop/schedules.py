"""Depth by batch size, in the syntaxes of three engines, as one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from specsim.errors import InputError

Schedule: TypeAlias = tuple[tuple[int, int], ...]
"""Rows (start batch, K), ascending from batch 1: each holds up to the next, the last for every larger batch."""


def from_vllm(ranges: Sequence[Sequence[int]]) -> Schedule:
    """vLLM's `num_speculative_tokens_per_batch_size`: `[[start, end, K], ...]`.

    ranges   inclusive and ascending, the first from batch 1; batches in a gap, and those past the end, keep the K
             before them
    Raises   InputError on anything else

    Source: vLLM pull request 32374.
    """
    rows = [_whole("vllm", row, 3) for row in ranges]
    for start, end, _ in rows:
        if end < start:
            raise InputError(f"vllm schedule: range {start} to {end} ends before it starts")
    for (_, end, _), (start, _, _) in pairwise(rows):
        if start <= end:
            raise InputError(f"vllm schedule: the range from {start} overlaps the one up to {end}")
    return checked([(start, depth) for start, _, depth in rows], "vllm schedule")


def from_tensorrt_llm(depths: Mapping[Any, int]) -> Schedule:
    """TensorRT-LLM's `draft_len_schedule`: `{max_batch: K}`.

    depths   each K holds up to and including its batch; past the last nothing is drafted
    Raises   InputError on anything else

    Source: TensorRT-LLM pull request 10860.
    """
    rows = sorted(_whole("tensorrt_llm", row, 2) for row in depths.items())
    if not rows:
        raise InputError("tensorrt_llm schedule: it is empty, which would never draft; write {max_batch: K}")
    starts = [1, *(most + 1 for most, _ in rows)]
    return checked(list(zip(starts, [*(depth for _, depth in rows), 0], strict=True)), "tensorrt_llm schedule")


def from_sglang(tiers: Mapping[Any, Any]) -> Schedule:
    """SGLang's adaptive configuration with one candidate a tier: `{start batch: [K]}`.

    tiers    each holds from its batch on; a tier may also be written `{"candidate_steps": [K]}`
    Raises   InputError on anything else; several candidates are no schedule but a choice, see the policy `ema_tiers`

    Source: SGLang, the configuration of adaptive speculative decoding.
    """
    rows = []
    for start, tier in tiers.items():
        steps = tier.get("candidate_steps") if isinstance(tier, Mapping) else tier
        if not isinstance(steps, Sequence) or isinstance(steps, str) or len(steps) != 1:
            raise InputError(
                f"sglang schedule: tier {start} has steps {steps!r}; a schedule has one a tier, [K];"
                " the policy ema_tiers chooses among several"
            )
        rows.append(_whole("sglang", (start, steps[0]), 2))
    return checked(sorted(rows), "sglang schedule")


PARSERS: dict[str, Callable[[Any], Schedule]] = {
    "vllm": from_vllm,
    "tensorrt_llm": from_tensorrt_llm,
    "sglang": from_sglang,
}


def read_schedule(written: Any) -> Schedule:
    """A schedule as a person writes it.

    written  rows `1:3/17:1` or [[1, 3], [17, 1]] of start batch and K; or an engine's own, under the engine's name:
             {"vllm": [[1, 16, 3], [17, 64, 1]]}
    Raises   InputError when it is none of these
    """
    if isinstance(written, Mapping):
        if len(written) != 1 or next(iter(written)) not in PARSERS:
            raise InputError(f"schedule: one engine's name is expected ({', '.join(PARSERS)}), got {list(written)}")
        ((engine, own),) = written.items()
        if not isinstance(own, Sequence if engine == "vllm" else Mapping) or isinstance(own, str):
            raise InputError(f"{engine} schedule: {own!r} is not in {engine}'s syntax")
        return PARSERS[engine](own)
    rows = [row.split(":") for row in written.split("/")] if isinstance(written, str) else written
    if not isinstance(rows, Sequence):
        raise InputError(f"schedule: {written!r} is not a schedule; write start batch and depth, 1:3/17:1")
    return checked([_whole("", row, 2) for row in rows], "schedule")


def checked(rows: Sequence[Sequence[int]], where: str) -> Schedule:
    """Rows that start at batch 1, ascend, and ask for no negative depth; those that change nothing are left out.

    Raises  InputError naming `where`
    """
    starts = [start for start, _ in rows]
    if not starts or starts[0] != 1:
        raise InputError(f"{where}: the first row must start at batch 1, got {list(rows)}")
    if any(later <= earlier for earlier, later in pairwise(starts)):
        raise InputError(f"{where}: start batches must ascend, got {starts}")
    if any(depth < 0 for _, depth in rows):
        raise InputError(f"{where}: depths must not be negative, got {[depth for _, depth in rows]}")
    changes = [row for row, before in zip(rows, [None, *rows], strict=False) if before is None or row[1] != before[1]]
    return tuple((start, depth) for start, depth in changes)


def depth_at(schedule: Schedule, batch: int) -> int:
    """K of a batch of this size; batch 0 is treated as 1."""
    return [depth for start, depth in schedule if start <= max(batch, 1)][-1]


def _is_whole(number: Any) -> bool:
    return not isinstance(number, bool) and number == int(number)


def _whole(engine: str, row: Any, length: int) -> tuple[int, ...]:
    where = f"{engine} schedule".strip()
    try:
        numbers = tuple(int(number) for number in row)
        whole = all(_is_whole(number) for number in row if not isinstance(number, str))
    except (TypeError, ValueError):
        numbers, whole = (), False
    if not whole or len(numbers) != length:
        raise InputError(f"{where}: {row!r} is not {length} whole numbers")
    return numbers
