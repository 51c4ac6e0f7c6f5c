"""Kinds of lanes that features draw on the axis of time, beside the lanes of operations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardKind:
    """Lanes of a feature, for inputs with rows in its table.

    Functions and classes are named "module:name", with their module below `rankscope`.
    """

    table: str
    """Table of the dataset; without rows in it, there are no such lanes."""
    lanes: str
    """Function of a dataset and its analysis: the `TimedLanes`, made in a thread."""
    run: str
    """Function of a dataset without operations, and its analysis: one with the operations that these lanes know."""
    board: str
    """Class of the `LaneBoard` of such lanes and a model."""
    title: str
    """Heading of its letters in the help."""
    letters: str
    """Function without arguments: the letters of its cells, and their meaning."""


BOARDS: tuple[BoardKind, ...] = (
    BoardKind(
        table="traces",
        lanes="features.traces.page.lanes:build_lanes",
        run="features.traces.page.lanes:traced_run",
        board="features.traces.page.shown_traces:ShownTraces",
        title="Lanes of profiler traces",
        letters="features.traces.page.activity:letters",
    ),
)
"""The first kind with rows in its table is shown."""
