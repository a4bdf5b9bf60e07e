"""Greedy decoding of one request at a time by other libraries: transformers' `generate`, and the package `flashspec`.

As a script it runs `flashspec`, in a process of its own, since that may compile for minutes and can then be ended:

    python benchmarks/drafter_peers.py JOBS.json

JOBS.json holds `model`, `dtype`, `device`, `load_format`, `prompts` (token ids), `limits` (output tokens), `seconds`,
and `ready` and `go`: files that say it has loaded and compiled, and that it may decode. The last line printed is one
JSON object.
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

COMPILE_THREADS = "4"
"""Processes that flashspec's compiling may use: others measure beside it."""

POLL_SECONDS = 0.05

Decode = Callable[[list[int], int], list[int]]
"""Token ids of a prompt, most output tokens -> output tokens."""


def timed(
    decode: Decode,
    prompts: Sequence[list[int]],
    limits: Sequence[int],
    seconds: float,
    warmed_up: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Decode prompts one after the other; the first one is decoded once before, to warm up.

    seconds    after which no further prompt is begun
    warmed_up  called after that
    returns    tokens a second, and under `outputs` the tokens of each prompt that was decoded
    """
    decode(prompts[0], limits[0])
    warmed_up()
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


def by_flashspec(target: LoadedModel, most: int) -> tuple[Decode, Callable[[], str]]:
    """Greedy decoding by flashspec's prompt lookup, which needs no second model; and which of its paths has run.

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

    def how() -> str:
        fallback = getattr(getattr(model, "_inc", None), "compile_fallback_reason", None)
        failed = "" if fallback is None else f"; then not, since compiling failed: {fallback.splitlines()[0]}"
        return f"compiled: {engine.compiled} ({engine.compile_decision.reason}){failed}"

    return decode, how


class FlashspecApart:
    """flashspec in a process of its own: it loads and compiles beside what others do, and decodes when it is told to.

    jobs     see the module; `ready` and `go` are added
    folder   where they are written for it
    package  folder that holds the package (None: it is installed, or not)
    """

    def __init__(self, jobs: dict[str, Any], folder: Path, package: str | None) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if package is None and find_spec("flashspec") is None:
            return
        self._ready, self._go, file = (folder / f"flashspec_{name}" for name in ("ready", "go", "jobs.json"))
        self._out, self._err = folder / "flashspec_stdout", folder / "flashspec_stderr"
        file.write_text(json.dumps(jobs | {"ready": str(self._ready), "go": str(self._go)}))
        environment = {"TORCHINDUCTOR_COMPILE_THREADS": COMPILE_THREADS} | os.environ
        if package is not None:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
        command = [sys.executable, str(Path(__file__).resolve()), str(file)]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._begun = time.perf_counter()
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)

    def result(self, ready_seconds: float, seconds: float) -> dict[str, Any]:
        """Let it decode, and wait for what it found.

        ready_seconds  after which it is ended where it has not loaded and compiled
        seconds        after which it is ended where it has not decoded
        returns        what `timed` measured, or `error`: why it did not run
        """
        if self._process is None:
            return {"error": "flashspec is not installed here"}
        begun = time.perf_counter()
        while self._process.poll() is None and not self._ready.exists():
            if time.perf_counter() > begun + ready_seconds:
                self.end()
                taken = time.perf_counter() - self._begun
                return {"error": f"had not loaded and compiled after {taken:.0f} s"}
            time.sleep(POLL_SECONDS)
        self._go.touch()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            return {"error": f"had not decoded after {seconds:.0f} s"}
        lines = self._out.read_text(errors="replace").strip().splitlines()
        if code or not lines:
            said = (self._err.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
            return {"error": f"ended with code {code}: {said}"}
        try:
            return dict(json.loads(lines[-1]))
        except ValueError:
            return {"error": f"printed no result: {lines[-1][:200]}"}

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def main() -> int:
    """Run flashspec on the jobs of a file."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    jobs = json.loads(Path(sys.argv[1]).read_text())
    target = load_model(jobs["model"], dtype=jobs["dtype"], device=jobs["device"], load_format=jobs["load_format"])
    most = max(len(prompt) + limit for prompt, limit in zip(jobs["prompts"], jobs["limits"], strict=True))
    decode, how = by_flashspec(target, most)

    def warmed_up() -> None:
        Path(jobs["ready"]).touch()
        parent = os.getppid()
        while not Path(jobs["go"]).exists():
            if os.getppid() != parent:
                sys.exit("whoever asked is gone")
            time.sleep(POLL_SECONDS)

    found = timed(decode, jobs["prompts"], jobs["limits"], jobs["seconds"], warmed_up)
    print(json.dumps({"how": how()} | found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
