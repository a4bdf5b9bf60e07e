"""Candidates as small as a test needs them, on each array library."""

import numpy as np
import pytest

from specsim.kernels.candidates import Candidates


@pytest.fixture(params=("numpy", "torch", "array_api_strict"))
def library(request):
    """Each array library in turn."""
    if request.param == "torch":
        return pytest.importorskip("torch", reason="torch comes with the extra `live`")
    return pytest.importorskip(request.param)


@pytest.fixture
def candidates():
    """Candidates with these laws; every draft is verified unless told otherwise."""

    def make(tokens, num_verify=None, *, target, draft=None, xp=np, dtype=np.float64):
        tokens = np.array(tokens, dtype=np.int64)
        num_verify = np.full(len(tokens), tokens.shape[1]) if num_verify is None else np.array(num_verify)
        return Candidates(
            tokens=xp.asarray(tokens),
            num_verify=xp.asarray(num_verify.astype(np.int64)),
            target_law=xp.asarray(np.array(target, dtype=dtype)),
            draft_law=None if draft is None else xp.asarray(np.array(draft, dtype=dtype)),
        )

    return make
