"""The tables that come of dumps alone."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rankscope import schema
from rankscope.assemble.frontiers import SourceFacts, facts_of, frontier_table, p2p_groups
from rankscope.assemble.groups import Groups, describe, named, resolve
from rankscope.assemble.operations import Stacks, complete_filtered, entries, operations
from rankscope.assemble.sources import Source


def dump_tables(used: list[Source], places: list[int], world: int) -> dict[str, pl.DataFrame]:
    """The tables ops, stacks, groups and frontiers of sources that lie at `places` of the table of files."""
    if not used:
        tables = {"ops": schema.OPS, "groups": schema.GROUPS, "frontiers": schema.FRONTIERS}
        return {**{name: schema.empty(columns) for name, columns in tables.items()}, "stacks": Stacks().table()}
    _settle_recorders(used)
    groups, stacks = resolve(used, world), Stacks()
    frame = entries(used, places, groups, stacks)
    facts = [facts_of(i, source, groups) for i, source in enumerate(used)]
    return {**_tables(frame, used, places, groups, facts), "stacks": stacks.table()}


def _settle_recorders(sources: Sequence[Source]) -> None:
    """Takes dumps of a job without operations for what all others are.

    Not of a rank that has left another one with operations: the empty one is of another backend.
    """
    known = {source.recorder for source in sources} - {None}
    told = {source.rank for source in sources if source.recorder is not None}
    silent = [s for s in sources if s.recorder is None and s.dump is not None and s.rank not in told]
    if len(known) != 1 or not silent:
        return
    for source in silent:
        source.recorder = min(known, key=str)
        source.__dict__.pop("complete", None)


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
        ops = complete_filtered(ops, filtered, described)
        ops = ops.select([pl.col(n).cast(t) for n, t in schema.OPS.items()])
    with_p2p = p2p_groups(ops, described)
    return {
        "ops": ops,
        "groups": _group_table(groups, with_p2p),
        "frontiers": frontier_table(used, facts, ops, groups, with_p2p),
    }


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
