"""Which communicators of different processes are one: a pointer says nothing outside of its process.

commId is the same on all ranks from NCCL 2.16 on. A split in 2.18 to 2.22 prints the hash of an id that was never set;
in 2.23 to 2.30 it prints none: there parent, number of the split and colour tell. Before 2.16 only the number of ranks
and the order of creation is known, which is enough where no other assignment is possible.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from rankscope.assemble.logs.log_processes import Life, Scene

DEPTH = 64
"""Splits of splits that are followed."""


def identify(scene: Scene) -> None:
    """Sets `identity` of every life that can be told."""
    lives = [life for life in scene.lives if life.stands]
    ordinals = _ordinals(lives)
    for life in lives:
        life.identity = life.recalled or _direct(life)
    _keep_sound(lives)
    for life in lives:
        if not life.identity and _is_split(life):
            life.identity = _split(life, ordinals, DEPTH)
    _keep_sound(lives)
    _by_order([life for life in lives if not life.identity and not _is_split(life)], lives)


def _is_split(life: Life) -> bool:
    return bool(life.comm.parent)


def _direct(life: Life) -> str:
    unset = _is_split(life) and life.comm.split is None
    return "" if unset else life.comm.comm_id


def _ordinals(lives: Iterable[Life]) -> dict[int, int]:
    """For each split how many splits of the same parent and colour its process had made before."""
    counted: Counter[tuple[int, int | None]] = Counter()
    out: dict[int, int] = {}
    for life in lives:
        if life.parent is not None:
            key = (id(life.parent), life.comm.color)
            out[id(life)] = counted[key]
            counted[key] += 1
    return out


def _split(life: Life, ordinals: dict[int, int], depth: int) -> str:
    parent = life.parent
    if parent is None or not depth:
        return ""
    known = parent.identity or (_split(parent, ordinals, depth - 1) if _is_split(parent) else "")
    if not known or life.comm.color is None:
        return ""
    number = f"#{ordinals[id(life)]}" if life.comm.split is None else str(life.comm.split)
    return f"{known}/{number}:{life.comm.color}"


def _keep_sound(lives: Iterable[Life]) -> None:
    """Takes back identities whose members contradict each other: they are no identities."""
    for members in _by_identity(lives).values():
        ranks = [life.comm.rank for life in members if life.comm.rank is not None]
        sizes = {life.comm.nranks for life in members} - {None}
        if len(set(ranks)) < len(ranks) or len(sizes) > 1:
            for life in members:
                life.identity = ""


def _by_identity(lives: Iterable[Life]) -> dict[str, list[Life]]:
    found: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        if life.identity:
            found[life.identity].append(life)
    return found


def _by_order(unnamed: list[Life], lives: list[Life]) -> None:
    """Joins the k-th communicator of a size of each process, where as many processes have one as it has ranks."""
    largest = max((life.comm.nranks or 0 for life in lives), default=0)
    by_size: dict[int, dict[int, list[Life]]] = defaultdict(lambda: defaultdict(list))
    for life in unnamed:
        if life.comm.nranks is not None and life.comm.nranks > 1:
            by_size[life.comm.nranks][life.speaker].append(life)
    for size, speakers in by_size.items():
        counts = {len(own) for own in speakers.values()}
        full = len(speakers) == size or (len(speakers) < size == largest)
        if len(counts) != 1 or not full:
            continue
        for k, members in enumerate(zip(*speakers.values(), strict=True)):
            ranks = [life.comm.rank for life in members if life.comm.rank is not None]
            if len(set(ranks)) == len(ranks):
                for life in members:
                    life.identity = f"{size} ranks #{k}"
