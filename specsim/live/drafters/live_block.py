"""A block drafter inside the engine: one pass proposes every request's whole block."""

from __future__ import annotations

import torch

from specsim.core import DrafterSpec, DraftLaw
from specsim.errors import InputError
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop
from specsim.live.drafters.block_net import BlockConfig, BlockNet
from specsim.live.drafters.live_eagle import weights_share
from specsim.live.drafters.own_pages import OwnPages
from specsim.live.drafters.stepwise import SCORE_SOURCES, STEPWISE_SCORES, draft_stepwise, spread
from specsim.live.drafters.target_features import MOST_TOKENS, Progress, TargetFeatures, check_target, with_room
from specsim.live.engine import LiveSetup
from specsim.live.models import LoadedModel
from specsim.live.packed_passes import PackedPasses, Rows


class LiveBlock:
    """Drafts with a DFlash block drafter.

    Its cache holds keys and values of the target's hidden states up to the token before the anchor; the block's own
    are written behind them and see all of it, and each other, in both directions.

    name        the arm's name
    net         the drafter, on the setup's device and in its dtype
    setup       the device side of the engine
    max_depth   draft tokens a block, at most one fewer than the net's block size
    law         see `draft_stepwise`; every draft's law is fixed before a token is drawn

    Raises      InputError where it was made for another target, or drafts fewer tokens
    """

    def __init__(
        self, name: str, net: BlockNet, setup: LiveSetup, max_depth: int, law: DraftLaw = "point_mass"
    ) -> None:
        config = net.config
        check_target(name, config.shape.hidden_size, config.vocab_size, setup.target)
        check_layers(name, config, setup.target)
        if max_depth >= config.block_size:
            raise InputError(f"drafter {name!r} drafts {config.block_size - 1} tokens at most; depth is {max_depth}")
        self._net, self._setup, self._width = net, setup, config.block_size
        self._features = TargetFeatures(config.feature_layers, setup)
        self._pages = OwnPages(config.shape, config.num_layers, setup, beyond=config.block_size)
        num_slots, most = setup.state.history.shape
        # A block's places may lie behind the history's end; only its anchor is read from there.
        self._blank = setup.state.history.new_zeros((num_slots, most + config.block_size))
        self._progress = Progress(num_slots)
        pools = (setup.pool, self._pages.pool)
        self._absorb = PackedPasses[torch.Tensor](self._absorb_body, pools, num_slots, setup.device, setup.buckets)
        blocks = _whole_blocks(num_slots, self._width) if setup.buckets else ()
        self._blocks = PackedPasses[torch.Tensor](self._block_body, pools, num_slots, setup.device, blocks)
        self.score_source = SCORE_SOURCES[law]
        self.spec = DrafterSpec(
            name=name,
            kind="block",
            law=law,
            structure="parallel",
            scores=STEPWISE_SCORES,
            max_depth=max_depth,
            max_context=config.shape.max_positions,
            passes="per_block",
            target_fraction=weights_share(net, setup.target),
        )

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`; the block is there at once, so that stopping early only cuts it.

        Requests without room are in no pass. Near the context limit a block's last places lie beyond it; the drafts
        there are not proposed.
        """
        own, rows = with_room(batch, self._setup)
        if not len(own):
            return draft_stepwise(_nothing, batch, depth, self.spec.law)
        with torch.inference_mode():
            self._take_in(own)
            width = torch.full_like(own.device_lengths, self._width)
            there = Rows(own.device_slots, own.device_lengths - 1, width, len(own) * self._width)
            hidden = self._blocks.run(there).unflatten(0, (-1, self._width))[: len(own), 1 : depth + 1]
            # Behind the captured pass: the head takes longer than the layers, and the depth says for how many drafts.
            logits = self._net.logits(hidden, self._features.head)

            def feed(step: int) -> torch.Tensor:
                return logits[:, step] if rows is None else spread(logits[:, step], rows, len(batch))

            return draft_stepwise(feed, batch, depth, self.spec.law)

    def drafts_ahead(self, batch: DraftBatch) -> bool:
        """See `DraftsAhead.drafts_ahead`."""
        return self._progress.fits_ahead(batch)

    def drafted_ahead(self, batch: DraftBatch) -> None:
        """See `DraftsAhead.drafted_ahead`."""
        self._progress.done(batch)

    def catch_up(self, batch: DraftBatch) -> None:
        """See `LiveDrafter.catch_up`."""
        with torch.inference_mode():
            self._progress.catch_up(batch, self._setup, self._absorb.run)

    def release(self, slot: int) -> None:
        """See `LiveDrafter.release`."""
        self._progress.release(slot)

    def _take_in(self, batch: DraftBatch) -> None:
        """Keys and values of what the target has committed since, in one pass where it is not too much."""
        first, missing = self._progress.missing(batch)
        if not missing.any():
            return
        if int(missing.sum()) > MOST_TOKENS:
            self._progress.catch_up(batch, self._setup, self._absorb.run)
            return
        starts = self._setup.state.on_device(first)
        counts = batch.device_lengths - 1 - starts
        self._absorb.run(Rows(batch.device_slots, starts, counts, int(missing.sum())))
        self._progress.done(batch)

    def _absorb_body(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, extra: torch.Tensor | None
    ) -> torch.Tensor:
        packed = self._pages.pack(self._setup.state.history, slots, starts, counts, size)
        context = self._net.context(self._features.of(slots, starts, counts, size))
        pages = self._pages.attend_to(packed, slots)
        for layer, (key, value) in enumerate(self._net.context_key_value(context, packed.positions)):
            pages.store(layer, key, value)
        return context

    def _block_body(
        self, slots: torch.Tensor, starts: torch.Tensor, counts: torch.Tensor, size: int, extra: torch.Tensor | None
    ) -> torch.Tensor:
        """[R * S, h] what the LM head takes at every place of each block."""
        packed = self._pages.pack(self._blank, slots, starts, counts, size)
        place = torch.arange(size, device=starts.device) % self._width
        anchors = self._setup.state.history[slots, starts].repeat_interleave(self._width)
        tokens = torch.where(place == 0, anchors, self._net.config.mask_token)
        embeds = torch.nn.functional.embedding(tokens, self._features.embedding)
        return self._net(embeds, packed.positions, self._pages.attend_to(packed, slots, whole=True))


def _nothing(step: int) -> torch.Tensor:
    raise AssertionError("nobody has room for a draft")


def check_layers(name: str, config: BlockConfig, target: LoadedModel) -> None:
    """Refuse a block drafter that reads layers of a target with more or fewer of them.

    Raises  InputError
    """
    if config.num_target_layers != target.num_layers:
        raise InputError(
            f"drafter {name!r} was made for a target with {config.num_target_layers} layers; {target.name!r} has "
            f"{target.num_layers}"
        )


def _whole_blocks(num_slots: int, width: int) -> tuple[int, ...]:
    """Tokens of a captured pass over whole blocks: of 1, 2, 4, ... requests, and of all slots."""
    powers = [1 << power for power in range(num_slots.bit_length()) if 1 << power < num_slots]
    return tuple(width * requests for requests in [*powers, num_slots])
