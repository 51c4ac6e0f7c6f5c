"""The loop of a worker process: it takes some files at a time and sends their contents."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from typing import IO, Any

from rankscope.parsers.files.reader import FileContent, follow_log, read_file
from rankscope.parsers.streams import limit_worker
from rankscope.parsers.workers.protocol import receive_message, send_message

COLLECT_EVERY = 4096
"""Messages between two collections of reference cycles."""
MOST_TOLD = 64
"""Most files or members of archives without content that one message tells of."""
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
            order, _ = receive_message(lambda count: _exactly(source, count))
        except EOFError:
            return
        _serve(order, sink)
        if count % COLLECT_EVERY == 0:
            # a watched job lasts for days
            gc.collect()


def _serve(order: dict[str, Any], sink: IO[bytes]) -> None:
    """Sends the contents of files, those without arrays together, and at the end the stamp of each file."""
    stamps: list[tuple[int, int, int] | None] = []
    told: list[dict[str, Any]] = []
    most = MOST_TOLD if len(order["files"]) > 1 else 1
    for place, file in enumerate(order["files"]):
        stamps.append(None)
        for content in _contents(file):
            if content.stamp is not None:
                stamps[-1] = content.stamp
                continue
            told.append(_header(place, content))
            if content.decoded is not None or len(told) >= most:
                send_message(sink, {"contents": told}, content.decoded.body() if content.decoded else ())
                told.clear()
    send_message(sink, {"contents": told, "stamps": stamps})


def _contents(file: dict[str, Any]) -> Iterator[FileContent]:
    path, within = (os.fsdecode(bytes.fromhex(file[name])) for name in ("path", "within"))
    given = file["given"]
    if "tail" not in file:
        return read_file(path, file["size"], file["part"], file["parts"], given, within)
    if os.nice(0) < NICENESS:
        os.nice(NICENESS - os.nice(0))
    start, mark, ended = file["tail"]
    return follow_log(path, start, mark, ended, given, within)


def _header(place: int, content: FileContent) -> dict[str, Any]:
    decoded = content.decoded
    return {
        "place": place, "inner": content.inner, "kind": content.kind, "problem": content.problem, "size": content.size,
        "mtime_ns": content.mtime_ns, "stretch": content.stretch and list(content.stretch),
        "rows": decoded.rows if decoded else 0, "decoded": decoded.header() if decoded else None,
    }  # fmt: skip


def _exactly(source: IO[bytes], count: int) -> bytearray:
    data = source.read(count)
    if len(data) < count:
        raise EOFError
    return bytearray(data)


if __name__ == "__main__":
    main()
