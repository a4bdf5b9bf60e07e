"""What a draft tells of each request's past: tokens after its first, and seconds since then."""

from __future__ import annotations

from specsim.cost.examples import linear_table
from specsim.policies.arms.fixed_arm import FixedArm
from specsim.policies.budget.fixed_depth import FixedDepth
from specsim.policies.controller import Controller
from specsim.sim import ClosedLoop, EngineConfig, TraceArrivals, simulate
from tests.sim.hand_trace import HandRequest, HandTrace

COST = linear_table(0.5, 0.0, drafters={"block": 0.25}, max_depth=4)
"""A step of drafts takes three quarters of a second."""


class Spy(FixedDepth):
    """Notes what each draft says of its requests."""

    def plan(self, draft, confidence, cost):
        self.seen.append((draft.num_decoded.tolist(), draft.decode_seconds.tolist()))
        return super().plan(draft, confidence, cost)


def seen(trace, workload, **engine):
    spy = Spy()
    object.__setattr__(spy, "seen", [])
    controller = Controller(trace.drafters, FixedArm(num_arms=1), spy)
    return simulate(trace, COST, controller, EngineConfig(**engine), workload), spy.seen


def test_tokens_and_seconds_are_counted_from_the_first_token():
    trace = HandTrace([HandRequest(10, accepted=2)])
    _, told = seen(trace, ClosedLoop(1, 1), prefill="excluded")
    assert told == [([0], [0.0]), ([3], [0.75]), ([6], [1.5])]


def test_each_request_is_told_of_its_own_and_ends_at_what_the_metrics_say():
    trace = HandTrace([HandRequest(9, accepted=1, arrival_at=0.0), HandRequest(13, accepted=3, arrival_at=1.0)])
    run, told = seen(trace, TraceArrivals(), prefill="excluded")
    tokens, seconds = told[-1]
    assert tokens[0] < 12  # the last step of the longer request
    ends = {int(row["request_id"]): row for row in run.requests}
    last = ends[101]
    assert seconds[0] + 0.75 == last["finished_at"] - last["first_token_at"]
