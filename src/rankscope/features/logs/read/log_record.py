"""One message of a log, its printed time, the prefixes of launchers, collectors and other tools before it, and events.

An event is a watchdog's report, an exception, the end of a process, but no operation. Shared by all recognisers: group
and rank before a message, and numbers that may be cut.
"""

from __future__ import annotations

import calendar
import re
from functools import lru_cache
from typing import Any, NamedTuple

from rankscope.text.secrets import clip


class Stamp(NamedTuple):
    """A printed time."""

    ns: int
    """Nanoseconds since the epoch, read as UTC; a time without date or year counts from the epoch."""
    resolution_ns: int
    """1_000_000_000 for a time with seconds only."""
    has_date: bool
    has_year: bool
    is_utc: bool
    """The text says UTC; otherwise it is local time of an unknown zone."""


class Record(NamedTuple):
    """The text of one print, as far as it survived."""

    offset: int
    """Offset of its first byte in the unpacked file."""
    line: int
    """Line of the file, from 1."""
    text: str
    """Text without prefixes, colours and line ends, with a replacement for bytes that are no UTF-8."""
    rank: int | None = None
    """Global rank, from a prefix such as `[rank3]:`."""
    label: str = ""
    """The launcher's prefix, "" without one: `3: `, `[1,3]<stdout>:`, `(Worker pid=615, ip=10.0.0.6)`."""
    stamp: Stamp | None = None
    """The time before it, or in its head."""
    torn: bool = False
    """Its end or its beginning is missing: a number next to the cut is not reliable."""
    level: str = ""
    """The level of Python's logging in its prefix: "WARNING", "ERROR"; "" without one."""


class Event(NamedTuple):
    """One event."""

    kind: str
    offset: int
    """Offset of the first byte of its record in the unpacked file."""
    line: int
    """Line of the file, counted from 1."""
    rank: int | None
    """Global rank, where the log has it."""
    stamp: Stamp | None
    text: str
    """The text for a reader, without control characters."""
    values: dict[str, Any]
    """Values as JSON scalars; the keys depend on `kind`."""
    torn: bool = False
    """Part of it is missing."""


def record_event(kind: str, record: Record, text: str = "", **values: Any) -> Event:
    """An event of a record, with the record's text unless another is given."""
    return Event(kind, record.offset, record.line, record.rank, record.stamp, text or record.text, values, record.torn)


def event_from(row: list[Any]) -> Event:
    """The event from its JSON list."""
    kind, offset, line, rank, stamp, text, values, torn = row
    return Event(kind, offset, line, rank, Stamp(*stamp) if stamp is not None else None, text, values, torn)


FULL = r"\d{4}[-/]\d\d[-/]\d\d[ T_-]\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?(?:Z|[+-]\d\d:?\d\d(?!\d))?"
"""A date with its year, and a time of day."""
GLOG = r"[VDIWEF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9}"
"""Month and day, in torch without a leading zero of the month: E111 is 11 January."""
SYSLOG = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: \d{4})?"
CLOCK = r"\d\d:\d\d:\d\d[.,]\d{1,9}"

_FULL = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T_-](\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,9}))?(Z|[+-]\d\d:?\d\d(?!\d))?")
_GLOG = re.compile(r"[VDIWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})")
_SYSLOG = re.compile(r"(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?: (\d{4}))?")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)[.,](\d{1,9})")
_MONTHS = {name: i for i, name in enumerate(calendar.month_abbr) if name}
_SECOND = 1_000_000_000


def read_stamp(text: str) -> Stamp | None:
    """The time at the beginning of `text`; None without a valid one."""
    if found := _FULL.match(text):
        year, month, day = int(found[1]), int(found[2]), int(found[3])
        made = _stamp_of((year, month, day), (found[4], found[5], found[6]), found[7], True)
        return _in_zone(made, found[8]) if made else None
    if found := _GLOG.match(text):
        return _stamp_of((1970, int(found[1]), int(found[2])), (found[3], found[4], found[5]), found[6], False)
    if found := _CLOCK.match(text):
        made = _stamp_of((1970, 1, 1), (found[1], found[2], found[3]), found[4], False)
        return made._replace(has_date=False) if made else None
    if (found := _SYSLOG.match(text)) and found[1] in _MONTHS:
        date = int(found[6] or 1970), _MONTHS[found[1]], int(found[2])
        return _stamp_of(date, (found[3], found[4], found[5]), None, found[6] is not None)
    return None


def _stamp_of(
    date: tuple[int, int, int], clock: tuple[str, str, str], fraction: str | None, has_year: bool
) -> Stamp | None:
    hour, minute, second = map(int, clock)
    if not (1 <= date[1] <= 12 and 1 <= date[2] <= 31 and 1970 <= date[0] < 2200 and hour < 24 and minute < 60):
        return None
    digits = fraction or ""
    ns = (_midnight(*date) + 3600 * hour + 60 * minute + second) * _SECOND + int(digits.ljust(9, "0"))
    return Stamp(ns, 10 ** (9 - len(digits)), True, has_year, False)


@lru_cache(maxsize=4096)
def _midnight(year: int, month: int, day: int) -> int:
    return calendar.timegm((year, month, day, 0, 0, 0))


def _in_zone(made: Stamp, zone: str | None) -> Stamp:
    if zone is None:
        return made
    offset = 0 if zone == "Z" else int(zone[0] + "1") * (3600 * int(zone[1:3]) + 60 * int(zone[-2:]))
    return made._replace(ns=made.ns - offset * _SECOND, is_utc=True)


_HEAD = r"(?=[^\s:]+:\d+:\d+ |\[rank\d|\[[IWEF][ \d]|[VDIWEF]\d{3,4} |\[default\d|NCCL version )"
"""Text that must follow a prefix that could also be the text itself."""
_STACK = (
    r"(?=(?:Current thread|Thread) 0x[0-9a-fA-F]|Stack \(most recent|Traceback for thread \d|Timeout \(\d{1,5}:\d\d:"
    r"|Fatal Python error: | {1,2}File \"| {4}\((?:Python|C)\) File \")"
)
"""Text that must follow such a prefix in lines of stacks."""
_DATED = r"(?=\[\d{4}-\d\d-\d\d[ T])"
_BLANK = r"(?: (?! File \"| {3}\S))?"
"""The blank that torch puts behind its prefix, and torchrun does not: it may be of a traceback, which is indented."""
_TAG_BLANK = r"(?: (?! \S| {3}\S))?"
"""The blank that Open MPI 5 puts behind its tag, and Open MPI 4 does not: it may be of an indented line."""
_INDENTED = r"[ \t](?= {2}File \"| {4}(?:\S| {4}))"
"""One blank, before lines of tracebacks and stacks: the others are their indentation."""
_LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_TABLE = {
    "rank": rf"\[rank\d{{1,7}}\]:{_BLANK}",
    "default": rf"\[default\d{{1,7}}\]:{_BLANK}|\[[A-Za-z_][\w\-]{{0,40}}?\d{{1,5}}\]:(?=\S|  |$)",
    "mpirun": (
        r"\[(?:[\w.@\-]{1,200},)?\d{1,9}\](?:\[[\w.\-]{1,255}:(?:\d{1,10}|unknown)\])?<std(?:out|err|diag)>:"
        rf"{_TAG_BLANK}"
    ),
    "ray": r"\([A-Za-z_][^\n]{0,200}?\bpid=\d{1,10}(?:, ip=\[?[0-9A-Fa-f.:]{2,45}\]?)?\) ?",
    "bracketed": rf"\[(?:{FULL}|{SYSLOG}(?=\][\[<]))\] ?",
    "ctime": rf"(?:{SYSLOG})(?=\[\d{{1,9}},\d|<std)",
    "journal": rf"(?:{FULL}|{SYSLOG}) [A-Za-z0-9][\w.\-]{{0,254}} [\w.\-/]{{1,64}}\[\d{{1,10}}\]:(?: |$)",
    "syslog": rf"<\d{{1,3}}>1 (?:{FULL}) (?:\S{{1,255}} ){{4}}(?:-|(?:\[[^\]]{{0,1000}}\]){{1,8}})(?: |$)",
    "stamp": rf"(?:{FULL}|{CLOCK}|{SYSLOG}):?(?:{_INDENTED}|[ \t]+)",
    "cri": r"std(?:out|err) [FP] ",
    "colour": r" ?\[\d{1,3}(?:;\d{1,3}){0,4}m ?",
    "stream": (
        r"(?:[\w.\-]{1,200} \[std(?:out|err)\]|std(?:out|err):)(?: |$)"
        rf"|(?<=[\d\]])<std(?:out|err|diag)>:{_TAG_BLANK}"
    ),
    "vllm": rf"{_LEVEL} \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./\-]{{1,200}}\.py:\d{{1,6}}\] ?",
    "sglang": rf"\[(?:{FULL})(?: (?:DP|TP|PP|EP|ATTN_TP|MOE_DP)\d{{1,5}}){{1,6}}\] ?",
    "raylet": rf"\[{FULL} [A-Z] \d{{1,10}} \d{{1,10}}\] (?:\([\w.\-]{{1,60}}\) )?[\w.]{{1,100}}\.cc:\d{{1,6}}: ",
    "minute": r" ?\d{4}-\d\d-\d\d \d\d:\d\d (?=\S)",
    "logging": rf"- [\w.\-]{{1,100}} - {_LEVEL} - |(?<=\d )\[{_LEVEL}\] ",
    "role": r"\[[A-Za-z][\w.\-]{0,100}\|\d{1,7}\]: ?",
    "dmesg": rf"\[(?: {{0,8}}\d{{1,9}}\.\d{{6}}|{SYSLOG})\] ",
    "facility": r"(?:kern|user|daemon|syslog) {0,6}:(?:emerg|alert|crit|err|warn|notice|info|debug) {0,5}: ",
    "kernel": r"(?:[\w.\-]{1,255} )?kernel: ",
    "srun": r" {0,6}\d{1,6}: (?=\S| {2,60}\S|$)",
    "quote": r"(?:>[ \t]?){1,8}(?=\S| {2}|$)",
    "compose": r"(?:\d\d:\d\d:\d\d )?[A-Za-z0-9][\w.\-@]{0,127} {1,64}\|(?: (?!\|)|$)",
    "rich": rf"(?:\[(?:\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d\]| {{10,22}}) {{1,3}}{_LEVEL} {{1,8}}",
    "determined": r"[0-9a-f]{8} (?:\[rank=\d{1,7}\] )?\|\| ",
    "npu": rf"\[(?:ERROR|WARN|WARNING)\] (?:{FULL}) \(PID:\d{{1,10}}, Device:-?\d{{1,6}}, RankID:-?\d{{1,7}}\) ",
    "address": r"\d{1,3}(?:\.\d{1,3}){3}: ",
    "index": rf"\[\d{{1,6}}\] ?{_HEAD}|\[\d{{1,6}}\]: ?(?:{_HEAD}|{_STACK})",
    "host": rf"[A-Za-z][\w.\-]{{0,254}}(?:\[\d{{1,10}}\])?: {_HEAD}",
    "grep": r"[\w./\-]{0,512}?\.(?:txt|log|out|err|o)(?:\.\d{1,9})?[:-](?:\d{1,9}[:-])?(?: (?=\S)|(?=\S| {2}|$))",
    "pod": r"\[pod/[\w.\-]{1,253}/[\w.\-]{1,63}\] ?",
    "stern": rf"[a-z0-9][a-z0-9.\-]{{1,252}} [a-z0-9][a-z0-9.\-]{{0,62}} (?:{_HEAD}|{_STACK}|{_DATED}|$)",
    "node": rf"[A-Za-z][\w.\-]{{0,254}}[ \t]+{_HEAD}",
    "named": rf"\[[A-Za-z][\w.|:\-]{{0,63}}\]:? ?(?:{_HEAD}|{_STACK})",
    "table": rf" {{0,8}}\| ?(?=\d{{4}}-\d\d-\d\d[ T])|\| ?{_HEAD}",
    "indent": rf"[ \t]{{1,16}}(?:{_HEAD}|{_DATED})",
    "number": rf"\d{{1,9}}[:-](?:{_HEAD}|{_STACK})",
    "unit": rf"[A-Za-z][\w.\-]{{0,254}} [\w.\-/]{{1,64}}\[\d{{1,10}}\]: {_HEAD}",
}
_PREFIX = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _TABLE.items()))
_TIMES = ("bracketed", "stamp", "ctime", "dmesg", "sglang", "raylet")
_SILENT = (
    "cri", "colour", "stream", "vllm", "minute", "logging", "indent", "table", "facility", "quote", "rich", "number",
)  # fmt: skip
_TIMED, _TIME = ("npu", "journal", "syslog"), re.compile(f"{FULL}|{SYSLOG}")
"""Prefixes with the time of the line and its process, in this order."""
_GREPPED = re.compile(r"(\.[a-z]+(?:\.\d+)?)[:-](?:\d+[:-])? ?$")
_LEVELLED, _LEVEL_WORD = ("vllm", "logging", "npu"), re.compile(_LEVEL)
_RANKED = {
    "rank": re.compile(r"\[rank(\d{1,7})\]"),
    "ray": re.compile(r"\(VllmWorker rank=(\d{1,7}) pid=|\((?:Vllm)?Worker[ _]TP(\d{1,7}) pid="),
    "sglang": re.compile(r"\[(?!.*PP).{1,60} TP(\d{1,7})\b"),
    "determined": re.compile(r"\S+ \[rank=(\d{1,7})\]"),
    "npu": re.compile(r".{1,100}RankID:(\d{1,7})\)"),
}
"""The kinds with a rank. The rank of tensor parallelism is the rank if nothing else divides the job."""
_MOST = 12
REPEAT_MARK = re.compile(r" \[repeated \d+x across cluster\](?: \([^()]*\))?\s*$")
"""Text that Ray puts behind a line of several workers."""


class LinePrefix(NamedTuple):
    """The prefixes of one line."""

    end: int
    """The place where the text begins."""
    rank: int | None
    label: str
    stamp: Stamp | None
    level: str = ""
    """The level of Python's logging."""


def strip_prefixes(text: str) -> LinePrefix:
    """The prefixes of a line."""
    at, rank, stamp, level = 0, None, None, ""
    labels: list[str] = []
    for _ in range(_MOST):
        found = _PREFIX.match(text, at)
        if found is None:
            break
        kind, at = found.lastgroup, found.end()
        if kind == "rank" or rank is None:
            rank = _rank(kind or "", found[0], rank)
        if kind in _TIMES:
            stamp = stamp or read_stamp(found[0].lstrip("["))
        elif kind in _TIMED and (time := _TIME.search(found[0])) is not None:
            stamp = stamp or read_stamp(time[0])
            labels.append(found[0][time.end() :].lstrip())
        elif kind == "grep":
            # numbers of lines look like numbers of processes
            labels.append(_GREPPED.sub(r"\1:", found[0]))
        elif kind not in _SILENT and not found[0].startswith("kernel: "):
            labels.append(found[0])
        if kind in _LEVELLED and (told_level := _LEVEL_WORD.search(found[0])) is not None:
            level = told_level[0]
    return LinePrefix(at, rank, "".join(labels), stamp, level)


def _rank(kind: str, front: str, known: int | None) -> int | None:
    number = _RANKED[kind].match(front) if kind in _RANKED else None
    return int(number[number.lastindex or 1]) if number is not None else known


TEXT_LIMIT = 8192
"""Longest prefix of a line that is searched: longer lines are no messages of c10d."""
SHOWN_LIMIT = 2000
COUNTER_LIMIT = 1 << 40
"""Largest counter; greater ones are memory that torch 2.3 and 2.4 never set."""
PYTEST_MARK = "E   "
"""Mark of pytest before an exception: in a label it does not belong to the launcher's prefix."""
_GROUP = re.compile(
    r"\[PG (?:(?:ID (?P<id>\d{1,9}) )?PG GUID (?P<guid>[^\s()\]]{1,200})(?:\((?P<desc>[^()]{0,200})\))?"
    r"|GUID (?P<guid2>[^\s()\]]{1,200})(?:\((?P<desc2>[^()]{0,200})\))?"
    r"|(?P<old>\d{1,9})(?: \((?P<olddesc>[^()]{0,200})\))?) Rank (?P<rank>-?\d{1,9})\]"
)
_PROCESS = re.compile(
    r"\([A-Za-z_][^()]{0,200}\bpid=(\d{1,10})(?:, ip=\[?([0-9A-Fa-f.:]{2,45})\]?)?\)|\(PID:(\d{1,10}), Device:"
)
"""The prefix of Ray, and of torch_npu."""
_TAGGED = re.compile(r"\]\[([\w.\-]{1,255}):(\d{1,10})\]<std")
"""Host and process in the detailed tag of Open MPI 5."""
_IN_GROUP = re.compile(r"\[Rank (\d{1,9})\]")
_NCCL2 = re.compile(r"\[TC\] ?((?:\[(?:rank|name)=[^\[\]]{1,200}\]){1,2})")
"""The prefix of nccl2: `[TC][rank=0][name=3]`, rank in the group and name of the group."""
_NCCL2_RANK, _NCCL2_NAME = re.compile(r"\[rank=(\d{1,9})\]"), re.compile(r"\[name=([^\[\]]{1,200})\]")
_DEFAULT, _DEFAULT_NAME = "default_pg", "0"
_TEMPLATE = re.compile(
    r"^(?:\[?[A-Za-z][\w.\-]{0,254}:\d{1,6}\]?:?|\[\d{1,6}\]:| {0,6}\d{1,6}:"
    r"|\[(?:[\w.@\-]{1,200},)?\d{1,7}\](?:\[[\w.\-]{1,255}:(?:\d{1,10}|unknown)\])?<std(?:out|err|diag)>:)"
    r"(?= ?(?:\[rank\d{1,7}\]: ?)?$)"
)
"""Prefixes of launchers with a number: torchrun's host and rank, or the rank; srun's task; mpirun's job and rank."""
_KERNEL = re.compile(r"[\w.\-]{1,255} kernel: $")
"""Host and sender before a line of the kernel, which no launcher put there."""
_OUTER = re.compile(r"^\[[A-Za-z_][\w\-]{0,40}?\d{1,6}\]:")
"""The prefix that torchrun's --tee puts before lines: role and rank within the node, `[default3]:`, `[rank3]:`."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def shown_text(text: str) -> str:
    """Text without control characters, of bounded length."""
    text = clip(text, SHOWN_LIMIT)
    return text.strip() if text.isprintable() else _CONTROL.sub(" ", text).strip()


def message_event(kind: str, record: Record, /, shows: str = "", **values: Any) -> Event:
    """An event of a record, with the process group that stands before the message.

    Values: `pg_id`, `pg_guid`, `pg_desc`, `pg_rank` as printed, None if absent; `rank_in_group`, the `[Rank r]`: the
    rank in the first group that logged in the process, so without other ranks it is a guess; `label`, the launcher's
    prefix, if there is one and no rank; `front`, the part of it with a number that a launcher may have put there;
    `outer`, the prefix of torchrun's --tee, if a rank of torch stands behind it.
    """
    where = group_place(record.text)
    label = record.label.removesuffix(PYTEST_MARK)
    label = _KERNEL.sub("", label)
    if record.rank is None and label:
        where["label"] = shown_text(label)
    if (front := _TEMPLATE.match(label)) is not None:
        where["front"] = front[0]
    if values.get("pid") is None and (processes := list(_PROCESS.finditer(record.label))):
        # behind it stands a process inside a process
        pid, host = processes[-1][1] or processes[-1][3], processes[-1][2] or processes[0][2]
        values = {**values, "pid": int(pid), "host": values.get("host") or host}
    elif values.get("pid") is None and (tagged := _TAGGED.search(label)) is not None:
        values = {**values, "pid": int(tagged[2]), "host": values.get("host") or tagged[1]}
    made = record_event(kind, record, shown_text(shows or record.text), **values, **where)
    rank = where["pg_rank"] if where["pg_desc"] == _DEFAULT and where["pg_rank"] is not None else -1
    if rank >= 0:
        # its ranks are global, those of a launcher's prefix need not be
        made = made._replace(rank=rank)
    outer = _OUTER.match(label)
    if outer is not None and made.rank is not None and (made.rank != record.rank or "[rank" in label[outer.end() :]):
        made.values["outer"] = outer[0]
    return made


def group_place(text: str) -> dict[str, Any]:
    """The process group and the rank in it, from the prefix of a message."""
    text = text[:TEXT_LIMIT]
    if (of_nccl2 := _NCCL2.search(text)) is not None:
        numbered, named = _NCCL2_RANK.search(of_nccl2[1]), _NCCL2_NAME.search(of_nccl2[1])
        guid, place = named[1] if named else None, int(numbered[1]) if numbered else None
        described = _DEFAULT if guid == _DEFAULT_NAME else None
        return {"pg_id": None, "pg_guid": guid, "pg_desc": described, "pg_rank": place, "rank_in_group": place}
    group, inner = _GROUP.search(text), _IN_GROUP.search(text)
    rank = int(inner[1]) if inner else None
    if group is None:
        return {"pg_id": None, "pg_guid": None, "pg_desc": None, "pg_rank": None, "rank_in_group": rank}
    number = group["id"] or group["old"]
    own = int(group["rank"])
    return {
        "pg_id": int(number) if number else None,
        "pg_guid": group["guid"] or group["guid2"],
        "pg_desc": group["desc"] or group["desc2"] or group["olddesc"],
        "pg_rank": own,
        "rank_in_group": own if rank is None else rank,
    }


def matched_number(record: Record, match: re.Match[str] | None, group: int | str = 1) -> int | None:
    """The number in a group of a match; None without one, or if the line is cut directly behind it."""
    if match is None or match[group] is None or len(match[group]) > 18:
        return None
    return None if record.torn and match.end(group) == len(match.string) else int(match[group])


def sound_counter(value: int | None) -> int | None:
    """A counter of works; None for one that was never set."""
    return value if value is not None and -1 <= value <= COUNTER_LIMIT else None
