"""What processes told of their settings, with values that mean the same made equal."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import polars as pl

from rankscope.schema import Dataset

ENVIRONMENTS = ("collect_env", "environ", "msprobe")
"""Sources that tell all of the environment: what they leave out is unset."""
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_LISTS = ("_ALGO", "_PROTO", "_HCA", "_IFNAME", "_SUBSYS")
ENV = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]{2,}")


@dataclass
class Process:
    """One process, and what it told."""

    rank: int | None
    host: str
    pid: int | None
    values: dict[str, str] = field(default_factory=dict)
    """As printed; several values of one name joined."""
    means: dict[str, str] = field(default_factory=dict)
    """The same by meaning."""
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """File and line by name."""
    sources: dict[str, set[str]] = field(default_factory=dict)
    """Names by source."""
    alone: bool = True
    """No other process wrote to its files: no line of it was lost in between."""

    @cached_property
    def printed(self) -> frozenset[str]:
        """Variables that NCCL printed because it read them."""
        return frozenset(name for name in self.sources.get("nccl", ()) if ENV.fullmatch(name))

    @property
    def whole(self) -> bool:
        """Whether all of its environment is known."""
        return any(source in self.sources for source in ENVIRONMENTS)


def processes(dataset: Dataset) -> list[Process]:
    """All that told a setting or version, by rank where it is known; dumps tell the version of NCCL."""
    found: dict[tuple[int | None, str, int | None], Process] = {}
    columns = ("rank", "host", "pid", "name", "value", "source", "file", "line")
    several: defaultdict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    for rank, host, pid, name, value, source, file, line in (*_settings(dataset, columns), *_versions(dataset)):
        if rank is None and pid is None:
            continue
        key = (rank, "", None) if rank is not None else (None, host or "", pid)
        own = found.setdefault(key, Process(rank, host or "", pid))
        own.host, own.pid = own.host or host or "", pid if own.pid is None else own.pid
        own.sources.setdefault(source, set()).add(name)
        told = several[id(own), name]
        told.setdefault(meaning(name, value), value)
        own.values[name], own.means[name] = ", ".join(sorted(told.values())), ", ".join(sorted(told))
        own.places.setdefault(name, (file, line or 0))
    _share(list(found.values()))
    return list(found.values())


def _share(told: list[Process]) -> None:
    writers: defaultdict[int, int] = defaultdict(int)
    files = [{file for file, _ in process.places.values()} for process in told]
    for own in files:
        for file in own:
            writers[file] += 1
    for process, own in zip(told, files, strict=True):
        process.alone = all(writers[file] == 1 for file in own)


def _settings(dataset: Dataset, columns: Iterable[str]) -> Iterable[tuple]:  # type: ignore[type-arg]
    return dataset.settings.select(columns).iter_rows()


def _versions(dataset: Dataset) -> list[tuple]:  # type: ignore[type-arg]
    told = dataset.dumps.filter(pl.col("library_version").is_not_null() & pl.col("rank").is_not_null())
    rows = told.select("rank", "host", "library_version", "file").iter_rows()
    return [
        (rank, host, None, "version:nccl", version, "flight-recorder", file, 0) for rank, host, version, file in rows
    ]


@lru_cache(maxsize=1 << 16)
def meaning(name: str, value: str) -> str:
    """A value in one spelling: truth values, numbers, lists whose order means nothing, versions without build."""
    text = value.strip().strip('"').lower()
    if name.startswith("version:"):
        found = _VERSION.search(text)
        return found[0] if found else text
    if text in _TRUE or text in _FALSE:
        return "1" if text in _TRUE else "0"
    if re.fullmatch(r"0*\d{1,18}", text):
        return str(int(text))
    if name.endswith(_LISTS) and "," in text:
        return ",".join(sorted(text.split(",")))
    return text
