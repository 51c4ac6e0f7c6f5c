"""Matching of operations of different ranks: by sequence number or Comms Id, else by their order.

Without sequence numbers the order within a channel is compared (`window_offset`). The result counts only if cause and
effect hold: no member ends a collective before the last has begun it. A trace that left calls out has no meaningful
order and is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from rankscope.analysis.signatures import with_signatures
from rankscope.assemble.op_names import COALESCED_OP
from rankscope.features.traces.rules.device_spans import with_steps
from rankscope.features.traces.rules.window_offset import ChannelSequence, WindowShift, at_shift, best_shift
from rankscope.schema import Dataset, Group
from rankscope.text.wording import duration

CAUSAL_SHARE = 0.9
"""Smallest share of operations in which cause and effect must hold."""
UNNAMED_CAUSAL_SHARE = 0.6
"""The same for traces that name no group (gloo), in which operations of several groups share one order."""
Key = tuple[int, int]
"""Channel and window."""


NO_STEP = -1
"""Stands for an operation outside of all steps."""


FEWEST_STEPS = 3
"""Fewest steps of both files whose numbers tell which operations belong together."""


@dataclass(frozen=True)
class Pairing:
    """The match of one file to the reference of its channel."""

    channel: int
    window: int
    reference: int
    file: int
    shift: WindowShift


@dataclass(frozen=True)
class Matching:
    """Matched operations, and the refused files."""

    rows: pl.DataFrame
    """The rows with `window` and `place`; rows with equal channel, window and place are one operation."""
    pairings: tuple[Pairing, ...]
    refused: tuple[tuple[int, int, str], ...]
    """Channel, file and reason of each refusal."""


def match_rows(
    rows: pl.DataFrame, windows: Mapping[int, int], untold: Container[int] = (), steps: pl.DataFrame | None = None
) -> Matching:
    """Matches `rows` (see `executed_rows`) of files of the same of `windows`; `untold`: unnamed groups.

    `steps` are those that programs marked: file, step, begin_ns, end_ns.
    """
    in_step = rows.with_row_index("at_row").with_columns(offset_ns=pl.lit(0, pl.Int64))
    numbers = with_steps(in_step, pl.DataFrame() if steps is None else steps).sort("at_row")["step"]
    rows = rows.with_columns(in_step=numbers.fill_null(NO_STEP))
    known = (
        rows.height > 0 and rows.select((pl.col("seq").is_not_null() | pl.col("comms_id").is_not_null()).all()).item()
    )
    window = pl.lit(0, dtype=pl.Int64) if known else pl.col("file").replace_strict(windows, return_dtype=pl.Int64)
    rows = rows.with_columns(window=window).sort("channel", "window", "file", maintain_order=True)
    by_seq = (pl.col("seq").is_not_null().all() & pl.col("seq").is_unique().all()).over("channel", "file")
    rows = rows.with_columns(by_seq=by_seq & ~pl.col("is_p2p")).with_columns(
        by_seq=pl.col("by_seq").all().over("channel", "window"),
        place=pl.int_range(pl.len(), dtype=pl.Int64).over("channel", "window", "file"),
    )
    rows = places_by_id(rows.with_columns(place=pl.when("by_seq").then("seq").otherwise("place")))
    told = pl.col("by_seq") | pl.col("by_id")
    return _Matcher(rows.with_columns(told=told).drop("by_seq", "by_id"), untold).run()


class _Matcher:
    def __init__(self, rows: pl.DataFrame, untold: Container[int]) -> None:
        self._rows, self._untold = rows, untold
        self._columns = {
            name: rows[name].to_numpy() for name in ("token", "arrived_ns", "ended_ns", "blocking", "place", "in_step")
        }
        self._pairings: list[Pairing] = []
        self._refused: list[tuple[int, int, str]] = []

    def run(self) -> Matching:
        shifts = np.zeros(self._rows.height, np.int64)
        kept = np.ones(self._rows.height, np.bool_)
        for (channel, window), told, parts in self._channels():
            for part, by in self._matched(channel, window, told, parts):
                if by is None:
                    kept[part] = False
                else:
                    shifts[part] = by
        rows = self._rows.with_columns(place=pl.col("place") + pl.Series(shifts)).filter(pl.Series(kept))
        return Matching(rows.drop("told", "in_step"), tuple(self._pairings), tuple(self._refused))

    def _channels(self) -> list[tuple[Key, bool, list[tuple[int, slice]]]]:
        """Each channel and window with the slices of its rows by file."""
        columns = [self._rows[name].to_numpy() for name in ("channel", "window", "file")]
        new = np.any([np.diff(column, prepend=-1) != 0 for column in columns], axis=0)
        starts = [*np.flatnonzero(new).tolist(), self._rows.height]
        told = self._rows["told"].to_numpy()
        out: dict[Key, tuple[bool, list[tuple[int, slice]]]] = {}
        for begin, end in pairwise(starts):
            channel, window, file = (int(column[begin]) for column in columns)
            out.setdefault((channel, window), (bool(told[begin]), []))[1].append((file, slice(begin, end)))
        return [(key, *value) for key, value in out.items()]

    def _matched(
        self, channel: int, window: int, told: bool, parts: list[tuple[int, slice]]
    ) -> list[tuple[slice, int | None]]:
        """For each file but the reference its rows and the shift of their places; None for a refused file."""
        chief, whole = max(parts, key=lambda item: (item[1].stop - item[1].start, -item[0]))
        reference, out = self._sequence(whole), []
        for file, part in parts:
            if file == chief:
                continue
            other = self._sequence(part)
            if told:
                shift, by = self._at_places(whole, part), 0
            else:
                shift = best_shift(reference, other)
                by = shift.by if shift else 0
            group = self._rows["group"][part.start]
            causal = UNNAMED_CAUSAL_SHARE if group in self._untold else CAUSAL_SHARE
            clear = shift is not None and shift.clear
            if shift is not None and not clear and (marked := self._by_steps(whole, part)) is not None:
                # where times leave several, the numbers of steps decide
                shift, by, clear = at_shift(reference, other, marked), marked, True
            reason = _doubt(shift, causal, told=told, clear=clear)
            if shift is not None and reason is None:
                self._pairings.append(Pairing(channel, window, chief, file, shift))
            else:
                self._refused.append((channel, file, reason or ""))
            out.append((part, by if reason is None else None))
        return out

    def _sequence(self, part: slice) -> ChannelSequence:
        c = self._columns
        return ChannelSequence(c["token"][part], c["arrived_ns"][part], c["ended_ns"][part], c["blocking"][part])

    def _by_steps(self, whole: slice, part: slice) -> int | None:
        """The shift with which each operation of both files is in the step of one number; None without one."""
        first, second = self._columns["in_step"][whole], self._columns["in_step"][part]
        common = np.setdiff1d(np.intersect1d(first, second), [NO_STEP])
        if len(common) < FEWEST_STEPS:
            return None
        # the first step may be cut
        by = int(np.argmax(first == common[1])) - int(np.argmax(second == common[1]))
        first, second = first[max(by, 0) :], second[max(-by, 0) :]
        count = min(len(first), len(second))
        same = (first[:count] == second[:count]) & (first[:count] != NO_STEP)
        return by if same.all() else None

    def _at_places(self, whole: slice, part: slice) -> WindowShift | None:
        """The operations of two files with equal places, from numbers or ids."""
        place = self._columns["place"]
        _, a, b = np.intersect1d(place[whole], place[part], assume_unique=True, return_indices=True)
        first, second = (
            ChannelSequence(s.tokens[at], s.starts[at], s.ends[at], s.blocking[at])
            for s, at in ((self._sequence(whole), a), (self._sequence(part), b))
        )
        return at_shift(first, second, 0)


def _doubt(shift: WindowShift | None, causal: float, *, told: bool, clear: bool) -> str | None:
    """The reason for the user why a match cannot be believed; None if it can. `clear`: no other shift may be it."""
    if shift is None:
        return "its numbers name no operation of the others" if told else "the order of operations agrees nowhere"
    if shift.causal < causal:
        apart = duration(shift.spread_ns)
        why = (
            ("they are different runs, or one numbers again from 0")
            if told
            else "calls are missing in one of the traces"
        )
        return f"ends do not agree ({apart} apart): {why}"
    if not clear:
        return "the order repeats itself, and the times do not show which repetition is the same one"
    return None


# Windows of files that the profilers of different ranks recorded at the same time.


def cluster_windows(traces: pl.DataFrame) -> dict[int, int]:
    """By file the number of its window; files of one number have different ranks and overlap in time.

    A file without overlap is alone. If each rank has one file, all are one window, whatever their clocks say.
    """
    if traces["rank"].n_unique() == traces.height:
        return dict.fromkeys(traces["file"].to_list(), 0)
    chief = traces["rank"].mode().sort()[0]
    chiefs = traces.filter(pl.col("rank") == chief).sort("start_ns")
    out = {file: number for number, file in enumerate(chiefs["file"].to_list())}
    taken = {(number, chief) for number in out.values()}
    pairs = (
        traces.filter(pl.col("rank") != chief)
        .join(chiefs.select(other="file", begin="start_ns", end="end_ns"), how="cross")
        .with_columns(both=pl.min_horizontal("end_ns", "end") - pl.max_horizontal("start_ns", "begin"))
        .filter(pl.col("both") > 0).sort("both", descending=True)
    )  # fmt: skip
    for file, rank, other in pairs.select("file", "rank", "other").iter_rows():
        if file not in out and (out[other], rank) not in taken:
            out[file] = out[other]
            taken.add((out[other], rank))
    for file in traces["file"].to_list():
        out.setdefault(file, len(set(out.values())))
    return out


def jobs_of(rows: pl.DataFrame) -> list[list[int]]:
    """The windows of `rows` (window, group) by job: windows of two jobs share no group."""
    jobs: list[tuple[set[int], set[int]]] = []
    table = rows.group_by("window").agg(pl.col("group").unique()).sort("window")
    for window, found in table.iter_rows():
        groups = set(found)
        same = [job for job in jobs if job[1] & groups]
        jobs = [job for job in jobs if not job[1] & groups]
        jobs.append(({window}.union(*(job[0] for job in same)), groups.union(*(job[1] for job in same))))
    return sorted(sorted(windows) for windows, _ in jobs)


# Operations of all traces in a form that can be matched.

ROWS = (
    "row", "file", "rank", "group", "channel", "token", "seq", "is_p2p", "op", "key", "elements", "blocking",
    "comms_id", "members", "created_ns", "arrived_ns", "started_ns", "ended_ns",
)  # fmt: skip


def executed_rows(dataset: Dataset) -> pl.DataFrame:
    """Operations that ran completely within a window, with `ROWS`, in the issue order of each file.

    `token` must agree on all members. `blocking` is true if no member can end before the last has arrived: false for
    rooted operations, and between two ranks, because small messages are sent before anybody receives.
    """
    traced = dataset.traced.with_row_index("row").filter(
        pl.col("completed_ns").is_not_null() & (~pl.col("is_p2p") | pl.col("peer").is_not_null())
    )
    mixed = pl.col("op").cast(pl.String) == COALESCED_OP
    rows = with_signatures(traced).with_columns(
        mixed=mixed,
        arrived_ns=pl.coalesce("started_ns", "created_ns"),
        started_ns=pl.coalesce("started_ns", "created_ns"),
        ended_ns=pl.col("completed_ns"),
        blocking=~pl.col("rooted") & ~pl.col("is_p2p") & ~mixed,
    )
    sends = pl.col("key").cast(pl.String) == "send"
    ends = (
        pl.when(pl.col("is_p2p")).then(pl.when(sends).then(first).otherwise(second)).alias(name)
        for name, first, second in (("src", pl.col("rank"), pl.col("peer")), ("dst", pl.col("peer"), pl.col("rank")))
    )
    what = pl.when(~pl.col("is_p2p")).then(pl.col("key").cast(pl.String))
    return with_parts(rows, dataset.group_list).with_columns(*ends).with_columns(
        channel=pl.struct("group", "part", "src", "dst", "mixed").rank("dense"),
        token=pl.struct(what.alias("what"), "elements").rank("dense"),
    ).filter(pl.col("arrived_ns").is_not_null()).select(ROWS)  # fmt: skip


# Operations with a `Comms Id`: a hash of group, number and kind that is equal on all members.

NODE_COLUMNS = ["file", "group"]
_ORDER_COLUMNS = ["channel", "window"]


def with_parts(rows: pl.DataFrame, groups: Sequence[Group]) -> pl.DataFrame:
    """`rows` with the `group` by their ids, `part` of the group, and `members`: the size of the part.

    `members` is null if the group has one part; p2p operations use the group that their file uses for collectives.
    """
    shared = _shared(rows)
    parts = _components(shared)
    told = pl.DataFrame([(*node, part) for node, part in parts.items()], schema=_PARTS, orient="row")
    best = _best(told, {group.id: len(group.ranks) for group in groups})
    table = told.join(best, on="part")
    split = pl.col("part").n_unique().over("told") > 1
    ranks = rows.select(*NODE_COLUMNS, "rank").unique(NODE_COLUMNS)
    table = table.join(ranks, on=NODE_COLUMNS, how="left").with_columns(
        members=pl.when(split).then(pl.col("rank").n_unique().over("part")).cast(pl.UInt32)
    )
    found = rows.join(
        table.select(*NODE_COLUMNS, "part", "told", "members"), on=NODE_COLUMNS, how="left", maintain_order="left"
    )
    return found.with_columns(group=pl.coalesce("told", "group"), part=pl.col("part").fill_null(-1)).drop("told")


_PARTS: dict[str, pl.DataType | type[pl.DataType]] = {"file": pl.UInt32, "group": pl.UInt32, "part": pl.Int64}


def _shared(rows: pl.DataFrame) -> pl.DataFrame:
    """Ids of groups whose collectives all carry distinct ids, with each file and group that has them."""
    collectives = rows.filter(~pl.col("is_p2p") & ~pl.col("mixed"))
    told = collectives.group_by(NODE_COLUMNS).agg(
        whole=pl.col("comms_id").is_not_null().all() & pl.col("comms_id").is_unique().all()
    )
    groups = told.group_by("group").agg(pl.col("whole").all()).filter("whole")["group"]
    return (
        collectives.filter(pl.col("group").is_in(groups.implode())).select(*NODE_COLUMNS, "comms_id").sort(NODE_COLUMNS)
    )


def _components(shared: pl.DataFrame) -> Mapping[tuple[int, int], int]:
    """Connected components of the nodes (file, group) by common ids, as part numbers."""
    nodes = shared.select(NODE_COLUMNS).unique(maintain_order=True).with_row_index("node")
    place = shared.join(nodes, on=NODE_COLUMNS).with_columns(lead=pl.col("node").min().over("comms_id"))
    leads = list(range(nodes.height))

    def lead(node: int) -> int:
        while leads[node] != node:
            leads[node] = node = leads[leads[node]]
        return node

    for one, other in place.select("lead", "node").unique(maintain_order=True).iter_rows():
        first, second = sorted((lead(one), lead(other)))
        leads[second] = first
    return {node: lead(at) for at, node in enumerate(nodes.select(NODE_COLUMNS).iter_rows())}


def _best(told: pl.DataFrame, sizes: Mapping[int, int]) -> pl.DataFrame:
    """For each part: of the groups that its members assume, the one with most listed members."""
    size = pl.col("group").replace_strict(sizes, default=0, return_dtype=pl.Int64)
    order = told.sort(-size, "group").unique("part", keep="first", maintain_order=True)
    return order.select("part", told="group")


def places_by_id(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with `by_id`, and `place` where it is set: equal for equal ids of a channel, in issue order.

    `place` counts the rows of each channel, window and file; the file with most rows is the reference.
    """
    own = (pl.col("comms_id").is_not_null().all() & pl.col("comms_id").is_unique().all()).over(*_ORDER_COLUMNS, "file")
    rows = rows.with_columns(by_id=(own & ~pl.col("is_p2p") & ~pl.col("by_seq")).all().over(_ORDER_COLUMNS))
    known = rows.filter("by_id")
    if known.is_empty():
        return rows
    count = known.group_by(*_ORDER_COLUMNS, "file").len().sort(*_ORDER_COLUMNS, -pl.col("len").cast(pl.Int64), "file")
    chief = known.join(
        count.unique(_ORDER_COLUMNS, keep="first", maintain_order=True), on=[*_ORDER_COLUMNS, "file"], how="semi"
    )
    laid = known.select(*_ORDER_COLUMNS, "file", "comms_id", "place").join(
        chief.select(*_ORDER_COLUMNS, "comms_id", at="place"), on=[*_ORDER_COLUMNS, "comms_id"], how="left"
    )  # fmt: skip
    shift = (pl.col("at") - pl.col("place")).median().over(*_ORDER_COLUMNS, "file").fill_null(0).floor().cast(pl.Int64)
    laid = laid.with_columns(at=(pl.col("place") + shift).min().over(*_ORDER_COLUMNS, "comms_id"))
    order = laid.select(*_ORDER_COLUMNS, "comms_id", "at").unique().with_columns(
        told=pl.struct("at", "comms_id").rank("dense").over(_ORDER_COLUMNS).cast(pl.Int64) - 1
    )  # fmt: skip
    joined = rows.join(order.drop("at"), on=[*_ORDER_COLUMNS, "comms_id"], how="left", maintain_order="left")
    return joined.with_columns(place=pl.when("by_id").then("told").otherwise("place")).drop("told")
