"""Logs of one communicator that share no operation, held against each other by NCCL's opCount.

opCount is no sequence number: from 2.12 on it counts launches, from 2.27 on only those that need a proxy. But where
lines have no other place, ranks that did other things at every count they share are worth a hint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rankscope.assemble.logs.log_processes import Life, Scene
from rankscope.assemble.logs.seq_numbering import Numbering
from rankscope.parsers.columnar import NULL
from rankscope.parsers.logs.model import IS_P2P

LEAST = 2
"""So many counts must be shared."""
MOST_ROWS = 1000
MOST_LIVES = 64


class _Row(NamedTuple):
    op: str
    line: int


def differing(scene: Scene, numbering: Mapping[tuple[int, int], Numbering]) -> list[dict[str, Any]]:
    """Rows of `messages` for ranks that did something else at each count they share with another of the group."""
    out: list[dict[str, Any]] = []
    for lives in scene.identities().values():
        placed = [life.pieces[-1] for life in lives if None not in (life.group, life.rank)][:MOST_LIVES]
        lost = [life for life in placed if (life.log, life.at) not in numbering]
        if lost:
            out += _of_group(scene, lost, placed)
    return out


def _of_group(scene: Scene, lost: Sequence[Life], placed: Sequence[Life]) -> list[dict[str, Any]]:
    rows = {life.index: _rows(scene, life) for life in placed}
    found = []
    for life in lost:
        own = rows[life.index]
        for other in (one for one in placed if one is not life):
            shared = sorted(own.keys() & rows[other.index].keys())
            if len(shared) >= LEAST and all(own[n].op != rows[other.index][n].op for n in shared):
                found.append(_message(scene, life, own[shared[0]], other, rows[other.index][shared[0]], shared[0]))
                break
    return found


def _rows(scene: Scene, life: Life) -> dict[int, _Row]:
    """By opCount the last collectives of a life; none unless the counts rise."""
    content = scene.logs[life.log].content
    # operations of a communicator stand together
    comm = content.code("comm")
    first, last = np.searchsorted(comm, np.array([life.at, life.at + 1], comm.dtype))
    mine = first + np.flatnonzero((content.code("flags")[first:last] & IS_P2P) == 0)[-MOST_ROWS:]
    counts = content.column("op_count")[mine]
    if len(counts) < LEAST or (counts == NULL).any() or not (np.diff(counts) > 0).all():
        return {}
    ops, lines = content.code("op")[mine], content.column("line")[mine]
    return {
        count: _Row(content.ops[op], line)
        for count, op, line in zip(counts.tolist(), ops.tolist(), lines.tolist(), strict=True)
    }


def _message(scene: Scene, life: Life, own: _Row, other: Life, theirs: _Row, count: int) -> dict[str, Any]:
    text = f"rank {life.rank} called {own.op} and rank {other.rank} {theirs.op} at opCount {count:x}"
    values = {"op_count": count, "op": own.op, "other_op": theirs.op, "other_rank": other.rank}
    return {
        "file": scene.logs[life.log].place, "line": own.line, "rank": life.rank, "group": life.group,
        "kind": "log-counts", "text": text, "values": values,
    }  # fmt: skip
