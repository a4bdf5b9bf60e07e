"""Every registered budget policy runs through the simulator like any other, whichever is added next."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.cost.examples import staircase_table
from specsim.policies.build import build_controller
from specsim.sim import EngineConfig, Poisson, simulate
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace
from tests.policies.test_every_policy import EVERY_SPEC

DEPTH = 5
DRAFTER = SyntheticDrafter(
    "model",
    rates=(0.8, 0.7, 0.6),
    max_depth=DEPTH,
    structure="autoregressive",
    passes="per_depth",
    target_fraction=0.05,
)
TRACE = SyntheticTrace(SyntheticConfig("tiny", (DRAFTER,), num_requests=9, num_output_tokens=(2, 30), seed=3))
COST = staircase_table({8: 0.008, 16: 0.009, 32: 0.014}, (1, 2, 4), max_depth=DEPTH)
"""A pass of the drafter and catching up are charged by its hint; verifying in stairs."""


def run(spec):
    controller = build_controller(spec, TRACE.drafters)
    engine = EngineConfig(prefill="excluded", max_num_seqs=4)
    return controller, simulate(TRACE, COST, controller, engine, Poisson(20.0, 18), seed=5, record_steps=True)


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_a_policy_runs_like_any_other(spec):
    controller, result = run(spec)
    requests, steps = result.requests, result.steps
    assert len(requests) == 18
    outputs = TRACE.requests.num_output_tokens
    assert requests["num_output_tokens"].tolist() == outputs[requests["index"]].tolist()
    assert steps["num_emitted"].sum() + 18 == requests["num_output_tokens"].sum()  # the prompt yields the first
    assert np.all((steps["depth"] >= 0) & (steps["depth"] <= controller.max_depth))
    assert np.all(steps["num_drafted"] <= steps["batch"] * steps["depth"])
    assert np.all(steps["num_verified"] <= steps["num_drafted"])
    assert np.all(steps["num_tested"] <= steps["num_verified"])
    assert np.all(steps["num_accepted"] <= steps["num_tested"])
    assert np.all(steps["num_emitted"] <= steps["num_accepted"] + steps["batch"])
    assert np.all(steps["num_emitted"] >= steps["batch"])
    assert np.all((steps["draft_seconds"] > 0) == (steps["depth"] > 0))
    assert np.all((steps["arm"] == 0) == (steps["depth"] > 0))


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_the_same_run_again_takes_the_same_steps(spec):
    (_, first), (_, second) = run(spec), run(spec)
    assert first.steps.tobytes() == second.steps.tobytes()
    assert first.requests.tobytes() == second.requests.tobytes()
