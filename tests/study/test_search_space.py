"""Search spaces: what texts mean, and that every default value is one the option takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from specsim.errors import InputError
from specsim.policies.build import ARMS, BUDGETS, CALIBRATORS, build_controller
from specsim.policies.config import parse
from specsim.study.default_spaces import DEFAULT_SPACES
from specsim.study.search_space import default_point, search_space, size, with_options
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace

DRAFTERS = SyntheticTrace(
    SyntheticConfig("space", tuple(SyntheticDrafter(n, mean_acceptance_length=2.0, max_depth=7) for n in ("a", "b")))
).drafters


def space(text, *searched):
    return search_space(searched, parse(text), build_controller(text, DRAFTERS))


def test_default_spaces_are_of_policies_that_exist():
    assert set(DEFAULT_SPACES) <= {*BUDGETS, *ARMS, *CALIBRATORS}


@pytest.mark.parametrize("name", DEFAULT_SPACES)
def test_every_default_value_is_one_the_option_takes(name):
    part = "budget" if name in BUDGETS else "drafter" if name in ARMS else "calibrator"
    text = {
        "budget": f"{name}:tpot_seconds=0.1@a" if name == "slo_dcut" else f"{name}@a",
        "drafter": f"fixed_depth@{name}",
        "calibrator": f"fixed_depth~{name}@a",
    }[part]
    searched = [f"{part}.{option}" for option in DEFAULT_SPACES[name]]
    assert [f"{d.part}.{d.option}" for d in space(text, *searched)] == searched


def test_ranges_end_where_they_say_and_max_is_the_deepest_draft():
    depth, c = space("fixed_depth@ucb1", "depth=2..max", "c=1..3:log")
    assert depth.values() == [2, 3, 4, 5, 6, 7]
    assert isinstance(depth.distribution, IntDistribution)
    assert isinstance(c.distribution, FloatDistribution)  # whole ends, but the option takes any number
    assert (c.distribution.low, c.distribution.high, c.distribution.log) == (1.0, 3.0, True)
    assert (depth.text, c.text, c.name) == ("2..7", "1..3:log", "drafter.c")


def test_numbers_are_tried_to_four_digits_and_stay_within_their_ends():
    (c,) = space("fixed_depth@ucb1", "c=0.123441..0.9")
    assert c.written(0.5432198) == 0.5432
    assert c.written(0.123442) == 0.123441


def test_what_the_policy_says_stays_unless_it_is_searched_by_name():
    assert [d.name for d in space("dcut:depth=3,ratios=all@a")] == ["include_zero", "numerator"]
    assert [d.name for d in space("dcut:depth=3@a", "depth")] == ["depth"]


def test_a_point_becomes_a_configuration_and_the_default_is_found_in_the_space():
    text = "dcut@ucb1"
    dimensions = space(text, "depth=1..7", "ratios=.5/1,.25/.5/.75/1", "reward", "c=.5..2")
    assert default_point(dimensions, build_controller(text, DRAFTERS)) == {
        "depth": 7,
        "ratios": ".25/.5/.75/1",
        "drafter.reward": "accepted_fraction",
        "drafter.c": 1.0,
    }
    point = {"depth": 3, "ratios": ".5/1", "drafter.reward": "throughput", "drafter.c": 0.70001}
    config = with_options(parse("dcut:count=code@ucb1"), dimensions, point)
    assert str(config) == "dcut:count=code,depth=3,ratios=.5/1@ucb1:reward=throughput,c=0.7"
    assert default_point(space(text, "depth=1..3"), build_controller(text, DRAFTERS)) is None
    assert default_point(space(text, "ratios=.5/1,all"), build_controller(text, DRAFTERS)) is None


def test_a_space_has_a_size_unless_it_is_continuous():
    assert size(space("dcut@a", "depth=1..5", "numerator")) == 10
    assert size(space("dcut@ucb1", "depth=1..5", "c=.1..1")) is None


@pytest.mark.parametrize(
    ("text", "searched", "depth"),
    [
        ("fixed_depth@a", "depth=1..999", 999),
        ("dcut@ucb1", "depth=2..8", 8),
        ("fixed_ratio@a", "depth=1,8,3", 8),
        ("batch_schedule:schedule=1:2@a", "schedule=1:3/4:1,1:9/8:1", 9),
    ],
)
def test_a_depth_that_no_drafter_has_is_refused_in_one_line(text, searched, depth):
    with pytest.raises(InputError) as caught:
        space(text, searched)
    limits = "a at most 7" if text.endswith("@a") else "a at most 7, b at most 7"
    assert str(caught.value) == f"--search {searched}: depth {depth} is deeper than any drafter goes ({limits})"


def test_a_depth_is_tried_that_only_another_searched_arm_has():
    shallow = replace(DRAFTERS[0], max_depth=3)

    def searched(text, *dimensions):
        return search_space(dimensions, parse(text), build_controller(text, [shallow, DRAFTERS[1]]))

    assert searched("fixed_depth@fixed_arm", "depth=1..7", "arm=0,1")[0].text == "1..7"
    with pytest.raises(InputError, match=r"depth 7 is deeper than any drafter goes \(a at most 3\)"):
        searched("fixed_depth@a", "depth=1..7")


def test_a_range_on_a_logarithm_starts_above_0():
    with pytest.raises(InputError, match="and exceed 0 with :log"):
        space("fixed_depth@ucb1", "c=0..1:log")
