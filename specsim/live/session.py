"""A live run from prompts to measurements: load, serve, compare with other policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from specsim import metrics
from specsim.cost import CostTable
from specsim.errors import InputError
from specsim.live.acceptor import Acceptor, TargetAcceptor
from specsim.live.drafters.batch import LiveDrafter
from specsim.live.drafters.build_live import build_live_drafter
from specsim.live.engine import Engine, LiveSetup, Observer
from specsim.live.models import LoadedModel, load_model
from specsim.live.profiler import BUCKETS
from specsim.live.prompts import Prompt
from specsim.live.replayed import Recording, ReplayedAcceptor
from specsim.live.requests import Chunk
from specsim.live.session_compare import Rival, rivals
from specsim.live.session_config import (
    SessionConfig,
    asks_table,
    check_prices,
    check_session,
    check_what_ifs,
    num_slots,
    open_cost,
    replayed_specs,
    session_controller,
)
from specsim.live.session_drive import Drive, Job, Load
from specsim.live.session_prompts import encode_prompts
from specsim.live.session_result import Comparison, SessionResult, comparison, finished_run
from specsim.live.session_warm_up import warm_up
from specsim.policies.build import build_controller
from specsim.policies.controller import Controller

NO_MEANING = (
    "the weights are random, so what the model says, and what is accepted of it, means nothing; --acceptance "
    "trace:NAME replays recorded acceptance"
)


class LiveSession:
    """Prompts, or a trace's requests, served under a controller, ready to run.

    config     what is asked
    prompts    at least one; their order is that of the requests' numbers (none where acceptance is replayed)
    observers  who watches the engine
    target     the model, where it is loaded already (None: it is loaded now)

    engine     serves the session
    target, cost, controller, jobs, load   what it works with
    rivals     the policies that it is compared with afterwards

    Raises     InputError in one line, for anything that the run would fail on
    """

    def __init__(
        self,
        config: SessionConfig,
        prompts: Sequence[Prompt] = (),
        observers: Sequence[Observer] = (),
        target: LoadedModel | None = None,
    ) -> None:
        check_session(config, prompts)
        self.config = config
        self.target = _load(config) if target is None else target
        self.cost = open_cost(config)
        self._acceptor: Acceptor | None = None
        self.jobs: list[Job] = []
        if config.acceptance is None:
            self.jobs = encode_prompts(prompts, self.target, config.chat_template, config.engine.max_model_len)
        self.setup, self._drafters, self.controller = self._device_side(self._sizes())
        self.load = self._load_shape()
        warm_up(self, self._drafters)
        self.engine = self._engine(self._drafters, self.controller, observers)
        self._check_room()
        self._stopping = False

    def run(
        self,
        on_chunk: Callable[[Chunk], None] | None = None,
        on_compared: Callable[[str, int, int], None] | None = None,
        out: Path | None = None,
    ) -> SessionResult:
        """Serve every prompt; may be called once.

        on_chunk     told of a request's new tokens as steps commit
        on_compared  told during a comparison which policy it is, how many tokens are done, and how many there will be
                     about
        out          new or empty folder for the run's telemetry (None: nowhere); a run without a token leaves none
        returns      what came out; where it was stopped, what had come out until then
        """
        config, seed = self.config, self.config.options.seed
        drive = Drive(self.engine, self.jobs, config.sampling, self.load, on_chunk)
        with self._recording(out, drive):
            drive.run(lambda: self._stopping)
        run = finished_run(drive, seed, self._notes())
        summary = metrics.summarize(run)
        others, left_out = self._compare(drive, summary, on_compared)
        interrupted = self._stopping
        prompts = tuple(job.prompt for job in self.jobs)
        requests = tuple(drive.requests)
        return SessionResult(run, summary, prompts, requests, others, interrupted, self.replayed, left_out)

    @property
    def replayed(self) -> str:
        """`acceptance replayed from TRACE`, where it is (empty: the outputs are the target's own)."""
        return self.engine.acceptor.label

    def stop(self) -> None:
        """Let the run end after the step under way; what has not finished is cancelled. Safe in a signal handler."""
        self._stopping = True

    def _sizes(self) -> list[tuple[int, int]]:
        """Tokens of each request's prompt, and most of its output."""
        config = self.config
        if config.acceptance is None:
            return [(len(job.token_ids), self._limit(config.sampling.max_tokens)) for job in self.jobs]
        order = config.acceptance.order(config.concurrency, config.options.seed)
        return [(prompt, self._limit(output)) for prompt, output in map(config.acceptance.lengths, order)]

    def _limit(self, asked: int) -> int:
        return min(asked, self.config.engine.max_tokens or asked)

    def _device_side(self, sizes: list[tuple[int, int]]) -> tuple[LiveSetup, list[LiveDrafter], Controller]:
        """Pools for the longest request of the run, the arms, and who decides.

        sizes  tokens of each request's prompt, and most of its output
        """
        config = self.config
        text = self.target.model.config.get_text_config()
        longest = max(prompt + output for prompt, output in sizes)
        most = min(config.engine.max_model_len or text.max_position_embeddings, text.max_position_embeddings, longest)
        count = len(sizes)
        slots = min(config.engine.max_num_seqs, count, config.concurrency or count)
        if asks_table(config) and not config.extrapolate:
            slots = min(slots, self.cost.ranges.batch[1])
        engine = replace(config.engine, max_model_len=most, max_num_seqs=slots)
        # Which drafters there are decides how many requests the cost table lets run, so slots may be fewer in the end.
        setup = LiveSetup(self._silent_target(), engine, config.lookahead, config.options, self._buckets())
        drafters = self._drafters_on(setup)
        specs = [drafter.spec for drafter in drafters]
        check_what_ifs(config, specs)
        controller = session_controller(config, specs)
        slots = num_slots(config, controller, self.cost, count)
        self.rivals = rivals(config, specs)
        for decider in (controller, *(rival.controller for rival in self.rivals)):
            check_prices(decider, self.cost, slots, most)
        self.engine_config = replace(engine, max_num_seqs=slots)
        return setup, drafters, controller

    def _silent_target(self) -> LoadedModel:
        """The target; without a tokenizer where tokens are fillers, which no text is made of."""
        return self.target if self.config.acceptance is None else replace(self.target, tokenizer=None)

    def _buckets(self) -> tuple[int, ...]:
        """Token counts captured on CUDA: those that the cost table charges for."""
        if self.config.options.buckets is not None:
            return self.config.options.buckets
        # Only a policy that asks no table runs without one.
        return BUCKETS if self.config.cost is None else tuple(self.cost.meta.capture_sizes)

    def _drafters_on(self, setup: LiveSetup) -> list[LiveDrafter]:
        """The arms; where acceptance is replayed, also the requests, and who judges."""
        config, replay = self.config, self.config.acceptance
        if replay is not None:
            recording = Recording(replay.trace, setup)
            self._acceptor = ReplayedAcceptor(recording, TargetAcceptor(setup.ops))
            order = replay.order(config.concurrency, config.options.seed)
            self.jobs = replay.jobs(order, recording, setup.max_model_len)
            return list(replay.live_drafters(replayed_specs(config, replay), recording, setup))
        drafters = [self._drafter(name, setup) for name in config.drafters]
        names = [drafter.spec.name for drafter in drafters]
        if len(set(names)) != len(names):
            raise InputError(
                f"drafters {', '.join(config.drafters)}: arms must differ in name, and are {', '.join(names)}"
            )
        return drafters

    def _drafter(self, name: str, setup: LiveSetup) -> LiveDrafter:
        weights = self.config.weights
        permissions = {"allow_remote_code": weights.allow_remote_code, "allow_pickle": weights.allow_pickle}
        return build_live_drafter(name, setup, self.config.lookahead, **permissions)

    def _load_shape(self) -> Load:
        config = self.config
        if config.arrival_rate is not None:
            return Load.poisson(config.arrival_rate, len(self.jobs), config.options.seed)
        return Load(config.concurrency or len(self.jobs))

    def _engine(
        self,
        drafters: Sequence[LiveDrafter],
        controller: Controller,
        observers: Sequence[Observer] = (),
        cost: CostTable | None = None,
    ) -> Engine:
        config, options = self.engine_config, self.config.options
        return Engine(self.setup, drafters, controller, cost or self.cost, config, options, self._acceptor, observers)

    def _plain_engine(self) -> Engine:
        return self._engine([], build_controller("autoregressive", (), live=True))

    def _check_room(self) -> None:
        """Refuse now a request that the engine would refuse in the middle of the run."""
        pool = self.setup.pool
        deepest = max(decider.max_depth for decider in (self.controller, *(rival.controller for rival in self.rivals)))
        for job, (tokens, limit) in zip(self.jobs, self._sizes(), strict=True):
            room = self.setup.max_model_len - tokens
            needed = pool.blocks_for(tokens + min(limit, room) + deepest)
            if needed > pool.num_blocks:
                whose = "prompt" if job.index is None else "request"
                raise InputError(
                    f"{whose} {job.prompt.id}: needs {needed} KV blocks of {pool.block_size} tokens with its "
                    f"lookahead; there are {pool.num_blocks} (--num-kv-blocks)"
                )

    def _notes(self) -> list[str]:
        """What has to be known of the run's numbers."""
        replay = self.config.acceptance
        if replay is None:
            return [NO_MEANING] if self.config.weights.load_format == "dummy" else []
        limit = self.setup.max_model_len
        cut = sum(prompt + output > limit for prompt, output in self._sizes())
        more = [f"{cut} of {len(self.jobs)} outputs are cut at {limit} tokens, the longest sequence"] if cut else []
        return [*replay.notes(self.controller.drafters), *more]

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

    def _compare(
        self, drive: Drive, summary: metrics.Summary, tell: Callable[[str, int, int], None] | None
    ) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
        """The same requests, arriving alike, under each rival; where it is stopped, those that were through.

        returns  comparisons, and the labels of those for which no time was left
        """
        clock, limit = self.engine.clock, self.config.compare_seconds
        start = clock.now()
        expected = sum(len(request.token_ids) for request in drive.requests)
        done: list[Comparison] = []
        left_out: list[str] = []
        for rival in self.rivals:
            if self._stopping:
                break
            # The yardstick is taken whatever the time: how steady the machine was matters most where time ran out.
            needed = rival.part == "again" and any(other.part == "plain" for other in done)
            if limit is not None and clock.now() - start >= limit and not needed:
                left_out.append(rival.label)
                continue
            observers = [] if tell is None else [_Counter(partial(tell, rival.label), expected)]
            other = Drive(self._rival_engine(rival, observers), self.jobs, self.config.sampling, self.load)
            other.run(lambda: self._stopping)
            if not self._stopping:
                done.append(comparison(rival, drive, other, summary, self.config.options.seed))
        return tuple(done), tuple(left_out)

    def _rival_engine(self, rival: Rival, observers: Sequence[Observer]) -> Engine:
        arms = self._drafters if rival.controller.drafters else []
        return self._engine(arms, rival.controller, observers, self.cost.fresh())


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
