"""Offline calibration: fitted on one half of the requests, judged on the other."""

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.study.calibrate import calibrate, halves, observations
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace


def trace(overconfidence=1.0, num_requests=24):
    drafter = SyntheticDrafter(
        "block", mean_acceptance_length=3.0, max_depth=4, hidden_variance=0.5, overconfidence=overconfidence
    )
    return SyntheticTrace(
        SyntheticConfig("calibration", (drafter,), num_requests=num_requests, num_output_tokens=(200, 300))
    )


@pytest.mark.parametrize(("name", "left"), [("temperature", 1.0), ("isotonic", 0.5)])
def test_an_overconfident_drafter_is_put_right_on_requests_the_fit_never_saw(name, left):
    result = calibrate(trace(overconfidence=3.0), "block", name, "drawn_prob")
    for fit in result.positions:
        assert fit.ece_before > 0.08
        assert fit.ece_after < left * fit.ece_before
        assert fit.survival_after < 0.6 * fit.survival_before
        # A rising curve reorders nothing within a position.
        assert fit.auc_after == pytest.approx(fit.auc_before, abs=0.01)


def test_a_calibrated_drafter_stays_as_it_is():
    result = calibrate(trace(), "block", "isotonic", "drawn_prob")
    assert max(fit.ece_before for fit in result.positions) < 0.07
    assert max(fit.ece_after for fit in result.positions) < 0.07


def test_the_halves_share_no_request_and_leave_none_out():
    for count in (1, 2, 7, 60):
        train, test = halves(count, seed=3)
        assert sorted([*train, *test]) == list(range(count))
        assert len(train) - len(test) in (0, 1)
    assert halves(60, seed=3)[0].tolist() != halves(60, seed=4)[0].tolist()


def test_only_what_met_an_accept_test_is_observed():
    source = trace(num_requests=2)
    seen = observations(source, 0, np.array([0]), "drawn_prob")
    blocks = source.blocks(0, 0)
    assert len(seen.raw) == len(blocks.num_accepted) - 1  # the first token is the prefill's
    assert (seen.tested <= np.minimum(blocks.num_verified, 4)[1:]).all()
    assert (seen.accepted == blocks.num_accepted[1:]).all()
    assert ((seen.tested - seen.accepted) <= 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("other", "isotonic", "drawn_prob"), "drafter 'other' is not in the trace; it has: block"),
        (("block", "identity", "drawn_prob"), "calibrator 'identity': allowed: temperature, logistic, isotonic"),
        (("block", "logistic", "drawn_prob"), "calibrator logistic cannot read 'drawn_prob'; it reads: margin"),
        (("block", "isotonic", "margin"), "drafter block has no score 'margin'; it offers: drawn_prob, max_prob"),
    ],
)
def test_what_does_not_fit_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        calibrate(trace(num_requests=4), *arguments)


def test_one_request_cannot_be_halved():
    with pytest.raises(InputError, match="at least 2"):
        calibrate(trace(num_requests=1), "block", "isotonic", "drawn_prob")
