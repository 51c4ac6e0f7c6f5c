"""Exceptions of Python, with their causes, and signs that a process survived one.

A failed test of pytest prints lines `E   ` with the exception, and code around them; source: _pytest/_code/code.py and
reports.py. Signs are the words above a traceback, and the steps that a program prints later.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rankscope.features.logs.read.log_record import PYTEST_MARK, TEXT_LIMIT, Event, Record, message_event, shown_text

HEAD = "Traceback (most recent call last):"
_TEST_WORDS = (PYTEST_MARK, "_ _ _ _ _ _", "____ ", "- Captured ", "= short test summary", "= warnings summary")
_OF_COMPILER = ("torch._dynamo.exc.", "torch._inductor.exc.")
LITERALS = (HEAD, ".RayTaskError", '  File "', "Error", "Exception", "KeyboardInterrupt", *_OF_COMPILER, *_TEST_WORDS)
FRAME_LIMIT = 512
CHAIN_LIMIT = 16
FOREIGN_LIMIT = 64
"""Most lines of other writers between two lines of a traceback without a prefix."""
MESSAGE_LINES = 32
_FRAME = re.compile(r'^  File "([^"]{1,4096})", line (\d{1,9})(?:, in (.{1,1000}))?$')
_SOURCE = re.compile(r"^(?: {4}|  \[Previous line repeated )")
EXCEPTION = re.compile(
    r"^((?:[A-Za-z_<][\w<>]{0,100}\.){0,16}(?:[A-Z]\w{0,100}|[a-z]\w{0,100}error|error|timeout))(?:: (.*)|:\s*)?$"
)
"""The line of an exception: its name and message."""
_OF_TORCH = re.compile(r"\[rank\d{1,7}\]: ?$")
_FAILED = re.compile(r"(?:Error|Exception|KeyboardInterrupt)$")
_CAUSES = {
    "The above exception was the direct cause of the following exception:": "cause",
    "During handling of the above exception, another exception occurred:": "context",
}
_HEAD = re.compile(r"^(?:\[[EWIF](?:\d{3,4} | \w)|[EWIF]\d{3,4} \d\d:)")
_MORE = re.compile(
    r"^(?:nccl[A-Z]\w+: |Last error:|\s*Original exception: |CUDA kernel errors might "
    r"|For debugging consider passing CUDA|Compile with `TORCH_USE_CUDA_DSA|Exception raised from |frame #\d+: "
    r"|\[?(?:\.\.)?/\S*/gloo/|ERR\d{5} \w+ |\[Error\]: |E[A-Z]\d{4}: |\s+(?:Solution: |TraceBack |Rectify the fault))"
)
_ADVICE = re.compile(r"^Set TORCHDYNAMO_VERBOSE=1 for |^You can suppress this exception and ")
"""Lines of torch.compile behind a message."""
_INLINE = re.compile(r"\][ \t]*Traceback|(?:: |\b[A-Z]\w{1,60} |^[A-Z]{4,8}:[\w.]{1,100}:)Traceback")
"""A traceback behind a progress bar or behind a message."""
_PASSED = re.compile(r"Traceback \(most recent call last\): \(RANK (\d{1,7})\)$")
_TASK = re.compile(
    r"^(?:ray\.exceptions\.)?RayTaskError(?:\(\w{1,100}\))?: ray::\S{1,200} \((.{1,300}?)(?:, repr=|\)$)"
)
"""The error of a task as Ray passes it on, with the process that raised it; its own traceback follows."""
_TASK_PID = re.compile(r"\bpid=(\d{1,10})\b")
_TASK_HOST = re.compile(r"\bip=([0-9A-Fa-f.:]{2,45})")
_LAUNCHERS = (
    "torch/distributed/run.py", "torch/distributed/launcher/api.py", "accelerate/commands/",
    "bin/torchrun", "bin/accelerate", "bin/deepspeed", "torch/distributed/flight_recorder/", "bin/torchfrtrace",
)  # fmt: skip
_SPAWN = "torch/multiprocessing/spawn.py"
_SPAWNED = ("ProcessExitedException", "ProcessRaisedException")


@dataclass
class _Link:
    """One exception of a chain."""

    frames: list[list[str | int]] = field(default_factory=list)
    kind: str = ""
    message: list[str] = field(default_factory=list)
    relation: str = ""
    """Its relation to the next exception."""

    def row(self) -> list[Any]:
        return [self.relation, self.kind, shown_text("\n".join(self.message)), self.frames[::-1]]


class Traceback:
    """Collector of one chain of exceptions.

    Values: `exception`, `message`, `frames` (innermost first, rows [function, file, line]) of the last exception, which
    ended the process; `causes` of rows [relation, exception, message, frames], the nearest first; `launcher`: whether
    it is torchrun's own, which only reports the death of a child; `mixed`: whether another traceback was printed in the
    same stream, so that frames may belong to that.
    """

    def __init__(self, record: Record) -> None:
        passed = _PASSED.match(record.text.strip())
        self.named_rank = int(passed[1]) if passed else None
        """The rank of the exception, where another rank prints it: a checkpoint gathers those of all ranks."""
        self._record = record if passed is None else record._replace(rank=self.named_rank)
        alone = _bare_exception(record)
        self._headless = alone is not None or _FRAME.match(record.text) is not None
        """Its beginning is missing: it counts only if an exception follows directly below its frames."""
        self._indent = 0 if self._headless else len(record.text) - len(record.text.lstrip())
        self._chain = [_Link(kind=alone[1], message=[alone[2] or ""]) if alone is not None else _Link()]
        self._mixed = False
        self.sign: SurvivalSign | None = None
        """The sign above it that the process survived it."""
        self._signs_beside: list[SurvivalSign] = []
        self._inline = not (self._headless or record.text.lstrip().startswith(HEAD))
        """It begins behind other text, whose time and prefix its other lines lack."""
        self._process: tuple[int | None, str | None] | None = None
        self._task(record.text)
        self._ended = record.line if alone is not None else 0
        """The line of the exception."""
        self._waits = ""
        """The text between two exceptions: the next traceback belongs to the chain."""
        self.quotes = alone is None and self._headless and self._frame(record.text)
        """Whether the last line is code, not a message."""

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to it; reads it if so."""
        text = record.text[:TEXT_LIMIT]
        text = text[self._indent :] if not text[: self._indent].strip() else text
        self.quotes = False
        if not self._chain[-1].kind:
            return self._frame(text) or self._task(text) or self._exception(text, record)
        return self._after(text, record)

    def takes_process(self, record: Record, pid: int, rank: int | None) -> bool:
        """Takes the process and the rank that the line behind its exception tells; False for any other line."""
        if not self._chain[-1].kind or self._waits or record.line != self._ended + 1:
            return False
        self._process = pid, None
        if self.named_rank is None and rank is not None:
            self.named_rank = rank
            self._record = self._record._replace(rank=rank)
        return True

    def _task(self, text: str) -> bool:
        """Takes Ray's head of another task's error; the traceback of that task follows."""
        task = _TASK.match(text.strip())
        if task is None:
            return False
        pid, host = _TASK_PID.search(task[1]), _TASK_HOST.search(task[1])
        self._process = int(pid[1]) if pid else None, host[1] if host else None
        self._chain[-1].frames.clear()
        return True

    def beside(self, others: list[Traceback]) -> None:
        """Notes the other open tracebacks of its stream."""
        for other in others:
            if not other._chain[-1].kind:
                self._mixed = other._mixed = True
                self._signs_beside += [other.sign] if other.sign is not None else []
                other._signs_beside += [self.sign] if self.sign is not None else []

    @property
    def survived(self) -> str:
        """How the process survived it; "" if nothing says so. Of mixed ones, the sign is of the function it names."""
        outer = str(self._chain[0].frames[0][0]) if self._chain[0].frames else ""
        if self._mixed and any(sign.function == outer != "" for sign in self._signs_beside):
            return next(sign.how for sign in self._signs_beside if sign.function == outer)
        if self.sign is None or (self._mixed and self.sign.function and outer not in ("", self.sign.function)):
            return ""
        return self.sign.how

    @property
    def patience(self) -> int:
        """Most lines between; None once its message may be complete, so that no later line is taken for it."""
        over = bool(self._chain[-1].kind) and not self._waits
        return 0 if over or (self._headless and not self._waits) else FOREIGN_LIMIT

    def result(self) -> list[Event]:
        """The event, at its first line."""
        chain = [link for link in self._chain if link.kind or link.frames]
        last = chain[-1] if chain else _Link()
        if self._headless and not last.kind:
            return []
        message = shown_text("\n".join(last.message))
        values = {
            "exception": last.kind, "message": message, "frames": last.frames[::-1],
            "causes": [link.row() for link in chain[-2::-1]], "mixed": self._mixed,
            "launcher": last.kind.endswith("ChildFailedError") or _is_launchers(last),
        }  # fmt: skip
        if self._process is not None:
            values |= dict(zip(("pid", "host"), self._process, strict=True))
        survived = self.survived
        values |= {"survived": survived} if survived else {}
        kind = "survived-exception" if survived else "traceback"
        shown = f"{last.kind or 'Traceback'}: {message}" if message else last.kind
        made = message_event(kind, self._record, shown, **values)
        return [made._replace(torn=made.torn or not last.kind or self._headless)]

    def _frame(self, text: str) -> bool:
        link = self._chain[-1]
        if (frame := _FRAME.match(text)) is not None:
            if len(link.frames) < FRAME_LIMIT:
                link.frames.append([frame[3] or "<module>", frame[1], int(frame[2])])
        elif not (link.frames and _SOURCE.match(text)):
            return False
        self.quotes = True
        return True

    def _exception(self, text: str, record: Record) -> bool:
        link = self._chain[-1]
        found = EXCEPTION.match(text)
        if found is None or not link.frames or self._other(text, record):
            return False
        link.kind, link.message = found[1], [found[2] or ""]
        self._ended = record.line
        return True

    def _after(self, text: str, record: Record) -> bool:
        """Takes a line behind an exception: more of its message, or the next of the chain."""
        line = text.strip()
        if line in _CAUSES:
            self._chain[-1].relation = self._waits = _CAUSES[line]
        elif line == HEAD and self._waits and len(self._chain) < CHAIN_LIMIT:
            self._waits = ""
            self._chain.append(_Link())
        elif not line:
            return True
        else:
            return not self._waits and self._message(text, record)
        return True

    def _message(self, text: str, record: Record) -> bool:
        link = self._chain[-1]
        own = self._record.rank is not None and not self._other(text, record) and not self.sign and not is_step(text)
        if _ADVICE.match(text):
            return True
        after_last = link.message[-1:] == ["Last error:"] or link.message[-1].endswith(" raised:")
        if len(link.message) >= MESSAGE_LINES or HEAD in text or not (own or after_last or _MORE.match(text)):
            return False
        link.message.append(text)
        return True

    def _other(self, text: str, record: Record) -> bool:
        """Whether a line is a separate message of the same process."""
        stamped = self._record.stamp is not None and not self._inline
        return _HEAD.match(text) is not None or (record.stamp is not None) != stamped


def _is_launchers(last: _Link) -> bool:
    if any(place in str(frame[1]) for frame in last.frames for place in _LAUNCHERS):
        return True
    # the frames of a child begin in the file where the frames of its parent end
    inner = str(last.frames[-1][1]) if last.frames else ""
    return last.kind.rsplit(".", 1)[-1] in _SPAWNED or inner.endswith(_SPAWN)


def begins(record: Record) -> Traceback | TestException | None:
    """A traceback that begins with this record, also one of which only the end is there, or the exception of a test."""
    text = record.text.strip()
    inline = text.endswith(HEAD) and _INLINE.search(text[-200:]) is not None
    begun = text == HEAD or inline or _TASK.match(text) or _PASSED.match(text) or _FRAME.match(record.text)
    if begun or _bare_exception(record):
        return Traceback(record)
    found = EXCEPTION.match(text) if record.label.endswith(PYTEST_MARK) else None
    return TestException(record, found[1], found[2] or "") if found else None


def _bare_exception(record: Record) -> re.Match[str] | None:
    """An exception without its traceback, as grep leaves it: behind the prefix that torch gives uncaught ones, or of
    torch's compiler, whose names are spelt out only there."""
    if record.stamp is None and record.text.startswith(_OF_COMPILER):
        found, ends = EXCEPTION.match(record.text), True
    else:
        found = EXCEPTION.match(record.text) if record.rank is not None and _OF_TORCH.search(record.label) else None
        ends = found is not None and _FAILED.search(found[1]) is not None
    return found if ends and not goes_on(record.text) else None


def is_bare_exception(record: Record) -> bool:
    """Whether a line is an exception without its traceback."""
    return _bare_exception(record) is not None


def inline(record: Record) -> bool:
    """Whether a traceback begins at the end of another message, whose prefix its lines lack."""
    return record.text.rstrip().endswith(HEAD) and record.text.strip() != HEAD


_SECTION = re.compile(r"(?:_ ){6,}|_{3,} \S.{0,200} _{3,}$")
_OVER = re.compile(r"={3,} \S.{0,200} ={3,}$|-{3,} Captured \S.{0,100} -{3,}$")
_CODE = re.compile(r">?\s{4,}\S")


def unmarked(record: Record) -> Record:
    """The line without the mark of an exception; its label then holds the mark."""
    text = record.text
    if not text.startswith("E") or not (text.startswith(PYTEST_MARK) or text.rstrip() == "E"):
        return record
    return record._replace(text=text[len(PYTEST_MARK) :], label=record.label + PYTEST_MARK)


class CodeLines:
    """Recognition of lines of code in a report: they quote messages that nobody printed."""

    def __init__(self) -> None:
        self._inside = False

    def has(self, record: Record) -> bool:
        """Whether a line is code. Takes lines in the order of the log."""
        text = record.text
        if _SECTION.match(text):
            self._inside = True
        elif _OVER.match(text):
            self._inside = False
        return self._inside and not record.label.endswith(PYTEST_MARK) and _CODE.match(text) is not None


class TestException:
    """Collector of the exception of a failed test. Values as of a traceback, without frames."""

    patience = 0
    quotes = False
    named_rank = None

    def __init__(self, record: Record, kind: str, message: str) -> None:
        self._record, self._kind, self._message, self._last = record, kind, [message], record.line

    def consumes(self, record: Record) -> bool:
        """Whether a line continues the message; reads it if so."""
        if (
            not record.label.endswith(PYTEST_MARK)
            or record.line != self._last + 1
            or HEAD in record.text
            or len(self._message) >= MESSAGE_LINES
        ):
            return False
        self._last = record.line
        self._message.append(record.text.strip())
        return True

    def result(self) -> list[Event]:
        """The event, at the first line."""
        message = "\n".join(self._message).strip()
        return [
            message_event(
                "traceback",
                self._record,
                f"{self._kind}: {message}" if message else self._kind,
                exception=self._kind,
                message=message,
                frames=[],
                causes=[],
                mixed=False,
                launcher=False,
            )
        ]


SIGN_LITERALS = (
    "Exception ignored ", "--- Logging error ---", "Call stack:", "Error in atexit._run_exitfuncs",
    "Error in sys.excepthook",
)  # fmt: skip
IGNORED, LOGGED, WARNED = "ignored", "logged", "warned"
"""Python itself ignored the exception; the program caught and logged it; it is a warning, perhaps the last line."""
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
_EXCEPTION_LINE = re.compile(
    r"Traceback \(most|^(?:[A-Za-z_]\w{0,100}\.){0,16}[A-Za-z_]\w{0,100}(?:Error|Exception|Interrupt)\b"
)
_WARNING = re.compile(
    r"(?:^|[\s\[(|:<\-])(?:WARNING|WARN|Warning)(?:$|[\s\])|:>,\-])|\b[A-Z]\w{0,60}Warning: |^\[?W\d{4} \d\d:"
)
_WORSE = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Fatal)\b|\.(?:cpp|hpp|h|cu|cc):\d")
_HEAD_LENGTH = 160
_TROUBLE = re.compile(
    r"(?i)fail|error|exception|could ?n[o']t|can ?n[o']t|unable|caught|ignor|recover|problem|wrong|skip|retr(?:y|ies)"
)
_GOES_ON = re.compile(
    r"(?i)(?<!no-)\b(?<!and )(?<!please )(?:retry(?:ing)?|will retry|try(?:ing)? again|re-?attempting"
    r"|ignor(?:ed|ing)|skipp(?:ed|ing)|continuing"
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
            if _EXCEPTION_LINE.search(record.text[:TEXT_LIMIT]):
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
            step = _STEP.search(record.text[:TEXT_LIMIT])
            digits = (step[1] or step[2]) if step is not None else None
            number = int(digits) if digits else None
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
    counted = _STEP.search(text) is not None or _LOSS.search(text) is not None
    return counted and _NO_STEP.search(text) is None
