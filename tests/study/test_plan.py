"""What a study runs, and what identifies a run."""

from __future__ import annotations

import dataclasses

import pytest

from specsim.errors import InputError
from specsim.sim import ClosedLoop, Gamma
from specsim.study.plan import Plan, Task


def labels(plan, bound=False):
    return [policy.label for policy in plan.policies if policy.bound == bound]


def test_autoregressive_is_always_the_first_policy_and_there_once(study):
    assert labels(Plan(study()))[0] == "autoregressive"
    plan = Plan(study(policies=["dcut@strong", "autoregressive"], clairvoyant=False))
    assert labels(plan) == ["autoregressive", "dcut@strong"]


def test_what_chooses_nothing_while_it_runs_is_a_fixed_policy(study):
    plan = Plan(study(policies=["fixed_depth@weak", "fixed_ratio@strong", "dcut@strong", "fixed_depth@ucb1"]))
    fixed = {policy.label: policy.fixed for policy in plan.policies if not policy.bound}
    assert fixed == {
        "autoregressive": True,
        "fixed_depth@weak": True,
        "fixed_ratio@strong": True,
        "dcut@strong": False,
        "fixed_depth@ucb1": False,  # its drafter is chosen as it runs
    }


def test_the_bound_is_sought_on_every_drafter_that_takes_part(study):
    assert labels(Plan(study(policies=["dcut@strong"])), bound=True) == [
        "clairvoyant bound: clairvoyant:depth=7@strong"
    ]
    assert len(labels(Plan(study(policies=["dcut@ucb1"])), bound=True)) == 2
    assert labels(Plan(study(clairvoyant=False)), bound=True) == []


def test_a_shorter_block_is_a_bound_of_its_own_only_where_each_draft_costs_a_pass(study, world):
    policies = ["fixed_depth:depth=2@strong", "dcut@strong"]
    assert len(labels(Plan(study(policies=policies)), bound=True)) == 1
    plan = Plan(study(policies=policies))
    per_depth = dataclasses.replace(plan.trace.drafters[0], passes="per_depth")
    plan.trace.__dict__["_table"].specs = (per_depth, plan.trace.drafters[1])
    assert [config.budget.options["depth"] for config in plan._bounds(plan.policies[:3])] == [2, 7]


def test_every_policy_meets_every_load_table_and_seed_once(study, world):
    plan = Plan(study(tables=[str(world / "linear"), str(world / "staircase")]))
    assert len(plan.tasks) == len(set(plan.tasks)) == 2 * len(plan.policies) * 2 * 2


def test_the_workload_depends_on_the_load_alone(study):
    plan = Plan(study(requests=None, batches=[1, 8]))
    assert plan.workload(Task(0, 0, 8, 0.0, 0)) == plan.workload(Task(0, 3, 8, 0.0, 1)) == ClosedLoop(8, 32)
    assert plan.workload(Task(0, 0, 1, 0.0, 0)) == ClosedLoop(1, 8)
    plan = Plan(study(batches=[], rates=[2.0], burstiness=0.5, requests=None))
    assert plan.workload(Task(0, 0, 0, 2.0, 0)) == Gamma(2.0, 64, 0.5)


def test_a_run_has_the_same_key_in_every_process(study):
    first, second = Plan(study()), Plan(study())
    assert [first.key(task) for task in first.tasks] == [second.key(task) for task in second.tasks]
    assert len({first.key(task) for task in first.tasks}) == len(first.tasks)


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"block_size": 32}},
        {"requests": 17},
        {"slo": {"tpot_seconds": 0.1}},
        {"draft_costs": {"strong": "weak"}},
        {"domains": ["chat"]},
        {"extrapolate": True},
        {"policies": ["fixed_depth:depth=2@strong"]},
    ],
)
def test_whatever_changes_a_run_changes_its_key(study, change):
    own, other = Plan(study(policies=["fixed_depth:depth=3@strong"])), Plan(study(**change))
    task = Task(0, 1, 2, 0.0, 0)
    assert own.key(task) != other.key(task)


def test_what_does_not_change_a_run_leaves_its_key(study):
    task = Task(0, 1, 2, 0.0, 0)
    assert Plan(study()).key(task) == Plan(study(title="Another heading", batches=[2], clairvoyant=False)).key(task)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": [300]}, r"batch 300 exceeds max_num_seqs 256"),
        (
            {"policies": ["dcut@strong", "dcut@strong"]},
            r"policy 'dcut@strong' is given twice; give one .* another label",
        ),
        ({"policies": ["dcut"]}, r"dcut: this run has 2 drafters, choose one"),
        ({"policies": ["guess@strong"]}, r"unknown budget policy 'guess': allowed autoregressive"),
        ({"trace": "nowhere"}, r"nowhere: no such trace"),
        ({"tables": ["nowhere"]}, r"nowhere: no such cost"),
        ({"domains": ["poetry"]}, r"domain 'poetry' is not in the trace; allowed: (chat|code), (chat|code)"),
        (
            {"draft_costs": {"third": "weak"}},
            r"draft cost of 'third': the trace has no such drafter; it has strong, weak",
        ),
        ({"draft_costs": {"strong": "third"}}, r"cannot price strong as third: it has strong, weak"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_the_first_run(study, change, message):
    with pytest.raises(InputError, match=message):
        Plan(study(**change))


def test_two_tables_of_one_name_are_refused(study, world, tmp_path):
    (tmp_path / "copy").symlink_to(world / "linear")
    with pytest.raises(InputError, match=r"two share a name"):
        Plan(study(tables=[str(world / "linear"), str(tmp_path / "copy")]))


def test_a_load_that_a_table_has_not_measured_is_refused_before_the_first_run(study, world):
    with pytest.raises(InputError, match=r"example-staircase.*batch.*--extrapolate"):
        Plan(study(tables=[str(world / "staircase")], batches=[2, 32]))
    Plan(study(tables=[str(world / "staircase")], batches=[2, 32], extrapolate=True))
