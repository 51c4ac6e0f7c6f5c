"""The schedule of a training step with pipeline and data parallelism, from the operations of its workers.

The waits are those of the artifact of the OSDI '25 paper (github.com/ByteDance-Seed/StragglerAnalysis): computing
in the order of its start; four streams of sends and receives; a receive before the computing that needs it, and a send
behind the one that made it; parameters before the first forward of their chunk; gradients behind the last backward.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.features.whatif.step_graph import StepGraph
from rankscope.features.whatif.step_schedule import SCHEDULE, StepSchedule

FORWARD, BACKWARD = "forward-compute", "backward-compute"
PARAMETERS, GRADIENTS, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
EMBEDDING, LAYERNORM = "embedding-grads-all-reduce", "layernorm-grads-all-reduce"
CLIP, OPTIMIZER, COLLECTION = "optimizer-clip-main-grad", "optimizer", "gc"
SENDS = {
    "forward-send": ("forward-recv", 1), "forward-recv": ("forward-send", -1),
    "backward-send": ("backward-recv", -1), "backward-recv": ("backward-send", 1),
}  # fmt: skip
"""By kind of a send or receive the kind at its other end, and how many stages away that is."""
TRANSFERS = (PARAMETERS, GRADIENTS, SEPARATE, EMBEDDING, LAYERNORM, CLIP, *SENDS)
KINDS = (FORWARD, BACKWARD, OPTIMIZER, COLLECTION, *TRANSFERS)
CLOCK_NS = 10_000_000
"""A transfer that ends this much before its last member came tells of clocks that differ; it then takes no time."""
NEAR_NS = 50_000
"""Tolerance for sends and receives that were recorded and never launched, at the edges of a step."""
_WORKER = ["step", "replica", "stage"]


def pipeline_schedule(step_ops: pl.DataFrame) -> StepSchedule:
    """The schedule of the table `step_ops`. Raises CircleError if its operations cannot be in an order."""
    ops = step_ops.sort("step", "replica", "stage", "start_ns", "number", pl.col("kind").cast(pl.String))
    ops = ops.with_columns(
        kind=pl.col("kind").cast(pl.String), step=pl.col("step").rank("dense").cast(pl.Int64) - 1,
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
    ).with_row_index("op")  # fmt: skip
    ops = ops.with_columns(pl.col("op").cast(pl.Int64))
    computing = ops.filter(pl.col("kind").is_in([FORWARD, BACKWARD]))
    transfers = _paired(ops, computing)
    edges = [
        _chain(computing, _WORKER), *(edge for edge in _with_computing(computing, transfers)),
        _chain(ops.filter(pl.col("kind").is_in(list(SENDS))), [*_WORKER, "kind"]),
        _chain(ops.filter(pl.col("kind").is_in([PARAMETERS, GRADIENTS])), _WORKER),
        _first_backward(ops, computing), _parameters(ops, computing), *_last(ops, computing),
    ]  # fmt: skip
    waits = pl.concat([edge.select(pl.col("before").cast(pl.Int64), pl.col("after").cast(pl.Int64)) for edge in edges])
    waits = waits.drop_nulls().unique()
    ops = _with_meetings(ops, transfers)
    met = ops["meeting"].fill_null(-1).to_numpy()
    graph = StepGraph.of(waits["before"].to_numpy(), waits["after"].to_numpy(), met, ops["step"].to_numpy())
    measured = ops.group_by("step").agg(pl.col("end_ns").max() - pl.col("start_ns").min()).sort("step")
    return StepSchedule(_shaped(ops), graph, measured["end_ns"].to_numpy().astype(np.float64), named=True)


def _chain(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Each row waits for the one before it, of those with equal `by`."""
    return rows.select(before=pl.col("op").shift().over(by), after="op")


def _paired(ops: pl.DataFrame, computing: pl.DataFrame) -> pl.DataFrame:
    """Sends and receives with `turn`, the number of their computing on the worker, and `meeting` of both ends.

    Those before the first and behind the last computing, and at the ends of the model, were never launched.
    """
    edges = computing.group_by(*_WORKER, "kind").agg(
        pl.col("start_ns").max().alias("last_ns"), pl.col("end_ns").min().alias("first_ns"), pl.len().alias("turns")
    ).with_columns(way=pl.col("kind").str.split("-").list.first()).drop("kind")  # fmt: skip
    rows = ops.filter(pl.col("kind").is_in(list(SENDS))).with_columns(
        way=pl.col("kind").str.split("-").list.first(), receives=pl.col("kind").str.ends_with("recv")
    )
    rows = rows.join(edges, on=[*_WORKER, "way"], maintain_order="left").filter(
        pl.when("receives").then(pl.col("start_ns") <= pl.col("last_ns") + NEAR_NS)
        .otherwise(pl.col("end_ns") >= pl.col("first_ns") - NEAR_NS)
    )  # fmt: skip
    by = [*_WORKER, "kind"]
    late = (pl.col("receives") & (pl.len().over(by) + 1 == pl.col("turns"))).cast(pl.Int64)
    rows = rows.with_columns(turn=pl.int_range(pl.len(), dtype=pl.Int64).over(by) + late)
    turns = computing.with_columns(
        way=pl.col("kind").str.split("-").list.first(),
        turn=pl.int_range(pl.len(), dtype=pl.Int64).over(by),
    ).select(*_WORKER, "way", "turn", "model_chunk", computes="op")  # fmt: skip
    rows = rows.drop("model_chunk").join(turns, on=[*_WORKER, "way", "turn"], maintain_order="left")
    last = computing["model_chunk"].max()
    inward = ((pl.col("way") == "forward") & pl.col("receives")) | ((pl.col("way") == "backward") & ~pl.col("receives"))
    idle = pl.when(inward).then(pl.col("model_chunk") == 0).otherwise(pl.col("model_chunk") == last)
    stages = pl.max_horizontal(pl.lit(1), 1 + ops["stage"].max())  # type: ignore[operator]
    away = pl.col("kind").replace_strict({kind: by for kind, (_, by) in SENDS.items()}, return_dtype=pl.Int64)
    real = rows.filter(~idle.fill_null(False)).with_columns(
        place=pl.int_range(pl.len(), dtype=pl.Int64).over(by),
        from_stage=pl.when("receives")
        .then((pl.col("stage") + away) % stages)
        .otherwise(pl.col("stage").cast(pl.Int64)),
    )
    key = pl.struct("step", "replica", "way", "from_stage", "place").rank("dense").cast(pl.Int64) - 1
    return rows.join(real.select("op", meeting=key, route="from_stage"), on="op", how="left", maintain_order="left")


def _with_computing(computing: pl.DataFrame, transfers: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
    """A receive before its computing, and behind the computing before that; a send behind its own."""
    by = [*_WORKER, "kind"]
    before = computing.select(computes="op", last=pl.col("op").shift().over(by))
    told = transfers.join(before, on="computes", how="left", maintain_order="left")
    receives = told.filter("receives")
    return (
        receives.select(before="op", after="computes"), receives.select(before="last", after="op"),
        told.filter(~pl.col("receives")).select(before="computes", after="op"),
    )  # fmt: skip


def _first_backward(ops: pl.DataFrame, computing: pl.DataFrame) -> pl.DataFrame:
    """The first sends and receives of gradients wait for the second computing before the first backward."""
    before = pl.col("op").shift(2).over(_WORKER)
    second = computing.with_columns(second=before).filter(pl.col("kind") == BACKWARD).unique(
        _WORKER, keep="first", maintain_order=True
    )  # fmt: skip
    first = ops.filter(pl.col("kind").is_in(["backward-send", "backward-recv"])).unique(
        [*_WORKER, "kind"], keep="first", maintain_order=True
    )
    joined = first.join(second.select(*_WORKER, "second"), on=_WORKER)
    return joined.select(before="second", after="op")


def _parameters(ops: pl.DataFrame, computing: pl.DataFrame) -> pl.DataFrame:
    """The first forward of a chunk waits for the last gathering of its parameters."""
    by = [*_WORKER, "chunk"]
    gathers = ops.filter(pl.col("kind") == PARAMETERS).unique(by, keep="last", maintain_order=True)
    firsts = computing.filter(pl.col("kind") == FORWARD).unique(by, keep="first", maintain_order=True)
    return gathers.select(*by, before="op").join(firsts.select(*by, after="op"), on=by).select("before", "after")


def _last(ops: pl.DataFrame, computing: pl.DataFrame) -> tuple[pl.DataFrame, ...]:
    """The operations behind the last computing of a worker, one behind the other; overlapping gradients before it."""
    overlaps = (ops["kind"] == SEPARATE).any()
    tail = (COLLECTION, LAYERNORM, EMBEDDING, SEPARATE if overlaps else GRADIENTS, CLIP, OPTIMIZER)
    places = {kind: place for place, kind in enumerate(tail, 1)}
    ends = computing.sort("end_ns", maintain_order=True).unique(_WORKER, keep="last", maintain_order=True)
    rows = pl.concat([
        ends.select(*_WORKER, "op", "number", place=pl.lit(0, pl.Int64)),
        ops.filter(pl.col("kind").is_in(list(places)))
        .select(*_WORKER, "op", "number", place=pl.col("kind").replace_strict(places, return_dtype=pl.Int64)),
    ]).sort(*_WORKER, "place", "number")  # fmt: skip
    chain = _chain(rows, _WORKER)
    if not overlaps:
        return (chain,)
    by = [*_WORKER, "chunk"]
    sums = ops.filter(pl.col("kind") == GRADIENTS)
    backward = computing.filter(pl.col("kind") == BACKWARD).sort("end_ns", maintain_order=True)
    lasts = backward.unique(by, keep="last", maintain_order=True).select(*by, before="op")
    behind = sums.unique(by, keep="first", maintain_order=True).select(*by, after="op").join(lasts, on=by)
    norms = ops.filter(pl.col("kind") == LAYERNORM).select(*_WORKER, after="op")
    gathered = sums.unique(_WORKER, keep="last", maintain_order=True).select(*_WORKER, before="op")
    return chain, behind.select("before", "after"), gathered.join(norms, on=_WORKER).select("before", "after")


def _with_meetings(ops: pl.DataFrame, transfers: pl.DataFrame) -> pl.DataFrame:
    """`ops` with `meeting` (null for computing), `route` and `transfer_ns`."""
    kind = pl.col("kind")
    over_replicas = kind.is_in([PARAMETERS, GRADIENTS, SEPARATE])
    number, stage = pl.col("number").cast(pl.Int64), pl.col("stage").cast(pl.Int64)
    key = (
        pl.when(over_replicas).then(pl.struct(kind, "step", stage, pl.lit(-1, pl.Int64).alias("who"), number))
        .when(kind == EMBEDDING)
        .then(pl.struct(
            kind, "step", pl.lit(-1, pl.Int64).alias("stage"), pl.col("replica").cast(pl.Int64).alias("who"), number
        ))
        .when(kind == CLIP)
        .then(pl.struct(kind, "step", pl.lit(-1, pl.Int64).alias("stage"), pl.lit(-1, pl.Int64).alias("who"), number))
    )  # fmt: skip
    paired = transfers.select("op", "route", pair="meeting")
    pairs = 1 + int(paired["pair"].max() or 0)  # type: ignore[arg-type]
    table = ops.join(paired, on="op", how="left", maintain_order="left").with_columns(
        other=pl.when(over_replicas | kind.is_in([EMBEDDING, CLIP])).then(key.rank("dense").cast(pl.Int64) + pairs)
    )
    dense = pl.coalesce("pair", "other").rank("dense").cast(pl.Int64) - 1
    table = table.with_columns(meeting=dense)
    rest = pl.col("end_ns") - pl.col("start_ns").max().over("meeting")
    moved = pl.when(rest <= -CLOCK_NS).then(0).otherwise(rest)
    return table.with_columns(
        took_ns=pl.when(pl.col("meeting").is_null()).then("duration_ns").otherwise(moved).cast(pl.Float64)
    )


def _shaped(ops: pl.DataFrame) -> pl.DataFrame:
    """The columns of SCHEDULE; typical is the mean of computing, and the median of transfers, as in the paper."""
    transfer = pl.col("kind").is_in(list(TRANSFERS))
    typical = (
        pl.when(transfer).then(pl.col("took_ns").median().over("kind")).otherwise(pl.col("took_ns").mean().over("kind"))
    )
    shown = pl.when(pl.col("kind").is_in(list(SENDS))).then(
        pl.col("kind").str.split("-").list.first() + pl.lit("-pp-comm")
    ).otherwise("kind")  # fmt: skip
    table = ops.with_columns(
        typical_ns=typical, transfer=transfer, slot=pl.col("kind").rank("dense").cast(pl.Int64), what=shown,
        micro=pl.when(pl.col("micro") >= 0).then(pl.col("micro")),
        first_ns=pl.when(pl.col("kind") == FORWARD).then("took_ns").when(pl.col("kind") == BACKWARD).then(0),
        second_ns=pl.when(pl.col("kind") == BACKWARD).then("took_ns").when(pl.col("kind") == FORWARD).then(0),
        route=pl.when(transfer).then(pl.struct("replica", pl.coalesce("route", "stage")).rank("dense").cast(pl.Int64)),
    )  # fmt: skip
    return table.select([pl.col(name).cast(kind) for name, kind in SCHEDULE.items()])
