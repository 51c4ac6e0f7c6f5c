"""One message of a log, and events.

An event is a watchdog's report, an exception, the end of a process, but no operation. Shared by all recognisers: group
and rank before a message, and numbers that may be cut.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from rankscope.parsers.line_prefixes import Stamp
from rankscope.text.secrets import clip


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


REPEAT_MARK = re.compile(r" \[repeated \d+x across cluster\](?: \([^()]*\))?\s*$")
"""Text that Ray puts behind a line of several workers."""
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
