"""Signs that a process survived an exception: the words above its traceback, and the steps that it prints later."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

from rankscope.features.logs.read.c10d.event_builder import TEXT_LIMIT, message_event
from rankscope.features.logs.read.log_record import Event, Record

LITERALS = (
    "Exception ignored ", "--- Logging error ---", "Call stack:", "Error in atexit._run_exitfuncs",
    "Error in sys.excepthook",
)  # fmt: skip
IGNORED, LOGGED = "ignored", "logged"
"""Python itself ignored the exception; the program caught and logged it."""
NEAR_LINES = 3
"""Most lines above a traceback in a log whose lines have no prefix: others may write between."""
FAR_LINES = 64
"""Most lines of a log between a line of a stream and the next of the same stream."""
MOST_STREAMS = 1 << 16
_IGNORED = re.compile(
    r"^\s*(?:Exception ignored |--- Logging error ---|Call stack:\s*$"
    r"|Error in (?:atexit\._run_exitfuncs|sys\.excepthook):)"
)
_OWNER = re.compile(
    r"<(?:function|(?:async_)?generator object|coroutine object|bound method) "
    r"(?:[\w<>]{1,100}\.){0,16}(\w{1,100}) (?:at|of) "
)
"""The function whose exception was ignored: the outermost frame of its traceback."""
_OVER = re.compile(r"Traceback \(most|^(?:[A-Za-z_]\w{0,100}\.){0,16}[A-Za-z_]\w{0,100}(?:Error|Exception|Interrupt)\b")
_WARNING = re.compile(
    r"(?:^|[\s\[(|:<\-])(?:WARNING|WARN|Warning)(?:$|[\s\])|:>,\-])|\b[A-Z]\w{0,60}Warning: |^\[?W\d{4} \d\d:"
)
_WORSE = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Fatal)\b|\.(?:cpp|hpp|h|cu|cc):\d")
_HEAD_LENGTH = 160
_TROUBLE = re.compile(
    r"(?i)fail|error|exception|could ?n[o']t|can ?n[o']t|unable|caught|ignor|recover|problem|wrong|skip|retr(?:y|ies)"
)
_GOES_ON = re.compile(
    r"(?i)\b(?:retry(?:ing)?|will retry|try(?:ing)? again|re-?attempting|ignor(?:ed|ing)|skipp(?:ed|ing)|continuing"
    r"|carrying on|fall(?:s|ing)?[ -]?back|recovered|recovering|attempt \d{1,4})\b"
)
_GIVES_UP = re.compile(
    r"(?i)no more|giv(?:ing|es?) up|gave up|can ?n[o']t|could not (?:recover|continue|retry)|unrecoverable|exhausted"
    r"|not (?:retry|recover|ignor|continu|skip)|last attempt|max(?:imum)? retries|abort|exit|terminat|fatal|crash"
)
_ATTEMPT = re.compile(r"(?i)\battempt \(?(\d{1,4}) ?(?:/|of) ?(\d{1,4})")


class SurvivalSign(NamedTuple):
    """The sign above a traceback."""

    how: str
    """IGNORED or LOGGED."""
    function: str = ""
    """The outermost function of the traceback, where the sign names it."""


class SignReader:
    """Reader of the last lines of each stream of a log."""

    def __init__(self) -> None:
        self._last: dict[tuple[int | None, str], deque[Record]] = {}

    def note(self, record: Record) -> None:
        """Remembers a line."""
        if not record.text or record.text.isspace():
            return
        key = record.rank, record.label
        own = self._last.get(key)
        if own is None:
            if len(self._last) >= MOST_STREAMS:
                self._last.clear()
            own = self._last[key] = deque(maxlen=NEAR_LINES if key == (None, "") else 1)
        own.append(record)

    def of(self, head: Record) -> SurvivalSign | None:
        """The sign of a traceback that begins with `head`; None without one."""
        front = head.text[:TEXT_LIMIT].rpartition("Traceback (most")[0]
        if front.strip():
            return SurvivalSign(LOGGED) if is_warning(front, head.level) or goes_on(front) else None
        own = self._last.get((head.rank, head.label), ())
        reach = NEAR_LINES if (head.rank, head.label) == (None, "") else FAR_LINES
        near = [record for record in reversed(own) if head.line - record.line <= reach]
        for record in near:
            if _IGNORED.match(record.text):
                owner = _OWNER.search(record.text[:TEXT_LIMIT])
                return SurvivalSign(IGNORED, owner[1] if owner else "")
            if _OVER.search(record.text[:TEXT_LIMIT]):
                break
        return _logged(near[0]) if near and near[0].line < head.line else None


def _logged(above: Record) -> SurvivalSign | None:
    text = above.text[:TEXT_LIMIT]
    warns = is_warning(text, above.level) and _TROUBLE.search(text) is not None
    return SurvivalSign(LOGGED) if warns or goes_on(text) else None


def is_warning(text: str, level: str) -> bool:
    """Whether a message is a warning, by the level before it or in it."""
    head = text[:_HEAD_LENGTH]
    if level:
        return level == "WARNING"
    return _WARNING.search(head) is not None and _WORSE.search(head) is None


def goes_on(text: str) -> bool:
    """Whether a message says that the program goes on after an error."""
    attempt = _ATTEMPT.search(text)
    last = attempt is not None and int(attempt[1]) >= int(attempt[2])
    return _GOES_ON.search(text) is not None and not last and _GIVES_UP.search(text) is None


# Steps that a program prints after an exception.

WATCHED_LINES = 5_000
"""Most lines after an error in which steps are searched."""
MOST_RECORDS = 50_000
"""Most records of a log in which steps are searched: reading them takes seventy times as long as skipping them."""
MOST_OLD = 1_000
"""Most records in a row of streams with enough steps: then no other stream is waited for."""
MOST_STEPS = 4
"""Most kept steps of a stream after an error, each of another number."""
STEP_WORDS = ("step", "Step", "STEP", "iter", "Iter", "loss", "Loss", "Epoch")
_STEP = re.compile(
    r"(?i)(?<![a-z])(?:(?:global|train(?:ing)?|optim(?:izer)?)[ _/-]?)?(?:step|iter(?:ation)?)s?(?![a-z])[\"']?"
    r"[ \t]{0,8}[:=#\[(|]{0,2}[ \t]{0,16}(\d{1,9})|\bEpoch:? ?\[\d{1,6}\] ?\[ {0,8}(\d{1,9})/"
)
_LOSS = re.compile(r"(?i)(?<![a-z])loss[\"']?[ \t]{0,4}[:=]?[ \t]{0,8}-?\d")
_NO_STEP = re.compile(
    r"(?i)error|exception|fail|abort|traceback|exit|\bsav(?:e|ed|ing)\b|checkpoint|resum|restor|load(?:ed|ing)\b"
    r"|emergenc|stop|interrupt|terminat|kill|crash|\bnan\b|\bfinal|\blast\b|summary|timeout|timed out|wandb|\bat step\b"
    r"|history|warn|slurm|srun|^ {4}|^  File "
)
"""Words of lines that name a step without doing one, such as the summary of a run."""
_Stream = tuple[int | None, str]
"""Rank and launcher's prefix."""


class StepReader:
    """Reader of the steps after errors. It ends when each stream with an error did enough steps."""

    def __init__(self) -> None:
        self._until, self._all, self._old = 0, MOST_RECORDS, 0
        self._awaited: set[_Stream] = set()
        self._found: defaultdict[_Stream, set[int]] = defaultdict(set)

    @property
    def active(self) -> bool:
        """Whether steps are searched."""
        return bool(self._awaited)

    def begin(self, record: Record) -> None:
        """Searches the lines behind an error."""
        if self._all > 0:
            self._until, self._old = record.line + WATCHED_LINES, 0
            self._found.clear()
            self._awaited.add((record.rank, record.label))

    def events(self, record: Record) -> Iterator[Event]:
        """The step in a record. Values: `step`, its number, None without one."""
        key = record.rank, record.label
        self._all -= 1
        self._old += 1
        steps = self._found[key]
        if len(steps) < MOST_STEPS and is_step(record.text):
            found = _STEP.search(record.text[:TEXT_LIMIT])
            told = (found[1] or found[2]) if found is not None else None
            number = int(told) if told else None
            # of lines without a number each counts
            mark = -1 - len(steps) if number is None else number
            if mark not in steps:
                steps.add(mark)
                self._old = 0
                yield message_event("step", record, step=number)
        if len(steps) >= MOST_STEPS:
            self._awaited.discard(key)
        if record.line >= self._until or self._all <= 0 or self._old >= MOST_OLD:
            self._awaited.clear()


def is_step(text: str) -> bool:
    """Whether a program prints with this line that it did a step."""
    if not any(word in text for word in STEP_WORDS):
        return False
    text = text[:TEXT_LIMIT]
    told = _STEP.search(text) is not None or _LOSS.search(text) is not None
    return told and _NO_STEP.search(text) is None
