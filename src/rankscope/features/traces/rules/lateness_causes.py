"""Causes of lateness: the activity between two collectives that took longer than on the others.

The rank's own working time is split into computing on its device, launched work that had not started, and the rest, in
which the device had nothing to do because the host was busy otherwise. The part that is longest against the median of
the others explains the lateness.

A collective that starts as soon as it is issued comes late because of its host, whatever runs on other streams. Then
work of the device counts only while the thread that issues collectives waits for it (`host_pieces`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.late_ranks import LateRank
from rankscope.features.traces.rules.device_spans import (
    STEP_NAME,
    BusyIntervals,
    SpanIndex,
)
from rankscope.features.traces.rules.host_pieces import host_pieces
from rankscope.features.traces.rules.host_time import HostTime, activity_name
from rankscope.features.traces.rules.lateness import HOST_PACED_NS, MATCH_COLUMNS
from rankscope.features.traces.rules.model import Lateness
from rankscope.text.wording import digits

MOST_SAMPLES = 512
"""Most times at which the activity of the host is sampled."""
LATE_QUANTILE = 0.9
"""Lateness of at least half of this quantile is explained."""
LEAST_USUAL = 0.01
"""Part of the time of kernels, below which the others hardly run them: a ratio of the two tells of no slow device."""
COUNT_TOLERANCE = 0.1
"""Largest relative difference in the number of kernels that counts as the same work."""
HOST_PACED_SHARE = 0.1
"""A collective that starts this soon after its issue, as a share of the lateness, did not wait for the device."""
QUICK_NS = 20_000
"""A kernel that starts this soon after its launch was not held up."""
Stretch = tuple[Ints, Ints]
PROFILER_FRAMES = ("torch/autograd/profiler.py(", "torch/profiler/")
"""Functions around the user's code that come from the profiler's own annotations."""
PARTS = ("compute", "launch", "host")


@dataclass(frozen=True)
class FileTimeline:
    """Device and host of one file as busy intervals, on its own clock."""

    kernels: pl.DataFrame
    communication: BusyIntervals
    device: BusyIntervals
    waiting: BusyIntervals
    """Intervals without running work, but with launched work."""

    @classmethod
    def of(cls, kernels: pl.DataFrame) -> FileTimeline:
        """The timeline of device work with its launches (`SpanIndex.launched`)."""
        start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
        comm = (kernels["what"] == "communication").to_numpy()
        reach = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))
        called = kernels["called_ns"].to_numpy()
        since = np.maximum(reach, np.where(np.isnan(called), start, called).astype(np.int64))
        held = start - since > QUICK_NS
        return cls(
            kernels,
            BusyIntervals.of(start[comm], end[comm]),
            BusyIntervals.of(start, end),
            BusyIntervals.of(since[held], start[held]),
        )

    def while_waiting(self, waits: BusyIntervals) -> FileTimeline:
        """The device as far as the host waits."""
        parts = (self.communication, self.device, self.waiting)
        return FileTimeline(self.kernels, *(waits.shared(part) for part in parts))

    def parts(self, since: Ints, until: Ints) -> dict[str, Ints]:
        """Nanoseconds of each of PARTS within each stretch, less communication."""
        device, waiting = self.device.within(since, until), self.waiting.within(since, until)
        return {
            "compute": device - self.communication.within(since, until),
            "launch": waiting,
            "host": until - since - device - waiting,
        }


@dataclass(frozen=True)
class LatenessExplainer:
    """Finds the causes of lateness in spans."""

    spans: SpanIndex
    rows: pl.DataFrame
    """Aligned rows of matches with `since_ns` and `arrived_ns`."""

    def explain(self, late: LateRank) -> Lateness:
        """The cause, as far as spans tell."""
        here = late.rows(self.rows)
        mine = here.filter(pl.col("rank") == late.rank)
        if late.spot is None:
            # without steps only the time tells to which of the collectives it is late
            mine = mine.filter(pl.col("own_ns") >= pl.col("own_ns").quantile(LATE_QUANTILE) / 2)
        here = here.join(mine.select(MATCH_COLUMNS), on=MATCH_COLUMNS, how="semi").sort("file", "place")
        read = [f for f in here["file"].unique() if f in self.spans.whole and self.spans.device(f) is not None]
        lines = {f: self._timeline(f, _paced_by_host(mine)) for f in read}
        if not set(mine["file"]) <= set(lines) or len(lines) < 2:
            return Lateness(late.rank, "unknown", "", 0.0)
        parts = {f: lines[f].parts(*_stretches(here, f)) for f in lines}
        own, others = set(mine["file"].to_list()), [f for f in lines if f not in set(mine["file"].to_list())]
        more = {name: _more(parts, name, own, others) for name in PARTS}
        cause = max(more, key=lambda name: more[name])
        share = more[cause] / max(sum(max(v, 0.0) for v in more.values()), 1.0)
        if more[cause] <= 0:
            return Lateness(late.rank, "unknown", "", 0.0)
        file = max(own, key=lambda f: here.filter(pl.col("file") == f).height)
        if cause == "host":
            return self._host(late.rank, here, file, lines, others, share)
        what, detail = _kernels(lines, here, file, others) if cause == "compute" else ("", "")
        if self.spans.on_host:
            detail = detail.replace("kernels", "operators")
        return Lateness(late.rank, cause, what, share, detail)

    def _timeline(self, file: int, paced: bool) -> FileTimeline:
        """The timeline of a file; `paced`: what counts is its host."""
        launched = self.spans.launched(file)
        line = FileTimeline.of(launched)
        issuing = launched.filter(pl.col("what") == "communication")["call_track"].drop_nulls()
        if not paced or issuing.is_empty():
            return line
        return line.while_waiting(host_pieces(self.spans, file).waits_of(int(issuing.mode().sort()[0])))

    def _host(
        self, rank: int, here: pl.DataFrame, file: int, lines: dict[int, FileTimeline], others: list[int], share: float
    ) -> Lateness:
        """The activity that the host did longer than the other hosts while its device had nothing to do."""
        mine, per_sample, host = self._seen(here, file, lines[file])
        usual: Counter[str] = Counter()
        for other in others:
            seen, each, _ = self._seen(here, other, lines[other])
            usual.update({name: len(places) * each / len(others) for name, places in seen.items()})
        if host is None or not mine:
            return Lateness(rank, "host", "", share)
        name = max(mine, key=lambda n: len(mine[n]) * per_sample - usual[n])
        gained = len(mine[name]) * per_sample - usual[name]
        total = sum(len(p) for p in mine.values()) * per_sample - sum(usual.values())
        if not name or gained <= 0:
            return Lateness(rank, "host", "", share)
        stack = host.stack(Counter(mine[name]).most_common(1)[0][0])
        names = tuple(n for _, _, n in stack if not STEP_NAME.match(n))
        functions = (n for _, c, n in stack[1:] if c == "python_function")
        where = next((n for n in functions if not any(own in n for own in PROFILER_FRAMES)), "")
        return Lateness(
            rank,
            "host",
            name,
            share * min(1.0, gained / max(total, 1.0)),
            activity_name(list(names)),
            stack[0][0],
            where,
            names,
        )

    def _seen(
        self, here: pl.DataFrame, file: int, line: FileTimeline
    ) -> tuple[dict[str, list[int]], float, HostTime | None]:
        """(by name the indices of the innermost spans, nanoseconds per stretch that one sample stands for, the
        host)."""
        table = self.spans.host(file)
        since, until = _stretches(here, file)
        if table is None or not len(since):
            return {}, 0.0, None
        host = HostTime.of(table)
        moments, each = _idle_moments(line, since, until)
        places = host.innermost(moments)
        names = host.spans["name"].cast(pl.String)
        out: dict[str, list[int]] = {}
        for place in places.tolist():
            name = names[place] if place >= 0 else ""
            out.setdefault("" if name.startswith("ProfilerStep#") else name, []).append(place)
        return out, each / len(since), host


def _paced_by_host(mine: pl.DataFrame) -> bool:
    """Whether collectives of a late rank start soon after it issues them, against its lateness."""
    delays = mine.select(pl.col("arrived_ns") - pl.col("offset_ns") - pl.col("created_ns")).to_series().drop_nulls()
    if delays.is_empty():
        return False
    usual, late = float(np.median(delays.to_numpy())), float(np.median(mine["own_ns"].to_numpy()))
    return usual < max(HOST_PACED_NS, HOST_PACED_SHARE * late)


def _stretches(here: pl.DataFrame, file: int) -> Stretch:
    """The stretches from the previous collective to the arrival at each match, on the file's own clock."""
    own = here.filter(pl.col("file") == file)
    offset = own["offset_ns"].to_numpy()
    return own["since_ns"].to_numpy() - offset, own["arrived_ns"].to_numpy() - offset


def _more(parts: dict[int, dict[str, Ints]], name: str, own: set[int], others: list[int]) -> float:
    """The excess of one part over the median of the others, in the median stretch."""
    mine = np.concatenate([parts[f][name] for f in own])
    return float(np.median(mine) - np.median([np.median(parts[f][name]) for f in others if len(parts[f][name])]))


def _idle_moments(line: FileTimeline, since: Ints, until: Ints) -> tuple[Ints, float]:
    """Times spread evenly over the idle time of the device, and the time that each stands for."""
    starts = np.concatenate((line.device.starts, line.waiting.starts))
    ends = np.concatenate((line.device.ends, line.waiting.ends))
    busy = BusyIntervals.of(starts, ends)
    moments = []
    idle = until - since - busy.within(since, until)
    each = max(float(idle.sum()) / MOST_SAMPLES, 1.0)
    for a, b in zip(since.tolist(), until.tolist(), strict=True):
        first, last = np.searchsorted(busy.ends, a, side="right"), np.searchsorted(busy.starts, b)
        gap_starts = np.concatenate(([a], busy.ends[first:last]))
        gap_ends = np.concatenate((busy.starts[first:last], [b]))
        lengths = np.maximum(gap_ends - gap_starts, 0)
        into = np.arange(each / 2, lengths.sum(), each)
        gap = np.searchsorted(np.cumsum(lengths), into, side="right")
        before = np.cumsum(lengths) - lengths
        moments.append((gap_starts[gap] + (into - before[gap])).astype(np.int64))
    return (np.concatenate(moments) if moments else np.empty(0, np.int64)), each


def _kernels(lines: dict[int, FileTimeline], here: pl.DataFrame, file: int, others: list[int]) -> tuple[str, str]:
    """(the kernel with the largest excess over the others, the reason: more runs, or longer runs)."""
    mine = _ran(lines[file].kernels, *_stretches(here, file)).with_columns(file=pl.lit(file))
    theirs = pl.concat([_ran(lines[f].kernels, *_stretches(here, f)) for f in others]).group_by("name").agg(
        usual=pl.col("total").sum() / len(others), usually=pl.col("count").sum() / len(others)
    )  # fmt: skip
    table = mine.join(theirs, on="name", how="left").with_columns(pl.col("usual", "usually").fill_null(0.0))
    table = table.with_columns(more=pl.col("total") - pl.col("usual")).sort("more", descending=True)
    if table.is_empty():
        return "", ""
    extra = table.filter((pl.col("count") - pl.col("usually")) > COUNT_TOLERANCE * pl.col("usually"))
    usually = float(table["usually"].sum() or 0)
    if usually and extra.height and float(table["count"].sum()) > (1 + COUNT_TOLERANCE) * usually:
        times = digits(float(table["count"].sum()) / usually)
        return str(extra["name"][0]), f"it runs {times} times as many kernels as the others"
    usual = float(table["usual"].sum() or 0)
    if usual < LEAST_USUAL * float(table["total"].sum() or 0):
        return str(table["name"][0]), "it runs kernels that the others do not run there"
    slower = float(table["total"].sum() or 0) / usual
    return str(table["name"][0]), f"the same kernels take {digits(slower)} times as long"


def _ran(kernels: pl.DataFrame, since: Ints, until: Ints) -> pl.DataFrame:
    """name, total (ns), count of computing kernels that start within the stretches."""
    start = kernels["start_ns"].to_numpy()
    edges = np.concatenate((np.searchsorted(start, since), np.searchsorted(start, until)))
    marks = np.zeros(len(start) + 1, np.int64)
    np.add.at(marks, edges[: len(since)], 1)
    np.add.at(marks, edges[len(since) :], -1)
    inside = kernels.filter(pl.Series(np.cumsum(marks)[:-1] > 0) & (pl.col("what") != "communication"))
    times = inside.group_by(pl.col("name").cast(pl.String)).agg(
        total=(pl.col("end_ns") - pl.col("start_ns")).sum(), count=pl.len().cast(pl.Int64)
    )
    return times.sort("name")
