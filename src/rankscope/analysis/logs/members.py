"""Ranks of a group, as c10d prints them, to global ranks."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope.analysis.logs.lines import Line
from rankscope.schema import Group

WORLD = ("", "0", "default_pg")
GUESS = "the line names no group that is known: its ranks are taken for global ones"


def global_ranks(line: Line, ranks: Iterable[int], groups: tuple[Group, ...]) -> tuple[dict[int, int], bool]:
    """(global rank by rank in the group, whether that is a guess); empty where it cannot be told."""
    ranks = list(ranks)
    if line.group is not None and line.group < len(groups):
        members = groups[line.group].ranks
        return {rank: members[rank] for rank in ranks if 0 <= rank < len(members)}, False
    if line.values.get("pg_desc") == "default_pg":
        return {rank: rank for rank in ranks}, False
    inside = line.values.get("reporter", line.values.get("rank_in_group"))
    if isinstance(inside, int) and line.rank is not None:
        fitting = _fitting(line.rank, inside, ranks, groups)
        if len(fitting) == 1:
            return fitting.pop(), False
        if fitting or inside != line.rank:
            return {}, True
    if str(line.values.get("pg_guid") or "") not in WORLD:
        return {}, True
    known = inside is not None and inside == line.rank and line.rank != 0
    return {rank: rank for rank in ranks}, not known


def _fitting(own: int, inside: int, ranks: list[int], groups: tuple[Group, ...]) -> list[dict[int, int]]:
    """What ranks mean in each group that they can be of; none where only the group of all is known."""
    if len({group.ranks for group in groups}) < 2:
        return []
    found: list[dict[int, int]] = []
    for group in groups:
        members = group.ranks
        if inside < len(members) and members[inside] == own and all(rank < len(members) for rank in ranks):
            meant = {rank: members[rank] for rank in ranks}
            found += [meant] if meant not in found else []
    return found
