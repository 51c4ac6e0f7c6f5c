"""The loop of a worker process: takes one file at a time, sends back what is in it."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import IO, Any

from rankscope.parsers.files.limits import limit_worker
from rankscope.parsers.files.reader import Content, read
from rankscope.parsers.workers.protocol import receive, send


def main() -> None:
    """Serves tasks from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_worker()
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    # anything a library prints must not end up among the messages
    os.dup2(2, 1)
    # thousands of dicts are made for each dump and none is part of a cycle
    gc.disable()
    gc.freeze()
    send(sink, {"ready": True})
    while True:
        try:
            task, _ = receive(lambda count: _exactly(source, count))
        except EOFError:
            return
        _serve(task, sink)


def _serve(task: dict[str, Any], sink: IO[bytes]) -> None:
    for content in read(os.fsdecode(bytes.fromhex(task["path"])), task["size"], task["part"], task["parts"]):
        send(sink, *_message(content))
    send(sink, {"done": True})


def _message(content: Content) -> tuple[dict[str, Any], list[memoryview]]:
    header = {
        "inner": content.inner, "kind": content.kind, "problem": content.problem, "size": content.size,
        "mtime_ns": content.mtime_ns, "rows": 0, "decoded": None,
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
