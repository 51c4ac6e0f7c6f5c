"""The loop of a worker process: it takes one file at a time and sends its content."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
from typing import IO, Any

from rankscope.parsers.files.reader import FileContent, follow_log, read_file
from rankscope.parsers.streams import limit_worker
from rankscope.parsers.workers.protocol import receive_message, send_message

COLLECT_EVERY = 4096
"""Files between two collections of reference cycles."""
NICENESS = 5
"""Niceness of a process that reads changed files, so that the screen stays fast."""


def main() -> None:
    """Serves tasks from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_worker()
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    # libraries may print; their output must not reach the messages
    os.dup2(2, 1)
    # each dump makes thousands of dicts, and none is in a cycle
    gc.disable()
    gc.freeze()
    send_message(sink, {"ready": True})
    for count in itertools.count(1):
        try:
            task, _ = receive_message(lambda count: _exactly(source, count))
        except EOFError:
            return
        _serve(task, sink)
        if count % COLLECT_EVERY == 0:
            # a watched job lasts for days
            gc.collect()


def _serve(task: dict[str, Any], sink: IO[bytes]) -> None:
    path, stamp = os.fsdecode(bytes.fromhex(task["path"])), None
    if "tail" in task and os.nice(0) < NICENESS:
        os.nice(NICENESS - os.nice(0))
    given = "given" in task
    if "tail" in task:
        start, mark, ended = task["tail"]
        contents = follow_log(path, start, mark, ended, given)
    else:
        contents = read_file(path, task["size"], task["part"], task["parts"], given)
    for content in contents:
        if content.stamp is not None:
            stamp = content.stamp
        else:
            send_message(sink, *_message(content))
    send_message(sink, {"done": True, "stamp": stamp})


def _message(content: FileContent) -> tuple[dict[str, Any], list[memoryview]]:
    header = {
        "inner": content.inner, "kind": content.kind, "problem": content.problem, "size": content.size,
        "mtime_ns": content.mtime_ns, "stretch": content.stretch and list(content.stretch), "rows": 0, "decoded": None,
    }  # fmt: skip
    if content.decoded is None:
        return header, []
    decoded = content.decoded
    return {**header, "rows": decoded.rows, "decoded": decoded.header()}, decoded.body()


def _exactly(source: IO[bytes], count: int) -> bytearray:
    data = source.read(count)
    if len(data) < count:
        raise EOFError
    return bytearray(data)


if __name__ == "__main__":
    main()
