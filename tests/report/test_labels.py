from hypothesis import given
from hypothesis import strategies as st

from specsim.report.labels import breakable, lines, pieces

LONG = "dcut:count=code,score=margin~identity@ucb1:reward=throughput"


def test_a_label_breaks_after_colon_and_comma_and_before_the_drafter():
    assert pieces(LONG) == ["dcut:", "count=code,", "score=margin", "~identity", "@ucb1:", "reward=throughput"]


def test_a_label_of_words_breaks_between_them():
    assert lines("D-cut, any budget @UCB1", 14) == ["D-cut, any ", "budget @UCB1"]


def test_lines_are_filled_before_a_new_one_begins():
    assert lines(LONG, 18) == ["dcut:count=code,", "score=margin", "~identity@ucb1:", "reward=throughput"]


def test_a_part_longer_than_a_line_is_cut():
    assert lines("abcdefgh@x", 3) == ["abc", "def", "gh", "@x"]


@given(st.text(alphabet="ab:,@=", max_size=40), st.integers(1, 12))
def test_no_line_is_too_long_and_nothing_is_lost(label, width):
    broken = lines(label, width)
    assert "".join(broken) == label
    assert max(map(len, broken)) <= width


def test_the_browser_may_break_a_label_and_its_text_is_escaped():
    assert breakable("<b>:x@y") == "&lt;b&gt;:<wbr>x<wbr>@y"


def test_the_browser_may_break_within_a_long_part_but_never_at_a_labels_end():
    assert breakable("a:policy=thompson_beta_") == "a:<wbr>policy=<wbr>thompson_<wbr>beta_"


def test_a_part_longer_than_a_line_is_cut_between_words_if_it_can_be():
    assert lines("discounted_thompson_gaussian:sigma=.5", 22) == ["discounted_thompson_", "gaussian:sigma=.5"]
