"""A live run from prompts to measurements: load, serve, compare with plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specsim import metrics
from specsim.errors import InputError
from specsim.live.drafters.batch import LiveDrafter
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.engine import Engine, LiveSetup, Observer
from specsim.live.models import LoadedModel, load_model
from specsim.live.prompts import Prompt
from specsim.live.requests import Chunk
from specsim.live.session_config import (
    SessionConfig,
    check_prices,
    check_session,
    num_slots,
    open_cost,
    session_controller,
)
from specsim.live.session_drive import Drive, Load
from specsim.live.session_prompts import encode_prompts
from specsim.live.session_result import PlainDecoding, SessionResult, finished_run, plain_decoding
from specsim.policies.build import build_controller
from specsim.policies.controller import Controller

WARM_UP_TOKENS = 4


class LiveSession:
    """Prompts served under a controller, ready to run.

    config     what is asked
    prompts    at least one; their order is that of the requests' numbers
    observers  who watches the engine
    target     the model, where it is loaded already (None: it is loaded now)

    engine     serves the session
    target, cost, controller, jobs, load   what it works with

    Raises     InputError in one line, for anything that the run would fail on
    """

    def __init__(
        self,
        config: SessionConfig,
        prompts: Sequence[Prompt],
        observers: Sequence[Observer] = (),
        target: LoadedModel | None = None,
    ) -> None:
        check_session(config, prompts)
        self.config = config
        self.target = _load(config) if target is None else target
        self.cost = open_cost(config)
        limit = min(config.sampling.max_tokens, config.engine.max_tokens or config.sampling.max_tokens)
        self.jobs = encode_prompts(prompts, self.target, config.chat_template, config.engine.max_model_len)
        self.setup, drafters, self.controller = self._device_side(limit)
        self.load = self._load_shape()
        self._warm_up(drafters)
        self.engine = self._engine(drafters, self.controller, observers)
        self._check_room(limit)
        self._drafters = drafters
        self._stopping = False

    def run(
        self,
        on_chunk: Callable[[Chunk], None] | None = None,
        on_plain: Callable[[int, int], None] | None = None,
        out: Path | None = None,
    ) -> SessionResult:
        """Serve every prompt; may be called once.

        on_chunk  told of a request's new tokens as steps commit
        on_plain  told during plain decoding how many tokens are done, and how many there will be about
        out       new or empty folder for the run's telemetry (None: nowhere); a run without a token leaves none
        returns   what came out; where it was stopped, what had come out until then
        """
        config, seed = self.config, self.config.options.seed
        drive = Drive(self.engine, self.jobs, config.sampling, self.load, on_chunk)
        with self._recording(out, drive):
            drive.run(lambda: self._stopping)
        interrupted = self._stopping
        run = finished_run(drive, seed)
        summary = metrics.summarize(run)
        plain = None
        if config.compare_plain and not interrupted:
            plain = self._decode_plainly(drive, summary, on_plain)
            interrupted = plain is None
        prompts = tuple(job.prompt for job in self.jobs)
        return SessionResult(run, summary, prompts, tuple(drive.requests), plain, interrupted)

    def stop(self) -> None:
        """Let the run end after the step under way; what has not finished is cancelled. Safe in a signal handler."""
        self._stopping = True

    def _device_side(self, limit: int) -> tuple[LiveSetup, list[LiveDrafter], Controller]:
        """Pools for the longest request of the run, the arms, and who decides.

        limit  most output tokens of a request
        """
        config = self.config
        text = self.target.model.config.get_text_config()
        longest = max(len(job.token_ids) for job in self.jobs) + limit
        most = min(config.engine.max_model_len or text.max_position_embeddings, text.max_position_embeddings, longest)
        slots = min(config.engine.max_num_seqs, len(self.jobs), config.concurrency or len(self.jobs))
        engine = replace(config.engine, max_model_len=most, max_num_seqs=slots)
        buckets = self.cost.meta.capture_sizes if config.options.buckets is None else config.options.buckets
        # Which drafters there are decides how many requests the cost table lets run, so slots may be fewer in the end.
        setup = LiveSetup(self.target, engine, config.depth, config.options, tuple(buckets))
        drafters = [self._drafter(name, setup) for name in config.drafters]
        names = [drafter.spec.name for drafter in drafters]
        if len(set(names)) != len(names):
            raise InputError(
                f"drafters {', '.join(config.drafters)}: arms must differ in name, and are {', '.join(names)}"
            )
        controller = session_controller(config, [drafter.spec for drafter in drafters])
        slots = num_slots(config, controller, self.cost, len(self.jobs))
        check_prices(controller, self.cost, slots, most)
        self.engine_config = replace(engine, max_num_seqs=slots)
        return setup, drafters, controller

    def _drafter(self, name: str, setup: LiveSetup) -> LiveDrafter:
        weights = self.config.weights
        permissions = {"allow_remote_code": weights.allow_remote_code, "allow_pickle": weights.allow_pickle}
        return build_live_drafter(name, setup, self.config.depth, **permissions)

    def _load_shape(self) -> Load:
        config = self.config
        if config.arrival_rate is not None:
            return Load.poisson(config.arrival_rate, len(self.jobs), config.options.seed)
        return Load(config.concurrency or len(self.jobs))

    def _engine(
        self, drafters: Sequence[LiveDrafter], controller: Controller, observers: Sequence[Observer] = ()
    ) -> Engine:
        return Engine(
            self.setup, drafters, controller, self.cost, self.engine_config, self.config.options, observers=observers
        )

    def _plain_engine(self, observers: Sequence[Observer] = ()) -> Engine:
        return self._engine([], build_controller("autoregressive", (), live=True), observers)

    @torch.inference_mode()
    def _warm_up(self, drafters: Sequence[LiveDrafter]) -> None:
        """Let every kernel run once before anything is timed or learned from: the first pass compiles."""
        if self.setup.runner.buckets:
            self.setup.runner.capture()
        engines = [self._plain_engine()]
        for drafter in drafters if self.controller.budget_policy.drafts else ():
            depth = min(2, drafter.spec.max_depth)
            engines.append(
                self._engine([drafter], build_controller(f"fixed_depth:depth={depth}", (drafter.spec,), live=True))
            )
        params = replace(self.config.sampling, max_tokens=WARM_UP_TOKENS, stop=())
        for engine in engines:
            engine.submit(self.jobs[0].token_ids, params)
            engine.run()

    def _check_room(self, limit: int) -> None:
        """Refuse now a request that the engine would refuse in the middle of the run."""
        pool = self.setup.pool
        for job in self.jobs:
            tokens = len(job.token_ids)
            room = self.setup.max_model_len - tokens
            needed = pool.blocks_for(tokens + min(limit, room) + self.controller.max_depth)
            if needed > pool.num_blocks:
                raise InputError(
                    f"prompt {job.prompt.id}: needs {needed} KV blocks of {pool.block_size} tokens with its lookahead; "
                    f"there are {pool.num_blocks} (--num-kv-blocks)"
                )

    @contextmanager
    def _recording(self, out: Path | None, drive: Drive) -> Iterator[None]:
        """Write the run to a folder meanwhile."""
        if out is None:
            yield
            return
        from specsim.live.trajectory import TrajectoryRecorder

        with TrajectoryRecorder(out, self.engine, closed_loop=self.load.concurrency or None) as recorder:
            drive.on_submit = lambda request: recorder.tag(request, self.jobs[request.sequence].prompt.id)
            yield

    def _decode_plainly(
        self, drive: Drive, summary: metrics.Summary, on_plain: Callable[[int, int], None] | None
    ) -> PlainDecoding | None:
        """The same prompts, arriving alike, without drafts; None where it was stopped."""
        expected = sum(len(request.token_ids) for request in drive.requests)
        observers: list[Any] = [] if on_plain is None else [_Counter(on_plain, expected)]
        plain = Drive(self._plain_engine(observers), self.jobs, self.config.sampling, self.load)
        plain.run(lambda: self._stopping)
        return None if self._stopping else plain_decoding(drive, plain, summary, self.config.options.seed)


class _Counter:
    """Tells how many tokens a run has emitted.

    tell      told of tokens so far and in all
    expected  tokens in all
    """

    def __init__(self, tell: Callable[[int, int], None], expected: int) -> None:
        self._tell, self._expected, self._done = tell, expected, 0

    def on_step(self, row: np.void, step: Any, emission: Any) -> None:
        """See `Observer.on_step`."""
        self._done += int(row["num_emitted"])
        self._tell(self._done, self._expected)

    def on_request(self, request: Any) -> None:
        """See `Observer.on_request`; a request's first token is of no step."""
        self._done += 1


def _load(config: SessionConfig) -> LoadedModel:
    weights = config.weights
    return load_model(
        weights.source,
        dtype=weights.dtype,
        device=weights.device,
        allow_remote_code=weights.allow_remote_code,
        allow_pickle=weights.allow_pickle,
        load_format=weights.load_format,
    )
