"""What a trained drafter proposes at every position of a known output, all positions at once.

The target's hidden states along the path are computed in one pass. An EAGLE head then reads the path once, and drafts
along one branch a position; a block drafter runs the blocks of many positions beside each other. Tokens are chosen by
the function that the engine uses, so what is recorded is what it would draft.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specsim.core import DrafterSpec, DraftLaw
from specsim.live.drafters.batch import DraftBatch, Drafted
from specsim.live.drafters.block_net import BlockNet
from specsim.live.drafters.branches import KeyValue, attend_branches, attend_causally
from specsim.live.drafters.checkpoints import DrafterNet
from specsim.live.drafters.eagle_net import EagleNet
from specsim.live.drafters.live_block import check_layers
from specsim.live.drafters.live_eagle import in_target_vocabulary, weights_share
from specsim.live.drafters.proposals import Proposals
from specsim.live.drafters.stepwise import SCORE_SOURCES, STEPWISE_SCORES, Feed, draft_stepwise
from specsim.live.drafters.target_branches import Chances, TargetBranches
from specsim.live.drafters.target_features import check_target
from specsim.live.models import LoadedModel

POSITIONS_AT_ONCE = 256
"""Branches of an EAGLE head that draft together; bounds the logits in memory."""

TOKENS_AT_ONCE = 512
"""Tokens of blocks, or of drawn drafts, that run together, at least."""

LOGITS_ON_A_GPU = 2**27
"""Logits, and so log-probabilities, up to which more tokens run together on a GPU: there what a pass takes is to launch
it, and 512 tokens of each take five times as many passes as certain drafts do."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """How drafts of one request are drawn.

    seed         the request's
    temperature  above 0
    """

    seed: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Path:
    """The text whose positions are drafted at, N tokens: prompt and output, less the last token.

    tokens    [N] int64
    features  [N - 1, F * hidden], the target's hidden states of all but the last one
    first     index of the first anchor
    """

    tokens: Tensor
    features: Tensor
    first: int


class TrainedEverywhere:
    """Proposes with an EAGLE head or a block drafter after each prefix of an output.

    name        the arm's name
    net         the drafter, on the target's device and in its dtype
    target      the model it drafts for
    max_depth   draft tokens a block; a block drafter drafts as many as its block has places for, at most
    law         `point_mass`: the most likely tokens; `sampled`: see `draw_everywhere`

    Raises      InputError where it was made for another target
    """

    def __init__(
        self, name: str, net: DrafterNet, target: LoadedModel, max_depth: int, law: DraftLaw = "point_mass"
    ) -> None:
        self._net, self._target = net, target
        self._layers = layers_read(name, net, target)
        model = target.model
        self._embedding: Tensor = model.get_input_embeddings().weight.detach()
        self._head: Tensor = model.get_output_embeddings().weight.detach()
        block = isinstance(net, BlockNet)
        self.score_source = SCORE_SOURCES[law]
        self.spec = DrafterSpec(
            name=name,
            kind="block" if block else "eagle",
            law=law,
            structure="parallel" if block else "autoregressive",
            scores=STEPWISE_SCORES,
            max_depth=min(max_depth, net.config.block_size - 1) if isinstance(net, BlockNet) else max_depth,
            max_context=net.config.shape.max_positions,
            passes="per_block" if block else "per_depth",
            target_fraction=weights_share(net, target),
        )

    @torch.inference_mode()
    def propose_everywhere(self, prompt: np.ndarray, output: np.ndarray) -> Proposals:
        """See `Drafter.propose_everywhere`."""
        path = self._path(prompt, output)
        net = self._net
        at_once = self._tokens_at_once() // net.config.block_size if isinstance(net, BlockNet) else POSITIONS_AT_ONCE
        pieces = [_to_host(batch, drafted) for batch, drafted in self._chunks(path, len(output), at_once, None)]
        return _joined(pieces)

    @torch.inference_mode()
    def draw_everywhere(self, prompt: np.ndarray, output: np.ndarray, drawing: Drawing) -> Proposals:
        """What it would draw after each prefix of an output, and what the target would make of it.

        prompt, output  see `Drafter.propose_everywhere`
        returns         drafts as the engine draws them at each position at this seed, accepted by its own tests, each
                        given the drafts before it
        """
        path = self._path(prompt, output)
        branches = TargetBranches(self._target, path.tokens)
        at_once = self._tokens_at_once() // (self.spec.max_depth + 1)
        pieces = []
        for batch, drafted in self._chunks(path, len(output), at_once, drawing):
            judged = np.minimum(batch.room, len(output) - batch.positions.cpu().numpy())
            anchors = path.first + batch.positions
            pieces.append(_to_host(batch, drafted, branches.judge(batch, drafted, anchors, judged)))
        return _joined(pieces)

    def _tokens_at_once(self) -> int:
        more = LOGITS_ON_A_GPU // len(self._head) if self._head.device.type == "cuda" else 0
        return max(TOKENS_AT_ONCE, more)

    def _path(self, prompt: np.ndarray, output: np.ndarray) -> Path:
        text = torch.from_numpy(np.concatenate([prompt, output[:-1]])).to(self._target.device)
        features = hidden_states(self._target.model, text[:-1], self._layers)
        return Path(text, features, len(prompt) - 1)

    def _chunks(self, path: Path, count: int, at_once: int, drawing: Drawing | None) -> Any:
        """Pairs of a batch, each request of which is a position, and what is drafted for it."""
        net = self._net
        feeds = _BlockFeeds(self, net, path) if isinstance(net, BlockNet) else _EagleFeeds(self, net, path)
        for first in range(0, count, max(1, at_once)):
            positions = np.arange(first, min(first + max(1, at_once), count))
            batch = self._batch(path, positions, drawing, feeds.least_before)
            anchors = path.first + batch.positions
            yield batch, draft_stepwise(feeds.of(batch, anchors), batch, self.spec.max_depth, self.spec.law)

    def _batch(self, path: Path, positions: np.ndarray, drawing: Drawing | None, least_before: int) -> DraftBatch:
        """Output positions as requests; history[i] holds only what is drafted at the i-th of them."""
        assert self.spec.max_context is not None
        anchors = path.first + positions
        room = np.clip(self.spec.max_context - 1 - anchors, 0, self.spec.max_depth)
        room[anchors < least_before] = 0
        slots, lengths = np.arange(len(positions)), np.zeros(len(positions), np.int64)
        device = path.tokens.device
        there = torch.from_numpy(np.stack([slots, lengths, room, positions])).to(device)
        history = torch.zeros((len(positions), self.spec.max_depth), dtype=torch.int64, device=device)
        temperature = torch.full((len(positions),), 0.0 if drawing is None else drawing.temperature, device=device)
        seeds = torch.full_like(there[0], 0 if drawing is None else drawing.seed)
        return DraftBatch(
            slots, lengths, room, there[0], there[1], there[2], history, temperature.float(), seeds, there[3]
        )


class _EagleFeeds:
    """Branches of an EAGLE head over the path it has read."""

    least_before = 1
    """It reads pairs of neighbours: nothing can be drafted after a single token."""

    def __init__(self, drafter: TrainedEverywhere, net: EagleNet, path: Path) -> None:
        self._drafter, self._net, self._path = drafter, net, path
        self._kept: dict[int, KeyValue] = {}
        positions = torch.arange(len(path.features), device=path.tokens.device)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self._kept[layer] = key, value
            return attend_causally(query, key, value)

        embeds = net.embed(path.tokens[1:], drafter._embedding)
        self._normed, self._state = net(embeds, net.fuse(path.features), positions, attend)

    def of(self, batch: DraftBatch, anchors: Tensor) -> Feed:
        """See `Feed`; what the path's last position before each anchor says is there already."""
        net, drafter = self._net, self._drafter
        last = torch.clamp(anchors - 1, min=0)
        visible = torch.arange(len(self._normed), device=anchors.device) <= last[:, None]
        own: dict[int, KeyValue] = {}
        states: list[Tensor] = []
        # Behind a request's room its drafts mean nothing; their positions stay where the rotation is defined.
        assert drafter.spec.max_context is not None
        limit = drafter.spec.max_context - 1

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            before = own.get(layer)
            pair = (key[:, None], value[:, None])
            if before is not None:
                pair = (torch.cat([before[0], pair[0]], 1), torch.cat([before[1], pair[1]], 1))
            own[layer] = pair
            return attend_branches(query[:, None], self._kept[layer], own[layer], visible)[:, 0]

        def feed(step: int) -> Tensor:
            if step == 0:
                normed, state = self._normed[last], self._state[last]
            else:
                embeds = net.embed(batch.history[:, step - 1], drafter._embedding)
                normed, state = net(embeds, states[-1], torch.clamp(last + step, max=limit), attend)
            states.append(state)
            logits = net.logits(normed, drafter._head)
            return in_target_vocabulary(net, logits, len(drafter._head))

        return feed


class _BlockFeeds:
    """Blocks of a block drafter over the path's context features."""

    least_before = 0

    def __init__(self, drafter: TrainedEverywhere, net: BlockNet, path: Path) -> None:
        self._drafter, self._net, self._path = drafter, net, path
        positions = torch.arange(len(path.features), device=path.tokens.device)
        self._kept = net.context_key_value(net.context(path.features), positions)

    def of(self, batch: DraftBatch, anchors: Tensor) -> Feed:
        """See `Feed`; all drafts of a block are there after one pass."""
        net, drafter = self._net, self._drafter
        visible = torch.arange(len(self._path.features), device=anchors.device) < anchors[:, None]
        places = torch.arange(net.config.block_size, device=anchors.device)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend_branches(query, self._kept[layer], (key, value), visible)

        tokens = net.block_tokens(self._path.tokens[anchors])
        embeds = torch.nn.functional.embedding(tokens, drafter._embedding)
        hidden = net(embeds, anchors[:, None] + places, attend)
        logits = net.logits(hidden[:, 1 : drafter.spec.max_depth + 1], drafter._head)
        return lambda step: logits[:, step]


def layers_read(name: str, net: DrafterNet, target: LoadedModel) -> tuple[int, ...]:
    """Target layers that a drafter reads, 0-based.

    Raises      InputError where it was made for another target
    """
    config = net.config
    if isinstance(net, BlockNet):
        check_target(name, config.shape.hidden_size, config.vocab_size, target)
        check_layers(name, net.config, target)
        return net.config.feature_layers
    assert isinstance(net, EagleNet)
    check_target(name, net.config.target_hidden_size, config.vocab_size, target)
    return net.config.layers_of(target.num_layers)


def hidden_states(model: Any, tokens: Tensor, layers: tuple[int, ...]) -> Tensor:
    """[N, F * hidden] outputs of some layers of the target, by one pass over a text.

    tokens  [N] int64
    """
    heard: dict[int, Tensor] = {}

    def hear(layer: int) -> Callable[..., None]:
        def hook(_: Any, __: Any, output: Any) -> None:
            heard[layer] = (output[0] if isinstance(output, tuple) else output)[0]

        return hook

    decoder = model.get_decoder()
    if not len(tokens):  # a text of one token: nothing is before its anchor
        width = len(layers) * model.config.get_text_config().hidden_size
        return torch.zeros((0, width), dtype=model.dtype, device=tokens.device)
    handles = [decoder.layers[layer].register_forward_hook(hear(layer)) for layer in layers]
    try:
        decoder(tokens[None], use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return torch.cat([heard[layer] for layer in layers], dim=-1)


def _to_host(batch: DraftBatch, drafted: Drafted, chances: Chances | None = None) -> Proposals:
    """What was drafted at some positions."""
    num_drafts = batch.room
    beyond = np.arange(batch.history.shape[1]) >= num_drafts[:, None]
    token_ids = np.where(beyond, -1, batch.history.cpu().numpy())
    confidence, most, margin = (drafted.scores[score].cpu().numpy() for score in ("drawn_prob", "max_prob", "margin"))
    if chances is None:
        return Proposals(token_ids, num_drafts, confidence, margin)
    return Proposals(token_ids, num_drafts, confidence, margin, most, chances.accept_prob, chances.num_accepted)


def _joined(pieces: list[Proposals]) -> Proposals:
    """All positions."""
    columns: dict[str, Any] = {}
    for name in Proposals.__dataclass_fields__:
        parts = [getattr(piece, name) for piece in pieces]
        columns[name] = None if parts[0] is None else np.concatenate(parts)
    return Proposals(**columns)
