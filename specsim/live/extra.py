"""Whether the optional dependencies of the live parts are installed."""

from __future__ import annotations

from importlib.util import find_spec

from specsim.errors import InputError

LIVE_MODULES = ("torch", "transformers", "safetensors", "accelerate", "gguf")
"""Modules of the `live` extra that loading and running a model needs."""


def require_live() -> None:
    """Check that the `live` extra is installed.

    Raises      InputError naming the missing modules and the remedy
    """
    missing = [name for name in LIVE_MODULES if find_spec(name) is None]
    if missing:
        raise InputError(
            f"running a model needs {', '.join(missing)}, not installed; remedy: pip install 'specsim-llm[live]'"
        )
