import dataclasses
import io
import math
import textwrap

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from specsim.report.terminal import render


def printed(study, width=80, report=None, colour=False):
    file = io.StringIO()
    render(study, Console(file=file, width=width, force_terminal=colour, no_color=not colour), report)
    return file.getvalue()


def stripped(text):
    return "\n".join(line.rstrip() for line in text.splitlines())


@pytest.fixture
def small(make_study):
    """Four policies at two loads with round numbers, so that the expected text can be written by hand."""
    study = make_study(
        tables=("cpu-smollm2",),
        batches=(4, 32),
        policies=("autoregressive", "fixed_depth:depth=15@exit28", "dcut@exit28", "clairvoyant@exit28"),
        title="Two loads",
        findings=["cpu-smollm2: dcut@exit28 is the fastest at batch 4, by 16 % over fixed_depth:depth=15@exit28."],
        notes=["cpu-smollm2: costs above 64 tokens are extrapolated."],
    )
    numbers = {
        ("autoregressive", 4): (1.0, 1.0, 1.0),
        ("autoregressive", 32): (1.0, 1.0, 1.0),
        ("fixed_depth:depth=15@exit28", 4): (1.5, 1.45, 1.55),
        ("fixed_depth:depth=15@exit28", 32): (0.5, 0.49, 0.51),
        ("dcut@exit28", 4): (1.75, 1.7, 1.8),
        ("dcut@exit28", 32): (1.004, 0.96, 1.05),
        ("clairvoyant@exit28", 4): (2.0, 1.9, 2.1),
        ("clairvoyant@exit28", 32): (12.0, 11.5, 12.5),
    }
    cells = []
    for cell in study.cells:
        speedup, low, high = numbers[cell.policy, cell.batch]
        cells.append(
            dataclasses.replace(
                cell,
                values=cell.values | {"speedup": speedup},
                speedup_interval=(low, high),
                slower_than_autoregressive=high < 1,
                not_distinguishable=low <= 1 <= high,
            )
        )
    return dataclasses.replace(study, cells=cells)


def test_the_text_is_what_a_reader_expects(small):
    assert stripped(printed(small, report="report.html")) == textwrap.dedent(
        """\
        Two loads

        Speedup over autoregressive, cost table cpu-smollm2
        batch size                         4       32
        autoregressive                  1.00     1.00
        fixed_depth:depth=15@exit28 1.50±.05 0.50±.01
                                               slower
        dcut@exit28                 1.75±.05 1.00±.05
                                        best      tie
        clairvoyant@exit28 (bound)  2.00±.10 12.0±.50

        - dcut@exit28 is the fastest at batch 4, by 16 % over
          fixed_depth:depth=15@exit28.

        ±: half of the 90 % interval, seeds paired
        best: highest mean of the policies that can be run and keep the output law
        slower: slower than autoregressive: the whole 90 % interval lies below 1
        tie: not distinguishable from autoregressive: 1 lies inside the 90 % interval
        bound: knows in advance what will be accepted: a bound, not a choice

        Notes
        - cpu-smollm2: costs above 64 tokens are extrapolated.

        Report: report.html"""
    )


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("batches", [(1,), (1, 4, 8, 16, 32, 64), tuple(range(1, 21))])
def test_no_line_exceeds_the_width_and_no_load_is_lost(make_study, width, batches):
    study = make_study(batches=batches)
    lines = printed(study, width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert any(line.startswith("fixed_depth:depth=3@exit28 ") for line in lines), "labels keep their room"
    headings = " ".join(line for line in lines if line.startswith("batch size")).split()
    assert [word for word in headings if word.isdigit()] == [str(batch) for batch in batches] * 2


def test_twelve_policies_with_long_names_fit(make_study):
    policies = [f"dcut:count=code,score=max_prob,ratios={index}@thompson:reward=throughput" for index in range(12)]
    text = printed(make_study(policies=policies))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert all(f"ratios={index}" in text for index in range(12))


def test_colour_changes_no_word(small):
    plain = printed(small)
    assert "\x1b" not in plain
    coloured = printed(small, colour=True)
    assert "\x1b" in coloured
    assert Text.from_ansi(coloured).plain.split() == plain.split()


def test_a_lossy_policy_is_marked_and_its_reason_told(small):
    cells = [
        dataclasses.replace(cell, lossy_reason="cuts on the drawn token") if cell.policy == "dcut@exit28" else cell
        for cell in small.cells
    ]
    text = printed(dataclasses.replace(small, cells=cells))
    assert "dcut@exit28 (lossy)" in text
    assert "lossy: the output law is not the target's" in text
    assert "dcut@exit28 is lossy: cuts on the drawn token" in text


def test_a_reason_that_names_its_policy_is_told_as_it_is(small):
    reason = "dcut@exit28 is not exact with drafter exit28"
    cells = [dataclasses.replace(cell, lossy_reason=reason) for cell in small.cells if cell.policy == "dcut@exit28"]
    lines = printed(dataclasses.replace(small, cells=cells)).splitlines()
    assert reason in [line.rstrip() for line in lines]


def test_where_there_is_no_interval_none_is_explained(small):
    cells = [dataclasses.replace(cell, speedup_interval=(math.nan, math.nan)) for cell in small.cells]
    assert "±" not in printed(dataclasses.replace(small, cells=cells))


def test_short_names_are_explained_so_that_a_row_can_be_run_again(small):
    text = "dcut:depth=goodput,ratios=all,numerator=bonus@ucb1:reward=throughput,c=0.2"
    named = dataclasses.replace(small, policies={"dcut@exit28": text, "clairvoyant@exit28": "clairvoyant"})
    out = stripped(printed(named))
    assert textwrap.dedent(
        """
        Names, as --policy takes them
        dcut@exit28         dcut:depth=goodput,ratios=all,numerator=bonus@ucb1:
                            reward=throughput,c=0.2
        clairvoyant@exit28  clairvoyant

        Notes
        """
    ) in (out)
    assert "Names" not in printed(small)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_an_explained_name_fits_however_narrow_the_terminal_is(small, width):
    named = dataclasses.replace(small, policies={"D-cut, own depth @UCB1": "dcut:ratios=all@ucb1:reward=throughput"})
    lines = printed(named, width).splitlines()
    explained = lines[lines.index("Names, as --policy takes them"[:width].rstrip()) :] if width > 30 else lines
    assert max(cell_len(line) for line in explained if "dcut:" in line or "reward" in line) <= width


def test_square_brackets_are_text_and_no_markup(make_study):
    study = make_study(batches=(1,), policies=("autoregressive", "[bold]x"), findings=["[red]y[/red]"], title="[b]t")
    text = printed(study)
    assert all(piece in text for piece in ("[bold]x", "[red]y[/red]", "[b]t"))


def test_what_is_missing_or_nan_is_a_dash(small):
    cells = [cell for cell in small.cells if (cell.policy, cell.batch) != ("dcut@exit28", 4)]
    nothing = {"values": {"speedup": math.nan}, "speedup_interval": (math.nan, math.nan), "not_distinguishable": True}
    cells[-1] = dataclasses.replace(cells[-1], **nothing)
    text = printed(dataclasses.replace(small, cells=cells))
    (row,) = [line.split() for line in text.splitlines() if line.startswith("dcut")]
    assert row[:2] == ["dcut@exit28", "–"]
    assert "nan" not in text
    lines = text.splitlines()
    (where,) = [index for index, line in enumerate(lines) if line.startswith("clairvoyant")]
    assert lines[where].split() == ["clairvoyant@exit28", "(bound)", "2.00±.10", "–"]
    assert lines[where + 1].startswith("dcut"), "no verdict below what is not known"


def test_a_long_label_breaks_between_its_parts(make_study):
    study = make_study(policies=("autoregressive", "dcut:count=code@thompson_beta:prior=1.5"))
    lines = [line.split(" ")[0] for line in printed(study).splitlines()]
    assert "dcut:count=code" in lines
    assert "@thompson_beta:prior=1.5" in lines


def test_a_number_is_not_parted_from_its_percent_sign(make_study):
    study = make_study(policies=(), findings=[f"{'x' * width} 12 % and more" for width in range(60, 80)], notes=[])
    assert not [line for line in printed(study).splitlines() if line.strip().startswith("%")]


def test_an_empty_study_still_says_what_it_is(make_study):
    study = make_study(policies=(), findings=[], notes=[], title="Nothing")
    assert printed(study).strip() == "Nothing"


def test_open_loops_are_headed_by_their_rate(make_study):
    study = make_study(tables=("h20-qwen3-8b",), batches=(8,))
    study = dataclasses.replace(study, cells=[dataclasses.replace(cell, batch=0, rate=2.5) for cell in study.cells])
    (heading,) = [line for line in printed(study).splitlines() if line.startswith("requests/s")]
    assert heading.split() == ["requests/s", "2.5/s"]
