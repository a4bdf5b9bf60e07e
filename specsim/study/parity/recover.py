"""What is left of a live run that was killed: a trace of the requests that had ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from specsim.errors import InputError
from specsim.serving.run_file import STEPS_JOURNAL, read_run_file
from specsim.telemetry import STEP_DTYPE
from specsim.trace import Manifest, TraceWriter
from specsim.trace.journal import REQUESTS_JOURNAL, JournalledRequests
from specsim.trace.manifest import read_manifest
from specsim.trace.writer import PARTS_FOLDER


def recover(folder: str | Path, warn: Callable[[str], None] = lambda line: None) -> Manifest:
    """Make a trace of the requests that had ended when the run was killed, and of the steps written until then.

    folder  of the run; run.json stays marked as not complete, since the requests under way are lost
    warn    told in a line where the journal of requests is damaged and not merely cut off
    Raises  InputError when the run was closed, or no request had ended
    """
    path = Path(folder)
    if read_run_file(path).complete:
        raise InputError(f"{path}: the run was closed, so nothing is to be recovered")
    if not (path / PARTS_FOLDER).is_dir():
        raise InputError(f"{path}: nothing is left to be recovered; its trace was made already")
    manifest = read_manifest(path / PARTS_FOLDER)
    writer = TraceWriter(path, manifest, resume=True)
    journal = path / STEPS_JOURNAL
    data = journal.read_bytes() if journal.exists() else b""
    whole = len(data) - len(data) % STEP_DTYPE.itemsize  # the last record may be cut
    ended = JournalledRequests(path)
    if ended.damage:
        warn(ended.damage)
    sealed = writer.finish_with(ended.blocks(manifest.specs), np.frombuffer(data[:whole], STEP_DTYPE))
    journal.unlink(missing_ok=True)
    (path / REQUESTS_JOURNAL).unlink(missing_ok=True)
    return sealed
