"""Greedy decoding of one request at a time by other libraries: transformers' `generate`, and the package `flashspec`.

As a script it runs `flashspec`, in a process of its own, since that may compile for minutes and can then be ended:

    python benchmarks/drafter_peers.py JOBS.json

JOBS.json holds `model`, `dtype`, `device`, `load_format`, `prompts` (token ids), `limits` (output tokens) and
`seconds`. The last line printed is one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from specsim.live.models import LoadedModel, load_model

LOOKUP_TOKENS = 10
"""`prompt_lookup_num_tokens`, as in transformers' documentation."""

FLASHSPEC_ROOM = 16
"""Tokens beyond the longest output for which flashspec's cache has room."""

Decode = Callable[[list[int], int], list[int]]
"""Token ids of a prompt, most output tokens -> output tokens."""


def timed(decode: Decode, prompts: Sequence[list[int]], limits: Sequence[int], seconds: float) -> dict[str, Any]:
    """Decode prompts one after the other; the first one is decoded once before, to warm up.

    seconds  after which no further prompt is begun
    returns  tokens a second, and under `outputs` the tokens of each prompt that was decoded
    """
    decode(prompts[0], limits[0])
    outputs: list[list[int]] = []
    started = time.perf_counter()
    for prompt, limit in zip(prompts, limits, strict=True):
        if outputs and time.perf_counter() - started > seconds:
            break
        outputs.append(decode(prompt, limit))
    taken = time.perf_counter() - started
    tokens = sum(map(len, outputs))
    return {
        "requests": len(outputs),
        "tokens": tokens,
        "seconds": round(taken, 3),
        "tokens_per_second": round(tokens / taken, 2),
        "outputs": outputs,
    }


def by_transformers(target: LoadedModel, lookup: int | None) -> Decode:
    """Greedy decoding by `generate`.

    lookup  most drafts of its prompt lookup (None: plain decoding)
    """
    config = target.model.generation_config
    config.do_sample, config.repetition_penalty = False, 1.0
    config.temperature = config.top_p = config.top_k = None
    config.pad_token_id = target.stop_ids[0]
    more = {} if lookup is None else {"prompt_lookup_num_tokens": lookup}

    def decode(prompt: list[int], limit: int) -> list[int]:
        ids = torch.tensor([prompt], device=target.device)
        with torch.inference_mode():
            mask = torch.ones_like(ids)
            out = target.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=limit, **more)
        return out[0, len(prompt) :].tolist()  # the copy waits for the device

    return decode


def by_flashspec(target: LoadedModel, most: int) -> tuple[Decode, str]:
    """Greedy decoding by flashspec's prompt lookup, which needs no second model; and which of its paths runs.

    most    longest sequence, tokens
    Source: https://pypi.org/project/flashspec/, its README (0.3.1)
    """
    from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
    from flashspec.engine import NgramDrafter, TargetModel

    device, dtype = torch.device(target.device), getattr(torch, target.dtype)
    model = TargetModel(target.name, device, dtype, model=target.model)
    config = FlashSpecConfig(
        device=target.device,
        drafter_strategy="bandit",
        bandit=BanditConfig(n_arms=1),
        sampling=SamplingConfig(temperature=0.0),
        eos_token_ids=target.stop_ids,
        compile_max_cache_len=most + FLASHSPEC_ROOM,
    )
    engine = SpeculativeEngine(config, [NgramDrafter()], model)

    def decode(prompt: list[int], limit: int) -> list[int]:
        result = engine.generate(torch.tensor([prompt], device=device), max_new_tokens=limit)
        return result.output_ids[0, : result.n_tokens_generated].tolist()

    return decode, f"compiled: {engine.compiled} ({engine.compile_decision.reason})"


def flashspec_apart(jobs: dict[str, Any], folder: Path, package: str | None, seconds: float) -> dict[str, Any]:
    """Run flashspec in a process of its own.

    jobs     see the module
    folder   where they are written for it
    package  folder that holds the package (None: it is installed, or not)
    seconds  after which it is ended, loading and compiling included
    returns  what `timed` measured, or `error`: why it did not run
    """
    if package is None and find_spec("flashspec") is None:
        return {"error": "flashspec is not installed here"}
    file = folder / "flashspec_jobs.json"
    file.write_text(json.dumps(jobs))
    environment = dict(os.environ)
    if package is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
    command = [sys.executable, str(Path(__file__).resolve()), str(file)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {seconds:.0f} s, loading and compiling included"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        return {"error": f"ended with code {done.returncode}: {said}"}
    return dict(json.loads(lines[-1]))


def main() -> None:
    """Run flashspec on the jobs of a file."""
    jobs = json.loads(Path(sys.argv[1]).read_text())
    target = load_model(jobs["model"], dtype=jobs["dtype"], device=jobs["device"], load_format=jobs["load_format"])
    most = max(len(prompt) + limit for prompt, limit in zip(jobs["prompts"], jobs["limits"], strict=True))
    decode, how = by_flashspec(target, most)
    print(json.dumps({"how": how} | timed(decode, jobs["prompts"], jobs["limits"], jobs["seconds"])))


if __name__ == "__main__":
    main()
