"""The communicators of logs: which process groups they may be of, and which they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from rankscope.assemble.logs.collectives import collective_rows
from rankscope.assemble.logs.comm_groups import Party, choose
from rankscope.assemble.logs.grouping import Groups, slots_of
from rankscope.assemble.logs.log_processes import Life, Scene
from rankscope.assemble.logs.seq_numbering import Numbering


def housed_rows(
    scene: Scene,
    groups: Groups,
    named: dict[str, tuple[str, str]],
    numbering: Mapping[tuple[int, int], Numbering],
    known: pl.DataFrame,
) -> pl.DataFrame:
    """The operations of communicators whose process group can be told, which is set for every life of theirs.

    `known` is what dumps and c10d tell, see `homes.evidence`.
    """
    parties = _parties(scene, groups, named)
    first = len(groups.members)
    for at, party in enumerate(parties):
        for life in party.lives:
            life.put(first + at)
    rows = collective_rows(scene, [*groups.members, *(party.members for party in parties)], numbering)
    homes = _house(parties, choose(parties, rows, first, known), groups)
    old = range(first, first + len(homes))
    moved = pl.DataFrame({"group": old, "home": homes}, schema={"group": pl.UInt32, "home": pl.UInt32})
    placed = rows.join(moved, on="group", how="left", maintain_order="left")
    return placed.with_columns(group="home").drop("home").filter(pl.col("group").is_not_null())


def _parties(scene: Scene, groups: Groups, named: dict[str, tuple[str, str]]) -> list[Party]:
    """The communicators whose members are known, with the groups that they may be of.

    `named` gives name and description of the process group for identities that a line of c10d connects with one.
    """
    found = []
    for identity, lives in sorted(scene.identities().items()):
        size = lives[0].comm.nranks or 0
        members = (slots_of(lives) or (tuple(range(size)) if size == scene.world and _all_of(lives) else None)) if (
            size >= 2
        ) else None  # fmt: skip
        name, description = named.get(identity, ("", ""))
        if members is not None:
            same = [i for i in groups.of_members(members) if not name or groups.names[i] == name]
            found.append(Party(identity, lives, members, name, description, tuple(same)))
        elif size >= 2 and len(seated := _seated(groups, lives, size)) == 1:
            found.append(Party(identity, lives, groups.members[seated[0]], name, description, tuple(seated)))
    return found


def _seated(groups: Groups, lives: Sequence[Life], size: int) -> list[int]:
    seats = {life.comm.rank: life.rank for life in lives if life.comm.rank is not None and life.rank is not None}
    return groups.seated(seats, size) if seats else []


def _house(parties: Sequence[Party], homes: Sequence[int | None], groups: Groups) -> list[int | None]:
    """Sets `group` of every life, and gives it for each party.

    Where no known group has the members, the communicator is one of its own. It is none where it could be one of
    several groups that dumps tell of: their operations would stand there twice.
    """
    out: list[int | None] = []
    for party, home in zip(parties, homes, strict=True):
        doubtful = any(at < groups.known for at in party.candidates)
        at = home
        if at is None and not doubtful:
            at = groups.add(party.name or party.identity, party.description, party.members, True)
        for life in party.lives:
            life.put(at)
        if at is not None:
            groups.has_p2p[at] = groups.has_p2p[at] or any(
                piece.comm.p2p for life in party.lives for piece in life.pieces
            )
        out.append(at)
    return out


def _all_of(lives: Sequence[Life]) -> bool:
    """Whether all known ranks in a communicator are the global ones."""
    return all(life.comm.rank in (None, life.rank) for life in lives) and any(life.rank is not None for life in lives)
