"""Where greedy outputs under speculation differ from plain decoding's on a GPU in bfloat16, and if rounding is why.

16 prompts of 96 tokens each, in one batch, through captured graphs: plain, then under each controller. Every token that
plain decoding's law does not put first must be nearer to the first than the measured noise of its pass's shape explains
(see `specsim.live.near_ties`). Prices are made up: they decide how much is verified, not what is said of it. Without
--model, random weights of a shape. About 40 s on one H200. The file is written again after every controller.

    python benchmarks/h200_near_ties.py --out DIR [--model FOLDER_OR_GGUF | --shape llama-3-8b] [--tiny]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from replay_run import MINUTES, TINY_SHAPE, Report, command

from specsim.cost.examples import staircase_table
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.engine import LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.machine import hardware, versions
from specsim.live.models import LoadedModel, load_model
from specsim.live.near_ties import NearTieGate
from specsim.serving import EngineConfig

SHAPE = "smollm2-135m"

SPECS = ("dcut@ucb1", "fixed_depth:depth=7@ngram")

DEPTH = 7

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)

TEXTS = (
    "Write a Python function that reverses a list, and explain each line.",
    "What is the capital of Portugal, and what is it known for?",
    "Tell me a short story about a lighthouse keeper.",
    "List the days of the week, then list them backwards.",
    "A train travels 60 km in 45 minutes. How fast is it?",
    "Explain recursion with an example in Python.",
    "Translate into French: the weather is fine today.",
    "Why is the sky blue?",
    "Count from 1 to 30, one number a line.",
    "Name five rivers in Europe and the seas they flow into.",
    "Write a polite letter that declines an invitation.",
    "What is 17 * 23? Show each step.",
    "Repeat the sentence 'the cat sat on the mat' ten times.",
    "Write a SQL query that counts the orders of each customer.",
    "How does a bicycle stay upright?",
    "Give me a recipe for pancakes with quantities.",
)


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Check every controller, as far as time goes."""
    report = Report.of(arguments)
    target, exit_layer = load(arguments)
    prompts = prompts_of(target)[:4] if arguments.tiny else prompts_of(target)
    tokens = 12 if arguments.tiny else 96
    names = ("ngram", f"exit{exit_layer}")
    heights = {size: 1e-3 + 2e-5 * size for size in BUCKETS}
    prices = staircase_table(heights, (1, 2, 4, 8, 16), dict.fromkeys(names, 2e-4), DEPTH)
    config = EngineConfig(len(prompts), block_size=16, max_model_len=max(map(len, prompts)) + tokens)
    setup = LiveSetup(target, config, DEPTH, EngineOptions(), prices.meta.capture_sizes)
    drafters = [build_live_drafter(name, setup, DEPTH) for name in names]
    gate = NearTieGate(setup, prompts, drafters, prices, config, tokens)
    report.add(
        model=target.name,
        origin=target.origin,
        dtype=target.dtype,
        hardware=hardware(target.device),
        versions=versions(),
        prompts=len(prompts),
        tokens=tokens,
        drafters=list(names),
    )
    for spec in SPECS:
        if report.left < 0:
            report.append("left_out", spec)
            continue
        found = gate.check(spec).report()
        report.add(ok=report.found.get("ok", True) and found["ok"])
        report.append("controllers", found)
    return report.found


def load(arguments: argparse.Namespace) -> tuple[LoadedModel, int]:
    """The target, and the layer at which a drafter leaves it."""
    if arguments.tiny:
        return load_model(TINY_SHAPE, dtype="bfloat16", load_format="dummy"), 2
    options: dict[str, str] = {"dtype": "bfloat16", "device": "cuda"}
    if arguments.model is None:
        target = load_model(arguments.shape, load_format="dummy", **options)
    else:
        target = load_model(str(arguments.model), **options)
    return target, max(1, target.num_layers * 4 // 5)  # of SmolLM2's 30 layers, 24


def prompts_of(target: LoadedModel) -> list[np.ndarray]:
    """Token ids of the prompts; made up where the model has no tokenizer, every other one repeating itself."""
    if target.tokenizer is None:
        rng = np.random.default_rng(0)
        made = [rng.integers(1, 400, 12 + place) for place in range(len(TEXTS))]
        return [np.resize(ids[:5], len(ids)) if place % 2 else ids for place, ids in enumerate(made)]
    if target.tokenizer.chat_template is None:
        return [np.asarray(target.tokenizer(text)["input_ids"], np.int64) for text in TEXTS]
    chats = [[{"role": "user", "content": text}] for text in TEXTS]
    return [
        np.asarray(target.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False), np.int64)
        for chat in chats
    ]


def run() -> int:
    """The command line."""
    model = {"type": Path, "default": None, "help": "folder or GGUF file of the target (default: random weights)"}
    shape = {"default": SHAPE, "help": "shape of the random weights: smollm2-135m or llama-3-8b"}
    return command(main, __doc__ or "", model=model, shape=shape, minutes=MINUTES)


if __name__ == "__main__":
    sys.exit(run())
