"""Costs of collectives by type and size, in reports for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import polars as pl
from msgspec import UNSET, UnsetType

from rankscope.analysis.model import Analysis
from rankscope.features.traces.rules.collective_costs import (
    COLLECTIVE_RESULTS,
    DIRECTIONS,
    LOADS,
    ORIGINS,
    PAIRS,
    RANK_WAITS,
    SIZES,
    CollectiveCosts,
)
from rankscope.features.traces.rules.trace_story import group_label
from rankscope.features.traces.trace_json import row_schema, table_rows
from rankscope.report.blocks import Block, Bullets, Grid, Section
from rankscope.report.json import Json, ReportPart, one_of
from rankscope.schema import Dataset
from rankscope.text.wording import byte_count, digits, duration, plural

MOST_SIZES, MOST_LOADS, MOST_PAIRS = 6, 3, 3
"""Most rows and lines for people."""
LARGEST_MAP = 8
"""Most members of a group whose pairs are drawn as a map."""
ALIKE_SIZES = 3
"""Most sizes of one operation with rows of their own: of more, those between two powers of two share a row."""
LEAST_WAIT = 0.05
"""Smallest share of its time in collectives for which a rank waits, of which people are told."""
UNEVEN = 1.1
"""Smallest imbalance of loads that people are told of."""
HEAD = ("operation", "size", "of", "times", "latency", "busbw", "skew", "waited", "80 % in", "type")
_NARROW = 8
UNKNOWN = "-"
Cells = tuple[str, ...]


def size_rows(dataset: Dataset, costs: CollectiveCosts) -> pl.DataFrame:
    """SIZES with `of`, the label of the group: groups of one kind and sizes alike share a row, the costliest first.

    `alike` counts the sizes of a row, of which `bytes` is the mean; times and speeds are medians.
    """
    groups = costs.sizes["group"].unique().to_list()
    labels = {group: group_label(dataset.group_list, group, dataset.world_size) for group in groups}
    kind, size, count = ["of", "op", "dtype"], pl.col("bytes"), pl.col("count").cast(pl.Int64)
    many = (size.n_unique().over(kind) > ALIKE_SIZES) & (size > 0)
    # of sizes that are told apart each is a class of its own
    size_class = pl.when(many).then(size.log(2).floor().cast(pl.Int64)).otherwise(-1 - size)
    ranks = pl.col("ranks").cast(pl.Int64)
    rows = costs.sizes.with_columns(
        pl.col("op").cast(pl.String),
        of=pl.col("group").replace_strict(labels, return_dtype=pl.String),
        cost=pl.col("median_ns").fill_null(0) * count * ranks + pl.col("waited_ns").fill_null(0),
    )
    table = rows.group_by(*kind, size_class.alias("class")).agg(
        pl.col("count", "cost").sum(), pl.col("members", "high", "most_skew_ns").max(), pl.col("ranks", "low").min(),
        pl.col("median_ns", "algbw", "busbw", "skew_ns").median(), groups=pl.col("group").unique().sort(),
        waited_ns=pl.when(pl.col("waited_ns").is_not_null().any()).then(pl.col("waited_ns").sum()),
        alike=size.n_unique(), known=size.count() > 0,
        bytes=((size * count).sum() / count.sum()).round().cast(pl.Int64),
    )  # fmt: skip
    times = pl.col("median_ns", "skew_ns").round().cast(pl.Int64)
    sizes = pl.when("known").then("bytes").alias("bytes")
    return table.with_columns(times, sizes).sort(-pl.col("cost"), "op", "of", "bytes", "dtype").drop("class", "known")


def size_cells(row: dict[str, Any]) -> Cells:
    """A row of `size_rows` as texts, in the order of HEAD."""
    return (
        row["op"], size_text(row), group_text(row), f"{row['count']:,}", duration(row["median_ns"]),
        speed_text(row["busbw"]), duration(row["skew_ns"]), duration(row["waited_ns"]),
        speed_text(row["low"], row["high"]), row["dtype"] or UNKNOWN,
    )  # fmt: skip


def size_text(row: dict[str, Any]) -> str:
    """The size of a row of `size_rows`; of several sizes the mean."""
    return UNKNOWN if row["bytes"] is None else f"{'~' if row['alike'] > 1 else ''}{byte_count(row['bytes'])}"


def group_text(row: dict[str, Any]) -> str:
    """The group of a row of `size_rows`, with the number of ranks that were seen if that is a part."""
    return row["of"] if row["ranks"] == row["members"] else f"{row['of']} ({row['ranks']} of {row['members']})"


def speed_text(*values: float | None) -> str:
    """A speed in GB/s, or a range of two, with three digits in a fitting unit; UNKNOWN without one."""
    known = [value for value in values if value is not None]
    if not known:
        return UNKNOWN
    scale, unit = next((s, u) for s, u in _UNITS if max(known) * s >= 0.1 or u == _UNITS[-1][1])
    numbers = (value * scale for value in known)
    return f"{'-'.join(f'{n:.3g}' if n < 999.5 else f'{n:.0f}' for n in numbers)} {unit}"


_UNITS = ((1.0, "GB/s"), (1e3, "MB/s"), (1e6, "kB/s"))


def section(dataset: Dataset, analysis: Analysis) -> Iterator[Section]:
    """Costs by type and size, waits by rank, and uneven loads.

    None without matched operations, and none beside a job that failed or hangs whose dumps have times as well.
    """
    costs = COLLECTIVE_RESULTS.find(analysis)
    if costs is None or costs.sizes.is_empty() or (costs.origin == ORIGINS[1] and analysis.is_critical):
        return
    rows = size_rows(dataset, costs)
    left = rows.height - MOST_SIZES
    more = f"and {plural(left, 'more row')}; the JSON report has all sizes" if left > 0 else ""
    cells = [size_cells(row) for row in rows.head(MOST_SIZES).iter_rows(named=True)]
    blocks: list[Block] = [Grid(head=HEAD, rows=cells, narrow=_NARROW, more=more)]
    lines = [*wait_lines(costs), *load_lines(dataset, costs)]
    blocks += [Bullets(lines)] if lines else []
    grid = pair_map(dataset, costs)
    blocks += [grid] if grid is not None else []
    title = f"Collectives by type and size, from {costs.origin} (latency: of the fastest rank; waited: by all ranks)"
    yield Section(title, tuple(blocks))


def wait_lines(costs: CollectiveCosts) -> list[str]:
    """The ranks that waited most and least, in words; none if that is little, or alike."""
    table = costs.ranks.sort("waited_ns", "rank")
    if table.height < 2:
        return []
    least, most = table.row(0, named=True), table.row(-1, named=True)
    if most["waited_ns"] < max(UNEVEN * least["waited_ns"], LEAST_WAIT * most["total_ns"]):
        return []
    middle = int(table["waited_ns"].median() or 0)  # type: ignore[arg-type]
    often = f", last in {least['last']:,} of {least['count']:,}" if least["last"] else ""
    return [
        f"rank {most['rank']} waited most for others, {duration(most['waited_ns'])}; rank {least['rank']} least, "
        f"{duration(least['waited_ns'])}{often}; median {duration(middle)}"
    ]


def load_lines(dataset: Dataset, costs: CollectiveCosts) -> list[str]:
    """Uneven loads of all_to_alls, in words: the worst first."""
    table = costs.loads.filter(pl.col("imbalance") >= UNEVEN).sort("imbalance", descending=True, maintain_order=True)
    lines = []
    for row in table.head(MOST_LOADS).iter_rows(named=True):
        of = group_label(dataset.group_list, row["group"], dataset.world_size)
        verb = {"sent": "sends", "received": "receives"}[row["direction"]]
        lines.append(
            f"all_to_all of {of}, {plural(row['count'], 'time')}: the busiest rank {verb} {digits(row['imbalance'])} "
            f"times the mean of {byte_count(row['mean_bytes'])} (median; at most {digits(row['most'])} times), "
            f"rank {row['rank']} in {row['times']:,} of them"
        )
    left = table.height - MOST_LOADS
    return [*lines, f"and {plural(left, 'more uneven load')}; the JSON report has all"] if left > 0 else lines


def pair_map(dataset: Dataset, costs: CollectiveCosts) -> Grid | None:
    """The bytes from rank to rank of the group with most, as a map, or the largest pairs of a large one; None if they
    are even."""
    uneven = costs.loads.filter(pl.col("imbalance") >= UNEVEN)["group"]
    pairs = costs.pairs.filter(pl.col("group").is_in(uneven.implode()))
    if pairs.is_empty():
        return None
    group = pairs.group_by("group").agg(pl.col("bytes").sum()).sort(-pl.col("bytes"), "group")["group"][0]
    own = pairs.filter(group=group)
    title = f"Bytes of all_to_all in {group_label(dataset.group_list, group, dataset.world_size)}"
    sent = {(rank, peer): count for rank, peer, count in own.select("rank", "peer", "bytes").iter_rows()}
    ranks = sorted({rank for pair in sent for rank in pair})
    if len(ranks) <= LARGEST_MAP:
        rows = [(str(a), *(byte_count(sent[a, b]) if (a, b) in sent else UNKNOWN for b in ranks)) for a in ranks]
        return Grid(head=("from", *(f"to {rank}" for rank in ranks)), rows=rows, title=title)
    top = own.sort(-pl.col("bytes"), "rank", "peer").head(MOST_PAIRS)
    cells = [(str(a), str(b), byte_count(count)) for a, b, count in top.select("rank", "peer", "bytes").iter_rows()]
    more = f"and {plural(len(sent) - len(cells), 'more pair')}; the JSON report has all"
    return Grid(head=("from", "to", "bytes"), rows=cells, title=f"{title}, most", more=more)


class CollectivesObject(ReportPart):
    """Costs of collectives."""

    origin: Annotated[str, one_of(ORIGINS)]
    sizes: list[Annotated[Json, row_schema(SIZES)]]
    ranks: list[Annotated[Json, row_schema(RANK_WAITS)]]
    pairs: list[Annotated[Json, row_schema(PAIRS)]]
    loads: list[Annotated[Json, row_schema(LOADS, direction=DIRECTIONS)]]


class CollectiveKeys(ReportPart):
    """The key of collectives in the JSON report, only where their durations are known."""

    collectives: CollectivesObject | UnsetType = UNSET


def json_keys(dataset: Dataset, analysis: Analysis) -> CollectiveKeys:
    """All costs."""
    costs = COLLECTIVE_RESULTS.find(analysis)
    if costs is None:
        return CollectiveKeys()
    tables = {name: table_rows(dataset, getattr(costs, name)) for name in ("sizes", "ranks", "pairs", "loads")}
    return CollectiveKeys(CollectivesObject(origin=costs.origin, **tables))
