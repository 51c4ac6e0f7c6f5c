"""Search for known errors in lines, by plain words without which their patterns cannot match."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from rankscope.features.logs.read.c10d import tracebacks
from rankscope.features.logs.read.log_record import Event, Record, message_event
from rankscope.kinds.error_traits import TRAITS, WRAPS
from rankscope.parsers.user_tables import TableError, TableForm, bad_pattern, checked_pattern, with_users_rows

ROLES = ("root", "victim", "context", "noise")
"""Roles of a line: a cause, a consequence in another rank, useful context, or noise. In order of rank."""
ACCUSED_RANKS = ("self", "named", "nobody")
"""Ranks that a cause accuses: the printing rank, the ranks that group `ranks` takes from the line, or none."""
OWN_RANK = "rank"
"""Name of the group in a pattern that matches the global rank of the printing process."""
NAMED_RANKS = "ranks"
"""Name of the group that matches ranks of the printing rank's group: "1, 3", "[4-7]"."""
_GROUP_NAME = re.compile(r"\(\?P?<(\w+)>")
_RANK_RANGE = re.compile(r"([0-9]{1,7})(?:\s?(?:-|\.\.)\s?([0-9]{1,7}))?")
MOST_NAMED_RANKS = 1 << 17
LONGEST_RANK = 7
FORM = TableForm(
    "rankscope.features.logs.read.c10d", "known_errors.tsv", "RANKSCOPE_ERRORS", "errors",
    ("id", "role", "accuses", "traits", "name", "layer", "pattern", "meaning", "next", "source"),
    ("id", "role", "pattern"),
)  # fmt: skip


class KnownError(NamedTuple):
    """A line of a log with a known meaning."""

    id: str
    role: str
    """One of `ROLES`."""
    accuses: str
    """One of `ACCUSED_RANKS`; "nobody" for all that is no root."""
    traits: tuple[str, ...]
    """Names of `TRAITS` that fit its role and whom it accuses."""
    name: str
    """Its name in titles; "" where the words of the id say it."""
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
    return with_users_rows(packaged_table(), read_table, FORM.users_path(users))


def checked_environment(path: Path) -> dict[str, str]:
    """The environment that names the user's own table to processes that read. Raises TableError for a wrong one."""
    read_table(path)
    return {FORM.variable: str(path.resolve())}


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
    if role != "root" and accuses != "nobody":
        raise TableError(f"{place}: only a root accuses somebody, not a {role}")
    groups = _GROUP_NAME.findall(pattern)
    if (accuses == "named") != (NAMED_RANKS in groups):
        raise TableError(f"{place}: who accuses 'named' has a group (?P<ranks>...) in the pattern, and nobody else")
    unknown = [group for group in groups if group not in (NAMED_RANKS, OWN_RANK)]
    if unknown:
        raise TableError(f"{place}: group '{unknown[0]}' is none of {NAMED_RANKS}, {OWN_RANK}")
    if re.search(r"\s", values["id"]):
        raise TableError(f"{place}: id '{values['id']}': an id has no blanks")
    traits = tuple(values["traits"].split())
    for trait in traits:
        # raises TableError for a trait that nobody knows, or that would have no effect
        if trait not in TRAITS:
            raise TableError(f"{place}: trait '{trait}' is none of {', '.join(TRAITS)}")
        fits = TRAITS[trait]
        if (role, accuses) != (fits.role, fits.accuses):
            raise TableError(f"{place}: trait '{trait}' is for a {fits.role} that accuses {fits.accuses}")
    cells = {name: text for name, text in values.items() if name not in ("accuses", "traits")}
    return KnownError(**cells, accuses=accuses, traits=traits, words=_words(pattern, place))


def _words(pattern: str, place: str) -> tuple[str, ...]:
    checked_pattern(pattern, place)
    try:
        return required(pattern)
    except ValueError as e:
        raise bad_pattern(e, place) from e


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


_SKIPPABLE = "cuda-out-of-memory"
"""An error that programs catch to skip a batch; one that is only a warning may not have ended its process."""
_PID = re.compile(
    r"^(?:E[A-Z]\d{4}: )?\[PID: (\d{1,10})\] \S{1,40} |NVRM: Xid \([^)]{0,40}\): \d{1,4}, pid='?(\d{1,10})\b"
)
"""The process id in lines of HCCL and of the driver."""


class KnownErrors:
    """Matcher of a table of known errors."""

    def __init__(self, table: Sequence[KnownError]) -> None:
        self._table = sorted(table, key=lambda error: ROLES.index(error.role))
        self._errors: defaultdict[str, list[int]] = defaultdict(list)
        for i, error in enumerate(self._table):
            for word in error.words:
                self._errors[word].append(i)
        self.literals = tuple(self._errors)
        self._accusing = {w for e in self._table if e.role == "root" and e.accuses == "self" for w in e.words}

    def events(self, records: Sequence[Record]) -> list[Event]:
        """An event for each matching line: of its strongest role, and in the order of the table.

        Values: `id`, `role`, `accuses`, `named` (ranks of the printing rank's group, where `accuses` is "named"),
        `also`, the ids of other matching errors, `traits`, `title` (the name), `layer`, `meaning`, `next` and `source`,
        as in the table, and of a root `survived`, if the line says that its program goes on.
        """
        texts = [record.text for record in records]
        found: list[list[tuple[KnownError, dict[str, str | None]]]] = [[] for _ in texts]
        for i, rows in sorted(self._candidates(texts).items()):
            error = self._table[i]
            for row, groups in zip(rows, _matches(error, [texts[row] for row in rows]), strict=True):
                found[row] += [(error, groups)] if groups is not None else []
        return [_event(record, errors) for record, errors in zip(records, found, strict=True) if errors]

    def may_accuse(self, text: str) -> bool:
        """Whether a line may hold an error that accuses the rank that prints it."""
        return any(word in text for word in self._accusing)

    def _candidates(self, texts: Sequence[str]) -> dict[int, list[int]]:
        """For the index of each error, the texts with one of its words."""
        rows: defaultdict[int, list[int]] = defaultdict(list)
        if not texts or not self.literals:
            return rows
        column = pl.Series(texts, dtype=pl.String)
        if len(texts) < FEW_TEXTS:
            words = [[word for word in self.literals if word in text] for text in texts]
        else:
            words = column.str.extract_many(list(self.literals), overlapping=True).to_list()
        for row, held in enumerate(words):
            for i in {i for word in held for i in self._errors[word]}:
                rows[i].append(row)
        return rows


def _matches(error: KnownError, texts: list[str]) -> list[dict[str, str | None] | None]:
    """For each text None, or if it matches, what the groups of the pattern hold."""
    column = pl.Series(texts, dtype=pl.String)
    matched = column.str.contains(error.pattern).to_list()
    if not any(matched) or not _GROUP_NAME.search(error.pattern):
        return [{} if fits else None for fits in matched]
    groups = column.str.extract_groups(error.pattern).to_list()
    return [held if fits else None for fits, held in zip(matched, groups, strict=True)]


def _event(record: Record, errors: list[tuple[KnownError, dict[str, str | None]]]) -> Event:
    # of a message in a wrapper the message decides
    within = (row for row in errors if row[0].role in ("root", "victim") and WRAPS not in row[0].traits)
    first, groups = errors[0] if WRAPS not in errors[0][0].traits else next(within, errors[0])
    also = [error.id for error, _ in errors if error is not first]
    own = groups.get(OWN_RANK)
    if own is not None and own.isascii() and own.isdecimal() and len(own) <= LONGEST_RANK and record.rank is None:
        record = record._replace(rank=int(own))
    process = _PID.search(record.text)
    pid = int(process[1] or process[2]) if process else None
    said: dict[str, Any] = {
        "accuses": first.accuses, "named": named_ranks(groups.get(NAMED_RANKS) or ""), "traits": list(first.traits),
        "title": first.name, "layer": first.layer, "meaning": first.meaning, "next": first.next,
        "source": first.source,
    }  # fmt: skip
    caught = first.id == _SKIPPABLE and "NCCL" not in record.text and tracebacks.is_warning(record.text, record.level)
    if first.role == "root" and tracebacks.goes_on(record.text):
        said["survived"] = tracebacks.LOGGED
    elif caught:
        said["survived"] = tracebacks.WARNED
    return message_event("known-error", record, id=first.id, role=first.role, also=also, pid=pid, **said)


def named_ranks(listed: str) -> list[int]:
    """The ranks in "1, 3", "[4-7]" or "4..7", in order; of a range that is longer than any job only its ends."""
    ranks: list[int] = []
    for low, high in _RANK_RANGE.findall(listed):
        first, last = int(low), int(high or low)
        ranks += range(first, last + 1) if first <= last < first + MOST_NAMED_RANKS else (first, last)
    return ranks[:MOST_NAMED_RANKS]


FEW_TEXTS = 32
"""Fewest texts that justify an automaton over all words."""


class WordScreen:
    """Search for any of its literals in texts."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = _shortest(frozenset(literals))

    def many(self, texts: Sequence[str] | pl.Series) -> list[bool]:
        """For each text whether it holds a literal."""
        if not self.literals:
            return [False] * len(texts)
        if len(texts) < FEW_TEXTS:
            return [any(literal in text for literal in self.literals) for text in texts]
        # an automaton over all words: expensive to build, fast to run
        column = texts if isinstance(texts, pl.Series) else pl.Series(texts, dtype=pl.String)
        return column.str.contains_any(list(self.literals)).to_list()


@cache
def _shortest(words: frozenset[str]) -> tuple[str, ...]:
    """Words that contain no other one, shortest first: a text with a longer word contains the shorter one.

    The words of a table are the same for each log, and comparing them takes as long as reading a short one.
    """
    shortest: list[str] = []
    for word in sorted(words, key=lambda word: (len(word), word)):
        if not any(shorter in word for shorter in shortest):
            shortest.append(word)
    return tuple(shortest)
