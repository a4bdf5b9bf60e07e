"""Small engines on tiny models, built in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import numpy as np

from specsim.cost import CostTable
from specsim.cost.examples import linear_table
from specsim.errors import InputError
from specsim.live.drafters.early_exit import EarlyExit
from specsim.live.drafters.live_early_exit import LiveEarlyExit
from specsim.live.drafters.live_ngram import LiveNgram
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.requests import LiveRequest
from specsim.live.runner import ModelRunner
from specsim.live.sampling import SamplingParams
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig

DEPTH = 5
LIMITS = {"max_num_seqs": 4, "block_size": 4, "max_model_len": 96}

DrafterMaker = Callable[[LiveSetup, int], object]
"""(setup, max_depth) -> LiveDrafter."""


def ngram(setup: LiveSetup, depth: int) -> LiveNgram:
    """Prompt lookup."""
    return LiveNgram(depth, setup.device)


def early_exit(num_layers: int, law: str = "point_mass") -> DrafterMaker:
    """The target's first layers."""

    def make(setup: LiveSetup, depth: int) -> LiveEarlyExit:
        exit_ = EarlyExit(setup.target, num_layers, depth)
        runner = ModelRunner(exit_.model, setup.kv, setup.pool, setup.state.history, setup.ops)
        return LiveEarlyExit(exit_, runner, law)

    return make


DRAFTERS: dict[str, DrafterMaker] = {"ngram": ngram, **{f"exit{layer}": early_exit(layer) for layer in (1, 2, 3)}}
"""Every drafter that needs nothing but the target, by its arm's name."""


def table(names: Sequence[str], per_token: float = 2e-4) -> CostTable:
    """A made-up price list on which budgets come out neither empty nor full."""
    return linear_table(1e-3, per_token, (1, 1024), drafters=dict.fromkeys(names, 2e-4))


def build_engine(
    target,
    spec: str = "fixed_depth",
    drafters: Sequence[str | DrafterMaker] = ("ngram",),
    *,
    depth: int = DEPTH,
    seed: int = 0,
    cost: CostTable | None = None,
    acceptor=None,
    observers=(),
    options: EngineOptions | None = None,
    **limits,
) -> Engine:
    """An engine over a tiny model.

    spec      the controller's text
    drafters  keys of DRAFTERS, or makers
    depth     deepest draft of every drafter
    options   of the engine (None: none but the seed)
    limits    fields of EngineConfig
    """
    config = EngineConfig(**LIMITS | limits)
    setup = LiveSetup(target, config, depth, EngineOptions())
    arms = [
        DRAFTERS[drafter](setup, depth) if isinstance(drafter, str) else drafter(setup, depth) for drafter in drafters
    ]
    specs = [arm.spec for arm in arms]
    controller = build_controller(spec, specs, live=True)
    prices = cost or table([spec.name for spec in specs])
    return Engine(setup, arms, controller, prices, config, options or EngineOptions(seed), acceptor, observers)


def generate(engine: Engine, prompts: Sequence, params: SamplingParams | Sequence[SamplingParams]) -> list[LiveRequest]:
    """Submit all prompts, run, and see that nothing is left behind.

    params  of all, or one each
    """
    each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    requests = [engine.submit(prompt, own) for prompt, own in zip(prompts, each, strict=True)]
    engine.run()
    check_all_is_given_back(engine)
    return requests


def check_all_is_given_back(engine: Engine) -> None:
    """No block, slot or request is left in an idle engine, and every block is free exactly once."""
    pool, scheduler = engine.setup.pool, engine.scheduler
    assert not engine.scheduler.has_work()
    assert pool.used == 0
    assert not pool.held.any()
    assert not pool.table.any()
    assert sorted(pool._free) == list(range(1, pool.num_blocks + 1))
    assert sorted(scheduler.slots.free) == list(range(len(scheduler.slots.requests)))
    assert scheduler.slots.requests == [None] * len(scheduler.slots.requests)
    assert scheduler.total_length == 0


def some_prompts(seed: int = 3, lengths: Sequence[int] = (5, 17, 1, 9, 12, 3), low: int = 2, high: int = 50) -> list:
    """Random prompts of these lengths; every other one repeats itself, so that prompt lookup finds something."""
    rng = np.random.default_rng(seed)
    made = [rng.integers(low, high, length) for length in lengths]
    return [
        np.resize(prompt[:4], len(prompt)) if turn % 2 else prompt for turn, prompt in zip(count(), made, strict=False)
    ]


def refusal(call: Callable[[], object]) -> str:
    """The one line with which something is refused."""
    try:
        call()
    except InputError as error:
        return str(error)
    raise AssertionError("it was not refused")
