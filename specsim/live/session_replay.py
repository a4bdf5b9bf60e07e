"""Sessions that replay recorded acceptance: which requests they serve, and who drafts for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path

import numpy as np

from specsim.core import DrafterSpec
from specsim.errors import InputError
from specsim.live.engine import LiveSetup
from specsim.live.prompts import Prompt
from specsim.live.replayed import LAYERS, Recording, ReplayedDrafter
from specsim.live.sampling import SamplingParams
from specsim.live.session_drive import Job
from specsim.serving.streams import ORDER_STREAM
from specsim.shipped import shipped_path
from specsim.trace import Trace, TraceLike
from specsim.trace.presets import PRESETS

SOURCE = "trace:"
MADE_UP = "synthetic:"
FREE = "free"
DEFAULT_CLIENTS = 8
REQUESTS_A_CLIENT = 4
FEWEST_REQUESTS = 8
MAX_REQUESTS = 1_000_000
"""More would not end; all of them are prepared before the first step."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a run replays instead of asking drafters what they propose, and the target what it accepts.

    trace         a position-indexed trace of point-mass drafts
    num_requests  requests served, in the simulator's order (None: four a client, eight at least)
    draft_work    what drafting takes by drafter, `free` or `layers:K`, see `ReplayedDrafter`; the empty name holds for
                  every other one (nothing said: free)

    Raises        InputError for a trace that cannot be replayed, or work of a drafter that it lacks
    """

    trace: TraceLike
    num_requests: int | None = None
    draft_work: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = self.trace.manifest.name
        if self.trace.kind != "position_indexed":
            raise InputError(
                f"acceptance of {name}: a {self.trace.kind} trace holds only the blocks its own policy visited, so "
                "another policy cannot be replayed on it exactly; record a position_indexed trace with `specsim record`"
            )
        if self.num_requests is not None and not 1 <= self.num_requests <= MAX_REQUESTS:
            raise InputError(f"requests is {self.num_requests}; it must be from 1 to {MAX_REQUESTS:,}")
        for drafter, work in self.draft_work.items():
            if drafter and drafter not in self.drafters:
                raise InputError(f"draft work of {drafter!r}: {self._has()}")
            if work != FREE and not LAYERS.fullmatch(work):
                raise InputError(f"draft work {work!r}: must be free, or layers:K with K of the target's layers")

    @classmethod
    def named(
        cls, text: str, num_requests: int | None = None, draft_work: Mapping[str, str] | None = None
    ) -> Acceptance:
        """The acceptance of a trace by name.

        text    `trace:NAME` with a trace's folder, a shipped trace's name, or a made-up preset's
        Raises  InputError when there is none
        """
        name = text.removeprefix(SOURCE)
        if not text.startswith(SOURCE) or not name:
            raise InputError(
                f"acceptance {text!r}: must be trace:NAME with a trace's folder, a shipped name, or a preset"
            )
        preset = name.removeprefix(MADE_UP)
        if preset in PRESETS and not Path(name).is_dir():
            return cls(PRESETS[preset](), num_requests, draft_work or {})
        if name.startswith(MADE_UP):
            raise InputError(f"acceptance {text!r}: unknown preset; allowed: {', '.join(PRESETS)}")
        return cls(Trace.open(shipped_path("trace", name)), num_requests, draft_work or {})

    @property
    def drafters(self) -> dict[str, DrafterSpec]:
        """The trace's drafters by name, in its order."""
        return {spec.name: spec for spec in self.trace.drafters}

    def specs(self, names: Sequence[str], depth: int | None) -> tuple[DrafterSpec, ...]:
        """The arms.

        names   in their order (none: all of the trace's)
        depth   most drafts (None: as many as were recorded)
        Raises  InputError for a drafter that the trace lacks or whose drafts were drawn, or a depth never recorded
        """
        recorded = self.drafters
        for name in names:
            if name not in recorded:
                raise InputError(f"drafter {name!r}: {self._has()}")
        chosen = [recorded[name] for name in names or recorded]
        for spec in chosen:
            if spec.law == "sampled":
                raise InputError(
                    f"drafter {spec.name!r}: its drafts were drawn, and the trace does not hold the law they "
                    "were drawn from, so they cannot be verified again; record it without :sampled"
                )
        deepest = max(spec.max_depth for spec in chosen)
        if depth is not None and depth > deepest:
            raise InputError(f"depth {depth}: {self.trace.manifest.name} was recorded to depth {deepest}")
        return tuple(replace(spec, max_depth=min(depth or deepest, spec.max_depth)) for spec in chosen)

    def work(self, drafter: str) -> str:
        """What drafting takes, `free` or `layers:K`."""
        return self.draft_work.get(drafter, self.draft_work.get("", FREE))

    def num_served(self, concurrency: int | None) -> int:
        """Requests of the run.

        concurrency  clients (None: not said)
        """
        asked = max(FEWEST_REQUESTS, REQUESTS_A_CLIENT * (concurrency or DEFAULT_CLIENTS))
        return asked if self.num_requests is None else self.num_requests

    def order(self, concurrency: int | None, seed: int) -> list[int]:
        """Rows of the trace in the order they are served: the simulator's for the same seed."""
        return list(islice(_permutations(len(self.trace), seed), self.num_served(concurrency)))

    def lengths(self, index: int) -> tuple[int, int]:
        """Tokens of a row's prompt, and of its output."""
        requests = self.trace.requests
        return int(requests.num_prompt_tokens[index]), int(requests.num_output_tokens[index])

    def live_drafters(
        self, specs: Sequence[DrafterSpec], recording: Recording, setup: LiveSetup
    ) -> list[ReplayedDrafter]:
        """The arms on a device."""
        arms = {name: arm for arm, name in enumerate(self.drafters)}
        drafters = []
        for spec in specs:
            drafter = ReplayedDrafter(recording, arms[spec.name], setup, self.work(spec.name))
            drafter.spec = spec  # as deep as the run goes
            drafters.append(drafter)
        return drafters

    def jobs(self, order: Sequence[int], recording: Recording, max_model_len: int) -> list[Job]:
        """Requests of fillers, as long as the recorded ones.

        max_model_len  longest sequence
        Raises         InputError naming the request that leaves no room for a token of output
        """
        requests = self.trace.requests
        for index in order:
            if (tokens := self.lengths(index)[0]) >= max_model_len:
                raise InputError(
                    f"request {int(requests.request_id[index])} of {self.trace.manifest.name}: its {tokens} prompt "
                    f"tokens leave no room for an output under max_model_len {max_model_len}"
                )
        return [
            Job(
                Prompt(int(requests.request_id[index]), requests.domains[int(requests.domain[index])], ""),
                recording.prompt(index),
                SamplingParams(max_tokens=self.lengths(index)[1], ignore_eos=True),
                index,
            )
            for index in order
        ]

    def notes(self, specs: Sequence[DrafterSpec]) -> list[str]:
        """What else has to be known of the run's numbers."""
        work = ", ".join(f"{spec.name} {self.work(spec.name)}" for spec in specs)
        return ["tokens are fillers: there is no text", f"what drafting itself takes here: {work}"]

    def _has(self) -> str:
        return f"the trace {self.trace.manifest.name} has no such drafter; it has {', '.join(self.drafters)}"


def check_sampling(sampling: SamplingParams) -> None:
    """Refuse to choose tokens, or ends, that are recorded.

    Raises  InputError naming what was set
    """
    usual = SamplingParams()
    for entry in fields(SamplingParams):
        value = getattr(sampling, entry.name)
        if value != getattr(usual, entry.name):
            raise InputError(
                f"{entry.name} is {value}: a replay's tokens are fillers, and end where the recorded outputs ended; "
                "leave it away, or generate without --acceptance"
            )


def _permutations(num_available: int, seed: int) -> Iterator[int]:
    """Rows, permutation after permutation; kept equal to `sim.workload.request_order`, which live parts may not use."""
    rng = np.random.default_rng([seed, ORDER_STREAM])
    while True:
        yield from rng.permutation(num_available).tolist()
