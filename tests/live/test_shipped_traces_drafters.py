"""The traces of the trained drafters that ship are what their manifests say."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from specsim.live.prompts import in_turn, read_prompts
from specsim.live.recorder import LOOP_NGRAM, LOOP_SHARE
from specsim.trace import Trace
from specsim.trace.statistics import by_domain, walk

TRACES = Path(__file__).resolve().parents[2] / "traces"
TRAINED = ["eagle-general", "eagle-chat", "eagle-code", "eagle-math", "block-general"]
DOMAINS = ("chat", "code", "math")
NAMES = ["smollm2-drafters", "smollm2-drafters-warm", "smollm2-drafters-sampled", "smollm2-domains"]


@pytest.fixture(scope="module")
def traces():
    return {name: Trace.open(TRACES / name, verify_hashes=True) for name in NAMES}


@pytest.fixture(scope="module")
def greedy_rows():
    """Positions of the greedy trace with what was accepted there."""
    columns = ["request_id", "position", "num_accepted", "draft_token_ids"]
    return pq.read_table(TRACES / "smollm2-drafters" / "blocks.parquet", columns=columns).to_pydict()


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_is_valid_recorded_and_of_all_drafters(traces, name):
    trace = traces[name]
    trace.validate()
    assert trace.manifest.name == name
    assert trace.kind == "position_indexed"
    assert not trace.manifest.synthetic
    assert "H200" in trace.manifest.hardware
    assert [spec.name for spec in trace.drafters] == ["ngram", *TRAINED]
    assert {spec.max_depth for spec in trace.drafters} == {15}
    law = "sampled" if name == "smollm2-drafters-sampled" else "point_mass"
    assert {spec.law for spec in trace.drafters[1:]} == {law}
    assert len(trace) >= 60
    assert trace.requests.domains == DOMAINS
    assert np.bincount(trace.requests.domain).min() >= 20
    assert (TRACES / name / "blocks.parquet").stat().st_size < 12_000_000


@pytest.mark.parametrize("name", NAMES)
def test_its_prompts_are_those_that_ship_and_its_target_is_that_of_the_cpu_trace(traces, name):
    trace, older = traces[name], Trace.open(TRACES / "smollm2-cpu").manifest
    files = read_prompts([TRACES / "prompts"])
    known = [(own.name, own.sha256) for own in trace.manifest.prompt_sets]
    assert known == [(file.name, file.sha256) for file in files]
    assert trace.manifest.model_hash == older.model_hash
    if name != "smollm2-domains":
        ids = sorted(prompt.id for file in files for prompt in file.prompts)
        left_out = {320, 321, 322, 323} if name == "smollm2-drafters-sampled" else set()
        assert trace.requests.request_id.tolist() == [number for number in ids if number not in left_out]


def test_the_stream_changes_its_domain_every_eight_requests(traces):
    trace = traces["smollm2-domains"]
    named = [trace.requests.domains[code] for code in trace.requests.domain]
    assert named == [name for name in DOMAINS * 3 for _ in range(8)]
    assert named == [prompt.domain for prompt in in_turn(read_prompts([TRACES / "prompts"]), 8)]


def test_the_stream_is_the_greedy_trace_in_another_order(traces):
    """Recorded anew in other batches, and every block of all drafters is the same."""
    greedy, ordered = traces["smollm2-drafters"], traces["smollm2-domains"]
    compared = 0
    for code in range(len(DOMAINS)):
        places = (np.flatnonzero(trace.requests.domain == code) for trace in (greedy, ordered))
        for first, second in zip(*places, strict=True):
            for arm in range(len(greedy.drafters)):
                one, other = greedy.blocks(int(first), arm), ordered.blocks(int(second), arm)
                assert one.num_accepted.tolist() == other.num_accepted.tolist()
                compared += len(one.num_accepted)
    assert compared == 6 * greedy.requests.num_output_tokens.sum()


def test_the_greedy_path_is_one_for_all_drafters_and_that_of_the_cpu(traces, greedy_rows):
    """Where two drafters' drafts are accepted, they are the same tokens; a CPU decoded the same."""
    columns = list(greedy_rows)
    older = pq.read_table(TRACES / "smollm2-cpu" / "blocks.parquet", columns=columns).to_pydict()
    path, on_cpu = path_of(greedy_rows), path_of(older)
    assert len(path) > 0.8 * traces["smollm2-drafters"].requests.num_output_tokens.sum()
    both = path.keys() & on_cpu.keys()
    assert len(both) > 7_000
    assert all(path[place] == on_cpu[place] for place in both)


def test_no_output_loops(traces, greedy_rows):
    """Loops are easy to draft, so that their tokens are known, being accepted: enough 4-grams never came twice."""
    path, requests = path_of(greedy_rows), traces["smollm2-drafters"].requests
    for number, length in zip(requests.request_id.tolist(), requests.num_output_tokens.tolist(), strict=True):
        assert repeated([path.get((number, place)) for place in range(length)]) <= LOOP_SHARE
    assert repeated([7, 8, 9] * 50) > 0.9
    assert repeated([*range(80), *[7, 8, 9, None] * 20]) <= LOOP_SHARE  # unknown tokens prove nothing


def test_drawn_drafts_have_chances_and_certain_ones_have_none(traces):
    between = {}
    for name in NAMES:
        table = pq.read_table(TRACES / name / "blocks.parquet", columns=["drafter", "accept_prob"]).to_pydict()
        for drafter, chances in zip(table["drafter"], table["accept_prob"], strict=True):
            own = between.setdefault((name, drafter), [0, 0])
            own[0] += sum(0 < chance < 1 for chance in chances)
            own[1] += len(chances)
            assert all(0 <= chance <= 1 for chance in chances)
    for (name, drafter), (inside, total) in between.items():
        drawn = name == "smollm2-drafters-sampled" and drafter != "ngram"
        assert inside > 0.3 * total if drawn else inside == 0, (name, drafter)


def test_the_general_head_is_best_on_average_and_specialists_are_best_of_their_kind_at_home(traces):
    trace = traces["smollm2-drafters"]
    lengths = {
        spec.name: {
            domain: found.mean_acceptance_length
            for domain, found in by_domain(trace, lambda requests, arm=arm: walk(trace, arm, requests)).items()
        }
        for arm, spec in enumerate(trace.drafters)
    }
    told = {"eagle-general": (2.28, 3.57, 3.85), "block-general": (1.92, 2.65, 2.86), "ngram": (1.38, 1.53, 1.67)}
    for name, expected in told.items():
        assert [round(lengths[name][domain], 2) for domain in DOMAINS] == list(expected)
    for domain in DOMAINS:
        specialists = {name: lengths[name][domain] for name in ("eagle-chat", "eagle-code", "eagle-math")}
        assert max(specialists, key=specialists.get) == f"eagle-{domain}"
        assert lengths["eagle-general"][domain] > max(specialists.values())


def path_of(rows):
    """Tokens of the outputs by request and position, where some drafter's draft was accepted."""
    path = {}
    for number, position, accepted, tokens in zip(*rows.values(), strict=True):
        for place, token in enumerate(tokens[:accepted], position):
            assert path.setdefault((number, place), token) == token
    return path


def repeated(tokens):
    """Share of all 4-grams that are known to have occurred before; None is a token that is not known."""
    grams = [tuple(tokens[start : start + LOOP_NGRAM]) for start in range(len(tokens) - LOOP_NGRAM + 1)]
    known = [gram for gram in grams if None not in gram]
    return (len(known) - len(set(known))) / len(grams)
