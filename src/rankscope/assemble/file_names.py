"""Rank, host and attempt in the names of files and directories."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath

from rankscope.parsers.safe_values import RANK_LIMIT

REMEMBERED_PATHS = 1 << 16
"""Number of paths whose parsed names are remembered, for a watched job."""
_SUFFIX = re.compile(
    r"\.(?:json|pkl|pickle|pt|bin|txt|log|dump|trace|old|bak|gz|zst|xz|bz2|tar|tgz|txz|tbz2|zip)$", re.IGNORECASE
)
_TIMESTAMP = re.compile(r"[_.\-]?\d{8}[_T\-]?\d{4,6}(?=$|[_.\-])|[_.\-]\d{9,}(?=$|[_.\-])")
_RANK = re.compile(r"(?:^|[^a-zA-Z])(?<!local.)rank[_.\-=]?(\d{1,7})(?!\d)", re.IGNORECASE)
_HOST_RANK = re.compile(r"rank[_.\-](?P<host>[a-zA-Z][\w.\-]*?)[_.\-](?P<rank>\d{1,7})$", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(?:^|[_.\-a-zA-Z])(\d{1,6})$")
_HOST_BEFORE = re.compile(r"^(?P<host>[\w\-]+(?:\.[\w\-]+)*?)\.pci\d+_rank")
_HOST_AFTER = re.compile(r"rank[_.\-]?\d+\.(?P<host>[a-zA-Z][\w\-]*\d)$", re.IGNORECASE)
_PY_SPY = re.compile(r"py[_.\-]?spy|(?<![a-z])stacks?(?![a-z])", re.IGNORECASE)
_NODE = re.compile(
    r"^(?!(?:multi|single|dual|two|four|eight|\d+)-)(?:[a-z0-9]+-)*(?:node|host|worker|ip|dgx|hgx|nid|cn|compute|pod)"
    r"(?:_?\d+|[a-z]?\d+|(?:-[a-z0-9]+)*-[a-z0-9]*\d+)(?:[.\-][a-z0-9.\-]*\d)?$",
    re.IGNORECASE,
)
"""A name of a host: it has no underscores but one before a number. "multi_node_2" is a number of nodes."""
_ATTEMPT = re.compile(r"^(?:attempt|restart|retry|try|run|incarnation|job)[_.\-]?\w*\d\w*$", re.IGNORECASE)


def _parts(shown: str) -> tuple[str, list[str]]:
    """The file name, and the names of the directories and archives above it, nearest first."""
    names = [name for name in shown.replace("!", "/").split("/") if name not in ("", ".")]
    return names[-1] if names else "", names[-2::-1]


def _stem(name: str) -> str:
    while (shorter := _SUFFIX.sub("", name)) != name:
        name = shorter
    return _TIMESTAMP.sub("", name)


@lru_cache(REMEMBERED_PATHS)
def says_rank(shown: str) -> bool:
    """Whether a path calls its number a rank; a bare number may be a process id."""
    return _RANK.search(shown) is not None or _HOST_RANK.search(_stem(_parts(shown)[0])) is not None


@lru_cache(REMEMBERED_PATHS)
def rank_of(shown: str) -> int | None:
    """The rank in a path: in the file name, else in a directory "rank_3" above it."""
    rank = _number_in(shown)
    return rank if rank is not None and rank < RANK_LIMIT else None


def _number_in(shown: str) -> int | None:
    name, above = _parts(shown)
    stem = _stem(name)
    if found := _RANK.findall(stem):
        return int(found[-1])
    for pattern in (_HOST_RANK, _LAST_NUMBER):
        if match := pattern.search(stem):
            return int(match.groups()[-1])
    found = [match for directory in above[:2] for match in _RANK.findall(directory)]
    return int(found[0]) if found else None


def rank_by(pattern: re.Pattern[str], shown: str) -> int | None:
    """The rank that the user's regular expression finds: its first group, else the whole match."""
    match = pattern.search(shown)
    if match is None:
        return None
    text = match.group(1) if pattern.groups else match.group()
    number = int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else RANK_LIMIT
    return number if number < RANK_LIMIT else None


def host_of(shown: str) -> str | None:
    """The host that a path plainly names; None without one."""
    name, above = _parts(shown)
    stem = _stem(name)
    for pattern in (_HOST_BEFORE, _HOST_AFTER, _HOST_RANK):
        if match := pattern.search(stem):
            return match["host"]
    return next((directory for directory in above if _NODE.match(directory)), None)


def of_py_spy(shown: str) -> bool:
    """Whether a file has a name like an output of py-spy."""
    return _PY_SPY.search(_parts(shown)[0]) is not None


def is_part(shown: str) -> bool:
    """Whether a file has the name of an unfinished file of the capture."""
    name = _parts(shown)[0]
    return name.startswith(".") and name.endswith(".part")


def attempt_of(shown: str) -> str | None:
    """The directory that names an attempt ("attempt_1"); None without one."""
    return next((directory for directory in _parts(shown)[1] if _ATTEMPT.match(directory)), None)


def directory_of(shown: str) -> str:
    """The directory of a file; archives count as directories."""
    return str(PurePosixPath(shown.replace("!", "/")).parent)
