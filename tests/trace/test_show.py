from __future__ import annotations

import io

import pytest
from rich.console import Console

from specsim.trace.hardness import Spread
from specsim.trace.info import describe
from specsim.trace.show import render
from specsim.trace.synthetic import SyntheticConfig, SyntheticDrafter, SyntheticTrace


def shown(*drafters: SyntheticDrafter, **changes) -> list[str]:
    fields = {"name": "shown", "num_requests": 4, "num_output_tokens": (40, 40), "spread": Spread(0.1, 1.0)}
    trace = SyntheticTrace(SyntheticConfig(drafters=drafters, **(fields | changes)))
    page = io.StringIO()
    console = Console(file=page, width=80)
    for part in render(describe(trace)):
        console.print(part)
    return page.getvalue().splitlines()


@pytest.mark.parametrize("depth", [1, 15, 16, 64])
def test_a_page_fits_80_columns_and_cuts_nothing_off(depth):
    lines = shown(SyntheticDrafter("early-exit-at-28", (1.0,), max_depth=depth), SyntheticDrafter("b", (0.5,)))
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    survival = next(line for line in lines if line.strip().startswith("early-exit-at-28 1.0"))
    assert len(survival.split()) - 1 == len(range(1, depth + 1, -(-max(depth, 15) // 15)))


def test_a_drafter_s_survival_stands_under_its_positions():
    lines = shown(SyntheticDrafter("sure", (1.0,), max_depth=3), SyntheticDrafter("never", (0.0,), max_depth=2))
    assert [line.split() for line in lines if line.startswith(("  survival", "  sure ", "  never "))][-3:] == [
        ["survival", "1", "2", "3"],
        ["sure", "1.0", "1.0", "1.0"],
        ["never", ".00", ".00"],
    ]


def test_every_drafter_shows_its_mean_acceptance_length_in_each_domain():
    drafters = (SyntheticDrafter("sure", (1.0,), max_depth=3), SyntheticDrafter("never", (0.0,), max_depth=2))
    lines = shown(*drafters, domains={"x": 1.0, "y": 1.0}, domain_order="sequential")
    rows = [line.split() for line in lines]
    start = rows.index(["MAL", "in", "x", "y"])
    assert rows[start + 2 : start + 4] == [["sure", "4.00", "4.00"], ["never", "1.00", "1.00"]]


def test_every_domain_shows_how_much_of_it_there_is():
    lines = shown(SyntheticDrafter("a", (0.5,)), domains={"x": 1.0, "y": 1.0}, domain_order="sequential")
    assert [line.split() for line in lines if line.startswith(("  x ", "  y "))] == [["x", "2", "80"], ["y", "2", "80"]]


@pytest.mark.parametrize("count", [1, 6, 20])
def test_names_and_lengths_stay_whole_however_many_domains_and_drafters_there_are(count):
    names = [f"eagle-of-kind-{number}" for number in range(8)]
    drafters = [SyntheticDrafter(name, (1.0,), max_depth=3) for name in names]
    domains = [f"d-{number}" for number in range(count)]
    lines = shown(*drafters, domains=dict.fromkeys(domains, 1.0), num_requests=count, domain_order="sequential")
    assert max(map(len, lines)) <= 80
    headings = [line.split()[2:] for line in lines if line.startswith("  MAL in")]
    assert [name for heading in headings for name in heading] == domains
    for name in names:
        rows = [line.split()[1:] for line in lines if line.startswith(f"  {name} ") and "synthetic" not in line]
        assert [length for row in rows[: len(headings)] for length in row] == ["4.00"] * count


def test_numbers_that_nothing_was_seen_for_are_dashes():
    lines = shown(SyntheticDrafter("never", (0.0,), max_depth=2), num_output_tokens=(1, 1))
    row = next(line for line in lines if line.startswith("  never ") and "synthetic" in line)
    assert row.split()[-4:] == ["2", "-", "0.000", "-"]


@pytest.mark.parametrize(
    ("kind", "law", "expected"),
    [
        ("position_indexed", "point_mass", "any policy can be replayed exactly"),
        ("position_indexed", "sampled", "exact replay but for a, whose drafts are one sample"),
        ("trajectory", "point_mass", "replaying another is an estimate"),
    ],
)
def test_a_trace_promises_no_more_exactness_than_it_has(kind, law, expected):
    info = describe(SyntheticTrace(SyntheticConfig("shown", (SyntheticDrafter("a", (0.5,)),), num_requests=1)))
    info["kind"], info["drafters"][0]["law"] = kind, law
    page = io.StringIO()
    Console(file=page, width=120).print(next(render(info)))
    assert expected in page.getvalue()
