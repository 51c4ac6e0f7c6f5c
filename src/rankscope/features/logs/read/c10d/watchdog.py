"""Lines of the watchdog and the heartbeat monitor of ProcessGroupNCCL, and of nccl2 of torch 2.15 and its hook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rankscope.features.logs.read.log_record import Event, Record, matched_number, message_event, sound_counter

LITERALS = (
    "Watchdog caught collective operation timeout", " work: ", "watchdog thread terminated with exception",
    "raised the following async exception", "found async exception when checking for",
    "watchdog got stuck for", "Heartbeat monitor timed out", "Could not acquire GIL within",
    "dump signal", "to signal dumping", "dumping nccl trace to", "debug info to ", "Error opening file for writing ",
    "atchdog timeout (self.", "timed out in blocking wait", "remote error detected from rank",
    "Operation timed out after ", "Aborting process on rank ", "nccl hit async error on rank ", "FlightRecorderHook: ",
    "Timeout thread starting for rank: ", "Timeout thread exiting for rank: ",
)  # fmt: skip
_RUN_TIME = re.compile(r"\) ran for (\d+) milliseconds before timing out")
_WORK = re.compile(r"WorkNCCL\(((?:[^()]|\(ms\))*)")
_FIELDS = {
    "seq": re.compile(r"SeqNum=(\d+)(?=[,)])"),
    "numel_in": re.compile(r"NumelIn=(\d+)(?=[,)])"),
    "numel_out": re.compile(r"NumelOut=(\d+)(?=[,)])"),
    "timeout_ms": re.compile(r"Timeout\(ms\)=(\d+)(?=[,)])"),
}
"""Numbers that are whole: a cut, or a counter of the terminal over the line, leaves none of these signs behind them."""
_OP = re.compile(r"OpType=([A-Za-z_0-9]{1,64})(?=[,)])")
_SHAPE = re.compile(r"TensorShape=\[([\d, ]{0,200})\](?=[,)])")
_COUNTERS = re.compile(r"[Ll]ast enqueued (?:[A-Z]+ )?work: (-?\d+), last completed (?:[A-Z]+ )?work: (-?\d+)")
_AT = re.compile(r"(?:Timeout at [A-Z]+ work|by watchdog at work(?: sequence id)?): (\d+)")
_THREAD_END = re.compile(r"watchdog thread terminated with exception: ?(.*)")
_ASYNC_ERROR = re.compile(
    r"(?:raised the following async exception|found async exception when checking for \w+ errors): ?(.*)"
)
_SOURCE = re.compile(r"collective timeout from\s+(?:(this local rank)|rank (-?\d+))")
_STUCK_WATCHDOG = re.compile(r"watchdog got stuck for (\d+) seconds")
_STUCK_SCHEDULER = re.compile(r"[Ww]atchdog timeout \(self\.\w{1,40}=(\d+)")
"""Line of the watchdog of SGLang, which watches the main loop of its scheduler."""
SCHEDULER = "scheduler-stuck"
"""`problem` of a scheduler that made no forward pass, whose watchdog works."""
_WORKS_LEFT = re.compile(r"workMetaList_\.size\(\)=(\d+)")
_DUMP_WRITTEN = re.compile(
    r"(?:(?P<started>dumping nccl trace to)|(?P<failed>Error opening file for writing [A-Za-z ]{1,40}debug info:)"
    r"|(?P<done>Finished writing [A-Za-z ]{1,40}debug info to)) (?P<path>\S{1,4096})"
)
_REMOTE = re.compile(r"remote error detected from rank: ?(\d+)")


def events(record: Record) -> Iterator[Event]:
    """The events in a record, also of nccl2."""
    yield from _nccl2_events(record)
    text = record.text
    if (work_ := _WORK.search(text)) is not None and not text.startswith(")", work_.end()):
        record = record._replace(torn=True)
    if "Watchdog caught collective operation timeout" in text or "timed out in blocking wait" in text:
        quoted = "terminated with exception" in text or "what(): " in text
        yield message_event(
            "watchdog-timeout",
            record,
            **work(record),
            ran_ms=matched_number(record, _RUN_TIME.search(text)),
            repeats=quoted,
        )
    if (counters := _COUNTERS.search(text)) is not None:
        yield message_event("pg-status", record, **status(record, counters))
    if (ended := _THREAD_END.search(text)) is not None:
        yield message_event("watchdog-thread-terminated", record, reason=ended[1][:1000], repeats="what(): " in text)
    elif (raised := _ASYNC_ERROR.search(text)) is not None:
        yield message_event("async-error", record, **work(record), reason=raised[1][:1000])
    elif (remote := _REMOTE.search(text)) is not None:
        yield message_event(
            "async-error", record, **work(record), reason="remote", from_rank_in_group=matched_number(record, remote)
        )
    yield from _heartbeats(record)
    yield from _dumps(record)


def work(record: Record) -> dict[str, Any]:
    """The fields of `WorkNCCL(…)` in a message: `seq`, `op`, `numel_in`, `numel_out`, `timeout_ms`, `shape`.

    None for one that is missing or may be cut.
    """
    found = _WORK.search(record.text)
    start, end = found.span(1) if found else (0, 0)
    inside = record._replace(text=record.text[start : end + 1])
    values: dict[str, Any] = {k: matched_number(inside, pattern.search(inside.text)) for k, pattern in _FIELDS.items()}
    op, shape = _OP.search(inside.text), _SHAPE.search(inside.text)
    dims = re.findall(r"\d{1,18}", shape[1]) if shape else []
    return {**values, "op": op[1] if op else None, "shape": [int(d) for d in dims] if shape else None}


def status(record: Record, counters: re.Match[str]) -> dict[str, Any]:
    """`last_enqueued`, `last_completed`, `at_work`; None for a counter that was never set, and -1 for "none yet"."""
    enqueued, completed = (
        sound_counter(matched_number(record, counters, 1)),
        sound_counter(matched_number(record, counters, 2)),
    )
    if enqueued is not None and completed is not None and completed > enqueued:
        enqueued = completed = None
    at = sound_counter(matched_number(record, _AT.search(record.text)))
    if completed is not None and counters.end() == len(record.text.rstrip()) and _is_cut(counters, completed, at):
        completed = None
    return {"last_enqueued": enqueued, "last_completed": completed, "at_work": at}


def _is_cut(counters: re.Match[str], completed: int, at: int | None) -> bool:
    """Whether the number of the last completed work, at the end of a line, may be the beginning of one.

    A full stop follows it in some versions; in others it is the beginning of the number before the one that failed.
    """
    dotted = "NCCL work" in counters[0]
    return dotted or (at is not None and completed < at - 1 and str(at - 1).startswith(str(completed)))


def _heartbeats(record: Record) -> Iterator[Event]:
    text = record.text
    if (stuck := _STUCK_WATCHDOG.search(text)) is not None:
        yield message_event(
            "heartbeat",
            record,
            problem="watchdog-stuck",
            seconds=matched_number(record, stuck),
            pending=None,
        )
    elif (scheduler := _STUCK_SCHEDULER.search(text)) is not None:
        yield message_event(
            "heartbeat",
            record,
            problem=SCHEDULER,
            seconds=matched_number(record, scheduler),
            pending=None,
        )
    elif "Heartbeat monitor timed out" in text:
        left = matched_number(record, _WORKS_LEFT.search(text))
        yield message_event("heartbeat", record, problem="monitor-timed-out", seconds=None, pending=left)
    elif "Could not acquire GIL within" in text:
        yield message_event("heartbeat", record, problem="gil", seconds=None, pending=None)


def _dumps(record: Record) -> Iterator[Event]:
    text = record.text
    if "ceived a dump signal due to" in text:
        source = _SOURCE.search(text)
        own = source is not None and source[1] is not None
        asked = matched_number(record, source, 2)
        yield message_event(
            "dump-signal", record, own=own, from_rank=asked if asked is not None and asked >= 0 else None
        )
    elif "dump signal from another rank" in text:
        yield message_event("dump-signal", record, own=False, from_rank=None)
    elif "to signal dumping" in text:
        yield message_event("dump-signal", record, own=True, from_rank=None)
    if (written := _DUMP_WRITTEN.search(text)) is not None:
        state = "failed" if written["failed"] else "done" if written["done"] else "started"
        yield message_event("dump-written", record, path=written["path"], state=state)


LIBRARY = "nccl2"
"""`library` of its timeouts: they name no operation, so the awaited rank is unknown."""
_RAN_NCCL2 = re.compile(r"\] Operation timed out after (\d+) ms\b")
_ABORT = re.compile(r"Aborting process on rank \d+ due to ((?:timeout|error) - .*)")
_ERROR = re.compile(r"nccl hit async error on rank \d+: ?(.*)")
_THREAD = re.compile(r"Timeout thread (starting|exiting) for rank: \d+")
REASON_LIMIT = 1000


def _nccl2_events(record: Record) -> Iterator[Event]:
    """The events of nccl2 in a record."""
    text = record.text
    if "[TC]" in text and (ran := _RAN_NCCL2.search(text)) is not None:
        yield message_event(
            "watchdog-timeout", record, library=LIBRARY, ran_ms=matched_number(record, ran), repeats=False
        )
    elif (abort := _ABORT.search(text)) is not None:
        yield message_event("watchdog-thread-terminated", record, reason=abort[1][:REASON_LIMIT], repeats=True)
    elif (error := _ERROR.search(text)) is not None:
        yield message_event("async-error", record, reason=error[1][:REASON_LIMIT])
    elif "FlightRecorderHook: dumping trace on collective failure" in text:
        yield message_event("dump-signal", record, own=True, from_rank=None)
    elif "[TC]" in text and (thread := _THREAD.search(text)) is not None:
        # a rank that prints it belongs to the job, and its log is here
        yield message_event("group-watched", record, state="begun" if thread[1] == "starting" else "ended")
