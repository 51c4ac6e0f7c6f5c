"""Lines of torch 2.3 and older name no process group: numbers of several groups then stand in one lane."""

from __future__ import annotations

from typing import Any

import orjson
import polars as pl

from rankscope.schema import Dataset

REASON = "the lines do not name the group: in a job with several these may be works of two"
SEVERAL = "the lines do not name the group, and are of several: these may be works of two"


def unnamed(dataset: Dataset, group: int) -> bool:
    """Whether all that is known of a group is that lines without a name may be of it."""
    found = dataset.group_list[group]
    return not found.name and not found.description and found.membership == "inferred"


def are_several(dataset: Dataset, group: int) -> bool:
    """Whether lines that are put to a group without a name are of more than one.

    A rank waits in works that do not follow each other, or its place in a group is not its rank.
    """
    own = dataset.ops.filter((pl.col("group") == group) & pl.col("seq").is_not_null())
    spans = own.group_by("rank").agg(n=pl.col("seq").n_unique(), over=pl.col("seq").max() - pl.col("seq").min() + 1)
    if spans.filter(pl.col("n") < pl.col("over")).height:
        return True
    lines = dataset.messages.filter((pl.col("kind") == "watchdog-timeout") & pl.col("rank").is_not_null())
    return any(_elsewhere(rank, orjson.loads(values)) for rank, values in lines.select("rank", "values").iter_rows())


def _elsewhere(rank: int, values: dict[str, Any]) -> bool:
    return values.get("pg_guid") is None and values.get("rank_in_group") not in (None, rank)
