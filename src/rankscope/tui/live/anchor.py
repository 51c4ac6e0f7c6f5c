"""Keeps the view in its place after an update of the lanes: on the same rank, collective and finding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope.analysis.model import Analysis, Finding
from rankscope.schema import Dataset
from rankscope.tui.board import Board
from rankscope.tui.model import Ints, Model
from rankscope.tui.times import Times


def shift(before: Model, after: Model, column: int, reference: tuple[int, int] | None = None) -> int:
    """Number of columns by which the collectives around a column have moved; the ring drops old ones.

    The `reference` is a group and a sequence number; if it no longer exists, the nearest counts: collectives of one
    column may move differently. If no collective is in both, the old place is gone: then the newest column stays the
    newest.
    """
    was, now = _collectives(before), _collectives(after)
    group_after = _groups_after(before.dataset, after.dataset)
    if reference is not None and 0 <= reference[0] < len(group_after) and group_after[reference[0]] >= 0:
        stood, stands = _column(was, *reference), _column(now, int(group_after[reference[0]]), reference[1])
        if stood is not None and stands is not None:
            return stands - stood
    away = np.abs(was[2] - column)
    was[0] = group_after[was[0]]
    away, was = away[was[0] >= 0], was[:, was[0] >= 0]
    numbers, number = np.unique(np.concatenate([was[1], now[1]]), return_inverse=True)
    named = was[0] * len(numbers) + number[: was.shape[1]]
    named_now = now[0] * len(numbers) + number[was.shape[1] :]
    _, at, at_now = np.intersect1d(named, named_now, assume_unique=True, return_indices=True)
    if not len(at):
        return after.width - before.width
    nearest = np.argmin(away[at])
    return int(now[2][at_now[nearest]]) - int(was[2][at[nearest]])


def _collectives(model: Model) -> Ints:
    """Group, sequence number and column of each collective, as three rows of the array."""
    return np.stack([model.instances[name].to_numpy().astype(np.int64) for name in ("group", "seq", "col")])


def _column(collectives: Ints, group: int, seq: int) -> int | None:
    at = np.flatnonzero((collectives[0] == group) & (collectives[1] == seq))
    return int(collectives[2][at[0]]) if len(at) else None


def _groups_after(before: Dataset, after: Dataset) -> Ints:
    """The later number of each group, by its name and members; -1 if it is gone."""
    if before.groups.equals(after.groups):
        return np.arange(before.groups.height)
    number = {(group.name, group.ranks): group.id for group in after.group_list}
    return np.array([number.get((group.name, group.ranks), -1) for group in before.group_list], np.int64)


def carry(board: Board, model: Model, times: Times | None) -> None:
    """Shows a newer model on a board and keeps cursor, zoom, marker, order and unfolded rows."""
    kind = board.view.kind
    moved = shift(board.model, model, board.unit, _under_cursor(board)) if kind == "sequence" else 0
    board.unit += moved
    board.marker = None if board.marker is None else board.marker + moved
    if kind == "sequence":
        board.view = replace(board.view, first=board.view.first + moved)
    board.before = [replace(v, first=v.first + moved) if v.kind == "sequence" else v for v in board.before]
    board.replace_model(model, times)
    board.unit = max(board.low, min(board.unit, board.high - 1))
    board.look_at(board.view)


def _under_cursor(board: Board) -> tuple[int, int] | None:
    """Group and sequence number of the collective under the cursor."""
    item, items = board.item, board.model.items
    return None if item is None or items.p2p[item] else (int(items.group[item]), int(items.seq[item]))


def same_finding(before: Analysis, index: int | None, after: Analysis) -> int | None:
    """The new index of the finding on the screen; None if it is gone."""
    if index is None or index >= len(before.findings):
        return None
    shown = before.findings[index]
    return next((at for at, finding in enumerate(after.findings) if _identity(finding) == _identity(shown)), None)


def _identity(finding: Finding) -> tuple[object, ...]:
    group = finding.group and (finding.group.id, finding.group.ranks)
    return finding.kind, finding.culprit_ranks, group, finding.seq


def first_finding(analysis: Analysis) -> int | None:
    """The first finding to show of a watched job: None if there is nothing worse than a doubt."""
    return 0 if analysis.findings and analysis.findings[0].severity != "info" else None
