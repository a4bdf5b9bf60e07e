"""The recorded data that ships is what its README and manifest say."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from specsim.live.prompts import read_prompts
from specsim.trace import Trace
from specsim.trace.statistics import by_domain, walk

TRACES = Path(__file__).resolve().parents[2] / "traces"
SHARED_PROMPTS = TRACES.parents[1] / "shared" / "prompts"


def load_script():
    spec = importlib.util.spec_from_file_location("checksums", TRACES / "checksums.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


checksums = load_script()


@pytest.fixture(scope="module")
def trace():
    return Trace.open(TRACES / "smollm2-cpu", verify_hashes=True)


def test_the_table_of_checksums_is_that_of_the_files():
    page = (TRACES / "README.md").read_text()
    assert page == checksums.updated(page, TRACES), "run `python traces/checksums.py --write`"


def test_a_changed_file_and_a_new_one_both_make_the_table_out_of_date(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    before = checksums.table(tmp_path)
    (tmp_path / "manifest.json").write_text("{ }")
    changed = checksums.table(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "chat.jsonl").write_text("{}")
    assert len({before, changed, checksums.table(tmp_path)}) == 3


def test_a_page_without_the_markers_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="checksums"):
        checksums.updated("no table", tmp_path)


def test_the_trace_is_valid_whole_and_small(trace):
    trace.validate()
    assert sum(path.stat().st_size for path in (TRACES / "smollm2-cpu").iterdir()) < 6_000_000
    assert [spec.name for spec in trace.drafters] == ["ngram", "exit24", "exit28"]
    assert {spec.max_depth for spec in trace.drafters} == {15}
    assert trace.kind == "position_indexed"
    assert not trace.manifest.synthetic
    assert len(trace) >= 60
    assert np.bincount(trace.requests.domain).min() >= 20
    assert (trace.requests.num_output_tokens >= 128).all()


def test_its_requests_are_the_shipped_prompts(trace):
    files = read_prompts([TRACES / "prompts"])
    assert [(file.name, file.sha256) for file in files] == [
        (prompts.name, prompts.sha256) for prompts in trace.manifest.prompt_sets
    ]
    ids = [prompt.id for file in files for prompt in file.prompts]
    assert trace.requests.request_id.tolist() == sorted(ids)


def test_the_acceptance_lengths_in_the_readme_are_those_of_the_trace(trace):
    page = (TRACES / "README.md").read_text()
    for arm, spec in enumerate(trace.drafters):
        walks = by_domain(trace, lambda requests, arm=arm: walk(trace, arm, requests))
        lengths = [walks[domain].mean_acceptance_length for domain in ("chat", "code", "math")]
        lengths.append(walk(trace, arm).mean_acceptance_length)
        assert f"| `{spec.name}` | " + " | ".join(f"{length:.2f}" for length in lengths) + " |" in page


def test_the_greedy_path_is_one_for_all_drafters(trace):
    """Where two drafters' drafts are accepted, they are the same tokens: both equal the target's."""
    import pyarrow.parquet as pq

    rows = pq.read_table(TRACES / "smollm2-cpu" / "blocks.parquet").to_pylist()
    path = {}
    for row in rows:
        for k in range(row["num_accepted"]):
            place = row["request_id"], row["position"] + k
            token = row["draft_token_ids"][k]
            assert path.setdefault(place, token) == token
    assert len(path) > 0.5 * trace.requests.num_output_tokens.sum()


def test_no_prompt_is_from_a_public_set():
    if not SHARED_PROMPTS.is_dir():
        pytest.skip("the public prompt sets are not here")
    public = set()
    for file in SHARED_PROMPTS.glob("*.jsonl"):
        for line in filter(None, file.read_text().split("\n")):
            public |= set(texts(json.loads(line)))
    ours = {prompt.text for file in read_prompts([TRACES / "prompts"]) for prompt in file.prompts}
    assert not ours & public


def texts(value):
    """Every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
