"""Errors that did not end their process, and so are no cause."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from rankscope.analysis.model import Finding
from rankscope.features.logs.read.c10d.tracebacks import WARNED
from rankscope.features.logs.rules.failures import cut_text, find_tracebacks
from rankscope.features.logs.rules.log_lines import LogEvidence, LogLine, who_text
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Dataset
from rankscope.text.wording import plural

STEPS_OF_OTHERS = 3
"""Fewest different steps of other ranks after an exception that show that its rank takes part in them."""
MOST_SURVIVED = 4
_KILLED = 128
"""Exit codes from here on, and negative ones, are of signals."""


def part_survived(lines: Sequence[LogLine], dataset: Dataset) -> tuple[list[LogLine], list[LogLine]]:
    """(lines, survived errors); the lines lack these errors, the known errors in them, and the steps that prove it."""
    steps = [line for line in lines if line.kind == "step"]
    alone = _bare_errors(lines)
    threw = [
        line
        for line in lines
        if (line.file, line.offset) in alone or (EVENTS[line.kind].is_exception and not line.values.get("launcher"))
    ]
    if not threw:
        return [line for line in lines if line.kind != "step"], []
    comms = dataset.comms.drop_nulls(["file", "rank", "line"]).group_by("file", "rank").agg(pl.col("line").max())
    begun = {(file, rank): line for file, rank, line in comms.iter_rows()}
    judge = _SurvivalJudge(lines, steps, threw, begun)
    survived = [line for line in threw if judge.survived(line)]
    blamed = judge.blamed(survived)
    survived = [line for line in survived if (line.file, line.offset) not in blamed]
    gone = {(line.file, line.offset) for line in (*survived, *steps)}
    tracebacks = [line for line in survived if line.kind == "traceback"]
    if tracebacks:
        inside = find_tracebacks([*tracebacks, *(line for line in lines if line.pattern)])
        gone |= {(error.file, error.offset) for _, errors in inside for error in errors}
    return [_unproven(line) for line in lines if (line.file, line.offset) not in gone], survived


def _unproven(line: LogLine) -> LogLine:
    """An error that its process may have survived, which nothing shows."""
    if line.kind == "survived-exception":
        return replace(line, kind="traceback")
    if line.values.get("survived") == WARNED:
        doubt = "the program logged it as a warning: it may have skipped the batch"
        return replace(line, values={**line.values, "doubt": doubt})
    return line


def _bare_errors(lines: Sequence[LogLine]) -> set[tuple[int, int]]:
    """The places of errors without a traceback that accuse the rank that prints them: a program may go on after one."""
    errors = [
        line
        for line in lines
        if line.kind == "known-error"
        and line.role == "root"
        and line.values.get("accuses") == "self"
        and not line.is_kernel
    ]
    if not errors:
        return set()
    inside = {(error.file, error.offset) for _, errors in find_tracebacks(lines) for error in errors}
    return {(line.file, line.offset) for line in errors} - inside


def find_survived(logs: LogEvidence) -> Iterator[Finding]:
    """A note on survived errors."""
    if not logs.survived:
        return
    first = logs.survived[0]
    name = cut_text(first.text) if first.text else "an exception"
    others = len(logs.survived) - 1
    more = f" and {plural(others, 'more exception')}" if others else ""
    yield Finding(
        kind="known-error",
        severity="info",
        title=f"{who_text(logs.survived)} went on after {name} ({first.place}){more}",
        explanation=(
            "Python ignored these errors, a program logged them as harmless, or steps followed: they are no cause."
        ),
        evidence=tuple(line.evidence() for line in logs.survived[:MOST_SURVIVED]),
    )


def find_earlier_ends(logs: LogEvidence) -> Iterator[Finding]:
    """A note on earlier attempts of the job."""
    lines = [line for line in logs.lines if line.kind == "earlier-end"]
    if not lines:
        return
    lines.sort(key=lambda line: -int(line.values.get("attempt") or 0))
    last, number = lines[0], lines[0].values.get("attempt")
    others = f"; {plural(len(lines) - 1, 'more attempt')} before it" if len(lines) > 1 else ""
    yield Finding(
        kind="earlier-attempt",
        severity="info",
        title=f"attempt {number} ended before this one: {cut_text(last.text)} ({last.place}){others}",
        explanation="It is no part of this attempt, and no cause of it; --attempt shows it.",
        evidence=tuple(line.evidence(f"attempt {line.values.get('attempt')}: {line.text}") for line in lines),
    )


@dataclass(frozen=True)
class _SurvivalJudge:
    lines: Sequence[LogLine]
    steps: Sequence[LogLine]
    threw: Sequence[LogLine]
    begun: Mapping[tuple[int, int], int]
    """By file and rank the last line in which a communicator begins."""

    def survived(self, line: LogLine) -> bool:
        """Whether the process of an error survived it."""
        sign = line.values.get("survived")
        if sign == WARNED:
            later = any(s.file == line.file and s.offset > line.offset for s in self.steps)
            return (line.rank is None and later) or self._went_on(line) or self._others_went_on(line)
        signed = line.kind == "survived-exception" or bool(sign)
        return signed or self._went_on(line) or self._others_went_on(line)

    def blamed(self, survived: Sequence[LogLine]) -> set[tuple[int, int]]:
        """The last of them of each rank that ended with an error code and has no other traceback."""
        gone = {(line.file, line.offset) for line in survived}
        open_ = {line.who for line in self.threw if (line.file, line.offset) not in gone}
        last = {line.who: line for line in survived if line.values.get("survived") != "ignored"}
        ended = {line.who for line in self.lines if _failed(line)} - open_
        return {(line.file, line.offset) for who, line in last.items() if line.rank is not None and who in ended}

    def _went_on(self, line: LogLine) -> bool:
        named = line.rank is not None or bool(line.values.get("label")) or line.pid is not None
        stepped = named and any(
            s.who == line.who and s.file == line.file and s.offset > line.offset for s in self.steps
        )
        return stepped or (line.rank is not None and self.begun.get((line.file, line.rank), 0) > line.line)

    def _others_went_on(self, line: LogLine) -> bool:
        """Whether other ranks did several steps after it, and did not only print old ones while the job ended."""
        later = [step for step in self.steps if step.file == line.file and step.offset > line.offset]
        # up to the next traceback of another process in the file
        threw = (o.offset for o in self.threw if o.file == line.file and o.offset > line.offset and o.who != line.who)
        later = later[: bisect_right([step.offset for step in later], min(threw, default=1 << 62))]
        numbers = {step.values["step"] for step in later if step.values.get("step") is not None}
        if len(numbers) < STEPS_OF_OTHERS:
            return False
        if all(step.time_ns is not None for step in later):
            return True
        after = [other for other in self.lines if other.file != line.file or other.offset > line.offset]
        rivals = any(EVENTS[o.kind].is_exception and o.who != line.who and o.offset > later[-1].offset for o in after)
        return rivals or not any(_ends(other) for other in after)


def _failed(line: LogLine) -> bool:
    code = line.values.get("exitcode")
    return EVENTS[line.kind].exit_of == "process" and isinstance(code, int) and 0 < code < _KILLED


def _ends(line: LogLine) -> bool:
    """Whether a line shows that the job ends."""
    kind = EVENTS[line.kind]
    return line.role == "victim" or (kind.is_failure and not kind.is_exception and line.kind != "known-error")
