"""What the phases of a step are said to have taken."""

import numpy as np
import pytest

from specsim.live.sampling import SamplingParams
from tests.live.engine.engines import build_engine

PROMPT = 17
ROUNDS_UP = next(seconds for seconds in np.arange(1, 999) / 1e5 if seconds - seconds * PROMPT / PROMPT < 0)
"""Seconds that come out larger when they are multiplied by the prompt's tokens and divided by them again."""


@pytest.mark.parametrize("passed", [ROUNDS_UP, 0.25])
def test_a_pass_of_prompts_alone_takes_no_time_to_verify(make_target, monkeypatch, passed):
    engine = build_engine(make_target("float32"), "autoregressive", ("ngram",), depth=2)
    monkeypatch.setattr(engine.clock, "seconds", lambda: {"verify": float(passed)})
    engine.submit(list(range(2, 2 + PROMPT)), SamplingParams(max_tokens=3))
    engine.run()
    steps = engine.tally.steps.table()
    assert steps["verify_seconds"][0] == 0.0
    assert steps["prefill_seconds"][0] == passed
    assert (steps["verify_seconds"] >= 0).all()
    assert steps["verify_seconds"][1] == passed
