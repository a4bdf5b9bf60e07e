"""What a recording or a measurement ran on, and with which libraries."""

from __future__ import annotations

import logging
import os
import platform
from importlib import metadata
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

import specsim
from specsim.errors import InputError

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pyarrow")

MAX_THREADS = 1024
"""More are a slip: starting them alone takes minutes."""


def prepare(threads: int | None) -> None:
    """Set up the process of a command: CPU threads (None: torch's choice), and no progress bars but our own.

    Raises  InputError for more threads than any machine has cores
    """
    disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries; what ends them is told as our error
    if threads is not None:
        if not 1 <= threads <= MAX_THREADS:
            raise InputError(f"threads is {threads}; it must be from 1 to {MAX_THREADS}")
        torch.set_num_threads(threads)


def hardware(device: str) -> str:
    """The device in words, such as "1 x NVIDIA H200" or "Intel(R) Xeon(R) Processor, 2 cores, 2 threads"."""
    if torch.device(device).type == "cuda":
        return f"1 x {torch.cuda.get_device_name(device)}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_cpu_name()}, {cores} cores, {torch.get_num_threads()} torch threads"


def versions() -> dict[str, str]:
    """Version by library, specsim's and Python's included."""
    found = {name: metadata.version(name) for name in LIBRARIES}
    return {"specsim": specsim.__version__, "python": platform.python_version()} | found


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
