"""Calibrators that learn: what they recover, what they leave out, when they start."""

import json

import numpy as np
import pytest

from specsim.core import Draft, DrafterSpec, Order, Outcome, StepCost, StepSeconds
from specsim.policies.build import build_controller
from specsim.policies.calibrators.isotonic import Isotonic
from specsim.policies.calibrators.logistic import Logistic
from specsim.policies.calibrators.observations import Observations
from specsim.policies.calibrators.temperature import Temperature

SPEC = DrafterSpec("block", "block", "point_mass", "parallel", ("drawn_prob", "max_prob", "margin"), 3)


def logit(p):
    return np.log(p / (1 - p))


def made_up(truth, count=6000, depth=3, seed=0, cut=None, score="max_prob"):
    """Accept tests whose chance is `truth(raw, position)`; `cut` prunes at random, as a budget would."""
    rng = np.random.default_rng(seed)
    raw = rng.random((count, depth)) * (8.0 if score == "margin" else 1.0)
    chance = np.stack([truth(raw[:, k], k) for k in range(depth)], axis=1)
    accepted = np.cumprod(rng.random((count, depth)) < chance, axis=1).sum(axis=1)
    verified = np.full(count, depth) if cut is None else rng.integers(0, depth + 1, count)
    accepted = np.minimum(accepted, verified)
    return Observations(raw, accepted + (accepted < verified), accepted), chance


def draft(raw, score="max_prob"):
    return Draft(SPEC, np.full(len(raw), raw.shape[1]), {score: raw})


def error(calibrator, seen, chance, score="max_prob"):
    calibrator.fit_offline("block", score, seen)
    got = calibrator.calibrate(draft(seen.raw, score), score)
    return np.abs(got - chance).mean(axis=0)


OVERCONFIDENT = {
    "temperature": (Temperature, lambda raw, k: 1 / (1 + np.exp(-logit(np.clip(raw, 1e-9, 1 - 1e-9)) / (1.5 + k)))),
    "isotonic": (Isotonic, lambda raw, k: raw**2 * (1 - 0.2 * k)),
}


@pytest.mark.parametrize("name", OVERCONFIDENT)
@pytest.mark.parametrize("cut", [None, "random"])
def test_a_wrong_confidence_is_put_right_position_by_position_pruned_or_not(name, cut):
    kind, truth = OVERCONFIDENT[name]
    seen, chance = made_up(truth, cut=cut)
    before = np.abs(seen.raw - chance).mean(axis=0)
    after = error(kind(), seen, chance)
    assert (before > 0.05).all()
    assert (after < 0.45 * before).all()


@pytest.mark.parametrize("cut", [None, "random"])
def test_the_logistic_finds_slope_and_offset_of_each_position(cut):
    seen, chance = made_up(lambda raw, k: 1 / (1 + np.exp(-(0.6 * raw - 1.5 - 0.5 * k))), cut=cut, score="margin")
    assert (error(Logistic(), seen, chance, "margin") < 0.03).all()


def test_counting_pruned_drafts_as_rejected_would_be_wrong():
    seen, chance = made_up(lambda raw, k: 0.5 + 0.5 * raw, cut="random")
    naive = Observations(seen.raw, np.full(len(seen.raw), 3), seen.accepted)
    assert error(Isotonic(), seen, chance)[0] < 0.03
    assert error(Isotonic(), naive, chance)[0] > 0.1


@pytest.mark.parametrize(("kind", "score"), [(Temperature, "max_prob"), (Isotonic, "max_prob"), (Logistic, "margin")])
def test_curves_rise_and_stay_probabilities_whatever_was_seen(kind, score):
    rng = np.random.default_rng(3)
    for count in (0, 1, 5, 300):
        raw = rng.random((count, 3)) * (8 if score == "margin" else 1)
        accepted = rng.integers(0, 4, count)
        curves = kind().fit(Observations(raw, np.minimum(accepted + 1, 3), accepted), score)
        assert curves.shape == (3, 65)
        assert (curves >= 0).all()
        assert (curves <= 1).all()
        assert (np.diff(curves, axis=1) >= -1e-12).all()


def play(controller, steps, seed, truth=0.4):
    """Steps of four requests whose drafts say .9 and are accepted with `truth`; the drafts verified in each."""
    rng = np.random.default_rng(seed)
    verified = []
    for _ in range(steps):
        raw = np.full((4, 3), 0.9)
        proposal = Draft(SPEC, np.full(4, 3), {name: raw * (2 if name == "margin" else 1) for name in SPEC.scores})
        plan = controller.plan(proposal, StepCost(1.0 + 0.12 * np.arange(13))).num_verify
        accepted = np.minimum(np.cumprod(rng.random((4, 3)) < truth, axis=1).sum(axis=1), plan)
        seconds = StepSeconds(verify=1.0)
        controller.observe(Outcome(Order(0, 3), proposal, plan, accepted, accepted + 1, seconds))
        verified.append(int(plan.sum()))
    return verified


SPECS = ["isotonic:refit_every=10", "temperature:refit_every=10", "logistic:refit_every=10"]


@pytest.mark.parametrize("spec", SPECS)
def test_online_it_learns_that_verifying_so_much_does_not_pay(spec):
    score = "margin" if "logistic" in spec else "max_prob"
    controller = build_controller(f"dcut:ratios=all,numerator=bonus,score={score}~{spec}", [SPEC])
    verified = play(controller, 60, seed=0)
    assert verified[0] == 12
    assert np.mean(verified[-10:]) < 6


def test_everything_is_verified_until_the_warm_up_has_had_its_refits():
    controller = build_controller("dcut:ratios=all,score=margin~logistic:refit_every=5,warm_up=2", [SPEC])
    verified = play(controller, 30, seed=0, truth=0.05)
    assert verified[:10] == [12] * 10
    assert max(verified[10:]) < 12


@pytest.mark.parametrize("spec", SPECS)
def test_a_state_moves_through_json_and_continues_identically(spec):
    score = "margin" if "logistic" in spec else "max_prob"
    text = f"dcut:ratios=all,numerator=bonus,score={score}~{spec}"
    original, continued = (build_controller(text, [SPEC]) for _ in range(2))
    play(original, 23, seed=1)
    continued.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    assert play(continued, 30, seed=2) == play(original, 30, seed=2)
    assert continued.state_dict() == original.state_dict()


def test_drafters_are_calibrated_apart():
    calibrator = Isotonic()
    seen, _ = made_up(lambda raw, k: raw * 0.2)
    calibrator.fit_offline("other", "max_prob", seen)
    raw = np.full((1, 3), 0.7)
    assert calibrator.calibrate(draft(raw), "max_prob") == pytest.approx(raw)


def test_the_window_forgets_what_is_old():
    seen = Observations.empty()
    for step in range(5):
        seen.add(np.full((4, 2), float(step)), np.full(4, 2), np.full(4, 1), most=6)
    assert seen.raw[:, 0].tolist() == [3, 3, 4, 4, 4, 4]
    assert len(seen.tested) == len(seen.accepted) == 6
