"""Ways to load traces, each run as a process of its own: `python -m benchmarks.trace_ways WAY FILE...`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import program_parser

COLUMNS = ("name", "cat", "pid", "tid", "ts", "dur", "correlation")


def with_orjson(paths: Sequence[Path]) -> int:
    """The whole file as objects of Python, then columns."""
    import orjson

    gc.disable()
    return sum(_columns(_of_dicts(orjson.loads(path.read_bytes())["traceEvents"])) for path in paths)


def _of_dicts(events: list[dict[str, Any]]) -> Iterable[tuple[Any, ...]]:
    for event in events:
        if event["ph"] == "X":
            args = event.get("args", {})
            yield (*(event[key] for key in COLUMNS[:-1]), args.get("correlation"))


def with_msgspec(paths: Sequence[Path]) -> int:
    """The whole file as typed objects, then columns."""
    import msgspec

    gc.disable()
    args: Any = msgspec.defstruct("Args", [("correlation", int | None, None)], gc=False)
    event: Any = msgspec.defstruct(
        "Event",
        [("ph", str), ("name", str, ""), ("cat", str, ""), ("pid", int | str, 0), ("tid", int | str, 0),
         ("ts", float, 0.0), ("dur", float, 0.0), ("args", args | None, None)],
        gc=False,
    )  # fmt: skip
    document: Any = msgspec.defstruct("Document", [("traceEvents", list.__class_getitem__(event))], gc=False)
    decoder = msgspec.json.Decoder(document)
    return sum(_columns(_of_structs(decoder.decode(path.read_bytes()).traceEvents)) for path in paths)


def _of_structs(events: list[Any]) -> Iterable[tuple[Any, ...]]:
    for e in events:
        if e.ph == "X":
            yield e.name, e.cat, e.pid, e.tid, e.ts, e.dur, None if e.args is None else e.args.correlation


def _columns(rows: Iterable[tuple[Any, ...]]) -> int:
    """A table of the rows; how many there are."""
    import polars as pl

    table = pl.DataFrame(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))
    return table.height


def with_rankscope(paths: Sequence[Path], detail: str = "all") -> int:
    """The dataset: joined, nested, in order."""
    from rankscope.assemble.load import LoadOptions, load

    dataset = load(paths, LoadOptions(detail=detail))
    return dataset.spans.height if detail == "all" else dataset.traced.height


def with_hta(paths: Sequence[Path]) -> int:
    """HolisticTraceAnalysis, as its users load traces; not installed with rankscope."""
    import logging

    from hta.common.trace import Trace

    logging.disable()
    trace = Trace(trace_files={rank: str(path) for rank, path in enumerate(paths)}, trace_dir="")
    trace.parse_traces(use_multiprocessing=len(paths) > 1)
    return sum(len(table) for table in trace.traces.values())


WAYS: dict[str, Callable[[Sequence[Path]], int]] = {
    "orjson + columns": with_orjson,
    "msgspec typed, whole file": with_msgspec,
    "rankscope, all": with_rankscope,
    "rankscope, first paint": lambda paths: with_rankscope(paths, "collectives"),
    "HTA": with_hta,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Loads traces in one way, and prints how many rows they have."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("way", choices=WAYS, metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    print(WAYS[given.way](given.files), flush=True)


if __name__ == "__main__":
    main()
    # as rankscope's commands end: what is measured is loading, and not giving memory back
    os._exit(0)
