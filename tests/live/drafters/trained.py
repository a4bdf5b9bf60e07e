"""Tiny trained drafters (of random weights), engines they draft in, and the word of their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specsim.cost.examples import linear_table
from specsim.kernels.verify import Verdict
from specsim.live.drafters.block_net import BlockConfig, BlockNet
from specsim.live.drafters.checkpoints import DrafterNet
from specsim.live.drafters.decoder_layer import LayerShape
from specsim.live.drafters.eagle_net import EagleConfig, EagleNet
from specsim.live.drafters.live_block import LiveBlock
from specsim.live.drafters.live_eagle import LiveEagle
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.models import LoadedModel
from specsim.serving import EngineConfig
from tests.live.drafters.scripted import LIMITS, Scripted, Watcher, plain


def shape_of(target: LoadedModel, **changes) -> LayerShape:
    """A layer as wide as the target's hidden states."""
    sizes = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 8, "ffn_size": 64}
    return LayerShape(target.model.config.hidden_size, **sizes | changes)


def eagle_net(target: LoadedModel, seed: int = 0, shape: LayerShape | None = None, **config) -> EagleNet:
    """An EAGLE head that reads the target's first three layers."""
    sizes = {"feature_layers": (0, 1, 2), "vocab_size": target.model.config.vocab_size}
    width = target.model.config.hidden_size
    torch.manual_seed(seed)
    net = EagleNet(EagleConfig(shape or shape_of(target), target_hidden_size=width, **sizes | config))
    if net.config.draft_vocab_size is not None:
        ids = torch.randperm(net.config.vocab_size)[: net.config.draft_vocab_size].sort().values
        net.target_ids.copy_(ids)
    return scaled(net, target)


def block_net(
    target: LoadedModel,
    seed: int = 1,
    shape: LayerShape | None = None,
    num_layers: int = 2,
    block_size: int = 6,
    **config,
) -> BlockNet:
    """A block drafter that reads two of the target's layers; its mask is the last token."""
    vocabulary = target.model.config.vocab_size
    torch.manual_seed(seed)
    own = BlockConfig(
        shape or shape_of(target),
        num_layers,
        (0, 2),
        block_size,
        vocabulary - 1,
        target.num_layers,
        vocabulary,
        **config,
    )
    return scaled(BlockNet(own), target)


def scaled(net: DrafterNet, target: LoadedModel) -> DrafterNet:
    """Weights whose outputs vary, norms that are none, in the target's dtype."""
    for name, weight in net.named_parameters():
        weight.data = weight.data * 4.0 if weight.ndim > 1 else weight.data + 0.3 * torch.randn(weight.shape)
        assert name
    return net.to(getattr(torch, target.dtype)).eval().requires_grad_(False)


def as_arm(net: DrafterNet, law: str = "point_mass", name: str | None = None):
    """A maker of the live drafter of a net."""
    live = LiveBlock if isinstance(net, BlockNet) else LiveEagle
    return lambda setup, depth: live(name or live.__name__, net, setup, depth, law)


class Generous:
    """Accepts as many drafts as a coin says, and goes on with any token: texts that no model would write.

    Caches must follow the text whatever is accepted; a target that agrees with random weights would accept nearly
    nothing.
    """

    label = "generous"

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        self._rng, self._vocabulary = np.random.default_rng(seed), vocabulary

    def judge(self, logits, rows, pending) -> Verdict:
        """See `Acceptor.judge`."""
        most = pending.num_verify.numpy()
        share = self._rng.choice([0.0, 0.5, 1.0], len(most))
        accepted = torch.from_numpy(np.floor(share * most).astype(np.int64))
        tokens = torch.from_numpy(self._rng.integers(1, self._vocabulary, len(most)))
        return Verdict(accepted, tokens, torch.full_like(tokens, -1))


def trained_engine(
    target, makers, depths, arms=(0,), max_depth=5, acceptor=None, seed=0, **limits
) -> tuple[Engine, Watcher]:
    """An engine that takes orders from a script; see `scripted.scripted_engine`."""
    config = EngineConfig(**LIMITS | limits)
    setup = LiveSetup(target, config, max_depth, EngineOptions())
    drafters = [make(setup, max_depth) for make in makers]
    specs = [drafter.spec for drafter in drafters]
    prices = linear_table(1e-3, 2e-4, (1, 1024), drafters={spec.name: 2e-4 for spec in specs})
    controller = Scripted(specs, depths, arms)
    engine = Engine(setup, drafters, controller, prices, config, EngineOptions(seed), acceptor)
    watcher = Watcher()
    watcher.attach(engine)
    return engine, watcher


@dataclass(frozen=True)
class Definition:
    """What a net says follows a text, by its definition: no cache, no batch.

    net     the drafter
    target  whose hidden states it reads
    """

    net: DrafterNet
    target: LoadedModel

    def __post_init__(self) -> None:
        object.__setattr__(self, "_model", plain(self.target))

    @torch.no_grad()
    def logits(self, text: Sequence[int], depth: int) -> torch.Tensor:
        """[depth, V] logits of greedy drafts after a text."""
        net, tokens, model = self.net, torch.tensor(text), self._model
        states = model(tokens[None], output_hidden_states=True).hidden_states
        config = net.config
        layers = config.feature_layers if isinstance(net, BlockNet) else config.layers_of(self.target.num_layers)
        features = torch.cat([states[layer + 1][0, :-1] for layer in layers], -1)
        embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        if isinstance(net, BlockNet):
            return net.draft_logits(features, net.block_tokens(tokens[-1]), embedding, head)[:depth]
        return net.draft_logits(features, tokens, depth, embedding, head)

    def drafts(self, text: Sequence[int], depth: int) -> tuple[list[int], np.ndarray, np.ndarray]:
        """Tokens, probabilities [depth] and margins [depth] of greedy drafts."""
        logits = self.logits(text, depth)
        best = logits.argmax(-1)
        top = logits.topk(2, -1).values
        tokens = best if isinstance(self.net, BlockNet) else self.net.to_target(best)
        return tokens.tolist(), logits.softmax(-1).max(-1).values.numpy(), (top[:, 0] - top[:, 1]).numpy()


def check_every_draft(watcher: Watcher, definitions: Sequence[Definition]) -> int:
    """Every draft and score of every step is its net's own word on the request's text; how many drafts there were."""
    checked = 0
    for step, _, texts in watcher.steps:
        for row, text in enumerate(texts):
            count = 0 if step.seen is None else int(step.seen.num_drafts[row])
            if not count:
                continue
            arm = step.order.arm if step.order.arms is None else int(step.order.arms[row])
            tokens, prob, margin = definitions[arm].drafts(text, count)
            assert step.tokens[row, :count].tolist() == tokens, (len(text), row)
            np.testing.assert_allclose(step.scores["drawn_prob"][row, :count], prob, rtol=1e-6)
            np.testing.assert_allclose(step.scores["max_prob"][row, :count], prob, rtol=1e-6)
            np.testing.assert_allclose(step.scores["margin"][row, :count], margin, rtol=1e-5, atol=1e-6)
            assert (step.scores["drawn_prob"][row, count:] == 0).all()
            checked += count
    return checked
