"""Acceptance traces: recorded once, replayed under any policy."""

from specsim.trace.encode import RecordedBlocks, RequestRow
from specsim.trace.manifest import SCHEMA_VERSION, DrafterEntry, Manifest, PromptSet, Sampling
from specsim.trace.protocol import TraceLike
from specsim.trace.reader import Trace
from specsim.trace.requests import Requests
from specsim.trace.validate import ValidationReport
from specsim.trace.writer import TraceWriter

__all__ = [
    "SCHEMA_VERSION",
    "DrafterEntry",
    "Manifest",
    "PromptSet",
    "RecordedBlocks",
    "RequestRow",
    "Requests",
    "Sampling",
    "Trace",
    "TraceLike",
    "TraceWriter",
    "ValidationReport",
]
