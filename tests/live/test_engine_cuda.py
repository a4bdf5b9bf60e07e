"""The engine on CUDA: captured graphs over Triton's kernels say what eager passes and the CPU's definitions say.

Tiny models in float32, whose greedy tokens lead by far more than either device rounds.
"""

import warnings
from collections import Counter
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specsim.cost.examples import staircase_table
from specsim.kernels import attention, pack, verify
from specsim.kernels.launches import LAUNCHES, reset
from specsim.live import cpu_attention
from specsim.live.acceptor import TargetAcceptor
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.near_ties import check_near_ties
from specsim.live.packed_passes import PackedPasses
from specsim.live.runner import ModelRunner
from specsim.live.sampling import SamplingParams
from specsim.live.trajectory import TrajectoryRecorder
from specsim.policies.budget.dcut import DCut
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig
from tests.live.drafters.scripted import as_drafter, wobbled
from tests.live.drafters.trained import as_arm, block_net, eagle_net
from tests.live.engine.engines import generate, some_prompts
from tests.live.parity_runs import drive, take_again

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
DEPTH = 5
BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""The largest holds all prompts of a test at once, so that no pass is eager."""

LIMITS = {"max_num_seqs": 4, "block_size": 16, "max_model_len": 64}
LENGTHS = (5, 17, 1, 9)
NUM_TOKENS = 16
NUM_LAYERS = 4
LEAD = 1e-3
"""By how much a greedy token must lead: a hundred times what float32 rounds."""

SPECS = ("fixed_depth@ngram", "dcut@ngram", "dcut@ucb1")
GREEDY = SamplingParams(max_tokens=NUM_TOKENS)


@pytest.fixture(scope="module")
def on_cpu(make_target):
    """A target without a stop token."""
    return replace(make_target("float32", vocab_size=20, eos_token_id=None), tokenizer=None)


@pytest.fixture(scope="module")
def target(on_cpu):
    return moved(on_cpu)


def moved(loaded):
    """The same model on the GPU."""
    return replace(loaded, model=deepcopy(loaded.model).to(DEVICE), device=DEVICE)


def named(*names):
    """Makers of drafters that need nothing but the target."""
    return [lambda setup, depth, name=name: build_live_drafter(name, setup, depth) for name in names]


def build(target, spec, makers=None, buckets=BUCKETS, seed=0, **limits):
    """An engine whose prices are those of its buckets, on which D-cut keeps neither all nor nothing."""
    config = EngineConfig(**LIMITS | limits)
    setup = LiveSetup(target, config, DEPTH, EngineOptions(), buckets)
    drafters = [make(setup, DEPTH) for make in makers or named("ngram", "exit3")]
    specs = [drafter.spec for drafter in drafters]
    heights = {1: 1e-3, 2: 1e-3, 4: 1.1e-3, 8: 1.6e-3, 16: 3e-3, 32: 8e-3, 64: 2e-2}
    prices = staircase_table(heights, (1, 2, 4), {one.name: 2e-4 for one in specs}, DEPTH)
    controller = build_controller(spec, specs, live=True)
    return Engine(setup, drafters, controller, prices, config, EngineOptions(seed))


def tokens(requests):
    return [request.token_ids for request in requests]


def leads(loaded, prompt, output):
    """[T], by how much each token of a greedy output leads over the next best."""
    model = deepcopy(loaded.model)
    model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt.tolist(), *output]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    top = logits.topk(2).values
    return (top[:, 0] - top[:, 1]).numpy()


@pytest.fixture(scope="module")
def prompts(on_cpu):
    """Prompts whose outputs are nowhere nearly level, one of each length."""
    found = []
    for place, length in enumerate(LENGTHS):
        for seed in range(20):
            drawn = some_prompts(seed, [4, length] if place % 2 else [length, 4], high=20)[place % 2]
            engine = build(on_cpu, "autoregressive", named("ngram"))
            (output,) = tokens(generate(engine, [drawn], GREEDY))
            if leads(on_cpu, drawn, output).min() > LEAD:
                found.append(drawn)
                break
    assert len(found) == len(LENGTHS)
    return found


@pytest.fixture(scope="module")
def expected(on_cpu, prompts):
    """Greedy tokens on the CPU, by the definitions."""
    return tokens(generate(build(on_cpu, "autoregressive"), prompts, GREEDY))


@pytest.fixture
def no_definitions(monkeypatch):
    """Whoever calls a definition fails."""

    def refuse(name):
        def call(*arguments, **options):
            raise AssertionError(f"the definition of {name} was called on a GPU")

        return call

    for module, names in (
        (pack, ["pack"]),
        (verify, ["verify"]),
        (attention, ["ragged_paged_attention", "store_kv"]),
        (cpu_attention, ["attend", "prepare", "store_kv"]),
        (DCut, ["plan"]),
    ):
        for name in names:
            monkeypatch.setattr(module, name, refuse(name))


@pytest.fixture
def calls(monkeypatch):
    """How often the engine's own parts were called."""
    counted = Counter()

    def count(owner, name, key):
        honest = getattr(owner, name)

        def call(*arguments, **options):
            counted[key] += 1
            return honest(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    count(PackedPasses, "_capture", "captures")
    count(PackedPasses, "_replay", "replays")
    count(ModelRunner, "_eager", "bodies")
    count(TargetAcceptor, "judge", "judged")
    return counted


def decoded(engine):
    """Records of the steps in which anyone decoded."""
    steps = engine.tally.steps.table()
    return steps[steps["batch"] > 0]


@pytest.mark.parametrize("spec", ["dcut@ngram", "fixed_depth@ngram"])
def test_captured_passes_launch_triton_at_capture_and_never_again(
    target, prompts, expected, no_definitions, calls, spec
):
    reset()
    engine = build(target, spec, named("ngram"))
    assert calls == {"bodies": 1}  # the check of the model
    engine.setup.runner.capture()
    captured = calls["captures"]
    assert captured == len(BUCKETS)
    assert calls["bodies"] == 1 + 3 * captured
    assert {"pack": LAUNCHES["pack"], "store_kv": LAUNCHES["store_kv"]} == {
        "pack": calls["bodies"],
        "store_kv": NUM_LAYERS * calls["bodies"],
    }
    assert tokens(generate(engine, prompts, GREEDY)) == expected
    steps = engine.tally.steps.table()
    # A pass of fewer requests is captured apart, so there may be more graphs now; no pass was eager.
    assert calls["bodies"] == 1 + 3 * calls["captures"]
    assert calls["replays"] == len(steps)
    check_launches(engine, calls, spec)


@pytest.mark.parametrize("spec", ["dcut@ngram", "fixed_depth@ngram"])
def test_eager_passes_launch_triton_each_time(target, prompts, expected, no_definitions, calls, spec):
    reset()
    engine = build(target, spec, named("ngram"), buckets=())
    assert tokens(generate(engine, prompts, GREEDY)) == expected
    assert calls["bodies"] == 1 + len(engine.tally.steps.table())
    assert not calls["captures"] + calls["replays"]
    check_launches(engine, calls, spec)


def check_launches(engine, calls, spec):
    """Packing once a pass body, attention in each of its layers, verdicts as they were asked, D-cut's plans."""
    assert LAUNCHES["pack"] == calls["bodies"]
    assert LAUNCHES["store_kv"] == LAUNCHES["ragged_paged_attention"] == NUM_LAYERS * calls["bodies"]
    steps, speculated = decoded(engine), decoded(engine)["depth"] > 0
    assert speculated.all()
    assert LAUNCHES["verify"] == calls["judged"] > len(steps)
    assert LAUNCHES["plan"] == (len(steps) if spec.startswith("dcut") else 0)
    assert engine.tally.finish().num_accepted > 0


@pytest.mark.parametrize("spec", SPECS)
def test_captured_and_eager_passes_and_the_cpu_say_the_same(on_cpu, target, prompts, expected, spec):
    runs = [build(on_cpu, spec), build(target, spec), build(target, spec, buckets=())]
    for engine in runs:
        assert tokens(generate(engine, prompts, GREEDY)) == expected
        assert engine.tally.finish().num_accepted > 0
    assert [bool(engine.setup.runner.buckets) for engine in runs] == [False, True, False]


@pytest.mark.parametrize("spec", ["autoregressive", *SPECS])
def test_telemetry_pays_what_the_cost_table_says_is_paid(target, prompts, spec):
    engine = build(target, spec)
    generate(engine, prompts, GREEDY)
    assert engine.cost.meta.capture_sizes == engine.setup.runner.buckets == BUCKETS
    steps = decoded(engine)
    steps = steps[steps["prefill_tokens"] == 0]
    assert len(steps) > 2
    for row in steps:
        batch, verified = int(row["batch"]), int(row["num_verified"])
        assert row["num_tokens_paid"] == engine.cost.tokens_paid(batch, batch + verified)


@pytest.mark.parametrize("buckets", [BUCKETS, ()])
@pytest.mark.parametrize("spec", ["autoregressive", "fixed_depth@ngram", "fixed_depth@exit3", "dcut@exit3"])
def test_what_is_launched_ahead_of_a_step_changes_nothing(target, prompts, expected, spec, buckets):
    runs = [build(target, spec, buckets=buckets) for _ in range(2)]
    runs[1]._stepper.ahead.enabled = False
    for engine in runs:
        assert tokens(generate(engine, prompts, GREEDY)) == expected
    decided = ["batch", "depth", "num_drafted", "num_verified", "num_accepted", "num_tokens_paid", "plan_hash"]
    steps = [engine.tally.steps.table()[decided] for engine in runs]
    assert steps[0].tolist() == steps[1].tolist()
    assert [engine._stepper.ahead.num_taken > 0 for engine in runs] == [True, False]


class Copies(TorchDispatchMode):
    """What is read of the device, in order, and whatever else is noted between.

    Under inference mode an operator may come as it was called, or as what it is made of: hence the pairs of names.

    device  type of the device
    """

    NUMBERS = ("item", "_local_scalar_dense", "is_nonzero")
    SIZES = ("nonzero", "masked_select", "equal")

    def __init__(self, device):
        super().__init__()
        self.device, self.seen = device, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        there = [value.device.type == self.device for value in tensors]
        if name in self.NUMBERS and any(there):
            self.seen.append("read")
        elif name in self.SIZES and any(there):
            self.seen.append(name)
        elif name == "copy_" and there == [False, True]:
            self.seen.append("copy")
        elif name in ("to", "_to_copy") and any(there) and out.device.type != self.device:
            self.seen.append("moved")
        return out


def warmed(target, spec, prompts):
    """An engine whose requests all decode, and whose graphs are there."""
    engine = build(target, spec, named("ngram"))
    generate(engine, prompts, GREEDY)
    for prompt in prompts:
        engine.submit(prompt, GREEDY)
    while engine.scheduler.waiting or engine.scheduler.prefilling:
        engine.step()
    return engine


@pytest.mark.parametrize(
    ("spec", "reads"),
    [
        ("autoregressive", ["copy", "launch"]),  # the pass is the next step's
        ("fixed_depth@ngram", ["read", "launch", "copy"]),
        ("dcut@ngram", ["read", "launch", "copy"]),
    ],
)
def test_a_step_reads_one_number_before_its_pass_and_makes_one_copy_after_it(target, prompts, monkeypatch, spec, reads):
    """The number is the plan's sum, which says which graph runs; the copy is all that the step found out."""
    engine = warmed(target, spec, prompts)
    engine.step()
    honest = PackedPasses._replay
    copies = Copies(DEVICE)

    def replay(passes, size, rows):
        copies.seen.append("launch")
        return honest(passes, size, rows)

    monkeypatch.setattr(PackedPasses, "_replay", replay)
    for _ in range(3):
        copies.seen.clear()
        with copies:
            engine.step()
        assert copies.seen == reads
    engine.run()


@contextmanager
def waits():
    """Warnings of every call that makes the host wait for the device."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(mode)


@pytest.mark.parametrize(("spec", "most"), [("autoregressive", 0), ("fixed_depth@ngram", 1), ("dcut@ngram", 1)])
def test_the_host_waits_for_nothing_else(target, prompts, spec, most):
    """Whatever waits, be it inside an operator; the one wait for the step's copy is an event's, which is not told."""
    engine = warmed(target, spec, prompts)
    counted = 0
    for _ in range(5):
        engine._stepper._costs._copies.clear()  # a price that was not asked before is copied, and waits for nothing
        with waits() as found:
            engine.step()
        synchronised = [str(each.message) for each in found if "called a synchronizing" in str(each.message)]
        if len(engine.scheduler.decoding) == len(LENGTHS):
            counted += 1
            assert len(synchronised) <= most, synchronised
    assert counted
    engine.run()


@pytest.mark.parametrize("spec", ["dcut@ucb1", "dcut@contextual:scope=request", "confidence_stop@exit3"])
def test_decisions_over_captured_graphs_are_taken_again(target, tmp_path, spec):
    """With preemptions, prompts in pieces, and arrivals; `test_parity` does the same over eager passes."""
    blocks = {"max_num_seqs": 3, "max_num_batched_tokens": 24, "num_kv_blocks": 7}
    engine = build(target, spec, seed=3, **blocks)
    with TrajectoryRecorder(tmp_path / "run", engine):
        drive_without_text(engine)
    steps, difference = take_again(tmp_path / "run")
    assert difference is None, difference
    assert len(steps) == engine.tally.totals.num_steps


def drive_without_text(engine):
    """`parity_runs.drive` for a model without a tokenizer: no stop texts, and tokens that it has."""
    submit = engine.submit

    def plain(prompt, params, **more):
        return submit(np.asarray(prompt) % 20, replace(params, stop=()), **more)

    engine.submit = plain
    drive(engine)


def trained(target):
    """Random heads and blocks on the target's device."""
    return {"eagle": eagle_net(target), "block": block_net(target)}


class Drafts:
    """Keeps what every step proposed, on the host."""

    def __init__(self, engine):
        self.tokens, self.scores = [], []
        engine.observers.append(self)

    def on_step(self, row, step, emission):
        if step.seen is None:
            return
        there = np.arange(step.tokens.shape[1]) < step.seen.num_drafts[:, None]
        self.tokens.append(np.where(there, step.tokens, -1).tolist())
        self.scores.append({name: values.copy() for name, values in step.scores.items()})

    def on_request(self, request):
        pass


def arm_of(kind, on_cpu, device_target):
    """A maker of one drafter of random weights, or near the target."""
    if kind == "model":
        near = wobbled(on_cpu)
        near = moved(near) if device_target is not on_cpu else replace(near, model=deepcopy(near.model))
        return as_drafter(near)
    net = trained(on_cpu)[kind]
    return as_arm(net.to(DEVICE) if device_target is not on_cpu else net, name=kind)


@pytest.mark.parametrize("kind", ["eagle", "block", "model"])
def test_trained_drafters_and_models_draft_the_same_captured_eagerly_and_on_the_cpu(
    on_cpu, target, prompts, expected, calls, kind
):
    """Tokens are equal; probabilities and margins are but for float32's rounding."""
    found = []
    for own, buckets in ((on_cpu, ()), (target, ()), (target, BUCKETS)):
        calls.clear()
        engine = build(own, "fixed_depth", [arm_of(kind, on_cpu, own)], buckets=buckets)
        drafts = Drafts(engine)
        assert tokens(generate(engine, prompts, GREEDY)) == expected
        found.append(drafts)
        # Passes of the target and of the drafter: nothing ran eagerly but the checks of models, one each.
        if buckets:
            assert calls["replays"] > len(engine.tally.steps.table())
            assert calls["bodies"] <= 2 + 3 * calls["captures"]
    definition = found[0]
    assert len(definition.tokens) > 3
    for other in found[1:]:
        assert other.tokens == definition.tokens
        for one, two in zip(definition.scores, other.scores, strict=True):
            for name in one:
                np.testing.assert_allclose(two[name], one[name], rtol=1e-3, atol=1e-4, err_msg=name)
    if kind == "model":
        assert engine.tally.finish().num_accepted > 0


def test_sampled_outputs_are_the_definitions_for_the_same_seeds(on_cpu, target, prompts):
    """Certain drafts. A draw whose uniform lies within float32's rounding of the edge between two tokens may fall to
    either side: some 1e-6 a token, and 500 are drawn here; the seeds are fixed, so that it happens always or never."""
    laws = ({"temperature": 0.7}, {"temperature": 1.3}, {"temperature": 1.0, "top_k": 5}, {"temperature": 0.0})
    params = [SamplingParams(max_tokens=40, seed=seed, **law) for seed, law in enumerate(laws)]
    plain = tokens(generate(build(on_cpu, "autoregressive"), prompts, params))
    for spec in ("autoregressive", "fixed_depth@ngram", "dcut@exit3"):
        for buckets in (BUCKETS, ()):
            engine = build(target, spec, buckets=buckets)
            assert tokens(generate(engine, prompts, params)) == plain, (spec, buckets)
    assert engine.tally.finish().num_accepted > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_captured_passes_differ_from_plain_decoding_at_near_ties_only(make_target, dtype):
    target = moved(replace(make_target(dtype, vocab_size=20, eos_token_id=None), tokenizer=None))
    prices = staircase_table(dict.fromkeys(BUCKETS, 1e-3), (1, 2, 4), {"ngram": 2e-4, "exit3": 2e-4}, DEPTH)
    drafts = some_prompts(lengths=LENGTHS, high=20)

    def arms(setup, depth):
        return [make(setup, depth) for make in named("ngram", "exit3")]

    specs = ["fixed_depth@exit3", "dcut@ucb1"]
    for found in check_near_ties(target, drafts, specs, arms, prices, depth=DEPTH, max_tokens=40):
        assert found.ok, found.faults
        assert set(found.noise) <= set(BUCKETS)
        assert dtype == "bfloat16" or not found.differences
