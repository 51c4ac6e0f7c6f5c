"""The same findings without host names, users and paths, for public threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import polars as pl

from rankscope.analysis.model import Analysis, GroupRef
from rankscope.analysis.places import Places
from rankscope.report import messages
from rankscope.report.names import Names
from rankscope.report.secrets import hide
from rankscope.schema import Dataset, Frame
from rankscope.schema.tables import Holds, text_columns

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
    rows = messages.accounts(dataset).with_row_index("number")
    first = pl.when(pl.col("number") < messages.MOST).then(pl.col("row")).otherwise(pl.col("row").first().over("alike"))
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
