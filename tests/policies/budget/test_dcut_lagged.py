"""Budgets from earlier steps: D-cut lagged by one, DSpark by two."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.core import Order, Outcome, StepCost, StepSeconds
from specsim.policies.build import build_controller
from specsim.policies.survival_memory import SurvivalMemory

HIGH, LOW = [0.99, 0.99, 0.99, 0.99], [0.05, 0.05, 0.05, 0.05]


def step(controller, proposal, rows, ages, slots=None, seconds=None):
    """Plan and observe one step; the drafts verified."""
    draft = proposal(rows, max_depth=4)
    slots = np.arange(len(rows)) if slots is None else np.array(slots)
    draft = replace(draft, slots=slots, ages=np.array(ages))
    price = 1.0 + 0.2 * np.arange(draft.scores["max_prob"].size + 1) if seconds is None else np.array(seconds)
    plan = controller.plan(draft, StepCost(price)).num_verify
    order = Order(0, 4)
    controller.observe(Outcome(order, draft, plan, plan * 0, plan * 0 + 1, StepSeconds(verify=1.0)))
    return plan.tolist()


def controller(spec, proposal):
    return build_controller(spec, [proposal([HIGH], max_depth=4).drafter])


@pytest.mark.parametrize(("spec", "lag"), [("dcut_lagged:ratios=all,numerator=bonus", 1), ("dspark", 2)])
def test_the_number_follows_the_confidence_as_many_steps_later(spec, lag, proposal):
    control = controller(f"{spec}{',' if ':' in spec else ':'}start=optimistic", proposal)
    totals = [step(control, proposal, [LOW], [0])]
    for age in range(1, 6):
        totals.append(step(control, proposal, [LOW], [age]))
    # New requests are taken to accept all; afterwards the low confidence is known.
    assert totals == [[4]] * lag + [[0]] * (6 - lag)


def test_this_steps_confidence_moves_the_ranking_but_not_the_number(proposal):
    control = controller("dcut_lagged:ratios=.25", proposal)
    assert step(control, proposal, [HIGH, LOW], [0, 0]) == [2, 0]
    assert step(control, proposal, [LOW, HIGH], [1, 1]) == [0, 2]
    assert step(control, proposal, [HIGH, HIGH], [2, 2]) == [1, 1]


def test_a_corrected_start_assumes_what_survived_so_far(proposal):
    totals = {}
    for start in ("optimistic", "corrected"):
        control = controller(f"dspark:start={start}", proposal)
        for age in range(4):
            step(control, proposal, [LOW], [age])
        totals[start] = step(control, proposal, [LOW], [0])  # another request takes the slot
    assert totals == {"optimistic": [4], "corrected": [0]}


def test_a_request_keeps_its_past_when_the_batch_around_it_changes(proposal):
    control = controller("dspark", proposal)
    for age in range(3):
        step(control, proposal, [LOW, HIGH], [age, age], slots=[3, 1])
    assert step(control, proposal, [HIGH], [3], slots=[3]) == [0]  # the one with the low past
    assert step(control, proposal, [HIGH], [3], slots=[1]) == [4]


def test_planning_twice_without_an_outcome_remembers_once(proposal):
    once, twice = (controller("dspark", proposal) for _ in range(2))
    draft = replace(proposal([LOW], max_depth=4), slots=np.array([0]), ages=np.array([0]))
    twice.plan(draft, StepCost(np.linspace(1, 2, 5)))
    for control in (once, twice):
        step(control, proposal, [LOW], [0])
    assert once.state_dict() == twice.state_dict()


def test_dspark_counts_a_token_a_request_and_reads_the_staircase(proposal):
    # 10 up to 2 tokens, 14 up to 4: two requests, one draft each of survival .1: 2 / 10 beats 2.2 / 14.
    control = controller("dspark", proposal)
    stairs = [10, 14, 14, *[100] * 6]
    for age in range(2):
        step(control, proposal, [[0.1, 0, 0, 0]] * 2, [age] * 2, seconds=stairs)
    assert step(control, proposal, [[0.1, 0, 0, 0]] * 2, [2, 2], seconds=stairs) == [0, 0]
    cheap = [10, 10.5, 10.6, *[100] * 6]
    assert step(control, proposal, [[0.1, 0, 0, 0]] * 2, [3, 3], seconds=cheap) == [1, 1]


def test_a_memory_of_another_lag_is_refused():
    memory = SurvivalMemory(2, "corrected")
    with pytest.raises(ValueError, match="lag of 2 steps, this policy 3"):
        SurvivalMemory(3, "corrected").load_state_dict(memory.state_dict())
