"""The tables that come of dumps alone. Of dumps that are assembled again and again only what changed is worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankscope import schema
from rankscope.parsers.assemble import coalesced, recorders
from rankscope.parsers.assemble.frontiers import SourceFacts, facts_of, frontier_table, p2p_groups
from rankscope.parsers.assemble.groups import Groups, calls_of, describe, named, resolve
from rankscope.parsers.assemble.operations import Stacks, entries, operations
from rankscope.parsers.assemble.placed import Placed
from rankscope.parsers.assemble.repeats import Told
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.flight_recorder.model import Dump

if TYPE_CHECKING:
    from rankscope.parsers.assemble.logs.more import Known
    from rankscope.parsers.assemble.logs.recall import Recall
    from rankscope.parsers.assemble.traces.bring import Brought
    from rankscope.schema import Dataset

FEW = 16
"""Of so many dumps that changed it is looked in which columns they did."""
Stretches = list[tuple[int, int]]
FORGOTTEN = 3
"""Stacks that nobody has any more are let go when there are so many times as many as at the beginning."""


@dataclass(frozen=True)
class Made:
    """What was made of some dumps, in order of rank."""

    sources: tuple[Source, ...]
    places: tuple[int, ...]
    world: int
    groups: Groups
    entries: pl.DataFrame | None
    """None where each of them became an operation by itself."""
    facts: tuple[SourceFacts, ...]
    stacks: Stacks
    first_stacks: int
    """How many there were when all dumps were read anew."""
    tables: dict[str, pl.DataFrame]
    counts: tuple[int, ...]
    """How many entries each source has."""
    at: dict[int, int]
    """The number of each source by its place."""


class Memory:
    """Keeps what was made of the files of a job, for the next time."""

    def __init__(self) -> None:
        self.placed: Placed | None = None
        self.made: Made | None = None
        self.files: pl.DataFrame | None = None
        self.traces: Brought | None = None
        self.recall: Recall | None = None
        """What logs told of communicators."""
        self.lines: Known | None = None
        """How lines of logs became operations."""
        self.repeats = Told()
        self.dataset: Dataset | None = None
        """What was put together last, of all of this."""
        self.renewed: frozenset[int] | None = None
        """Ranks whose dumps were all that was new of it then; None: there was more."""
        self.partly = False
        """It was put together of dumps alone: what other files tell of them now was not worked out."""

    @property
    def sources(self) -> list[Source]:
        """All files as they were placed last."""
        return self.placed.sources if self.placed is not None else []

    def ranks(self) -> dict[str, frozenset[int]]:
        """By path whose dumps files are, or the sidecars of which: those that keep their place; nobody's of others."""
        if self.placed is None:
            return {}
        sources = [(place in self.placed.peers, source) for place, source in enumerate(self.placed.sources)]
        none: frozenset[int] = frozenset()
        return {s.shown: none if s.rank is None or not lasts else frozenset({s.rank}) for lasts, s in sources}

    @property
    def fresh(self) -> list[int] | None:
        """Places of those that are not what they were the time before; None: all of them."""
        return self.placed.fresh if self.placed is not None else None


def dump_tables(used: list[Source], places: list[int], world: int, memory: Memory) -> dict[str, pl.DataFrame]:
    """The tables ops, stacks, groups and frontiers of sources that lie at `places` of the table of files."""
    if not used:
        memory.made = None
        return _nothing()
    if recorders.settle(used):
        memory.made = None
    before = memory.made
    changed = _changed(before, used, places, world) if before is not None else None
    if before is None or changed is None:
        memory.made = _anew(used, places, world)
    elif changed:
        memory.made = _again(before, used, changed)
    else:
        memory.made = replace(before, sources=tuple(used))
    return dict(memory.made.tables)


def tables_again(memory: Memory, used: list[Source], fresh: Sequence[int]) -> dict[str, pl.DataFrame] | None:
    """The same tables where only sources at the places `fresh` are others than before; None if more may be new."""
    before = memory.made
    if before is None or len(used) != len(before.sources) or recorders.settle(used):
        return None
    changed = _renewed(before, used, [before.at[place] for place in fresh if place in before.at])
    if changed is None:
        return None
    memory.made = _again(before, used, changed) if changed else replace(before, sources=tuple(used))
    return dict(memory.made.tables)


def _nothing() -> dict[str, pl.DataFrame]:
    """The tables of no dump: many directories hold only logs, or only traces."""
    tables = {"ops": schema.OPS, "groups": schema.GROUPS, "frontiers": schema.FRONTIERS}
    return {**{name: schema.empty(columns) for name, columns in tables.items()}, "stacks": Stacks().table()}


def _anew(used: list[Source], places: list[int], world: int) -> Made:
    groups, stacks = resolve(used, world), Stacks()
    frame = entries(used, places, groups, stacks)
    facts = [facts_of(i, source, groups) for i, source in enumerate(used)]
    tables = {**_tables(frame, used, places, groups, facts), "stacks": stacks.table()}
    kept = None if _stand_alone(frame, used, facts) else frame
    counts, at = tuple(map(_rows, used)), {place: i for i, place in enumerate(places)}
    return Made(tuple(used), tuple(places), world, groups, kept, tuple(facts), stacks, len(stacks), tables, counts, at)


def _again(before: Made, used: list[Source], changed: list[int]) -> Made:
    by_call = {**before.groups.by_call, **{i: calls_of(used[i], before.groups.by_name[i]) for i in changed}}
    groups = replace(before.groups, by_call=by_call)
    known, places = len(before.stacks), list(before.places)
    own, theirs = [used[i] for i in changed], [places[i] for i in changed]
    news = entries(own, theirs, groups.only(changed), before.stacks)
    facts = list(before.facts)
    for i in changed:
        facts[i] = facts_of(i, used[i], groups)
    stacks = before.tables["stacks"] if len(before.stacks) == known else before.stacks.table()
    counts = list(before.counts)
    for i in changed:
        counts[i] = _rows(used[i])
    made = replace(before, sources=tuple(used), groups=groups, facts=tuple(facts), counts=tuple(counts))
    if before.entries is not None:
        frame = _patched(before, before.entries, news, used, changed)
        return replace(made, entries=frame, tables={**_tables(frame, used, places, groups, facts), "stacks": stacks})
    if not _stand_alone(news, own, [facts[i] for i in changed]):
        return _anew(used, places, before.world)
    ops = _patched(before, before.tables["ops"], operations(news, own, []), used, changed)
    return replace(made, tables={**_tables_again(before, made, ops, changed), "stacks": stacks})


def _stand_alone(frame: pl.DataFrame, sources: Sequence[Source], facts: Sequence[SourceFacts]) -> bool:
    """Whether each entry becomes an operation by itself, whatever else there is: then no entries have to be kept."""
    return (
        not frame["names_closer"].any()
        and len({source.rank for source in sources}) == len(sources)
        and not any(fact.torchcomms or fact.complete.filtered == "only-active" for fact in facts)
    )


def _patched(
    before: Made, rows: pl.DataFrame, news: pl.DataFrame, used: list[Source], changed: list[int]
) -> pl.DataFrame:
    """The rows of all sources with those of the sources that changed in the place of what they were."""
    old = _bounds(before.counts)
    new = list(pairwise(_bounds([_rows(used[i]) for i in changed])))
    were = [(old[i], old[i + 1]) for i in changed]
    kept = _alike(rows, were, news, new) if len(changed) <= FEW else []
    if len(kept) == rows.width:
        return rows
    parts, end = [], 0
    for (start, stop), (first, last) in zip(were, new, strict=True):
        parts += [rows[end:start], news[first:last]]
        end = stop
    parts.append(rows[end:])
    if not kept:
        return pl.concat(parts, rechunk=True)
    others = pl.concat([part.drop(kept) for part in parts], rechunk=True)
    return pl.DataFrame([rows[name] if name in kept else others[name] for name in rows.columns])


def _alike(rows: pl.DataFrame, were: Stretches, news: pl.DataFrame, new: Stretches) -> list[str]:
    """Columns in which nothing is new: they need not be copied, nor be compared before they are sent to the screen."""
    if [end - start for start, end in were] != [end - start for start, end in new]:
        return []
    pairs = [(rows[start:end], news[first:last]) for (start, end), (first, last) in zip(were, new, strict=True)]
    return [name for name in rows.columns if all(one[name].equals(other[name]) for one, other in pairs)]


def _bounds(counts: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(counts).tolist()]


def _rows(source: Source) -> int:
    return source.dump.rows if source.dump is not None else 0


def _changed(before: Made, used: list[Source], places: list[int], world: int) -> list[int] | None:
    """Which dumps have another content; None if anything else changed, so that nothing of before can be kept."""
    if (world, tuple(places), len(used)) != (before.world, before.places, len(before.sources)):
        return None
    others = [i for i, (old, new) in enumerate(zip(before.sources, used, strict=True)) if old is not new]
    return _renewed(before, used, others)


def _renewed(before: Made, used: list[Source], others: Sequence[int]) -> list[int] | None:
    """Which of the sources that are others have another content; None if they tell of other places or groups."""
    if len(before.stacks) > FORGOTTEN * before.first_stacks + FORGOTTEN:
        return None
    pairs = [(before.sources[i], used[i]) for i in others]
    if any(_place(old) != _place(new) or old.carded != new.carded for old, new in pairs):
        return None
    changed = sorted(i for i in others if before.sources[i].content is not used[i].content)
    return changed if all(_speaks_alike(before.sources[i], used[i]) for i in changed) else None


def _place(source: Source) -> tuple[int | None, int | None, str | None, bool]:
    return source.rank, source.attempt, source.host, source.dump is not None


def _speaks_alike(old: Source, new: Source) -> bool:
    """Whether two versions of a dump tell of the same groups, in the same words."""
    before, after = old.dump or Dump(), new.dump or Dump()
    return (
        before.config == after.config
        and old.libraries == new.libraries
        and {(c.pg_id, c.name, c.description) for c in before.calls}
        == {(c.pg_id, c.name, c.description) for c in after.calls}
    )


def _tables(
    frame: pl.DataFrame, used: list[Source], places: list[int], groups: Groups, facts: Sequence[SourceFacts]
) -> dict[str, pl.DataFrame]:
    """All but the stacks."""
    counted = [place for place, fact in zip(places, facts, strict=True) if fact.torchcomms]
    ops = operations(frame, used, counted)
    described = pl.DataFrame(
        {"group": range(len(groups.rows)), "description": [describe(row) for row in groups.rows]},
        schema={"group": pl.UInt32, "description": pl.String},
    )
    filtered = {
        place: {group: status.completed for group, status in fact.status.items()}
        for place, fact in zip(places, facts, strict=True)
        if fact.complete.filtered == "only-active"
    }
    if filtered:
        ops = coalesced.complete_filtered(ops, filtered, described)
        ops = ops.select([pl.col(n).cast(t) for n, t in schema.OPS.items()])
    with_p2p = p2p_groups(ops, described)
    return {
        "ops": ops,
        "groups": _group_table(groups, with_p2p),
        "frontiers": frontier_table(used, facts, ops, groups, with_p2p),
    }


def _tables_again(before: Made, made: Made, ops: pl.DataFrame, changed: list[int]) -> dict[str, pl.DataFrame]:
    """The same of sources of which each has its own rank, where some have changed."""
    with_p2p = p2p_groups(ops, before.tables["groups"])
    sources, facts, groups = made.sources, made.facts, made.groups
    known = before.tables["groups"].filter("has_p2p")["group"]
    if with_p2p != set(known.to_list()):
        frontiers = frontier_table(sources, facts, ops, groups, with_p2p)
        return {"ops": ops, "groups": _group_table(groups, with_p2p), "frontiers": frontiers}
    own, theirs = [sources[i] for i in changed], [facts[i] for i in changed]
    mine = pl.col("rank").is_in([source.rank for source in own])
    news = frontier_table(own, theirs, ops.filter(mine), groups.only(changed), with_p2p)
    frontiers = pl.concat([before.tables["frontiers"].filter(~mine), news]).sort("rank", "group")
    return {"ops": ops, "groups": before.tables["groups"], "frontiers": frontiers}


def _group_table(groups: Groups, with_p2p: set[int]) -> pl.DataFrame:
    rows = [
        {
            "group": i,
            "name": named(row),
            "description": describe(row),
            "ranks": list(members),
            "membership": "inferred" if row.key.members is None else "config",
            "has_p2p": i in with_p2p,
        }
        for i, (row, members) in enumerate(zip(groups.rows, groups.members, strict=True))
    ]
    return pl.DataFrame(rows, schema=dict(schema.GROUPS))
