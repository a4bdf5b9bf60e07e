"""What the report is told of each drafter."""

from __future__ import annotations

import math
import types

import pytest

from specsim.core import DrafterSpec
from specsim.study.drafters import drafter_statistics
from specsim.trace import Trace
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace


@pytest.fixture(scope="module")
def statistics(world):
    return drafter_statistics(Trace.open(world / "trace"))


def test_every_drafter_is_described_over_all_requests_and_by_domain(statistics):
    assert [(s.name, s.domain) for s in statistics] == [
        (name, domain) for name in ("strong", "weak") for domain in ("all", *[s.domain for s in statistics[1:3]])
    ]
    assert {s.domain for s in statistics} == {"all", "chat", "code"}


def test_rates_fall_with_depth_and_tell_drafters_apart(statistics):
    strong, weak = (next(s for s in statistics if s.name == n and s.domain == "all") for n in ("strong", "weak"))
    assert strong.survival == sorted(strong.survival, reverse=True)
    assert strong.mean_acceptance_length > weak.mean_acceptance_length
    assert strong.survival[1] == pytest.approx(strong.survival[0] * strong.conditional[1], rel=0.02)


def test_the_acceptance_length_is_the_one_that_trace_info_tells(world, statistics):
    told = Trace.open(world / "trace").info()
    for drafter in told["drafters"]:
        found = next(s for s in statistics if (s.name, s.domain) == (drafter["name"], "all"))
        assert found.mean_acceptance_length == drafter["mean_acceptance_length"]
        assert found.mean_acceptance_length < drafter["mean_acceptance_length_all_positions"]


def test_calibration_has_one_entry_a_bin_in_use(statistics):
    bins = statistics[0].calibration
    assert len(bins["bin_confidence"]) == len(bins["bin_accepted"]) == len(bins["bin_count"]) > 3
    assert min(bins["bin_count"]) > 0
    assert statistics[0].ece < 0.05  # the synthetic drafter is calibrated by construction
    assert statistics[0].auc > 0.5


def test_a_single_domain_is_not_told_twice():
    trace = SyntheticTrace(SyntheticConfig("one", (SyntheticDrafter("a", mean_acceptance_length=2.0),), num_requests=4))
    assert [s.domain for s in drafter_statistics(trace)] == ["all"]


def test_a_drafter_without_a_probability_has_no_calibration():
    inner = SyntheticTrace(SyntheticConfig("m", (SyntheticDrafter("a", mean_acceptance_length=2.0),), num_requests=4))
    spec = DrafterSpec("a", "model", "point_mass", "parallel", ("margin",), 15)
    trace = types.SimpleNamespace(
        kind=inner.kind, drafters=(spec,), requests=inner.requests, visits=inner.visits, __len__=lambda self: 4
    )

    class Named(types.SimpleNamespace):
        def __len__(self):
            return 4

    found = drafter_statistics(Named(**vars(trace)))[0]
    assert found.calibration == {"bin_confidence": [], "bin_accepted": [], "bin_count": []}
    assert math.isnan(found.ece)
    assert math.isnan(found.auc)
    assert found.survival[0] > 0
