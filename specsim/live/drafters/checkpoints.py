"""Read and write trained drafters in the layouts that others publish.

| layout | told by | net |
|---|---|---|
| DFlash (`dflash` 0.1.0) | `dflash_config`, or architecture DFlashDraftModel | BlockNet |
| speculators | `speculators_model_type: eagle3` | EagleNet |
| EAGLE's authors | weights named `midlayer.*` | EagleNet |

Blocks are written in the first layout, EAGLE heads in the second; there the LM head is left out when the head drafts
with the target's, and Qwen3 layers are named by `model_type`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from specsim.errors import InputError
from specsim.live.drafters.block_layout import block_config, block_keys
from specsim.live.drafters.block_net import BlockNet
from specsim.live.drafters.config_values import checked_values
from specsim.live.drafters.eagle_layout import eagle_config, eagle_keys, eagle_weights
from specsim.live.drafters.eagle_net import EagleNet
from specsim.shipped import shipped_names

DrafterNet: TypeAlias = BlockNet | EagleNet

NOTES = "specsim"
"""Key of a config.json under which a drafter trained here says for which target and how."""

WEIGHTS = "model.safetensors"


def load_drafter(
    source: str | Path, *, dtype: torch.dtype | None = None, device: str = "cpu", allow_pickle: bool = False
) -> DrafterNet:
    """Load a trained drafter.

    source        a folder with config.json and weights, or a hub id
    dtype         of its weights (None: as stored)
    device        a torch device
    allow_pickle  read pytorch_model.bin where there are no safetensors (tensors alone: no code is run)
    returns       the net in eval mode

    Raises        InputError when it is not there, or of a layout or with parts that are not supported
    """
    folder = locate(source)
    config = read_config(folder)
    weights = _read_weights(folder, allow_pickle)
    net = build_net(config, weights, str(source))
    net.requires_grad_(False)
    return net.to(device=device, dtype=dtype).eval()


def check_drafter(source: str | Path, *, allow_pickle: bool = False) -> None:
    """Refuse what `load_drafter` would refuse, in milliseconds: of the weights only the shapes are read.

    Raises        InputError, see `load_drafter`
    """
    folder = locate(source)
    with torch.device("meta"):  # where nothing holds numbers
        build_net(read_config(folder), _read_weights(folder, allow_pickle, shapes_only=True), str(source))


def build_net(config: Mapping[str, Any], weights: dict[str, Tensor], source: str) -> DrafterNet:
    """The net of a configuration with its weights, in their dtype.

    Raises        InputError when configuration and weights do not belong together
    """
    net: DrafterNet
    config = checked_values(config, source)
    if is_block(config):
        net = BlockNet(block_config(config, source))
    else:
        eagle, weights = eagle_weights(eagle_config(config, weights, source), weights)
        net = EagleNet(eagle)
    expected = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        first = wrong[0]
        raise InputError(
            f"{source}: {len(wrong)} weights do not fit its config.json; the first is {first}: "
            f"{found.get(first, 'missing')}, expected {expected.get(first, 'none of that name')}"
        )
    net.load_state_dict(weights, assign=True)
    return net


def save_drafter(
    net: DrafterNet,
    folder: Path,
    *,
    dtype: torch.dtype = torch.bfloat16,
    notes: Mapping[str, Any] | None = None,
    card: str = "",
) -> Path:
    """Write a drafter as a folder that `load_drafter` reads.

    dtype     of the stored weights
    notes     what to say about its training in config.json
    card      README.md of the folder (empty: none)
    returns   the weights file; its header holds config and card too, so that it can travel alone (see `unpack`)
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = (block_keys(net.config) if isinstance(net, BlockNet) else eagle_keys(net.config)) | {
        "dtype": str(dtype).removeprefix("torch.")
    }
    text = json.dumps(config | {NOTES: dict(notes or {})}, indent=2, sort_keys=True) + "\n"
    weights = {
        name: (value.to(dtype) if value.is_floating_point() else value).detach().cpu().contiguous().clone()
        for name, value in net.state_dict().items()
    }
    if isinstance(net, EagleNet) and "target_ids" in weights:
        ids = weights.pop("target_ids")
        weights["d2t"] = ids - torch.arange(len(ids))
        weights["t2d"] = torch.zeros(net.config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    (folder / "config.json").write_text(text, encoding="utf-8")
    if card:
        (folder / "README.md").write_text(card, encoding="utf-8")
    unfinished = folder / f"{WEIGHTS}.part"
    save_file(weights, unfinished, metadata={"format": "pt", "config.json": text, "README.md": card})
    os.replace(unfinished, folder / WEIGHTS)  # a run that is killed leaves the old file or the new one
    return folder / WEIGHTS


def unpack(file: Path, folder: Path) -> None:
    """Make a drafter's folder of a weights file that `save_drafter` wrote.

    Raises        InputError when its header holds no configuration
    """
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        header = opened.metadata() or {}
    if "config.json" not in header:
        raise InputError(f"{file}: its header holds no config.json; only weights written by specsim can be unpacked")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "README.md"):
        if header.get(name):
            (folder / name).write_text(header[name], encoding="utf-8")
    (folder / WEIGHTS).write_bytes(file.read_bytes())


def is_block(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is a block drafter's."""
    return "dflash_config" in config or any("DFlash" in name for name in config.get("architectures") or [])


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder.

    Raises        InputError when there is none, or it is no JSON object
    """
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{folder}: not a drafter (config.json is missing)") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}: holds a {type(config).__name__}; allowed: a JSON object")
    return config


def locate(source: str | Path) -> Path:
    """The local folder of a drafter; a hub id is fetched first.

    Raises        InputError when it is not there
    """
    path = Path(source)
    if path.is_dir():
        return path
    text = str(source)
    if path.is_absolute() or text.startswith(".") or text.count("/") != 1:
        ships = text in shipped_names("model")
        hint = f"the drafter that ships is named {text}, without drafter=" if ships else "a hub id is owner/name"
        raise InputError(f"{source}: no such drafter folder ({hint})")
    return _fetched(text)


@cache  # it is located to be checked, and again to be loaded
def _fetched(repository: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, allow_patterns=["config.json", "*.safetensors", "*.bin"]))
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise InputError(f"{repository}: cannot be fetched from the hub: {str(error).splitlines()[0][:200]}") from None


def _read_weights(folder: Path, allow_pickle: bool, shapes_only: bool = False) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights |= _shapes(file) if shapes_only else load_file(file)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{file}: cannot be read: {error}") from None
    if files:
        return weights
    pickled = folder / "pytorch_model.bin"
    if not pickled.is_file():
        raise InputError(f"{folder}: holds neither *.safetensors nor pytorch_model.bin")
    if not allow_pickle:
        raise InputError(f"{pickled}: weights are pickled; convert them to safetensors, or allow pickle")
    try:
        found = torch.load(pickled, map_location="meta" if shapes_only else "cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - an unpickler raises whatever it stumbles over
        told = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise InputError(f"{pickled}: cannot be read: {told}") from None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise InputError(f"{pickled}: holds no tensors by name")
    return found


def _shapes(file: Path) -> dict[str, Tensor]:
    """Tensors of the shapes that a file's header tells, without their numbers."""
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        names = opened.keys()
        return {name: torch.empty(opened.get_slice(name).get_shape(), device="meta") for name in names}
