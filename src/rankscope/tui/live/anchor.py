"""Keeps the view in its place when the lanes are made anew: on the same rank, collective and finding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis, Finding
from rankscope.tui.board import Board
from rankscope.tui.model import Model
from rankscope.tui.times import Times


def shift(before: Model, after: Model, column: int) -> int:
    """By how many columns the collectives around a column have moved; those of the past are let go by a ring.

    Where no collective is in both, what stood there is gone: then the newest column stays the newest.
    """
    known = _named(before).join(_named(after), on=["name", "ranks", "seq"], suffix="_after")
    if known.is_empty():
        return after.width - before.width
    columns, moved = known["col"].to_numpy(), known["col_after"].to_numpy()
    nearest = int(np.argmin(np.abs(columns.astype(np.int64) - column)))
    return int(moved[nearest]) - int(columns[nearest])


def _named(model: Model) -> pl.DataFrame:
    """The collectives of a model by what they are called in every model."""
    members = pl.col("ranks").cast(pl.List(pl.String)).list.join(",")
    groups = model.dataset.groups.select("group", "name", members.alias("ranks"))
    return model.instances.select("group", "seq", "col").join(groups, on="group")


def carry(board: Board, model: Model, times: Times | None) -> None:
    """Shows a newer model on a board, everything else as it was: cursor, zoom, marker, order, what is unfolded."""
    kind = board.view.kind
    moved = shift(board.model, model, board.unit) if kind == "sequence" else 0
    board.unit += moved
    board.marker = None if board.marker is None else board.marker + moved
    if kind == "sequence":
        board.view = replace(board.view, first=board.view.first + moved)
    board.before = [replace(v, first=v.first + moved) if v.kind == "sequence" else v for v in board.before]
    board.replace_model(model, times)
    board.unit = max(board.low, min(board.unit, board.high - 1))
    board.look_at(board.view)


def same_finding(before: Analysis, index: int | None, after: Analysis) -> int | None:
    """Where the finding that is shown stands now; None where it stands no more."""
    if index is None or index >= len(before.findings):
        return None
    shown = before.findings[index]
    return next((at for at, finding in enumerate(after.findings) if _identity(finding) == _identity(shown)), None)


def _identity(finding: Finding) -> tuple[object, ...]:
    group = finding.group and (finding.group.id, finding.group.ranks)
    return finding.kind, finding.culprit_ranks, group, finding.seq


def first_finding(analysis: Analysis) -> int | None:
    """The finding to be shown of a job that is watched: none while there is nothing worse than a doubt."""
    return 0 if analysis.findings and analysis.findings[0].severity != "info" else None
