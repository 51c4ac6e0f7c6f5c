"""The same findings without host names, users and paths, for public threads."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from rankscope.analysis.model import Analysis, GroupRef
from rankscope.analysis.places import Places
from rankscope.report import log_excerpts
from rankscope.schema import Dataset, Frame
from rankscope.schema.tables import Holds, text_columns
from rankscope.text.secrets import hide

_OWN_WORDS = frozenset({"id", "kind", "severity", "caused_by", "confidence", "status"})
"""Fields that hold words of rankscope's own."""
_PATHS = frozenset({"file"})
_HOSTS = frozenset({"host"})
_FIRST = ("files", "stacks", "threads")
_LOGS = ("messages", "settings", "comms", "ras")
"""Tables whose stand-ins have the lowest numbers: those that reports show, before and after the findings."""
_NAME_A_USER = ("USER", "LOGNAME", "USERNAME", "SLURM_JOB_USER")
_NAME_A_HOST = ("HOSTNAME", "MASTER_ADDR", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "SLURM_LAUNCH_NODE_IPADDR")


def redact(
    dataset: Dataset,
    analysis: Analysis,
    hosts: Iterable[str] = (),
    users: Iterable[str] = (),
    keep_source_names: bool = True,
) -> tuple[Dataset, Analysis]:
    """What a report shows of a job with names replaced: host-1, user-1, dir-1; one name has one stand-in everywhere.

    `hosts` and `users` are further names to replace, of the machine that makes the report. Text is replaced in every
    column that `schema.text_columns` does not call rankscope's own, in the root and in the analysis.
    """
    told = replace(dataset, messages=_said(dataset))
    names = Names([*_hosts(told, analysis), *hosts], [*users, *_valued(told, _NAME_A_USER)], keep_source_names)
    roots = [dataset.root] if dataset.root and not _is_address(dataset.root) else []
    paths = [*roots, *(p for p in dataset.files["path"].drop_nulls() if p)]
    names.learn([*_strings(analysis), *_texts(told), *paths], paths)
    tables: dict[str, Any] = {name: _renamed(name, getattr(told, name), names) for name in _FIRST}
    redacted, root = _redacted(analysis, names), _root(dataset.root, names)
    tables |= {name: _renamed(name, table, names) for name, table in _tables(told).items() if name not in tables}
    return replace(told, **tables, root=root), redacted


def _tables(dataset: Dataset) -> dict[str, pl.DataFrame]:
    """All tables by name, those first that reports show."""
    tables = {f.name: getattr(dataset, f.name) for f in fields(dataset)}
    return {name: tables[name] for name in (*_FIRST, *_LOGS, *tables) if isinstance(tables[name], pl.DataFrame)}


def _renamed(name: str, table: pl.DataFrame, names: Names) -> pl.DataFrame:
    """The table of that name with names replaced in all text that may be the user's."""
    change: dict[Holds, Callable[[str], str]] = {
        "host": names.host, "path": names.path, "text": lambda text: names.text(hide(text)),
    }  # fmt: skip
    held = text_columns(name, table.schema)
    return table.with_columns(_mapped(table[column], change[what]) for column, what in held.items())


def _root(root: str, names: Names) -> str:
    return names.text(root) if _is_address(root) else names.path(root)


def _is_address(root: str) -> bool:
    """Whether what was opened is a server, and no path."""
    return "://" in root


def _said(dataset: Dataset) -> pl.DataFrame:
    """The lines of logs without the texts that no report shows: there may be very many.

    What is alike is told as one line, so all beyond those that are listed one by one has the text of the first.
    """
    rows = log_excerpts.accounts(dataset).with_row_index("number")
    first = (
        pl.when(pl.col("number") < log_excerpts.MOST).then(pl.col("row")).otherwise(pl.col("row").first().over("alike"))
    )
    shown = rows.select("row", first.alias("like"))
    texts = dataset.messages.select(pl.col("text").alias("said")).with_row_index("like")
    placed = dataset.messages.with_row_index("row").join(shown, on="row", how="left", maintain_order="left")
    told = placed.join(texts, on="like", how="left", maintain_order="left")
    return told.with_columns(text=pl.col("said").fill_null(""), values=pl.lit("{}")).select(dataset.messages.columns)


def _texts(dataset: Dataset) -> Iterator[str]:
    """What the tables say that may name users."""
    for name, table in _tables(dataset).items():
        for column, what in text_columns(name, table.schema).items():
            if what != "host":
                yield from _distinct(table[column])


def _hosts(dataset: Dataset, analysis: Analysis) -> list[str]:
    """Every host that is known by name, and every switch or rack that is spoken of, in a fixed order."""
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
    return [*accused, *seen, *_valued(dataset, _NAME_A_HOST), *parts]


def _valued(dataset: Dataset, settings: Sequence[str]) -> list[str]:
    """What settings of these names say."""
    rows = dataset.settings.filter(pl.col("name").is_in(settings) & (pl.col("value") != ""))
    return rows["value"].unique(maintain_order=True).to_list()


def _distinct(column: pl.Series) -> list[str]:
    """The different values of a column of text, in their order."""
    return column.drop_nulls().unique(maintain_order=True).cast(pl.String).to_list()


def _mapped(column: pl.Series, change: Callable[[str], str]) -> pl.Series:
    """The column with every value changed, each different one once; what is empty stays so."""
    new = {old: change(old) for old in _distinct(column) if old}
    changed = {old: value for old, value in new.items() if value != old}
    return column.cast(pl.String).replace(changed).cast(column.dtype) if changed else column


def _redacted(value: Any, names: Names, name: str = "") -> Any:
    """The same value with its text replaced; `name` is the field it stands in."""
    if isinstance(value, str):
        return value if name in _OWN_WORDS else _change(names, name)(value)
    if isinstance(value, Frame):
        return Frame(names.text(value.function), names.path(value.file), value.line)
    if isinstance(value, tuple):
        return tuple(_redacted(v, names, name) for v in value)
    if isinstance(value, dict):
        return {k: _redacted(v, names) for k, v in value.items()}
    return _of_parts(value, names, name)


def _of_parts(value: Any, names: Names, name: str) -> Any:
    """The same of a table, or of an object by its fields."""
    if isinstance(value, pl.DataFrame):
        return _renamed(name, value, names)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    # the id of a group is the user's, that of a finding is not
    called = {f.name: "" if isinstance(value, GroupRef) else f.name for f in fields(value)}
    return replace(value, **{own: _redacted(getattr(value, own), names, said) for own, said in called.items()})


def _change(names: Names, name: str) -> Callable[[str], str]:
    if name in _PATHS:
        return names.path
    return names.host if name in _HOSTS else names.text


def _strings(value: Any) -> Iterator[str]:
    """Every text in a value, however deep."""
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


# Finds host names, users and paths in text and puts stand-ins in their place, the same ones everywhere.

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
_KEPT = frozenset({
    ".", "..", "home", "Users", "usr", "lib", "lib64", "opt", "tmp", "var", "mnt", "data", "scratch", "local", "bin",
    "site-packages", "dist-packages", "nccl", "comm", "trace", "rank", "dump", "fr", "gloo", "xccl", "hccl", "torch",
    "torchcomms", "json", "pkl", "pickle", "gz", "zst", "tar", "tgz", "zip", "log", "txt",
})  # fmt: skip
"""Parts of paths and names of dumps that tell nothing of anybody."""
_JOINTS = re.compile(r"([_.-]+)")
_NO_SECRET = frozenset({"root", "localhost"})
_SHORTEST = 3
"""Users of one or two letters are replaced in paths only: in prose they would be half the words."""


class Names:
    """The stand-ins of one report: host-1, user-1, dir-1, name-1, handed out in the order of first sight."""

    def __init__(self, hosts: Iterable[str], users: Iterable[str], keep_source_names: bool = True) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._keep_source_names = keep_source_names
        self._hosts = {h for h in map(_short, hosts) if re.search(r"[a-z]", h) and len(h) > 1} - _NO_SECRET
        self._shapes = {_shape(h) for h in self._hosts if re.search(r"\d", h)}
        self._users = set[str]()
        self._add_users(users)
        self._paths = set[str]()
        self._odd: dict[str, str] = {}

    def learn(self, texts: Iterable[str], paths: Iterable[str]) -> None:
        """Takes users out of all text, and notes the paths of files, to know them in prose."""
        for text in texts:
            self._add_users(_USER.findall(text))
        self._paths.update(paths)
        for path in sorted((p for p in self._paths if re.search(r"\s", p)), key=len, reverse=True):
            self._odd[path] = self.path(path)

    def _add_users(self, users: Iterable[str]) -> None:
        self._users.update(u for u in users if len(u) >= _SHORTEST and u not in _NO_SECRET)

    def text(self, text: str) -> str:
        """`text` with every name in it replaced."""
        for path, stand_in in self._odd.items():
            text = text.replace(path, stand_in)
        return _SPLIT.sub(self._token, text)

    def host(self, name: str) -> str:
        """The stand-in of a host; its short and its full name have the same."""
        return name if name in _NO_SECRET else self._alias("host", _short(name))

    def path(self, path: str) -> str:
        """A path part by part: what is common stays, users and hosts become theirs, other parts dir-1 and name-1."""
        public = _PUBLIC.search(path)
        if public:
            return f"site-packages/{path[public.end() - len('torch/') :]}"
        users = set(_USER.findall(path)) - _NO_SECRET
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
        """The stand-in of a word that is a host or a user."""
        if word in self._users:
            return self._alias("user", word)
        return self.host(word) if _short(word) in self._hosts or _shape(_short(word)) in self._shapes else None

    def _directory(self, part: str, users: set[str]) -> str:
        name = part.lstrip("~")
        if not name or name in _KEPT or _PYTHON.match(name):
            return part
        if name in users:
            return "~" * part.startswith("~") + self._alias("user", name)
        return self._known(part) or self._alias("dir", part)

    def _base(self, name: str) -> str:
        """The last part of a path: a source file may keep its name, of a dump's the usual words stay."""
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
        if part in _KEPT or not part.strip(".-_") or part.isdigit():
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
        """A word: as it is unless it, or a piece of it, is a name that is known."""
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
    """A host name with its numbers taken out: node07 and node12 are of one shape."""
    return re.sub(r"\d+", "#", host)
