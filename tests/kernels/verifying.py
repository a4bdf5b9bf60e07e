"""Calls of `verify` from numpy arrays: the definition on each array library, the twin where Triton runs."""

import os
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from array_api_compat import array_namespace

from specsim.kernels import verify as definition
from specsim.kernels.verify import Proposal, Sampling, Verdict

if find_spec("torch"):
    import torch
else:
    torch = None
ON_GPU = torch is not None and torch.cuda.is_available()
if not ON_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported, which no test has done yet

injected = False
"""Whether uniforms are injected, which compiled code does not see."""

ENGINES = ("numpy", "torch", "array_api_strict", "twin", pytest.param("twin on cuda", marks=pytest.mark.gpu))
TWINS = ENGINES[3:]


def twin_modules():
    """The modules of the twin that name its helpers."""
    from specsim.kernels import residual_triton, verify_triton

    return verify_triton, residual_triton


def engine(name):
    """`verify` as a function of numpy arrays: (logits, rows, tokens, num_verify, law, temperature, seed, position)."""
    if not name.startswith("twin"):
        if name == "torch":
            library = pytest.importorskip("torch", reason="torch comes with the extra `live`")
        else:
            library = pytest.importorskip(name)
        return _Engine(definition.verify, library.asarray)
    pytest.importorskip("torch", reason="torch comes with the extra `live`")
    pytest.importorskip("triton", reason="triton comes with the extra `live`")
    from triton import knobs

    if name.endswith("cuda") == bool(knobs.runtime.interpret):
        pytest.skip("Triton interprets on the CPU or compiles for the GPU, in one process only one of them")
    device = "cuda" if name.endswith("cuda") else "cpu"
    return _Engine(twin_modules()[0].verify, lambda values: torch.asarray(values, device=device), device == "cuda")


class _Engine:
    """One implementation of `verify`."""

    def __init__(self, call, asarray, compiled=False):
        self.call, self.asarray, self.compiled = call, asarray, compiled

    def __call__(self, logits, tokens, *, law=None, rows=None, num_verify=None, temperature=1.0, seed=0, position=0):
        """The verdict in numpy; a single number is every request's, and requests lie one after the other."""
        if injected and self.compiled:
            pytest.skip("uniforms are injected into the definition and under Triton's interpreter")
        tokens = np.array(tokens, np.int64)
        batch, depth = tokens.shape

        def each(value, dtype=np.int64):
            return np.broadcast_to(np.array(value, dtype), batch).copy()

        if rows is None:
            rows = np.arange(batch) * (depth + 1)
        held = [
            logits if hasattr(logits, "device") and not isinstance(logits, np.ndarray) else np.array(logits),
            each(rows),
            tokens,
            each(depth if num_verify is None else num_verify),
            law,
            each(temperature, np.float32),
            each(seed),
            each(position),
        ]
        logits, rows, tokens, num_verify, law, temperature, seed, position = (
            None if value is None else self.asarray(value) for value in held
        )
        sampling = Sampling(temperature, seed, position)
        said = self.call(logits, rows, Proposal(tokens, num_verify, law), sampling)
        return Verdict(
            *(np.asarray(value.cpu() if torch and torch.is_tensor(value) else value) for value in _fields(said))
        )


def _fields(verdict):
    return verdict.num_accepted, verdict.next_token, verdict.faulty


def lists(verdict):
    """The three answers as lists."""
    return tuple(values.tolist() for values in _fields(verdict))


def logs(probabilities, dtype=np.float64):
    """Their logarithms, -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, np.float64)).astype(dtype)


def inject(monkeypatch, grid, offset=0.5):
    """Uniforms come from the seed: (its ten bits at 20 * position + 10 * stream, plus offset) / grid."""

    def digit(seed, position, stream):
        return (seed >> (position * 20 + stream * 10)) & 1023

    def defined(seed, position, stream):
        xp = array_namespace(seed)
        return (xp.astype(digit(seed, position, stream), xp.float64) + offset) / grid

    monkeypatch.setattr(definition, "uniform", defined)
    monkeypatch.setattr(sys.modules[__name__], "injected", True)
    if not ON_GPU and torch is not None and find_spec("triton"):
        import triton.language as tl

        def interpreted(seed, position, stream):
            return (digit(seed, position, stream).to(tl.float64) + offset) / grid

        for module in twin_modules():
            monkeypatch.setattr(module, "uniform_at", interpreted)


def seeds(*, accept=0, target=0, position=0):
    """Seeds that make those digits of their accept tests and target draws, at each of the positions."""
    accept, target = np.broadcast_arrays(np.array(accept, np.int64), np.array(target, np.int64))
    return (accept | target << 10) << (20 * position)
