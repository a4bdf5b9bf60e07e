"""Drafters, drafts and outcomes as small as a test needs them, on each array library."""

import numpy as np
import pytest

from specsim.core import SCORES, Draft, DrafterSpec, Order, Outcome, StepContext, StepCost, StepSeconds


@pytest.fixture(params=("numpy", "torch", "array_api_strict"))
def library(request):
    """Each array library in turn; array_api_strict refuses shapes that depend on data."""
    if request.param == "torch":
        yield pytest.importorskip("torch", reason="torch comes with the extra `live`")
    elif request.param == "array_api_strict":
        import array_api_strict

        with array_api_strict.ArrayAPIStrictFlags(data_dependent_shapes=False):
            yield array_api_strict
    else:
        yield np


@pytest.fixture
def drafter():
    """A drafter: greedy, parallel, with every score and depth 15 unless told otherwise."""

    def make(name="draft", **changes):
        facts = {"kind": "synthetic", "law": "point_mass", "structure": "parallel", "scores": SCORES, "max_depth": 15}
        return DrafterSpec(name=name, **(facts | changes))

    return make


@pytest.fixture
def proposal(drafter):
    """A draft with these confidences under every score, on the library given; numpy arrays refuse writing."""

    def make(confidence, num_drafts=None, xp=np, num_acceptable=None, **changes):
        confidence = np.array(confidence, dtype=np.float64)
        if num_drafts is None:
            num_drafts = np.full(confidence.shape[0], confidence.shape[1])

        def own(values, dtype):
            array = xp.asarray(np.array(values, dtype=dtype))
            if xp is np:
                array.flags.writeable = False
            return array

        return Draft(
            drafter=drafter(**changes),
            num_drafts=own(num_drafts, np.int64),
            scores=dict.fromkeys(SCORES, own(confidence, np.float64)),
            num_acceptable=None if num_acceptable is None else own(num_acceptable, np.int64),
        )

    return make


@pytest.fixture
def context():
    """A step of four requests, drafting and verifying everything taking up to twice a plain step."""

    def price(drafter, depth):
        return StepCost(np.linspace(0.01, 0.01 * (1 + depth / drafter.max_depth), 4 * depth + 1))

    rng = np.random.default_rng(0)
    return StepContext(step=0, now=0.0, batch=4, num_waiting=0, mean_context=100.0, rng=rng, price=price)


@pytest.fixture
def outcome(proposal):
    """What a step brought: verified and accepted drafts of each request, and its seconds."""

    def make(num_verify, num_accepted, seconds=0.01, num_emitted=None, arm=0, depth=None):
        verify, accepted = np.asarray(num_verify, dtype=np.int64), np.asarray(num_accepted, dtype=np.int64)
        return Outcome(
            order=Order(arm=arm, depth=int(verify.max()) if depth is None else depth),
            draft=proposal(np.full((len(verify), max(int(verify.max()), 1)), 0.5)),
            num_verify=verify,
            num_accepted=accepted,
            num_emitted=accepted + 1 if num_emitted is None else np.asarray(num_emitted, dtype=np.int64),
            seconds=StepSeconds(verify=seconds),
        )

    return make
