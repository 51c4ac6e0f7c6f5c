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
    total = pl.col("sum")
    nan = (pl.col("nan") > 0).fill_null(total.is_nan())
    infinite = (pl.col("inf") > 0).fill_null(total.is_infinite()) & pl.col("site").is_in(INFINITE_SITES)
    # largest and smallest values of masked elements
    masked = pl.col("reduce_op").cast(pl.String).is_in(["max", "min"]).fill_null(value=False) & ~nan
    rows = dataset.tensors.with_row_index("row").with_columns(is_nan=nan.fill_null(value=False))
    texts = pl.col("site", "name", "slot", "op").cast(pl.String)
    bad = rows.filter((pl.col("is_nan") | infinite.fill_null(value=False)) & ~masked)
    bad = bad.select("row", "rank", "step", "order", texts, "group", "seq", "peer", "is_nan")
    if bad.is_empty():
        return NonFiniteSource([], dataset.tensors.height, has_nan=False)
    first = bad.sort("order").unique("rank", keep="first", maintain_order=True).sort("rank")
    explained = _brought(dataset, units, bad, first)
    sources = first.filter(~pl.col("rank").is_in(list(explained)))
    sources = sources.filter(pl.col("step").fill_null(0) == sources["step"].fill_null(0).min())
    broken = _lost_in_sum(dataset, units, bad) or _made(dataset, sources)
    ways: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for rank, way in explained.items():
        ways[way].append(rank)
    path = tuple(f"{ranks_text(ranks)} got it in {where} from rank {source}" for (source, where), ranks in ways.items())
    return NonFiniteSource(broken, dataset.tensors.height, bool(bad["is_nan"].any()), path)


def _lost_in_sum(dataset: Dataset, units: CollectiveUnits, bad: pl.DataFrame) -> list[BrokenRule]:
    """R5: sums that are not finite though all of their inputs are, and could not overflow."""
    rows = units.rows.with_columns(bad=pl.col("row").is_in(bad["row"].implode()))
    extremes = dataset.tensors.select("min", "max")[rows["row"].to_numpy()]
    largest = extremes.select(pl.max_horizontal(pl.col("min").abs(), pl.col("max").abs())).to_series()
    is_in = ~pl.col("is_out")
    facts = rows.with_columns(largest=largest).group_by("unit", maintain_order=True).agg(
        came=(pl.col("bad") & pl.col("is_out")).any(), brought=(pl.col("bad") & is_in).any(),
        largest=pl.col("largest").filter(is_in).sum(), row=pl.col("row").filter("bad").first(),
        members=pl.col("rank").unique().sort(), inputs=pl.col("row").filter(is_in),
    ).join(units.table.select("unit", "op", "dtype", "whole", "step"), on="unit")  # fmt: skip
    lost = facts.filter(pl.col("came") & ~pl.col("brought") & pl.col("whole")).sort("step", maintain_order=True)
    broken = []
    for sum_ in lost.iter_rows(named=True):
        form, size = format_of(sum_["dtype"]), sum_["largest"]
        limit = form.largest if form is not None else 0.0
        rule, note = "R5", "all of its inputs are finite"
        if sum_["op"] in REDUCTIONS and form is not None and size >= OVERFLOW * limit:
            rule, note = "NF", f"the sum overflows {sum_['dtype']}: its inputs are up to {size:.3g} together"
            note += f", and {limit:.6g} is the largest"
        inputs = tuple(sum_["inputs"][:2])
        broken.append(BrokenRule(rule, sum_["row"], (), (), tuple(sum_["members"]), size, limit, inputs, note))
    return broken


def _brought(
    dataset: Dataset, units: CollectiveUnits, bad: pl.DataFrame, first: pl.DataFrame
) -> dict[int, tuple[int, str]]:
    """By rank whose first such value came out of an operation: another rank that brought it there, and the place."""
    groups = dict(
        dataset.groups.select("group", pl.coalesce(pl.col("description").replace("", None), "name")).iter_rows()
    )
    received = units.rows.join(first.select("row"), on="row", how="semi").filter("is_out")
    calls = received.select("group", "call", "op", "unit", "rank", out_row="row")
    brought = units.rows.filter(~pl.col("is_out")).join(bad.select("row"), on="row", how="semi")
    pairs = calls.join(brought.select("unit", source="rank"), on="unit").filter(pl.col("rank") != pl.col("source"))
    peers = {
        rank: (source, f"{op}{f' #{call}' if call >= 0 else ''} of {groups.get(group) or group}")
        for rank, source, op, call, group in pairs.sort("rank", "source", descending=True)
        .select("rank", "source", "op", "call", "group")
        .iter_rows()
    }
    for rank, peer in (
        first.filter((pl.col("op") == "recv") & pl.col("peer").is_not_null()).select("rank", "peer").iter_rows()
    ):
        if not bad.filter((pl.col("rank") == peer) & (pl.col("op") == "send") & (pl.col("peer") == rank)).is_empty():
            peers[rank] = (peer, "a recv")
    return dict(sorted(peers.items()))


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
    last = "nothing was recorded before"
    for before in dataset.tensors.filter(earlier).tail(1).iter_rows(named=True):
        what = before["name"] or before["op"] or before["site"]
        last = f"the last finite row before is {before['slot']} of {before['site']} {what}"
    in_batch = "it is in the batch: the data hold it"
    origin = in_batch if row["site"] == "batch" else "it was made there, or before and not recorded"
    note = f"all ranks hold one at the same step: {last}" if everybody else f"{origin}; {last}"
    if shared:
        note = f"the tool may reduce a value over a group, so another member may hold it; {last}"
    certain = alone and not shared
    accused, suspects = ranks if certain else (), () if certain or everybody else ranks
    others = tuple(sources["row"].to_list()[1:3])
    return [BrokenRule("NF", row["row"], accused, suspects, ranks, rows=others, note=note)]


_NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class ValueSpread:
    """The operations through which values pass between ranks."""

    dataset: Dataset

    @cached_property
    def _events(self) -> tuple[dict[int, list[tuple[Ints, Ints]]], tuple[Ints, Ints, Ints]]:
        """By rank the orders of its inputs in each lane (a group, or two ranks in one direction) and the numbers of
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
        lanes: defaultdict[int, list[tuple[Ints, Ints]]] = defaultdict(list)
        for part in calls.filter(~pl.col("is_out")).sort("order").partition_by("rank", "lane", maintain_order=True):
            lanes[int(part["rank"][0])].append((part["order"].to_numpy(), part["event"].to_numpy()))
        return lanes, (got["rank"].to_numpy(), got["order"].to_numpy(), ends)

    def reached(self, origins: dict[int, int]) -> dict[int, int]:
        """By rank the order from which on it may hold wrong values, if `origins` do from their orders on."""
        first = dict(origins)
        lanes, (ranks, when_got, ends) = self._events
        queue = [(order, rank) for rank, order in origins.items()]
        while queue:
            order, rank = heappop(queue)
            if order > first.get(rank, _NEVER):
                continue
            for orders, events in lanes.get(rank, ()):
                at = int(np.searchsorted(orders, order))
                if at == len(orders):
                    continue
                event = int(events[at])
                span = slice(int(ends[event - 1]) if event else 0, int(ends[event]))
                for other, when in zip(ranks[span].tolist(), when_got[span].tolist(), strict=True):
                    if when < first.get(other, _NEVER):
                        first[other] = when
                        heappush(queue, (when, other))
        return first

    def origins(self, broken: BrokenRule) -> dict[int, int]:
        """The ranks that hold wrong values because of a broken rule, and their orders there."""
        orders = self._orders([broken.row, *broken.rows])
        wrong = broken.ranks or broken.candidates or broken.members
        at = max(orders.values(), default=0)
        return {rank: orders.get(rank, at) for rank in wrong}

    def is_after(self, reached: dict[int, int], other: BrokenRule) -> bool:
        """Whether any rank of `other` holds wrong values before its own row."""
        orders = self._orders([other.row, *other.rows])
        return any(reached.get(rank, _NEVER) <= order for rank, order in orders.items())

    def _orders(self, rows: list[int]) -> dict[int, int]:
        """The order of the last of these rows of each rank."""
        orders = self.dataset.tensors.select("rank", "order")[rows].drop_nulls()
        return dict(orders.iter_rows())
