"""Batches of anchors: places in the target's outputs from which a drafter is to continue.

Which rows and anchors a step trains on is a function of the seed and the step's number alone, so that a run that was
killed goes on as if it had not been.

An anchor at index n is the last committed token of a row; a drafter knows the hidden states of the tokens before it,
and draft k stands for index n + k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from specsim.errors import InputError
from specsim.live.training.data import TokenData

GROUP = 8
"""Batches drawn together and sorted by length, so that little of a batch is padding."""

PAD = 32
"""Lengths are padded to a multiple: fewer shapes for the allocator."""


@dataclass(frozen=True)
class AnchorBatch:
    """B rows with A anchors each; drafts up to K. All on the device.

    place    [B, T] int64, indices into the cached tokens; a row's last token repeated behind its end
    tokens   [B, T] int64
    anchors  [B, A] int64, index of the anchor in its row
    fed      [B, A, K] int64, token before each draft: the anchor, then the row's own
    rows     [M] int64, drafts to learn, as indices into a flat [B * A * K]
    labels   [M] int64, what they should be
    depths   [M] int64, which draft of its block each is, from 0
    """

    place: Tensor
    tokens: Tensor
    anchors: Tensor
    fed: Tensor
    rows: Tensor
    labels: Tensor
    depths: Tensor


@dataclass(frozen=True)
class AnchorSampler:
    """Draws batches.

    data         rows to draw from
    best         [N] int64, the target's most likely token after each token of the data
    num_rows     B
    num_anchors  A
    depth        K, drafts after an anchor
    seed         of all draws
    on_path      whether a block is learnt only as far as the row is the target's greedy path: a drafter that does
                 not see the tokens in between cannot know that the row left it
    among        rows to draw (None: all)
    """

    data: TokenData
    best: np.ndarray
    num_rows: int
    num_anchors: int
    depth: int
    seed: int
    on_path: bool
    among: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not len(self._eligible):
            raise InputError("no row has an output of two tokens: there is nothing to draft")

    @cached_property
    def _eligible(self) -> np.ndarray:
        rows = np.arange(len(self.data)) if self.among is None else self.among
        return rows[(self.data.lengths - self.data.prompt_len)[rows] >= 2]

    def draw(self, step: int, device: torch.device | str) -> AnchorBatch:
        """The batch of a step."""
        rng = np.random.default_rng((self.seed, 1, step // GROUP))
        eligible = self._eligible
        count = GROUP * self.num_rows
        rows = rng.choice(eligible, count, replace=count > len(eligible))
        rows = rows[np.argsort(self.data.lengths[rows], kind="stable")].reshape(GROUP, self.num_rows)
        rows = rows[rng.permutation(GROUP)[step % GROUP]]
        share = np.random.default_rng((self.seed, 2, step)).random((self.num_rows, self.num_anchors))
        first, choices = self.data.prompt_len[rows], self.data.lengths[rows] - 1 - self.data.prompt_len[rows]
        anchors = first[:, None] + np.floor(share * choices[:, None]).astype(np.int64)
        return anchor_batch(self.data, self.best, rows, anchors, self.depth, on_path=self.on_path, device=device)


def anchor_batch(
    data: TokenData,
    best: np.ndarray,
    rows: np.ndarray,
    anchors: np.ndarray,
    depth: int,
    *,
    on_path: bool,
    device: torch.device | str,
) -> AnchorBatch:
    """The batch of given rows [B] and anchors [B, A]; see `AnchorSampler`."""
    lengths = data.lengths[rows]
    width = -(-int(lengths.max()) // PAD) * PAD
    last = data.starts[rows + 1] - 1
    place = np.minimum(data.starts[rows][:, None] + np.arange(width), last[:, None])
    index = anchors[:, :, None] + np.arange(1, depth + 1)  # of each draft in its row
    valid = index < lengths[:, None, None]
    before = np.minimum(data.starts[rows][:, None, None] + index - 1, last[:, None, None])
    labels, fed = best[before], data.tokens[before]
    if on_path:
        follows = labels[..., :-1] == fed[..., 1:]  # draft k + 1 is fed draft k's true token
        valid[..., 1:] &= np.logical_and.accumulate(follows, axis=-1)
    flat = np.flatnonzero(valid)
    arrays = (place, data.tokens[place], anchors, fed, flat, labels.reshape(-1)[flat], flat % depth)
    return AnchorBatch(*(_send(array, device) for array in arrays))


def _send(array: np.ndarray, device: torch.device | str) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
