"""What ran on devices, how it was launched, and why streams were idle: the tables of Holistic Trace Analysis.

Definitions are those of its idle time breakdown, kernel breakdown, queue length and launch statistics
(https://hta.readthedocs.io/en/latest/), computed over all streams at once.
"""

from __future__ import annotations

import polars as pl

from rankscope.analysis.traces.model import IDLE, IDLE_KINDS, KERNELS, LAUNCHES, QUEUES, Columns

NEXT_NS = 30_000
"""A gap between two kernels that is shorter is what launching the second takes: HTA's default, as it works out."""
QUEUE_FULL = 1024
"""So many launched operations make the next launch wait."""
LATE_NS = 100_000
"""A kernel that starts so much after its launch is an outlier."""


def kernels(ran: pl.DataFrame) -> pl.DataFrame:
    """One row for each kernel of a file, with KERNELS but the rank; `ran` is what ran on its devices."""
    length = pl.col("end_ns") - pl.col("start_ns")
    by = [-pl.col("total_ns"), pl.col("kind"), pl.col("name").cast(pl.String)]
    table = ran.group_by("file", pl.col("what").cast(pl.String).alias("kind"), "name").agg(
        count=pl.len(), total_ns=length.sum(), mean_ns=length.mean().cast(pl.Int64), max_ns=length.max(),
        min_ns=length.min(),
    ).with_columns(share=pl.col("total_ns") / pl.col("total_ns").sum().over("kind"))  # fmt: skip
    return _shaped(table, KERNELS).sort(by)


def idle(launched: pl.DataFrame) -> pl.DataFrame:
    """One row for each stream of a file and kind of idle time, with IDLE but the rank; see `Spans.launched`.

    Host wait: the next kernel was launched only after the one before it had ended. Kernel wait: the gap is what
    launching takes. Other: neither, as where a stream waits for another.
    """
    before = pl.col("end_ns").shift().over("track")
    gap = (pl.col("start_ns") - before).alias("idle_ns")
    late = pl.col("call_ns") > before
    kind = (
        pl.when(late.fill_null(False)).then(pl.lit(IDLE_KINDS[0]))
        .when(pl.col("start_ns") - before < NEXT_NS).then(pl.lit(IDLE_KINDS[1])).otherwise(pl.lit(IDLE_KINDS[2]))
    )  # fmt: skip
    table = (
        launched.select("file", "track", "lane", gap, kind.alias("kind")).drop_nulls("idle_ns")
        .group_by("file", "track", "lane", "kind").agg(pl.col("idle_ns").clip(0).sum())
        .with_columns(share=pl.col("idle_ns") / pl.col("idle_ns").sum().over("track"))
    )  # fmt: skip
    return _shaped(table, IDLE).sort("track", "kind")


def queues(launched: pl.DataFrame) -> pl.DataFrame:
    """One row for each stream of a file, with QUEUES but the rank: launched and not started, whenever that changes."""
    ran = launched.filter(pl.col("call_ns").is_not_null())
    changes = pl.concat([
        ran.select("file", "track", "lane", at="call_ns", by=pl.lit(1)),
        ran.select("file", "track", "lane", at="start_ns", by=pl.lit(-1)),
    ]).sort("track", "at", maintain_order=True)  # fmt: skip
    waits = changes.with_columns(
        length=pl.col("by").cum_sum().over("track"), lasts=pl.col("at").shift(-1).over("track") - pl.col("at")
    )
    full = pl.col("lasts").filter(pl.col("length") >= QUEUE_FULL).sum()
    table = waits.group_by("file", "lane").agg(
        mean=pl.col("length").mean(), median=pl.col("length").median(), max=pl.col("length").max(), full_ns=full
    )
    return _shaped(table, QUEUES).sort("lane")


def launches(launched: pl.DataFrame) -> pl.DataFrame:
    """A row for a file, with LAUNCHES but the rank; a kernel that starts while its launch still runs has no delay."""
    delay = (pl.col("start_ns") - pl.col("called_ns")).clip(0)
    call, kernel = pl.col("called_ns") - pl.col("call_ns"), pl.col("end_ns") - pl.col("start_ns")
    table = launched.filter(pl.col("call_ns").is_not_null()).group_by("file").agg(
        launches=pl.len(), delay_ns=delay.median().cast(pl.Int64), delay_p99_ns=delay.quantile(0.99).cast(pl.Int64),
        runtime_ns=call.median().cast(pl.Int64), short=(kernel < call).sum(), late=(delay > LATE_NS).sum(),
    )  # fmt: skip
    return _shaped(table, LAUNCHES)


def _shaped(table: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    return table.select([pl.col(name).cast(kind) for name, kind in columns.items() if name != "rank"])
