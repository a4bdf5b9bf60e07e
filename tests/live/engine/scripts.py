"""Requests whose outputs and drafts are written by hand: what they do in the engine can be counted on fingers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from specsim.core import DrafterSpec
from specsim.kernels.verify import Verdict
from specsim.live.drafters.batch import DraftBatch, Drafted, Stop
from specsim.live.engine import Engine
from specsim.live.sampling import SamplingParams
from tests.live.engine.engines import build_engine

WRONG = 1
"""A token that stands in no script."""


@dataclass(frozen=True)
class Script:
    """One request, told by its seed.

    tokens  what the target would say, as long as it is asked
    right   right drafts at each output position (None: all)
    broken  output position from which on the target has no law (None: it always has)
    """

    tokens: Sequence[int]
    right: Mapping[int, int] | None = None
    broken: int | None = None

    def drafts(self, position: int, depth: int) -> list[int]:
        """What is drafted at an output position: right ones, then wrong ones."""
        right = depth if self.right is None else self.right[position]
        following = [*self.tokens[position : position + right], *[WRONG] * depth]
        return following[:depth]


class ScriptedDrafter:
    """Drafts what the scripts say.

    scripts  by seed
    """

    score_source = "made up"

    def __init__(self, scripts: Mapping[int, Script], depth: int) -> None:
        self.scripts = scripts
        self.spec = DrafterSpec("scripted", "model", "point_mass", "parallel", ("drawn_prob",), depth)

    def draft(self, batch: DraftBatch, depth: int, stop: Stop | None = None) -> Drafted:
        """See `LiveDrafter.draft`."""
        for slot, length, seed, position in zip(
            batch.slots, batch.lengths, batch.seeds.tolist(), batch.positions.tolist(), strict=True
        ):
            drafts = self.scripts[seed].drafts(position, depth)
            batch.history[slot, length : length + depth] = torch.tensor(drafts)
        scores = torch.full((len(batch), depth), 0.9, dtype=torch.float64)
        there = torch.arange(depth) < batch.device_room[:, None]
        return Drafted(batch.device_room.clone(), {"drawn_prob": torch.where(there, scores, 0.0)})

    def catch_up(self, batch: DraftBatch) -> None:
        """Nothing can be missed."""

    def release(self, slot: int) -> None:
        """Nothing is kept."""


class ScriptedAcceptor:
    """A target that says what the scripts say.

    scripts  by seed
    """

    label = "scripted"

    def __init__(self, scripts: Mapping[int, Script]) -> None:
        self.scripts = scripts

    def judge(self, logits, rows, pending) -> Verdict:
        """See `Acceptor.judge`."""
        batch = pending.batch
        found = [
            self._judged(self.scripts[seed], position, drafts[:count])
            for seed, position, drafts, count in zip(
                batch.seeds.tolist(),
                batch.positions.tolist(),
                pending.tokens.tolist(),
                pending.num_verify.tolist(),
                strict=True,
            )
        ]
        return Verdict(*torch.tensor(found).reshape(-1, 3).T)

    def _judged(self, script: Script, position: int, drafts: list[int]) -> tuple[int, int, int]:
        """Accepted drafts, the token that follows, and the place that has no law."""
        count = 0
        while position + count != script.broken:
            if count == len(drafts) or drafts[count] != script.tokens[position + count]:
                return count, script.tokens[position + count], -1
            count += 1
        return count, -1, count


def scripted_engine(target, scripts: Sequence[Script], depth: int, spec: str = "fixed_depth", **limits) -> Engine:
    """An engine of these requests; their seeds are their indices."""
    by_seed = dict(enumerate(scripts))
    made = [lambda setup, depth: ScriptedDrafter(by_seed, depth)]
    return build_engine(target, spec, made, depth=depth, acceptor=ScriptedAcceptor(by_seed), **limits)


def play(engine: Engine, prompts: Sequence, max_tokens: int = 40, **params) -> list:
    """Submit a prompt a script, and run."""
    requests = [
        engine.submit(prompt, SamplingParams(max_tokens, seed=seed, **params)) for seed, prompt in enumerate(prompts)
    ]
    engine.run()
    return requests
