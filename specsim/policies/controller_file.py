"""A controller on disk: its configuration, what it has learned where it has, and how it was tuned."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from specsim.errors import InputError

SUFFIX = ".json"
KEYS = ("config", "state", "tuned")
LEARNED_STATE = "budget_policy"
"""A key of `Controller.state_dict`: a file with it is a state alone, not a controller."""


def names_file(text: str) -> bool:
    """Whether a policy's text names a controller file: it ends in .json, or is the path of a file.

    A bare word is never one, so that no file in the working directory can take a policy's name.
    """
    return text.endswith(SUFFIX) or (os.sep in text and Path(text).is_file())


def read_controller_file(path: str | Path) -> dict[str, Any]:
    """The configuration a controller file holds, as plain data, its learned state under `state`.

    path    `{"config": ..., "state": null or a state, "tuned": null or where it comes from}`
    Raises  InputError when the file is missing or is no controller file
    """
    where = f"controller file {path}"
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{where}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError) as error:  # no JSON, bytes that are not UTF-8, or nested too deep
        raise InputError(f"{where}: not JSON: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise InputError(f"{where}: it must be an object with the keys {', '.join(KEYS)}")
    if LEARNED_STATE in document:
        raise InputError(f"{where}: is a learned state alone; give the policy's text, and this as --load-controller")
    for key in document:
        if key not in KEYS:
            raise InputError(f"{where}: unknown key {key!r}; allowed: {', '.join(KEYS)}")
    config, state = document.get("config"), document.get("state")
    if not isinstance(config, dict):
        raise InputError(f"{where}: key 'config' must be an object with the key budget")
    if "state" in config:
        raise InputError(f"{where}: a state stands beside 'config', not in it")
    if state is not None and not isinstance(state, dict):
        raise InputError(f"{where}: key 'state' must be null or an object")
    return {**config, "state": state}


def write_controller_file(
    path: str | Path, config: dict[str, Any], state: dict[str, Any] | None = None, tuned: dict[str, Any] | None = None
) -> None:
    """Write a controller, whole or not at all.

    path    the file; its folder is made if needed
    config  what builds the controller, JSON-able
    state   what it has learned (None: nothing)
    tuned   where it comes from (None: written by hand)
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    document = {"config": config, "state": state, "tuned": tuned}
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, target)
