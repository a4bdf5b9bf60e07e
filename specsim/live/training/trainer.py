"""Train one drafter on cached hidden states; goes on where it was when it is killed."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from specsim.errors import InputError
from specsim.live.drafters.block_net import BlockNet
from specsim.live.drafters.checkpoints import DrafterNet, load_drafter
from specsim.live.training.batches import AnchorSampler
from specsim.live.training.features import FeatureCache, Target
from specsim.live.training.loss import drafter_loss
from specsim.live.training.recipe import Recipe, build_net

logger = logging.getLogger(__name__)

WARM_UP = 0.04
"""Part of the training in which the learning rate rises."""

AVERAGE = 0.99
"""Decay of the moving average of the weights, by step; the average is what is saved."""

CLIP = 1.0
"""Norm to which gradients are cut."""

GAINS = 0.3
"""Learning rate of the gains of norms, relative to that of matrices."""

LOG_STEPS = 10
"""Steps between readings of the loss: each reading waits for the device."""


@dataclass(frozen=True)
class Budget:
    """How long to train, and how often to say and save something.

    seconds             of training, kept over interruptions (ignored with `steps`)
    steps               exactly so many (None: as many as fit in `seconds`)
    checkpoint_seconds  between checkpoints
    log_seconds         between lines of progress
    """

    seconds: float = 60.0
    steps: int | None = None
    checkpoint_seconds: float = 60.0
    log_seconds: float = 5.0


@dataclass
class TrainingRun:
    """What training came to.

    net      the moving average of the weights, reading hidden states as the target gives them
    steps    done
    seconds  trained, interruptions left out
    losses   (step, seconds, loss, share of right first drafts, of right drafts overall) as they were logged
    """

    net: DrafterNet
    steps: int
    seconds: float
    losses: list[tuple[int, float, float, float, float]] = field(default_factory=list)


def train_drafter(
    recipe: Recipe, target: Target, cache: FeatureCache, budget: Budget, checkpoint: Path | None = None
) -> TrainingRun:
    """Train a drafter.

    recipe      what and how
    target      whose embedding and LM head it drafts with
    cache       hidden states of the rows; must hold the layers it reads
    budget      how long
    checkpoint  file that keeps the state (None: none is kept); training goes on from it if it is there
    returns     the drafter and what happened

    Raises      InputError when the checkpoint is another drafter's, or `init` does not fit the target
    """
    trainer = _Trainer(recipe, target, cache)
    if checkpoint is not None and checkpoint.is_file():
        trainer.restore(checkpoint)
    saved_at = logged_at = time.monotonic()
    logged_steps = trainer.steps
    while (progress := trainer.progress(budget)) < 1:
        trainer.step(progress)
        now = time.monotonic()
        if now - logged_at >= budget.log_seconds and trainer.tallied:
            trainer.log(progress, (now - logged_at) / (trainer.steps - logged_steps))
            logged_at, logged_steps = now, trainer.steps
        if checkpoint is not None and now - saved_at >= budget.checkpoint_seconds:
            trainer.save(checkpoint)
            saved_at = now
    if checkpoint is not None:
        trainer.save(checkpoint)
    return trainer.result()


class _Trainer:
    """Weights, optimiser and tallies of a run."""

    def __init__(self, recipe: Recipe, target: Target, cache: FeatureCache) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.target, self.cache = recipe, target, cache
        net = build_net(recipe, target.config) if not recipe.init else load_drafter(recipe.init, dtype=torch.float32)
        self.layers = _layers(net, recipe, target)
        columns = cache.columns(self.layers)
        self.columns = None if columns is None else torch.tensor(columns, device=target.device)
        scale_features(net, self.layers, cache)
        half = target.head.dtype in (torch.bfloat16, torch.float16)
        self.net = net.to(target.device, torch.float32 if half else target.head.dtype).train().requires_grad_(True)
        self.autocast = torch.autocast(target.device.type, target.head.dtype) if half else nullcontext()
        weights = list(self.net.parameters())
        self.optimizers = optimizers_of(weights, recipe.peak)
        self.average = [weight.detach().clone() for weight in weights]
        self.weights = weights
        rows = cache.data.rows_of(recipe.domains) if recipe.domains else None
        data, best = cache.data, cache.best
        self.sampler = AnchorSampler(
            data, best, recipe.rows, recipe.anchors, recipe.depth, recipe.seed, recipe.kind == "block", rows
        )
        self.steps, self.seconds = 0, 0.0
        self.losses: list[tuple[int, float, float, float, float]] = []
        self.tallied: list[tuple[Tensor, Tensor, Tensor]] = []
        self._last: float | None = None

    def progress(self, budget: Budget) -> float:
        """Part of the training that is done."""
        now = time.monotonic()
        if self._last is not None:
            self.seconds += now - self._last
        self._last = now
        return self.steps / budget.steps if budget.steps is not None else self.seconds / budget.seconds

    def step(self, progress: float) -> None:
        """One step of gradient descent."""
        for optimizer, peak in zip(self.optimizers, (self.recipe.peak, GAINS * self.recipe.peak), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * schedule(progress)
        batch = self.sampler.draw(self.steps, self.target.device)
        features = self.cache.features[batch.place]
        features = features if self.columns is None else features[..., self.columns]
        with self.autocast:
            loss, right, count = drafter_loss(
                self.net, batch, features, self.target.embedding, self.target.head, self.recipe.depth
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, CLIP)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        decay = min(AVERAGE, self.steps / (self.steps + 10))
        torch._foreach_lerp_(self.average, [weight.detach() for weight in self.weights], 1 - decay)
        self.tallied.append((loss.detach(), right, count))
        if self.steps % LOG_STEPS == 0:
            self.tallied[-1][0].item()  # keeps the clock honest: launched work is not done work

    def log(self, progress: float, step_seconds: float) -> None:
        """Say how it goes."""
        loss = float(torch.stack([entry[0] for entry in self.tallied]).mean())
        right, count = (torch.stack([entry[i] for entry in self.tallied]).sum(0).double() for i in (1, 2))
        first, overall = float(right[0] / count[0].clamp(min=1)), float(right.sum() / count.sum().clamp(min=1))
        if not math.isfinite(loss):
            raise FloatingPointError(f"{self.recipe.name}: the loss is {loss} at step {self.steps}")
        self.losses.append((self.steps, self.seconds, loss, first, overall))
        logger.info(
            "%s: step %d, %.0f s, %3.0f %%, loss %.4f, first draft right %.3f, all %.3f, %.1f ms a step",
            *(self.recipe.name, self.steps, self.seconds, 100 * progress, loss, first, overall, 1e3 * step_seconds),
        )
        self.tallied = []

    def save(self, file: Path) -> None:
        """Write the state; a kill in between leaves the state before."""
        file.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "recipe": repr(self.recipe),
            "net": self.net.state_dict(),
            "average": self.average,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "steps": self.steps,
            "seconds": self.seconds,
            "losses": self.losses,
        }
        unfinished = file.with_suffix(".part")
        torch.save(state, unfinished)
        os.replace(unfinished, file)

    def restore(self, file: Path) -> None:
        """Go on from a state.

        Raises  InputError when it is of another recipe
        """
        state: dict[str, Any] = torch.load(file, map_location=self.target.device, weights_only=True)
        if state["recipe"] != repr(self.recipe):
            raise InputError(f"{file}: is of another drafter: {state['recipe']}; resume with its options, or remove it")
        self.net.load_state_dict(state["net"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.average = state["average"]
        self.steps, self.seconds = state["steps"], state["seconds"]
        self.losses = [tuple(entry) for entry in state["losses"]]
        logger.info("%s: goes on from step %d, %.0f s", self.recipe.name, self.steps, self.seconds)

    def result(self) -> TrainingRun:
        """The drafter with averaged weights, for hidden states as they are."""
        if self.tallied:
            self.log(1.0, float("nan"))
        with torch.no_grad():
            for weight, average in zip(self.weights, self.average, strict=True):
                weight.copy_(average)
        net = self.net.eval().requires_grad_(False)
        scale_features(net, self.layers, self.cache, undo=True)
        return TrainingRun(net, self.steps, self.seconds, self.losses)


def optimizers_of(weights: Sequence[nn.Parameter], peak: float) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for matrices, AdamW for the gains of norms.

    weights  of the drafter
    peak     learning rate of matrices, to which Muon's updates are scaled as Adam's would be; GAINS of it for gains

    An EAGLE head's loss on held-out outputs of SmolLM2-135M-Instruct: 3.57 after 150 steps of Muon at 5e-3, 3.89 after
    200 steps of AdamW at 1.5e-3 (8 rows of 16 anchors a step, the 4,096 commonest tokens as labels).
    Source: Muon is scalable for LLM training (Liu et al. 2025), section 2.2.
    """
    matrices = [weight for weight in weights if weight.ndim > 1]
    gains = [weight for weight in weights if weight.ndim <= 1]
    return (
        torch.optim.Muon(matrices, lr=peak, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(gains, lr=GAINS * peak, weight_decay=0.0, betas=(0.9, 0.95)),
    )


def schedule(progress: float) -> float:
    """Learning rate over its peak: a linear rise, then half a cosine down to zero."""
    if progress < WARM_UP:
        return (progress + 1e-3) / (WARM_UP + 1e-3)
    return 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))


def scale_features(net: DrafterNet, layers: tuple[int, ...], cache: FeatureCache, *, undo: bool = False) -> None:
    """Let a net that reads hidden states read the cache's, which are divided by their scale; `undo` takes it back.

    Training wants inputs of one size; folding the sizes into the weights spares whoever drafts from knowing them.
    """
    width = net.fc.weight.shape[1] // len(layers)
    scale = torch.tensor(cache.scales_of(layers), dtype=torch.float32).repeat_interleave(width)
    scale = scale.to(net.fc.weight.device)
    with torch.no_grad():
        net.fc.weight.mul_(1 / scale if undo else scale)


def _layers(net: DrafterNet, recipe: Recipe, target: Target) -> tuple[int, ...]:
    """Feature layers of a net, checked against recipe and target."""
    depth, hidden = int(target.config.num_hidden_layers), int(target.config.hidden_size)
    name = recipe.init or recipe.name
    if isinstance(net, BlockNet) != (recipe.kind == "block"):
        raise InputError(f"{name}: is not a drafter of kind {recipe.kind}")
    if isinstance(net, BlockNet):
        layers = net.config.feature_layers
        if net.config.block_size != recipe.block_size:
            raise InputError(f"{name}: its blocks have {net.config.block_size} tokens, not {recipe.block_size}")
    else:
        layers, config = net.config.layers_of(depth), net.config
        if config.draft_vocab_size is not None or config.norm_before_fc or config.norm_each_feature:
            raise InputError(
                f"{name}: a head with an own vocabulary or with normalised features cannot be trained here"
            )
    width, vocab = net.fc.weight.shape[1], net.config.vocab_size
    if (width, vocab) != (len(layers) * hidden, int(target.config.vocab_size)):
        raise InputError(f"{name}: made for another target (vocabulary {vocab}, {width} feature numbers)")
    return layers
