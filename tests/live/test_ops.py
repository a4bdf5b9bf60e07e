"""Which budget policies Triton plans for, and that its plan is theirs."""

import os

import numpy as np
import pytest
import torch

from specsim.core import SCORES, Draft, DrafterSpec, StepCost
from specsim.live import ops
from specsim.policies.budget.dcut import DCut
from specsim.policies.budget.fixed_depth import FixedDepth
from specsim.policies.budget.fixed_ratio import FixedRatio

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported
pytest.importorskip("triton", reason="triton is installed where CUDA is")

SPEC = DrafterSpec("draft", "synthetic", "point_mass", "parallel", SCORES, 15)


class Wider(FixedRatio):
    """A policy of somebody else, whose plan nobody here knows."""


@pytest.mark.parametrize("count", ["paper", "code"])
@pytest.mark.parametrize("ratio", [0.01, 0.25, 0.5, 1.0])
def test_the_kernel_keeps_the_share_that_a_fixed_ratio_keeps(ratio, count):
    policy = FixedRatio(ratio=ratio, count=count)
    kernel = ops._triton().plan(policy, 4, 3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for seed in range(4):
        rng = np.random.default_rng(seed)
        batch = int(rng.integers(1, 5))
        confidence = torch.tensor(np.round(rng.random((batch, 3)) * 4) / 4, device=device)
        draft = Draft(SPEC, torch.tensor(rng.integers(0, 4, batch), device=device), {})
        cost = StepCost(torch.tensor(1e-3 * (1 + np.cumsum(rng.random(3 * batch + 1))), device=device))
        assert kernel(draft, confidence, cost).tolist() == policy.plan(draft, confidence, cost).tolist()


def test_other_policies_and_too_many_scores_are_left_to_array_code():
    plan = ops._triton().plan
    assert plan(DCut(), 4, 3) is not None
    assert plan(FixedDepth(), 4, 3) is None
    assert plan(Wider(), 4, 3) is None
    assert plan(FixedRatio(), 2048, 15) is None
