"""Several studies shown as one."""

from __future__ import annotations

import dataclasses

import pytest

from specsim.errors import InputError
from specsim.study.compare import compare
from specsim.study.join import join

NAMED = {"label": "cut", "budget": "dcut:depth=3", "drafter": "strong"}


@pytest.fixture(scope="module")
def parts(world):
    """Two studies on two tables at different loads, and one of another trace on the first table."""
    from specsim.config import build_study

    def run(trace, table, batches):
        document = {
            "trace": trace,
            "tables": [str(world / table)],
            "policies": [NAMED] if trace == str(world / "trace") else [{"label": "cut", "budget": "dcut"}],
            "batches": batches,
            "requests": 8,
            "seeds": [0],
            "draft_costs": {} if trace == str(world / "trace") else {"dflash": "strong"},
            "extrapolate": True,
        }
        return compare(build_study(document))

    own = str(world / "trace")
    return run(own, "linear", [2]), run(own, "staircase", [2, 4]), run("synthetic:h20-dflash", "linear", [2])


def test_a_table_that_traces_share_is_told_apart_by_the_trace(parts):
    joined = join(parts, "all", "specsim demo")
    tables = ["example-linear, synthetic-small", "example-staircase", "example-linear, synthetic-h20-dflash"]
    assert list(dict.fromkeys(cell.table for cell in joined.cells)) == tables
    assert [table["name"] for table in joined.tables] == tables
    assert len(joined.cells) == sum(len(part.cells) for part in parts)
    assert any(sentence.startswith("example-linear, synthetic-h20-dflash: ") for sentence in joined.findings)
    assert any(note.startswith("example-linear, synthetic-h20-dflash: ") for note in joined.notes)


def test_every_drafter_is_described_once(parts):
    joined = join(parts, "all", "specsim demo")
    assert len({(s.name, s.domain) for s in joined.drafters}) == len(joined.drafters)
    assert {s.name for s in joined.drafters} == {"strong", "weak", "dflash"}


def test_a_label_of_a_policys_own_is_explained_with_all_that_goes_by_it(parts):
    assert [part.policies for part in parts] == [{"cut": "dcut:depth=3@strong"}] * 2 + [{"cut": "dcut"}]
    assert join(parts, "all", "specsim demo").policies == {"cut": "dcut:depth=3@strong or dcut"}


def test_traces_are_described_by_name(parts):
    joined = join(parts, "all", "specsim demo")
    assert list(joined.trace) == ["synthetic-small", "synthetic-h20-dflash"]
    assert joined.trace["synthetic-small"] == "made up; target none (synthetic); drafters strong, weak; 24 requests"


def test_loads_that_differ_are_told_by_table(parts):
    workload = join(parts, "all", "specsim demo").workload
    assert workload["arrivals"] == "closed loop"
    assert workload["concurrency, example-staircase"] == [2, 4]
    assert workload["concurrency, example-linear, synthetic-small"] == [2]


def test_a_note_about_all_is_said_once(parts):
    notes = join(parts, "all", "specsim demo").notes
    assert sum(note.startswith("Prompts cost nothing here") for note in notes) == 1


def test_what_cannot_be_told_apart_is_refused(parts):
    with pytest.raises(InputError, match=r"two studies of the same trace and cost table"):
        join([parts[0], parts[0]], "twice", "")
    with pytest.raises(InputError, match=r"different engines or seeds"):
        join([parts[0], dataclasses.replace(parts[1], seeds=[5])], "seeds", "")
