"""Recogniser of events in the records of a log."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Protocol

from rankscope.features.logs.read import comm_lives
from rankscope.features.logs.read.c10d import (
    ascend,
    collect_env,
    desync,
    endings,
    group_setup,
    library_lines,
    memory_summaries,
    pod_reports,
    straggler_reports,
    thread_dumps,
    torchrun,
    tracebacks,
    watchdog,
)
from rankscope.features.logs.read.c10d.known_errors import KnownError, KnownErrors, WordScreen, packaged_table
from rankscope.features.logs.read.chat_lines import is_chat
from rankscope.features.logs.read.log_record import PYTEST_MARK, TEXT_LIMIT, Event, Record
from rankscope.text.secrets import clip

OPEN_LIMIT = 1 << 16
_BULK = " opCount "
"""Mark of NCCL's COLL debugging, up to gigabytes: such lines hold no event."""
_REPORTER = re.compile(r"\bRank \d{1,9}\]?\s*$")
_RANK = re.compile(r"\[rank\d+\]: ?|\[[A-Z_]+\d+(?: [A-Z_]+\d+)*\] ")
"""Names of processes before a line, which the lines below it lack: `[rank3]: ` of torch, `[DP1 TP2] ` of SGLang."""
_LINES = (watchdog, group_setup, endings, library_lines, comm_lives, torchrun, ascend, pod_reports)
_SPANS = (
    thread_dumps,
    tracebacks,
    torchrun,
    desync,
    straggler_reports,
    collect_env,
    library_lines,
    memory_summaries,
    endings,
    pod_reports,
)


class Recogniser:
    """Finds the events of one file, from its records in order; lines above a report may come late.

    Lines of several ranks may be mixed: reports of several lines are followed in each stream, which has a rank and a
    launcher's prefix. Many records at a time are fastest.
    """

    def __init__(self, table: Sequence[KnownError] | None = None) -> None:
        self._known = KnownErrors(packaged_table() if table is None else table)
        words = (word for module in (*_LINES, *_SPANS) for word in module.LITERALS)
        self._screen = WordScreen((*words, *tracebacks.SIGN_LITERALS, *self._known.literals))
        self._open: defaultdict[tuple[int | None, str], list[_OpenReport]] = defaultdict(list)
        self._opened = 0
        self._maybe: list[Record] = []
        self._above: Record | None = None
        self._code = tracebacks.CodeLines()
        self._signs, self._steps = tracebacks.SignReader(), tracebacks.StepReader()

    @property
    def has_open(self) -> bool:
        """Whether a report is open that any line may belong to."""
        return self._opened > 0

    @property
    def wants_steps(self) -> bool:
        """Whether steps after an error are searched."""
        return self._steps.active

    @property
    def literals(self) -> Sequence[str]:
        """Words of events; a line without any matters only to open reports."""
        return self._screen.literals

    def feed(self, record: Record) -> list[Event]:
        """The events that are complete with this record."""
        return self.feed_all([record])

    def feed_all(self, records: Sequence[Record]) -> list[Event]:
        """The events that are complete with these records, not sorted by place."""
        some = [r for r in records if _BULK not in r.text or r.torn]
        some = [r if len(r.text) <= TEXT_LIMIT else r._replace(text=clip(r.text, TEXT_LIMIT), torn=True) for r in some]
        found: list[Event] = []
        for record, wanted in zip(some, self._screen.many([r.text for r in some]), strict=True):
            if wanted or self._opened:
                found += self._line(record, wanted)
            if self._steps.active:
                found += self._steps.events(record)
            self._signs.note(record)
            self._above = record
        known, self._maybe = self._maybe, []
        return found + self._known.events(known)

    def finish(self) -> list[Event]:
        """Events of reports that were open at the end."""
        left = [event for opened in self._open.values() for one in opened for event in one.span.result()]
        self._open.clear()
        self._opened = 0
        return left

    def _line(self, record: Record, wanted: bool) -> Iterator[Event]:
        if library_lines.is_artifact(record.text):
            yield from library_lines.events(record)
            return
        record, span = self._of_exception(tracebacks.unmarked(record)), None
        if wanted and self._code.has(record):
            return
        if self._opened:
            span, over = self._continued(record)
            yield from over
        if not wanted or (span is not None and span.quotes):
            return
        if span is None and is_chat(record):
            # it may name the rank of the stack below it
            yield from self._begun(record, (thread_dumps,))
            return
        if span is None:
            yield from self._begun(record)
        elif isinstance(span, tracebacks.Traceback) and (listed := _begun_below(record)) is not None:
            self._open[_stream(record)].append(_OpenReport(listed, record.line))
            self._opened += 1
        if isinstance(span, tracebacks.Traceback) and span.survived:
            return
        rank = span.named_rank if span is not None else None
        passed = isinstance(span, tracebacks.Traceback) or record.rank is None
        record = record._replace(rank=rank) if passed and rank is not None else record
        for module in (m for m in _LINES if any(word in record.text for word in m.LITERALS)):
            for event in module.events(record):
                in_traceback = isinstance(span, tracebacks.Traceback)
                yield event._replace(values={**event.values, "in_traceback": in_traceback})
        self._maybe.append(record)
        if span is None and self._known.may_accuse(record.text):
            self._steps.begin(record)

    def _of_exception(self, record: Record) -> Record:
        """The record; behind the exception of a process whose rank it tells, as a line of that exception's message."""
        process = ascend.process_of(record) if self._opened else None
        if process is None:
            return record
        bare = ascend.without_process(record)
        for rank in (None, record.rank):
            inside = bare._replace(rank=rank)
            for report in reversed(self._open.get(_stream(inside), ())):
                if isinstance(report.span, tracebacks.Traceback) and report.span.takes_process(inside, *process):
                    return inside
        return record

    def _continued(self, record: Record) -> tuple[LineReport | None, list[Event]]:
        """The report that takes a record, and the events of the reports that end with it."""
        events: list[Event] = []
        stream = self._open.get(_stream(record))
        for one in tuple(reversed(stream or ())):
            if record.line < one.line:
                # a line above another report, read late
                continue
            if one.span.consumes(record):
                one.missed = 0
                return one.span, events
            one.missed += 1
            if one.missed > one.span.patience:
                events += self._close(stream or [], one)
        return None, events

    def _close(self, stream: list[_OpenReport], one: _OpenReport) -> list[Event]:
        stream.remove(one)
        self._opened -= 1
        return one.span.result()

    def _begun(self, record: Record, modules: Sequence[ModuleType] = _SPANS) -> Iterator[Event]:
        words = f"{PYTEST_MARK}{record.text}" if record.label.endswith(PYTEST_MARK) else record.text
        for module in (m for m in modules if any(word in words for word in m.LITERALS)):
            span = module.begins(self._attributed(record) if module is desync else record)
            if span is None or (
                module is tracebacks and tracebacks.is_bare_exception(record) and self._is_recognised(record)
            ):
                continue
            bare = (
                module is desync
                or (module is tracebacks and record.stamp is not None and tracebacks.inline(record))
                or (module is thread_dumps and thread_dumps.heads_other_lines(record))
            )
            stream = self._open[_stream(record._replace(rank=None) if bare else record)]
            if isinstance(span, tracebacks.Traceback):
                span.sign = self._signs.of(record)
                if not span.quotes:
                    self._steps.begin(record)
                span.beside([one.span for one in stream if isinstance(one.span, tracebacks.Traceback)])
            stream.append(_OpenReport(span, record.line))
            self._opened += 1
            if self._opened > OPEN_LIMIT:
                yield from self._close(stream, stream[0])

    def _is_recognised(self, record: Record) -> bool:
        """Whether other events tell what a line says."""
        events_say = any(True for module in _LINES for _ in module.events(record))
        return events_say or any(event.values["role"] in ("root", "victim") for event in self._known.events([record]))

    def _attributed(self, record: Record) -> Record:
        """A line without a rank, with the rank of the line above if that ends with the reporter's rank."""
        above = self._above
        if above is None or record.rank is not None or above.line + 1 != record.line:
            return record
        if _stream(above)[1] != _stream(record)[1] or not _REPORTER.search(above.text[-40:]):
            return record
        return record._replace(rank=above.rank, stamp=above.stamp)


def _begun_below(record: Record) -> LineReport | None:
    """A report that stands below an exception: Ray's list of dead workers, or a summary of memory."""
    return library_lines.begins(record) or memory_summaries.begins(record)


def _stream(record: Record) -> tuple[int | None, str]:
    """The stream of a line: its rank, and its prefix without the rank and without blanks, which may be the line's."""
    return record.rank, _RANK.sub("", record.label).rstrip()


class _OpenReport:
    """An open report, the line where it begins, and the number of other lines in a row."""

    def __init__(self, span: LineReport, line: int) -> None:
        self.span, self.line = span, line
        self.missed = 0


class LineReport(Protocol):
    """An open report over several lines."""

    @property
    def patience(self) -> int:
        """Most lines of its stream that may come between two of its own."""

    @property
    def quotes(self) -> bool:
        """Whether the last line is code or a frame, not a message."""

    @property
    def named_rank(self) -> int | None:
        """The global rank that the current lines name."""

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to the report; reads it if so."""

    def result(self) -> list[Event]:
        """The finished events."""
