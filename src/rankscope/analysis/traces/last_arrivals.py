"""Who came last to each matched collective, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from rankscope.analysis.traces.judge import LEAST
from rankscope.analysis.traces.lateness import MATCH
from rankscope.analysis.traces.model import LAST
from rankscope.analysis.wording import fold, short_duration

MOST_LISTED = 64
"""Collectives of a short window that are gone through one by one."""


@dataclass(frozen=True)
class Turn:
    """Neighbouring collectives of a group to which the same rank came last, and equally surely."""

    group: int
    rank: int
    seqs: tuple[int, ...]
    sure: bool
    least_ns: int
    """The smallest and the largest margin."""
    most_ns: int
    second: int
    """Who came just before it to the first of them."""

    @property
    def margin(self) -> str:
        """By how much: "9 us", "124 us to 509 us"."""
        least, most = short_duration(self.least_ns), short_duration(self.most_ns)
        return least if least == most else f"{least} to {most}"


def last_table(joined: pl.DataFrame, numbers: pl.DataFrame, error_ns: int, *, by_step: bool) -> pl.DataFrame:
    """LAST of matched operations `joined`; `numbers` gives each its match, and clocks may be off by `error_ns`."""
    came = pl.col("rank").sort_by("arrived_ns", "rank")
    table = joined.group_by(MATCH).agg(
        pl.col("group", "op", "unit").first(), seq=pl.coalesce("seq", "place").first(), last=came.last(),
        second=came.get(-2, null_on_oob=True), margin_ns=pl.col("margin_ns").max(),
        first_ns=pl.col("arrived_ns").min(), last_ns=pl.col("arrived_ns").max(),
    ).join(numbers, on=MATCH)  # fmt: skip
    step = pl.col("unit") if by_step else pl.lit(None)
    table = table.with_columns(sure=pl.col("margin_ns") > error_ns, step=step)
    return table.select([pl.col(name).cast(kind) for name, kind in LAST.items()]).sort("match")


def is_short(last: pl.DataFrame) -> bool:
    """Whether there is too little of it to call a rank late, and little enough to go through it one by one."""
    units = last["step"].n_unique() if last["step"].null_count() < last.height else last.height
    return 0 < last.height <= MOST_LISTED and units < LEAST


def turns(last: pl.DataFrame) -> Iterator[Turn]:
    """The collectives of each group in their order, those alike that follow one another as one."""
    ordered = last.sort("group", "match")
    new = pl.any_horizontal(pl.col(name) != pl.col(name).shift() for name in ("group", "last", "sure"))
    table = ordered.with_columns(turn=new.fill_null(True).cum_sum())
    for _, part in table.group_by("turn", maintain_order=True):
        first = part.row(0, named=True)
        margins = part["margin_ns"].to_list()
        seqs = tuple(part["seq"].to_list())
        yield Turn(first["group"], first["last"], seqs, first["sure"], min(margins), max(margins), first["second"])


def most(last: pl.DataFrame) -> str:
    """Who came last most often in a short window, to which collectives, and of which that is not sure."""
    if last.is_empty():
        return ""
    rank = last["last"].value_counts().sort("count", "last", descending=[True, False])["last"][0]
    own = last.filter(pl.col("last") == rank)
    text = f"rank {rank} came last in {own.height} of {last.height}"
    unsure = own.filter(~pl.col("sure"))
    if last["group"].n_unique() > 1 or last.height > MOST_LISTED:
        return f"{text} (surely in {own.height - unsure.height}), "
    which = f"#{fold(own['seq'].to_list())}"
    if unsure.is_empty():
        return f"{text} ({which}), "
    margin = short_duration(int(unsure["margin_ns"].max()))  # type: ignore[arg-type]
    doubt = f"not sure of #{fold(unsure['seq'].to_list())}, by {margin} only"
    return f"{text} ({which}; {doubt}), "
