"""D-cut's Triton program against its definition: survival scores and plans, bit for bit."""

import itertools
import os

import numpy as np
import pytest

from specsim.core import SCORES, Draft, DrafterSpec, StepCost
from specsim.errors import InputError
from specsim.kernels.launches import LAUNCHES, reset
from specsim.policies.budget.dcut import DCut
from specsim.policies.budget.fixed_depth import FixedDepth
from specsim.policies.survival import namespace, survival_scores

torch = pytest.importorskip("torch", reason="torch comes with the extra `live`")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported, which no test has done yet
pytest.importorskip("triton", reason="triton comes with the extra `live`")

SPEC = DrafterSpec("draft", "synthetic", "point_mass", "parallel", SCORES, 15)
OPTIONS = [
    {"ratios": ratios, "include_zero": zero, "count": count, "numerator": numerator}
    for ratios, zero, count, numerator in itertools.product(
        [(0.25, 0.5, 0.75, 1.0), (0.9, 0.07, 0.3), "all"], [False, True], ["paper", "code"], ["paper", "bonus"]
    )
]


@pytest.fixture(params=("cpu", pytest.param("cuda", marks=pytest.mark.gpu)))
def twin(request):
    """Scores and plan of the twin, from numpy arrays, beside those of the definition on the same device."""
    from triton import knobs

    from specsim.kernels.dcut_triton import scores_and_plan

    if (request.param == "cpu") != bool(knobs.runtime.interpret):
        pytest.skip("Triton interprets on the CPU or compiles for the GPU, in one process only one of them")

    def asarray(values):
        return torch.asarray(np.array(values), device=request.param)

    def call(policy, confidence, num_drafts, seconds):
        confidence, num_drafts = asarray(confidence), asarray(num_drafts)
        draft, cost = Draft(SPEC, num_drafts, {}), StepCost(asarray(seconds))
        scores, plan = scores_and_plan(policy, draft, confidence, cost)
        defined = survival_scores(confidence, num_drafts, namespace(confidence))
        on_cpu = policy.plan(Draft(SPEC, num_drafts.cpu(), {}), confidence.cpu(), StepCost(cost.seconds.cpu()))
        assert scores.cpu().numpy().tobytes() == defined.cpu().numpy().tobytes()
        assert (
            scores.cpu().numpy().tobytes()
            == survival_scores(
                confidence.cpu().numpy(), num_drafts.cpu().numpy(), namespace(confidence.cpu().numpy())
            ).tobytes()
        )
        assert plan.tolist() == on_cpu.tolist() == policy.plan(draft, confidence, cost).tolist()
        return plan.tolist()

    call.asarray = asarray
    return call


def flat_and_steep(size, rng):
    """Seconds that rise by nothing, little or much from budget to budget."""
    return 0.01 * (1 + np.cumsum(rng.random(size) * rng.choice([0.0, 0.01, 0.3])))


def confidences(kind, rng, shape):
    drawn = rng.random(shape)
    return {
        "random": drawn,
        "many certain": np.where(rng.random(shape) < 0.6, 1.0, drawn),
        "tied": np.round(drawn * 4) / 4,
        "all certain": np.ones(shape),
        "underflowing": np.full(shape, 1e-30) * (1 + drawn),
        "denormal": np.full(shape, 3e-162),
        "half units": np.round(drawn * 2**30) / 2**30 + 2.0**-31,
    }[kind]


KINDS = ("random", "many certain", "tied", "all certain", "underflowing", "denormal", "half units")


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_every_option_plans_as_defined(options, twin):
    rng = np.random.default_rng(OPTIONS.index(options))
    for kind in rng.choice(KINDS, 2):
        batch, depth = rng.integers(1, 9), rng.integers(1, 8)
        num_drafts = rng.integers(0, depth + 1, batch)
        seconds = flat_and_steep(batch * depth + 1, rng)
        twin(DCut(**options), confidences(kind, rng, (batch, depth)), num_drafts, seconds)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drafted", ["ragged", "full", "none"])
def test_every_kind_of_confidence_gives_the_same_bits(kind, drafted, twin):
    rng = np.random.default_rng(KINDS.index(kind))
    batch, depth = 5, 6
    num_drafts = {"ragged": rng.integers(0, depth + 1, batch), "full": [depth] * batch, "none": [0] * batch}[drafted]
    for ratios in ((0.25, 0.5, 0.75, 1.0), "all"):
        plan = twin(
            DCut(ratios=ratios), confidences(kind, rng, (batch, depth)), num_drafts,
            flat_and_steep(batch * depth + 1, rng),
        )  # fmt: skip
        assert all(0 <= kept <= most for kept, most in zip(plan, num_drafts, strict=True))


@pytest.mark.parametrize(("batch", "depth"), [(1, 1), (1, 15), (32, 15), (33, 1), (128, 8)])
def test_sizes_that_need_padding_and_sizes_that_do_not(batch, depth, twin):
    rng = np.random.default_rng(batch)
    confidence = confidences("many certain", rng, (batch, depth))
    twin(DCut(ratios="all"), confidence, rng.integers(0, depth + 1, batch), flat_and_steep(batch * depth + 1, rng))


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "depth"), [(512, 15), (1024, 16)])
def test_the_largest_sizes(batch, depth, twin):
    test_sizes_that_need_padding_and_sizes_that_do_not(batch, depth, twin)


def test_of_equal_utilities_the_cheapest_wins(twin):
    # Half, all: 1 / .02 and 2 / .04; nothing verified, with a bonus token: 1 / .01 and 2 / .02.
    plan = DCut(ratios=(0.5, 1.0))
    assert twin(plan, [[1.0, 1.0]], [2], [0.01, 0.02, 0.04]) == [1]
    plan = DCut(ratios="all", numerator="bonus")
    assert twin(plan, [[1.0, 1.0]], [2], [0.01, 0.02, 0.04]) == [0]


def test_positions_level_with_the_cut_fill_by_request_and_depth(twin):
    plan = DCut(ratios=(0.5,))
    assert twin(plan, np.full((4, 2), 1.0), [2] * 4, np.ones(9)) == [2, 2, 0, 0]
    assert twin(plan, [[0.5, 1.0], [1.0, 0.5], [0.5, 1.0]], [2] * 3, np.ones(7)) == [2, 1, 0]


def test_a_sum_is_rounded_half_to_even(twin):
    confidence = [[2.0**-31], [3 * 2.0**-31], [5 * 2.0**-31]]  # half a unit, 1.5 and 2.5: 0, 2 and 2
    # By budget 0, 2 / 1, 4 / 1.9 and 4 / 100; had halves gone up, 3 / 1 had been better than 5 / 1.9.
    assert twin(DCut(ratios="all"), confidence, [1] * 3, [1.0, 1.0, 1.9, 100.0]) == [0, 1, 1]


def test_case_27_fifteen_confidences_that_underflow_are_still_a_prefix(twin):
    assert twin(DCut(ratios=(0.2,)), np.full((1, 15), 1e-30), [15], np.ones(16)) == [3]


def test_no_confidence_at_all_as_a_controller_makes_of_nan_ends_a_request(twin):
    seen = np.array([[0.9, 0.0, 0.8], [0.0, 0.9, 0.9]])
    assert twin(DCut(ratios=(0.5,)), seen, [3, 3], np.ones(7)) == [3, 0]


def test_strided_confidences_are_read_where_they_lie(twin):
    confidence = twin.asarray(np.random.default_rng(3).random((6, 4))).T
    from specsim.kernels.dcut_triton import plan

    policy, num_drafts = DCut(), twin.asarray([6, 5, 0, 2])
    cost = StepCost(twin.asarray(np.linspace(1, 2, 25)))
    assert plan(policy, Draft(SPEC, num_drafts, {}), confidence, cost).tolist() == (
        policy.plan(Draft(SPEC, num_drafts, {}), confidence.contiguous(), cost).tolist()
    )


def test_what_the_program_does_not_plan_is_refused(twin):
    from specsim.kernels.dcut_triton import plan

    ones, many = np.ones((2, 3)), np.ones((1025, 16))
    reset()
    nobody = Draft(SPEC, twin.asarray(np.zeros(0, np.int64)), {})
    assert plan(DCut(), nobody, twin.asarray(np.ones((0, 3))), StepCost(twin.asarray(np.ones(1)))).tolist() == []
    assert LAUNCHES["plan"] == 0
    twin(DCut(), ones, [3, 3], np.ones(7))
    assert LAUNCHES["plan"] == 1
    for arguments, message in [
        ((FixedDepth(), ones, [3, 3], np.ones(7)), "the policy is FixedDepth: allowed is DCut itself"),
        ((DCut(), ones.astype(np.float32), [3, 3], np.ones(7)), r"confidence is torch\.float32 \(2, 3\)"),
        ((DCut(), np.ones((2, 0)), [0, 0], np.ones(1)), r"confidence is torch\.float64 \(2, 0\)"),
        ((DCut(), ones, [3, 3, 3], np.ones(7)), r"num_drafts is torch\.int64 \(3,\): allowed is torch\.int64 \[2\]"),
        ((DCut(), ones, [3, 3], np.ones(6)), r"seconds is torch\.float64 \(6,\): allowed is torch\.float64 \[7\]"),
        ((DCut(), many, [16] * 1025, np.ones(16401)), "1025 requests of 16 drafts: allowed are 16384 scores"),
    ]:
        with pytest.raises(InputError, match=message):
            twin(*arguments)
