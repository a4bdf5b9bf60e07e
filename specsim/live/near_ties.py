"""Tells rounding from faults where greedy outputs under speculation differ from plain decoding's.

In bfloat16 a pass of one token a request and a pass over packed drafts round differently, and where two tokens are
nearly level either may come out. So both runs' passes are taken again over the speculative output, fed as it stands:
the laws differ by no more than the noise of the shape, and every token must be best in plain decoding's law but for
that noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from specsim.cost import CostTable
from specsim.live.drafters.batch import LiveDrafter
from specsim.live.engine import Engine, LiveSetup
from specsim.live.engine_options import EngineOptions
from specsim.live.models import LoadedModel
from specsim.live.retaken_passes import Pass, PassRecorder, Tokens, laws_of
from specsim.live.sampling import SamplingParams
from specsim.policies.build import build_controller
from specsim.serving import EngineConfig

MOST_NOISE = 1.5
"""Most noise that rounding explains, in standard deviations of a law's logits: of 30 layers in bfloat16 the worst logit
of a few dozen laws is off by 0.2, and a wrong row by 3 and more."""

LEAST_POSITIONS = 32
"""Fewest positions that measure a shape's noise: with fewer, the largest of all shapes counts."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two outputs of a request part.

    request, position          where; an output position
    plain_token, other_token   what either run emitted
    gap                        by how much plain decoding's best logit there is above that of `other_token`; 0 where
                               they are level, of which the first is taken
    """

    request: int
    position: int
    plain_token: int
    other_token: int
    gap: float


@dataclass(frozen=True, slots=True)
class Flip:
    """A token that is not the best one in plain decoding's law.

    request, position   where; an output position
    token               what was emitted
    gap                 by how much the best logit is above its own: the gap of the top two where it is the second
    noise               largest difference of logits between the two shapes, elsewhere in passes of this shape
    shape               tokens of the pass that chose it
    """

    request: int
    position: int
    token: int
    gap: float
    noise: float
    shape: int

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it: either logit may be off by the noise."""
        return self.gap <= 2 * self.noise


@dataclass(frozen=True, slots=True)
class NearTies:
    """What was found of one controller.

    controller      its text
    num_positions   output tokens compared
    num_requests    requests
    num_accepted    drafts in the outputs
    differences     the first of each request whose outputs differ
    flips           tokens of the speculative outputs that plain decoding's law does not put first
    noise           largest difference of logits between a pass of a shape and plain decoding's where both put the
                    token that was emitted first, by shape
    positions       positions it was measured on, by shape
    spread          standard deviation of a law's logits, mean
    faults          what rounding does not explain, in words
    """

    controller: str
    num_positions: int
    num_requests: int
    num_accepted: int
    differences: tuple[Difference, ...]
    flips: tuple[Flip, ...]
    noise: dict[int, float]
    positions: dict[int, int]
    spread: float
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every difference is a near tie."""
        return not self.faults

    def report(self) -> dict[str, Any]:
        """The findings as JSON."""
        gaps = [flip.gap for flip in self.flips]
        return {
            "controller": self.controller,
            "ok": self.ok,
            "faults": list(self.faults),
            "positions": self.num_positions,
            "accepted_drafts": self.num_accepted,
            "requests": self.num_requests,
            "differing_requests": len(self.differences),
            "differing_share": round(len(self.differences) / max(self.num_requests, 1), 4),
            "first_differences": [[found.request, found.position, found.gap] for found in self.differences],
            "level": sum(found.gap == 0 for found in self.differences),
            "near_ties": len(self.flips),
            "near_tie_share": round(len(self.flips) / max(self.num_positions, 1), 5),
            "largest_gap": max(gaps, default=0.0),
            "largest_noise": max(self.noise.values(), default=0.0),
            "largest_gap_in_noise": round(
                max((flip.gap / max(flip.noise, 1e-30) for flip in self.flips), default=0), 4
            ),
            "spread": self.spread,
            "noise_by_shape": {str(shape): [self.positions[shape], self.noise[shape]] for shape in sorted(self.noise)},
        }


@dataclass
class NearTieGate:
    """Holds controllers against plain decoding of the same engine.

    setup     the device side, with a slot for every prompt
    prompts   [T] int64 token ids each
    drafters  the arms
    cost      what controllers believe steps take
    config    limits
    max_tokens  output tokens of each request
    """

    setup: LiveSetup
    prompts: Sequence[np.ndarray]
    drafters: Sequence[LiveDrafter]
    cost: CostTable
    config: EngineConfig
    max_tokens: int
    plain: Tokens = field(init=False)
    passes: list[Pass] = field(init=False)

    def __post_init__(self) -> None:
        self.plain, self.passes, _ = self.run("autoregressive")

    def run(self, spec: str) -> tuple[Tokens, list[Pass], int]:
        """Greedy outputs under a controller, the passes behind them, and how many drafts were accepted."""
        controller = build_controller(spec, [drafter.spec for drafter in self.drafters], live=True)
        engine = Engine(self.setup, self.drafters, controller, self.cost, self.config)
        recorder = PassRecorder(engine)
        params = SamplingParams(max_tokens=self.max_tokens, ignore_eos=True)
        requests = [engine.submit(prompt, params) for prompt in self.prompts]
        while engine.step():
            pass
        for request in requests:
            if request.status != "finished":
                raise RuntimeError(f"request {request.request_id} {request.status}: {request.error}")
        return [list(request.token_ids) for request in requests], recorder.passes, engine.tally.finish().num_accepted

    def check(self, spec: str) -> NearTies:
        """Run a controller, and judge every token of its outputs."""
        outputs, passes, num_accepted = self.run(spec)
        return _judge(self, spec, outputs, passes, num_accepted)


def check_near_ties(
    target: LoadedModel,
    prompts: Sequence[np.ndarray],
    specs: Sequence[str],
    drafters: Callable[[LiveSetup, int], Sequence[LiveDrafter]],
    cost: CostTable,
    *,
    depth: int,
    max_tokens: int,
) -> list[NearTies]:
    """Hold controllers against plain decoding of the same engine, greedy, all prompts in one batch.

    specs       controllers, as text
    drafters    makes the arms of a setup and a depth
    cost        what controllers believe steps take; its capture sizes are captured on CUDA
    depth       deepest draft
    max_tokens  output tokens of each request
    """
    longest = max(len(prompt) for prompt in prompts) + max_tokens
    config = EngineConfig(len(prompts), block_size=16, max_model_len=longest)
    setup = LiveSetup(target, config, depth, EngineOptions(), cost.meta.capture_sizes)
    gate = NearTieGate(setup, prompts, drafters(setup, depth), cost, config, max_tokens)
    return [gate.check(spec) for spec in specs]


def _judge(gate: NearTieGate, spec: str, outputs: Tokens, passes: list[Pass], num_accepted: int) -> NearTies:
    with torch.inference_mode():
        plain, best, spread = _plain_laws(gate, outputs)
        gap = best - _of_tokens(plain, _there(gate, outputs))
        noise, chosen_by = _differences_of_laws(gate, passes, outputs, plain)
        own_gap = _own_gaps(gate)
    gaps, deviations = gap.cpu().numpy(), noise.cpu().numpy()
    differences = _first_differences(gate.plain, outputs, gaps)
    agreed = gaps <= 0
    for found in differences:
        agreed[found.request, found.position] = False
    measured = {int(shape): deviations[(chosen_by == shape) & agreed] for shape in np.unique(chosen_by)}
    largest = _noise_of(measured)
    flips = tuple(
        Flip(int(i), int(p), outputs[i][p], float(gaps[i, p]), largest[int(chosen_by[i, p])], int(chosen_by[i, p]))
        for i, p in zip(*np.nonzero(~(gaps <= 0)), strict=True)
    )
    faults = [_fault(flip) for flip in flips if not flip.near_tie]
    faults += _plain_faults(own_gap.cpu().numpy(), 2 * max(largest.values(), default=0.0))
    faults += [
        f"logits of passes of {shape} tokens differ by {value:.3g} from plain ones, {value / spread:.2g} standard "
        f"deviations of a law; rounding explains {MOST_NOISE}"
        for shape, value in largest.items()
        if not value <= MOST_NOISE * spread
    ]
    counts = {shape: len(values) for shape, values in measured.items()}
    return NearTies(
        spec, gaps.size, len(outputs), num_accepted, differences, flips, largest, counts,
        spread, tuple(faults),
    )  # fmt: skip


def _noise_of(measured: dict[int, np.ndarray]) -> dict[int, float]:
    """Largest difference by shape; of all shapes where one was hardly met."""
    largest = {shape: float(values.max(initial=0.0)) for shape, values in measured.items()}
    overall = max(largest.values(), default=0.0)
    return {shape: found if len(measured[shape]) >= LEAST_POSITIONS else overall for shape, found in largest.items()}


def _there(gate: NearTieGate, outputs: Tokens) -> torch.Tensor:
    """[R, T] int64 on the device."""
    return gate.setup.state.on_device(np.array(outputs, np.int64))


def _of_tokens(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[R, T], the logit of each token, at least float32."""
    found = logits.gather(-1, tokens[..., None])[..., 0]
    return found.to(torch.promote_types(found.dtype, torch.float32))


def _plain_laws(gate: NearTieGate, outputs: Tokens) -> tuple[torch.Tensor, torch.Tensor, float]:
    """[R, T, V] laws that plain passes give over some outputs, the best logit [R, T], and the logits' mean spread."""
    shape = (len(outputs), gate.max_tokens)
    plain = best = torch.empty(0)
    spreads = []
    for laws in laws_of(gate.setup, gate.passes, gate.prompts, outputs):
        if not plain.numel():
            wide = torch.promote_types(laws.logits.dtype, torch.float32)
            plain = laws.logits.new_full((*shape, laws.logits.shape[1]), float("nan"))
            best = laws.logits.new_full(shape, float("nan"), dtype=wide)
        plain[laws.requests, laws.positions] = laws.logits
        best[laws.requests, laws.positions] = laws.logits.amax(-1).to(best.dtype)
        spreads.append(laws.logits.to(best.dtype).std(-1))
    return plain, best, float(torch.cat(spreads).mean())


def _differences_of_laws(
    gate: NearTieGate, passes: list[Pass], outputs: Tokens, plain: torch.Tensor
) -> tuple[torch.Tensor, np.ndarray]:
    """Largest difference of any logit between the pass that chose a token and the plain one, and that pass's shape.

    returns  [R, T] each
    """
    noise = plain.new_zeros(plain.shape[:2], dtype=torch.promote_types(plain.dtype, torch.float32))
    shapes = torch.zeros(plain.shape[:2], dtype=torch.int64, device=plain.device)
    for laws in laws_of(gate.setup, passes, gate.prompts, outputs):
        # A position that is fed again, since a draft before it was rejected, is chosen by the later pass.
        other = plain[laws.requests, laws.positions]
        apart = (laws.logits.to(noise.dtype) - other.to(noise.dtype)).abs().amax(-1)
        noise[laws.requests, laws.positions] = apart
        shapes[laws.requests, laws.positions] = laws.shape
    return noise, shapes.cpu().numpy()


def _own_gaps(gate: NearTieGate) -> torch.Tensor:
    """[R, T], how far plain decoding's tokens are from the best of their own laws."""
    tokens = _there(gate, gate.plain)
    wide = torch.promote_types(gate.setup.dtype, torch.float32)
    gaps = torch.full(tokens.shape, float("nan"), dtype=wide, device=tokens.device)
    for laws in laws_of(gate.setup, gate.passes, gate.prompts, gate.plain):
        chosen = _of_tokens(laws.logits, tokens[laws.requests, laws.positions])
        gaps[laws.requests, laws.positions] = laws.logits.amax(-1).to(wide) - chosen
    return gaps


def _fault(flip: Flip) -> str:
    return (
        f"request {flip.request}, output position {flip.position}: token {flip.token} is {flip.gap:.3g} below the best "
        f"one; passes of {flip.shape} tokens are off by {flip.noise:.3g} at most"
    )


def _plain_faults(gaps: np.ndarray, most: float) -> list[str]:
    """Tokens of plain decoding that are not what its own passes say."""
    return [
        f"request {i}, output position {p}: plain decoding's token is {gaps[i, p]:.3g} below the best of its own law"
        for i, p in zip(*np.nonzero(~(gaps <= most)), strict=True)
    ]


def _first_differences(plain: Tokens, outputs: Tokens, gaps: np.ndarray) -> tuple[Difference, ...]:
    found = []
    for request, (one, other) in enumerate(zip(plain, outputs, strict=True)):
        places = [place for place, (mine, theirs) in enumerate(zip(one, other, strict=True)) if mine != theirs]
        if places:
            place = places[0]
            found.append(Difference(request, place, one[place], other[place], float(gaps[request, place])))
    return tuple(found)
