"""Every policy with every kind of drafter is exact, or refused and biased."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.core import SCORES
from specsim.errors import InputError
from specsim.policies.build import BUDGETS
from specsim.policies.exactness import Verdict
from specsim.study.exactness import table as module
from specsim.study.exactness.table import BIASED_ABOVE, EXACT_BELOW, KINDS, combination, policies

ROOT = Path(__file__).parents[3]


def test_nothing_contradicts_what_the_controller_says(table):
    assert [one for one in table if one.finding == "contradiction"] == []


def test_what_is_allowed_is_exact_and_what_is_refused_is_biased(table):
    for one in table:
        if one.finding == "exact":
            assert one.bias <= EXACT_BELOW, one
        elif one.finding == "refused":
            assert one.bias > BIASED_ABOVE, one
            assert "is not exact with drafter draft" in one.says, one
        else:
            assert one.finding == "bound", one


def test_every_registered_policy_is_enumerated_with_every_kind_of_drafter(table):
    for name in BUDGETS:
        own = [one for one in table if one.policy.partition(":")[0] == name]
        assert {(one.law, one.structure) for one in own} == set(KINDS), name


def test_a_policy_that_can_read_any_score_is_enumerated_with_each(table):
    for name in ("dcut", "dspark", "tetris", "confidence_stop"):
        assert {one.score for one in table if one.policy.startswith(f"{name}:")} == set(SCORES)


def test_a_policy_that_reads_a_score_leaves_drafts_unverified_at_these_sizes(table):
    # Otherwise it would be exact for want of anything that could go wrong.
    assert [one for one in table if one.score is not None and not one.pruned] == []


def test_point_masses_are_always_allowed_and_the_drawn_token_never_decides_on_itself(table):
    assert {one.finding for one in table if one.law == "point_mass"} == {"exact", "bound"}
    keeps = ("keep=true", "specdec_pp", "adaspec")
    for one in table:
        if one.score == "drawn_prob" and one.law == "sampled" and not any(text in one.policy for text in keeps):
            assert one.finding == "refused", one


def test_the_page_shows_what_was_found(table):
    page = (ROOT / "docs" / "exactness.md").read_text(encoding="utf-8")
    script = load_script()
    assert page == script.updated(page, table), "run `python docs/exactness.py`"


def load_script():
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("exactness_page", ROOT / "docs" / "exactness.py")
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_a_page_without_the_marks_is_refused(table):
    with pytest.raises(ValueError, match="must hold"):
        load_script().updated("no marks here\n", table)


def test_a_controller_that_allows_too_much_is_a_contradiction(monkeypatch):
    monkeypatch.setattr("specsim.policies.controller.exactness", lambda *case: Verdict(exact=True))
    one = combination("fixed_ratio:score=drawn_prob", "sampled", "parallel")
    assert one.finding == "contradiction"
    assert one.says.startswith("allowed, and biased by")


def test_a_controller_that_refuses_what_is_exact_is_a_contradiction(monkeypatch):
    monkeypatch.setattr("specsim.policies.controller.exactness", lambda *case: Verdict(False, "because", "nothing"))
    monkeypatch.setattr(module, "SEARCHED_SEEDS", 12)
    one = combination("fixed_ratio:score=max_prob", "sampled", "parallel")
    assert one.finding == "contradiction"
    assert one.says == "refused, and no bias above 0.001 was found"


IDLE = ["fixed_ratio:ratio=1", "dcut:ratios=1", "tetris:capacity=0", "tetris:capacity=99"]


@pytest.mark.parametrize("text", IDLE)
def test_options_that_leave_the_score_nothing_to_decide_are_refused_without_a_bias_to_show(monkeypatch, text):
    monkeypatch.setattr(module, "SEARCHED_SEEDS", 12)
    one = combination(text, "sampled", "parallel")
    assert (one.finding, one.pruned) == ("idle", text == "tetris:capacity=0")
    assert one.bias <= EXACT_BELOW
    assert "is not exact with drafter draft" in one.says
    assert combination(text, "point_mass", "parallel").finding == "exact"


def test_one_plan_that_comes_out_biased_is_a_contradiction(monkeypatch):
    monkeypatch.setattr(module, "distance", lambda *given: 1e-6)
    one = combination("fixed_ratio:ratio=1", "sampled", "parallel")
    assert (one.finding, one.says) == ("contradiction", "idle, and biased by 1e-06")


def test_a_bound_that_may_run_live_is_a_contradiction(monkeypatch):
    build = module.build_controller
    monkeypatch.setattr(module, "build_controller", lambda *given, live=False, **more: build(*given, **more))
    assert combination("clairvoyant", "sampled", "parallel").finding == "contradiction"


def test_a_policy_sees_the_one_score_it_says_it_reads(monkeypatch):
    policy = BUDGETS["fixed_ratio"]
    plan = policy.plan
    monkeypatch.setattr(
        policy, "plan", lambda self, draft, *rest: (draft.scores["margin"], plan(self, draft, *rest))[1]
    )
    with pytest.raises(KeyError, match="margin"):
        combination("fixed_ratio:score=max_prob", "sampled", "parallel")


def test_every_text_is_written_once():
    assert max(Counter(policies()).values()) == 1


def test_a_policy_that_needs_options_must_be_given_them(monkeypatch):
    monkeypatch.setattr(module, "OPTIONS", {**module.OPTIONS, "batch_schedule": ("",)})
    with pytest.raises(InputError, match="batch_schedule: option schedule is required"):
        combination("batch_schedule", "sampled", "parallel")


def test_a_label_leaves_out_which_score_is_read(table):
    one = next(one for one in table if one.score == "margin" and one.policy.startswith("dcut:numerator"))
    assert one.policy.endswith(",score=margin~logistic:warm_up=0")
    assert one.label == "dcut:numerator=bonus,ratios=all"
    assert replace(one, policy="dcut:score=margin~logistic:warm_up=0").label == "dcut"
