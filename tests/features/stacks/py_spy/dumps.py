"""Text as py-spy 0.4.3 writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.stacks.py_spy.decode import decode_snapshot, looks_like_snapshot
from rankscope.features.stacks.py_spy.model import Snapshot
from rankscope.parsers.flight_recorder import decode as flight_recorder
from rankscope.schema import Dataset

TRAIN = ("forward (model.py:88)", "<module> (train.py:10)")
LAUNCHER = "/usr/bin/python3 /usr/local/bin/torchrun --nproc-per-node 8 train.py"
MTIME_NS = 1_760_000_100_000_000_000


def process(
    pid: int = 100,
    frames: Sequence[str] = TRAIN,
    command: str = "python -u train.py",
    parent: tuple[int, str] | None = None,
    state: str = "active",
    threads: int = 1,
) -> str:
    """A process whose main thread has these frames, and so many threads in all."""
    above = f"Parent Process {parent[0]}: {parent[1]}\n" if parent else ""
    head = f"Process {pid}: {command}\nPython v3.11.7 (/usr/bin/python3.11)\n{above}\n"
    main = f'Thread {pid} ({state}): "MainThread"\n' + "".join(f"    {frame}\n" for frame in frames)
    rest = [f'Thread {pid + i} (idle): "Thread-{i}"\n    wait (threading.py:331)\n' for i in range(1, threads)]
    return head + main + "".join(rest)


def family(*processes: str) -> str:
    """What --subprocesses writes."""
    return f"\n{'-' * 80}\n".join(processes)


def document(pid: int = 100, frames: Sequence[tuple[str, str, int]] = (("f", "/x/a.py", 3),), **more: Any) -> bytes:
    """A process with one thread, as JSON."""
    written = [
        {"name": n, "filename": f, "module": None, "short_filename": None, "line": i, "locals": None, "is_entry": True}
        for n, f, i in frames
    ]
    thread = {
        "pid": pid, "thread_id": 140657150650048, "thread_name": "MainThread", "os_thread_id": pid, "active": True,
        "owns_gil": False, "frames": written, "process_info": None,
    }  # fmt: skip
    return orjson.dumps([{**thread, **more}], option=orjson.OPT_INDENT_2)


def read(data: str | bytes) -> Snapshot:
    """The dumps in a file that is recognised as one."""
    raw = data if isinstance(data, bytes) else data.encode()
    assert looks_like_snapshot(raw[:512])
    return decode_snapshot(raw)


def stack(snapshot: Snapshot, thread: int = 0) -> list[tuple[str, str, int]]:
    """The frames of a thread."""
    frames = [snapshot.frames[i] for i in snapshot.stacks[snapshot.threads[thread].stack]]
    return [(frame.function, frame.file, frame.line) for frame in frames]


def dataset_of(
    files: Mapping[str, str | bytes], mtimes: Mapping[str, int | None] | None = None, world_size: int | None = None,
    attempt: int | None = None,
) -> Dataset:  # fmt: skip
    """The Dataset of files of either kind, without worker processes."""
    sources = []
    for shown, data in sorted(files.items()):
        spied = isinstance(data, str) or looks_like_snapshot(data[:512])
        raw = data.encode() if isinstance(data, str) else data
        content = decode_snapshot(raw) if spied else flight_recorder.decode_dump(raw)
        mtime_ns = (mtimes or {}).get(shown, MTIME_NS)
        kind = "py-spy" if spied else "flight-recorder"
        sources.append(SourceFile(shown, kind, len(raw), mtime_ns, content.problem, content))
    return assemble(sources, "job", None, world_size, attempt)


def ranks_of(dataset: Dataset) -> dict[str, int | None]:
    """The rank of every py-spy dump."""
    rows = dataset.files.filter(dataset.files["kind"] == "py-spy").select("path", "rank").iter_rows()
    return dict(rows)


def problem_of(dataset: Dataset, path: str) -> str:
    """What is said of a file."""
    return str(dataset.files.filter(dataset.files["path"] == path)["problem"].item())
