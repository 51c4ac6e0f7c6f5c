"""Links that are slow whatever runs over them: groups or pairs that take longer for the same than all of their kind.

A group is compared with those of the same description and size, a pair with all pairs, for each operation and size
by itself. One that is slow in all of them runs over something slow; a rank or host that is in all slow ones and in none
of the others is what they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from rankscope.schema import Group

SLOW = 1.5
"""So many times what is usual is slow."""
LEAST = 8
"""Operations of one kind and size that must have been timed on each link."""
ALIKE = 3
"""Links with which one is compared."""
FLOOR_NS = 50_000
"""What takes less is made of latency."""


@dataclass(frozen=True)
class Route:
    """A group, or a pair of ranks of it, that is slow."""

    ranks: tuple[int, ...]
    group: int
    factor: float
    """How many times longer it takes than is usual: the least over all operations."""
    count: int
    """Operations that say so."""
    usual_ns: int
    took_ns: int


@dataclass(frozen=True)
class Slow:
    """Slow routes that share what makes them slow."""

    routes: tuple[Route, ...]
    alike: int
    """How many routes were compared."""
    ranks: tuple[int, ...]
    """Who is in all of them and in no other one; empty if nobody is."""
    host: str | None


def find_slow(speeds: pl.DataFrame, groups: Sequence[Group], hosts: Mapping[int, str]) -> list[Slow]:
    """Slow routes, by kind. `speeds`: group, ranks (of the route), op, bytes, took_ns of each operation."""
    described = pl.DataFrame(
        {"group": [g.id for g in groups], "description": [g.description for g in groups],
         "size": [len(g.ranks) for g in groups]},
        schema={"group": pl.UInt32, "description": pl.String, "size": pl.Int64},
    )  # fmt: skip
    kind = ["description", "size", "is_p2p"]
    table = (
        speeds.join(described, on="group").filter(pl.col("took_ns") >= FLOOR_NS)
        .group_by(*kind, "ranks", "group", "op", "bytes").agg(n=pl.len(), took=pl.col("took_ns").median())
        .filter(pl.col("n") >= LEAST)
        .with_columns(usual=pl.col("took").median().over(*kind, "op", "bytes"),
                      alike=pl.len().over(*kind, "op", "bytes"))
        .filter(pl.col("alike") >= ALIKE + 1)
        .with_columns(factor=pl.col("took") / pl.col("usual"))
    )  # fmt: skip
    return [slow for _, part in table.group_by(kind) if (slow := _of_kind(part, hosts)) is not None]


def _of_kind(table: pl.DataFrame, hosts: Mapping[int, str]) -> Slow | None:
    routes = table.group_by("ranks", "group").agg(
        pl.col("factor").min(), pl.col("n").sum(), pl.col("usual").max(), pl.col("took").max()
    )
    odd = routes.filter(pl.col("factor") >= SLOW).sort("factor", descending=True)
    fine = routes.filter(pl.col("factor") < SLOW)
    # what is slow in half of all links is how things are
    if odd.is_empty() or odd.height * 2 >= routes.height:
        return None
    found = [Route(tuple(r), g, f, n, int(u), int(t)) for r, g, f, n, u, t in odd.iter_rows()]
    free = {rank for ranks in fine["ranks"] for rank in ranks.to_list()}
    shared = set(found[0].ranks).intersection(*(r.ranks for r in found)) - free
    of_hosts = [{hosts.get(rank, "") for rank in route.ranks} for route in found]
    common = set.intersection(*of_hosts) - {hosts.get(rank, "") for rank in free} - {""}
    lone = tuple(sorted(shared)) if len(shared) == 1 and len(found) > 1 else ()
    return Slow(tuple(found), routes.height, lone, min(common) if len(common) == 1 else None)
