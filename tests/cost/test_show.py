from __future__ import annotations

import io

import pytest
from rich.console import Console

from specsim.cost import Cell
from specsim.cost.show import milliseconds, render
from tests.cost.tables import draft, table, verify

SIZES = (4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104)
WIDE = [
    *verify({(b, size): 0.01234567 * size for b in (1, 4) for size in SIZES}),
    *verify({(b, size): 0.09876543 * size for b in (1, 4) for size in SIZES}, context=4096),
    *draft({(1, 15): 0.0012345, (4, 15): 0.0023456}),
    *draft({(1, 7): 0.005, (4, 7): 0.006}, name="a-drafter-with-a-rather-long-name"),
    Cell("host", 0.001, 1),
    Cell("host", 0.001, 4),
    Cell("prefill", 1.5, tokens=100),
    Cell("prefill", 2.5, tokens=100, context=4096),
    Cell("switch", 0.5, tokens=100, drafter="a-drafter-with-a-rather-long-name"),
]
CHANGES = [
    Cell("late", 0.0004, 4),
    Cell("late_draft", 0.0006, 4),
    Cell("join", 0.0015, 4, tokens=1),
    Cell("join", 0.0025, 4, tokens=2),
]


def printed(costs, *asked) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    for part in render(costs, *asked):
        console.print(part)
    return console.file.getvalue()


def row(text: str, after: str, name: object) -> list[str]:
    """Values of one row, a batch's or what else is named in front, in the first grid after a heading."""
    lines = text[text.index(after) :].splitlines()
    return next(line.split()[1:] for line in lines if line.split()[:1] == [str(name)])


def ratios(text: str) -> list[str]:
    return [word for word in text.split() if word.endswith("x") and word[0].isdigit()]


@pytest.mark.parametrize("drafter", [None, "block"])
def test_a_wide_table_fits_80_columns(drafter):
    text = printed(table(WIDE, SIZES, versions={"a-library": "1.2.3"}), None, drafter)
    assert max(map(len, text.splitlines())) <= 80
    assert "14 sizes, largest 104: 4, 8, 16" in text


def test_seconds_are_shown_in_milliseconds_with_the_ratio_to_the_plain_step():
    text = printed(table(verify({(2, 2): 0.010, (2, 8): 0.025, (4, 4): 0.020, (4, 16): 0.030})))
    assert row(text, "verify: ms by batch and verified tokens a request", 2) == ["10.00", "25.00"]
    assert ratios(text) == ["1.00x", "2.50x", "1.00x", "1.50x"]


def test_the_plain_step_of_a_captured_table_is_its_bucket():
    text = printed(table(verify({(3, 8): 0.010, (3, 16): 0.025}), (8, 16)))
    assert ratios(text) == ["1.00x", "2.50x"]


def test_the_whole_step_adds_draft_and_host_to_verify():
    costs = table(
        [
            *verify({(1, 1): 0.010, (1, 8): 0.025}),
            *draft({(1, 7): 0.005}),
            Cell("host", 0.002, 1),
            Cell("plan", 0.001, 1),
        ]
    )
    text = printed(costs)
    assert row(text, "whole step with 7 drafts a request by block", 1) == ["18.00", "33.00"]
    assert ratios(text) == ["1.00x", "2.50x", "1.50x", "2.75x"]  # 18 and 33 ms against 10 + 2


def test_a_whole_step_that_no_measured_batch_makes_up_is_said_to_be_none():
    costs = table([*verify({(1, 1): 0.01, (1, 8): 0.02}), *draft({(4, 7): 0.008})])
    text = " ".join(printed(costs).split())
    assert "whole step with 7 drafts a request by block: no batch was measured both drafting and verifying" in text
    assert "draft by block: ms by batch and depth" in text


def test_the_other_phases_are_listed_with_what_they_are_of():
    text = printed(table(WIDE, SIZES))
    assert row(text, "other phases: ms by batch", "host") == ["1.000", "1.000"]
    assert row(text, "prefill: ms by tokens before the prompt and prompt tokens", 0) == ["1,500"]
    assert row(text, "prefill:", 4096) == ["2,500"]
    assert row(text, "switch: ms by drafter", "a-drafter-with-a-rather-long-name") == ["500.0"]


def test_steps_whose_requests_change_are_among_the_other_phases_and_who_joins_is_counted_in_requests():
    text = printed(table([*WIDE, *CHANGES], SIZES))
    assert max(map(len, text.splitlines())) <= 80
    assert row(text, "other phases: ms by batch", "late") == ["0.400"]
    assert row(text, "other phases: ms by batch", "late_draft") == ["0.600"]
    assert row(text, "join: ms by batch and requests that join", "batch") == ["1", "2"]
    assert row(text, "join:", 4) == ["1.500", "2.500"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0"),
        (4e-7, "<.001"),
        (5e-7, "0.001"),
        (0.00058987, "0.590"),
        (0.00099951, "1.000"),
        (0.00788, "7.880"),
        (0.1175, "117.5"),
        (0.9088, "908.8"),
        (1.5, "1,500"),
    ],
)
def test_milliseconds_have_four_digits_and_none_below_a_microsecond(seconds, text):
    assert milliseconds(seconds) == text


def test_columns_that_do_not_fit_are_spread_evenly():
    text = printed(table([*verify({(1, 1 + tokens): 0.010 for tokens in range(10)})]))
    headings = [line.split()[1:] for line in text.splitlines() if line.startswith("batch ")]
    assert headings == [["1", "2", "3", "4", "5"], ["6", "7", "8", "9", "10"]]


def test_nothing_is_said_twice_and_remarks_hang_below_their_dash():
    lines = printed(table(verify({(1, 1): 1.0}), remarks=("Long " * 20 + "end.",))).splitlines()
    assert [line.strip() for line in lines].count("example (example)") == 1
    (first,) = [index for index, line in enumerate(lines) if line.startswith("- Long")]
    assert lines[first + 1].startswith("  Long")


def test_one_context_is_shown_and_the_others_are_named():
    costs = table(WIDE, SIZES)
    assert row(printed(costs), "verify:", 1)[0] == milliseconds(0.01234567 * 4)
    assert row(printed(costs, 4096), "verify:", 1)[0] == milliseconds(0.09876543 * 4)
    assert "context 4096 shown; measured: 0, 4096" in printed(costs, 4096)


def test_remarks_and_notes_are_shown():
    text = printed(table(verify({(1, 1): 1.0, (1, 2): 1.0}), remarks=("Measured on a Monday.",)))
    assert "- Measured on a Monday." in text
    assert "- the cost table is flat" in text


def test_brackets_in_a_manifest_are_shown_as_they_are():
    assert "[bold]me[/bold]" in printed(table(verify({(1, 1): 1.0}), source="[bold]me[/bold]"))
