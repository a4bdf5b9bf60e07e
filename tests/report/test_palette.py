import dataclasses
import itertools

from specsim.report.palette import HUES, drafter_styles, policy_styles


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_every_hue_stands_out_from_its_ground():
    for light, dark in HUES:
        assert contrast(light, "#ffffff") >= 3, light
        assert contrast(dark, "#13161a") >= 4.5, dark


def test_twelve_policies_all_look_different(make_study):
    policies = [f"policy{index}" for index in range(12)]
    styles = policy_styles(make_study(tables=("h20-qwen3-8b",), batches=(1,), policies=policies))
    assert len({(style.token, style.dash) for style in styles.values()}) == 12


def test_neighbours_differ_in_symbol_too(make_study):
    styles = list(policy_styles(make_study(batches=(1,))).values())
    assert all(one.symbol != other.symbol for one, other in itertools.pairwise(styles))


def test_references_are_grey_and_take_no_hue(make_study):
    styles = policy_styles(make_study(batches=(1,)))
    assert styles["autoregressive"].token == "baseline"
    assert styles["clairvoyant@exit28"].token == "bound"
    assert styles["fixed_depth:depth=3@exit28"].token == "hue-0"


def test_a_policy_keeps_its_style_whatever_the_load(make_study):
    assert policy_styles(make_study(batches=(1,))) == policy_styles(make_study(batches=(64, 8)))


def test_policies_that_never_meet_may_look_alike_and_those_that_do_never(make_study):
    study = make_study(batches=(1,), policies=("a", "b", "c"))
    met = [("h20-qwen3-8b", "a"), ("h20-qwen3-8b", "b"), ("cpu-smollm2", "b"), ("cpu-smollm2", "c")]
    cells = [cell for cell in study.cells if (cell.table, cell.policy) in met]
    styles = policy_styles(dataclasses.replace(study, cells=cells))
    assert [styles[policy].token for policy in "abc"] == ["hue-0", "hue-1", "hue-0"]


def test_drafters_begin_at_the_other_end_and_plain_steps_are_grey():
    styles = drafter_styles(["ngram", "exit28"])
    assert [styles[name].token for name in ("ngram", "exit28", "none")] == ["hue-7", "hue-6", "plain"]
