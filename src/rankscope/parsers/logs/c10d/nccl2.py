"""What the backend nccl2 of torch 2.15 and the hook that records it print.

Its messages begin with `[TC][rank=0][name=3]`: the rank in the group of that name, while torch puts the global one in
front of the line, `[rank4]:`. No line names an operation.
Source: torch/csrc/distributed/c10d/nccl2 and hooks/FlightRecorderHook.cpp, strings of torch 2.15.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs.c10d.event_builder import number, tell
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record

LITERALS = (
    "Operation timed out after ", "Aborting process on rank ", "nccl hit async error on rank ", "FlightRecorderHook: ",
    "Timeout thread starting for rank: ", "Timeout thread exiting for rank: ",
)  # fmt: skip
LIBRARY = "nccl2"
"""`library` of its timeouts: they name no operation, so nothing tells for whom a rank waited."""
_RAN = re.compile(r"\] Operation timed out after (\d+) ms\b")
_ABORT = re.compile(r"Aborting process on rank \d+ due to ((?:timeout|error) - .*)")
_ERROR = re.compile(r"nccl hit async error on rank \d+: ?(.*)")
_THREAD = re.compile(r"Timeout thread (starting|exiting) for rank: \d+")
REASON_LIMIT = 1000


def events(record: Record) -> Iterator[Event]:
    """The events in a record."""
    text = record.text
    if "[TC]" in text and (ran := _RAN.search(text)) is not None:
        yield tell("watchdog-timeout", record, library=LIBRARY, ran_ms=number(record, ran), repeats=False)
    elif (abort := _ABORT.search(text)) is not None:
        yield tell("watchdog-thread-terminated", record, reason=abort[1][:REASON_LIMIT], repeats=True)
    elif (error := _ERROR.search(text)) is not None:
        yield tell("async-error", record, reason=error[1][:REASON_LIMIT])
    elif "FlightRecorderHook: dumping trace on collective failure" in text:
        yield tell("dump-signal", record, own=True, from_rank=None)
    elif "[TC]" in text and (thread := _THREAD.search(text)) is not None:
        # a rank that prints it is one of the job, and its log is here
        yield tell("group-watched", record, state="begun" if thread[1] == "starting" else "ended")
