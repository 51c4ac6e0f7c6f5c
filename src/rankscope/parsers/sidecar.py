"""The content of one sidecar, and its form between processes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import orjson

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.members import Members, unpack_members
from rankscope.parsers.safe_values import RANK_LIMIT, rank_list, safe_integer, safe_text
from rankscope.text.secrets import clip


class SidecarGroup(NamedTuple):
    """A process group of the rank."""

    name: str
    """Its name in the recorder's entries."""
    description: str
    backend: str
    """"nccl", or "cpu:gloo,cuda:nccl"; empty if unknown."""
    ranks: Members
    """Global ranks; the position is the rank within the group."""


@dataclass
class Sidecar:
    """The sidecar of one process of the job."""

    rank: int
    world_size: int | None = None
    host: str = ""
    pid: int | None = None
    job: str = ""
    attempt: int | None = None
    run: str = ""
    """What tells this run from others of one job, the same on all ranks; empty if unknown."""
    started_ns: int | None = None
    interval_ns: int | None = None
    """The time between its dumps; None if unknown."""
    delay_ns: int = 0
    """The longest duration or delay of a dump."""
    dumps: list[str] = field(default_factory=list)
    """Names of its dumps in the same directory."""
    ended: str = ""
    """"exit", "exception", "interrupted", "terminated"; empty for a running or killed process."""
    ended_ns: int | None = None
    error: str = ""
    """The exception that ended it."""
    cause: str = ""
    """The oldest exception that led to this one; empty if there is none."""
    groups: list[SidecarGroup] = field(default_factory=list)
    torch: str = ""
    """The version of torch; empty if unknown."""
    settings: list[tuple[str, str]] = field(default_factory=list)
    """Names and values of its code: command line, commit, hashes of files, versions of packages."""
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of groups."""
        return len(self.groups)

    def header(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**told, "groups": [(*group[:3], group.ranks.packed) for group in self.groups]}

    def body(self) -> list[memoryview]:
        """Empty: the header holds everything."""
        return []


def sidecar_from(header: dict[str, Any], *_: object) -> Sidecar:
    """The sidecar whose `header()` this is."""
    groups = [SidecarGroup(row[0], row[1], row[2], unpack_members(row[3])) for row in header["groups"]]
    settings = [(name, value) for name, value in header.get("settings", ())]
    return Sidecar(**{**header, "groups": groups, "settings": settings})


# Decoder of sidecars. It checks everything: anybody may have written the file.

VERSION = 1
ERROR_LIMIT = 2000
"""Characters of an exception that are read."""
_BEGIN = re.compile(rb'\s*\{\s*"rankscope_capture"\s*:')
_MOST_GROUPS = 1 << 16
"""Most groups, and most dumps, that are kept; a rank is in some dozens."""


def looks_like_sidecar(head: bytes) -> bool:
    """Whether a file with these first bytes is a sidecar."""
    return _BEGIN.match(head) is not None


def decode_sidecar(data: bytes) -> Sidecar:
    """The sidecar in `data`. Raises NotThisKindError for one without a rank."""
    try:
        told = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotThisKindError(f"a sidecar of the capture that is damaged or cut off: {error.msg}") from error
    rank = _rank(told.get("rank"))
    if rank is None:
        raise NotThisKindError("a sidecar of the capture without a rank")
    ended = told.get("ended") if isinstance(told.get("ended"), dict) else {}
    versions = told.get("versions") if isinstance(told.get("versions"), dict) else {}
    card = Sidecar(
        rank=rank,
        world_size=_world(told.get("world_size"), rank),
        host=safe_text(told.get("host")) or "",
        pid=safe_integer(told.get("pid")),
        job=safe_text(told.get("job")) or "",
        attempt=_rank(told.get("attempt")),
        run=safe_text(told.get("run")) or "",
        started_ns=safe_integer(told.get("started_ns")),
        interval_ns=_nanoseconds(told.get("interval_s")),
        delay_ns=_nanoseconds(told.get("delay_s")) or 0,
        dumps=[name for name in map(safe_text, _list(told.get("dumps"))) if name],
        ended=safe_text(ended.get("reason")) or "",
        ended_ns=safe_integer(ended.get("time_ns")),
        error=clip(safe_text(ended.get("error")) or "", ERROR_LIMIT),
        cause=clip(safe_text(ended.get("cause")) or "", ERROR_LIMIT),
        groups=_groups(told.get("groups"), rank),
        torch=safe_text(versions.get("torch")) or "",
        settings=list(_code_settings(told.get("code"), versions)),
    )
    card.problem = _problem(told)
    return card


COMMAND, COMMIT, CHANGES, FILE, PACKAGE = (
    "command line", "code commit", "code changes", "code file ", "version:",
)  # fmt: skip
"""Names of settings that tell the code of a process, and the beginnings of those of its files and packages."""
_MOST_CODE = 512
"""Most files, packages and arguments that are read."""
_LONGEST_COMMAND = 8000


def _code_settings(told: Any, versions: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values of the code of a process."""
    code = told if isinstance(told, dict) else {}
    command = [text for text in map(safe_text, _list(code.get("command"))[:_MOST_CODE]) if text is not None]
    if command:
        yield COMMAND, clip(shlex.join(command), _LONGEST_COMMAND)
    for name, key in ((COMMIT, "commit"), (CHANGES, "changes")):
        if value := safe_text(code.get(key)):
            yield name, value
    packages = {**_texts(code.get("packages")), **_texts(versions)} if code else {}
    for begin, values in ((FILE, _texts(code.get("files"))), (PACKAGE, packages)):
        yield from ((begin + name, value) for name, value in values.items())


def _texts(value: Any) -> dict[str, str]:
    """The texts of an object, by name."""
    pairs = list(value.items())[:_MOST_CODE] if isinstance(value, dict) else []
    texts = ((safe_text(str(name)), safe_text(text)) for name, text in pairs)
    return {name: text for name, text in texts if name and text}


def _nanoseconds(value: Any) -> int | None:
    """Nanoseconds of a number of seconds above 0 and below a year; else None."""
    return int(value * 1e9) if type(value) in (int, float) and 0 < value < 3.2e7 else None


def _problem(told: dict[str, Any]) -> str | None:
    version = safe_integer(told.get("rankscope_capture"))
    notes = [note for note in map(safe_text, _list(told.get("problems"))[:16]) if note]
    if version is not None and version > VERSION:
        notes.append(f"its format {version} is newer than {VERSION}: some of it may be missing")
    return "; ".join(notes) or None


def _groups(value: Any, rank: int) -> list[SidecarGroup]:
    """Groups with known members that include the rank; all others are useless."""
    found = []
    for group in _list(value):
        name = safe_text(group.get("name")) if isinstance(group, dict) else None
        ranks = rank_list(_list(group.get("ranks"))) if name else None
        if name and ranks is not None and rank in ranks:
            described = [safe_text(group.get(key)) or "" for key in ("description", "backend")]
            found.append(SidecarGroup(name, described[0], described[1], ranks))
    return found


def _list(value: Any) -> list[Any]:
    return value[:_MOST_GROUPS] if isinstance(value, list) else []


def _rank(value: Any) -> int | None:
    number = safe_integer(value)
    return number if number is not None and 0 <= number < RANK_LIMIT else None


def _world(value: Any, rank: int) -> int | None:
    """The number of ranks; None if it excludes the rank itself."""
    number = safe_integer(value)
    return number if number is not None and rank < number <= RANK_LIMIT else None
