"""Prefixes that launchers, collectors and other tools put before the text of a line, printed times and colours."""

from __future__ import annotations

import calendar
import re
from functools import lru_cache
from typing import NamedTuple

import orjson

COLOUR = re.compile(rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>])")


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
_PLACES = re.compile(rf"^\[(?:{FULL})")
_LEVELLED, _LEVEL_WORD = ("vllm", "logging", "npu"), re.compile(_LEVEL)
_RANKED = {
    "rank": re.compile(r"\[rank(\d{1,7})\]"),
    "ray": re.compile(r"\(VllmWorker rank=(\d{1,7}) pid=|\((?:Vllm)?Worker[ _]TP(\d{1,7}) pid="),
    "sglang": re.compile(r"\[(?!.* (?:PP|DP)\d).{1,60} TP(\d{1,7})\b"),
    "determined": re.compile(r"\S+ \[rank=(\d{1,7})\]"),
    "npu": re.compile(r".{1,100}RankID:(\d{1,7})\)"),
}
"""The kinds with a rank. The rank of tensor parallelism is the rank if nothing else divides the job."""
_MOST = 12


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
        if kind == "sglang" and rank is None:
            labels.append(f"[{_PLACES.sub('', found[0]).strip(' []')}] ")
        if kind in _LEVELLED and (told_level := _LEVEL_WORD.search(found[0])) is not None:
            level = told_level[0]
    return LinePrefix(at, rank, "".join(labels), stamp, level)


def _rank(kind: str, front: str, known: int | None) -> int | None:
    number = _RANKED[kind].match(front) if kind in _RANKED else None
    return int(number[number.lastindex or 1]) if number is not None else known


WORDS = ('"log":', '"message":', '"msg":', '"textPayload":', '"MESSAGE":')
"""Keys of the text in a line that a collector keeps as JSON: Docker, fluentd and similar tools, cloud logging."""
_TEXT_KEYS = tuple(word.strip('":') for word in WORDS)
_TIME_KEYS = ("time", "timestamp", "@timestamp")
_COLLECTED = re.compile("|".join(word.replace(":", r"\s*:") for word in WORDS).encode())


def unwrapped(line: bytes) -> tuple[bytes, Stamp | None] | None:
    """Text and time of such a line, {"log": "...", "stream": "stdout", "time": "..."}; None for any other."""
    if not line.startswith(b"{") or not _COLLECTED.search(line):
        return None
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    text = next((row[name] for name in _TEXT_KEYS if isinstance(row.get(name), str)), None)
    time = next((row[name] for name in _TIME_KEYS if isinstance(row.get(name), str)), None)
    if text is None:
        return None
    stamp = read_stamp(time) if time is not None else None
    return text.rstrip("\r\n").encode("utf-8", "replace"), stamp
