"""Activity of the host of a rank at given times: the innermost span, and the Python functions around it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.traces.device_spans import is_among
from rankscope.analysis.traces.lateness import STEP_NAME

_BUILT_IN = re.compile(r"^<built-in (?:method|function) (.*?)(?: of .*)?>$")
_FUNCTION = re.compile(r"^(.*)\((\d+)\): (.*)$")
_ACTIVITIES = (
    (re.compile(r"data_?load|dataset|_next_data|__next__|collate|prefetch", re.IGNORECASE), "data loading"),
    (re.compile(r"\bgc\b|garbage|^<built-in (?:function|method) collect\b", re.IGNORECASE), "garbage collection"),
    (re.compile(r"checkpoint|save_state|torch\.save|state_dict", re.IGNORECASE), "checkpointing"),
    (re.compile(r"compile|dynamo|inductor", re.IGNORECASE), "compiling"),
    (re.compile(r"print|logging|wandb|tensorboard", re.IGNORECASE), "logging"),
)  # fmt: skip
"""Activities by patterns of span names."""
_LONGEST_NAME = 60


@dataclass(frozen=True)
class HostTime:
    """The main thread of one file: the one that marks steps, else the busiest."""

    spans: pl.DataFrame
    parents: Ints

    @classmethod
    def of(cls, host: pl.DataFrame) -> HostTime:
        """The main thread from the host's spans of a file, sorted by track and start."""
        names = [name for name in host["name"].unique().cast(pl.String) if STEP_NAME.match(name)]
        steps = host.filter(is_among("name", names))["track"]
        tracks = steps if len(steps) else host["track"]
        main = host.filter(pl.col("track") == tracks.mode().sort()[0]) if len(tracks) else host
        return cls(main, _parents(main["depth"].to_numpy().astype(np.int64)))

    def innermost(self, times: Ints) -> Ints:
        """For each time the index of the innermost running span; -1 without one."""
        starts, ends = self.spans["start_ns"].to_numpy(), self.spans["end_ns"].to_numpy()
        at = np.searchsorted(starts, times, side="right") - 1
        while True:
            over = (at >= 0) & (ends[np.maximum(at, 0)] <= times)
            if not over.any():
                return at
            at[over] = self.parents[at[over]]

    def stack(self, place: int) -> list[tuple[int, str, str]]:
        """(row, category, name) of the span and those around it, innermost first."""
        out = []
        while place >= 0:
            row, category, name = self.spans.select("row", "category", "name").row(place)
            out.append((row, category, name))
            place = int(self.parents[place])
        return out


def _parents(depth: Ints) -> Ints:
    """For each span the index of its parent: the last earlier span with a depth less by one."""
    out = np.full(len(depth), -1, np.int64)
    before = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        at = np.searchsorted(before, here) - 1
        out[here] = np.where(at >= 0, before[np.maximum(at, 0)], -1) if len(before) else -1
        before = here
    return out


def span_text(name: str) -> str:
    """The name of a span for people: "sleep" for a built-in, "load (data.py:12)" for a Python function."""
    built_in = _BUILT_IN.match(name)
    if built_in:
        return built_in[1]
    function = _FUNCTION.match(name)
    if function:
        return f"{function[3]} ({function[1].rpartition('/')[2]}:{function[2]})"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def activity_name(names: list[str]) -> str:
    """The activity that the names of a stack show, innermost first; "" if there is none."""
    return next((what for name in names for pattern, what in _ACTIVITIES if pattern.search(name)), "")
