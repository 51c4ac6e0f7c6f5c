"""Communicators that are gone: a job that makes and destroys them all day must not fill the memory with them."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.parsers.logs.model import Comm
from rankscope.parsers.logs.nccl.init import ENDED

MOST_COMMS = 20_000
"""With more of one log, those that ended first are forgotten."""


def kept_comms(rows: Sequence[Comm]) -> list[int] | None:
    """Which of the communicators of a log, in its order, are kept; None for all.

    Kept are those that live, of each process the first of each size, by which ranks are told, and splits whose place is
    only known by counting those before them.
    """
    if len(rows) <= MOST_COMMS:
        return None
    last = {(row.process, row.pointer): at for at, row in enumerate(rows)}
    first: dict[tuple[int, int | None], int] = {}
    for at, row in enumerate(rows):
        first.setdefault((row.process, row.nranks), at)
    spared = {*first.values(), *(row.parent_comm for row in rows if row.parent_comm is not None)}
    gone = [
        at for at, row in enumerate(rows)
        if (row.state in ENDED or last[row.process, row.pointer] != at) and at not in spared
        and not (row.parent and row.split is None)
    ]  # fmt: skip
    dropped = {*gone[: len(rows) - MOST_COMMS // 2]}
    return [at for at in range(len(rows)) if at not in dropped] if dropped else None
