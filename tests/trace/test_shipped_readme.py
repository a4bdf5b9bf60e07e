"""The pages on the shipped traces, held against the traces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specsim.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "traces" / "README.md").read_text(encoding="utf-8")
DRAFTERS = ["ngram", "eagle-general", "eagle-chat", "eagle-code", "eagle-math", "block-general"]


def lengths(name: str) -> dict[str, list[str]]:
    """Mean acceptance length of each drafter in each domain and in all, as `specsim trace info` writes it."""
    info = Trace.open(ROOT / "traces" / name).info()
    by_domain = [domain["mean_acceptance_length"] for domain in info["domains"]]
    return {
        drafter["name"]: [f"{found:.2f}" for found in (*(each[drafter["name"]] for each in by_domain), overall)]
        for drafter in info["drafters"]
        for overall in [drafter["mean_acceptance_length"]]
    }


@pytest.mark.parametrize("name", ["smollm2-drafters", "smollm2-domains"])
def test_the_greedy_acceptance_lengths_are_the_traces(name):
    found = lengths(name)
    assert list(found) == DRAFTERS
    for drafter, row in found.items():
        assert f"| `{drafter}` | {' | '.join(row)} |" in README
    page = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8").replace("**", "")
    for drafter, row in found.items():
        assert f"| `{drafter}` | {' | '.join(row[:3])} |" in page


def test_the_acceptance_lengths_at_a_temperature_are_the_traces():
    warm, sampled = lengths("smollm2-drafters-warm"), lengths("smollm2-drafters-sampled")
    for drafter in DRAFTERS:
        row = [f"{certain} / {drawn}" for certain, drawn in zip(warm[drafter], sampled[drafter], strict=True)]
        assert f"| `{drafter}` | {' | '.join(row)} |" in README
    page = " ".join((ROOT / "docs" / "traces.md").read_text(encoding="utf-8").split())
    assert f"`eagle-general` has {', '.join(warm['eagle-general'][:3])} where" in page
    assert f"and {', '.join(sampled['eagle-general'][:3])} where" in page


@pytest.mark.parametrize(
    "name", ["smollm2-drafters", "smollm2-drafters-warm", "smollm2-drafters-sampled", "smollm2-domains"]
)
def test_the_numbers_of_requests_and_tokens_are_the_traces(name):
    trace = Trace.open(ROOT / "traces" / name)
    tokens = int(trace.requests.num_output_tokens.sum())
    assert re.search(rf"^\| `{name}` \| .* \| {len(trace)} \| {tokens:,} \| ", README, re.MULTILINE)
    assert f"specsim record --out traces/{name} " in trace.manifest.how
