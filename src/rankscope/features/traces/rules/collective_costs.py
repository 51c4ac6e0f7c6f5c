"""Collectives by type and size over ranks: what they take, how fast they are, who waits in them, who sends how much.

Bandwidths are those of nccl-tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): the size S of
an operation is the larger of what a rank gives and what it gets, `algbw` is S / time, and `busbw` is what the slowest
link carries, `algbw` times a factor of the n members:

    all_reduce                                               2 (n - 1) / n
    all_gather, reduce_scatter, all_to_all, gather, scatter    (n - 1) / n
    broadcast, reduce, send and receive                        1

The time is the pure latency: the least duration over the ranks. Whoever comes last to an operation that needs all
members waits for nobody in it. Of an all_to_all whose ranks hold different sizes, S is the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson
import polars as pl

from rankscope.analysis.model import FeaturePart
from rankscope.analysis.signatures import element_count
from rankscope.features.traces.rules.model import Columns
from rankscope.schema import Group

ORIGINS = ("traces", "dumps")
"""Sources of durations: kernels in traces, or the recorder's events around them (TORCH_NCCL_ENABLE_TIMING)."""

SIZES: Columns = {
    "group": pl.UInt32,  # row of `Dataset.groups`
    "op": pl.Categorical,
    "bytes": pl.Int64,  # as nccl-tests counts the size of an operation; null if unknown
    "dtype": pl.String,  # as the recorder calls it; null if unknown
    "members": pl.UInt32,  # of the group
    "ranks": pl.UInt32,  # that were seen in it
    "count": pl.UInt32,
    "median_ns": pl.Int64,  # least duration over the ranks; null where a member may be done before another has come
    "algbw": pl.Float64,  # GB/s
    "busbw": pl.Float64,  # GB/s
    "low": pl.Float64,  # 10 % and 90 % of busbw
    "high": pl.Float64,
    "skew_ns": pl.Int64,  # from the first start to the last, median
    "most_skew_ns": pl.Int64,
    "waited_ns": pl.Int64,  # of all ranks for the last, in all of them; null as median_ns
}
"""One row for each group, operation, size and type; those that cost most, over all ranks, first."""

RANK_WAITS: Columns = {
    "rank": pl.Int32,
    "count": pl.UInt32,  # matched operations that need all members
    "total_ns": pl.Int64,  # in them
    "waited_ns": pl.Int64,  # of that, before the last member came
    "last": pl.UInt32,  # how often it came last
}
"""One row for each rank."""

PAIRS: Columns = {
    "group": pl.UInt32,
    "rank": pl.Int32,
    "peer": pl.Int32,
    "count": pl.UInt32,  # calls of all_to_all with recorded splits
    "bytes": pl.Int64,  # from rank to peer
}
"""One row for each group and pair of ranks, by group, rank, peer."""

LOADS: Columns = {
    "group": pl.UInt32,
    "direction": pl.String,  # one of DIRECTIONS
    "count": pl.UInt32,  # calls of all_to_all whose sizes are known on all seen members
    "mean_bytes": pl.Int64,  # of a rank and a call
    "imbalance": pl.Float64,  # bytes of the busiest rank over the mean of the ranks, median over calls
    "most": pl.Float64,  # the largest of these
    "rank": pl.Int32,  # the rank that is most often the busiest; null where loads are even
    "times": pl.UInt32,  # calls in which it is
}
"""One row for each group and direction: how uneven the loads of its all_to_alls are."""
DIRECTIONS = ("sent", "received")


def _empty(columns: Columns) -> pl.DataFrame:
    return pl.DataFrame(schema=columns)


@dataclass(frozen=True)
class CollectiveCosts:
    """Costs of the collectives of a job."""

    origin: str = ORIGINS[0]
    sizes: pl.DataFrame = field(default_factory=lambda: _empty(SIZES))
    ranks: pl.DataFrame = field(default_factory=lambda: _empty(RANK_WAITS))
    pairs: pl.DataFrame = field(default_factory=lambda: _empty(PAIRS))
    loads: pl.DataFrame = field(default_factory=lambda: _empty(LOADS))


COLLECTIVE_RESULTS = FeaturePart[CollectiveCosts]("collectives")
"""Costs of collectives in an analysis."""


WIDTHS = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "char": 1, "byte": 1, "bool": 1,
}  # fmt: skip
"""Bytes of an element; 1 for 8-bit floats, whose names vary."""
_SHARES = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Operations in which each rank keeps its own part of n."""
ALL_TO_ALL = "all_to_all"
_MOST_BYTES = 1 << 53


def sizes_of(calls: pl.DataFrame) -> pl.DataFrame:
    """row, bytes, sent, received, dtype of rows of `ops` or `traced`.

    `sent` and `received` are bytes of input and output, `bytes` the larger of both; all three are null if sizes or the
    type are unknown.
    """
    names = ["in_sizes", "out_sizes", "in_dtypes"]
    rows = calls.with_row_index("row").select("row", *names)
    distinct = rows.select(names).unique(maintain_order=True)
    known = [_bytes(*row) for row in distinct.with_columns(pl.col("in_dtypes").cast(pl.String)).iter_rows()]
    schema = {"sent": pl.Int64, "received": pl.Int64, "dtype": pl.String}
    distinct = distinct.hstack(pl.DataFrame(known, schema=schema, orient="row"))
    return rows.join(distinct, on=names, how="left", nulls_equal=True, maintain_order="left").select(
        "row", "sent", "received", "dtype", bytes=pl.max_horizontal("sent", "received")
    )


def _bytes(
    in_sizes: str | None, out_sizes: str | None, dtypes: str | None
) -> tuple[int | None, int | None, str | None]:
    name, width = _dtype(dtypes)
    counts = element_count(in_sizes), element_count(out_sizes)
    sent, received = (None if count is None or width is None else min(count * width, _MOST_BYTES) for count in counts)
    return sent, received, name


def _dtype(dtypes: str | None) -> tuple[str | None, int | None]:
    """The name of the first type, and its bytes."""
    try:
        names = orjson.loads(dtypes or "[]")
    except orjson.JSONDecodeError:
        return None, None
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return None, None
    name = names[0]
    return name, 1 if name.lower().startswith("float8") else WIDTHS.get(name.lower())


def with_speed(instances: pl.DataFrame) -> pl.DataFrame:
    """Operations with `algbw` and `busbw` in GB/s, as nccl-tests counts them: null where size or time is unknown.

    `instances`: key, members, bytes, took_ns.
    """
    n, key = pl.col("members").cast(pl.Float64), pl.col("key").cast(pl.String)
    factor = (
        pl.when(key == "all_reduce").then(2 * (n - 1) / n).when(key.is_in(_SHARES)).then((n - 1) / n).otherwise(1.0)
    )
    algbw = pl.when((pl.col("bytes") > 0) & (pl.col("took_ns") > 0)).then(pl.col("bytes") / pl.col("took_ns"))
    return instances.with_columns(algbw=algbw, busbw=algbw * factor)


def size_table(instances: pl.DataFrame) -> pl.DataFrame:
    """SIZES of operations: group, op, key, dtype, members, seen, bytes, took_ns, skew_ns, waited_ns."""
    table = with_speed(instances).group_by("group", "op", "bytes", "dtype").agg(
        pl.col("members").max(), ranks=pl.col("seen").max(), count=pl.len(), median_ns=pl.col("took_ns").median(),
        algbw=pl.col("algbw").median(), low=pl.col("busbw").quantile(0.1), high=pl.col("busbw").quantile(0.9),
        busbw=pl.col("busbw").median(), most_skew_ns=pl.col("skew_ns").max(), skew_ns=pl.col("skew_ns").median(),
        # a sum of nothing is 0
        waited_ns=pl.when(pl.col("waited_ns").is_not_null().any()).then(pl.col("waited_ns").sum()),
        cost=(pl.col("took_ns").fill_null(0) * pl.col("seen") + pl.col("waited_ns").fill_null(0)).sum(),
    ).sort([-pl.col("cost"), pl.col("group"), pl.col("op").cast(pl.String), "bytes", "dtype"])  # fmt: skip
    return shaped(table, SIZES)


def rank_table(members: pl.DataFrame) -> pl.DataFrame:
    """RANK_WAITS of members of operations that need all of them: rank, took_ns, waited_ns, is_last."""
    table = members.group_by("rank").agg(
        count=pl.len(), total_ns=pl.col("took_ns").sum(), waited_ns=pl.col("waited_ns").sum(),
        last=pl.col("is_last").sum(),
    )  # fmt: skip
    return shaped(table, RANK_WAITS).sort("rank")


def load_table(members: pl.DataFrame) -> pl.DataFrame:
    """LOADS of members of all_to_alls: meeting, group, rank, sent, received; whole calls only."""
    parts = []
    for direction in DIRECTIONS:
        load = pl.col(direction)
        # all members, or the busiest may be another one
        whole = load.is_not_null().all().over("meeting")
        calls = members.filter(whole).group_by("meeting", "group").agg(
            mean=load.mean(), most=load.max(), uneven=load.max() > load.min(),
            rank=pl.col("rank").sort_by([-load, pl.col("rank")]).first(),
        ).filter(pl.col("mean") > 0)  # fmt: skip
        busiest = pl.col("rank").filter("uneven")
        parts.append(
            calls.group_by("group").agg(
                direction=pl.lit(direction), count=pl.len(), mean_bytes=pl.col("mean").mean().round(),
                imbalance=(pl.col("most") / pl.col("mean")).median(), most=(pl.col("most") / pl.col("mean")).max(),
                rank=busiest.mode().min(), times=(busiest == busiest.mode().min()).sum(),
            )
        )  # fmt: skip
    return shaped(pl.concat(parts, how="vertical_relaxed"), LOADS).sort("group", "direction", descending=[False, True])


def pair_table(calls: pl.DataFrame, groups: Sequence[Group]) -> pl.DataFrame:
    """PAIRS of calls of all_to_all: group, rank, sent, received, in_splits, out_splits.

    The parts of a member that was not seen are those that the others got from it.
    """
    places = _places(groups, calls["group"].unique().to_list())
    given = _parts(calls, "in_splits", "sent", places).rename({"at": "peer"})
    seen = calls.filter(pl.col("in_splits").is_not_null()).select("group", "rank").unique()
    got = _parts(calls, "out_splits", "received", places).rename({"rank": "peer", "at": "rank"})
    unseen = got.join(seen, on=["group", "rank"], how="anti")
    columns = ("group", "rank", "peer", "count", "bytes")
    table = pl.concat([given.select(columns), unseen.select(columns)]).group_by("group", "rank", "peer").agg(
        pl.col("count", "bytes").sum()
    )  # fmt: skip
    return shaped(table, PAIRS).sort("group", "rank", "peer")


def _places(groups: Sequence[Group], wanted: Iterable[int]) -> pl.DataFrame:
    """The members of groups by their place in it: group, place, at, members."""
    members = {group: groups[group].ranks for group in wanted}
    rows = [(group, place, rank, len(ranks)) for group, ranks in members.items() for place, rank in enumerate(ranks)]
    schema = {"group": pl.UInt32, "place": pl.Int64, "at": pl.Int32, "members": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _parts(calls: pl.DataFrame, splits: str, whole: str, places: pl.DataFrame) -> pl.DataFrame:
    """group, rank, at, count, bytes: the parts of what a rank gives or gets, by the member at the other end.

    Splits count rows or elements, so that bytes are in their ratio.
    """
    known = calls.filter(pl.col(splits).is_not_null() & pl.col(whole).is_not_null())
    distinct = known.group_by("group", "rank", splits, whole).len("count")
    numbers = distinct.with_columns(
        part=pl.col(splits).str.json_decode(pl.List(pl.Int64)), count=pl.col("count").cast(pl.Int64)
    )
    numbers = numbers.with_columns(
        place=pl.int_ranges(pl.col("part").list.len()), total=pl.col("part").list.sum(), size=pl.col("part").list.len()
    )
    parts = numbers.explode("part", "place").join(places, on=["group", "place"])
    share = pl.col("part") / pl.col("total")
    return (
        parts.filter((pl.col("size") == pl.col("members")) & (pl.col("total") > 0))
        .with_columns(bytes=(share * pl.col(whole)).round().cast(pl.Int64) * pl.col("count"))
        .group_by("group", "rank", "at").agg(pl.col("count", "bytes").sum())
    )  # fmt: skip


def shaped(table: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """The columns of a table, with their types."""
    return table.select([pl.col(name).cast(kind) for name, kind in columns.items()])
