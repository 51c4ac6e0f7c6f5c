"""The same findings without host names, users and paths, for public threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.analysis.places import Places
from rankscope.report import messages
from rankscope.report.names import Names
from rankscope.report.secrets import hide
from rankscope.schema import Dataset, Frame

_OWN_WORDS = frozenset({"id", "kind", "severity", "caused_by", "confidence", "status"})
"""Fields that hold words of rankscope's own."""
_PATHS = frozenset({"file"})
_HOSTS = frozenset({"host"})
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

    `hosts` and `users` are further names to replace, of the machine that makes the report. Only what reports show is
    replaced: the files, the root, the stacks, what logs say and the analysis, not the operations.
    """
    names = Names([*_hosts(dataset, analysis), *hosts], [*users, *_valued(dataset, _NAME_A_USER)], keep_source_names)
    roots = [dataset.root] if dataset.root and not _is_address(dataset.root) else []
    paths = [*roots, *(p for p in dataset.files["path"].drop_nulls() if p)]
    said = _said(dataset)
    names.learn([*_strings(analysis), *_texts(dataset, said), *paths], paths)
    files = dataset.files.with_columns(
        path=_mapped(dataset.files["path"], names.path),
        problem=_mapped(dataset.files["problem"], names.text),
        host=_mapped(dataset.files["host"], names.host),
    )
    stacks = dataset.stacks.with_columns(
        function=_mapped(dataset.stacks["function"], names.text), file=_mapped(dataset.stacks["file"], names.path)
    )
    threads = dataset.threads.with_columns(
        command=_mapped(dataset.threads["command"], lambda text: names.text(hide(text))),
        thread=_mapped(dataset.threads["thread"], names.text),
    )
    redacted = _redacted(analysis, names)
    named = replace(dataset, files=files, stacks=stacks, threads=threads, root=_root(dataset.root, names))
    return _without_names_in_logs(named, said, names), redacted


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


def _texts(dataset: Dataset, said: pl.DataFrame) -> Iterator[str]:
    """What files say that may name users."""
    columns = (
        dataset.files["problem"], dataset.stacks["file"], dataset.threads["command"], said["text"],
        dataset.settings["value"],
    )  # fmt: skip
    for column in columns:
        yield from column.drop_nulls().unique(maintain_order=True)


def _without_names_in_logs(dataset: Dataset, said: pl.DataFrame, names: Names) -> Dataset:
    """The same with names replaced in what logs told."""
    return replace(
        dataset,
        messages=_hosted(said, names).with_columns(text=_mapped(said["text"], lambda text: names.text(hide(text)))),
        settings=_hosted(dataset.settings, names).with_columns(value=_mapped(dataset.settings["value"], names.text)),
        comms=_hosted(dataset.comms, names),
        ras=_hosted(dataset.ras, names).with_columns(text=_mapped(dataset.ras["text"], names.text)),
    )


def _hosted(table: pl.DataFrame, names: Names) -> pl.DataFrame:
    return table.with_columns(host=_mapped(table["host"], names.host))


def _hosts(dataset: Dataset, analysis: Analysis) -> list[str]:
    """Every host that is known by name, and every switch or rack that is spoken of, in a fixed order."""
    accused = [c.host for f in analysis.findings for c in f.culprits if c.host]
    tables = (dataset.files, dataset.traces, dataset.messages, dataset.settings, dataset.comms, dataset.ras)
    told = [dataset.ops["host"].cast(pl.String), *(table["host"] for table in tables)]
    seen = pl.concat(told).drop_nulls().unique(maintain_order=True)
    said = [analysis.verdict, *(f.explanation for f in analysis.findings)]
    parts = sorted(part for part in Places(dataset).parts if any(part in text for text in said))
    return [*accused, *seen, *_valued(dataset, _NAME_A_HOST), *parts]


def _valued(dataset: Dataset, settings: Sequence[str]) -> list[str]:
    """What settings of these names say."""
    rows = dataset.settings.filter(pl.col("name").is_in(settings) & (pl.col("value") != ""))
    return rows["value"].unique(maintain_order=True).to_list()


def _mapped(column: pl.Series, change: Callable[[str], str]) -> pl.Series:
    """The column with every value changed, each different one once."""
    new = {old: change(old) for old in column.drop_nulls().unique(maintain_order=True)}
    return pl.Series(column.name, [new.get(v) for v in column], dtype=pl.String)


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
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _redacted(getattr(value, f.name), names, f.name) for f in fields(value)})
    return value


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
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from _strings(getattr(value, f.name))
