"""Communicators that go on in the next file: the log was rotated, and the lines of their initialisation are in it.

That files follow each other their names tell; that it is the same communicator, host, process id and address do, if
the older file has not seen its end and the newer one not its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.assemble.logs.log_processes import Life, Log
from rankscope.assemble.logs.rotated import Series
from rankscope.parsers.columnar import NULL, Numbers
from rankscope.parsers.logs.join import continues, joined
from rankscope.parsers.logs.model import Comm


def join(series: Series, lives: Sequence[Life], logs: Sequence[Log]) -> None:
    """Makes pieces of one life of those that are, and finds the parents of splits in the files before.

    `lives` are those of the logs of the series, in the order in which they were printed.
    """
    last: dict[tuple[int, str], Life] = {}
    of_piece: dict[int, Life] = {}
    for life in lives:
        key = life.speaker, life.comm.pointer
        if life.comm.parent and life.parent is None:
            life.parent = last.get((life.speaker, life.comm.parent))
        head = last.get(key)
        if head is None or not continues(head.comm, life.comm):
            last[key] = life if head is None or not _repeats(head.comm, life.comm) else _fuller(head, life)
            continue
        between = range(series.members.index(head.pieces[-1].log) + 1, series.members.index(life.log) + 1)
        gap = any(series.members[i] in series.behind_gaps for i in between)
        _go_on(head, life, adrift=gap or _jumps(head, life, logs))
        of_piece[id(life)] = head
    for life in lives:
        if life.parent is not None:
            life.parent = of_piece.get(id(life.parent), life.parent)


def _go_on(head: Life, life: Life, *, adrift: bool) -> None:
    newest = head.pieces[-1]
    life.before = newest.before[0] + newest.comm.collectives, newest.before[1] + newest.comm.p2p
    life.goes_on, life.adrift = True, adrift or newest.adrift
    head.comm = joined(head.comm, life.comm)
    life.comm = filled(life.comm, head.comm)
    head.rest.append(life)


def _repeats(comm: Comm, other: Comm) -> bool:
    """Whether both begin with the same line: the file is being copied, to be emptied then."""
    same = (comm.offset, comm.line, comm.comm_id) == (other.offset, other.line, other.comm_id)
    return same and comm.init and other.init


def _fuller(one: Life, other: Life) -> Life:
    """Of two that tell the same the one that tells more; the other counts no more."""
    best, rest = (one, other) if one.told >= other.told else (other, one)
    for piece in rest.pieces:
        piece.twin = True
    return best


def _jumps(head: Life, life: Life, logs: Sequence[Log]) -> bool:
    """Whether opCount, where it rises at all, goes on otherwise than it does within the files."""
    first, newer = life.comm.first_op_count, _op_counts(life, logs)
    older = next((found for piece in reversed(head.pieces) if len(found := _op_counts(piece, logs))), newer[:0])
    if first is None or not len(older) or NULL in older or NULL in newer:
        return False
    step = max(int(np.diff(older).max(initial=0)), int(np.diff(newer).max(initial=0)))
    return step > 0 and not 0 <= first - int(older[-1]) <= step


def _op_counts(life: Life, logs: Sequence[Log]) -> Numbers:
    content = logs[life.log].content
    first, behind = np.searchsorted(content.code("comm"), [life.at, life.at + 1])
    return content.column("op_count")[first:behind]


def filled(comm: Comm, other: Comm) -> Comm:
    """The one with what only the other tells."""
    names = ("rank", "nranks", "device", "comm_id", "parent", "split", "color", "started", "completed")
    told = {n: getattr(other, n) for n in names if getattr(comm, n) in (None, "")}
    return comm._replace(**told)
