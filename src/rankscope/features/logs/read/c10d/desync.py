"""Reports on which ranks of a group did not come, and the stack of the failed collective.

The reports are of TORCH_NCCL_DESYNC_DEBUG, and of analysers of dumps. Source: torch's TraceUtils.h,
torch/distributed/flight_recorder, and the attribution of nvidia-resiliency-ext.
"""

from __future__ import annotations

import re
from typing import Any

from rankscope.features.logs.read.log_record import TEXT_LIMIT, Event, Record, message_event

LITERALS = (
    "Timeout at collective: ", "Not all ranks joining collective", "ollective sequence number: ", "hanging ranks: ",
    " does not have a coalesced end.", " has an empty op list.", "missed FR dumps from ranks", "input_sizes=[",
    "Missing dump files from ranks", "Stack trace of the failed collective: ",
)  # fmt: skip
LINE_LIMIT = 4096
"""Most lines of one report: one for each sequence number that ranks are at."""
_START = re.compile(r"- \[(\d{1,9})\] Timeout at collective: ([A-Za-z_]{1,64}), #(\d{1,18})")
_LINE = re.compile(r"^\s*(?:- |\[\d|#\d)")
_FINISHED_LINE = re.compile(r"\[([\d, ]+)\] finished collective #(\d{1,18}), but didn't join collective #(\d{1,18})")
_JOINED_LINE = re.compile(r"\[([\d, ]+)\] joined but didn't finish collective #(\d{1,18})")
_LAGGING_LINE = re.compile(r"ranks \[([\d, ]+)\] are the lagging ranks")
_STATE = re.compile(r"#(\d{1,18}) (started|finished) ranks:")
_RANKS = re.compile(r"\[([\d, ]+)\] (started|finished) ([A-Za-z_]{1,64})")


class DesyncReport:
    """Collects one report; values, all in ranks of the group:

    `reporter`, `op`, `seq` of what timed out; `lagging` of rows [rank, what, seq] with what "finished" (it did not join
    the next), "joined" (it did not finish) or "never-joined"; `states` of rows [seq, state, op, ranks].
    """

    patience = 8
    quotes = False
    named_rank = None

    def __init__(self, record: Record, start: re.Match[str]) -> None:
        self._record = record
        self._values: dict[str, Any] = {
            "reporter": int(start[1]),
            "op": start[2],
            "seq": int(start[3]),
            "lagging": [],
            "states": [],
        }
        self._seq: int | None = None
        self._lines = 0

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to the report; reads it if so."""
        text = record.text[:TEXT_LIMIT]
        if not _LINE.match(text) or _START.search(text) or self._lines >= LINE_LIMIT:
            return False
        self._lines += 1
        lagging, states = self._values["lagging"], self._values["states"]
        if (state := _STATE.search(text)) is not None:
            self._seq = int(state[1])
        elif (ranks := _RANKS.search(text)) is not None and self._seq is not None:
            states.append([self._seq, ranks[2], ranks[3], _numbers(ranks[1])])
        elif (finished := _FINISHED_LINE.search(text)) is not None:
            lagging += [[rank, "finished", int(finished[2])] for rank in _numbers(finished[1])]
        elif (joined := _JOINED_LINE.search(text)) is not None:
            lagging += [[rank, "joined", int(joined[2])] for rank in _numbers(joined[1])]
        elif (never := _LAGGING_LINE.search(text)) is not None:
            lagging += [[rank, "never-joined", 0] for rank in _numbers(never[1])]
        return True

    def result(self) -> list[Event]:
        """The event, at the report's first line."""
        return [message_event("desync", self._record, **self._values)]


MOST_FRAMES = 256
TORCHFRTRACE = "torchfrtrace"
_NO_DUMP = re.compile(r"(?:missed FR dumps|Missing dump files) from ranks \(?\{(\d{1,7}(?:, ?\d{1,7}){0,10000})\}")
_TABLE = re.compile(
    r"Rank \d{1,7} (?:does not have a coalesced end|has an empty op list)\.$"
    r"|\s{0,400}[a-z_]\w{0,60}\((?:s=\d{1,7} d=\d{1,7}, )?input_sizes=\[.{0,400}?state=\w{1,20}"
)
"""Rows of tables of the entries of all ranks, and complaints about batches of sends and receives."""
_ANALYSED = re.compile(
    r"(?P<missing>Not all ranks joining collective, sequence number: )(?P<seq>\d{1,18})$"
    r"|(?:Collective sequence number: (?P<errors>\d{1,18}) has errors"
    r"|Input/output mismatch in the collective sequence number: (?P<totals>\d{1,18}))$"
)
_HANGING = re.compile(r"^.{0,80}?hanging ranks: [\[{(]?(\d{1,7}(?: ?, ?\d{1,7}){0,10000})[\]})]?$")
_FIELD = re.compile(
    r"(internal record id|group info|collective|missing ranks|error msg|expected ranks|collective state"
    r"|(?:total )?(?:in|out)put (?:sizes|numel)|world size): ?(.{0,8000})$"
)
_CULPRIT = re.compile(r"Culprit rank (\d{1,7})")
_ERROR_KIND = re.compile(r"\b([A-Z]{2,20}(?:_[A-Z]{2,20}){0,4}_MISMATCH)\b")
MOST_ERROR_KINDS = 4
_STACK_LINE = re.compile(r"collective stack trace: *$")
_FRAME = re.compile(r"\s?(\S.{0,300}) at (\S.{0,4000}):(\d{1,9})$")


class AnalysedCollective:
    """Collector of what an analyser says of one collective.

    Values: `tool`; `what`, "missing" or "errors"; `ranks` that it names; `kinds` of errors, as
    COLLECTIVE_TYPE_MISMATCH; `seq`, `op`, `group` and its description `desc`, `expected` ranks, and `frames`,
    innermost first.
    """

    patience = 2
    quotes = True
    named_rank = None

    def __init__(self, record: Record, start: re.Match[str]) -> None:
        self._record = record
        number = start["seq"] or start["errors"] or start["totals"]
        self._values: dict[str, Any] = {
            "tool": TORCHFRTRACE, "what": "missing" if start["missing"] else "errors", "seq": int(number),
            "ranks": [], "errors": not start["missing"], "frames": [],
        }  # fmt: skip
        self._stack = False

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to it; reads it if so."""
        text = record.text[:TEXT_LIMIT].rstrip()
        if self._stack and (frame := _FRAME.match(text)) is not None:
            if len(self._values["frames"]) < MOST_FRAMES:
                self._values["frames"].append([frame[1], frame[2], int(frame[3])])
            return True
        if _STACK_LINE.match(text):
            self._stack = True
            return True
        field = _FIELD.match(text)
        if field is None:
            return False
        name = field[1]
        value = field[2]
        if name == "group info":
            self._values["group"], _, self._values["desc"] = value.partition(":")
        elif name == "collective":
            self._values["op"] = value.rpartition(":")[2][:200]
        elif name == "missing ranks":
            self._values["ranks"] = _numbers(value)
        elif name == "expected ranks":
            self._values["expected"] = _numbers(value)
        elif name == "error msg":
            self._values["ranks"] = [int(number) for number in _CULPRIT.findall(value)]
            self._values["kinds"] = sorted(set(_ERROR_KIND.findall(value)))[:MOST_ERROR_KINDS]
        return True

    def result(self) -> list[Event]:
        """The event, at its first line."""
        return [message_event("analyser-report", self._record, **self._values)]


class AnalyserLine:
    """One line of an analyser: ranks that hang, ranks without a dump, or a row of a table."""

    patience = 0
    quotes = True
    named_rank = None

    def __init__(self, record: Record, tool: str, what: str, ranks: list[int]) -> None:
        self._record, self._tool, self._what, self._ranks = record, tool, what, ranks

    def consumes(self, record: Record) -> bool:
        """Never: it is one line."""
        del record
        return False

    def result(self) -> list[Event]:
        """The event."""
        values = {"tool": self._tool, "what": self._what}
        return [message_event("analyser-report", self._record, ranks=self._ranks, **values)]


def begins(record: Record) -> DesyncReport | AnalysedCollective | AnalyserLine | FailedStack | None:
    """A report that begins with this record; only this line of it has the prefix of its rank."""
    text = record.text[:TEXT_LIMIT].rstrip()
    start = _START.search(text)
    if start is not None:
        return DesyncReport(record, start)
    analysed = _ANALYSED.search(text)
    if analysed is not None:
        return AnalysedCollective(record, analysed)
    if (hanging := _HANGING.match(text)) is not None:
        return AnalyserLine(record, "the attribution of NVRx", "hanging", _numbers(hanging[1]))
    if (lacking := _NO_DUMP.search(text)) is not None:
        return AnalyserLine(record, TORCHFRTRACE, "no-dump", _numbers(lacking[1]))
    if _STACK_HEAD in record.text:
        return FailedStack(record)
    return AnalyserLine(record, TORCHFRTRACE, "table", []) if _TABLE.match(text) else None


def _numbers(listed: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d{1,9}", listed)]


_STACK_HEAD = "Stack trace of the failed collective: "
FRAME_LIMIT = 256
_STACK_FRAME = re.compile(r"^#(\d{1,4}) (.{1,1000}?) from (.{0,4096}):(\d{1,9})$")


class FailedStack:
    """Collector of one stack; value `frames`, innermost first, of rows [function, file, line]."""

    patience = 8
    quotes = True
    named_rank = None

    def __init__(self, record: Record) -> None:
        self._record = record
        self._frames: list[list[str | int]] = []

    def consumes(self, record: Record) -> bool:
        """Whether a line is the next frame; reads it if so."""
        frame = _STACK_FRAME.match(record.text[:TEXT_LIMIT].strip())
        if frame is None or int(frame[1]) != len(self._frames) or len(self._frames) >= FRAME_LIMIT:
            return False
        self._frames.append([frame[2], frame[3], int(frame[4])])
        return True

    def result(self) -> list[Event]:
        """The event, at the line that announces the stack."""
        return [message_event("failed-collective-stack", self._record, frames=self._frames)] if self._frames else []
