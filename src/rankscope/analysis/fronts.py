"""How far each rank got in each of its groups, for looking up one and for asking all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from rankscope.schema import Dataset

Key = tuple[int, int]
"""(rank, group)."""


class Frontier(NamedTuple):
    """What is known of one rank in one group; collective sequence numbers, None where the dump cannot tell."""

    enqueued: int | None
    completed: int | None
    first_kept: int | None
    wrapped: bool | None
    filtered: str


class Frontiers(Mapping[Key, Frontier]):
    """Frontiers by (rank, group), in the order of the table; of many ranks a Frontier is made only of what is asked."""

    def __init__(self, table: pl.DataFrame) -> None:
        self.table = table
        """Columns rank, group, and those of a Frontier."""

    def __getitem__(self, key: Key) -> Frontier:
        place = self._places[key]
        return Frontier(*(column[place] for column in self._columns))

    def __iter__(self) -> Iterator[Key]:
        return iter(self._places)

    def __len__(self) -> int:
        return self.table.height

    @cached_property
    def _places(self) -> dict[Key, int]:
        keys = zip(self.table["rank"].to_list(), self.table["group"].to_list(), strict=True)
        return {key: place for place, key in enumerate(keys)}

    @cached_property
    def _columns(self) -> list[list[Any]]:
        return [self.table[name].to_list() for name in Frontier._fields]


def frontiers_of(dataset: Dataset) -> Frontiers:
    """The frontiers of a job, with completions seen in rows where pg_status lags behind them."""
    done = (
        dataset.ops.lazy()
        .filter(~pl.col("is_p2p") & (pl.col("state") == "completed"))
        .group_by("rank", "group")
        .agg(pl.col("seq").max().alias("done_seq"))
    )
    table = dataset.frontiers.lazy().join(done, on=["rank", "group"], how="left", maintain_order="left")
    return Frontiers(
        table.select(
            "rank", "group", pl.col("last_enqueued").alias("enqueued"),
            pl.max_horizontal("last_completed", "done_seq").alias("completed"),
            "first_kept", "wrapped", pl.col("filtered").cast(pl.String),
        ).collect()
    )  # fmt: skip
