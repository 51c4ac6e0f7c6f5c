"""Links that are slow whatever runs over them: groups or pairs that take longer for the same than all of their kind.

A group is compared with those of the same description and size, a pair with all pairs, for each operation and size
by itself. One that is slow in all of them runs over something slow; a rank or host that is in all slow ones and in none
of the others is what they share. Where there are only two or three to compare, they must be sisters, which share no
rank and cross equally many hosts; the slow one must be twice as slow, and nearly all of its operations slower than
nearly all of the others'.
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
"""Links with which one is compared; where there are fewer, more is asked."""
SLOW_OF_FEW = 2.0
FLOOR_NS, HOST_FLOOR_NS = 50_000, 2_000_000
"""What takes less is made of latency, or on hosts that communicate themselves (gloo) of turns of their schedulers."""


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

    @property
    def noun(self) -> str:
        """What a route is called: a link between two ranks, or a group."""
        return "link" if all(len(route.ranks) == 2 for route in self.routes) else "group"


def find_slow(
    speeds: pl.DataFrame, groups: Sequence[Group], hosts: Mapping[int, str], *, on_host: bool = False
) -> list[Slow]:
    """Slow routes, by kind. `speeds`: group, ranks (of the route), op, bytes, took_ns of each operation.

    `on_host`: of hosts that communicate themselves.
    """
    described = pl.DataFrame(
        {"group": [g.id for g in groups], "description": [g.description for g in groups],
         "size": [len(g.ranks) for g in groups]},
        schema={"group": pl.UInt32, "description": pl.String, "size": pl.Int64},
    )  # fmt: skip
    kind = ["description", "size", "is_p2p"]
    what = [*kind, "op", "bytes"]
    took = pl.col("took_ns")
    table = (
        speeds.join(described, on="group").group_by(*what, "ranks", "group")
        .agg(n=pl.len(), took=took.median(), low=took.quantile(0.1), high=took.quantile(0.9))
        .filter((pl.col("n") >= LEAST) & (pl.col("took").max().over(what) >= (HOST_FLOOR_NS if on_host else FLOOR_NS)))
        .with_columns(alike=pl.len().over(what), usual=_usual().over(what), rest=_next_high().over(what))
        .filter(pl.col("alike") > 1)
        .with_columns(factor=pl.col("took") / pl.col("usual"), clear=pl.col("low") > pl.col("rest"))
    )  # fmt: skip
    parts = table.group_by(kind, maintain_order=True)
    return [slow for _, part in parts if (slow := _of_kind(part, hosts)) is not None]


def _usual() -> pl.Expr:
    """What an operation usually takes: the median over routes, of two what the faster takes."""
    return pl.col("took").sort().get((pl.len() - 1) // 2)


def _next_high() -> pl.Expr:
    """What nearly all operations of all routes but the slowest are done in."""
    return pl.col("high").sort_by("took").slice(0, pl.len() - 1).max()


def _of_kind(table: pl.DataFrame, hosts: Mapping[int, str]) -> Slow | None:
    routes = table.group_by("ranks", "group").agg(
        pl.col("factor").min(), pl.col("n").sum(), pl.col("usual").max(), pl.col("took").max(), pl.col("clear").all()
    )
    few = routes.height <= ALIKE
    if few and not _are_sisters(routes["ranks"].to_list(), hosts):
        return None
    slow = (pl.col("factor") >= SLOW_OF_FEW) & pl.col("clear") if few else pl.col("factor") >= SLOW
    odd = routes.filter(slow).sort("factor", descending=True)
    fine = routes.filter(~slow)
    # what is slow in half of all links is how things are; of two one may be
    if odd.is_empty() or odd.height * 2 >= routes.height + few:
        return None
    found = [Route(tuple(r), g, f, n, int(u), int(t)) for r, g, f, n, u, t, _ in odd.iter_rows()]
    free = {rank for ranks in fine["ranks"] for rank in ranks.to_list()}
    shared = set(found[0].ranks).intersection(*(r.ranks for r in found)) - free
    of_hosts = [{hosts.get(rank, "") for rank in route.ranks} for route in found]
    common = set.intersection(*of_hosts) - {hosts.get(rank, "") for rank in free} - {""}
    lone = tuple(sorted(shared)) if len(shared) == 1 and len(found) > 1 else ()
    return Slow(tuple(found), routes.height, lone, min(common) if len(common) == 1 else None)


def _are_sisters(routes: Sequence[Sequence[int]], hosts: Mapping[int, str]) -> bool:
    """Whether no rank is in two of them, and all lie on equally many hosts."""
    ranks = [rank for route in routes for rank in route]
    crossed = {len({hosts.get(rank, "") for rank in route}) for route in routes}
    return len(set(ranks)) == len(ranks) and len(crossed) == 1
