"""Engines whose orders are written down beforehand, and what they drafted held against a model's own word."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch

from specsim.core import Order
from specsim.cost.examples import linear_table
from specsim.live.drafters.live_model import LiveModel
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.models import LoadedModel
from specsim.policies.arms.fixed_arm import FixedArm
from specsim.policies.budget.fixed_depth import FixedDepth
from specsim.policies.controller import Controller
from specsim.serving import EngineConfig

LIMITS = {"max_num_seqs": 4, "block_size": 4, "max_model_len": 96}


class Scripted(Controller):
    """Orders depths and arms as written, over and over, and has every draft verified."""

    def __init__(self, specs, depths: Sequence[int], arms: Sequence[int | Sequence[int]] = (0,)) -> None:
        super().__init__(specs, FixedArm(num_arms=len(specs)), FixedDepth(), live=True)
        self.depths, self.arms, self.step = depths, arms, 0
        self.mixes = any(not isinstance(arm, int) for arm in arms)

    def choose(self, context):
        arm = self.arms[self.step % len(self.arms)]
        depth = self.depths[self.step % len(self.depths)]
        self.step += 1
        if isinstance(arm, int):
            return Order(arm, min(depth, self.drafters[arm].max_depth))
        arms = np.resize(np.array(arm), context.batch)
        if not depth or len(set(arms.tolist())) == 1:
            return Order(int(arms[0]), min(depth, self.drafters[arms[0]].max_depth))
        depth = min(depth, max(self.drafters[each].max_depth for each in arms))
        return Order(int(np.bincount(arms).argmax()), depth, arms)

    def observe(self, outcome):
        """Learn nothing."""


class Watcher:
    """Keeps every step that drafted or decoded, with the text of each of its requests before it."""

    def __init__(self):
        self.steps = []

    def attach(self, engine):
        self.engine = engine
        engine.observers.append(self)

    def on_step(self, row, step, emission):
        if emission is None:
            return
        texts = []
        for slot, emitted in zip(step.slots.tolist(), emission.num_emitted.tolist(), strict=True):
            request = self.engine.scheduler.slots.request(slot)
            texts.append([*request.prompt.tolist(), *request.token_ids[: len(request.token_ids) - emitted]])
        self.steps.append((step, emission, texts))

    def on_request(self, request):
        pass


def scripted_engine(target, makers, depths, arms=(0,), max_depth=5, cost=None, **limits) -> tuple[Engine, Watcher]:
    """An engine that takes orders from a script.

    makers  (setup, max_depth) -> drafter, in arm order
    """
    config = EngineConfig(**LIMITS | limits)
    setup = LiveSetup(target, config, max_depth, EngineOptions())
    drafters = [make(setup, max_depth) for make in makers]
    specs = [drafter.spec for drafter in drafters]
    prices = cost or linear_table(1e-3, 2e-4, drafters={spec.name: 2e-4 for spec in specs})
    watcher = Watcher()
    engine = Engine(setup, drafters, Scripted(specs, depths, arms), prices, config)
    watcher.attach(engine)
    return engine, watcher


def as_drafter(loaded: LoadedModel, law: str = "point_mass", **more):
    """A maker of a drafter that runs a model."""
    return lambda setup, depth: LiveModel(loaded, setup, depth, law, **more)


def wobbled(loaded: LoadedModel, name: str = "wobbled", share: float = 0.05, seed: int = 0) -> LoadedModel:
    """A model near another: it agrees with it often, and not always."""
    model = deepcopy(loaded.model)
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        weight.data.add_(noise * weight.data.std().nan_to_num() * share)
    return replace(loaded, name=name, model=model)


def continuation(model, text: Sequence[int], depth: int, vocabulary: int | None = None) -> list[int]:
    """What a model says follows a text, without any cache."""
    tokens = list(text)
    with torch.inference_mode():
        for _ in range(depth):
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1, :vocabulary]
            tokens.append(int(logits.argmax()))
    return tokens[len(text) :]


def plain(loaded: LoadedModel):
    """A copy of a model that attends as transformers does, whatever engine the original gets into."""
    model = deepcopy(loaded.model)
    model.set_attn_implementation("sdpa")
    return model


def check_drafts(watcher: Watcher, model, arm: int | None = None) -> int:
    """Every draft of every step is the model's own greedy continuation of the request's text; how many were checked."""
    checked = 0
    for step, _, texts in watcher.steps:
        for row, text in enumerate(texts):
            whose = step.order.arm if step.order.arms is None else int(step.order.arms[row])
            if step.seen is None or (arm is not None and whose != arm):
                continue
            count = int(step.seen.num_drafts[row])
            assert step.tokens[row, :count].tolist() == continuation(model, text, count)
            checked += count
    return checked
