"""Text of traces, written as libkineto and torch write it; see output_json.cpp for the layouts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.assemble.load import LoadOptions, load
from rankscope.features.traces.read.decode import decode_bytes, read_trace
from rankscope.features.traces.read.model import TraceContent
from rankscope.features.traces.read.range_joiner import join_ranges
from rankscope.features.traces.read.recognition import looks_like_trace
from rankscope.schema import Dataset

Event = dict[str, Any]
BASE_NS = 1_790_857_026_000_000_000
START_US = 4_479_654_969_561.300
PID, DEVICE = 493, 0
ONE_JOB = LoadOptions(jobs=1)


def x(category: str, name: str, ts: float, dur: float, *, pid: Any = PID, tid: Any = PID, **args: Any) -> Event:
    """A complete event; underscores of arguments are spaces."""
    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": START_US + ts, "dur": dur}
    return {**event, "args": {key.replace("_", " "): value for key, value in args.items()}}


def kernel(name: str, ts: float, dur: float, correlation: int, *, stream: int = 7, **args: Any) -> Event:
    """A kernel on the device."""
    return x("kernel", name, ts, dur, pid=DEVICE, tid=stream, stream=stream, correlation=correlation, **args)


def launch(ts: float, correlation: int, *, tid: int = PID, name: str = "cudaLaunchKernel", dur: float = 2) -> Event:
    """The call that starts something on a device."""
    return x("cuda_runtime", name, ts, dur, tid=tid, cbid=211, correlation=correlation)


def metadata(kind: str, pid: Any, tid: Any, **args: Any) -> Event:
    """A metadata event as the writer of today orders it."""
    return {"ph": "M", "name": kind, "ts": START_US, "pid": pid, "tid": tid, "args": args}


def comms(name: str = "allreduce", group: str = "0", ranks: Sequence[int] = (0, 1), **more: Any) -> dict[str, Any]:
    """Arguments of record_param_comms."""
    return {
        "Collective name": name, "dtype": "Float", "In msg nelems": 64, "Out msg nelems": 64, "Group size": len(ranks),
        "Process Group Name": group, "Process Group Description": "default_pg" if group == "0" else "TP",
        "Process Group Ranks": json.dumps(list(ranks)), **{key.replace("_", " "): value for key, value in more.items()},
    }  # fmt: skip


def issued(ts: float, external: int, args: Mapping[str, Any], *, dur: float = 10, tid: int = PID) -> Event:
    """record_param_comms."""
    event = x("cpu_op", "record_param_comms", ts, dur, tid=tid)
    return {**event, "args": {"External id": external, **args}}


def all_reduce(ts: float, number: int, *, wait: float = 50, dur: float = 100, **more: Any) -> list[Event]:
    """A collective as torch 2.2 and later write it: what the host issued, and its kernel with the arguments."""
    args = comms(**more)
    run = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", ts + wait, dur, number, stream=20)
    return [
        issued(ts, number, args),
        x("user_annotation", "nccl:all_reduce", ts + 1, 8, **{"External id": 1_000_000 + number}),
        launch(ts + 3, number, name="cudaLaunchKernelExC"),
        {**run, "args": {**run["args"], "External id": number, **args}},
    ]


def config(*groups: tuple[str, Sequence[int]]) -> list[dict[str, Any]]:
    """pg_config: names and ranks."""
    return [
        {"pg_name": name, "pg_desc": "default_pg" if name == "0" else "TP", "pg_size": len(ranks), "ranks": list(ranks)}
        for name, ranks in groups
    ]


def about(rank: int | None = 0, *, backend: str = "nccl", groups: Sequence[Any] = (("0", (0, 1)),)) -> dict[str, Any]:
    """Metadata of torch 2.13."""
    info = {"backend": backend, "rank": rank, "world_size": 2, "pg_count": len(groups), "pg_config": config(*groups)}
    known = {} if rank is None else {"distributedInfo": info}
    return {"schemaVersion": 1, "deviceProperties": [], **known, "baseTimeNanoseconds": BASE_NS}


def _lines(event: Event) -> str:
    """Several lines for each event, its arguments on one."""
    head = {key: value for key, value in event.items() if key != "args"}
    args = event.get("args")
    tail = "" if args is None else ',\n    "args": {\n      ' + json.dumps(args)[1:-1] + "\n    }"
    return "  {\n    " + json.dumps(head)[1:-1] + tail + "\n  }"


def _fields(event: Event) -> str:
    """One field on a line: the writer of 2026."""
    return "  {\n    " + ",\n    ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in event.items()) + "\n    \n  }"


def _any_order(event: Event) -> str:
    """Each event with another order of its keys, some with arguments before the phase, as torch_npu writes."""
    keys = list(event)
    turn = int(event.get("dur", 0) * 10 + len(event["name"])) % len(keys)
    return json.dumps({key: event[key] for key in (*keys[turn:], *keys[:turn])})


LAYOUTS: dict[str, tuple[Callable[[Event], str], str]] = {
    "lines": (_lines, ",\n"),
    "fields": (_fields, ",\n"),
    "one line each": (json.dumps, ",\n"),
    "sorted": (lambda event: json.dumps(event, sort_keys=True), ",\n"),
    "any order": (_any_order, ",\n"),
    "compact": (lambda event: json.dumps(event, separators=(",", ":")), ","),
}
"""How an event is written, and what stands between two."""


def document(events: Sequence[Event], head: Mapping[str, Any] | None = None, layout: str = "lines") -> bytes:
    """A trace."""
    write, between = LAYOUTS[layout]
    before = json.dumps(dict(about() if head is None else head))[:-1]
    return (
        f'{before}, "traceEvents": [\n' + between.join(map(write, events)) + '\n  ], "traceName": "x.json" }'
    ).encode()


def decoded(data: bytes) -> TraceContent:
    """The trace in a file that is recognised as one."""
    assert looks_like_trace(data[:512])
    return decode_bytes(data)


def in_ranges(data: bytes, parts: int) -> TraceContent:
    """The same, read in so many ranges."""
    return join_ranges([read_trace(io.BytesIO(data), len(data), (part, parts)) for part in range(parts)], [])


def spans(content: TraceContent) -> list[tuple[str, str, int, int]]:
    """Name, category, start and duration of each span, in the order of the file."""
    names = [content.names[i] for i in content.code("name").tolist()]
    categories = [content.lanes[i].category for i in content.code("lane").tolist()]
    times = zip(content.column("start_ns").tolist(), content.column("duration_ns").tolist(), strict=True)
    return [(name, category, *time) for name, category, time in zip(names, categories, times, strict=True)]


def loaded(folder: Path, files: Mapping[str, bytes], options: LoadOptions = ONE_JOB) -> Dataset:
    """The dataset of files, read by the program's own worker processes."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return load([folder], options)
