"""The merged trace against the trace event format, as strictly as viewers are that are strict.

The rules are those of the format's document: required keys by phase, flows that pair up and are bound to slices, and
slices of one thread that lie in one another or apart.
"""

from __future__ import annotations

import io
import json
import math
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.traces.perfetto import MOST_ROWS, rows_beside, write_merged
from rankscope.schema import Dataset
from tests.trace_tables import COMPUTE
from tests.traces import MS, US, TraceBuilder, training

Event = dict[str, Any]
REAL = Path(__file__).parents[2] / "sample_data" / "slow_loader"
KEYS = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"}, "M": {"name", "pid", "tid", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"}, "t": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}  # fmt: skip
NAMED = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index",
         "thread_sort_index": "sort_index"}  # fmt: skip


def overlapping() -> Dataset:
    """A job in which kernels of one stream begin before those ahead of them have ended."""
    job = TraceBuilder(2)
    for rank in range(2):
        for at in range(40):
            length = (5 + at % 7) * US
            job.span(rank, COMPUTE, "kernel", f"gemm_{at}", at * 3 * US, length)
    for _ in range(4):
        job.collective()
    return job.build()


JOBS = {
    "simulated": lambda: training(3, 4, slow_host={2: 20 * MS}, hosts=1, clock_ns={1: 400_000}).build(),
    "real": lambda: load([REAL]),
    "overlapping": overlapping,
}


@cache
def written(name: str) -> Event:
    """The document of a job."""
    dataset, out = JOBS[name](), io.BytesIO()
    write_merged(dataset, analyse(dataset), out)
    document: Event = json.loads(out.getvalue(), parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    return document


def microseconds(value: object) -> bool:
    """Whether it is a time that a viewer can take."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


@pytest.mark.parametrize("name", JOBS)
def test_every_event_has_what_its_phase_needs(name: str) -> None:
    document = written(name)
    assert isinstance(document["baseTimeNanoseconds"], int) and document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert set(event) >= KEYS[event["ph"]], event
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert isinstance(event["name"], str) and event["name"]
        assert all(microseconds(event[key]) for key in ("ts", "dur") if key in event), event
        if event["ph"] == "M":
            assert set(event["args"]) == {NAMED[event["name"]]}


@pytest.mark.parametrize("name", JOBS)
def test_every_thread_and_process_with_slices_is_named_once(name: str) -> None:
    events = written(name)["traceEvents"]
    for kind, keys in (("process_name", ("pid",)), ("thread_name", ("pid", "tid"))):
        named = [tuple(e[key] for key in keys) for e in events if e["ph"] == "M" and e["name"] == kind]
        used = {tuple(e[key] for key in keys) for e in events if e["ph"] != "M"}
        assert len(named) == len(set(named)) and used <= set(named)


def slices(name: str) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Start and end in ns of the slices of each thread, in the order of the file."""
    out: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for e in written(name)["traceEvents"]:
        if e["ph"] == "X":
            start = round(e["ts"] * 1000)
            out[e["pid"], e["tid"]].append((start, start + round(e["dur"] * 1000)))
    return out


@pytest.mark.parametrize("name", JOBS)
def test_slices_of_a_thread_rise_and_lie_in_one_another_or_apart(name: str) -> None:
    for spans in slices(name).values():
        assert all((a[0], -a[1]) <= (b[0], -b[1]) for a, b in pairwise(spans)), "the outer one comes first"
        open_: list[int] = []
        for start, end in spans:
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1]
            open_.append(end)


@pytest.mark.parametrize("name", JOBS)
def test_flows_pair_up_and_begin_and_end_in_slices(name: str) -> None:
    flows: dict[tuple[str, str, int], list[Event]] = defaultdict(list)
    for e in written(name)["traceEvents"]:
        if e["ph"] in "stf":
            flows[e["cat"], e["name"], e["id"]].append(e)
    assert flows
    held = slices(name)
    for steps in flows.values():
        steps.sort(key=lambda e: (e["ts"], "stf".index(e["ph"])))
        assert [e["ph"] for e in steps] == ["s", *"t" * (len(steps) - 2), "f"]
        assert all(e["bp"] == "e" for e in steps[1:])
        for e in steps:
            at = round(e["ts"] * 1000)
            assert any(start <= at <= end for start, end in held[e["pid"], e["tid"]])


def test_what_crosses_goes_beside_and_the_rest_stays() -> None:
    document = written("overlapping")["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in document if e["name"] == "thread_name" and e["pid"] == 0}
    beside = {tid for tid, name in names.items() if name.endswith("(beside)")}
    assert 1 <= len(beside) <= MOST_ROWS
    moved = [e for e in document if e["ph"] == "X" and e["tid"] in beside]
    assert moved and all(e["name"].startswith("gemm") for e in moved)
    order = {e["tid"]: e["args"]["sort_index"] for e in document if e["name"] == "thread_sort_index" and e["pid"] == 0}
    assert len(set(order.values())) == len(order)
    others = [e["args"]["name"] for e in written("simulated")["traceEvents"] if e["name"] == "thread_name"]
    assert others and all("(beside)" not in name for name in others)


def test_more_rows_than_there_may_be_share_the_last() -> None:
    count = 3 * MOST_ROWS
    spans = overlapping().spans.head(count).with_columns(
        track=pl.lit(0, pl.UInt32), start_ns=pl.Series(np.arange(count)), duration_ns=pl.lit(1000, pl.Int64),
        depth=pl.Series(np.arange(count).astype(np.uint16)),
    )  # fmt: skip
    assert rows_beside(spans).tolist() == [0, *range(1, MOST_ROWS + 1), *[MOST_ROWS] * (count - MOST_ROWS - 1)]
    assert rows_beside(replace(overlapping(), spans=spans).spans.clear()).tolist() == []
