"""`rank-failed`: the rank whose own log tells why it ended, and the consequences that others print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rankscope.analysis.logs.failure_order import FirstFailures
from rankscope.analysis.logs.failures import Failure
from rankscope.analysis.logs.log_lines import LogLine, ranks_of
from rankscope.analysis.logs.process_names import culprits_of, who_text
from rankscope.analysis.model import Confidence, Culprit, Evidence, Finding
from rankscope.kinds.event_kinds import EVENTS
from rankscope.text.wording import plural

MOST_CULPRITS = 8
MOST_WITNESSES = 3
MOST_LATER = 4
LONGEST_QUOTE = 160


def failed_finding(
    first: FirstFailures, lines: Sequence[LogLine], place: Callable[[int], Culprit], guessed: frozenset[int], world: int
) -> Finding | None:
    """The root cause; None if nobody failed by itself. `guessed` are files whose rank is a guess."""
    if not first.failures:
        return None
    chief, own = first.failures[0], [f.line for f in first.failures]
    ranks = ranks_of(own)
    harmed = harmed_ranks(lines, ranks)
    confidence, reasons = _sure(first, guessed)
    people = who_text(own)
    people = f"all {world} ranks" if world > 1 and len(ranks) == world else people
    return Finding(
        kind="rank-failed",
        severity="critical",
        title=f"{people} failed: {chief.what} ({chief.line.place})",
        explanation=_explained(first, people),
        root_cause=True,
        culprit_ranks=ranks,
        culprits=culprits_of(own, place),
        candidates=tuple(sorted({f.rank for f in first.rivals if f.rank is not None})),
        waiting_ranks=harmed,
        blast_radius=len(harmed),
        confidence=confidence,
        confidence_reasons=reasons,
        stack=chief.frames,
        evidence=(*_accused(first.failures), *_ends(lines, ranks), *_harm(lines, chief.line)),
        counter_evidence=tuple(
            f.line.evidence(f"{who_text([f.line])} failed too: {f.what}") for f in first.rivals[:MOST_LATER]
        ),
        next_steps=_steps(chief, people),
    )


def late_finding(first: FirstFailures, place: Callable[[int], Culprit]) -> Finding | None:
    """A finding on failures that came after others: worth knowing, but no cause."""
    if not first.later:
        return None
    own = [f.line for f in first.later]
    return Finding(
        kind="rank-failed",
        severity="warning" if not first.failures else "info",
        title=f"{who_text(own)} failed too: {first.later[0].what} ({first.later[0].line.place})",
        explanation=(
            "These failures came after another one, after ranks had given up waiting, or on ranks that went on: "
            "they are no cause."
        ),
        culprit_ranks=ranks_of(own),
        culprits=culprits_of(own, place),
        evidence=_accused(first.later),
        stack=first.later[0].frames,
    )


def harmed_ranks(lines: Sequence[LogLine], without: Sequence[int]) -> tuple[int, ...]:
    """Ranks that wait, gave up or were taken down, by their lines."""
    ended = (-15, -6, -9)
    found = {
        line.rank
        for line in lines
        if line.rank is not None
        and (
            line.role == "victim" or EVENTS[line.kind].by_watchdog
            or (line.kind == "torchrun-failure" and line.values.get("exitcode") in ended)
        )
    }  # fmt: skip
    return tuple(sorted(found - set(without)))


def _explained(first: FirstFailures, people: str) -> str:
    chief = first.failures[0]
    text = f"The first failure that the logs hold is of {people}: {chief.what}"
    if chief.frames:
        at = chief.frames[0]
        text += f", raised in {at.function} ({at.file}:{at.line})"
    text += f". {chief.meaning}" if chief.meaning else "."
    joined = [told["text"] for f in first.failures[:MOST_CULPRITS] if (told := f.line.values.get("joined"))]
    return f"{text} {'; '.join(t[0].upper() + t[1:] for t in dict.fromkeys(joined))}." if joined else text


def _sure(first: FirstFailures, guessed: frozenset[int]) -> tuple[Confidence, tuple[str, ...]]:
    chief = first.failures[0]
    confidence, reasons = first.confidence, list(first.reasons)
    doubts = [
        (chief.rank is None, "the log does not say which rank it is"),
        (chief.rank is not None and chief.line.file in guessed, "the rank of the log is a guess"),
        (chief.mixed, "tracebacks of several processes are mixed there"),
        (chief.line.torn, "the log is torn there"),
        (chief.strength == 1, "the logs do not show why it was killed"),
        (bool(chief.line.values.get("doubt")), str(chief.line.values.get("doubt") or "")),
        (_timeless(chief.line), "the line has no time: it may be older than the job"),
    ]
    for holds, reason in doubts:
        if holds:
            confidence = "medium" if confidence == "high" else confidence
            reasons.append(reason)
    return confidence, tuple(reasons)


def _accused(failures: Sequence[Failure]) -> tuple[Evidence, ...]:
    """The lines of failures, and those that tell whose process or device they are about."""
    own = failures[:MOST_CULPRITS]
    joined = {told["text"]: told for f in own if (told := f.line.values.get("joined"))}
    return (
        *(f.line.evidence() for f in own),
        *(Evidence(text, file=told["file"], line=told["line"]) for text, told in joined.items()),
    )


def _timeless(line: LogLine) -> bool:
    """Whether a line about hardware has no time, as a kernel's log that counts from the start of the host."""
    return line.is_kernel and line.since_ns is None and line.until_ns is None


def _ends(lines: Sequence[LogLine], ranks: Sequence[int]) -> list[Evidence]:
    """The ends of these ranks as the launcher saw them, and the rank that it takes for the root cause."""
    told = [line for line in lines if line.kind == "torchrun-failure"]
    own = [line.evidence() for line in told if line.rank in ranks][:MOST_CULPRITS]
    others = [line for line in told if line.values.get("first") and line.rank not in ranks]
    return own + [
        line.evidence(f"torchrun calls rank {line.rank} the root cause: it is only the first that ended")
        for line in others[:1]
    ]


def _harm(lines: Sequence[LogLine], chief: LogLine) -> list[Evidence]:
    """The first lines of other processes that only show harm, one of each kind."""
    kinds = Counter(line.pattern for line in lines if line.role == "victim")
    out = []
    for pattern, count in kinds.most_common(MOST_WITNESSES):
        shown = next(line for line in lines if line.pattern == pattern and line.role == "victim")
        when = (
            "printed before it, but only harm" if shown.file == chief.file and shown.offset < chief.offset else "harm"
        )
        out.append(shown.evidence(f"{when} ({plural(count, 'line')}): {_cut(shown.text)}"))
    return out


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


def _steps(chief: Failure, people: str) -> tuple[str, ...]:
    steps = [chief.advice] if chief.advice else []
    if chief.frames:
        steps.append(f"Read the traceback at {chief.line.place}.")
    elif not steps:
        steps.append(f"Read what {people} printed before {chief.line.place}.")
    return tuple(steps)
