"""The schedule of matched collectives, sends and receives, with the work of each rank between them.

Of each rank only its own clock counts: a piece of work lasts from the last event of the rank, a call that it began or
one that ended, to its next call. A transfer takes as long as for the member that waited least in it, its last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from rankscope.features.whatif.step_graph import StepGraph
from rankscope.features.whatif.step_schedule import SCHEDULE, StepSchedule

CALLS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "meeting": pl.Int64,  # the same on all members of one operation
    "what": pl.String,
    "alike": pl.String,  # transfers of one text should take equally long
    "route": pl.Int64,  # the ranks that take part
    "peer": pl.Int64,  # at the other end of a send or receive that leads from stage to stage; null else
    "blocks": pl.Boolean,  # no member can end before the last has come
    "step": pl.Int64,  # null outside of the steps
    "begin_ns": pl.Int64,  # of the first step of the rank, on its own clock
    "arrived_ns": pl.Int64,
    "ended_ns": pl.Int64,
}
"""One row for each member of each operation."""
FEWEST_CALLS = 4
"""Fewest operations of a job that can be simulated."""


def matched_schedule(calls: pl.DataFrame, *, steps_known: bool) -> StepSchedule | None:
    """The schedule of CALLS, None if they are too few, or of one rank.

    Raises CircleError if ranks did not come to them in one order.
    """
    calls = calls.filter(pl.col("ended_ns") >= pl.col("arrived_ns"))
    if steps_known:
        calls = calls.drop_nulls("step")
    if calls["meeting"].n_unique() < FEWEST_CALLS or calls["rank"].n_unique() < 2:
        return None
    calls = calls.sort("rank", "arrived_ns", "ended_ns").with_row_index("call").with_columns(
        pl.col("call").cast(pl.Int64), last_ns=pl.col("arrived_ns").max().over("meeting"),
        lasted_ns=pl.col("ended_ns") - pl.col("arrived_ns"),
    )  # fmt: skip
    # a small message is sent before anybody receives it
    meets = pl.col("blocks") | (pl.col("ended_ns") >= pl.col("last_ns"))
    calls = calls.with_columns(
        meets=meets, moved_ns=pl.when(meets).then(pl.col("lasted_ns").min().over("meeting")).otherwise("lasted_ns")
    )
    calls = _with_work(_with_stages(_with_slots(calls)))
    count = calls.height
    call, ended, before = (calls[name].to_numpy() for name in ("call", "behind", "before"))
    # node 2k is the work before call k, node 2k + 1 its transfer
    work, transfer = 2 * call, 2 * call + 1
    behind, follows = calls["behind"].is_not_null().to_numpy(), calls["before"].is_not_null().to_numpy()
    sources = [work, 2 * ended[behind].astype(np.int64) + 1, 2 * before[follows].astype(np.int64)]
    targets = [transfer, work[behind], work[follows]]
    meetings = np.full(2 * count, -1, np.int64)
    dense = (calls["meeting"].rank("dense").cast(pl.Int64) - 1).to_numpy()
    meetings[transfer] = np.where(calls["meets"].to_numpy(), dense, -1)
    graph = StepGraph.of(np.concatenate(sources), np.concatenate(targets), meetings, np.zeros(2 * count, np.int64))
    ranks = calls.group_by("rank").agg(
        pl.col("ended_ns").max() - pl.min_horizontal(pl.col("arrived_ns").min(), pl.col("begin_ns").min())
    )
    measured = np.array([float(ranks["ended_ns"].max())])  # type: ignore[arg-type]
    repeats = calls["step"].n_unique() if steps_known else 1
    return StepSchedule(_shaped(calls, steps_known), graph, measured, repeats=repeats)


def _with_slots(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `slot`: the same call in each step and on each rank, in the order of the step."""
    by = ["rank", "step"]
    turn = pl.int_range(pl.len(), dtype=pl.Int64)
    key = pl.struct("alike", pl.col("peer").is_not_null().alias("leads"), turn.over([*by, "alike"]).alias("turn"))
    calls = calls.with_columns(place=turn.over(by), key=key.rank("dense"))
    order = calls.group_by("key").agg(pl.col("place").mean()).sort("place", "key").with_row_index("slot", 1)
    return calls.join(order.select("key", pl.col("slot").cast(pl.Int64)), on="key", maintain_order="left")


def _with_stages(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `stage` and `replica`: ranks that send to each other are the stages of one replica, by rank."""
    lead = {int(rank): int(rank) for rank in calls["rank"].unique().to_list()}

    def root(rank: int) -> int:
        while lead[rank] != rank:
            lead[rank] = rank = lead[lead[rank]]
        return rank

    pairs = calls.select("rank", "peer").drop_nulls().unique().sort("rank", "peer")
    for one, other in pairs.iter_rows():
        if other in lead:
            first, second = sorted((root(one), root(other)))
            lead[second] = first
    ranks = sorted(lead)
    table = pl.DataFrame({"rank": ranks, "replica": [root(rank) for rank in ranks]}).with_columns(
        stage=pl.int_range(pl.len(), dtype=pl.Int64).over("replica")
    )
    return calls.join(table, on="rank", maintain_order="left")


def _with_work(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `work_ns` before each, which follows the end of the call `behind`, or the begin of `before`."""
    ends = calls.sort("ended_ns").select("rank", "ended_ns", ended="call", since="ended_ns")
    joined = calls.sort("arrived_ns").join_asof(
        ends, left_on="arrived_ns", right_on="ended_ns", by="rank", strategy="backward", check_sortedness=False
    ).sort("call")  # fmt: skip
    earlier = pl.col("arrived_ns").shift().over("rank")
    last = pl.col("call").shift().over("rank")
    # a call without length ends when it begins: it must not wait for itself
    ended = (pl.col("since") >= earlier).fill_null(False) & (pl.col("ended") < pl.col("call"))
    first = pl.min_horizontal(pl.col("begin_ns"), "arrived_ns")
    return joined.with_columns(
        behind=pl.when(ended).then("ended"), before=pl.when(~ended).then(last),
        work_ns=pl.col("arrived_ns") - pl.when(ended).then("since").otherwise(pl.coalesce(earlier, first)),
    )  # fmt: skip


def _shaped(calls: pl.DataFrame, steps_known: bool) -> pl.DataFrame:
    """SCHEDULE: the work before each call, then its transfer."""
    step = pl.col("step").fill_null(0)
    common: Sequence[pl.Expr | str] = (step.alias("step"), "rank", "stage", "replica", "slot")
    null = pl.lit(None, pl.Int64)
    work = calls.select(
        *common, order=2 * pl.col("call"), what=pl.lit("work"), transfer=pl.lit(False), took_ns="work_ns",
        route=null, micro=pl.lit(0) if steps_known else null, chunk=null,
        typical_ns=pl.col("work_ns").median().over("stage", "slot"),
    )  # fmt: skip
    moved = calls.select(
        *common, order=2 * pl.col("call") + 1, what="what", transfer=pl.lit(True), took_ns="moved_ns",
        route="route", micro=null, chunk=null, typical_ns=pl.col("moved_ns").median().over("alike"),
    )  # fmt: skip
    both = pl.concat(
        [table.select("order", *(pl.col(n).cast(k) for n, k in SCHEDULE.items())) for table in (work, moved)]
    )
    return both.sort("order").drop("order")
