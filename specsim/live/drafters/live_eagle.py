"""An EAGLE-3 head inside the engine: one small pass a draft, on hidden states the target left behind."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import pad

from specsim.core import DrafterSpec, DraftLaw
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop
from specsim.live.drafters.block_net import BlockNet
from specsim.live.drafters.eagle_net import EagleNet
from specsim.live.drafters.own_pages import OwnPages
from specsim.live.drafters.stepwise import SCORE_SOURCES, STEPWISE_SCORES, draft_stepwise, spread
from specsim.live.drafters.target_features import MOST_TOKENS, Progress, TargetFeatures, check_target, with_room
from specsim.live.engine import LiveSetup
from specsim.live.models import LoadedModel
from specsim.live.packed_passes import PackedPasses, Rows

Pair = tuple[torch.Tensor, torch.Tensor]


class LiveEagle:
    """Drafts with an EAGLE-3 head.

    Position t of its cache reads the embedding of token t + 1 beside the target's hidden state of token t. So before
    an anchor at position L - 1 it holds positions up to L - 2, the last of which gives the first draft.

    name        the arm's name
    net         the head, on the setup's device and in its dtype
    setup       the device side of the engine
    max_depth   draft tokens a block
    law         see `draft_stepwise`

    Raises      InputError where it was made for another target
    """

    def __init__(
        self, name: str, net: EagleNet, setup: LiveSetup, max_depth: int, law: DraftLaw = "point_mass"
    ) -> None:
        config = net.config
        check_target(name, config.target_hidden_size, config.vocab_size, setup.target)
        self._net, self._setup = net, setup
        self._features = TargetFeatures(config.layers_of(setup.target.num_layers), setup)
        self._pages = OwnPages(config.shape, config.num_layers, setup)
        self._progress = Progress(len(setup.state.history))
        history = setup.state.history
        pools = (setup.pool, self._pages.pool)
        self._extend = PackedPasses[Pair](self._extend_body, pools, len(history), setup.device, setup.buckets)
        self._step = PackedPasses[Pair](self._step_body, pools, len(history), setup.device, setup.buckets)
        self.score_source = SCORE_SOURCES[law]
        self.spec = DrafterSpec(
            name=name,
            kind="eagle",
            law=law,
            structure="autoregressive",
            scores=STEPWISE_SCORES,
            max_depth=max_depth,
            max_context=config.shape.max_positions,
            passes="per_depth",
            target_fraction=weights_share(net, setup.target),
        )

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`; requests without room are in no pass."""
        own, rows = with_room(batch, self._setup)
        hidden: list[torch.Tensor] = []

        def feed(step: int) -> torch.Tensor:
            logits, state = self._anchors(own) if step == 0 else self._further(own, step, hidden[-1])
            hidden.append(state)
            return logits if rows is None else spread(logits, rows, len(batch))

        with torch.inference_mode():
            return draft_stepwise(feed, batch, depth, self.spec.law, stop)

    def drafts_ahead(self, batch: DraftBatch) -> bool:
        """See `DraftsAhead.drafts_ahead`."""
        return self._progress.fits_ahead(batch)

    def drafted_ahead(self, batch: DraftBatch) -> None:
        """See `DraftsAhead.drafted_ahead`."""
        self._progress.done(batch)

    def catch_up(self, batch: DraftBatch) -> None:
        """See `LiveDrafter.catch_up`; drafting computes the last position before each anchor once more."""
        with torch.inference_mode():
            self._progress.catch_up(batch, self._setup, self._extend.run)

    def release(self, slot: int) -> None:
        """See `LiveDrafter.release`."""
        self._progress.release(slot)

    def _anchors(self, batch: DraftBatch) -> Pair:
        """Positions the target has been at since, and what follows the anchor."""
        first, missing = self._progress.missing(batch)
        if int(missing.sum()) > MOST_TOKENS:
            self.catch_up(batch)
            first, missing = self._progress.missing(batch)
        # Where nothing is missing the last position is computed again, for its logits.
        again = missing == 0
        total = int(np.where(again, 1, missing).sum())
        starts = self._setup.state.on_device(first - again)
        out = self._extend.run(Rows(batch.device_slots, starts, batch.device_lengths - 1 - starts, total))
        self._progress.done(batch)
        return out[0][: len(batch)], out[1][: len(batch)]

    def _further(self, batch: DraftBatch, step: int, hidden: torch.Tensor) -> Pair:
        """One more position of each request, from the state before; past a request's room it only stays in place."""
        starts = batch.device_lengths - 2 + torch.clamp(batch.device_room, min=1, max=step)
        rows = Rows(batch.device_slots, starts, torch.ones_like(starts), len(batch), hidden)
        logits, state = self._step.run(rows)
        return logits[: len(batch)], state[: len(batch)]

    def _extend_body(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, extra: torch.Tensor | None
    ) -> Pair:
        fused = self._net.fuse(self._features.of(slots, starts, counts, size))
        normed, state, query_start = self._forward(slots, starts, counts, size, fused)
        last = torch.clamp(query_start[1:] - 1, min=0)
        return self._logits(normed[last]), state[last]

    def _step_body(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, hidden: torch.Tensor | None
    ) -> Pair:
        assert hidden is not None
        padded = pad(hidden, (0, 0, 0, size - len(hidden)))
        normed, state, _ = self._forward(slots, starts, counts, size, padded)
        return self._logits(normed[: len(hidden)]), state[: len(hidden)]

    def _forward(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run packed positions; [N, h] for the head, [N, h] to feed back, and where each request begins."""
        history = self._setup.state.history
        packed = self._pages.pack(history, slots, starts, counts, size)
        following = self._pages.pack(history, slots, starts + 1, counts, size).tokens
        embeds = self._net.embed(following, self._features.embedding)
        attend = self._pages.attend_to(packed, slots)
        normed, state = self._net(embeds, hidden, packed.positions, attend)
        return normed, state, packed.query_start

    def _logits(self, normed: torch.Tensor) -> torch.Tensor:
        logits = self._net.logits(normed, self._features.head)
        return in_target_vocabulary(self._net, logits, self._features.vocab_size)


def in_target_vocabulary(net: EagleNet, logits: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """[R, V] logits of the target's tokens; what the head cannot propose has no chance.

    logits  [R, draft_vocab_size or V]
    """
    if net.config.draft_vocab_size is None:
        return logits
    full = logits.new_full((len(logits), vocab_size), float("-inf"))
    return full.index_copy_(1, net.get_buffer("target_ids"), logits)


def weights_share(net: EagleNet | BlockNet, target: LoadedModel) -> float:
    """Weights that one pass of a net reads, the LM head included, as a share of those a target pass reads."""
    head = target.model.get_output_embeddings().weight.numel()
    layers = target.model.get_decoder().layers
    read = sum(weight.numel() for name, weight in net.named_parameters() if not name.startswith("embed_tokens"))
    read += 0 if isinstance(net, EagleNet) and net.config.draft_vocab_size is not None else head
    return round(read / (head + sum(weight.numel() for layer in layers for weight in layer.parameters())), 4)
