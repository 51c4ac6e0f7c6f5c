"""Operations with a `Comms Id`: a hash of group, number and kind that is equal on all members.

It joins operations that names cannot: if no trace lists all members of a group, those with common ids are one group,
and two communicators with one name but no common id are two. Written since torch 2.12 (pytorch#177148), beside `Seq`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from rankscope.schema import Group

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
