"""A run that is killed in the middle; a process of its own runs it."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specsim.live.models import LoadedModel
from specsim.live.sampling import SamplingParams
from specsim.live.trajectory import TrajectoryRecorder
from tests.live.engine.engines import build_engine
from tests.live.parity_runs import DEPTH, DRAFTERS, LIMITS, TABLE


def run(folder: str, kill: Callable[[], None], settled: bool) -> None:
    """Record three requests, and kill the process once two have ended and the third is under way.

    settled  whether everyone is told of a step before the next one; the process is then killed behind one, and
             otherwise when the pass after the two had ended is under way and nobody has read what it says
    """
    torch.manual_seed(0)
    shape = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 6}
    config = LlamaConfig(vocab_size=48, num_key_value_heads=2, eos_token_id=None, bos_token_id=None, **shape)
    model = LlamaForCausalLM(config).double().eval()
    model.set_attn_implementation("sdpa")
    target = LoadedModel("tiny", "random weights", model, None, "cpu", "float64", "0" * 64, "1" * 64)
    engine = build_engine(target, "dcut@ucb1", DRAFTERS, depth=DEPTH, cost=TABLE, **LIMITS)
    TrajectoryRecorder(folder, engine)
    for length in (4, 6, 40):
        engine.submit([5, 6, 7, 8], SamplingParams(max_tokens=length))
    steps = 0
    while len(engine.ended) < 2:
        engine.step(settled)
        steps = engine.tally.totals.num_steps
    ended = sorted(request.request_id for request in engine.ended)
    print(json.dumps({"ended": ended, "steps_at_last_end": steps}), flush=True)
    if not settled:
        engine._stepper._committer._readback.fetch = kill
    engine.step(settled)
    kill()
