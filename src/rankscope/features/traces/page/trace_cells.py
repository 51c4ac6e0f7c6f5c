"""The cells of the lanes of traces as characters and styles, made from arrays only: no widget, no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.features.traces.page.activity import (
    BOTH,
    CODE_OF_BOTH,
    CODE_OF_SPARSE,
    COMMUNICATION,
    COMPUTE,
    COUNT,
    HOST_KINDS,
    IDLE,
    KINDS,
    MEMORY,
    SPARSE,
    WINDOW,
)
from rankscope.features.traces.page.busy_time import Cover
from rankscope.tui.lane_cells import LaneCells
from rankscope.tui.letters import BUSY, FAINT, THIN, Codes

Ints = NDArray[np.int64]
Shares = NDArray[np.float32]
"""Covered share of each cell, from 0 to 1, as rows x cells."""
LITTLE, SEEN = 0.02, 0.05
"""Shares of a cell from which it is not idle, and from which a collective is shown beside computing."""
TOGETHER = 1.5
"""Sum of two shares from which both activities certainly ran at once for half of the cell."""
_NOTHING = 0
"""The code of cells without activity."""


def _table(kind: str) -> Codes:
    out = np.full(COUNT + 2, ord(IDLE) if kind == "letter" else FAINT, np.uint8)
    for activity, shown in KINDS.items():
        out[activity] = ord(shown.letter) if kind == "letter" else shown.style
    out[CODE_OF_BOTH], out[CODE_OF_SPARSE] = (ord(BOTH), ord(SPARSE)) if kind == "letter" else (BUSY, THIN)
    return out


_LETTERS, _STYLES = _table("letter"), _table("style")


class Asked(NamedTuple):
    """The activities that a row shows, of a lane of `TraceLanes.key_of`."""

    lane: int
    activities: tuple[int, ...] = tuple(KINDS)


def draw(cover: Cover, key_of: NDArray[np.int32], rows: Sequence[Asked], edges: Ints) -> LaneCells:
    """The cells of some rows; edges are rows x (cells + 1) in nanoseconds."""
    shares = covered(cover, key_of, rows, edges)
    codes = judged(shares, (len(rows), edges.shape[1] - 1))
    text = _LETTERS[codes]
    outside = shares[WINDOW] <= 0 if WINDOW in shares else np.ones(codes.shape, np.bool_)
    blank = outside & (codes == _NOTHING)
    styles = np.where(blank, 0, _STYLES[codes]).astype(np.uint8)
    return LaneCells(np.where(blank, np.uint8(ord(" ")), text), styles, codes)


def covered(cover: Cover, key_of: NDArray[np.int32], rows: Sequence[Asked], edges: Ints) -> dict[int, Shares]:
    """By activity of any of the rows, the covered share of each cell."""
    wanted = np.zeros((len(rows), COUNT), np.bool_)
    for at, row in enumerate(rows):
        wanted[at, [WINDOW, *row.activities]] = True
    keys = np.where(wanted, key_of[[row.lane for row in rows]], -1) if rows else np.zeros((0, COUNT), np.int32)
    row_at, activity_at = np.nonzero(keys >= 0)
    found = cover.within(keys[row_at, activity_at].astype(np.int64), edges[row_at])
    share = (found / np.maximum(np.diff(edges, axis=1), 1)[row_at]).astype(np.float32)
    shape = (len(rows), edges.shape[1] - 1)
    out: dict[int, Shares] = {}
    for activity in np.unique(activity_at).tolist():
        of = activity_at == activity
        whole = out[activity] = np.zeros(shape, np.float32)
        whole[row_at[of]] = share[of]
    return out


def judged(shares: dict[int, Shares], shape: tuple[int, int]) -> Codes:
    """The code of each cell: the most important of the activities that cover it.

    Activities of devices come before those of hosts, and a collective that nothing hides comes before computing.
    """
    none = np.zeros(shape, np.float32)
    computing, moving = shares.get(COMPUTE, none), shares.get(MEMORY, none)
    kinds = [a for a in COMMUNICATION if a in shares]
    talking: Shares = np.clip(np.sum([shares[a] for a in kinds], axis=0), 0, 1) if kinds else none
    codes = _host_code(shares, none)
    codes = np.where(moving >= LITTLE, MEMORY, codes)
    codes = np.where(computing >= LITTLE, np.where(computing >= 0.5, COMPUTE, CODE_OF_SPARSE), codes)
    if kinds:
        most = np.array(kinds)[np.argmax([shares[a] for a in kinds], axis=0)]
        shown = (talking >= SEEN) & ((computing < 0.5) | (talking >= computing))
        codes = np.where(shown | ((talking >= LITTLE) & (computing < LITTLE)), most, codes)
        codes = np.where(talking + computing >= TOGETHER, CODE_OF_BOTH, codes)
    return codes.astype(np.uint8)


def _host_code(shares: dict[int, Shares], none: Shares) -> NDArray[np.int64]:
    """The activity of a host: the innermost that takes half of the host's busy time."""
    busy: Shares = np.max([shares.get(a, none) for a in HOST_KINDS], axis=0)
    out = np.full(none.shape, _NOTHING)
    for activity in HOST_KINDS:
        if activity in shares:
            out = np.where(shares[activity] >= np.maximum(busy / 2, LITTLE), activity, out)
    rest = np.array(HOST_KINDS)[np.argmax([shares.get(a, none) for a in HOST_KINDS], axis=0)]
    return np.where((busy >= LITTLE) & (out == _NOTHING), rest, out)
