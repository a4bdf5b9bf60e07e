"""Exactness by enumeration: every draft, every accept test, every recovered token, no sampling.

Two tokens, two positions, one or two requests. The law of the next three tokens of all requests, as a plan makes
it, is compared with the target's.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest

from specsim.core import Draft, DrafterSpec, StepCost
from specsim.errors import InputError
from specsim.policies.build import build_controller
from specsim.policies.exactness import exactness

VOCABULARY, DEPTH = 2, 2
SCORES = ("drawn_prob", "max_prob", "shifted_prob")
SEEDS = range(40)


class Request:
    """Target and draft laws of one request, by the tokens before a position."""

    def __init__(self, rng, structure):
        prefixes = [p for n in range(DEPTH + 1) for p in itertools.product(range(VOCABULARY), repeat=n)]
        by_position = [rng.dirichlet([1, 1]) for _ in range(DEPTH)]
        self.target = {prefix: rng.dirichlet([1, 1]) for prefix in prefixes}
        self.draft = {
            prefix: by_position[len(prefix)] if structure == "parallel" else rng.dirichlet([1, 1])
            for prefix in prefixes
            if len(prefix) < DEPTH
        }

    def chance(self, tokens):
        """That these tokens are drafted."""
        return np.prod([self.draft[tokens[:k]][tokens[k]] for k in range(DEPTH)])

    def scores(self, tokens):
        """Each score of these drafts."""
        drawn = [self.draft[tokens[:k]][tokens[k]] for k in range(DEPTH)]
        largest = [self.draft[tokens[:k]].max() for k in range(DEPTH)]
        return {"drawn_prob": drawn, "max_prob": largest, "shifted_prob": [1.0, *drawn[:-1]]}


def continued(out, prefix, weight, target):
    """Add `weight`, spread as the target continues `prefix` to DEPTH + 1 tokens."""
    if len(prefix) == DEPTH + 1:
        out[prefix] += weight
        return
    for token in range(VOCABULARY):
        continued(out, (*prefix, token), weight * target[prefix][token], target)


def emitted(request, tokens, num_verify, law):
    """[V, V, V] law of what one request emits when these drafts are verified to `num_verify`."""
    out, reached = np.zeros((VOCABULARY,) * (DEPTH + 1)), 1.0
    for k in range(num_verify):
        prefix, token = tokens[:k], tokens[k]
        target_prob = request.target[prefix]
        draft_prob = np.eye(VOCABULARY)[token] if law == "point_mass" else request.draft[prefix]
        accept = min(1.0, target_prob[token] / draft_prob[token])
        residual = np.maximum(target_prob - draft_prob, 0.0)
        for recovered in np.flatnonzero(residual):
            chance = reached * (1 - accept) * residual[recovered] / residual.sum()
            continued(out, (*prefix, int(recovered)), chance, request.target)
        reached *= accept
    continued(out, tokens[:num_verify], reached, request.target)
    return out


def bias(requests, plan_of, law):
    """L1 distance between the law of all requests' next tokens and the target's."""
    right = [np.zeros((VOCABULARY,) * (DEPTH + 1)) for _ in requests]
    for out, request in zip(right, requests, strict=True):
        continued(out, (), 1.0, request.target)
    got = 0.0
    for drafted in itertools.product(itertools.product(range(VOCABULARY), repeat=DEPTH), repeat=len(requests)):
        lengths = plan_of(drafted)
        laws = [
            request.chance(tokens) * emitted(request, tokens, int(length), law)
            for request, tokens, length in zip(requests, drafted, lengths, strict=True)
        ]
        got = got + joint(laws)
    return np.abs(got - joint(right)).sum()


def joint(laws):
    product = laws[0]
    for law in laws[1:]:
        product = np.multiply.outer(product, law)
    return product


def bias_of(spec, drafter, seed):
    """L1 error of a controller on random laws and random stairs."""
    rng = np.random.default_rng(seed)
    requests = [Request(rng, drafter.structure) for _ in range(1 + seed % 2)]
    # Half of the tables have stairs of every height, half a dear first stair, where looking ahead pays most.
    drafts = len(requests) * DEPTH
    first, rest = 1.0, [rng.uniform(0.5, 1), *rng.uniform(0, 0.3, drafts - 1)]
    if seed // 2 % 2:
        first, rest = rng.uniform(0.2, 1), rng.exponential(0.5, drafts) ** 2
    cost = StepCost(np.cumsum([first, *rest]))
    controller = build_controller(spec, [drafter], allow_lossy=True)

    def plan_of(drafted):
        scores = [request.scores(tokens) for request, tokens in zip(requests, drafted, strict=True)]
        columns = {score: np.array([row[score] for row in scores]) for score in SCORES}
        return controller.plan(Draft(drafter, np.full(len(requests), DEPTH), columns), cost).num_verify

    return bias(requests, plan_of, drafter.law)


COMBINATIONS = [
    (spec, timing, score, law, structure)
    for spec, timing in (
        ("fixed_ratio:ratio=.5,score={}", "fixed"),
        ("dcut:score={}", "argmax"),
        ("dcut:numerator=bonus,ratios=all,score={}", "argmax"),
    )
    for score in SCORES
    for law in ("point_mass", "sampled")
    for structure in ("parallel", "autoregressive")
]


@pytest.mark.parametrize(("spec", "timing", "score", "law", "structure"), COMBINATIONS)
def test_a_combination_is_allowed_exactly_when_enumeration_finds_no_bias(spec, timing, score, law, structure):
    drafter = DrafterSpec("draft", "synthetic", law, structure, SCORES, DEPTH)
    spec = spec.format(score)
    if exactness(law, structure, score, timing).exact:
        assert max(bias_of(spec, drafter, seed) for seed in SEEDS) <= 1e-12
        assert not build_controller(spec, [drafter]).lossy
    else:
        assert any(bias_of(spec, drafter, seed) > 1e-3 for seed in range(500))
        with pytest.raises(InputError, match="is not exact with drafter draft"):
            build_controller(spec, [drafter])


@pytest.mark.parametrize("spec", ["autoregressive", "fixed_depth", "fixed_depth:depth=1"])
@pytest.mark.parametrize("structure", ["parallel", "autoregressive"])
@pytest.mark.parametrize("law", ["point_mass", "sampled"])
def test_a_policy_that_reads_no_score_is_exact(spec, structure, law):
    drafter = DrafterSpec("draft", "synthetic", law, structure, SCORES, DEPTH)
    assert max(bias_of(spec, drafter, seed) for seed in SEEDS) <= 1e-12


STOPS = [
    (spec.format(score), score, timing)
    for spec, timing in (
        ("confidence_stop:threshold=.6,score={}", "first_fall"),
        ("confidence_stop:threshold=.6,keep=true,score={}", "stop_after"),
        ("specdec_pp:threshold=.5,score={}", "stop_after"),
        ("adaspec:score={}", "stop_after"),
    )
    for score in SCORES
]


def stop_bias_of(spec, drafter, seed):
    """L1 error of a controller that stops drafting, asked once with everything as a replay does."""
    rng = np.random.default_rng(seed)
    requests = [Request(rng, drafter.structure) for _ in range(1 + seed % 2)]
    prices = [StepCost(np.cumsum(rng.uniform(0.1, 0.6, len(requests) * depth + 1)) + 0.5) for depth in range(DEPTH + 1)]
    controller = build_controller(spec, [drafter], allow_lossy=True)

    def plan_of(drafted):
        scores = [request.scores(tokens) for request, tokens in zip(requests, drafted, strict=True)]
        columns = {score: np.array([row[score] for row in scores]) for score in SCORES}
        return controller.draft_lengths(Draft(drafter, np.full(len(requests), DEPTH), columns), prices.__getitem__)

    return bias(requests, plan_of, drafter.law)


@pytest.mark.parametrize(("spec", "score", "timing"), STOPS)
@pytest.mark.parametrize("law", ["point_mass", "sampled"])
@pytest.mark.parametrize("structure", ["parallel", "autoregressive"])
def test_a_stop_is_allowed_exactly_when_enumeration_finds_no_bias(spec, score, timing, law, structure):
    drafter = DrafterSpec("draft", "synthetic", law, structure, SCORES, DEPTH)
    assert build_controller(spec, [drafter], allow_lossy=True).budget_policy.timing == timing
    if exactness(law, structure, score, timing).exact:
        assert max(stop_bias_of(spec, drafter, seed) for seed in SEEDS) <= 1e-12
        assert not build_controller(spec, [drafter]).lossy
    else:
        assert any(stop_bias_of(spec, drafter, seed) > 1e-3 for seed in range(100))
        with pytest.raises(InputError, match="is not exact with drafter draft"):
            build_controller(spec, [drafter])


DOCUMENT = Path(__file__).parents[2] / "docs" / "exactness.md"
TIMINGS = ("past", "fixed", "stop_after", "first_fall", "argmax")
EVERY = {
    "law": ("point_mass", "sampled"),
    "structure": ("parallel", "autoregressive"),
    "score": (*SCORES, "margin", None),
}


def documented():
    """The table in docs/exactness.md: (law, structure, score, timing) -> exact."""
    table = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] not in EVERY["law"]:
            continue
        structures = EVERY["structure"] if cells[1] == "any" else (cells[1],)
        scores = EVERY["score"] if cells[2] == "any" else [None if s == "none" else s for s in cells[2].split(", ")]
        for structure, score, (timing, word) in itertools.product(
            structures, scores, zip(TIMINGS, cells[3:], strict=True)
        ):
            assert word in ("exact", "refused")
            assert (cells[0], structure, score, timing) not in table
            table[cells[0], structure, score, timing] = word == "exact"
    return table


def test_the_documentation_states_the_table_as_implemented():
    assert documented() == {case: exactness(*case).exact for case in itertools.product(*EVERY.values(), TIMINGS)}


def test_a_refusal_says_why_and_what_to_do_instead():
    for case in itertools.product(*EVERY.values(), TIMINGS):
        verdict = exactness(*case)
        assert bool(verdict.reason) is not verdict.exact
        assert bool(verdict.remedy) is not verdict.exact


def test_what_a_refusal_proposes_is_itself_allowed():
    # Whatever is refused becomes exact by ranking with max_prob, by a fixed budget, or by both where it says "and".
    for law, structure, score, timing in itertools.product(
        ("sampled",), ("parallel", "autoregressive"), (*SCORES, "margin"), ("past", "fixed", "first_fall", "argmax")
    ):
        verdict = exactness(law, structure, score, timing)
        if verdict.exact:
            continue
        assert exactness(
            law,
            structure,
            "max_prob" if "max_prob" in verdict.remedy else score,
            "fixed" if "fixed_ratio" in verdict.remedy else timing,
        ).exact
        assert "point_mass" in verdict.remedy


A, B = 0, 1


@pytest.fixture
def worked():
    """One request whose first token has target (.3, .7) and draft (.6, .4)."""
    request = Request(np.random.default_rng(0), "autoregressive")
    request.target[()] = np.array([0.3, 0.7])
    request.draft[()] = np.array([0.6, 0.4])
    return request


def chance_of_a(request, plan_of, law):
    """That the first emitted token is a."""
    drafts = itertools.product(range(VOCABULARY), repeat=DEPTH)
    return sum(request.chance(tokens) * emitted(request, tokens, plan_of(tokens), law)[A].sum() for tokens in drafts)


def test_verifying_only_probable_drafts_by_the_ratio_rule_is_wrong(worked):
    def only_probable(tokens):
        return int(worked.draft[()][tokens[0]] >= 0.5)

    assert chance_of_a(worked, only_probable, "sampled") == pytest.approx(0.42, abs=1e-12)
    assert chance_of_a(worked, only_probable, "point_mass") == pytest.approx(0.30, abs=1e-12)


def test_dcut_makes_that_mistake_when_forced_to(worked):
    # One more accepted token pays when (1 + confidence) / 1.5 > 1: at .6, not at .4.
    def plan_of(law):
        drafter = DrafterSpec("draft", "synthetic", law, "parallel", SCORES, 1)
        controller = build_controller("dcut:ratios=all,numerator=bonus", [drafter], allow_lossy=True)
        cost = StepCost(np.array([1.0, 1.5]))

        def plan(tokens):
            score = np.array([[worked.draft[()][tokens[0]]]])
            return int(controller.plan(Draft(drafter, np.array([1]), {"drawn_prob": score}), cost).num_verify[0])

        return plan

    assert chance_of_a(worked, plan_of("sampled"), "sampled") == pytest.approx(0.42, abs=1e-12)
    assert chance_of_a(worked, plan_of("point_mass"), "point_mass") == pytest.approx(0.30, abs=1e-12)


def test_keeping_one_value_of_two_equal_ones_is_wrong(worked):
    worked.target[()] = worked.draft[()] = np.array([0.5, 0.5])
    assert chance_of_a(worked, lambda tokens: int(tokens[0] == A), "sampled") == pytest.approx(0.75, abs=1e-12)


def test_the_best_of_this_steps_budgets_is_wrong_where_a_budget_settled_before_is_right(worked):
    # Score .6 at the first position, .9 or .1 at the second after a or b; seconds 1, 1.7, 1.75.
    # After a: 2.14 / 1.75 beats 1 / 1, so a is verified. After b: 1.66 / 1.75 does not, so b is not.
    drafter = DrafterSpec("draft", "synthetic", "sampled", "autoregressive", SCORES, DEPTH)
    cost = StepCost(np.array([1.0, 1.7, 1.75]))

    def plan_of(spec):
        controller = build_controller(spec, [drafter], allow_lossy=True)

        def plan(tokens):
            scores = np.array([[0.6, 0.9 if tokens[0] == A else 0.1]])
            return int(controller.plan(Draft(drafter, np.array([2]), {"max_prob": scores}), cost).num_verify[0])

        return plan

    looking_ahead = plan_of("dcut:ratios=all,numerator=bonus,score=max_prob")
    assert (looking_ahead((A, A)), looking_ahead((B, A))) == (2, 0)
    assert chance_of_a(worked, looking_ahead, "sampled") == pytest.approx(0.42, abs=1e-12)
    settled = plan_of("fixed_ratio:ratio=.5,score=max_prob")
    assert chance_of_a(worked, settled, "sampled") == pytest.approx(0.30, abs=1e-12)
