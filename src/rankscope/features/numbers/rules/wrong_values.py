"""How wrong values travel between ranks, and the first NaN or infinite value, followed back to where it began."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

import numpy as np
import polars as pl

from rankscope.features.numbers.rules.collective_units import REDUCTIONS, CollectiveUnits
from rankscope.features.numbers.rules.model import BrokenRule, Ints, format_of
from rankscope.schema import Dataset
from rankscope.text.wording import ranks_text

INFINITE_SITES = ("collective", "p2p", "gradient", "parameter", "optimizer", "loss")
"""Sites at which an infinite value is wrong: masks of attention hold them in modules and batches."""
REDUCED_TOOLS = ("nvdlfw-inspect",)
"""Tools whose values may be those of a whole group."""
OVERFLOW = 0.49
"""Share of the largest number of a format that the largest inputs of a sum must reach together for an overflow."""


@dataclass(frozen=True)
class NonFiniteSource:
    """Where values that are not finite began."""

    broken: list[BrokenRule]
    asked: int
    has_nan: bool
    """Whether any is NaN; infinite gradients alone are what a loss scaler looks for."""
    path: tuple[str, ...] = ()
    """How they came to other ranks, in words, one step each."""


def find_nonfinite(dataset: Dataset, units: CollectiveUnits) -> NonFiniteSource:
    """The rows at which values that are not finite began; none if all are finite."""
    bad = _nonfinite_rows(dataset)
    if bad.is_empty():
        return NonFiniteSource([], dataset.tensors.height, has_nan=False)
    first = bad.sort("order").unique("rank", keep="first", maintain_order=True).sort("rank")
    has_nan = bool(bad["is_nan"].any())
    lost = _lost_in_sum(dataset, units, bad)
    explained = _brought(dataset, units, bad, first)
    sources = first.filter(~pl.col("rank").is_in(list(explained)))
    sources = sources.filter(pl.col("step").fill_null(0) == sources["step"].fill_null(0).min())
    made = lost or _made(dataset, sources)
    ways: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for rank, way in explained.items():
        ways[way].append(rank)
    path = tuple(f"{ranks_text(own)} got it in {where} from rank {source}" for (source, where), own in ways.items())
    return NonFiniteSource(made, dataset.tensors.height, has_nan, path)


def _nonfinite_rows(dataset: Dataset) -> pl.DataFrame:
    """Rows with values that are not finite, without largest and smallest values of masked elements."""
    total = pl.col("sum")
    nan = (pl.col("nan") > 0).fill_null(total.is_nan())
    infinite = (pl.col("inf") > 0).fill_null(total.is_infinite()) & pl.col("site").is_in(INFINITE_SITES)
    masked = pl.col("reduce_op").cast(pl.String).is_in(["max", "min"]).fill_null(value=False) & ~nan
    told = dataset.tensors.with_row_index("row").with_columns(is_nan=nan.fill_null(value=False))
    return told.filter((pl.col("is_nan") | infinite.fill_null(value=False)) & ~masked).select(
        "row", "rank", "step", "order", pl.col("site", "name", "slot", "op").cast(pl.String), "group", "seq", "peer",
        "is_nan",
    )  # fmt: skip


def _lost_in_sum(dataset: Dataset, units: CollectiveUnits, bad: pl.DataFrame) -> list[BrokenRule]:
    """R5: sums that are not finite though all of their inputs are, and could not overflow."""
    rows = units.rows.with_columns(bad=pl.col("row").is_in(bad["row"].implode()))
    told = dataset.tensors.select("min", "max")[rows["row"].to_numpy()]
    rows = rows.with_columns(
        largest=told.select(pl.max_horizontal(pl.col("min").abs(), pl.col("max").abs())).to_series()
    )
    facts = rows.group_by("unit", maintain_order=True).agg(
        came=(pl.col("bad") & pl.col("is_out")).any(), brought=(pl.col("bad") & ~pl.col("is_out")).any(),
        largest=pl.col("largest").filter(~pl.col("is_out")).sum(), row=pl.col("row").filter("bad").first(),
        members=pl.col("rank").unique().sort(), inputs=pl.col("row").filter(~pl.col("is_out")),
    ).join(units.table.select("unit", "op", "dtype", "whole", "step"), on="unit")  # fmt: skip
    found = facts.filter(pl.col("came") & ~pl.col("brought") & pl.col("whole")).sort("step", maintain_order=True)
    return [
        _r5(dtype, op, row, tuple(members), largest, tuple(inputs[:2]))
        for dtype, op, row, members, largest, inputs in found.select(
            "dtype", "op", "row", "members", "largest", "inputs"
        ).iter_rows()
    ]


def _r5(dtype: str, op: str, row: int, members: tuple[int, ...], largest: float, inputs: tuple[int, ...]) -> BrokenRule:
    form = format_of(dtype)
    limit = form.largest if form is not None else 0.0
    if op in REDUCTIONS and form is not None and largest >= OVERFLOW * limit:
        note = f"the sum overflows {dtype}: its inputs are up to {largest:.3g} together, and {limit:.6g} is the largest"
        return BrokenRule("NF", row, (), (), members, largest, limit, inputs, note)
    return BrokenRule("R5", row, (), (), members, largest, limit, inputs, "all of its inputs are finite")


def _brought(
    dataset: Dataset, units: CollectiveUnits, bad: pl.DataFrame, first: pl.DataFrame
) -> dict[int, tuple[int, str]]:
    """By rank whose first such value came out of an operation: another rank that brought it there, and the place."""
    groups = dict(
        dataset.groups.select("group", pl.coalesce(pl.col("description").replace("", None), "name")).iter_rows()
    )
    own = units.rows.join(first.select("row"), on="row", how="semi").filter("is_out")
    calls = own.select("group", "call", "op", "unit", "rank", out_row="row")
    brought = units.rows.filter(~pl.col("is_out")).join(bad.select("row"), on="row", how="semi")
    pairs = calls.join(brought.select("unit", source="rank"), on="unit").filter(pl.col("rank") != pl.col("source"))
    found = {
        rank: (source, f"{op}{f' #{call}' if call >= 0 else ''} of {groups.get(group) or group}")
        for rank, source, op, call, group in pairs.sort("rank", "source", descending=True)
        .select("rank", "source", "op", "call", "group")
        .iter_rows()
    }
    for rank, peer in (
        first.filter((pl.col("op") == "recv") & pl.col("peer").is_not_null()).select("rank", "peer").iter_rows()
    ):
        if not bad.filter((pl.col("rank") == peer) & (pl.col("op") == "send") & (pl.col("peer") == rank)).is_empty():
            found[rank] = (peer, "a recv")
    return dict(sorted(found.items()))


def _made(dataset: Dataset, sources: pl.DataFrame) -> list[BrokenRule]:
    """The ranks that made such values themselves; nobody is accused where all ranks made them."""
    if sources.is_empty():
        return []
    ranks = tuple(sources["rank"].to_list())
    # several may make it of a large finite value that one of them brought to all
    alone = len(ranks) == 1
    everybody = not alone and len(ranks) == dataset.tensors["rank"].n_unique()
    shared = dataset.tensors["tool"][sources["row"][0]] in REDUCED_TOOLS
    row = sources.sort("step", "order").row(0, named=True)
    earlier = (pl.col("rank") == row["rank"]) & (pl.col("order") < pl.lit(row["order"], pl.Int64))
    before = dataset.tensors.filter(earlier).tail(1)
    last = "nothing was recorded before"
    if before.height:
        told = before.with_columns(pl.col("site", "name", "op", "slot").cast(pl.String)).row(0, named=True)
        last = f"the last finite row before is {_words(told)}"
    made = _source_words(row)
    note = f"all ranks hold one at the same step: {last}" if everybody else f"{made}; {last}"
    if shared:
        note = f"the tool may reduce a value over a group, so another member may hold it; {last}"
    certain = alone and not shared
    accused, suspects = ranks if certain else (), () if certain or everybody else ranks
    return [
        BrokenRule("NF", row["row"], accused, suspects, ranks, rows=tuple(sources["row"].to_list()[1:3]), note=note)
    ]


def _source_words(row: dict[str, object]) -> str:
    if row["site"] == "batch":
        return "it is in the batch: the data hold it"
    return "it was made there, or before and not recorded"


def _words(row: dict[str, object]) -> str:
    what = row["name"] or row["op"] or row["site"]
    return f"{row['slot']} of {row['site']} {what}"


_NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class ValueSpread:
    """The operations through which values pass between ranks."""

    dataset: Dataset

    @cached_property
    def _events(self) -> tuple[dict[tuple[int, object], tuple[Ints, Ints]], tuple[Ints, Ints, Ints]]:
        """By rank and lane (a group, or two ranks in one direction) the orders of its inputs there and the numbers of
        their operations; and the ranks that got an output with their orders, one operation after the other, and where
        each operation ends among them."""
        sender = pl.when(pl.col("op").cast(pl.String) == "send").then("rank").otherwise("peer")
        lane = pl.concat_str("group", sender.cast(pl.String).fill_null(""), separator="/")
        call = pl.coalesce("seq", pl.col("step").fill_null(0) * (1 << 20) + pl.col("occurrence").fill_null(0))
        rows = self.dataset.tensors.filter(
            pl.col("site").is_in(["collective", "p2p"]) & pl.col("group").is_not_null() & pl.col("order").is_not_null()
        ).select("rank", "order", lane=lane, call=call, is_out=pl.col("slot").cast(pl.String).str.starts_with("out"))
        calls = rows.group_by("lane", "call", "rank", "is_out").agg(pl.col("order").min()).sort("lane", "call", "rank")
        calls = calls.with_columns(event=pl.struct("lane", "call").rle_id().cast(pl.Int64))
        got = calls.filter("is_out")
        count = calls["event"].n_unique()
        ends = np.searchsorted(got["event"].to_numpy(), np.arange(count), "right").astype(np.int64)
        members = (got["rank"].to_numpy(), got["order"].to_numpy(), ends)
        lanes = {
            (int(part["rank"][0]), part["lane"][0]): (part["order"].to_numpy(), part["event"].to_numpy())
            for part in calls.filter(~pl.col("is_out")).sort("order").partition_by("rank", "lane", maintain_order=True)
        }
        return lanes, members

    @cached_property
    def _lanes_of(self) -> dict[int, list[tuple[Ints, Ints]]]:
        found: defaultdict[int, list[tuple[Ints, Ints]]] = defaultdict(list)
        for (rank, _), orders in self._events[0].items():
            found[rank].append(orders)
        return found

    def reached(self, origins: dict[int, int]) -> dict[int, int]:
        """By rank the order from which on it may hold wrong values, if `origins` do from their orders on."""
        first = dict(origins)
        ranks, when_got, ends = self._events[1]
        queue = [(order, rank) for rank, order in origins.items()]
        while queue:
            order, rank = heappop(queue)
            if order > first.get(rank, _NEVER):
                continue
            for orders, events in self._lanes_of.get(rank, ()):
                at = int(np.searchsorted(orders, order))
                if at == len(orders):
                    continue
                event = int(events[at])
                own = slice(int(ends[event - 1]) if event else 0, int(ends[event]))
                for other, when in zip(ranks[own].tolist(), when_got[own].tolist(), strict=True):
                    if when < first.get(other, _NEVER):
                        first[other] = when
                        heappush(queue, (when, other))
        return first

    def origins(self, broken: BrokenRule) -> dict[int, int]:
        """The ranks that hold wrong values because of a broken rule, and their orders there."""
        own = self._orders([broken.row, *broken.rows])
        wrong = broken.ranks or broken.candidates or broken.members
        at = max(own.values(), default=0)
        return {rank: own.get(rank, at) for rank in wrong}

    def is_after(self, reached: dict[int, int], other: BrokenRule) -> bool:
        """Whether any rank of `other` holds wrong values before its own row."""
        own = self._orders([other.row, *other.rows])
        return any(reached.get(rank, _NEVER) <= order for rank, order in own.items())

    def _orders(self, rows: list[int]) -> dict[int, int]:
        """The order of the last of these rows of each rank."""
        told = self.dataset.tensors.select("rank", "order")[rows].drop_nulls()
        return dict(told.iter_rows())
