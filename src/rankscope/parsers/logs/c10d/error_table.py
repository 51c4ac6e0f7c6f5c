"""The table of known errors: a text file of the package, and a user's own of the same form."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rankscope.parsers.user_tables import TableError, TableForm, bad_pattern, checked_pattern, merge_tables

ROLES = ("root", "victim", "context", "noise")
"""Roles of a line: a cause, a consequence in another rank, useful context, or noise. In order of rank."""
ACCUSED_RANKS = ("self", "named", "nobody")
"""Ranks that a cause accuses: the printing rank, the ranks that group `ranks` takes from the line, or none."""
FORM = TableForm(
    "rankscope.parsers.logs.c10d", "known_errors.tsv", "RANKSCOPE_ERRORS", "errors",
    ("id", "role", "accuses", "layer", "pattern", "meaning", "next", "source"), ("id", "role", "pattern"),
)  # fmt: skip


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
    return _read(FORM.packaged_text(), FORM.file_name)


@cache
def current_table(users: str | None = None) -> tuple[tuple[KnownError, ...], str | None]:
    """The table of rankscope with the user's own, at `users` or where it usually is, and why that cannot be read."""
    path = FORM.users_path(users)
    if path is None:
        return packaged_table(), None
    try:
        return merge_tables(packaged_table(), read_table(path)), None
    except TableError as error:
        return packaged_table(), str(error)


def read_table(path: Path) -> tuple[KnownError, ...]:
    """A user's own table with the columns `id`, `role` and `pattern` at least. Raises TableError."""
    return _read(FORM.text_of(path), str(path))


def _read(text: str, name: str) -> tuple[KnownError, ...]:
    found: dict[str, KnownError] = {}
    for place, values in FORM.rows(text, name):
        error = _entry(values, place)
        if error.id in found:
            raise TableError(f"{place}: id '{error.id}' is there twice")
        found[error.id] = error
    return tuple(found.values())


def _entry(values: dict[str, str], place: str) -> KnownError:
    role, pattern = values["role"], values["pattern"]
    accuses = values["accuses"] or ("self" if role == "root" else "nobody")
    if role not in ROLES:
        raise TableError(f"{place}: role '{role}' is none of {', '.join(ROLES)}")
    if accuses not in ACCUSED_RANKS:
        raise TableError(f"{place}: accuses '{accuses}' is none of {', '.join(ACCUSED_RANKS)}")
    if (accuses == "named") != ("(?P<ranks>" in pattern):
        raise TableError(f"{place}: who accuses 'named' has a group (?P<ranks>...) in the pattern, and nobody else")
    return KnownError(**{**values, "accuses": accuses}, words=_words(pattern, place))


def _words(pattern: str, place: str) -> tuple[str, ...]:
    checked_pattern(pattern, place)
    try:
        return required(pattern)
    except ValueError as e:
        raise bad_pattern(e, place) from e


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
