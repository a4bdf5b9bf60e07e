"""The live engine: real models under the same controller that a simulator drives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch

from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.acceptor import Acceptor, TargetAcceptor
from specsim.live.attention import check_shape
from specsim.live.commit import Emission
from specsim.live.detokenizer import Detokenizer
from specsim.live.drafters.batch import LiveDrafter
from specsim.live.engine_options import EngineOptions
from specsim.live.listening import Listening, OneAtATime
from specsim.live.models import LoadedModel
from specsim.live.ops import choose_ops
from specsim.live.paged_kv import AddressedPool, PagedKV
from specsim.live.phase_clock import PhaseClock
from specsim.live.requests import Chunk, LiveRequest
from specsim.live.runner import ModelRunner
from specsim.live.sampling import SamplingParams, request_seed
from specsim.live.state import SlotState
from specsim.live.step import Step
from specsim.live.stepper import Stepper
from specsim.policies.controller import Controller
from specsim.serving import EngineConfig, Scheduler
from specsim.serving.tally import Tally
from specsim.telemetry import STEP_DTYPE


class Observer(Protocol):
    """Someone who watches a run: telemetry, metrics, a progress display.

    It may submit and cancel. What it raises comes out of `Engine.step` or `Engine.settle`, once the step is complete.
    """

    def on_step(self, row: np.void, step: Step, emission: Emission | None) -> None:
        """A step was committed; `row` is its record of `telemetry.STEP_DTYPE`."""
        ...

    def on_request(self, request: LiveRequest) -> None:
        """A request ended."""
        ...


class LiveSetup:
    """The device side of an engine, which drafters are built on: pools, histories, and the target's passes.

    target      the model
    config      limits; `num_kv_blocks` and `max_model_len` may be None
    lookahead   deepest draft of the run
    options     set-up of the device side
    buckets     token counts captured as CUDA graphs

    Raises      InputError for a target whose layers cannot run over the paged cache, naming the first
    """

    def __init__(
        self,
        target: LoadedModel,
        config: EngineConfig,
        lookahead: int,
        options: EngineOptions,
        buckets: tuple[int, ...] = (),
    ) -> None:
        self.target = target
        text = target.model.config.get_text_config()
        check_shape(text, type(target.model).__name__)
        self.max_model_len = min(config.max_model_len or text.max_position_embeddings, text.max_position_embeddings)
        self.device = torch.device(target.device)
        self.ops = choose_ops(self.device)
        self.dtype = getattr(torch, target.dtype)
        self.block_size, self.max_num_seqs, self.lookahead = config.block_size, config.max_num_seqs, lookahead
        self.buckets = buckets if self.device.type == "cuda" else ()
        most = self.max_model_len + lookahead + 1
        num_slots = config.max_num_seqs
        blocks = config.num_kv_blocks or self._blocks_that_fit(text, num_slots, most, options.kv_memory)
        self.pool = AddressedPool(blocks, config.block_size, num_slots, most, self.device)
        self.kv = PagedKV(text, blocks, config.block_size, self.dtype, self.device)
        self.state = SlotState(num_slots, most, self.device)
        self.runner = ModelRunner(target.model, self.kv, self.pool, self.state.history, self.ops, self.buckets)
        with self.on_device():
            self.runner.check()
        self._user: weakref.ref[Engine] | None = None

    def on_device(self) -> AbstractContextManager[Any]:
        """Inside, the set-up's GPU is the current one, where kernels and events go: every thread has its own."""
        return torch.cuda.device(self.state.history.device) if self.device.type == "cuda" else nullcontext()

    def check_fits(self, config: EngineConfig, lookahead: int) -> None:
        """Refuse an engine for which there is less than it needs.

        Raises  InputError naming what it is
        """
        wanted = {"max_num_seqs": config.max_num_seqs, "lookahead": lookahead}
        for name, most in (("max_num_seqs", self.max_num_seqs), ("lookahead", self.lookahead)):
            if wanted[name] > most:
                raise InputError(f"the set-up was made for {name} {most}; the engine's is {wanted[name]}")
        if config.block_size != self.block_size:
            raise InputError(
                f"the set-up was made for block_size {self.block_size}; the engine's is {config.block_size}"
            )

    def claim(self, engine: Engine) -> None:
        """Let an engine use the slots.

        Raises  InputError while another one has requests: they would share slots
        """
        other = None if self._user is None else self._user()
        if other is not None and other is not engine and other.scheduler.has_work():
            raise InputError("another engine over this set-up has requests; let it finish, or cancel them, before")
        self._user = weakref.ref(engine)

    def _blocks_that_fit(self, text: Any, num_slots: int, most: int, share: float) -> int:
        """Blocks for every slot's longest sequence, or as many as the device's free memory takes."""
        wanted = num_slots * -(-most // self.block_size)
        each = PagedKV.bytes_per_block(text, self.block_size, self.dtype)
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            return min(wanted, int(free * share) // each)
        return min(wanted, max(1, CPU_KV_BYTES // each))


CPU_KV_BYTES = 4 * 2**30
"""Most memory of the KV cache on a CPU where `num_kv_blocks` does not say otherwise."""


class Engine:
    """Continuous batching of requests under a controller.

    setup       the device side
    drafters    the arms, in the controller's order
    controller  decides; the same object that a simulator drives
    cost        what the controller believes steps take
    config      limits
    options     seeds
    acceptor    who judges drafts (None: the target)
    observers   who watches

    Raises      InputError where they do not fit together
    """

    def __init__(
        self,
        setup: LiveSetup,
        drafters: Sequence[LiveDrafter],
        controller: Controller,
        cost: CostTable,
        config: EngineConfig,
        options: EngineOptions | None = None,
        acceptor: Acceptor | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.setup, self.controller, self.cost, self.config = setup, controller, cost.fresh(), config
        self.options = options or EngineOptions()
        self.drafters = tuple(drafters)
        specs = tuple(drafter.spec for drafter in drafters)
        if tuple(controller.drafters) != specs:
            raise InputError("the controller was built for other drafters than the engine has")
        if config.prefill != "charged":
            raise InputError(f"prefill is {config.prefill!r}; a live engine computes prompts: allowed is charged")
        config.check_lookahead(controller.max_depth, config.max_num_seqs)
        setup.check_fits(config, controller.max_depth)
        self.scheduler = Scheduler(config, config.max_num_seqs, controller.max_depth, setup.pool)
        self.tally = Tally(specs, record_steps=True)
        self.clock = PhaseClock(setup.device)
        self.observers = list(observers)
        self.listening = Listening()
        self._one_step = OneAtATime()
        self._mark = object()  # on this engine's requests
        self.acceptor = acceptor or TargetAcceptor(setup.ops)
        self._stepper = Stepper(self)
        self._num_submitted = 0
        self._now = 0.0
        self._to_cancel: list[LiveRequest] = []
        self.ended: list[LiveRequest] = []

    def submit(
        self,
        prompt: Sequence[int] | np.ndarray,
        params: SamplingParams | None = None,
        *,
        domain: str = "",
        on_chunk: Callable[[Chunk], None] | None = None,
        want_text: bool = False,
        index: int | None = None,
    ) -> LiveRequest:
        """Queue a request.

        prompt      [T] token ids, at least one, all of the model's vocabulary
        params      how its tokens are chosen (None: greedy)
        domain      kind of prompt, for contextual policies and reports
        on_chunk    told of new tokens as steps commit
        want_text   whether `text` is kept although nobody is told
        index       row of the trace whose acceptance it replays (None: its number in the order of submission)
        returns     the request; it changes as the engine runs

        Raises      InputError for a prompt or parameters that the engine cannot serve
        """
        params = params or SamplingParams()
        tokens = self._checked(prompt)
        room = self.setup.max_model_len - len(tokens)
        if room < 1:
            raise InputError(
                f"a prompt of {len(tokens)} tokens leaves no room under max_model_len {self.setup.max_model_len}"
            )
        limit = min(params.max_tokens, room, self.config.max_tokens or room)
        sequence = self._num_submitted
        request = LiveRequest(
            sequence,
            sequence if index is None else index,
            sequence,
            domain,
            len(tokens),
            limit,
            False,
            self.clock.now(),
            prompt=tokens,
            params=params,
            seed=request_seed(self.options.seed, sequence) if params.seed is None else params.seed,
            detokenizer=self._detokenizer(params, want_text or on_chunk is not None),
            on_chunk=on_chunk,
            submitted_before_step=self._stepper.step_index,
            owner=self._mark,
        )
        self.setup.claim(self)
        self.scheduler.submit(request)
        self._num_submitted += 1
        return request

    def cancel(self, request: LiveRequest) -> None:
        """End a request before the next step; what it has got stays its own.

        Raises  InputError for a request of another engine
        """
        if request.status in ("waiting", "running"):
            if request.owner is not self._mark:
                raise InputError(f"request {request.request_id} is not one of this engine's")
            self._to_cancel.append(request)

    def step(self, settled: bool = True) -> bool:
        """One engine step; whether there was anything to do.

        settled  whether everyone has been told of it when this returns. Otherwise observers and listeners may be told
                 while the next step's pass runs, which on CUDA takes no time then, and `settle` tells them at the end

        What an observer or a listener raises is raised when the step is complete; the next one may be taken then.

        Raises   InputError inside another step of this engine
        """
        with self._one_step, self.setup.on_device():
            self._drop_cancelled()
            worked = self.scheduler.has_work()
            if worked:
                self._stepper.step()
            else:
                self._stepper.rest()
            if settled or not worked:
                self._stepper.settle()
        self.listening.raise_first()
        return worked

    def add_chore(self, chore: Callable[[], None]) -> None:
        """Have something done for which no request waits, such as writing down what has ended.

        chore  is called once the next step's pass runs, before a request is cancelled, when nothing is left to do, or
               by `settle`; what it raises is raised as an observer's, and the others are called all the same
        """
        self._stepper.add_chore(chore)

    def launch_ahead(self, on: bool) -> None:
        """Whether beginnings of steps are launched ahead from the next step on, whatever the options say."""
        self._stepper.ahead.enabled = on

    def settle(self) -> None:
        """Tell everyone of the latest step who has not been told, and do what was put off; what that raises is raised
        then."""
        self._stepper.settle()
        self.listening.raise_first()

    def run(self) -> None:
        """Step until every request has ended."""
        try:
            while self.step(settled=False):
                pass
        finally:
            self.settle()

    def end(self, request: LiveRequest, slot: int | None, now: float) -> None:
        """A request finished, failed or was cancelled: free what it held, and tell everyone."""
        if slot is not None:
            if request.status == "failed":
                self.setup.kv.scrub(self.setup.pool.blocks_of(slot))
            self.scheduler.release(slot)
            for drafter in self.drafters:
                drafter.release(slot)
        if request.status == "finished":
            self.tally.request(request, 0, now)
        if request.detokenizer is not None:
            request.detokenizer.finish()
        self.ended.append(request)
        for observer in tuple(self.observers):
            with self.listening:
                observer.on_request(request)
        with self.listening:
            request.tell()

    def announce(self, row: tuple[float, ...], step: Step, emission: Emission | None) -> None:
        """Write a committed step down, and tell observers."""
        assert self.tally.steps is not None
        self.tally.steps.append(row)
        if self.observers:
            record = np.array([row], STEP_DTYPE)[0]
            for observer in tuple(self.observers):
                with self.listening:
                    observer.on_step(record, step, emission)

    def _drop_cancelled(self) -> None:
        if self._to_cancel:
            self._stepper.settle()
        while self._to_cancel:  # one by one: who is told of an end may cancel others
            request = self._to_cancel.pop(0)
            if request.status not in ("waiting", "running"):
                continue
            request.status = "cancelled"
            slots = [slot for slot in self.scheduler.running if self.scheduler.slots.requests[slot] is request]
            if not slots:
                self.scheduler.waiting.remove(request)
            self.end(request, slots[0] if slots else None, self.clock.now())

    def _checked(self, prompt: Sequence[int] | np.ndarray) -> np.ndarray:
        try:
            tokens = np.asarray(prompt)
        except ValueError:  # lists of different lengths
            tokens = np.zeros((0, 0))
        if tokens.ndim != 1 or not len(tokens) or not np.issubdtype(tokens.dtype, np.integer):
            raise InputError("a prompt must be a list of token ids, at least one")
        size = self.setup.target.model.get_input_embeddings().weight.shape[0]
        if tokens.min() < 0 or tokens.max() >= size:
            wrong = int(tokens.min() if tokens.min() < 0 else tokens.max())
            raise InputError(f"token id {wrong} in a prompt: must be from 0 to {size - 1}")
        return tokens.astype(np.int64)

    def _detokenizer(self, params: SamplingParams, wanted: bool) -> Detokenizer | None:
        tokenizer = self.setup.target.tokenizer
        if tokenizer is None and params.stop:
            raise InputError("stop texts need a tokenizer, which this model was loaded without")
        if tokenizer is None or not (wanted or params.stop):
            return None
        return Detokenizer(tokenizer, params.stop)
