"""How long a drafter's drafts are accepted on held-out outputs, and what its confidence is worth.

Outputs are the target's own greedy ones, so a draft is accepted exactly when it is the output's next token. Until its
first wrong draft a drafter has fed itself the output's tokens: one pass over all anchors, fed with these, tells how
many drafts each anchor would have had accepted, and a walk over the anchors gives the run that decoding would make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from specsim.live.drafters.checkpoints import DrafterNet
from specsim.live.drafters.eagle_net import EagleNet
from specsim.live.training.anchored import draft_hidden
from specsim.live.training.batches import anchor_batch
from specsim.live.training.data import TokenData, loops
from specsim.live.training.features import FeatureCache, Target, cache_features

DEPTHS = (7, 15)
"""Drafts a block for which acceptance lengths are given."""

CALIBRATED = (1, 4, 8)
"""Drafts of a block whose confidence is judged by itself."""

BINS = 15
LOGIT_ROWS = 8192


@dataclass(frozen=True)
class RowResult:
    """One output, at each of its A anchors.

    domain      index into the data's names
    loops       whether the output goes in circles
    right       [A, K] bool, whether each draft is the output's token; False behind the output's end
    confidence  [A, K] float32, the draft's probability
    """

    domain: int
    loops: bool
    right: np.ndarray
    confidence: np.ndarray

    @property
    def accepted(self) -> np.ndarray:
        """[A] int64, leading right drafts of each anchor."""
        return np.cumprod(self.right, axis=1).sum(axis=1)


@torch.no_grad()
def evaluate(
    net: DrafterNet, target: Target, data: TokenData, *, depth: int = 15, batch_rows: int = 16
) -> dict[str, Any]:
    """Judge a drafter.

    net         as it will draft, weights in their stored precision
    data        held-out prompts with the target's greedy outputs
    depth       most drafts a block (a block drafter has its own limit, too)
    batch_rows  outputs of a pass
    returns     see `summarise`
    """
    return summarise(judge_rows(net, target, data, depth=depth, batch_rows=batch_rows), data.domains)


@torch.no_grad()
def judge_rows(
    net: DrafterNet, target: Target, data: TokenData, *, depth: int = 15, batch_rows: int = 16
) -> list[RowResult]:
    """Every draft at every anchor of every output that has at least two tokens; arguments as of `evaluate`."""
    depth = min(depth, getattr(net.config, "block_size", depth + 1) - 1)
    layers = net.config.feature_layers or net.config.layers_of(int(target.config.num_hidden_layers))  # type: ignore[union-attr]
    data = data.select(np.flatnonzero(data.lengths - data.prompt_len >= 2))
    everything = 1 << 62  # no row may be left out: what does not fit fails
    cache = cache_features(target, data, layers, dtype=target.head.dtype, scaled=False, limit_bytes=everything)
    net = net.to(target.device, target.head.dtype)
    order = np.argsort(data.lengths, kind="stable")
    found: dict[int, RowResult] = {}
    for start in range(0, len(order), batch_rows):
        rows = order[start : start + batch_rows]
        found |= zip(rows.tolist(), _judge(net, target, cache, rows, depth), strict=True)
    return [found[row] for row in range(len(data))]


def _judge(net: DrafterNet, target: Target, cache: FeatureCache, rows: np.ndarray, depth: int) -> list[RowResult]:
    data, follow = cache.data, np.append(cache.data.tokens[1:], 0)
    counts = data.lengths[rows] - 1 - data.prompt_len[rows]
    width = int(counts.max())
    anchors = data.prompt_len[rows][:, None] + np.minimum(np.arange(width), counts[:, None] - 1)
    batch = anchor_batch(data, follow, rows, anchors, depth, on_path=False, device=target.device)
    hidden = draft_hidden(net, batch, cache.features[batch.place], target.embedding, depth).flatten(0, 2)
    right = np.zeros(len(rows) * width * depth, bool)
    confidence = np.zeros(len(right), np.float32)
    for part, labels in zip(batch.rows.split(LOGIT_ROWS), batch.labels.split(LOGIT_ROWS), strict=True):
        logits = net.logits(hidden[part], target.head).float()
        top, best = logits.max(-1)
        where = part.cpu().numpy()
        right[where] = (net.to_target(best) if isinstance(net, EagleNet) else best).eq(labels).cpu().numpy()
        confidence[where] = (top - logits.logsumexp(-1)).exp().cpu().numpy()
    shape = (len(rows), width, depth)
    return [
        RowResult(int(data.domain[row]), loops(data.row(row)[data.prompt_len[row] :]), is_right[:count], sure[:count])
        for row, count, is_right, sure in zip(
            rows.tolist(), counts.tolist(), right.reshape(shape), confidence.reshape(shape), strict=True
        )
    ]


def walk(accepted: np.ndarray, depth: int) -> list[int]:
    """Anchors at which decoding with blocks of `depth` drafts would draft, when each block emits all it can.

    accepted  [A] int64, right drafts at each anchor; anchor i has A - i tokens before it
    returns   indices into `accepted`
    """
    visited, at = [], 0
    while at < len(accepted):
        visited.append(at)
        at += min(int(accepted[at]), depth) + 1
    return visited


def acceptance_length(rows: Sequence[RowResult], depth: int) -> float:
    """Mean tokens emitted by a verification, bonus token included; the last one of an output emits what is left."""
    blocks = sum(len(walk(row.accepted, depth)) for row in rows)
    return sum(len(row.accepted) for row in rows) / blocks if blocks else float("nan")


def survival(rows: Sequence[RowResult]) -> list[float]:
    """By depth: part of the blocks that decoding drafts whose drafts up to there are all accepted.

    Blocks that end with the output before that depth are left out.
    """
    depth = rows[0].right.shape[1]
    alive, asked = np.zeros(depth), np.zeros(depth)
    for row in rows:
        accepted = row.accepted
        for at in walk(accepted, depth):
            asked[: len(accepted) - at] += 1
            alive[: accepted[at]] += 1
    return [float(a / b) if b else float("nan") for a, b in zip(alive, asked, strict=True)]


def judged_drafts(rows: Sequence[RowResult], depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidence of drafts number `depth` (from 1) whose predecessors are right, and whether they are right."""
    sure, right = [], []
    for row in rows:
        count = len(row.right)
        reached = (row.accepted >= depth - 1) & (np.arange(count) + depth <= count)
        sure.append(row.confidence[reached, depth - 1])
        right.append(row.right[reached, depth - 1])
    return np.concatenate(sure), np.concatenate(right)


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error over bins of equal width."""
    if not len(right):
        return float("nan")
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gap = np.bincount(place, confidence.astype(np.float64), BINS) - np.bincount(place, right, BINS)
    return float(np.abs(gap).sum() / len(right))


def rank_quality(confidence: np.ndarray, right: np.ndarray) -> float:
    """Chance that a right draft is more confident than a wrong one, ties counting half (AUC)."""
    hits, misses = int(right.sum()), int((~right).sum())
    if not hits or not misses:
        return float("nan")
    _, place, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((rank[right].sum() - hits * (hits + 1) / 2) / (hits * misses))


def summarise(rows: Sequence[RowResult], domains: Sequence[str]) -> dict[str, Any]:
    """Figures of judged outputs.

    returns  by domain and for all: `outputs`, `looping` (part of them), `acceptance_length` by depth and
             `acceptance_length_loop_free`, `survival` by depth, and `confidence` by draft number with `ece` and `auc`
    """
    groups = {name: [row for row in rows if row.domain == index] for index, name in enumerate(domains)}
    return {name: _figures(group) for name, group in (groups | {"all": list(rows)}).items() if group}


def _figures(rows: list[RowResult]) -> dict[str, Any]:
    free = [row for row in rows if not row.loops]
    judged = {}
    for number in CALIBRATED:
        if number <= rows[0].right.shape[1]:
            sure, right = judged_drafts(rows, number)
            figures = {"drafts": len(right), "ece": calibration_error(sure, right), "auc": rank_quality(sure, right)}
            judged[str(number)] = {key: _number(value) for key, value in figures.items()}
    return {
        "outputs": len(rows),
        "looping": _number(1 - len(free) / len(rows)),
        "acceptance_length": {str(depth): _number(acceptance_length(rows, depth)) for depth in DEPTHS},
        "acceptance_length_loop_free": {str(depth): _number(acceptance_length(free, depth)) for depth in DEPTHS},
        "survival": [_number(value) for value in survival(rows)],
        "confidence": judged,
    }


def _number(value: float) -> float | None:
    """For JSON: rounded, and nothing where there is no number."""
    return round(value, 4) if np.isfinite(value) else None


def table(results: dict[str, Any]) -> str:
    """The results as a Markdown table."""
    names = ["domain", "outputs", "looping", "length at 7", "at 15", "loop-free at 7", "at 15"]
    names += ["survival 1 / 4 / 8", "ECE 1 / 4 / 8", "AUC 1 / 4 / 8"]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for name, figures in results.items():
        free, confidence = figures["acceptance_length_loop_free"], figures["confidence"]
        alive = [figures["survival"][number - 1] for number in CALIBRATED if number <= len(figures["survival"])]
        cells = [
            *(name, str(figures["outputs"]), _cell(figures["looping"])),
            *(_cell(figures["acceptance_length"][str(depth)]) for depth in DEPTHS),
            *(_cell(free[str(depth)]) for depth in DEPTHS),
            " / ".join(_cell(value) for value in alive),
            *(" / ".join(_cell(entry[key], 3) for entry in confidence.values()) for key in ("ece", "auc")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
