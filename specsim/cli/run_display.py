"""What a person sees while a model generates: text as it is committed, and how the run goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from specsim.report.wording import NOTHING, digits

if TYPE_CHECKING:
    from specsim.live.engine import Engine
    from specsim.live.prompts import Prompt
    from specsim.live.requests import Chunk

REDRAW_SECONDS = 0.1
"""Least time between two pictures: a terminal shows no more, and drawing takes time from the run."""
MOST_ROWS = 16
"""Most requests that the table shows at once."""
ENDS = {"stop": "ended by itself", "length": "cut at its limit", "cancelled": "cancelled", "failed": "failed"}


@dataclass
class Progress:
    """One request as its watchers know it.

    prompt        as given
    text          so far
    num_tokens    so far
    num_steps     decode steps so far
    num_accepted  drafts accepted so far
    reason        why it ended (None: it has not)
    """

    prompt: Prompt
    text: str = ""
    num_tokens: int = 0
    num_steps: int = 0
    num_accepted: int = 0
    reason: str | None = None

    @property
    def acceptance_length(self) -> float:
        """Accepted drafts a step, and the token that follows them; NaN before the first step."""
        return 1.0 + self.num_accepted / self.num_steps if self.num_steps else float("nan")


@dataclass
class Totals:
    """All requests together, so far; `arm` is the last step's drafter."""

    num_tokens: int = 0
    request_steps: int = 0
    num_accepted: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_ended: int = 0
    arm: int = -1
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self.started


class Watcher:
    """Keeps the books; those who show something build on it. It observes the engine, and is told of chunks.

    engine    whose requests are watched
    prompts   by request number
    """

    def __init__(self, engine: Engine, prompts: Sequence[Prompt]) -> None:
        self.engine = engine
        self.prompts = prompts
        self.requests: dict[int, Progress] = {}
        self.totals = Totals()

    def on_step(self, row: np.void, step: Any, emission: Any) -> None:
        """See `Observer.on_step`."""
        totals = self.totals
        totals.num_running, totals.num_waiting = int(row["num_running"]), int(row["num_waiting"])
        totals.arm = int(row["arm"])
        if emission is not None:
            for slot, accepted in zip(step.slots.tolist(), emission.num_accepted.tolist(), strict=True):
                progress = self._of(self.engine.scheduler.slots.request(slot).request_id)
                progress.num_steps += 1
                progress.num_accepted += accepted
            totals.request_steps += len(step.slots)
            totals.num_accepted += int(row["num_accepted"])
        self.show(force=False)

    def on_request(self, request: Any) -> None:
        """See `Observer.on_request`; its last chunk says the same."""

    def on_chunk(self, chunk: Chunk) -> None:
        """New tokens of a request, or its end."""
        progress = self._of(chunk.request_id)
        progress.text += chunk.text
        progress.num_tokens += len(chunk.token_ids)
        self.totals.num_tokens += len(chunk.token_ids)
        if chunk.finish_reason is not None:
            progress.reason = chunk.finish_reason
            self.totals.num_ended += 1
        self.tell(chunk, progress)

    def on_compared(self, label: str, done: int, expected: int) -> None:
        """The same prompts under another policy: so many tokens are there."""

    def tell(self, chunk: Chunk, progress: Progress) -> None:
        """Show news of one request."""

    def show(self, force: bool) -> None:
        """Show how the run goes; `force` whether it was shown just now or not."""

    def __enter__(self) -> Watcher:
        self.totals = Totals()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""

    def _of(self, request_id: int) -> Progress:
        if request_id not in self.requests:
            self.requests[request_id] = Progress(self.prompts[request_id])
        return self.requests[request_id]


class Stream(Watcher):
    """The text of a single request, piece by piece, on stdout."""

    def tell(self, chunk: Chunk, progress: Progress) -> None:
        """Write the new text, and a line's end after the last."""
        sys.stdout.write(printable(chunk.text))
        if chunk.finish_reason is not None:
            sys.stdout.write("" if progress.text.endswith("\n") else "\n")
        sys.stdout.flush()


class Blocks(Watcher):
    """One block a finished request on stdout, and on a terminal a table of those that run on stderr.

    console   of stderr (None: no table)
    texts     whether blocks are written
    """

    def __init__(self, engine: Engine, prompts: Sequence[Prompt], console: Console | None, texts: bool = True) -> None:
        super().__init__(engine, prompts)
        self._texts = texts
        self._compared: str | None = None
        self._shown_at = 0.0
        self._live = None if console is None else Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Blocks:
        super().__enter__()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, chunk: Chunk, progress: Progress) -> None:
        """Write the block of a request that ended. Rich keeps the table below what is written to a terminal."""
        if chunk.finish_reason is not None and self._texts:
            replayed = self.engine.acceptor.label
            sys.stdout.write(block(chunk.request_id, progress, replayed))
            sys.stdout.flush()

    def on_compared(self, label: str, done: int, expected: int) -> None:
        """Show that another policy's run is under way."""
        self._compared = f"the same prompts, {label}: {min(done, expected)}/{expected} tokens"
        self.show(force=False)

    def show(self, force: bool) -> None:
        """Draw the table again."""
        now = time.perf_counter()
        if self._live is None or (not force and now - self._shown_at < REDRAW_SECONDS):
            return
        self._shown_at = now
        self._live.update(self._picture(self._live.console.width), refresh=True)

    def _picture(self, width: int) -> Group:
        if self._compared is not None:
            return Group(Text(self._compared, style="dim"))
        running = [(number, progress) for number, progress in self.requests.items() if progress.reason is None]
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", width=width)
        table.add_column("id", justify="right", width=4)
        table.add_column("domain", width=8, no_wrap=True)
        table.add_column("tokens", justify="right", width=6)
        table.add_column("a step", justify="right", width=6)
        table.add_column("text", no_wrap=True, ratio=1)
        for number, progress in running[:MOST_ROWS]:
            table.add_row(
                str(number), Text(progress.prompt.domain), str(progress.num_tokens),
                digits(progress.acceptance_length), Text(tail(progress.text, width - 29), style="dim"),
            )  # fmt: skip
        more = [Text(f"and {len(running) - MOST_ROWS} more", style="dim")] if len(running) > MOST_ROWS else []
        return Group(table, *more, Text(self._marked(), style="bold"))

    def _line(self) -> str:
        totals = self.totals
        length = 1.0 + totals.num_accepted / totals.request_steps if totals.request_steps else float("nan")
        drafters = self.engine.controller.drafters
        arm = drafters[totals.arm].name if totals.arm >= 0 else NOTHING
        speed = totals.num_tokens / totals.seconds if totals.seconds else float("nan")
        return (
            f"{totals.num_ended}/{len(self.prompts)} done, {totals.num_tokens} tokens, {digits(speed)} tokens/s, "
            f"{digits(length)} a step, by {arm}"
        )

    def _marked(self) -> str:
        """The bottom line, which says of a replay that it is one."""
        replayed = self.engine.acceptor.label
        return f"{self._line()}; {replayed}" if replayed else self._line()


def watcher(engine: Engine, prompts: Sequence[Prompt], console: Console, quiet: bool, as_json: bool) -> Watcher:
    """Who shows the run.

    console   of stderr
    quiet     texts alone
    as_json   no texts: they are in the JSON
    """
    replayed = bool(engine.acceptor.label)
    if len(prompts) == 1 and not as_json and not replayed:
        return Stream(engine, prompts)
    texts = not as_json and not (replayed and quiet)  # a replay has none
    return Blocks(engine, prompts, console if console.is_terminal and not quiet else None, texts)


def block(request_id: int, progress: Progress, replayed: str = "") -> str:
    """A finished request in lines: what it was, the prompt's beginning, the text, and an empty line.

    replayed  where its acceptance is from (empty: the output is the model's own); then it has one line
    """
    length = progress.acceptance_length
    a_step = f", {digits(length)} tokens a step" if length == length else ""
    ends = ENDS[progress.reason or "cancelled"]
    head = f"[{request_id}] {progress.prompt.domain}: {progress.num_tokens} tokens{a_step}, {ends}"
    if replayed:
        return f"[{request_id}] {progress.prompt.domain}: {progress.num_tokens} tokens{a_step}, {replayed}\n"
    asked = shortened(f"> {' '.join(progress.prompt.text.split())}", 80)
    text = printable(progress.text).strip("\n")
    return "\n".join([head, asked, *([text] if text else []), "", ""])


def printable(text: str) -> str:
    """Text whose control characters are left out: what a model says must not drive the terminal."""
    return "".join(letter for letter in text if letter in "\n\t" or letter.isprintable())


def tail(text: str, width: int) -> str:
    """The last whole words that fit into `width` columns of one line, after an ellipsis where some are left out."""
    line = " ".join(printable(text).split())
    if cell_len(line) <= width:
        return line
    line = line[-max(width, 1) :]
    while cell_len(line) >= width:
        line = line[1:]
    _, space, words = line.partition(" ")
    return f"…{words if space else line}"


def shortened(line: str, width: int) -> str:
    """A line cut to `width` columns, with an ellipsis where something is left out."""
    line = printable(line)
    if cell_len(line) <= width:
        return line
    while cell_len(line) >= width:
        line = line[:-1]
    return line.rstrip() + "…"
