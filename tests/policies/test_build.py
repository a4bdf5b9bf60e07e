"""From a text to a controller, and every way in which it can be wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.policies.arms.fixed_arm import FixedArm
from specsim.policies.arms.ucb1 import UCB1
from specsim.policies.budget.dcut import DCut
from specsim.policies.build import ARMS, BUDGETS, build_controller
from specsim.policies.config import ControllerConfig, PolicyConfig


def test_a_text_names_a_budget_policy_a_drafter_policy_and_their_options(drafter):
    text = "dcut:count=code,ratios=.5/1@ucb1:reward=throughput,c=0.5"
    controller = build_controller(text, [drafter("a"), drafter("b")])
    assert controller.budget_policy == DCut(count="code", ratios=(0.5, 1.0))
    assert controller.drafter_policy == UCB1(num_arms=2, reward="throughput", c=0.5)


def test_one_drafter_needs_no_choice(drafter):
    controller = build_controller("dcut", [drafter("only")])
    assert controller.drafter_policy == FixedArm(num_arms=1, arm=0)
    assert controller.label == "dcut"


def test_several_drafters_need_one_and_the_message_lists_them(drafter):
    with pytest.raises(InputError) as error:
        build_controller("dcut", [drafter("ngram"), drafter("exit24")])
    for choice in ("@ngram", "@exit24", *(f"@{name}" for name in ARMS)):
        assert choice in str(error.value)


def test_a_label_is_the_text_in_its_shortest_form_unless_one_is_given(drafter):
    drafters = [drafter("a"), drafter("b")]
    assert build_controller("dcut:count=paper,ratios=.25/.5@a", drafters).label == "dcut:ratios=0.25/0.5@a"
    assert build_controller("dcut:include_zero=yes@a", drafters).label == "dcut:include_zero=true@a"
    config = ControllerConfig(budget="dcut", drafter="a", label="ours")
    assert build_controller(config, drafters).label == "ours"
    assert build_controller(config, drafters).config.label == "ours"


def test_json_names_the_same_controller_as_the_text(drafter):
    config = ControllerConfig.model_validate(
        {
            "budget": {"name": "dcut", "options": {"ratios": [0.5, 1.0], "include_zero": True, "depth": 7}},
            "drafter": {"name": "ucb1", "options": {"c": 2}},
        }
    )
    drafters = [drafter("a"), drafter("b")]
    text = "dcut:ratios=.5/1,include_zero=true,depth=7@ucb1:c=2"
    assert build_controller(config, drafters).config == build_controller(text, drafters).config


WRONG = [
    ("dcutt@a", r"unknown budget policy 'dcutt': allowed autoregressive, .*dcut, .*clairvoyant"),
    ("dcut@ucb", r"unknown drafter policy or drafter 'ucb': allowed fixed_arm, .*, a, b"),
    ("dcut~platt@a", r"unknown calibrator 'platt': allowed identity"),
    (
        "dcut:counts=code@a",
        r"dcut: unknown option 'counts': allowed depth, ratios, include_zero, count, numerator, score",
    ),
    ("dcut:count=both@a", r"dcut: option count = 'both': Input should be 'paper' or 'code'"),
    ("dcut:score=entropy@a", r"dcut: option score = 'entropy': Input should be 'drawn_prob', 'max_prob'"),
    ("dcut:include_zero=maybe@a", r"dcut: option include_zero = 'maybe'"),
    ("autoregressive:depth=1", r"autoregressive: unknown option 'depth': allowed none"),
    ("dcut@ucb1:reward=speed", r"ucb1: option reward = 'speed': Input should be 'accepted_fraction' or 'throughput'"),
    ("dcut@ucb1:c=-1", r"ucb1: option c = '-1'"),
    ("dcut@ucb1:c=inf", r"ucb1: option c = 'inf'"),
    ("dcut@ucb1:num_arms=9", r"ucb1: unknown option 'num_arms'"),
    ("dcut@thompson_beta:prior=0", r"thompson_beta: option prior = '0'"),
    ("dcut@a:arm=1", r"@a is a drafter, it has no options"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_name_option_or_value_is_refused_listing_what_is_allowed(text, message, drafter):
    with pytest.raises(InputError, match=message) as error:
        build_controller(text, [drafter("a"), drafter("b")])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("part", "name", "option", "value"),
    [
        ("budget", "fixed_depth", "depth", True),
        ("budget", "fixed_ratio", "ratio", True),
        ("budget", "dcut", "ratios", [0.5, True]),
        ("budget", "tetris", "capacity", False),
        ("budget", "batch_schedule", "schedule", [[1, 3], [17, True]]),
        ("budget", "batch_schedule", "schedule", {"vllm": [[True, 16, 3]]}),
        ("drafter", "ucb1", "c", True),
        ("drafter", "fixed_arm", "arm", False),
        ("calibrator", "logistic", "warm_up", False),
    ],
)
def test_true_and_false_are_no_numbers(part, name, option, value, drafter):
    parts = {"budget": "dcut", "drafter": "a", part: {"name": name, "options": {option: value}}}
    with pytest.raises(InputError) as error:
        build_controller(ControllerConfig.model_validate(parts), [drafter("a"), drafter("b")])
    assert str(error.value) == f"{name}: option {option} = {value!r}: true and false are no values of it"


def test_a_drafter_named_like_a_drafter_policy_is_refused(drafter):
    with pytest.raises(InputError, match="@ucb1 is both a drafter and a drafter policy"):
        build_controller("dcut@ucb1", [drafter("ucb1"), drafter("b")])


def test_no_drafter_at_all_is_refused_where_one_is_needed():
    for text in ("dcut", "dcut@ucb1", "fixed_depth@ngram"):
        with pytest.raises(InputError, match="this run has no drafter"):
            build_controller(text, [])


DRAFTERS = [DrafterSpec(name, "ngram", "point_mass", "parallel", ("drawn_prob",), 15) for name in ("a", "b")]
WORDS = st.sampled_from(
    [*BUDGETS, *ARMS, "identity", "a", "depth", "ratios", "c", "reward", "1", ".5", "all", "-3", "é", " "]
)
SPECS = st.lists(st.one_of(WORDS, st.sampled_from([":", ",", "=", "@", "~", "/"]), st.text(max_size=3)), max_size=9)


@given(SPECS.map("".join))
def test_any_text_builds_a_controller_or_is_refused_in_one_line(text):
    try:
        controller = build_controller(text, DRAFTERS)
    except InputError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either ending is right
    else:
        assert build_controller(str(controller.config), DRAFTERS).config == controller.config


@given(
    st.dictionaries(
        st.text(max_size=4) | st.sampled_from(["depth", "ratios", "score"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.floats()),
        max_size=3,
    )
)
def test_any_json_builds_a_controller_or_is_refused_in_one_line(options):
    config = ControllerConfig(budget=PolicyConfig(name="dcut", options=options), drafter="a")
    try:
        controller = build_controller(config, DRAFTERS)
    except InputError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either ending is right
    else:
        assert build_controller(controller.config, DRAFTERS).config == controller.config
