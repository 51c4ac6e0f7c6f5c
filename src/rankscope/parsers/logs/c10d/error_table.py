"""The table of known errors: a text file of the package, and a user's own of the same form."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import polars as pl
from platformdirs import user_config_path

ROLES = ("root", "victim", "context", "noise")
"""Roles of a line: a cause, a consequence in another rank, useful context, or noise. In order of rank."""
ACCUSED_RANKS = ("self", "named", "nobody")
"""Ranks that a cause accuses: the printing rank, the ranks that group `ranks` takes from the line, or none."""
COLUMNS = ("id", "role", "accuses", "layer", "pattern", "meaning", "next", "source")
_REQUIRED = ("id", "role", "pattern")
PATTERN_LIMIT = 500
USER_TABLE = "RANKSCOPE_ERRORS"
"""Environment variable with the path of a user's own table; worker processes read it."""
ENTRY_LIMIT = 1000
SIZE_LIMIT = 1 << 20


class TableError(Exception):
    """A table that cannot be read; the message names file and line."""


class KnownError(NamedTuple):
    """A line of a log with a known meaning."""

    id: str
    role: str
    """One of `ROLES`."""
    accuses: str
    """One of `ACCUSED_RANKS`; "nobody" for all that is no root."""
    layer: str
    """The source of the line: c10d, nccl, cuda, host, network, launcher, scheduler, python, gloo, framework."""
    pattern: str
    """A regular expression of Rust's regex crate, which takes linear time for any pattern."""
    meaning: str
    next: str
    source: str
    words: tuple[str, ...]
    """A matching line has one of these words."""


@cache
def packaged_table() -> tuple[KnownError, ...]:
    """The table that comes with rankscope."""
    place = resources.files("rankscope.parsers.logs.c10d") / "known_errors.tsv"
    return _read(place.read_text("utf-8"), "known_errors.tsv")


@cache
def current_table(users: str | None = None) -> tuple[tuple[KnownError, ...], str | None]:
    """The table of rankscope with the user's own, and why that cannot be read.

    The user's table is the one at `users`, or in `USER_TABLE`, else `known_errors.tsv` in the user's configuration, if
    it exists.
    """
    named = users or os.environ.get(USER_TABLE)
    path = Path(named) if named else user_config_path("rankscope") / "known_errors.tsv"
    if not named and not path.is_file():
        return packaged_table(), None
    try:
        return merge_tables(packaged_table(), read_table(path)), None
    except TableError as error:
        return packaged_table(), str(error)


def read_table(path: Path) -> tuple[KnownError, ...]:
    """A user's own table: tab-separated below a line that names columns: `id`, `role`, `pattern`. Raises TableError."""
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise TableError(f"{path}: larger than {SIZE_LIMIT >> 20} MiB: no table of errors")
        text = path.read_text("utf-8-sig")
    except OSError as e:
        raise TableError(f"{path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise TableError(f"{path}: not UTF-8 text") from e
    return _read(text, str(path))


def merge_tables(own: Iterable[KnownError], users: Iterable[KnownError]) -> tuple[KnownError, ...]:
    """Both tables, the user's first; an id of the user's replaces the one of the package."""
    first = {error.id: error for error in users}
    return (*first.values(), *(error for error in own if error.id not in first))


def _read(text: str, name: str) -> tuple[KnownError, ...]:
    rows = [
        (at, line.rstrip("\r").split("\t"))
        for at, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.startswith("#")
    ]
    columns = _columns(rows[0][1], f"{name}:{rows[0][0]}") if rows else []
    if not rows:
        raise TableError(f"{name}: empty: the first line names the columns {', '.join(COLUMNS)}")
    if len(rows) > ENTRY_LIMIT + 1:
        raise TableError(f"{name}: more than {ENTRY_LIMIT} entries")
    found: dict[str, KnownError] = {}
    for at, cells in rows[1:]:
        error = _entry(columns, cells, f"{name}:{at}")
        if error.id in found:
            raise TableError(f"{name}:{at}: id '{error.id}' is there twice")
        found[error.id] = error
    return tuple(found.values())


def _columns(cells: list[str], place: str) -> list[str]:
    columns = [cell.strip() for cell in cells]
    missing = [name for name in _REQUIRED if name not in columns]
    if missing:
        raise TableError(f"{place}: no column '{missing[0]}': the first line names the columns, with tabs between them")
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise TableError(f"{place}: unknown column '{unknown[0]}': there are {', '.join(COLUMNS)}")
    return columns


def _entry(columns: list[str], cells: list[str], place: str) -> KnownError:
    if len(cells) > len(columns):
        raise TableError(f"{place}: {len(cells)} cells for {len(columns)} columns")
    values = dict.fromkeys(COLUMNS, "") | {k: v.strip() for k, v in zip(columns, cells, strict=False)}
    values["accuses"] = values["accuses"] or ("self" if values["role"] == "root" else "nobody")
    # blanks at the ends of a pattern are significant
    pattern = dict(zip(columns, cells, strict=False)).get("pattern", "")
    if not values["id"] or not pattern:
        raise TableError(f"{place}: no {'pattern' if values['id'] else 'id'}")
    if values["role"] not in ROLES:
        raise TableError(f"{place}: role '{values['role']}' is none of {', '.join(ROLES)}")
    if values["accuses"] not in ACCUSED_RANKS:
        raise TableError(f"{place}: accuses '{values['accuses']}' is none of {', '.join(ACCUSED_RANKS)}")
    if (values["accuses"] == "named") != ("(?P<ranks>" in pattern):
        raise TableError(f"{place}: who accuses 'named' has a group (?P<ranks>...) in the pattern, and nobody else")
    return KnownError(**{**values, "pattern": pattern}, words=_words(pattern, place))


def _words(pattern: str, place: str) -> tuple[str, ...]:
    if len(pattern) > PATTERN_LIMIT:
        raise TableError(f"{place}: pattern longer than {PATTERN_LIMIT} characters")
    try:
        pl.Series([""]).str.contains(pattern)
        return required(pattern)
    except (ValueError, pl.exceptions.PolarsError) as e:
        said = [line.strip() for line in str(e).splitlines() if line.strip()]
        raise TableError(f"{place}: pattern: {said[-1] if said else 'not valid'}") from e


# Plain words without which a regular expression cannot match.

SHORTEST_LITERAL = 4
_ESCAPES = "dDwWsSbBtnr"
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])|(?P<open>\((?:\?(?::|P?<\w+>))?)|(?P<close>\))"
    r"|(?P<either>\|)|(?P<some>\+\??)|(?P<repeat>[*?]\??|\{\d+(?:,\d*)?\}\??)|(?P<any>[.^$])|(?P<plain>.)",
    re.DOTALL,
)


def required(pattern: str) -> tuple[str, ...]:
    """One word for each alternative of a pattern: a text that holds none of them cannot match.

    Only text outside of brackets counts. Raises ValueError if an alternative has no word of `SHORTEST_LITERAL` signs.
    """
    best = [""]
    run, depth = "", 0
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup, token[0]
        _refuse(kind, text, pattern[token.end() : token.end() + 1])
        char = text if kind == "plain" else text[1] if kind == "escape" and not text[1].isalnum() else ""
        if depth == 0 and char and not _optional(pattern, token.end()):
            run += char
            best[-1] = max(best[-1], run, key=len)
        else:
            run = ""
        depth += (kind == "open") - (kind == "close")
        if kind == "either" and depth == 0:
            best.append("")
    short = [word for word in best if len(word) < SHORTEST_LITERAL]
    if short:
        raise ValueError(f"every alternative needs {SHORTEST_LITERAL} plain characters in a row outside of brackets")
    return tuple(dict.fromkeys(best))


def _refuse(kind: str | None, text: str, following: str) -> None:
    """Raises ValueError for syntax that only a full parser can tell from plain characters."""
    if kind == "open" and text == "(" and following == "?":
        raise ValueError("flags and look-around are not supported: write [Ee]rror for either case")
    if kind == "escape" and text[1] not in _ESCAPES and (text[1].isalnum() or text[1] in "<>"):
        raise ValueError(f"escape {text} is not supported")
    if kind == "plain" and text == "{":
        raise ValueError("write \\{ for a brace")
    if kind == "set" and re.search(r"(?<!\\)\[(?!:)", text[1:]):
        raise ValueError("a set within a set is not supported")


def _optional(pattern: str, at: int) -> bool:
    """Whether the part that ends at `at` is optional or repeated."""
    return pattern[at : at + 1] in ("*", "?", "{")
