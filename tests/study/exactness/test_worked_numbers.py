"""The worked numbers of docs/exactness.md, through the product's own accept, recover and plan."""

import numpy as np
import pytest

from specsim.core import SCORES, Draft, DrafterSpec, StepCost
from specsim.policies.build import build_controller
from specsim.study.exactness.emission import emission
from specsim.study.exactness.joint import distance, joint_law

A, B = 0, 1


def chance_of_a(own, law, verified):
    """That the first emitted token is a."""
    joint = joint_law([own], emission([own], law), verified)
    return joint.reshape(2, -1).sum(axis=1)[A]


def planned(own, spec, seconds, score, law, structure="autoregressive"):
    """The verified length of each draft, by a controller forced to plan it."""
    drafter = DrafterSpec("draft", "synthetic", law, structure, SCORES, own.depth)
    controller = build_controller(spec, [drafter], allow_lossy=True)

    def verified(drafts):
        draft = Draft(drafter, np.array([own.depth]), {score: own.scores[score][list(drafts)]})
        return controller.plan(draft, StepCost(np.array(seconds))).num_verify

    return verified


def test_verifying_only_probable_drafts_by_the_ratio_rule_gives_42_instead_of_30(laws):
    own = laws(target=(0.3, 0.7), draft=(0.6, 0.4))
    for law, right in (("sampled", 0.42), ("point_mass", 0.30)):
        # One more token pays when (1 + confidence) / 1.5 > 1: at .6, not at .4.
        verified = planned(own, "dcut:ratios=all,numerator=bonus", [1.0, 1.5], "drawn_prob", law)
        assert ([*verified((A,))], [*verified((B,))]) == ([1], [0])
        assert chance_of_a(own, law, verified) == pytest.approx(right, abs=1e-12)


def test_keeping_one_value_of_two_equal_ones_gives_75_instead_of_50(laws):
    own = laws(target=(0.5, 0.5), draft=(0.5, 0.5))
    assert chance_of_a(own, "sampled", lambda drafts: [int(drafts[0] == A)]) == pytest.approx(0.75, abs=1e-12)


def test_the_best_of_this_steps_budgets_gives_42_where_an_earlier_steps_gives_30(laws):
    # Largest probability .6 at the first position, then .9 after a; after b it cannot be .1 with two tokens, so .5.
    # After a: (1 + .6 + .54) / 1.75 > 1, so a is verified. After b: (1 + .6 + .3) / 1.95 < 1, so b is not.
    own = laws(target=(0.3, 0.7), draft=(0.6, 0.4), depth=2, second=[[0.9, 0.1], [0.5, 0.5]])
    seconds = [1.0, 1.9, 1.95]
    ahead = planned(own, "dcut:ratios=all,numerator=bonus,score=max_prob", seconds, "max_prob", "sampled")
    assert [int(ahead((draft,))[0]) for draft in range(4)] == [2, 2, 0, 0]
    assert chance_of_a(own, "sampled", ahead) == pytest.approx(0.42, abs=1e-12)
    settled = planned(own, "fixed_ratio:ratio=.5,score=max_prob", seconds, "max_prob", "sampled")
    assert chance_of_a(own, "sampled", settled) == pytest.approx(0.30, abs=1e-12)


def test_the_worked_curve_with_scores_as_given(laws):
    # Scores .6 then .9 after a or .1 after b; seconds 1, 1.7, 1.75.
    own = laws(target=(0.3, 0.7), draft=(0.6, 0.4), depth=2)
    given = np.array([[0.6, 0.9], [0.6, 0.9], [0.6, 0.1], [0.6, 0.1]])
    own.__dict__["scores"] = {**own.scores, "max_prob": given}
    seconds = [1.0, 1.7, 1.75]
    ahead = planned(own, "dcut:ratios=all,numerator=bonus,score=max_prob", seconds, "max_prob", "sampled")
    assert chance_of_a(own, "sampled", ahead) == pytest.approx(0.42, abs=1e-12)
    settled = planned(own, "fixed_ratio:ratio=.5,score=max_prob", seconds, "max_prob", "sampled")
    assert chance_of_a(own, "sampled", settled) == pytest.approx(0.30, abs=1e-12)


@pytest.mark.parametrize(("keeps", "right"), [(True, True), (False, False)])
def test_stopping_after_an_improbable_draft_is_exact_when_it_is_kept_and_biased_when_it_is_dropped(laws, keeps, right):
    own = laws(target=(0.3, 0.7), draft=(0.6, 0.4), depth=2, second=[[0.9, 0.1], [0.2, 0.8]])

    def verified(drafts):
        stop = int(np.argmax([*(own.scores["drawn_prob"][drafts[0]] < 0.5), True]))
        return [min(stop + keeps, own.depth)]

    error = distance([own], joint_law([own], emission([own], "sampled"), verified))
    assert (error <= 1e-12) is right
    assert (error > 1e-3) is not right
