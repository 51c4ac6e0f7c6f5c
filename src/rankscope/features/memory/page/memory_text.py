"""Memory of ranks in words: the marks of the page of memory, a cell of it, and a line for the detail of a rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.memory.page.memory_grid import DIGITS, GROWTH, SECOND_NS, SIZES, MemoryGrid, held_name
from rankscope.features.memory.rules.failed_requests import rate_text
from rankscope.features.memory.rules.memory_peers import kind_of
from rankscope.features.memory.rules.model import MEMORY_RESULTS, FullRank, MemoryGrowth
from rankscope.schema import Dataset
from rankscope.schema.tables import HOST
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, clock, plural
from rankscope.tui.detail.operation_index import OpIndex, Row
from rankscope.tui.detail.selection_facts import DetailPart
from rankscope.tui.styled_text import HEAT, Line, Role, Span, line

LOOKS: tuple[Span, ...] = (Span(" "), *(Span(str(tenth), HEAT[tenth // 2]) for tenth in range(DIGITS)))
"""The look of each code of a cell: nothing known, then tenths."""


class MemoryMark(NamedTuple):
    """A rank to look at."""

    rank: int
    device: str
    word: str
    """The mark in a word: "FAILED", "LEAKS", "HOLDS MORE"."""
    text: str
    """The facts behind it."""
    role: Role
    size: str
    """The name of the bytes that show it."""


def memory_marks(dataset: Dataset, analysis: Analysis) -> list[MemoryMark]:
    """The ranks to look at, worst first: requests that failed, leaks, ranks that hold more than their peers."""
    memory = MEMORY_RESULTS.find(analysis)
    named = {(f.kind, rank) for f in analysis.findings for rank in f.culprit_ranks}
    growths = () if memory is None else (g for g in memory.growths if ("memory-leak", g.rank) in named)
    full = () if memory is None else (f for f in memory.full if ("memory-uneven", f.rank) in named)
    return [
        *_failed(dataset.memory),
        *(MemoryMark(g.rank, g.device, "LEAKS", _growth_text(g), "bad", GROWTH) for g in growths),
        *(MemoryMark(f.rank, f.device, "HOLDS MORE", _held_text(f), "warn", "peak") for f in full),
    ]


def _failed(memory: pl.DataFrame) -> Iterator[MemoryMark]:
    """The last failed request of each rank that is known."""
    requests = memory.filter((pl.col("source") == "log") & pl.col("asked").is_not_null() & pl.col("rank").is_not_null())
    for row in requests.unique("rank", keep="last", maintain_order=True).iter_rows(named=True):
        device = row["device"] or ""
        text = f"asked {plain(device) or 'a device'} for {byte_count(row['asked'])}, and did not get it"
        yield MemoryMark(row["rank"], device, "FAILED", text, "bad", held_name(device))


def _held_text(full: FullRank) -> str:
    median = f"the median of {plural(full.peers, 'peer')} is {byte_count(full.median)}"
    return f"{byte_count(full.held)} at its peak, {median}"


def _growth_text(growth: MemoryGrowth) -> str:
    ends = f"from {byte_count(growth.first)} to {byte_count(growth.last)} in {plural(growth.samples, 'sample')}"
    return f"grows by {rate_text(growth)}, {ends}"


def verdict_line(marks: Sequence[MemoryMark], analysis: Analysis) -> Line:
    """The worst mark, else the title of a finding on memory."""
    if marks:
        mark, more = marks[0], len(marks) - 1
        rest = f"; {plural(more, 'more mark')}" if more else ""
        return line(" ", Span(f"rank {mark.rank} {mark.word}", mark.role), f"  {mark.text}", Span(rest, "dim"))
    finding = next((f for f in analysis.findings if f.kind.startswith("memory-")), None)
    if finding is not None:
        return line(" ", Span(plain(finding.title), "warn"))
    return line(" ", Span("no rank leaks or holds far more than its peers", "good"))


def scale_line(grid: MemoryGrid, name: str) -> Line:
    """The kind of device, the bytes in the cells, and the bytes that ten tenths are."""
    most = byte_count(round(float(grid.scales[name].max())))
    whole = f"the capacity, {most}" if grid.has_capacity else f"{most}, the most"
    whole = f"{most} since the first quarter" if name == GROWTH else whole
    noun = "device" if (np.diff(grid.ranks) == 0).any() else "rank"
    devices = Span(f" {plain(grid.kind)}  {plural(len(grid.ranks), noun)}  ", "head")
    shown = Span(size_name(name, grid.kind), "bold")
    return line(devices, shown, " ", *LOOKS[1:], Span(f" tenths of {whole}", "dim"))


def size_name(name: str, kind: str) -> str:
    """The name of bytes for people: the host tells what is resident, not what is reserved."""
    return "resident" if name == "reserved" and kind == HOST else name


def place_text(grid: MemoryGrid, column: int) -> str:
    """The step or the time of a column."""
    start = int(grid.starts[column])
    return str(start) if grid.by_step else _time(grid, start)


def _time(grid: MemoryGrid, time_ns: int) -> str:
    """A time of day, as exact as the columns are apart."""
    return clock(time_ns, digits=3 if grid.column_ns < SECOND_NS else 0)


def sample_text(grid: MemoryGrid, series: int, columns: slice, name: str) -> list[Line]:
    """The rank, the place, and the sizes of its sample in some columns, beside the medians of its peers."""
    at = grid.sample_at(series, columns, name)
    head = Span(f"rank {grid.ranks[series]}", "head")
    if at is None:
        return [line(head, Span(f"  no sample at {place_text(grid, columns.start)}", "dim"))]
    row = grid.samples.row(at, named=True)
    host = f" on {plain(row['host'])}" if row["host"] and row["device"] != HOST else ""
    step = "" if row["step"] is None else f"  step {row['step']}"
    time = "" if row["time_ns"] is None else f"  {_time(grid, row['time_ns'])}"
    return [line(head, f"  {plain(row['device'])}{host}{step}{time}"), *_sizes(grid, series, columns, row)]


def _sizes(grid: MemoryGrid, series: int, columns: slice, row: dict[str, Any]) -> Iterator[Line]:
    """The sizes of a sample, the medians of the peers in brackets, and the room on the device."""
    parts: list[Span | str] = []
    has_peers = False
    for name in SIZES:
        if row[name] is None:
            continue
        median = grid.peers_median(name, series, columns) if name in grid.bytes else None
        parts += ["  " if parts else "", f"{size_name(name, grid.kind)} ", Span(byte_count(row[name]), "bold")]
        if median is not None:
            has_peers = True
            parts.append(Span(f" ({byte_count(round(median))})", "dim"))
    yield line(*parts)
    brackets = Span("in brackets the median of its peers" if has_peers else "", "dim")
    room = _room(row, held_name(grid.kind))
    if room or has_peers:
        yield line(room, "; " if room and has_peers else "", brackets)


def _room(row: dict[str, Any], held: str) -> str:
    """The capacity of the device, and the bytes that are free."""
    if not row["capacity"]:
        return ""
    share = f"{(row[held] or 0) / row['capacity']:.0%} of {byte_count(row['capacity'])}"
    if row["free"] is not None:
        return f"{share}, {byte_count(row['free'])} free"
    if row["reserved"] is None:
        return share
    return f"{share}, at most {byte_count(max(row['capacity'] - row['reserved'], 0))} free"


def mark_line(mark: MemoryMark) -> Line:
    """A mark with its facts."""
    return line(Span(mark.word, mark.role), f"  {mark.text}")


def slope_line(analysis: Analysis, rank: int, device: str, slope: MemoryGrowth | None) -> Line:
    """The slope of a device that has no mark of a leak; `slope` is None for few samples."""
    results = MEMORY_RESULTS.find(analysis)
    growths = results.growths if results is not None else ()
    grown = next((growth for growth in growths if (growth.rank, growth.device) == (rank, device)), None)
    if grown is not None:
        return line(Span("slope  ", "dim"), f"{rate_text(grown)}; most ranks grow, so none is marked")
    if slope is None or not math.isfinite(slope.high - slope.low):
        return line(Span("slope  not known: it takes 16 samples of the capture behind the first quarter", "dim"))
    low, middle, high = (_signed(value) for value in (slope.low, slope.slope, slope.high))
    return line(Span("slope  ", "dim"), f"{middle} a {slope.unit} (95 %: {low} to {high}); no leak is found")


def _signed(value: float) -> str:
    size = byte_count(abs(round(value)))
    return f"-{size}" if round(value) < 0 else size


def memory_part(_index: OpIndex, analysis: Analysis, rank: int, _operation: Row | None) -> DetailPart:
    """The memory of a rank, for the detail."""
    return DetailPart("memory", fact=rank_memory(analysis, rank))


def rank_memory(analysis: Analysis, rank: int) -> str:
    """The peak of each device of a rank, and its growth: "cuda:2 26 GiB of 80 GiB at its peak"; "" without samples."""
    memory = MEMORY_RESULTS.find(analysis)
    if memory is None:
        return ""
    growths = {growth.device: f", grows by {rate_text(growth)}" for growth in memory.growths if growth.rank == rank}
    rows = memory.held.filter(pl.col("rank") == rank).select("device", "peak", "last", "capacity")
    devices = [
        f"{plain(device)} {byte_count(peak)}{f' of {byte_count(capacity)}' if capacity else ''} at its peak, "
        f"{byte_count(last)} at last{growths.get(device, '')}"
        for device, peak, last, capacity in rows.sort(pl.col("device") == HOST, maintain_order=True).iter_rows()
    ]
    return "; ".join(devices)


def marked_series(grid: MemoryGrid, mark: MemoryMark) -> list[int]:
    """The series of a mark: of its rank and device; of all devices of the rank where none has that name."""
    if mark.device and kind_of(mark.device) != grid.kind:
        return []
    of_rank = [int(at) for at in (grid.ranks == mark.rank).nonzero()[0]]
    devices = {at: grid.samples["device"][int(grid.ends[at])] for at in of_rank}
    return [at for at in of_rank if devices[at] == mark.device] or of_rank
