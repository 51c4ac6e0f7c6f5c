"""The process group of each communicator, by comparison of its work with that of groups in dumps and lines of c10d.

torch makes a communicator with the first collective of a group, or all at once. Two groups of the same ranks differ in
their work: operation and elements at the same sequence number, and the highest number. Groups with equal work are
distinguished by the order of their first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from rankscope.features.logs.rows import log_processes
from rankscope.features.logs.rows.c10d_claims import Claims
from rankscope.features.logs.rows.log_groups import LogGroups, slots_of
from rankscope.features.logs.rows.log_operations import SeqNumbering, collective_rows
from rankscope.features.logs.rows.log_processes import CommLife, LogScene

LEAST_EQUAL_SHARE = 0.8
"""Smallest equal share of a log and the dumps of others that allows a join."""
_KEY = ["rank", "seq"]
_COMPARED = ["rank", "group", "seq", "file", "line", "op"]
_SHAPE = {"rank": pl.Int32, "group": pl.UInt32, "seq": pl.Int64, "wire": pl.String}


class CandidateComm(NamedTuple):
    """A communicator over all ranks whose process group is searched."""

    identity: str
    lives: Sequence[CommLife]
    members: tuple[int, ...]
    name: str
    """Name of the process group, if a line of c10d has it; else ""."""
    description: str
    candidates: tuple[int, ...]
    """Known groups with the same members."""


def choose_groups(
    parties: Sequence[CandidateComm], rows: pl.DataFrame, first: int, known: pl.DataFrame
) -> list[int | None]:
    """The group of each candidate communicator; None if unknown.

    `rows` are operations of logs; their group is `first` + number of the party. `known` comes from `group_evidence`.
    """
    homes: list[int | None] = [None] * len(parties)
    for tied in _contests(parties):
        if len(tied) == 1 and len(parties[tied[0]].candidates) == 1:
            homes[tied[0]] = parties[tied[0]].candidates[0]
            continue
        fits = {
            at: _fitting_groups(rows.filter(pl.col("group") == first + at), parties[at].candidates, known)
            for at in tied
        }
        found = _eliminate(fits)
        left = [at for at in tied if at not in found]
        free = {group for at in left for group in fits[at]} - set(found.values())
        found |= _by_order(left, parties, sorted(free), fits, known)
        for at, group in found.items():
            homes[at] = group
    return homes


def _contests(parties: Sequence[CandidateComm]) -> list[list[int]]:
    """Parties with candidates, grouped by common candidates."""
    by_first: dict[tuple[int, ...], list[int]] = {}
    for at, party in enumerate(parties):
        if party.candidates:
            # all groups with the same members are candidates together, unless a name decides
            by_first.setdefault(party.candidates, []).append(at)
    return list(by_first.values())


def group_evidence(ops: pl.DataFrame, claims: Claims) -> pl.DataFrame:
    """Columns rank, group, seq, wire, place of collectives in dumps and lines of c10d.

    `place` counts the operations of a rank in order of issue; null if lines lack the order. A row without `wire` only
    holds the last number of a group.
    """
    dumped = _wire(ops.with_row_index("place").filter(~pl.col("is_p2p") & (pl.col("coalesced") == "none")))
    rows = [
        (rank, group, row.seq, row.op, row.in_sizes)
        for (rank, group), claim in claims.items()
        for row in claim.rows.values()
    ]
    named = {**_SHAPE, "op": pl.String, "in_sizes": pl.String}
    del named["wire"]
    said = _wire(pl.DataFrame(rows, schema=named, orient="row"))
    ends = [(rank, group, claim.enqueued) for (rank, group), claim in claims.items() if claim.enqueued is not None]
    last = pl.DataFrame(ends, schema={n: _SHAPE[n] for n in ("rank", "group", "seq")}, orient="row")
    parts = [dumped.select(*_SHAPE, "place"), said.select(*_SHAPE), last]
    return pl.concat(parts, how="diagonal").filter(pl.col("seq").is_not_null())


def _wire(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `wire`: operation and elements. A watchdog prints no type."""
    if rows.is_empty():
        return rows.with_columns(wire=pl.lit("", pl.String))
    return as_wire_rows(rows.with_columns(in_dtypes=pl.lit(None, pl.String)))


def _fitting_groups(rows: pl.DataFrame, candidates: Sequence[int], known: pl.DataFrame) -> frozenset[int]:
    """The possible groups of the operations of a communicator: those with the same work, else those without any."""
    work = _wire(rows.filter(~pl.col("is_p2p") & pl.col("seq").is_not_null())).select(*_KEY, "wire")
    shares = {group: _equal_share(work, known.filter(pl.col("group") == group)) for group in candidates}
    alike = frozenset(group for group, share in shares.items() if share is not None and share >= LEAST_EQUAL_SHARE)
    return alike or frozenset(group for group, share in shares.items() if share is None)


def _equal_share(own: pl.DataFrame, known: pl.DataFrame) -> float | None:
    """The share of a communicator's operations that a group has too, 0 if their last numbers differ; None without
    any."""
    ends = (
        own.group_by("rank")
        .agg(pl.col("seq").max())
        .join(known.group_by("rank").agg(pl.col("seq").max()), on="rank", how="inner")
    )
    near = pl.min_horizontal("seq", "seq_right") >= LEAST_EQUAL_SHARE * pl.max_horizontal("seq", "seq_right")
    if ends.height and float(ends.select(near.mean()).item()) < LEAST_EQUAL_SHARE:
        return 0.0
    both = own.join(known.drop_nulls("wire").unique(_KEY), on=_KEY, how="inner")
    same = both.select((pl.col("wire") == pl.col("wire_right")).mean()).item()
    return None if same is None else float(same)


def _eliminate(fits: Mapping[int, frozenset[int]]) -> dict[int, int]:
    """Groups that only one party fits, found by repeated elimination."""
    found: dict[int, int] = {}
    while True:
        taken = set(found.values())
        left = {at: groups - taken for at, groups in fits.items() if at not in found}
        sole = {at: next(iter(groups)) for at, groups in left.items() if len(groups) == 1}
        wanted = list(sole.values())
        new = {at: group for at, group in sole.items() if wanted.count(group) == 1}
        if not new:
            return found
        found |= new


def _by_order(
    tied: Sequence[int],
    parties: Sequence[CandidateComm],
    groups: Sequence[int],
    fits: Mapping[int, frozenset[int]],
    known: pl.DataFrame,
) -> dict[int, int]:
    """The k-th made communicator belongs to the k-th used group, if their numbers are equal and all fit."""
    made, used = _creation_order(tied, parties), _use_order(groups, known)
    if len(tied) != len(groups) or made is None or used is None:
        return {}
    pairs = dict(zip(made, used, strict=True))
    return pairs if all(group in fits[at] for at, group in pairs.items()) else {}


def _creation_order(tied: Sequence[int], parties: Sequence[CandidateComm]) -> tuple[int, ...] | None:
    """Parties in the order in which every process made them; None if processes differ."""
    by_speaker: dict[int, list[tuple[int, int]]] = {}
    for at in tied:
        for life in parties[at].lives:
            by_speaker.setdefault(life.speaker, []).append((life.index, at))
    orders = {tuple(at for _, at in sorted(own)) for own in by_speaker.values()}
    whole = {order for order in orders if len(order) == len(tied) == len(set(order))}
    return whole.pop() if len(whole) == 1 and len(orders) == 1 else None


def _use_order(groups: Sequence[int], known: pl.DataFrame) -> tuple[int, ...] | None:
    """Groups in the order in which every rank first used them; None if unknown."""
    rows = known.filter(pl.col("group").is_in(list(groups)))
    begun = rows.filter((pl.col("seq") == 1) & pl.col("place").is_not_null()).sort("place")
    if begun.is_empty():
        return tuple(groups) if rows["place"].null_count() == rows.height else None
    orders: set[tuple[Any, ...]] = {
        tuple(order) for order in begun.group_by("rank").agg("group")["group"].to_list() if len(order) == len(groups)
    }
    return orders.pop() if len(orders) == 1 else None


def housed_rows(
    scene: LogScene,
    groups: LogGroups,
    named: dict[str, tuple[str, str]],
    numbering: Mapping[tuple[int, int], SeqNumbering],
    known: pl.DataFrame,
) -> pl.DataFrame:
    """The operations of communicators with a known process group; sets the group of all their lives.

    `known` holds the evidence of dumps and c10d; see `group_evidence`.
    """
    parties = _parties(scene, groups, named)
    first = len(groups.members)
    for at, party in enumerate(parties):
        for life in party.lives:
            life.set_group(first + at)
    rows = collective_rows(scene, [*groups.members, *(party.members for party in parties)], numbering)
    homes = _set_groups(parties, choose_groups(parties, rows, first, known), groups)
    old = range(first, first + len(homes))
    moved = pl.DataFrame({"group": old, "home": homes}, schema={"group": pl.UInt32, "home": pl.UInt32})
    placed = rows.join(moved, on="group", how="left", maintain_order="left")
    return placed.with_columns(group="home").drop("home").filter(pl.col("group").is_not_null())


def _parties(scene: LogScene, groups: LogGroups, named: dict[str, tuple[str, str]]) -> list[CandidateComm]:
    """The communicators with known members, and their possible groups.

    `named` holds name and description of the process group, for identities that a line of c10d connects with one.
    """
    found = []
    for identity, lives in sorted(scene.identities().items()):
        size = lives[0].comm.nranks or 0
        members = (
            (slots_of(lives) or (tuple(range(size)) if size == scene.world and _all_of(lives) else None))
            if (size >= 2)
            else None
        )
        name, description = named.get(identity, ("", ""))
        if members is not None:
            same = [i for i in groups.of_members(members) if not name or groups.names[i] == name]
            found.append(CandidateComm(identity, lives, members, name, description, tuple(same)))
        elif size >= 2 and len(seated := _seated(groups, lives, size)) == 1:
            found.append(CandidateComm(identity, lives, groups.members[seated[0]], name, description, tuple(seated)))
    return found


def _seated(groups: LogGroups, lives: Sequence[CommLife], size: int) -> list[int]:
    seats = {life.comm.rank: life.rank for life in lives if life.comm.rank is not None and life.rank is not None}
    return groups.seated(seats, size) if seats else []


def _set_groups(parties: Sequence[CandidateComm], homes: Sequence[int | None], groups: LogGroups) -> list[int | None]:
    """Sets `group` of every life, and returns it for each party.

    A communicator whose members no known group has becomes a new group. It gets none if it could be one of several
    groups in dumps: its operations would be there twice.
    """
    out: list[int | None] = []
    for party, home in zip(parties, homes, strict=True):
        doubtful = any(at < groups.known for at in party.candidates)
        at = home
        if at is None and not doubtful:
            at = groups.add(party.name or party.identity, party.description, party.members, True)
        for life in party.lives:
            life.set_group(at)
        if at is not None:
            groups.has_p2p[at] = groups.has_p2p[at] or any(
                piece.comm.p2p for life in party.lives for piece in life.pieces
            )
        out.append(at)
    return out


def _all_of(lives: Sequence[CommLife]) -> bool:
    """Whether all known ranks in a communicator equal the global ones."""
    return all(life.comm.rank in (None, life.rank) for life in lives) and any(life.rank is not None for life in lives)


class LogAgreement(NamedTuple):
    """Result of the comparison."""

    unfit: frozenset[int]
    """Groups whose collectives logs and dumps count differently."""
    differing: pl.DataFrame
    """Rows of logs (rank, group, seq, line, file, op, other) that differ from the rank's own dump."""


def compare_logs(rows: pl.DataFrame, ops: pl.DataFrame) -> LogAgreement:
    """Compares operation, elements and type of rows of logs with those of the dumps."""
    if rows.is_empty() or ops.is_empty():
        return LogAgreement(frozenset(), rows.select(_COMPARED).clear().with_columns(other=pl.lit("")))
    printed = as_wire_rows(rows.filter(~pl.col("is_p2p") & pl.col("seq").is_not_null())).select(*_COMPARED, "wire")
    known = as_wire_rows(ops.filter(~pl.col("is_p2p") & (pl.col("coalesced") == "none")))
    dumped = known.select("rank", "group", "seq", other="wire").unique(["rank", "group", "seq"])
    both = printed.join(dumped, on=["rank", "group", "seq"], how="inner")
    differing = both.filter(pl.col("wire") != pl.col("other"))
    # the value of most dumps
    common = known.group_by("group", "seq").agg(other=pl.col("wire").mode().sort().first())
    beside = printed.join(common, on=["group", "seq"], how="inner")
    share = beside.group_by("group").agg(same=(pl.col("wire") == pl.col("other")).mean())
    unfit = share.filter(pl.col("same") < LEAST_EQUAL_SHARE)["group"].to_list()
    return LogAgreement(frozenset(unfit), differing)


def as_wire_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `wire`: operation, elements and type as NCCL gets them; elements only if the operation fixes
    them."""
    parts = ["op", "in_sizes", "in_dtypes"]
    distinct = rows.select(parts).unique()
    texts = distinct.select(pl.all().cast(pl.String))
    keys = [log_processes.wire_key(op, sizes, dtypes) for op, sizes, dtypes in texts.iter_rows()]
    table = distinct.with_columns(wire=pl.Series(keys, dtype=pl.String))
    return rows.join(table, on=parts, how="left", nulls_equal=True, maintain_order="left")
