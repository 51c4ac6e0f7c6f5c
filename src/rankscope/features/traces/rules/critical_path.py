"""The critical path of each step over ranks and streams: the chain of waits that its length comes from.

A step is over when its last rank has ended it on the host, and all work that was launched in it. From there the path
goes back, always to what was waited for last (`path_nodes`): from work on a device to the work before it on its stream,
to the work whose event it waited for, or to its launch on the host; on the host to the last moment at which it waited
for work. At a collective that a rank entered earlier than another, by more than clocks may be off, the path goes to the
rank that came last, at the moment when it came: the time before that is that rank's. The path ends where the step
before was over, or where the step begins on the rank to which it leads. So the parts of a path follow one another
without a gap, their sum is the length of the step, and of a collective only the time after the last arrival counts.

Parts are of one of PATH_KINDS. `launch` is the time from the launch of work, or from the end of what it waited for, to
its start. `host` is all time on the host, named by the innermost span; a call that waits has only the time after the
work that it waited for. Work that waits for a rank without a trace counts as communication as long as it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.features.traces.rules.clock_alignment import FileClocks
from rankscope.features.traces.rules.device_spans import LAUNCH_CATEGORIES, STEP_NAME, SpanIndex, is_among
from rankscope.features.traces.rules.host_pieces import host_pieces
from rankscope.features.traces.rules.host_time import innermost_pieces
from rankscope.features.traces.rules.lateness import MATCH_COLUMNS
from rankscope.features.traces.rules.matching import cluster_windows
from rankscope.features.traces.rules.model import HANDOVERS, PATH, PATH_KINDS, PATH_NAMES
from rankscope.features.traces.rules.path_nodes import NEVER, PathNodes, path_nodes

_HOST = "host"
_LENGTH = pl.col("end_ns") - pl.col("start_ns")


class CriticalPaths(NamedTuple):
    """The paths of all steps, with columns PATH, PATH_NAMES and HANDOVERS."""

    parts: pl.DataFrame
    names: pl.DataFrame
    handovers: pl.DataFrame


def critical_paths(spans: SpanIndex, steps: pl.DataFrame, matches: pl.DataFrame, clocks: FileClocks) -> CriticalPaths:
    """The paths of the steps of all files that were read completely, and whose clock is known.

    `steps`: file, step, begin_ns, end_ns on each file's own clock; `matches`: matched operations, aligned.
    """
    traces = spans.dataset.traces
    windows = cluster_windows(traces)
    lone = traces.height == 1
    offsets = {f: clocks.offsets.get(f, 0) for f in spans.whole if lone or f in clocks.offsets}
    known = [f for f in sorted(offsets) if spans.device(f) is not None]
    last = _LastMembers.of(matches, clocks.error_ns, spans.dataset.traced.height)
    walk = _Walk(spans, offsets, last)
    for window in sorted({windows[f] for f in known}):
        own = [f for f in known if windows[f] == window]
        table = steps.filter(pl.col("file").is_in(own))
        walk.window(table if table.height else _whole(traces, own))
    parts = walk.parts()
    return CriticalPaths(parts, _by_name(parts, spans, offsets), walk.handovers(matches))


def _whole(traces: pl.DataFrame, files: list[int]) -> pl.DataFrame:
    """Files without steps: each window is one."""
    own = traces.filter(pl.col("file").is_in(files))
    return own.select("file", step=pl.lit(0, dtype=pl.Int64), begin_ns="start_ns", end_ns="end_ns")


@dataclass(frozen=True)
class _LastMembers:
    """By row of `Dataset.traced`: the member of its operation that came last, if that came surely later."""

    place: list[int]
    """Index in the lists below; -1 without."""
    row: list[int]
    """Row of `matches` of the member that waits."""
    file: list[int]
    traced: list[int]
    arrived: list[int]
    waited: list[int]

    @classmethod
    def of(cls, matches: pl.DataFrame, error_ns: int, height: int) -> _LastMembers:
        """The last members; of a broadcast or the like nobody knows who waits for whom."""
        rows = matches.with_row_index("at").filter(pl.col("blocking") | pl.col("is_p2p"))
        last = rows.sort("arrived_ns", "rank").unique(MATCH_COLUMNS, keep="last")
        last = last.select(*MATCH_COLUMNS, for_file="file", for_row="row", last_ns="arrived_ns")
        found = rows.join(last, on=MATCH_COLUMNS).filter(
            (pl.col("for_file") != pl.col("file")) & (pl.col("last_ns") - pl.col("arrived_ns") > error_ns)
        )
        place = np.full(height, -1, np.int64)
        place[found["row"].to_numpy()] = np.arange(found.height)
        told = found.select("at", "for_file", "for_row", "last_ns", waited=pl.col("last_ns") - pl.col("arrived_ns"))
        return cls(place.tolist(), *(column.to_list() for column in told.iter_columns()))


@dataclass
class _Walk:
    """Collects the parts of all paths."""

    spans: SpanIndex
    offsets: Mapping[int, int]
    last: _LastMembers
    path: int = 0
    _nodes: dict[int, PathNodes] = field(default_factory=dict)
    _first: dict[int, dict[int, int]] = field(default_factory=dict)
    _parts: list[tuple[int, int, str, int, int, int]] = field(default_factory=list)
    """path, file, kind, row of `Dataset.spans` or -1, start, end; the last part of a path first."""
    _met: list[tuple[int, int]] = field(default_factory=list)
    """path, row of `matches`."""
    _steps: list[int] = field(default_factory=list)
    """The number of the step of each path."""

    def window(self, steps: pl.DataFrame) -> None:
        """Adds the paths of the steps of files that were recorded at the same time."""
        offset = pl.col("file").replace_strict(dict(self.offsets), return_dtype=pl.Int64)
        steps = steps.with_columns(pl.col("begin_ns", "end_ns") + offset).sort("file", "begin_ns")
        ends = pl.concat([self._completed(own) for own in steps.partition_by("file", maintain_order=True)])
        before = NEVER
        for (step,), own in sorted(ends.partition_by("step", as_dict=True).items(), key=lambda item: item[0][0]):
            end = own.row(int(own["over_ns"].arg_max() or 0), named=True)
            floors = dict(own.select("file", pl.max_horizontal("begin_ns", pl.lit(before))).iter_rows())
            self._steps.append(int(step))
            if end["over_ns"] > before:
                self._back(
                    end["file"], end["node"], end["over_ns"], floors, max(before, min(own["begin_ns"].to_list()))
                )
            self.path += 1
            before = max(before, end["over_ns"])

    def nodes(self, file: int) -> PathNodes:
        """The nodes of a file."""
        if file not in self._nodes:
            made = self._nodes[file] = path_nodes(self.spans, file, self.offsets[file])
            ops = np.array(made.ops, np.int64)
            at = np.flatnonzero(ops >= 0)[::-1]
            self._first[file] = dict(zip(ops[at].tolist(), at.tolist(), strict=True))
        return self._nodes[file]

    def _completed(self, steps: pl.DataFrame) -> pl.DataFrame:
        """The steps of a file with `over_ns`, when all was done, and the `node` that was last, -1 for the host."""
        nodes = self.nodes(steps["file"][0])
        begins, over = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy().copy()
        node = np.full(len(over), -1, np.int64)
        ends = np.array(nodes.ends, np.int64)
        step = np.searchsorted(begins, nodes.issued, side="right") - 1
        inside = np.flatnonzero((step >= 0) & (nodes.issued <= over[np.maximum(step, 0)]))
        order = inside[np.argsort(ends[inside], kind="stable")]
        late = np.full(len(over), NEVER, np.int64)
        late[step[order]], last = ends[order], np.full(len(over), -1, np.int64)
        last[step[order]] = order
        node = np.where(late > over, last, -1)
        return steps.with_columns(over_ns=pl.Series(np.maximum(over, late)), node=pl.Series(node))

    def _back(self, file: int, node: int, time: int, floors: Mapping[int, int], usual: int) -> None:
        """Walks one path; a loop, as each part depends on the one behind it."""
        while time > (floor := floors.get(file, usual)):
            nodes = self.nodes(file)
            if node < 0:
                wait = nodes.last_wait(time)
                until = max(nodes.done[wait], floor) if wait >= 0 else floor
                self._add(file, _HOST, -1, until, time)
                time, node = until, nodes.awaited[wait] if wait >= 0 else -1
                continue
            file, node, time = self._through(file, node, time, floor)
            nodes, floor = self.nodes(file), floors.get(file, usual)
            if node >= 0 and time > floor:
                since = max(min(nodes.since[node], time), floor)
                self._add(file, "launch", int(nodes.rows[node]), since, time)
                time, node = since, nodes.before[node]

    def _through(self, file: int, node: int, time: int, floor: int) -> tuple[int, int, int]:
        """Goes through a node to its begin, or to that of the member that came last; returns file, node and time."""
        nodes, last = self.nodes(file), self.last
        row, start, op = int(nodes.rows[node]), nodes.starts[node], nodes.ops[node]
        place = last.place[op] if op >= 0 else -1
        if place < 0 or not start < last.arrived[place] < time or last.file[place] not in self.offsets:
            self._add(file, nodes.kinds[node], row, max(start, floor), time)
            return file, node, min(start, time)
        arrived, other = last.arrived[place], last.file[place]
        self._add(file, nodes.kinds[node], row, max(arrived, floor), time)
        if arrived > floor:
            self._met.append((self.path, last.row[place]))
        self.nodes(other)
        return other, self._first[other].get(last.traced[place], -1), arrived

    def _add(self, file: int, kind: str, row: int, start: int, end: int) -> None:
        if end > start:
            self._parts.append((self.path, file, kind, row, start, end))

    def parts(self) -> pl.DataFrame:
        """All parts with columns PATH."""
        columns = {"path": pl.UInt32, "file": pl.UInt32, "kind": pl.String, "row": pl.Int64, "start_ns": pl.Int64,
                   "end_ns": pl.Int64}  # fmt: skip
        table = pl.DataFrame(self._parts, schema=columns, orient="row").reverse()
        table = table.sort("path", maintain_order=True)
        row, steps = pl.col("row"), pl.Series(self._steps, dtype=pl.Int64).gather(table["path"])
        ranks = self.spans.dataset.traces.select("file", "rank")
        table = table.with_columns(step=steps, row=pl.when(row >= 0).then(row))
        table = table.join(ranks, on="file", how="left", maintain_order="left")
        return table.select([pl.col(column).cast(kind) for column, kind in PATH.items()])

    def handovers(self, matches: pl.DataFrame) -> pl.DataFrame:
        """The collectives at which paths go to another rank, with columns HANDOVERS."""
        met = pl.DataFrame(self._met, schema={"path": pl.UInt32, "at": pl.UInt32}, orient="row")
        rows = matches.with_row_index("at").join(met, on="at")
        last = matches.sort("arrived_ns", "rank").unique(MATCH_COLUMNS, keep="last")
        last = last.select(*MATCH_COLUMNS, for_rank="rank", time_ns="arrived_ns")
        steps = pl.Series(self._steps, dtype=pl.Int64).gather(rows["path"])
        rows = rows.with_columns(step=steps, seq=pl.coalesce("seq", "place")).join(last, on=MATCH_COLUMNS)
        rows = rows.with_columns(waited_ns=pl.col("time_ns") - pl.col("arrived_ns"))
        return rows.select([pl.col(name).cast(kind) for name, kind in HANDOVERS.items()]).sort("path", "time_ns")


# Names of what is on a path.


def _by_name(parts: pl.DataFrame, spans: SpanIndex, offsets: Mapping[int, int]) -> pl.DataFrame:
    """The parts by name, with columns PATH_NAMES."""
    names, host = spans.dataset.spans["name"], pl.col("kind") == _HOST
    work = parts.filter(~host).with_columns(total_ns=_LENGTH, count=pl.lit(1))
    columns = ["path", "rank", "kind", "row", "count", "total_ns"]
    of_hosts = [
        _of_host(part, spans, offsets[int(part["file"][0])]).select(columns)
        for part in parts.filter(host).partition_by("file", maintain_order=True)
    ]
    table = pl.concat([work.select(columns), *of_hosts], how="vertical_relaxed")
    table = table.with_columns(name=names.gather(table["row"]))
    table = table.group_by("path", "rank", "kind", "name").agg(pl.col("count", "total_ns").sum())
    table = table.join(parts.select("path", "step").unique("path"), on="path")
    order = [pl.col("path"), -pl.col("total_ns"), pl.col("rank"), pl.col("kind"), pl.col("name").cast(pl.String)]
    return table.select([pl.col(column).cast(kind) for column, kind in PATH_NAMES.items()]).sort(order)


def _of_host(parts: pl.DataFrame, spans: SpanIndex, offset: int) -> pl.DataFrame:
    """Parts of the host of one file by the spans that fill them: path, rank, kind, count, total_ns, and the `row` of
    one span with the name; null without a span, or where only the step is marked."""
    host = spans.host(int(parts["file"][0]))
    if host is None:
        return parts.with_columns(total_ns=_LENGTH, count=pl.lit(1))
    begins, ends = (parts[name].to_numpy() - offset for name in ("start_ns", "end_ns"))
    own, threads = _driving(host, spans.dataset.spans)
    pieces = innermost_pieces(own, host_pieces(spans, int(parts["file"][0])), threads, (begins, ends))
    codes = spans.dataset.spans["name"].to_physical().to_numpy()
    marks = host.filter(is_among("name", [name for name in _names(host) if STEP_NAME.match(name)]))["row"]
    row = np.where(np.isin(pieces.row, marks.to_numpy()), -1, pieces.row)
    # in place of names their numbers, made small: there are as many pieces as spans
    code = np.where(row >= 0, codes[row].astype(np.int64) + 1, 0)
    known = np.flatnonzero(np.bincount(code))
    small = np.zeros(int(code.max(initial=0)) + 1, np.int64)
    small[known] = np.arange(len(known))
    shown = np.full(len(known), -1, np.int64)
    shown[small[code]] = row
    key = parts["path"].to_numpy().astype(np.int64)[pieces.stretch] * len(known) + small[code]
    total, count = np.bincount(key, pieces.length_ns), np.bincount(key, pieces.first_of_rows(len(codes)))
    met = np.flatnonzero(total)
    rows = pl.Series(shown[met % max(len(known), 1)])
    return pl.DataFrame({
        "path": met // max(len(known), 1), "row": rows.set(rows < 0, None), "count": count[met].astype(np.int64),
        "total_ns": total[met].astype(np.int64),
    }).with_columns(rank=pl.lit(parts["rank"][0], dtype=pl.Int32), kind=pl.lit(_HOST))  # fmt: skip


def _driving(host: pl.DataFrame, spans: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The spans of a host without run loops, and the threads that launch work, or run operators if none does."""
    loops = host.filter(spans["op"].gather(host["row"]).is_not_null())["track"].unique()
    own = host.filter(~pl.col("track").is_in(loops.implode()))
    launching = is_among("category", LAUNCH_CATEGORIES) & is_among(
        "name", [name for name in _names(own) if "launch" in name.lower()]
    )
    threads = own.filter(launching)["track"].unique()
    return own, threads if len(threads) else own.filter(is_among("category", ["cpu_op"]))["track"].unique()


def _names(host: pl.DataFrame) -> list[str]:
    return host["name"].unique().cast(pl.String).drop_nulls().to_list()


# Summaries of paths.


def step_lengths(parts: pl.DataFrame) -> pl.DataFrame:
    """path, step, start_ns, end_ns, length_ns of each path."""
    table = parts.group_by("path", "step", maintain_order=True).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return table.with_columns(length_ns=pl.col("end_ns") - pl.col("start_ns"))


def path_totals(parts: pl.DataFrame) -> pl.DataFrame:
    """A row for each step, rank and kind of its path: step, rank, kind, total_ns, and its `share` of the step."""
    table = parts.group_by("path", "step", "rank", "kind").agg(total_ns=_LENGTH.sum())
    share = pl.col("total_ns") / pl.col("total_ns").sum().over("path")
    order = pl.col("kind").replace_strict({kind: i for i, kind in enumerate(PATH_KINDS)}, return_dtype=pl.UInt8)
    return (
        table.with_columns(share=share).sort("path", "rank", order).select("step", "rank", "kind", "total_ns", "share")
    )


def top_names(names: pl.DataFrame) -> pl.DataFrame:
    """Names that take most on all paths: rank, kind, name, count, total_ns, `share` of all steps; the most first."""
    table = names.group_by("rank", "kind", pl.col("name").cast(pl.String)).agg(pl.col("count", "total_ns").sum())
    share = pl.col("total_ns") / pl.col("total_ns").sum()
    order = [-pl.col("total_ns"), pl.col("rank"), pl.col("kind"), pl.col("name")]
    return table.with_columns(share=share).sort(order)
