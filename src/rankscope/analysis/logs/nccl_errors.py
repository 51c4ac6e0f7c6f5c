"""Failed calls of NCCL: warnings with the trail of calls that returned their error.

An error that the table of known errors lacks is still a failure if it came out of NCCL. Warnings without such a trail
are often only advice, or NCCL then succeeded in another way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from rankscope.analysis.logs.failures import cut_text
from rankscope.analysis.logs.log_lines import TIMEOUT_PATTERNS, LogLine, earliest_line, precedes, ranks_of
from rankscope.analysis.logs.process_names import who_text
from rankscope.analysis.model import Finding

MOST_EVIDENCE = 8
_OUTER_CALL = re.compile(r"(?:^|/)(?:init|group|enqueue|bootstrap|collectives)\.(?:cc|cu|cpp):\d+ -> [1-5]\b")
"""Places where an error leaves NCCL; 6 is an error of another rank, 7 is none."""
_THREAD_CALL = re.compile(r"(?:^|/)(?:proxy|net)\.(?:cc|cu|cpp):\d+ -> [1-5]\b")
"""Threads of NCCL that end with an error of their own."""
_RESULT = re.compile(r" -> [1-5]\b")
_OUTCOMES = (", and these logs do not show whether it found another way", " and gives up the call")
_FEWEST_CALLS = 2
"""Fewest such calls: one alone may be a try."""
_CODES = {
    1: " (a CUDA call failed)", 2: " (a system call failed)", 3: " (internal error)", 4: " (invalid argument)",
    5: " (invalid usage)",
}  # fmt: skip
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_HEAD = re.compile(r".*? NCCL (?:WARN|ERROR) |^\S+ \[\d+\] \S+ WARN ")


def failed_call(line: LogLine) -> bool:
    """Whether the line is a warning whose error came out of NCCL, or ended a thread of it."""
    told = line.values.get("level") in ("WARN", "ERROR")
    return told and any(_OUTER_CALL.search(row) or _THREAD_CALL.search(row) for row in _rows(line))


def unknown_causes(lines: Sequence[LogLine]) -> list[Finding]:
    """A finding for the first unknown warning that made a call fail."""
    own = _in_time([line for line in lines if line.role in ("", "context") and _trail(line)], lines)
    failed = [line for line in own if failed_call(line)]
    if not own:
        return []
    own = failed or own
    alike: defaultdict[str, list[LogLine]] = defaultdict(list)
    for line in own:
        alike[_NUMBERS.sub("", warning_text(line))].append(line)
    first = earliest_line(own)
    same = alike[_NUMBERS.sub("", warning_text(first))]
    words = f"a call {'of' if failed else 'inside'} NCCL failed: {cut_text(warning_text(first))}"
    return [
        Finding(
            kind="known-error",
            severity="critical" if failed else "warning",
            title=f"{words}, reported by {who_text(same)} ({first.place})",
            explanation=(
                f"NCCL says so in a warning{_OUTCOMES[bool(failed)]}. The rank that prints it need not be at fault."
            ),
            candidates=ranks_of(same),
            confidence="low",
            confidence_reasons=(
                ("rankscope does not know this error, and the line does not say which rank is at fault"),
            ),
            evidence=tuple(line.evidence() for line in [first, *(o for o in own if o is not first)][:MOST_EVIDENCE]),
            next_steps=(f"Read the lines before {first.place}, and the source of NCCL at {_innermost(first)}.",),
        )
    ]


def returned_errors(lines: Sequence[LogLine]) -> Finding | None:
    """A finding on failed calls of which lines tell only the place in NCCL; None if none failed."""
    own = [line for line in lines if sum(bool(_OUTER_CALL.search(row)) for row in _rows(line)) >= _FEWEST_CALLS]
    if not own:
        return None
    first = earliest_line(own)
    code = int(_rows(first)[0].split(" -> ")[1].split(" ")[0])
    return Finding(
        kind="rank-failed",
        severity="critical",
        title=f"a call of NCCL failed in {who_text(own)} at {_innermost(first)}{_CODES.get(code, '')} ({first.place})",
        explanation="No line says why: NCCL prints only which of its calls returned the error.",
        candidates=ranks_of(own),
        confidence="low",
        confidence_reasons=("the lines do not say which rank is at fault",),
        evidence=tuple(line.evidence(" < ".join(_rows(line)[:MOST_EVIDENCE])) for line in own[:MOST_EVIDENCE]),
        next_steps=(f"Read the source of NCCL at {_innermost(first)}; collect the logs of all ranks.",),
    )


def _trail(line: LogLine) -> list[str]:
    """The calls that returned the error of a warning."""
    own = _rows(line) if line.values.get("level") in ("WARN", "ERROR") else []
    return [row for row in own if _RESULT.search(row)]


def _rows(line: LogLine) -> list[str]:
    trail = line.values.get("trail")
    return [str(row) for row in trail] if isinstance(trail, list) else []


def warning_text(line: LogLine) -> str:
    """The words of a warning, without its head."""
    found = _HEAD.match(line.text)
    return line.text[found.end() :].strip() if found else line.text.strip()


def _innermost(line: LogLine) -> str:
    return str(line.values["trail"][0]).split(" ")[0]


def _in_time(own: Sequence[LogLine], lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines that are proven to be older than any timeout of a rank, because calls also fail in the teardown."""
    first: dict[int, LogLine] = {}
    for line in lines:
        if line.pattern in TIMEOUT_PATTERNS:
            first.setdefault(line.file, line)
    return [line for line in own if all(precedes(line, other) for other in first.values())]
