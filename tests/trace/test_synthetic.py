from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from specsim.errors import InputError
from specsim.trace import Trace
from specsim.trace.hardness import Spread
from specsim.trace.statistics import acceptance_by_position, by_domain, calibration, mean_acceptance_length, walk
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace
from tests.trace.test_reader import same_blocks

RATES = (0.8, 0.85, 0.75, 0.7)


def config(*drafters: SyntheticDrafter, **changes) -> SyntheticConfig:
    fields = {"name": "test", "num_requests": 20, "num_output_tokens": (30, 60), "seed": 7}
    return SyntheticConfig(drafters=drafters or (SyntheticDrafter("a", RATES, max_depth=6),), **(fields | changes))


@pytest.fixture(scope="module")
def large():
    """Enough tokens that rates are within about a hundredth of those declared."""
    drafters = (
        SyntheticDrafter("honest", RATES, max_depth=6),
        SyntheticDrafter("boastful", RATES, max_depth=6, overconfidence=3.0),
        SyntheticDrafter("blind", RATES, max_depth=6, hidden_variance=30.0),
        SyntheticDrafter("noisy", RATES, max_depth=6, noise=2.0),
        SyntheticDrafter("length", mean_acceptance_length=3.5, max_depth=6),
    )
    return SyntheticTrace(config(*drafters, num_requests=600, num_output_tokens=(300, 300), spread=Spread(0.1, 1.0)))


def test_it_says_that_it_is_synthetic(tmp_path):
    trace = SyntheticTrace(config())
    assert trace.manifest.synthetic
    assert trace.manifest.name == "synthetic-test"
    assert "Made up, not recorded" in trace.manifest.how
    trace.write(tmp_path / "trace")
    assert Trace.open(tmp_path / "trace").manifest.synthetic


def test_a_written_trace_reads_the_same_bit_for_bit(tmp_path):
    auto = SyntheticDrafter("b", mean_acceptance_length=2.5, max_depth=3, structure="autoregressive", noise=1.0)
    made = SyntheticTrace(config(SyntheticDrafter("a", RATES), auto, domains={"x": 1, "y": 2}, distinct_requests=7))
    made.write(tmp_path / "trace")
    read = Trace.open(tmp_path / "trace", verify_hashes=True)
    assert read.validate().num_rows == 2 * made.requests.num_output_tokens.sum()
    assert read.drafters == made.drafters
    assert read.requests.records() == made.requests.records()
    for index in range(len(made)):
        for arm in range(2):
            assert same_blocks(read.blocks(index, arm), made.blocks(index, arm))


def test_a_request_depends_on_the_seed_and_its_index_alone():
    few, many = SyntheticTrace(config(num_requests=5)), SyntheticTrace(config(num_requests=500), cache_bytes=0)
    for index in (4, 0, 3):
        assert few.requests.num_output_tokens[index] == many.requests.num_output_tokens[index]
        assert same_blocks(few.blocks(index, 0), many.blocks(index, 0))
    other = SyntheticTrace(config(seed=8))
    assert not np.array_equal(other.requests.num_output_tokens, SyntheticTrace(config()).requests.num_output_tokens)


def test_another_process_makes_the_same_trace():
    program = (
        "from specsim.trace.synthetic import *; import hashlib; "
        "trace = SyntheticTrace(SyntheticConfig('test', (SyntheticDrafter('a', (0.8, 0.7)),), seed=7)); "
        "print(hashlib.sha256(trace.blocks(3, 0).scores['drawn_prob'].tobytes()).hexdigest())"
    )
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(program)
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert there.stdout == here.getvalue()


def test_drafters_and_requests_draw_their_own_luck(large):
    first, second = large.blocks(0, 0), large.blocks(1, 0)
    assert not np.array_equal(first.num_accepted, second.num_accepted)
    assert not np.array_equal(first.num_accepted, large.blocks(0, 3).num_accepted)


def test_conditional_acceptance_is_as_declared(large):
    for arm in range(4):
        found = acceptance_by_position(large, arm)
        assert found.conditional == pytest.approx([*RATES, 0.7, 0.7], abs=0.015)


def test_the_mean_acceptance_length_is_as_declared(large):
    # Over positions far from the outputs' ends: drafts beyond an end count as not accepted.
    lengths = [large.blocks(index, 4).num_accepted[:-6] for index in range(len(large))]
    assert 1 + np.mean(np.concatenate(lengths)) == pytest.approx(3.5, abs=0.04)
    assert mean_acceptance_length(large, 4) < 3.5


def test_hard_requests_take_more_of_the_walk_s_steps(large):
    assert walk(large, 4).mean_acceptance_length < 3.5


def test_an_honest_drafter_is_calibrated_at_every_depth(large):
    found = calibration(large, 0)
    assert found.pooled.expected_calibration_error < 0.005
    assert max(position.expected_calibration_error for position in found.by_position) < 0.02


def test_a_boastful_drafter_ranks_alike_and_claims_more(large):
    honest, boastful = calibration(large, 0).pooled, calibration(large, 1).pooled
    assert boastful.expected_calibration_error > 0.1
    used = boastful.count > 100
    assert (boastful.mean_confidence[used] > boastful.acceptance_rate[used]).all()
    assert boastful.auc == pytest.approx(honest.auc, abs=0.01)


def test_hidden_hardness_and_noise_make_confidence_less_informative(large):
    honest, _, blind, noisy = (calibration(large, arm).pooled for arm in range(4))
    assert honest.auc > blind.auc + 0.1
    assert honest.auc > noisy.auc + 0.1
    assert blind.expected_calibration_error < 0.01
    assert noisy.expected_calibration_error > 0.05


def test_neighbouring_blocks_agree_about_a_token():
    # One hazard at every depth: a block that accepts a tokens is followed by one that accepts at least a - 1.
    trace = SyntheticTrace(config(SyntheticDrafter("a", (0.8,), max_depth=6), spread=Spread(0.0, 1.0)))
    accepted = trace.blocks(0, 0).num_accepted
    assert (accepted[1:] >= accepted[:-1] - 1).all()


def test_domains_differ_by_their_difficulty():
    drafters = (
        SyntheticDrafter("a", RATES, domain_difficulty={"chat": 2.0, "code": 0.5}),
        SyntheticDrafter("b", RATES, domain_difficulty={"chat": 0.5, "code": 2.0}),
    )
    trace = SyntheticTrace(config(*drafters, domains={"chat": 1, "code": 1}, num_requests=100))
    for arm, easier in ((0, "code"), (1, "chat")):
        lengths = by_domain(trace, lambda members, arm=arm: walk(trace, arm, members).mean_acceptance_length)
        assert max(lengths, key=lengths.get) == easier


def test_domains_are_mixed_or_drift():
    mixed = SyntheticTrace(config(domains={"x": 1, "y": 3}, num_requests=400)).requests
    assert np.mean(mixed.domain) == pytest.approx(0.75, abs=0.07)
    assert (np.diff(mixed.domain) != 0).sum() > 50
    drifting = SyntheticTrace(config(domains={"x": 1, "y": 3}, num_requests=400, domain_order="sequential")).requests
    assert drifting.domain.tolist() == [0] * 100 + [1] * 300


def test_requests_repeat_after_the_distinct_ones_under_new_ids():
    trace = SyntheticTrace(config(distinct_requests=3, num_requests=8))
    assert trace.requests.request_id.tolist() == list(range(8))
    assert trace.requests.num_output_tokens[:3].tolist() == trace.requests.num_output_tokens[3:6].tolist()
    assert trace.blocks(7, 0) is trace.blocks(1, 0)
    assert len(trace._kept) == 1


def test_memory_is_bounded():
    trace = SyntheticTrace(config(num_requests=50), cache_bytes=20_000)
    for index in range(50):
        trace.blocks(index, 0)
    assert trace._kept_bytes == sum(
        b.scores["drawn_prob"].nbytes + 3 * b.num_drafts.nbytes for b in trace._kept.values()
    )
    assert trace._kept_bytes <= 20_000


def test_lengths_stay_within_their_limits_and_reach_them():
    requests = SyntheticTrace(config(num_requests=2000, num_output_tokens=(3, 5), num_prompt_tokens=(9, 9))).requests
    assert sorted(set(requests.num_output_tokens.tolist())) == [3, 4, 5]
    assert set(requests.num_prompt_tokens.tolist()) == {9}
    assert (requests.finish_reason == 1).tolist() == (requests.num_output_tokens == 5).tolist()


def test_blocks_are_censored_by_the_output_s_end_and_read_only():
    blocks = SyntheticTrace(config()).blocks(0, 0)
    length = len(blocks.num_drafts)
    assert blocks.num_verified.tolist() == [min(6, length - p) for p in range(length)]
    assert (blocks.num_accepted <= blocks.num_verified).all()
    with pytest.raises(ValueError, match="read-only"):
        blocks.scores["drawn_prob"][0, 0] = 0.0


def test_an_index_beyond_the_requests_is_refused():
    with pytest.raises(IndexError):
        SyntheticTrace(config()).blocks(20, 0)


def test_the_manifest_holds_every_parameter():
    how = SyntheticTrace(config()).manifest.how
    written = json.loads(how[how.index("{") :])
    assert written["seed"] == 7
    assert written["drafters"][0]["rates"] == list(RATES)
    assert written["spread"] == {"request": 0.1, "token": 1.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"rates": (0.5, 1.5)},
        {"rates": ()},
        {"rates": (0.5,) * 7},
        {"rates": (float("nan"),)},
        {"rates": None},
        {"mean_acceptance_length": 2.0},
        {"rates": None, "mean_acceptance_length": 0.5},
        {"rates": None, "mean_acceptance_length": 7.5},
        {"max_depth": 0},
        {"max_depth": 10**9},
        {"hidden_variance": -1.0},
        {"hidden_variance": float("inf")},
        {"hidden_variance": 1e30},
        {"overconfidence": 0.0},
        {"overconfidence": float("nan")},
        {"noise": -1.0},
        {"noise": float("inf")},
        {"domain_difficulty": {"x": 0.0}},
        {"domain_difficulty": {"x": 1e308}},
    ],
)
def test_a_wrong_drafter_is_refused(changes):
    with pytest.raises(InputError, match=r"synthetic drafter 'a'.*allowed"):
        SyntheticDrafter(**({"name": "a", "rates": (0.5,), "max_depth": 6} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_requests": 0},
        {"num_requests": 10**23},
        {"domains": {}},
        {"domains": {"x": 0.0}},
        {"domains": {"x": float("inf")}},
        {"num_output_tokens": (0, 5)},
        {"num_output_tokens": (5, 10**12)},
        {"num_prompt_tokens": (5, 4)},
        {"num_prompt_tokens": (5, 2**63)},
        {"spread": Spread(1.0, 1.0)},
        {"spread": Spread(1e-300, 1.0)},
        {"spread": Spread(0.1, -1.0)},
        {"spread": Spread(0.1, 0.001)},
        {"spread": Spread(0.1, float("inf"))},
        {"distinct_requests": 0},
        {"seed": -1},
        {"drafters": (SyntheticDrafter("a", (0.5,), domain_difficulty={"maths": 2.0}),)},
        {"drafters": ()},
    ],
)
def test_a_wrong_workload_is_refused(changes):
    with pytest.raises(InputError, match=r"synthetic trace 'test'.*allowed"):
        SyntheticConfig(**({"name": "test", "drafters": (SyntheticDrafter("a", (0.5,)),)} | changes))


@pytest.mark.parametrize("spread", [Spread(1e-6, 0.01), Spread(0.999, 1000.0), Spread(0.0, 0.0)])
@pytest.mark.parametrize("hidden_variance", [0.0, 1e-9, 1000.0])
@pytest.mark.parametrize("noise", [0.0, 1000.0])
@pytest.mark.parametrize("difficulty", [0.001, 1000.0])
def test_confidences_are_chances_at_the_ends_of_what_is_allowed(spread, hidden_variance, noise, difficulty):
    drafter = SyntheticDrafter(
        "a", (0.8,), hidden_variance=hidden_variance, noise=noise, domain_difficulty={"hard": difficulty}
    )
    trace = SyntheticTrace(config(drafter, domains={"hard": 1, "easy": 1}, num_requests=8, spread=spread))
    for index in range(8):
        confidence = trace.blocks(index, 0).scores["drawn_prob"]
        assert ((confidence >= 0.0) & (confidence <= 1.0)).all()


@pytest.mark.parametrize("length", [1.0, 2.0, 7.0])
def test_one_rate_gives_the_length_declared(length):
    rates = SyntheticDrafter("a", mean_acceptance_length=length, max_depth=6).conditional_rates
    assert len(set(rates)) == 1
    assert 1 + np.cumprod(rates).sum() == pytest.approx(length)
