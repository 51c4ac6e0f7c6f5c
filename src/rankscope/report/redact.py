"""Redaction of a job for public threads: its tables without names of hosts, users, paths and stores, and no secrets.

The tables are redacted before anything judges or shortens them: what a rule quotes, cuts or counts is made of
stand-ins already, and no output can show what is not in the data.
"""

from __future__ import annotations

import getpass
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from rankscope.analysis.places import units_of
from rankscope.report.stand_ins import StandInNames
from rankscope.schema import Dataset
from rankscope.schema.option_sources import OptionSource, OptionTree, RunOptions
from rankscope.schema.table import Holds, Table
from rankscope.schema.tables import TABLES
from rankscope.text.secrets import value_of

_FIRST_TABLES = ("files", "stacks", "threads", "messages", "settings", "comms", "ras")
"""Tables whose stand-ins get the lowest numbers, because reports show them first."""
_USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SLURM_JOB_USER", "SUDO_USER")
_HOST_VARIABLES = (
    "HOSTNAME", "HOST", "MASTER_ADDR", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "LSB_HOSTS", "PET_RDZV_ENDPOINT", "NODE_NAME",
    "K8S_NODE_NAME", "POD_NAME", "RANKSCOPE_HOST",
)  # fmt: skip
_NAMED_VARIABLES = {
    **dict.fromkeys(
        ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_RUN_GROUP", "WANDB_NAME", "MLFLOW_EXPERIMENT_NAME"), "project"
    ),
    **dict.fromkeys(
        ("SLURM_JOB_NAME", "SLURM_JOB_ACCOUNT", "SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION", "JOB_NAME"), "job"
    ),
    **dict.fromkeys(("POD_NAMESPACE", "KUBERNETES_NAMESPACE"), "service"),
}
"""Settings whose values are names, with what these become."""
_TOPOLOGY = "SLURM_TOPOLOGY_ADDR"


class Redaction:
    """Replaces names in all that is shown together, by host-1, user-1, dir-1; one name has one stand-in everywhere.

    It is also for jobs that are read again, and for several jobs: it learns more names, and keeps the stand-ins.
    """

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), keep_source_names: bool = True) -> None:
        self._names = StandInNames(hosts, users, keep_source_names)

    @classmethod
    def here(cls, keep_source_names: bool = True) -> Redaction:
        """A redaction that knows the names of this machine, whose paths and logs may be among the files."""
        try:
            users = [getpass.getuser()]
        except (KeyError, OSError):
            users = []
        return cls([os.uname().nodename], users, keep_source_names)

    def dataset(self, dataset: Dataset) -> Dataset:
        """The tables with names replaced in every column of text that they do not declare as rankscope's own."""
        names = self._names
        self.learn(dataset)
        tables: dict[str, Any] = {table.name: self.table(table, frame) for table, frame in _tables(dataset)}
        beside = dataset.beside
        beside = beside._replace(directory=names.path(beside.directory)) if beside.ranks else beside
        return replace(dataset, **tables, root=self.title(dataset.root), beside=beside)

    def title(self, title: str) -> str:
        """The paths of a user, or the address of a server."""
        return self.text(title) if "://" in title else self._names.path(title)

    def text(self, text: str) -> str:
        """A text with names and secrets replaced."""
        return self._names.text(text)

    def learn_texts(self, texts: Iterable[str], paths: Iterable[str]) -> None:
        """Takes the names that texts and paths beside the tables tell."""
        self._names.learn(texts, paths)

    def path(self, path: str) -> str:
        """A path with names replaced."""
        return self._names.path(path)

    def datasets(self, datasets: Sequence[Dataset]) -> list[Dataset]:
        """Jobs that are shown together: what one tells of a name is replaced in the others, too."""
        for dataset in datasets:
            self.learn(dataset)
        return [self.dataset(dataset) for dataset in datasets]

    def options(self, options: RunOptions) -> RunOptions:
        """The options of a run with names replaced, and values of secret ones hidden."""
        sources = (
            OptionSource(
                self._names.path(source.name) if source.is_file else self.text(source.name),
                self._option_tree(source.tree),  # type: ignore[arg-type]
                source.is_file,
            )
            for source in options.sources
        )
        told = (tuple(map(self.text, texts)) for texts in (options.unread, options.notes))
        return RunOptions(tuple(sources), options.resumed, *told)

    def _option_tree(self, value: OptionTree, name: str = "") -> OptionTree:
        """The value of that name with names and secrets replaced in all of its texts."""
        if isinstance(value, dict):
            return {self.text(key): self._option_tree(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._option_tree(inner, name) for inner in value]
        return self.text(value_of(name, value)) if isinstance(value, str) else value

    def learn(self, dataset: Dataset) -> None:
        """Takes the names that the tables tell."""
        names, files = self._names, dataset.files
        hosts = [*distinct_texts(files["host"]), *_texts(dataset, hosts=True), *_values(dataset, _HOST_VARIABLES)]
        topology = _values(dataset, (_TOPOLOGY,))
        names.know_hosts([*hosts, *(path.rpartition(".")[2] for path in topology)])
        if not topology:
            names.know_racks(_racks(host for host in distinct_texts(files["host"]) if host))
        names.know_users(_values(dataset, _USER_VARIABLES))
        for variable, kind in _NAMED_VARIABLES.items():
            names.know_names(kind, _values(dataset, (variable,)))
        roots = [dataset.root] if dataset.root and "://" not in dataset.root else []
        paths = [
            *roots,
            *([dataset.beside.directory] if dataset.beside.ranks else []),
            *(path for path in files["path"].drop_nulls() if path),
        ]
        names.learn([*_texts(dataset, hosts=False), *paths], paths)

    def table(self, declared: Table, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame of that table with names replaced in all text that may be the user's."""
        change: dict[Holds, Callable[[str], str]] = {
            "host": self._names.host, "path": self._names.path, "text": self._names.text, "json": self._names.json,
        }  # fmt: skip
        return frame.with_columns(
            self._settings(frame, column) if holds == "setting" else replaced_texts(frame[column], change[holds])
            for column, holds in declared.texts(frame).items()
        )

    def _settings(self, frame: pl.DataFrame, column: str) -> pl.Series:
        """A column of values of settings with these replaced: versions look like addresses, and stay."""
        rows = frame.select("name", column).rows()
        shown = {(name, value): self._setting(name or "", value) for name, value in dict.fromkeys(rows) if value}
        return pl.Series(column, [shown.get(row, row[1]) for row in rows], dtype=frame.schema[column])

    def _setting(self, name: str, value: str) -> str:
        if name.startswith("version:"):
            return value
        if name == _TOPOLOGY:
            return self._names.switches(value)
        return self.text(value_of(name, value))


def option_texts(options: RunOptions) -> Iterator[str]:
    """All texts in options."""
    waiting: list[OptionTree] = [source.tree for source in options.sources]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            yield value
    yield from (*options.unread, *options.notes)


def _racks(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The units in the names of hosts; empty if they tell no two hosts from others."""
    units = {host: units_of(host) for host in hosts}
    every = Counter(unit for own in units.values() for unit in own)
    return units if any(1 < count < len(units) for count in every.values()) else {}


def _tables(dataset: Dataset) -> list[tuple[Table, pl.DataFrame]]:
    """All tables with their frames, those that reports show first."""
    return [(TABLES[name], getattr(dataset, name)) for name in dict.fromkeys((*_FIRST_TABLES, *TABLES))]


def _texts(dataset: Dataset, *, hosts: bool) -> Iterator[str]:
    """Texts of the tables in a fixed order: names of hosts, or all others, which may tell names."""
    for table, frame in _tables(dataset):
        for column, holds in table.texts(frame).items():
            if (holds == "host") == hosts:
                yield from distinct_texts(frame[column])


def _values(dataset: Dataset, settings: Iterable[str]) -> list[str]:
    """Values of the settings with these names."""
    rows = dataset.settings.filter(pl.col("name").is_in(list(settings)) & (pl.col("value") != ""))
    return rows["value"].unique(maintain_order=True).to_list()


def distinct_texts(column: pl.Series) -> list[str]:
    """The distinct values of a text column, in order."""
    return column.drop_nulls().unique(maintain_order=True).cast(pl.String).to_list()


def replaced_texts(column: pl.Series, change: Callable[[str], str]) -> pl.Series:
    """The column with every distinct value changed once; nulls stay."""
    new = {old: change(old) for old in distinct_texts(column) if old}
    changed = {old: value for old, value in new.items() if value != old}
    return column.cast(pl.String).replace(changed).cast(column.dtype) if changed else column
