"""Frontiers: the progress of each rank on each of its groups, and whether it is known.

pg_status counts the last operation of any sort: on a group with sends and receives it mixes two counters, on gloo it
counts operations without an entry. There only entries are reliable, and not always in a filtered or torn dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rankscope.assemble import recorders
from rankscope.assemble.groups import GroupIndex, call_group
from rankscope.assemble.op_names import STATELESS_LIBRARIES, library_of
from rankscope.assemble.recorders import Completeness, completeness
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.model import Dump, GroupStatus
from rankscope.parsers.matrices import NULL
from rankscope.schema.tables import FRONTIERS, HOOKS


@dataclass(frozen=True)
class GroupEntries:
    """The entries of a rank on a group."""

    top: int | None
    """Highest collective sequence number; sends and receives carry it too."""
    first: int | None
    last: int | None
    """Last collective sequence number."""
    pending: int | None
    """First collective that has not completed."""
    unknown: bool
    """The state of some collective is unknown."""
    started: int | None
    """Last collective that is known to have started."""
    counter: int | None
    """The counter that the newest entry increased."""
    op_id: int | None
    """op_id of the newest entry."""


@dataclass(frozen=True)
class SourceFacts:
    """Facts of a source about all of its groups."""

    dump: Dump
    complete: Completeness
    status: dict[int, GroupStatus]
    mapped: bool
    """Every id of pg_status has a known group."""
    torchcomms: bool
    """torchcomms wrote it."""
    single_counter: bool
    """pg_status counts something else than the collectives of a group."""
    timing: bool
    hook: bool
    """A hook wrote it: pg_status counts all operations of a group from 0, and completions are unordered."""
    uncounted: dict[int, int]
    """For each group in a dump of a hook, the number of operations before the newest entry without sequence number."""


def frontier_table(
    sources: Sequence[SourceFile],
    facts: Sequence[SourceFacts],
    ops: pl.DataFrame,
    groups: GroupIndex,
    has_p2p: set[int],
) -> pl.DataFrame:
    """The table `frontiers`; `facts` belong to the sources."""
    kept = _group_entries(ops)
    chosen: dict[tuple[int, int], SourceFacts] = {}
    for i, source in enumerate(sources):
        used = set(groups.by_call.get(i, ()))
        for group in set(groups.by_name[i].values()) if source.rank is not None else ():
            key = (source.rank or 0, group)
            if key not in chosen or group in used or (key not in kept and group in facts[i].status):
                chosen[key] = facts[i]
    rows = [
        {"rank": rank, "group": group, **_row(fact, kept.get((rank, group)), group, has_p2p=group in has_p2p)}
        for (rank, group), fact in sorted(chosen.items(), key=lambda item: item[0])
    ]
    return pl.DataFrame(rows, schema=FRONTIERS)


def facts_of(place: int, source: SourceFile, groups: GroupIndex) -> SourceFacts:
    """The facts of a source about its groups; `place` is its index among the sources of `groups`."""
    dump = source.dump or Dump()
    ids = names_by_id(dump)
    by_name = groups.by_name[place]
    status = {by_name[ids[s.pg_id]]: s for s in dump.status or () if ids.get(s.pg_id) in by_name}
    libraries = {library_of(call.profiling_name) for call in dump.calls}
    hook = source.recorder in HOOKS
    gloo = libraries <= STATELESS_LIBRARIES if libraries else dump.library_version == "" and not hook
    mapped, theirs = len(status) == len(dump.status or ()), recorders.is_torchcomms(dump)
    complete = source.complete or completeness(dump, source.recorder)
    timing = has_timing(dump) and not hook
    uncounted = _uncounted(dump, groups.by_call.get(place, [])) if hook else {}
    return SourceFacts(dump, complete, status, mapped, theirs, gloo or theirs, timing, hook, uncounted)


def _uncounted(dump: Dump, group_of_call: Sequence[int]) -> dict[int, int]:
    """For each group in a dump of a hook, the number of operations before its newest entry without sequence number."""
    groups = np.array(group_of_call, np.int64)[dump.code("call")]
    table = pl.DataFrame({"group": groups, "more": recorders.uncounted_libraries(dump)})
    return dict(table.group_by("group").agg(pl.col("more").last()).iter_rows())


def has_timing(dump: Dump) -> bool:
    """Whether start events were recorded, as shown by a start or a duration. A hook records none."""
    if dump.omitted is not None and dump.omitted.any_started:
        return True
    seen = any((dump.column(name) != NULL).any() for name in ("started_ns", "duration_ns"))
    return bool(seen) or any(call.state == "started" for call in dump.calls)


def _group_entries(ops: pl.DataFrame) -> dict[tuple[int, int], GroupEntries]:
    alone = ~pl.col("is_p2p")
    seq = pl.col("seq")
    unfinished = alone & (pl.col("state") != "completed")
    begun = alone & (pl.col("started_ns").is_not_null() | pl.col("state").is_in(["started", "completed"]))
    # columns of their own, then plain sums of them: filters within groups take twice as long
    rows = ops.lazy().select(
        "rank",
        "group",
        "seq",
        "op_id",
        alone=pl.when(alone).then(seq),
        pending=pl.when(unfinished).then(seq),
        started=pl.when(begun).then(seq),
        unknown=alone & (pl.col("state") == "unknown"),
        counter=pl.when(pl.col("is_p2p")).then("p2p_seq").otherwise("seq"),
    )
    table = rows.group_by("rank", "group").agg(
        pl.col("seq").max(), pl.col("alone").min().alias("first"), pl.col("alone").max().alias("last"),
        pl.col("pending").min(), pl.col("unknown").any(), pl.col("started").max(), pl.col("counter").last(),
        pl.col("op_id").last(),
    ).collect()  # fmt: skip
    return {(rank, group): GroupEntries(*rest) for rank, group, *rest in table.iter_rows()}


def _row(fact: SourceFacts, kept: GroupEntries | None, group: int, *, has_p2p: bool) -> dict[str, Any]:
    status = fact.status.get(group)
    usable = status if status is not None and not has_p2p and not fact.single_counter else None
    if usable is not None and fact.hook:
        usable = _as_seq(usable, fact.uncounted.get(group, 0))
    whole = fact.complete.filtered == "none" and not fact.dump.truncated
    if usable is not None and kept is not None and _contradicts(usable, kept, whole):
        usable = None
    enqueued = _enqueued(fact, kept, status, usable, has_p2p)
    return {
        "last_enqueued": enqueued,
        "last_started": _started(fact, kept, usable),
        "last_completed": _completed(fact, kept, usable, enqueued),
        "status_enqueued": status and status.enqueued,
        "status_started": status and status.started,
        "status_completed": status and status.completed,
        "first_kept": kept and kept.first,
        "last_kept": kept and kept.last,
        "wrapped": _wrapped(fact, kept, status),
        "filtered": fact.complete.filtered,
    }


def _as_seq(status: GroupStatus, uncounted: int) -> GroupStatus:
    """The issue counter of a hook as a sequence number; its last completion is no frontier, and is left out."""
    return status._replace(enqueued=status.enqueued + 1 - uncounted, started=-1, completed=-1)


def _contradicts(status: GroupStatus, kept: GroupEntries, whole: bool) -> bool:
    """Whether entries prove that pg_status counts operations whose entry is gone."""
    done_too_far = kept.pending is not None and status.completed >= kept.pending
    return done_too_far or (whole and kept.counter != status.enqueued)


def _enqueued(
    fact: SourceFacts, kept: GroupEntries | None, status: GroupStatus | None, usable: GroupStatus | None, has_p2p: bool
) -> int | None:
    if usable is not None:
        return max(0, usable.enqueued, (kept and kept.top) or 0)
    if kept is None:
        return 0 if _never_used(fact, status) else None
    if fact.dump.truncated:
        return None
    if fact.complete.filtered == "none":
        return kept.top
    # completed operations are left out. Later collectives of a group cannot complete before one that is still there,
    # and the newest operation of any sort is there if its counter is the last one of pg_status
    in_order = kept.pending is not None and not has_p2p
    last = kept.op_id if fact.hook else kept.counter
    newest = status is not None and not fact.single_counter and last == status.enqueued
    return kept.top if in_order or newest else None


def _never_used(fact: SourceFacts, status: GroupStatus | None) -> bool:
    """Whether a group without an entry never had one."""
    if fact.dump.status is not None:
        return status.enqueued < (0 if fact.hook else 1) if status is not None else fact.mapped
    return fact.complete == Completeness(False, "none") and not fact.dump.truncated


def _completed(
    fact: SourceFacts, kept: GroupEntries | None, usable: GroupStatus | None, enqueued: int | None
) -> int | None:
    if kept is not None and kept.unknown:
        return None
    counted = usable is not None and not fact.hook
    told = [max(0, usable.completed)] if usable is not None and counted else []
    if kept is not None and kept.pending is not None:
        told.append(kept.pending - 1)
    elif not counted and enqueued is not None and (kept is not None or enqueued == 0 or _all_done(fact)):
        told.append(enqueued)
    elif kept is not None and kept.last is not None and fact.complete.filtered == "none":
        told.append(kept.last)
    if not told or (usable is None and enqueued is None and (kept is None or kept.pending is None)):
        return None
    return max(told) if enqueued is None else min(max(told), enqueued)


def _all_done(fact: SourceFacts) -> bool:
    """Whether a hook left completed operations out of its dump: an operation without an entry is then done."""
    return fact.hook and fact.complete.filtered == "only-active"


def _started(fact: SourceFacts, kept: GroupEntries | None, usable: GroupStatus | None) -> int | None:
    if not fact.timing:
        return None if usable is None or usable.started < 0 else usable.started
    seen = [kept.started] if kept is not None and kept.started is not None else []
    told = [usable.started] if usable is not None else []
    return max(0, *seen, *told) if seen or told else None


def _wrapped(fact: SourceFacts, kept: GroupEntries | None, status: GroupStatus | None) -> bool | None:
    if fact.complete.wrapped is None:
        return None
    if kept is not None:
        # record numbers restart when the recorder is reset, sequence numbers do not
        if kept.first is not None:
            return kept.first > 1
        return None if fact.complete.wrapped else False
    if fact.complete.wrapped and not _never_used(fact, status):
        return True if status is not None else None
    return False


def p2p_groups(ops: pl.DataFrame, descriptions: pl.DataFrame) -> set[int]:
    """Groups with sends or receives, and groups of the same description: their entries may be gone."""
    seen = ops.select("group", "is_p2p", "p2p_seq").filter(pl.col("is_p2p") | (pl.col("p2p_seq") > 0))["group"].unique()
    roles = descriptions.filter(pl.col("group").is_in(seen.implode()))["description"].unique()
    roles = roles.filter(~roles.is_in(["", "undefined"]))
    alike = descriptions.filter(pl.col("description").is_in(roles.implode()))["group"]
    return set(seen.to_list()) | set(alike.to_list())


# Names of the groups in pg_status, from their numbers: per process, unless something contradicts.


def names_by_id(dump: Dump) -> dict[str, str]:
    """The name of the group of each id of pg_status, as far as the dump has it."""
    if dump.status is None:
        return {}
    from_entries = {str(c.pg_id): call_group(c) for c in dump.calls if c.pg_id is not None}
    ids = sorted((s.pg_id for s in dump.status), key=_numeric)
    named = sorted((g.name for g in dump.config if g.name or g.description), key=_numeric)
    candidates = [dict(zip(ids, named, strict=True))] if len(ids) == len(named) else []
    # ids count the groups that this process made, in the order of their names
    candidates.append({i: named[int(i)] for i in ids if i.isdigit() and int(i) < len(named)})
    candidates.append({i: i for i in ids if i in named})
    for guess in candidates:
        merged = {**guess, **from_entries}
        agree = all(guess.get(i, name) == name for i, name in from_entries.items())
        if agree and len(set(merged.values())) == len(merged):
            return {i: name for i, name in merged.items() if i in ids}
    return {i: name for i, name in from_entries.items() if i in ids}


def _numeric(name: str) -> tuple[bool, int, str]:
    number = name.isascii() and name.isdigit() and len(name) < 18
    return (not number, int(name) if number else 0, name)
