"""Redaction of host names, users and paths in findings, for public threads."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from rankscope.analysis.comparison.model import RunComparison
from rankscope.analysis.model import Analysis, GroupRef
from rankscope.analysis.places import Places
from rankscope.report import log_excerpts
from rankscope.schema import Dataset, Frame
from rankscope.schema.tables import Holds, text_columns
from rankscope.text.secrets import hide

_FIXED_FIELDS = frozenset({"id", "kind", "severity", "caused_by", "confidence", "status", "label"})
"""Fields with fixed words of rankscope."""
_PATH_FIELDS = frozenset({"file"})
_HOST_FIELDS = frozenset({"host"})
_SHOWN_TABLES = ("files", "stacks", "threads")
_LOG_TABLES = ("messages", "settings", "comms", "ras")
"""Tables whose stand-ins get the lowest numbers, because reports show them before and after the findings."""
_USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SLURM_JOB_USER")
_HOST_VARIABLES = ("HOSTNAME", "MASTER_ADDR", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "SLURM_LAUNCH_NODE_IPADDR")


def redact(
    dataset: Dataset,
    analysis: Analysis,
    hosts: Iterable[str] = (),
    users: Iterable[str] = (),
    keep_source_names: bool = True,
    whole_logs: bool = False,
) -> tuple[Dataset, Analysis]:
    """The data of a report with names replaced: host-1, user-1, dir-1; one name has one stand-in everywhere.

    `hosts` and `users` are further names to replace, of the machine that makes the report. Lines of logs that no report
    shows lose their text, unless `whole_logs` keeps them. Text is replaced in every
    column that `schema.text_columns` does not call rankscope's own, in the root and in the analysis.
    """
    told = dataset if whole_logs else replace(dataset, messages=_said(dataset))
    names = StandInNames(
        [*_hosts(told, analysis), *hosts], [*users, *_valued(told, _USER_VARIABLES)], keep_source_names
    )
    roots = [dataset.root] if dataset.root and not _is_address(dataset.root) else []
    paths = [
        *roots,
        *([dataset.beside.directory] if dataset.beside.ranks else []),
        *(p for p in dataset.files["path"].drop_nulls() if p),
    ]
    names.learn([*_strings(analysis), *_texts(told), *paths], paths)
    tables: dict[str, Any] = {name: _renamed(name, getattr(told, name), names) for name in _SHOWN_TABLES}
    redacted, root = _redacted(analysis, names), _root(dataset.root, names)
    tables |= {name: _renamed(name, table, names) for name, table in _tables(told).items() if name not in tables}
    beside = dataset.beside
    beside = beside._replace(directory=names.path(beside.directory)) if beside.ranks else beside
    return replace(told, **tables, root=root, beside=beside), redacted


def redact_comparison(
    found: RunComparison,
    runs: Sequence[tuple[Dataset, Analysis]],
    hosts: Iterable[str] = (),
    users: Iterable[str] = (),
) -> RunComparison:
    """The comparison with names replaced; one name has one stand-in in both runs."""
    seen = [host for dataset, analysis in runs for host in _hosts(dataset, analysis)]
    valued = [user for dataset, _ in runs for user in _valued(dataset, _USER_VARIABLES)]
    names = StandInNames([*seen, *hosts], [*users, *valued])
    paths = [
        *(run.title for run in found.runs),
        *(p for dataset, _ in runs for p in dataset.files["path"].drop_nulls()),
    ]
    names.learn(_strings(found), [path for path in paths if path])
    redacted: RunComparison = _redacted(found, names)
    return replace(redacted, runs=tuple(replace(run, title=names.path(run.title)) for run in found.runs))


def _tables(dataset: Dataset) -> dict[str, pl.DataFrame]:
    """All tables by name, those that reports show first."""
    tables = {f.name: getattr(dataset, f.name) for f in fields(dataset)}
    return {
        name: tables[name] for name in (*_SHOWN_TABLES, *_LOG_TABLES, *tables) if isinstance(tables[name], pl.DataFrame)
    }


def _renamed(name: str, table: pl.DataFrame, names: StandInNames) -> pl.DataFrame:
    """The table of that name with names replaced in all text that may be the user's."""
    change: dict[Holds, Callable[[str], str]] = {
        "host": names.host, "path": names.path, "text": lambda text: names.text(hide(text)),
    }  # fmt: skip
    held = text_columns(name, table.schema)
    return table.with_columns(_mapped(table[column], change[what]) for column, what in held.items())


def _root(root: str, names: StandInNames) -> str:
    return names.text(root) if _is_address(root) else names.path(root)


def _is_address(root: str) -> bool:
    """Whether the input is a server, not a path."""
    return "://" in root


def _said(dataset: Dataset) -> pl.DataFrame:
    """The lines of logs without texts that no report shows, as there may be very many.

    Similar lines are merged, so all lines after the listed ones have the text of the first.
    """
    rows = log_excerpts.cause_rows(dataset).with_row_index("number")
    first = (
        pl.when(pl.col("number") < log_excerpts.MOST_JSON_LINES)
        .then(pl.col("row"))
        .otherwise(pl.col("row").first().over("alike"))
    )
    shown = rows.select("row", first.alias("like"))
    texts = dataset.messages.select(pl.col("text").alias("said")).with_row_index("like")
    placed = dataset.messages.with_row_index("row").join(shown, on="row", how="left", maintain_order="left")
    told = placed.join(texts, on="like", how="left", maintain_order="left")
    return told.with_columns(text=pl.col("said").fill_null(""), values=pl.lit("{}")).select(dataset.messages.columns)


def _texts(dataset: Dataset) -> Iterator[str]:
    """Texts of the tables that may name users."""
    for name, table in _tables(dataset).items():
        for column, what in text_columns(name, table.schema).items():
            if what != "host":
                yield from _distinct(table[column])


def _hosts(dataset: Dataset, analysis: Analysis) -> list[str]:
    """All known hosts, switches and racks, in a fixed order."""
    accused = [c.host for f in analysis.findings for c in f.culprits if c.host]
    seen = [
        host
        for name, table in _tables(dataset).items()
        for column, what in text_columns(name, table.schema).items()
        if what == "host"
        for host in _distinct(table[column])
    ]
    said = [analysis.verdict, *(f.explanation for f in analysis.findings)]
    parts = sorted(part for part in Places(dataset).parts if any(part in text for text in said))
    return [*accused, *seen, *_valued(dataset, _HOST_VARIABLES), *parts]


def _valued(dataset: Dataset, settings: Sequence[str]) -> list[str]:
    """Values of the settings with these names."""
    rows = dataset.settings.filter(pl.col("name").is_in(settings) & (pl.col("value") != ""))
    return rows["value"].unique(maintain_order=True).to_list()


def _distinct(column: pl.Series) -> list[str]:
    """The distinct values of a text column, in order."""
    return column.drop_nulls().unique(maintain_order=True).cast(pl.String).to_list()


def _mapped(column: pl.Series, change: Callable[[str], str]) -> pl.Series:
    """The column with every distinct value changed once; nulls stay."""
    new = {old: change(old) for old in _distinct(column) if old}
    changed = {old: value for old, value in new.items() if value != old}
    return column.cast(pl.String).replace(changed).cast(column.dtype) if changed else column


def _redacted(value: Any, names: StandInNames, name: str = "") -> Any:
    """The value with its text replaced; `name` is its field."""
    if isinstance(value, str):
        return value if name in _FIXED_FIELDS else _change(names, name)(value)
    if isinstance(value, Frame):
        return Frame(names.text(value.function), names.path(value.file), value.line)
    if isinstance(value, tuple):
        parts = (_redacted(v, names, name) for v in value)
        return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
    if isinstance(value, dict):
        return {k: _redacted(v, names) for k, v in value.items()}
    return _of_parts(value, names, name)


def _of_parts(value: Any, names: StandInNames, name: str) -> Any:
    """The same for a table, or for an object by its fields."""
    if isinstance(value, pl.DataFrame):
        return _renamed(name, value, names)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    # the id of a group is the user's, that of a finding is not
    called = {f.name: "" if isinstance(value, GroupRef) else f.name for f in fields(value)}
    return replace(value, **{own: _redacted(getattr(value, own), names, said) for own, said in called.items()})


def _change(names: StandInNames, name: str) -> Callable[[str], str]:
    if name in _PATH_FIELDS:
        return names.path
    return names.host if name in _HOST_FIELDS else names.text


def _strings(value: Any) -> Iterator[str]:
    """All texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list):
        for v in value:
            yield from _strings(v)
    elif isinstance(value, dict):
        yield from _strings(tuple(value.values()))
    elif isinstance(value, pl.DataFrame):
        for column in text_columns("", value.schema):
            yield from _distinct(value[column])
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from _strings(getattr(value, f.name))


# Stand-ins for host names, users and paths in text, consistent over the whole report.

_SPLIT = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+]*://[^\s'\"`()<>]+)"
    r"|(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<path>[~\w.@+!-]*(?:/[\w.@+~=%!#-]+)+/?)"
    r"|(?<!\w)(?P<address>[0-9a-f]*:[0-9a-f:.]*:[0-9a-f:.]*|\d{1,3}(?:\.\d{1,3}){3})(?!\w)"
    r"|(?P<word>\w[\w.-]*)",
    re.IGNORECASE,
)
_USER = re.compile(r"(?:/(?:home|users?|u)/+|^~)([^/\s~]+)", re.IGNORECASE)
_SOURCE = re.compile(r"\.(?:py|pyx|c|cc|cpp|cxx|cu|cuh|h|hpp)$")
_PUBLIC = re.compile(r"(?:site|dist)-packages/torch/")
_PYTHON = re.compile(r"python3?(?:\.\d+)?$")
_COMMON_PARTS = frozenset({
    ".", "..", "home", "Users", "usr", "lib", "lib64", "opt", "tmp", "var", "mnt", "data", "scratch", "local", "bin",
    "site-packages", "dist-packages", "nccl", "comm", "trace", "rank", "dump", "fr", "gloo", "xccl", "hccl", "torch",
    "torchcomms", "json", "pkl", "pickle", "gz", "zst", "tar", "tgz", "zip", "log", "txt",
})  # fmt: skip
"""Common parts of paths and dump names, which identify nobody."""
_JOINTS = re.compile(r"([_.-]+)")
_COMMON_NAMES = frozenset({"root", "localhost"})
_SHORTEST_USER = 3
"""Shortest user name that is replaced in prose; shorter ones, which match half the words, only in paths."""


class StandInNames:
    """The stand-ins of one report: host-1, user-1, dir-1, name-1, numbered by first occurrence."""

    def __init__(self, hosts: Iterable[str], users: Iterable[str], keep_source_names: bool = True) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._keep_source_names = keep_source_names
        self._hosts = {h for h in map(_short, hosts) if re.search(r"[a-z]", h) and len(h) > 1} - _COMMON_NAMES
        self._shapes = {_shape(h) for h in self._hosts if re.search(r"\d", h)}
        self._users = set[str]()
        self._add_users(users)
        self._paths = set[str]()
        self._odd: dict[str, str] = {}

    def learn(self, texts: Iterable[str], paths: Iterable[str]) -> None:
        """Collects users from all text, and the paths of files, to recognise them in prose."""
        for text in texts:
            self._add_users(_USER.findall(text))
        self._paths.update(paths)
        for path in sorted((p for p in self._paths if re.search(r"\s", p)), key=len, reverse=True):
            self._odd[path] = self.path(path)

    def _add_users(self, users: Iterable[str]) -> None:
        self._users.update(u for u in users if len(u) >= _SHORTEST_USER and u not in _COMMON_NAMES)

    def text(self, text: str) -> str:
        """`text` with every name in it replaced."""
        for path, stand_in in self._odd.items():
            text = text.replace(path, stand_in)
        return _SPLIT.sub(self._token, text)

    def host(self, name: str) -> str:
        """The stand-in of a host; its short and its full name have the same."""
        return name if name in _COMMON_NAMES else self._alias("host", _short(name))

    def path(self, path: str) -> str:
        """A redacted path: common parts stay, users and hosts get their stand-ins, other parts dir-1 and name-1."""
        public = _PUBLIC.search(path)
        if public:
            return f"site-packages/{path[public.end() - len('torch/') :]}"
        users = set(_USER.findall(path)) - _COMMON_NAMES
        return "!".join(self._inner_path(inner, users) for inner in path.split("!"))

    def _inner_path(self, path: str, users: set[str]) -> str:
        *directories, base = path.split("/")
        return "/".join([*(self._directory(part, users) for part in directories), self._base(base)])

    def _alias(self, kind: str, name: str) -> str:
        if (kind, name) not in self._given:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._given[kind, name] = f"{kind}-{self._counts[kind]}"
        return self._given[kind, name]

    def _known(self, word: str) -> str | None:
        """The stand-in of a word that is a known host or user."""
        if word in self._users:
            return self._alias("user", word)
        return self.host(word) if _short(word) in self._hosts or _shape(_short(word)) in self._shapes else None

    def _directory(self, part: str, users: set[str]) -> str:
        name = part.lstrip("~")
        if not name or name in _COMMON_PARTS or _PYTHON.match(name):
            return part
        if name in users:
            return "~" * part.startswith("~") + self._alias("user", name)
        return self._known(part) or self._alias("dir", part)

    def _base(self, name: str) -> str:
        """The redacted last part of a path: a source file may keep its name, a dump keeps usual words."""
        if _SOURCE.search(name) or name.startswith("<"):
            return self._source(name)
        return "_".join(self._piece(piece) for piece in name.split("_"))

    def _source(self, name: str) -> str:
        if self._keep_source_names or name.startswith("<"):
            return "_".join(self._known(piece) or piece for piece in name.split("_"))
        stem, dot, suffix = name.rpartition(".")
        return self._alias("file", stem) + dot + suffix

    def _piece(self, piece: str) -> str:
        return self._known(piece) or "".join(map(self._particle, _JOINTS.split(piece)))

    def _particle(self, part: str) -> str:
        if part in _COMMON_PARTS or not part.strip(".-_") or part.isdigit():
            return part
        return self._known(part) or self._alias("name", part)

    def _token(self, match: re.Match[str]) -> str:
        kind, token = match.lastgroup or "", match.group()
        if kind == "url":
            return self._alias("url", token)
        if kind == "mail":
            return self._alias("mail", token)
        if kind == "address":
            return self._address(token)
        return self._in_prose(token) if kind == "word" else self._path_in_prose(token)

    def _address(self, token: str) -> str:
        try:
            address = ipaddress.ip_address(token.rstrip(":."))
        except ValueError:
            return token
        return self._alias("address", str(address)) + token[len(token.rstrip(":.")) :]

    def _path_in_prose(self, token: str) -> str:
        stem = token.rstrip(".,/")
        if token[0] in "/~" or _SOURCE.search(stem) or stem in self._paths:
            return self.path(stem) + token[len(stem) :]
        return "/".join(self._in_prose(part) for part in token.split("/"))

    def _in_prose(self, token: str) -> str:
        """A word, replaced if it or a part of it is a known name."""
        stem = token.rstrip(".-")
        if _SOURCE.search(stem):
            return self._source(stem) + token[len(stem) :]
        known = self.path(stem) if stem in self._paths else self._known(stem)
        if known:
            return known + token[len(stem) :]
        pieces = _JOINTS.split(token)
        return "".join(self._known(piece) or piece for piece in pieces) if len(pieces) > 1 else token


def _short(host: str) -> str:
    """A host name without its domain, for comparison."""
    return PurePosixPath(host.lower()).name.split(".")[0]


def _shape(host: str) -> str:
    """A host name without its numbers: node07 and node12 have one shape."""
    return re.sub(r"\d+", "#", host)
