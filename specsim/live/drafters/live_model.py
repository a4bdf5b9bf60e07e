"""A smaller language model as a drafter inside the engine, with a cache of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from specsim.core import DrafterSpec, DraftLaw
from specsim.errors import InputError
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop
from specsim.live.drafters.stepwise import SCORE_SOURCES, STEPWISE_SCORES, draft_stepwise, feed_latest, spread
from specsim.live.drafters.target_features import MOST_TOKENS_AHEAD
from specsim.live.engine import LiveSetup
from specsim.live.models import LoadedModel
from specsim.live.paged_kv import PagedKV
from specsim.live.runner import ModelRunner, Rows

MOST_TOKENS = 2048
"""Tokens of a pass that brings the cache up to date; bounds activations in memory, as chunks of prompts do."""


class LiveModel:
    """Drafts with a causal language model whose tokens mean what the target's mean.

    Its keys and values lie in pools of its own, but in blocks of the target's numbers: the scheduler reserves for each
    request the tokens that a drafter may write, so the drafter can neither run out of blocks nor hold any too long.

    drafter         the model
    setup           the device side of the engine
    max_depth       draft tokens a block
    law             see `draft_stepwise`
    most_tokens     tokens of one pass that brings its cache up to date

    Raises          InputError where its tokens are not the target's, or its cache does not fit into memory
    """

    def __init__(
        self,
        drafter: LoadedModel,
        setup: LiveSetup,
        max_depth: int,
        law: DraftLaw = "point_mass",
        most_tokens: int = MOST_TOKENS,
    ) -> None:
        check_same_tokens(drafter, setup.target)
        text = drafter.model.config.get_text_config()
        dtype = getattr(torch, drafter.dtype)
        _check_memory(drafter.name, PagedKV.bytes_per_block(text, setup.block_size, dtype), setup)
        kv = PagedKV(text, setup.pool.num_blocks, setup.block_size, dtype, setup.device)
        history = setup.state.history
        self._runner = ModelRunner(drafter.model, kv, setup.pool, history, setup.ops, setup.buckets)
        self._state = setup.state
        self._most_tokens = most_tokens
        # Leading tokens of each slot whose keys are in the cache, its latest drafts included, and those without them.
        self._complete, self._settled = np.zeros(len(history), np.int64), np.zeros(len(history), np.int64)
        self._vocabulary = _vocabulary(setup.target.model)
        _read_padding(drafter.model, self._vocabulary)
        self.score_source = SCORE_SOURCES[law]
        self.spec = DrafterSpec(
            name=drafter.name,
            kind="model",
            law=law,
            structure="autoregressive",
            scores=STEPWISE_SCORES,
            max_depth=max_depth,
            max_context=getattr(text, "max_position_embeddings", None),
            passes="per_depth",
            target_fraction=round(_weights_read(drafter.model) / _weights_read(setup.target.model), 4),
        )

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`.

        The first pass feeds each request's tokens from the first one that is not in the cache to the anchor: after a
        step whose drafts were all accepted these are two, since its last draft was never fed.
        """

        def feed(step: int) -> torch.Tensor:
            logits = feed_latest(self._runner, batch, step) if step else self._feed_anchors(batch)
            # Tokens beyond the target's vocabulary can be no output: they are gone before anything is chosen.
            return logits[:, : self._vocabulary]

        drafted = draft_stepwise(feed, batch, depth, self.spec.law, stop)
        if not batch.bounds:
            self._note(batch, next(iter(drafted.scores.values())).shape[1])
        return drafted

    def drafts_ahead(self, batch: DraftBatch) -> bool:
        """See `DraftsAhead.drafts_ahead`."""
        return int((batch.lengths - self._complete_before(batch)).sum()) <= min(MOST_TOKENS_AHEAD, self._most_tokens)

    def drafted_ahead(self, batch: DraftBatch) -> None:
        """See `DraftsAhead.drafted_ahead`."""
        self._note(batch, int(batch.room.max()))

    def _note(self, batch: DraftBatch, columns: int) -> None:
        """So many passes were made: the last draft is not fed; the anchor and those before it are."""
        room = np.minimum(batch.room, columns)
        fed = room > 0
        self._complete[batch.slots[fed]] = batch.lengths[fed] + room[fed] - 1
        self._settled[batch.slots[fed]] = batch.lengths[fed]

    def catch_up(self, batch: DraftBatch) -> None:
        """See `LiveDrafter.catch_up`; requests that it has no room to draft for are left out.

        How many of the drafts it last made were accepted can't be told any more: they are computed again.
        """
        self._complete[batch.slots] = np.minimum(self._complete[batch.slots], self._settled[batch.slots])
        self._feed_before_anchors(batch)

    def release(self, slot: int) -> None:
        """See `LiveDrafter.release`."""
        self._complete[slot] = self._settled[slot] = 0

    def _complete_before(self, batch: DraftBatch) -> np.ndarray:
        """[B] int64, leading tokens in the cache that are the request's: what followed a rejected draft is not."""
        return np.minimum(self._complete[batch.slots], batch.lengths - 1)

    def _feed_before_anchors(self, batch: DraftBatch) -> None:
        """Compute all that is before the anchors, in passes of bounded size, in batch order."""
        first, stop = self._complete_before(batch), np.where(batch.room > 0, batch.lengths - 1, 0)
        while (first < stop).any():
            counts = np.diff(np.minimum(np.cumsum(np.maximum(stop - first, 0)), self._most_tokens), prepend=0)
            rows = np.flatnonzero(counts)
            fed = self._state.on_device(np.stack([batch.slots[rows], first[rows], counts[rows]]))
            one = torch.zeros(1, dtype=torch.int64, device=fed.device)  # logits of no row at all can't be asked for
            self._runner.run(Rows(fed[0], fed[1], fed[2], int(counts.sum())), one)
            first = first + counts
            self._complete[batch.slots[rows]] = self._settled[batch.slots[rows]] = first[rows]

    def _feed_anchors(self, batch: DraftBatch) -> torch.Tensor:
        """Everything up to each anchor, in one pass where it is not too much; [B, V] logits after the anchors."""
        rows = np.flatnonzero(batch.room > 0)
        if int((batch.lengths - self._complete_before(batch))[rows].sum()) > self._most_tokens:
            self._feed_before_anchors(batch)
        if len(rows) == len(batch):
            complete = self._state.on_device(self._complete[batch.slots])
            starts = torch.minimum(complete, batch.device_lengths - 1)
            lengths = batch.device_lengths - starts
            total = int((batch.lengths - self._complete_before(batch)).sum())
            return self._runner.run(Rows(batch.device_slots, starts, lengths, total), lengths.cumsum(0) - 1).logits
        first = self._complete_before(batch)[rows]
        counts = batch.lengths[rows] - first
        fed = self._state.on_device(np.stack([batch.slots[rows], first, counts, np.cumsum(counts) - 1, rows]))
        logits = self._runner.run(Rows(fed[0], fed[1], fed[2], int(counts.sum())), fed[3]).logits
        return spread(logits, fed[4], len(batch))


def check_same_tokens(drafter: LoadedModel, target: LoadedModel) -> None:
    """Refuse a drafter whose token ids do not mean what the target's mean.

    Equal definitions are equal; otherwise the vocabularies, every token with its id, are compared. Models of random
    weights have no tokenizer: any two of them go together.

    Raises      InputError naming the first token that differs
    """
    if drafter.tokenizer_hash == target.tokenizer_hash:
        return
    pair = f"drafter {drafter.name!r} and target {target.name!r}"
    if drafter.tokenizer is None or target.tokenizer is None:
        lacking = (drafter if drafter.tokenizer is None else target).name
        raise InputError(f"{pair}: {lacking!r} has no tokenizer, so that their tokens cannot be compared")
    own, theirs = drafter.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    differing = sorted(token for token in own.keys() | theirs.keys() if own.get(token) != theirs.get(token))
    if differing:
        token = differing[0]
        raise InputError(
            f"{pair} have different tokenizers: token {token!r} is {_id(own, token)} of the drafter and "
            f"{_id(theirs, token)} of the target ({len(differing)} tokens differ); they must have the same vocabulary"
        )


def _id(vocabulary: dict[str, int], token: str) -> str:
    return f"id {vocabulary[token]}" if token in vocabulary else "no token"


def _check_memory(name: str, block: int, setup: LiveSetup) -> None:
    if setup.device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(setup.device)
    needed = block * (setup.pool.num_blocks + 1)
    if needed > free:
        raise InputError(
            f"drafter {name!r}: its cache of {setup.pool.num_blocks} blocks needs {needed / 2**30:.1f} GiB, and "
            f"{free / 2**30:.1f} GiB are free; give fewer num_kv_blocks, or a smaller kv_memory"
        )


def _vocabulary(model: Any) -> int:
    """Rows of the output head: what a token id may be."""
    return int(model.get_output_embeddings().weight.shape[0])


def _read_padding(model: Any, target_vocabulary: int) -> None:
    """Let a drafter read tokens that only the target's padding has: to it they are its own last one."""
    embeddings = model.get_input_embeddings()
    last = embeddings.weight.shape[0] - 1
    if last + 1 < target_vocabulary:
        embeddings.register_forward_pre_hook(lambda _, args: (args[0].clamp(max=last), *args[1:]))


def _weights_read(model: Any) -> int:
    """Weights that a pass reads: layers and output head."""
    layers = sum(weight.numel() for layer in model.get_decoder().layers for weight in layer.parameters())
    return int(layers + model.get_output_embeddings().weight.numel())
