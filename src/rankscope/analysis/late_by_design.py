"""What the shape of the program makes late: a place that comes last in the replicas of its group as well."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.schema import Group

ODD = 3
"""So many times what is usual at a place of the program makes a rank there late by itself."""
FAR = 8
"""Median deviations among the replicas, which host clocks make, beyond which one is out of line."""
FEWEST = 3
"""Replicas that can speak of what is usual."""
Lateness = dict[int, float]
"""By group, nanoseconds that the rank at one place comes after the last of the others."""


class Design:
    """Answers for places of the program how late they are in all replicas."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[tuple[str, int, int], Lateness] = {}

    def explains(self, group: Group, rank: int, margin_ns: int, worth_ns: int) -> bool:
        """Whether a rank is no later than its place is in the replicas, as far as these and their clocks agree."""
        replicas = [
            g for g in self._facts.groups if g.description == group.description and len(g.ranks) == len(group.ranks)
        ]
        if len(replicas) < FEWEST:
            return False
        place = group.ranks.index(rank)
        key = (group.description, len(group.ranks), place)
        if key not in self._known:
            self._known[key] = self._lateness(replicas, place)
        late = np.array(list(self._known[key].values()))
        if len(late) < FEWEST:
            return False
        usual = float(np.median(late))
        spread = float(np.median(np.abs(late - usual)))
        apart = min(max(worth_ns, FAR * spread), ODD * worth_ns)
        return margin_ns < max(ODD * usual, usual + apart)

    def _lateness(self, replicas: list[Group], place: int) -> Lateness:
        ends = pl.DataFrame(
            {"group": [g.id for g in replicas], "own": [g.ranks[place] for g in replicas]},
            schema={"group": pl.UInt32, "own": pl.Int32},
        )
        own, created = pl.col("rank") == pl.col("own"), pl.col("created_ns")
        table = (
            self._facts.calls.join(ends, on="group").filter(pl.col("state") == "completed")
            .group_by("group", "seq").agg(late=created.filter(own).max() - created.filter(~own).max())
            .group_by("group").agg(pl.col("late").median()).sort("group").drop_nulls()
        )  # fmt: skip
        return dict(table.iter_rows())
