"""Rows of `ops` from COLL and CALL lines, and from lines of c10d, which also give states to rows of NCCL's lines.

The k-th collective of a communicator, counted from 0, has the sequence number k + 1, because torch counts from 1.
opCount is no sequence number, and the time of a line is its host's.

A log from the start of a process has its own numbers. Any other is aligned with such a log, at the only place with
equal operations; a training loop repeats itself, and if several places fit equally well nothing is joined. Without such
a log, the longest one numbers the others: then only differences are right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankscope.features.logs.read.model import IS_P2P, LogContent
from rankscope.features.logs.rows import log_processes
from rankscope.features.logs.rows.c10d_claims import Claim, ClaimedOperation, Claims
from rankscope.features.logs.rows.log_processes import CommLife, LogScene
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.schema.tables import FRONTIERS, OPS, Coalesced, Source, State

FIRST_SEQ = 1
"""First sequence number in torch."""
SHORTEST_RUN = 3
"""Fewest operations in a row that prove a match, unless both sides have no more."""
FAR = 1 << 62
DENSE_RATIO = 4
"""Largest ratio of value range to values for counting in a table."""
MOST_PLACES = 64
"""Most tried occurrences of the rarest operation."""


class SeqNumbering(NamedTuple):
    """The mapping from ordinals of a life to sequence numbers, for ordinals from `first` to `until`, both included."""

    shift: int
    relative: bool = False
    """No log of the communicator has its beginning: numbers start anywhere."""
    first: int = 0
    until: int | None = None
    """None for the end. Behind a torn line only operations that match elsewhere are reliable."""
    last: int | None = None
    """Sequence number of the last collective; None if lines behind it may be missing."""


@dataclass(eq=False)
class _CountedLane:
    life: CommLife
    ordinals: Numbers
    codes: Numbers
    """One number for operation, count, type and root of each kept collective."""
    whole: bool
    torn: bool

    @cached_property
    def occurs(self) -> Numbers:
        """The frequency of each code; the last number, for all larger codes, is 0."""
        return np.append(np.bincount(self.codes), 0)


def number_lives(scene: LogScene) -> dict[tuple[int, int], SeqNumbering]:
    """Numberings by log and communicator; unknown ones are left out."""
    lanes = _joined_lanes(scene, _lanes(scene))
    numberings: dict[tuple[int, int], SeqNumbering] = {}
    for lives in scene.identities().values():
        of_comm = [lanes[id(life)] for life in lives if id(life) in lanes]
        for lane, numbering in _settle_lanes(of_comm):
            last = int(lane.ordinals[-1]) + numbering.shift if not lane.torn else None
            for piece in lane.life.pieces:
                if not piece.adrift:
                    numberings[piece.log, piece.at] = numbering._replace(last=last)
    return numberings


def _lanes(scene: LogScene) -> dict[int, _CountedLane]:
    meanings: dict[tuple[str, int, int, int], int] = {}
    lanes: dict[int, _CountedLane] = {}
    for number_, log in enumerate(scene.logs):
        content = log.content
        comm = content.code("comm")
        alone = np.flatnonzero((content.code("flags") & IS_P2P) == 0)
        if not alone.size:
            continue
        columns = content.code("op"), content.column("count"), content.code("datatype"), content.column("root")
        table = [column[alone].astype(np.int64) for column in columns]
        # the number of each row's value, and the last row with each; ten times as fast as unique by rows
        place, count = np.zeros(len(table[0]), np.int64), 1
        for column in table:
            values, more = _ranked(column)
            if count * more >= FAR:
                place, count = _ranked(place)
            place, count = place * more + values, count * more
        place, count = _ranked(place)
        known = np.zeros(count, np.int64)
        known[place] = np.arange(len(place))
        codes = np.array(
            [
                meanings.setdefault((content.ops[op], *rest), len(meanings))
                for op, *rest in zip(*(column[known].tolist() for column in table), strict=True)
            ],
            np.int64,
        )[place]
        bounds = np.searchsorted(comm[alone], np.arange(len(content.comms) + 1))
        for at in range(len(content.comms)):
            part = slice(int(bounds[at]), int(bounds[at + 1]))
            life = scene.by_place[number_, at]
            if part.start == part.stop or life.twin or life.adrift:
                continue
            torn = content.processes[life.comm.process].torn_at is not None
            ordinals = content.column("ordinal")[alone[part]] + life.before[0]
            counted = content.column("op_count")[alone[part]]
            whole = life.comm.init or _from_zero(life, counted)
            lanes[id(life)] = _CountedLane(life, ordinals, codes[part], whole, torn)
    return lanes


def _joined_lanes(scene: LogScene, lanes: dict[int, _CountedLane]) -> dict[int, _CountedLane]:
    """The lanes, with the pieces of a life joined as far back as no operation between them is missing."""
    for life in scene.lives:
        parts = [lanes.pop(id(piece)) for piece in life.pieces if id(piece) in lanes] if life.rest else []
        if not parts:
            continue
        first = len(parts) - 1
        while first and parts[first].ordinals[0] == parts[first - 1].ordinals[-1] + 1:
            first -= 1
        kept = parts[first:]
        lanes[id(life)] = _CountedLane(
            life,
            np.concatenate([part.ordinals for part in kept]),
            np.concatenate([part.codes for part in kept]),
            life.comm.init or (parts[0].life is life and parts[0].whole),
            any(part.torn for part in parts),
        )
    return lanes


def _ranked(column: Numbers) -> tuple[Numbers, int]:
    """The rank of each value among the distinct ones, and their number."""
    low, high = int(column.min(initial=FAR)), int(column.max(initial=-FAR))
    if high - low < DENSE_RATIO * len(column):
        there = np.zeros(high - low + 1, np.bool_)
        there[column - low] = True
        return (np.cumsum(there) - 1)[column - low], int(np.count_nonzero(there))
    place = pl.Series(column).rank("dense").to_numpy().astype(np.int64) - 1
    return place, int(place.max(initial=-1)) + 1


def _from_zero(life: CommLife, op_counts: Numbers) -> bool:
    """Whether the first kept line is the first of all, without a line of the initialisation: opCount then begins at 0.

    In NCCL 2.27 and later opCount may always be 0, which proves nothing.
    """
    return life.comm.first_op_count == 0 and (len(op_counts) == 1 or int(op_counts.max()) > 0)


def _settle_lanes(lanes: Sequence[_CountedLane]) -> list[tuple[_CountedLane, SeqNumbering]]:
    """The lanes with a known place, and their numbers."""
    sound = [lane for lane in lanes if lane.whole and not lane.torn]
    pattern = max(sound or lanes, key=_length, default=None)
    if pattern is None:
        return []
    relative = not any(lane.whole for lane in lanes)
    counting = SeqNumbering(FIRST_SEQ, relative)
    out = [(lane, counting) for lane in sound]
    if not sound:
        out.append((pattern, counting))
    for lane in lanes:
        if lane is not pattern and not (lane.whole and not lane.torn):
            placed = _counted_numbering(lane, pattern) if lane.whole else _aligned_numbering(lane, pattern)
            out += [(lane, placed._replace(relative=relative))] if placed is not None else []
    return out


def _length(lane: _CountedLane) -> tuple[bool, int]:
    return lane.whole, len(lane.codes)


def _counted_numbering(lane: _CountedLane, pattern: _CountedLane) -> SeqNumbering | None:
    """The numbers of a torn lane from the start: its matching part, else an alignment."""
    low = max(int(lane.ordinals[0]), int(pattern.ordinals[0]))
    high = min(int(lane.ordinals[-1]), int(pattern.ordinals[-1]))
    a = lane.codes[(lane.ordinals >= low) & (lane.ordinals <= high)]
    b = pattern.codes[(pattern.ordinals >= low) & (pattern.ordinals <= high)]
    if len(a) != len(b) or not len(a):
        return _aligned_numbering(lane, pattern)
    differ = np.flatnonzero(a != b)
    same = int(differ[0]) if differ.size else len(a)
    return (
        SeqNumbering(FIRST_SEQ, first=low, until=low + same - 1)
        if 2 * same >= len(a)
        else _aligned_numbering(lane, pattern)
    )


def _aligned_numbering(lane: _CountedLane, pattern: _CountedLane) -> SeqNumbering | None:
    """The numbers of `lane` at the one place of `pattern` with the longest run of equal operations."""
    often = pattern.occurs[np.minimum(lane.codes, len(pattern.occurs) - 1)]
    if not often.any():
        return None
    anchor = int(np.argmin(np.where(often > 0, often, len(pattern.codes) + 1)))
    places = np.flatnonzero(pattern.codes == lane.codes[anchor])
    if len(places) > MOST_PLACES:
        return None
    runs = sorted((_longest_run(lane.codes, pattern.codes, int(p) - anchor) for p in places), reverse=True)
    best = runs[0]
    alike = len(runs) > 1 and runs[1].length == best.length
    if alike or (best.length < SHORTEST_RUN and not best.length == len(lane.codes) == len(pattern.codes)):
        return None
    shift = int(pattern.ordinals[0]) + best.offset - int(lane.ordinals[0]) + FIRST_SEQ
    first = int(lane.ordinals[0]) + best.start
    return SeqNumbering(shift, first=first, until=first + best.length - 1 if lane.torn else None)


class _MatchingRun(NamedTuple):
    length: int
    offset: int
    """Distance of the lane behind the beginning of the pattern."""
    start: int
    """Index in the lane."""


def _longest_run(a: Numbers, b: Numbers, offset: int) -> _MatchingRun:
    """The longest run of equal operations if `a` begins `offset` operations behind the beginning of `b`."""
    low, high = max(0, -offset), min(len(a), len(b) - offset)
    if low >= high:
        return _MatchingRun(0, offset, 0)
    differ = np.flatnonzero(a[low:high] != b[low + offset : high + offset])
    edges = np.concatenate([[-1], differ, [high - low]])
    at = int(np.argmax(np.diff(edges)))
    return _MatchingRun(int(edges[at + 1] - edges[at]) - 1, offset, low + int(edges[at]) + 1)


_NO_END = 1 << 62
_YEAR_NS = 366 * 86_400 * 1_000_000_000
_SECOND = 1_000_000_000


def collective_rows(
    scene: LogScene,
    groups: list[tuple[int, ...]],
    numbering: Mapping[tuple[int, int], SeqNumbering],
) -> pl.DataFrame:
    """Rows of `ops` with `line` behind them, for all communicators with known group and rank.

    `numbering`, by log and communicator, maps ordinals to sequence numbers, if known.
    """
    ops: dict[str, int] = {}
    dated = dated_logs(scene)
    parts = [_log_columns(scene, number, ops, dated=number in dated) for number in range(len(scene.logs))]
    if not any(part["life"].size for part in parts):
        return empty_rows()
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    frame = pl.DataFrame(columns)
    lives = _life_table(scene, numbering)
    printed = frame.with_columns(lives[name].gather(frame["life"]) for name in lives.columns)
    printed = _with_meaning(printed, list(ops))
    placed = pl.col("ordinal").is_between("first", "until")
    return shaped_rows(
        printed.with_columns(
            created_ns=pl.when(pl.col("stamp") != NULL).then("stamp"),
            seq=pl.when(~pl.col("p2p") & placed).then(pl.col("ordinal") + pl.col("shift")),
            p2p_seq=pl.when("p2p").then(pl.col("ordinal") + FIRST_SEQ),
            peer=_peers(printed, groups),
            source=pl.lit("nccl-log", Source),
            library=pl.lit("nccl").cast(pl.Categorical),
            is_p2p=pl.col("p2p"),
            coalesced=pl.lit("none", Coalesced),
            state=pl.lit("unknown", State),
        )
    )


def empty_rows() -> pl.DataFrame:
    """The table without rows."""
    return pl.DataFrame(schema={**OPS, "line": pl.Int64})


def _log_columns(scene: LogScene, number: int, ops: dict[str, int], *, dated: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Columns of the usable operations of a log; `life` is an index into the scene's lives, `code` into `ops`."""
    content = scene.logs[number].content
    at = [scene.by_place[number, i] for i in range(len(content.comms))]
    rows = _usable_rows(at, content)
    index = np.array([one.index for one in at] or [0], np.int64)
    before = np.array([one.before for one in at] or [(0, 0)], np.int64)
    codes = np.array([ops.setdefault(op, len(ops)) for op in content.ops] or [0], np.int64)
    comm, code = content.code("comm"), content.code("op")
    p2p = (content.code("flags")[rows] & IS_P2P) > 0
    return {
        "life": index[comm[rows]],
        "code": codes[code[rows]],
        "datatype": content.code("datatype")[rows].astype(np.int64),
        "count": content.column("count")[rows],
        "root": content.column("root")[rows],
        "line": content.column("line")[rows],
        "stamp": _times(content.column("stamp_ns")[rows]) if dated else np.full(len(rows), NULL),
        "ordinal": content.column("ordinal")[rows] + before[comm[rows], p2p.astype(np.int64)],
        "p2p": p2p,
    }


def _usable_rows(lives: Sequence[CommLife], content: LogContent) -> Numbers:
    """The operations of known ranks and groups; of sends and receives only countable ones."""
    comm, p2p = content.code("comm"), (content.code("flags") & IS_P2P) > 0
    known = np.array([not one.twin and None not in (one.group, one.rank) for one in lives] or [False], np.bool_)
    adrift = np.array([one.adrift for one in lives] or [False], np.bool_)
    return np.flatnonzero(known[comm] & ~(adrift[comm] & p2p) & (content.code("op") >= 0))


def _life_table(scene: LogScene, numbering: Mapping[tuple[int, int], SeqNumbering]) -> pl.DataFrame:
    """The common values of all operations of a life, by its index."""
    lives = scene.lives
    logs = [scene.logs[life.log] for life in lives]
    numbers = [numbering.get((life.log, life.at)) for life in lives]
    ends = [n and (_NO_END if n.until is None else n.until) for n in numbers]
    return pl.DataFrame(
        {
            "rank": pl.Series([life.rank for life in lives], dtype=pl.Int32),
            "group": pl.Series([life.group for life in lives], dtype=pl.UInt32),
            "host": pl.Series([scene.speakers[life.speaker].host for life in lives], dtype=pl.String).cast(
                pl.Categorical
            ),
            "members": pl.Series([life.comm.nranks for life in lives], dtype=pl.Int64),
            "file": pl.Series([log.place for log in logs], dtype=pl.UInt32),
            "attempt": pl.Series([log.source.attempt for log in logs], dtype=pl.UInt16),
            "shift": pl.Series([n and n.shift for n in numbers], dtype=pl.Int64),
            "first": pl.Series([n and n.first for n in numbers], dtype=pl.Int64),
            "until": pl.Series(ends, dtype=pl.Int64),
        }
    )


def shaped_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with all columns of `ops` and `line`; null where `rows` lacks one."""
    there = set(rows.columns)
    columns = {**OPS, "line": pl.Int64}
    return rows.select(
        (pl.col(name) if name in there else pl.lit(None)).cast(kind).alias(name) for name, kind in columns.items()
    )


def dated_logs(scene: LogScene) -> frozenset[int]:
    """Numbers of logs whose times have a date and a finer resolution than seconds, and so order lines."""
    stamps = {number: _times(log.content.column("stamp_ns")) for number, log in enumerate(scene.logs)}
    return frozenset(number for number, own in stamps.items() if (own[own != NULL] % _SECOND).any())


def _times(stamps: Numbers) -> Numbers:
    """Times with a date."""
    return np.where((stamps != NULL) & (stamps > _YEAR_NS), stamps, NULL)


def _with_meaning(rows: pl.DataFrame, printed: list[str]) -> pl.DataFrame:
    """Columns op, in_sizes, out_sizes, in_dtypes and out_dtypes, computed once for each distinct line."""
    key = ["code", "datatype", "count", "members"]
    distinct = rows.select(key).unique(maintain_order=True)
    made: dict[str, list[Any]] = {name: [] for name in ("op", "in_sizes", "out_sizes", "in_dtypes")}
    for code, datatype, count, members in distinct.iter_rows():
        name = printed[code]
        sent, received = log_processes.shape_texts(name, None if count == NULL else count, members)
        values = log_processes.nccl_op(name), sent, received, log_processes.dtype_text(datatype)
        for column, value in zip(made, values, strict=True):
            made[column].append(value)
    table = distinct.with_columns(pl.Series(n, v, dtype=pl.String).cast(pl.Categorical) for n, v in made.items())
    table = table.with_columns(out_dtypes="in_dtypes")
    return rows.join(table, on=key, how="left", nulls_equal=True, maintain_order="left")


def _peers(rows: pl.DataFrame, groups: list[tuple[int, ...]]) -> pl.Series:
    """Global rank of the peer of a send or receive: its line has the place in the communicator."""
    key = ["group", "root"]
    wanted = rows.filter("p2p").select(key).unique()
    peers = [groups[group][root] if 0 <= root < len(groups[group]) else None for group, root in wanted.iter_rows()]
    table = wanted.with_columns(p2p=pl.lit(value=True), peer=pl.Series(peers, dtype=pl.Int32))
    return rows.select(*key, "p2p").join(table, on=[*key, "p2p"], how="left", maintain_order="left")["peer"]


def add_claimed_rows(rows: pl.DataFrame, claims: Claims, lines_before: Mapping[int, int]) -> pl.DataFrame:
    """Operations of COLL lines with the states from the watchdog, and operations that only other lines name.

    `lines_before` holds the number of earlier lines of a file that continues others.
    """
    claimed = [
        _claimed_row(rank, group, row)
        for (rank, group), claim in claims.items()
        for row in (*claim.rows.values(), *claim.p2p.values())
    ]
    if claimed:
        kinds = {**OPS, "line": pl.Int64}
        named = shaped_rows(pl.DataFrame(claimed, schema={n: kinds[n] for n in claimed[0]}, infer_schema_length=None))
        printed = rows.filter("is_p2p").select("rank", "group").unique()
        # COLL lines have each send and receive with its peer
        named = named.join(printed.with_columns(is_p2p=True), on=["rank", "group", "is_p2p"], how="anti")
        key = ["rank", "group", "seq"]
        if rows.height:
            states = named.select(*key, told="state", gone="retired")
            rows = (
                rows.join(states, on=key, how="left", maintain_order="left")
                .with_columns(state=pl.coalesce("told", "state"), retired=pl.coalesce("gone", "retired"))
                .drop("told", "gone")
            )
            named = named.join(rows, on=key, how="anti", maintain_order="left")
        # an operation without a time follows the one before it in its group
        named = named.sort("rank", "group", "seq").with_columns(
            at=pl.col("created_ns").forward_fill().over("rank", "group")
        )
        rows = pl.concat([rows.with_columns(at="created_ns"), named])
    else:
        rows = rows.with_columns(at="created_ns")
    rows = _with_counters(rows, claims)
    before = pl.col("file").replace_strict(dict(lines_before), default=0, return_dtype=pl.Int64)
    return rows.sort("rank", "at", pl.col("line") + before, "seq", nulls_last=False, maintain_order=True).drop("at")


def add_absent_rows(rows: pl.DataFrame, claims: Claims, members: Sequence[tuple[int, ...]]) -> pl.DataFrame:
    """Scheduled rows for operations that a member never printed: fingerprints are compared before a collective runs.

    Only for a job that is known to have failed: in a running job, some rank is always a little ahead.
    """
    printed: dict[int, dict[int, int]] = defaultdict(dict)
    for (rank, group), claim in claims.items():
        if claim.whole and claim.enqueued is not None:
            printed[group][rank] = claim.enqueued
    least = [
        (group, min(own.values())) for group, own in printed.items() if members[group] and set(own) == {*members[group]}
    ]
    if not least or rows.is_empty():
        return rows
    table = pl.DataFrame(least, schema={"group": pl.UInt32, "least": pl.Int64}, orient="row")
    alone = (pl.col("state") == "unknown") & (pl.col("seq") > pl.col("least"))
    return (
        rows.join(table, on="group", how="left", maintain_order="left")
        .with_columns(state=pl.when(alone).then(pl.lit("scheduled", State)).otherwise("state"))
        .drop("least")
    )


def _claimed_row(rank: int, group: int, row: ClaimedOperation) -> dict[str, Any]:
    return {
        "rank": rank, "group": group, "seq": None if row.is_p2p else row.seq,
        "p2p_seq": row.seq if row.is_p2p else None, "op": row.op or "unknown", "state": row.state,
        "retired": row.retired, "in_sizes": row.in_sizes, "out_sizes": row.out_sizes, "in_dtypes": row.dtypes,
        "out_dtypes": row.dtypes, "created_ns": row.created_ns, "timeout_ms": row.timeout_ms,
        "library": row.library, "file": row.file, "line": row.line, "attempt": row.attempt, "source": "c10d-log",
        "is_p2p": row.is_p2p, "coalesced": "none",
    }  # fmt: skip


def _with_counters(rows: pl.DataFrame, claims: Claims) -> pl.DataFrame:
    """Rows with states from the counters of the group: up to the last completed one, and from there to the last
    enqueued."""
    known = [(rank, group, c.enqueued, c.completed) for (rank, group), c in claims.items() if c.completed is not None]
    if not known or rows.is_empty():
        return rows
    table = pl.DataFrame(
        known, schema={"rank": pl.Int32, "group": pl.UInt32, "upto": pl.Int64, "done": pl.Int64}, orient="row"
    )
    open_ = (pl.col("state") == "unknown") & ~pl.col("is_p2p")
    return (
        rows.join(table, on=["rank", "group"], how="left", maintain_order="left")
        .with_columns(
            state=pl.when(open_ & (pl.col("seq") <= pl.col("done")))
            .then(pl.lit("completed", State))
            .when(open_ & (pl.col("seq") > pl.col("done")))
            .then(pl.lit("scheduled", State))
            .otherwise("state")
        )
        .drop("upto", "done")
    )


SeenRange = tuple[int | None, int | None, int | None]
"""The first and the last printed collective of a rank in a group, and the last completed of them."""


def seen_in(ops: pl.DataFrame) -> dict[tuple[int, int], SeenRange]:
    """The printed range of operations, by rank and group."""
    alone = pl.col("seq").filter(~pl.col("is_p2p"))
    kept = ops.group_by("rank", "group").agg(
        first=alone.min(), last=alone.max(), done=pl.col("seq").filter(pl.col("state") == "completed").max()
    )
    return {(rank, group): (first, last, done) for rank, group, first, last, done in kept.iter_rows()}


def claimed_frontiers(
    seen: Mapping[tuple[int, int], SeenRange], claims: Claims, counted: Mapping[tuple[int, int], int | None]
) -> pl.DataFrame:
    """A row for each rank and group in any of these tables."""
    rows: list[dict[str, Any]] = []
    for rank, group in sorted({*seen, *claims, *counted}):
        first, last, done = seen.get((rank, group), (None, None, None))
        claim = claims.get((rank, group), Claim())
        enqueued = [n for n in (counted.get((rank, group)), claim.enqueued) if n is not None]
        whole = (first is not None and first <= 1) or claim.whole
        completed = [n for n in (claim.completed, done) if n is not None]
        rows.append(
            {
                "rank": rank, "group": group, "last_enqueued": max([*enqueued, last or 0]) if enqueued else None,
                "last_started": claim.started, "last_completed": max(completed, default=None),
                "status_enqueued": claim.enqueued, "status_started": None,
                "status_completed": claim.completed, "first_kept": first, "last_kept": last,
                "wrapped": not whole, "filtered": "none",
            }
        )  # fmt: skip
    return pl.DataFrame(rows, schema=FRONTIERS)


BUFFERED_LINES = 64
"""Lines of operations that may be lost with the output buffer (4 KiB) of a killed process."""


def last_counted(
    scene: LogScene, numbering: Mapping[tuple[int, int], SeqNumbering]
) -> dict[tuple[int, int], int | None]:
    """The last collective by the lines of each rank on each group; None if lines may be missing."""
    reached: dict[tuple[int, int], int | None] = {}
    weak: set[tuple[int, int]] = set()
    furthest: dict[int, int] = defaultdict(int)
    for key, life in scene.by_place.items():
        if not life.stands or life.group is None or life.rank is None:
            continue
        if not any(piece.comm.collectives for piece in life.pieces):
            continue
        last = numbering[key].last if key in numbering and not life.pieces[-1].adrift else None
        reached[life.rank, life.group] = last
        furthest[life.group] = max(furthest[life.group], last or 0)
        if not all(scene.logs[piece.log].own for piece in life.pieces):
            weak.add((life.rank, life.group))
    for rank, group in weak:
        behind = furthest[group] - (reached[rank, group] or 0)
        if 0 < behind <= BUFFERED_LINES:
            reached[rank, group] = None
    return reached
