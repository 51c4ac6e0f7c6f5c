"""Coalesced groups: operations that were launched together, and the closer that carries their state.

The recorder writes the inner operations without events, so that they stay "scheduled" for ever; the closer comes last
and has no sizes. Both have the same sequence numbers. The closer of sends and receives says of itself that it is no
point-to-point operation, and its number in pg_status and in the log of the watchdog is that of one (torch 2.11).
"""

from __future__ import annotations

import polars as pl

_KEY = ("file", "group", "seq", "p2p_seq")
_CARRIED = ("state", "retired", "started_ns", "completed_ns")


def resolve(ops: pl.DataFrame) -> pl.DataFrame:
    """Marks inner operations and closers, gives the inner ones what their closer says, and it what they are."""
    ops = ops.with_row_index("row")
    closing = pl.col("names_closer") & (pl.col("in_sizes") == "[]") & (pl.col("out_sizes") == "[]")
    closers = ops.filter(closing)
    if closers.is_empty():
        return ops.drop("row")
    table = closers.select(*_KEY, pl.col("row").alias("closer"), *(pl.col(c).alias(f"closer_{c}") for c in _CARRIED))
    joined = ops.join(table.unique(_KEY, keep="first"), on=_KEY, how="left", nulls_equal=True, maintain_order="left")
    inner = (pl.col("row") < pl.col("closer")).fill_null(False)
    is_closer = pl.col("row").is_in(closers["row"].implode())
    kind = pl.when(is_closer).then(pl.lit("closer")).when(inner).then(pl.lit("inner")).otherwise(pl.lit("none"))
    carried = [pl.when(inner).then(pl.col(f"closer_{c}")).otherwise(pl.col(c)).alias(c) for c in _CARRIED]
    is_p2p = pl.col("is_p2p") | pl.col("row").is_in(_of_pairs(closers, joined.filter(inner)).implode())
    return (
        joined.with_columns(kind.alias("coalesced"), is_p2p.alias("is_p2p"), *carried).select(ops.columns).drop("row")
    )


def _of_pairs(closers: pl.DataFrame, inner: pl.DataFrame) -> pl.Series:
    """Rows of the closers of sends and receives.

    One whose operations the ring has overwritten is of the sort of all others of its group and name.
    """
    sorts = inner.group_by("closer").agg(pl.col("is_p2p").any().alias("pairs"))
    told = closers.select("row", "group", "op").join(sorts, left_on="row", right_on="closer", how="left")
    alike = pl.col("pairs").all().over("group", "op") & pl.col("pairs").is_not_null().any().over("group", "op")
    return told.filter(pl.coalesce("pairs", alike))["row"]


def complete_filtered(
    ops: pl.DataFrame, reached: dict[int, dict[int, int]], descriptions: pl.DataFrame
) -> pl.DataFrame:
    """Completes inner operations whose closer was left out of a dump of only active operations: it had completed.

    That is known of collectives that share a number, and of sends and receives on groups (or on others with their
    description) that are seen to launch them together. `reached` has the files of such dumps, each with the last
    operation that `pg_status` calls completed, by group.
    """
    if not reached:
        return ops
    filtered_files = sorted(reached)
    launched_together = pl.col("group").is_in(_batched_groups(ops, descriptions, reached))
    shares_its_number = pl.len().over("file", "group", "is_p2p", "seq") > 1
    orphan = (
        pl.col("file").is_in(filtered_files)
        & pl.when("is_p2p").then(launched_together).otherwise(shares_its_number)
        & (pl.col("coalesced") == "none")
        & (pl.col("state") != "completed")
    )
    return ops.with_columns(
        pl.when(orphan).then(pl.lit("completed")).otherwise(pl.col("state").cast(pl.String)).alias("state"),
        pl.when(orphan).then(pl.lit("inner")).otherwise(pl.col("coalesced").cast(pl.String)).alias("coalesced"),
    )


def _batched_groups(ops: pl.DataFrame, descriptions: pl.DataFrame, reached: dict[int, dict[int, int]]) -> list[int]:
    """Groups whose sends and receives are launched together, here or in a group of the same description."""
    p2p = ops.filter(pl.col("is_p2p"))
    sharing = p2p.group_by("file", "group", "p2p_seq").len().filter(pl.col("len") > 1)["group"]
    batched = p2p.filter(pl.col("coalesced") != "none")["group"]
    seen = set(sharing.to_list()) | set(batched.to_list()) | _left_behind(ops, reached)
    roles = set(descriptions.filter(pl.col("group").is_in(list(seen)))["description"].to_list()) - {"", "undefined"}
    alike = descriptions.filter(pl.col("description").is_in(list(roles)))["group"].to_list()
    return sorted(seen | set(alike))


def _left_behind(ops: pl.DataFrame, reached: dict[int, dict[int, int]]) -> set[int]:
    """Groups of which operations are kept that `pg_status` calls completed: what completed were their closers.

    Only where sends and receives alone are counted, for `pg_status` has one place for both counters. A single one may
    have completed at the moment of the dump.
    """
    table = pl.DataFrame(
        [(file, group, last) for file, groups in reached.items() for group, last in groups.items()],
        schema={"file": ops.schema["file"], "group": ops.schema["group"], "completed": pl.Int64}, orient="row",
    )  # fmt: skip
    alone = (pl.col("is_p2p") & (pl.col("seq").fill_null(0) == 0)).all().over("group")
    kept = ops.filter(alone & (pl.col("state") != "completed")).join(table, on=["file", "group"])
    told = (
        kept.filter(pl.col("p2p_seq") <= pl.col("completed"))
        .group_by("file", "group")
        .agg(last=pl.col("p2p_seq").max(), completed=pl.col("completed").first(), count=pl.len())
    )
    return set(told.filter((pl.col("last") == pl.col("completed")) & (pl.col("count") > 1))["group"].to_list())
