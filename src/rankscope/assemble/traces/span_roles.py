"""Roles of events with or around operations: issued by the host, annotations, or runs on a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rankscope.assemble.traces.trace_window import Mask, TraceWindow
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.torch_profiler import event_names
from rankscope.parsers.torch_profiler.model import CALL_NUMBERS, TracedCall


@dataclass
class SpanRoles:
    """The candidates of a window, each a row of its `call_numbers`."""

    window: TraceWindow
    _told: dict[str, list[int]] = field(default_factory=dict)

    def number(self, name: str) -> Numbers:
        """A number column of the candidates."""
        column: Numbers = self.window.content.call_numbers[CALL_NUMBERS.index(name)]
        return column

    def column_list(self, name: str) -> list[int]:
        """A number column as a list, which is faster for single values."""
        if name not in self._told:
            self._told[name] = self.number(name).tolist()
        return self._told[name]

    @cached_property
    def span(self) -> Places:
        """Row of the window's spans."""
        return self.number("span")

    @cached_property
    def names(self) -> list[str]:
        """The name of each candidate."""
        table = self.window.content.names
        return [table[i] for i in self.window.content.code("name")[self.span].tolist()]

    @cached_property
    def calls(self) -> list[TracedCall]:
        """The call of each candidate."""
        table = self.window.content.calls
        return [table[i] for i in self.window.content.call_codes[0].tolist()]

    def _by_name(self, wanted: set[str]) -> Mask:
        table = self.window.content.names
        hits = np.array([name in wanted for name in table], np.bool_)
        return hits[self.window.content.code("name")[self.span]] if len(self.span) else np.empty(0, np.bool_)

    @cached_property
    def _device(self) -> Mask:
        lanes = self.window.content.code("lane")[self.span]
        return self.window.on_device[lanes] if len(lanes) else np.empty(0, np.bool_)

    @cached_property
    def comms(self) -> Places:
        """Rows of record_param_comms."""
        return np.flatnonzero(self._by_name({event_names.PARAM_COMMS}) & ~self._device)

    @cached_property
    def annotations(self) -> Places:
        """Rows of annotations such as nccl:all_reduce."""
        wanted = {name for name in self.window.content.names if event_names.ANNOTATION_NAME.match(name)}
        return np.flatnonzero(self._by_name(wanted) & ~self._device)

    @cached_property
    def operators(self) -> Places:
        """Rows of c10d's operators."""
        wanted = {name for name in self.window.content.names if event_names.ISSUED_NAME.match(name)}
        return np.flatnonzero(self._by_name(wanted) & ~self._device)

    @cached_property
    def runs(self) -> Places:
        """Rows of kernels that run collectives."""
        wanted = {name for name in self.window.content.names if event_names.is_run(name)}
        table = self.window.content.calls
        says_so = np.array([call.collective is not None for call in table], np.bool_)
        codes = self.window.content.call_codes[0]
        said = says_so[codes] if len(codes) else np.empty(0, np.bool_)
        return np.flatnonzero((self._by_name(wanted) | said) & self._device)

    def within(self, inner: Places, outer: Places) -> Places:
        """For each row of `inner` the index in `outer` of the span around it on its thread; -1 without one."""
        w = self.window
        return enclosing_spans(w.track.astype(np.int64), w.start, w.end, self.span[inner], self.span[outer])

    def launched_by(self, runs: Places, issues: Places) -> Places:
        """For each kernel the index in `issues` of the row in which the host launched it; -1 if unknown."""
        found = self._by_id(runs, issues)
        left = np.flatnonzero(found < 0)
        found[left] = self._by_launch(runs[left], issues)
        return found

    def _by_id(self, runs: Places, issues: Places) -> Places:
        external, correlation = self.number("external"), self.number("correlation")
        described = np.array([self.calls[run].collective is not None for run in runs.tolist()], np.bool_)
        # before kernels had arguments, their id was their own correlation
        told = (external[runs] != NULL) & (described | (external[runs] != correlation[runs]))
        place = table_places(external[runs], external[issues])
        same = np.array(
            [
                at >= 0 and self.calls[run].collective in (None, self.calls[issues[at]].collective)
                for run, at in zip(runs.tolist(), place.tolist(), strict=True)
            ],
            np.bool_,
        )
        return np.where(told & same, place, -1)

    def _by_launch(self, runs: Places, issues: Places) -> Places:
        """As `launched_by`, from the runtime's call that started the kernel: it lies within one of the rows."""
        w = self.window
        correlation = w.content.column("correlation")
        lanes = w.content.code("lane")
        hosts = np.flatnonzero((correlation != NULL) & ~w.on_device[lanes]) if len(lanes) else np.empty(0, np.int64)
        at = table_places(self.number("correlation")[runs], correlation[hosts])
        known = np.flatnonzero((at >= 0) & (self.number("correlation")[runs] != NULL))
        found = np.full(len(runs), -1, np.int64)
        found[known] = enclosing_spans(w.track.astype(np.int64), w.start, w.end, hosts[at[known]], self.span[issues])
        return found


# Enclosing spans on the same track.

Places = npt.NDArray[np.int64]


def enclosing_spans(track: Places, start: Numbers, end: Numbers, inner: Places, outer: Places) -> Places:
    """For each span of `inner` the index in `outer` of the last begun span that covers it; -1 without one.

    `inner` and `outer` are rows of `track`, `start` and `end`. Only the last begun span is checked, because spans
    around operations are not nested.
    """
    rows, own = np.concatenate([outer, inner]), len(outer)
    order = np.lexsort((np.arange(len(rows)) >= own, start[rows], track[rows]))
    last = np.maximum.accumulate(np.where(order < own, np.arange(len(rows)), -1))
    before = np.full(len(rows), -1, np.int64)
    before[order] = np.where(last >= 0, order[last], -1)
    found = before[own:]
    rival = outer[np.maximum(found, 0)] if own else inner
    covers = (found >= 0) & (track[rival] == track[inner]) & (end[rival] >= end[inner])
    return np.where(covers, found, -1)


def table_places(values: Numbers, table: Numbers) -> Places:
    """For each value its index in `table`; -1 without one."""
    found = np.full(len(values), -1, np.int64)
    if not len(table):
        return found
    order = np.argsort(table, kind="stable")
    at = np.minimum(np.searchsorted(table[order], values), len(table) - 1)
    place = order[at]
    found[table[place] == values] = place[table[place] == values]
    return found
