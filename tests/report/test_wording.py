import math

import pytest

from specsim.report.wording import counted, digits, half_width, milliseconds, percent, signed_percent, span, times

NAN = math.nan


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (0.004, "0.00"),
        (0.876, "0.88"),
        (-0.876, "-0.88"),
        (9.99, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (99.96, "100"),
    ],
)
def test_numbers_have_three_significant_digits_from_one_on(value, text):
    assert digits(value) == text


def test_thousands_are_told_apart():
    assert digits(1234567.8) == "1,234,568"


def test_whole_numbers_keep_all_their_digits_and_others_have_three():
    assert [counted(value) for value in (0.0, 12.0, 12345.0, 12345, 12.345, -3.0)] == [
        "0", "12", "12,345", "12,345", "12.3", "-3",
    ]  # fmt: skip


@pytest.mark.parametrize("write", [digits, counted, times, percent, signed_percent, milliseconds])
@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_what_is_no_number_is_a_dash(write, value):
    assert write(value) == "–"


def test_a_ratio_a_share_and_a_difference_carry_their_sign():
    assert (times(1.654), percent(0.1254), signed_percent(0.0321), signed_percent(-0.0321)) == (
        "1.65×",
        "12.5 %",
        "+3.2 %",
        "-3.2 %",
    )


def test_seconds_are_written_as_milliseconds():
    assert milliseconds(0.01234) == "12.3"


def test_an_interval_is_its_two_ends_or_half_its_width():
    assert span((1.618, 1.684)) == "1.62–1.68"
    assert half_width((1.62, 1.68)) == "±.03"
    assert half_width((10.0, 14.0)) == "±2.00"
    assert half_width((1.0, 1.0)) == "±0"


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((1.018, 1.022), "1.018–1.022"),
        ((129.1, 129.4), "129.1–129.4"),
        ((1.0, 1.0), "1.00–1.00"),
        ((1.0, 1.01), "1.00–1.01"),
    ],
)
def test_ends_that_would_look_alike_have_one_digit_more(interval, text):
    assert span(interval) == text


@pytest.mark.parametrize("interval", [(NAN, 1.0), (1.0, NAN), (NAN, NAN)])
def test_an_interval_without_an_end_is_not_shown(interval):
    assert span(interval) == ""
    assert half_width(interval) == ""
