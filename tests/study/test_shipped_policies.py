"""Every registered policy on the shipped trace, side by side, and nothing that knows which it is."""

from __future__ import annotations

import pytest

from specsim.config import build_study
from specsim.policies.build import ARMS, BUDGETS, CALIBRATORS
from specsim.study.compare import compare

NEEDED = {"batch_schedule": ":schedule=1:3/8:1", "slo_dcut": ":tpot_seconds=0.5"}
SCORES = {"logistic": ":score=margin"}
FROM_SIMULATION_ALONE = {"clairvoyant"}


def specs():
    """Each budget policy with one drafter, each drafter policy and each calibrator with D-cut."""
    for name in BUDGETS.keys() - FROM_SIMULATION_ALONE:
        yield f"{name}{NEEDED.get(name, '')}@exit28"
    for name in ARMS:
        yield f"dcut@{name}"
    for name in CALIBRATORS.keys() - {"identity"}:
        yield f"dcut{SCORES.get(name, '')}~{name}@exit28"


@pytest.mark.slow
def test_all_of_them_run_in_one_study():
    policies = sorted(set(specs()))
    document = {
        "trace": "smollm2-cpu",
        "tables": ["cpu-smollm2"],
        "policies": policies,
        "batches": [4],
        "seeds": 1,
        "requests": 4,
    }
    cells = compare(build_study(document)).cells
    shown = {cell.policy: cell.values for cell in cells}
    assert len(shown) >= len(policies)
    for policy, values in shown.items():
        assert values["steady_token_throughput"] > 0, policy
        assert 1.0 <= values["mean_acceptance_length"] <= 16.0, policy
