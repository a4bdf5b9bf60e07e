"""What a study names is opened, or refused in one line."""

from __future__ import annotations

import pytest

from specsim.errors import InputError
from specsim.study.inputs import open_table, open_trace


def test_a_trace_opens_by_its_folder_or_as_a_preset(world):
    assert len(open_trace(str(world / "trace"))) == 24
    assert open_trace("synthetic:h20-dflash").manifest.synthetic


def test_a_trace_is_cut_to_the_domains_asked_for(world):
    trace = open_trace(str(world / "trace"), ["chat"])
    assert 0 < len(trace) < 24
    assert {trace.requests.domains[code] for code in trace.requests.domain.tolist()} == {"chat"}


@pytest.mark.parametrize(
    ("name", "domains", "message"),
    [
        ("nowhere", None, r"nowhere: no such trace"),
        ("synthetic:h21", None, r"trace synthetic:h21: unknown preset; allowed: h20-dflash"),
        ("synthetic:h20-dflash", ["chat"], r"a made-up trace is not cut by domain"),
    ],
)
def test_a_trace_that_cannot_be_had_is_refused(name, domains, message):
    with pytest.raises(InputError, match=message):
        open_trace(name, domains)


def test_a_what_if_price_is_said_in_the_notes(world):
    table = open_table(str(world / "linear"), {"strong": "weak"})
    assert any("drafting by strong is priced as weak" in note for note in table.notes)
    assert not any("priced" in note for note in open_table(str(world / "linear"), {}).notes)


def test_a_table_answers_outside_its_range_only_when_told_to(world):
    with pytest.raises(InputError):
        open_table(str(world / "staircase"), {}).step_cost(None, 17, 0, 10)
    assert open_table(str(world / "staircase"), {}, extrapolate=True).step_cost(None, 17, 0, 10).seconds[0] > 0
