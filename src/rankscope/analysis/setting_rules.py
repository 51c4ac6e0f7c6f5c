"""Rules about settings (two tables of the package), and the settings of processes in comparable form."""

from __future__ import annotations

import re
from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

import polars as pl

from rankscope.schema import ENVIRONMENTS, Dataset

_PACKAGE = "rankscope.analysis"
OF_RANK = ("rank", "own")
"""Scopes of settings that ranks of one run may have differently."""


class SettingRule(NamedTuple):
    """Known facts about one setting."""

    name: str
    scope: str
    """ "same" on all ranks, the same within a "node", of a "rank" but the same in another run, or a rank's "own"."""
    default: str
    """Meaning of being unset; "" if it is unknown."""
    harm: str
    """Possible harm of a mismatch: "hang", "result", "speed", "evidence"."""
    effect: str


class PackRule(NamedTuple):
    """Requirement of a mode for one setting, if a trigger shows that the mode is on."""

    pack: str
    trigger: str
    value: str
    name: str
    wants: str
    required: str
    effect: str


@cache
def load_rules() -> dict[str, SettingRule]:
    """All rules by name."""
    return {row[0]: SettingRule(*row) for row in _rows("setting_rules.tsv")}


_OF_STEP = re.compile(r" of step \d+$")


def rule_of(name: str) -> SettingRule | None:
    """The rule of a setting; one of a step ("batch of step 3") has that of its kind."""
    return load_rules().get(name) or load_rules().get(_OF_STEP.sub("", name))


@cache
def pack_rules() -> tuple[PackRule, ...]:
    """The rules of modes."""
    return tuple(PackRule(*row) for row in _rows("setting_packs.tsv"))


def _rows(name: str) -> Iterator[list[str]]:
    text = (resources.files(_PACKAGE) / name).read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return (line.split("\t") for line in lines[1:])


# Settings of processes, with equivalent values made equal.

ONE_PROCESS_SOURCES = (*ENVIRONMENTS, "container", "collect_env")
"""Sources whose files are each of one process, even an unknown one."""
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_LIST_SUFFIXES = ("_ALGO", "_PROTO", "_HCA", "_IFNAME", "_SUBSYS")
PROCESS_VARIABLES = re.compile(
    r"(?:|LOCAL_|GROUP_|ROLE_|NODE_|MACHINE_)RANK|SLURM_(?:PROCID|LOCALID|NODEID|TASK_PID|GTIDS)|SLURMD_NODENAME"
    r"|OMPI_COMM_WORLD_\w*RANK|PMIX?_RANK|HOSTNAME|PWD|OLDPWD"
)
"""Variables that launchers set for each process separately."""
ENV_NAME = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]{2,}")
ORDER_NAME = re.compile(
    r"(?:NCCL|RCCL)_(?:ALGO|PROTO|(?:MIN|MAX)_(?:NCHANNELS|CTAS|NRINGS)|NCHANNELS_PER_(?:NET_)?PEER|NTHREADS"
    r"|BUFFSIZE|LL128_NTHREADS|LL(?:128)?_BUFFSIZE|P2P_NET_CHUNKSIZE|(?:P2P|SHM)_DISABLE|NVLS_ENABLE|COLLNET_ENABLE"
    r"|\w+_THRESHOLD)"
    r"|HCCL_(?:DETERMINISTIC|ALGO|OP_EXPANSION_MODE)|LCCL_DETERMINISTIC|CUBLAS_WORKSPACE_CONFIG"
)
"""Settings that decide the order in which libraries add, and mean the same on other machines."""


@dataclass
class ProcessSettings:
    """One process and its settings. Settings common to all are stored once, behind its own values."""

    rank: int | None
    host: str
    pid: int | None
    values: ChainMap[str, str]
    """As printed; several values of one name are joined."""
    places: ChainMap[str, tuple[int, int]]
    """File and line by name."""
    alike: int = 0
    """Number of variables that NCCL printed for all."""
    means: dict[str, str] = field(default_factory=dict)
    """Values by meaning, without those common to all."""
    printed: set[str] = field(default_factory=set)
    """Variables that NCCL printed because it read them, without those common to all."""
    files: set[int] = field(default_factory=set)
    """Files with its lines."""
    whole: bool = False
    """Its whole environment is known."""
    alone: bool = True
    """No other process wrote to its files, so no line got lost in between."""


@dataclass(frozen=True)
class _SharedSettings:
    """Settings with one value in all processes."""

    values: dict[str, str]
    places: dict[str, tuple[int, int]]
    printed: int


def names_of(told: Sequence[ProcessSettings]) -> set[str]:
    """All names that any of the processes has."""
    return {name for p in told for name in p.means} | (set(told[0].values) if told else set())


def process_settings(dataset: Dataset) -> list[ProcessSettings]:
    """All processes with a setting or version, by rank if it is known; dumps tell the version of NCCL."""
    table = _table(dataset)
    alike, rest = _alike(table)
    found: dict[tuple[int | None, str, int | None, int | None], ProcessSettings] = {}
    for rank, host, pid, alone, whole, files in table.group_by("rank", "host", "pid", "alone", maintain_order=True).agg(
        pl.col("source").is_in(ENVIRONMENTS).any(), pl.col("file").unique()
    ).iter_rows():  # fmt: skip
        own = found.setdefault(_key(rank, host, pid, alone), _process(rank, host, pid, alike))
        own.host, own.pid = own.host or host, pid if own.pid is None else own.pid
        own.whole = own.whole or whole
        own.files.update(files)
    several: defaultdict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    for rank, host, pid, name, value, source, file, line, alone in rest.iter_rows():
        own = found[_key(rank, host, pid, alone)]
        told = several[id(own), name]
        told.setdefault(canonical_value(name, value), value)
        own.values[name], own.means[name] = ", ".join(sorted(told.values())), ", ".join(sorted(told))
        own.places.maps[0].setdefault(name, (file, line or 0))
        if source == "nccl" and ENV_NAME.fullmatch(name):
            own.printed.add(name)
    _share(list(found.values()))
    return list(found.values())


def _key(
    rank: int | None, host: str, pid: int | None, alone: int | None
) -> tuple[int | None, str, int | None, int | None]:
    return (rank, "", None, None) if rank is not None else (None, host, pid, alone)


def _process(rank: int | None, host: str, pid: int | None, alike: _SharedSettings) -> ProcessSettings:
    return ProcessSettings(rank, host, pid, ChainMap({}, alike.values), ChainMap({}, alike.places), alike.printed)


def _table(dataset: Dataset) -> pl.DataFrame:
    """Rows of all settings with a known process."""
    dumps = dataset.dumps.filter(pl.col("library_version").is_not_null() & pl.col("rank").is_not_null())
    versions = dumps.select(
        "rank", "host", pl.lit(None, pl.Int64).alias("pid"), pl.lit("version:nccl").alias("name"),
        pl.col("library_version").alias("value"), pl.lit("flight-recorder").alias("source"), "file",
        pl.lit(None, pl.Int64).alias("line"),
    )  # fmt: skip
    told = pl.concat([dataset.settings.select(versions.columns), versions]) if dumps.height else dataset.settings
    nobody = pl.col("rank").is_null() & pl.col("pid").is_null()
    told = told.select(versions.columns).filter(~nobody | pl.col("source").is_in(ONE_PROCESS_SOURCES))
    alone = pl.when(nobody).then("file").cast(pl.Int64).alias("alone")
    return told.with_columns(pl.col("host").fill_null(""), alone)


def _alike(table: pl.DataFrame) -> tuple[_SharedSettings, pl.DataFrame]:
    """Settings common to all, and the rows of the rest: most of thousands of ranks agree."""
    who = pl.coalesce(pl.format("r{}", "rank"), pl.format("{}:{}", "host", "pid"), pl.format("f{}", "alone"))
    table = table.with_columns(who=who)
    people = table["who"].n_unique()
    by_name = table.group_by("name").agg(
        pl.col("value").n_unique().alias("values"), pl.col("who").n_unique(), pl.col("value").first().alias("value"),
        pl.col("file").first(), pl.col("line").first(), (pl.col("source") == "nccl").all().alias("nccl"),
    )  # fmt: skip
    same = by_name.filter((pl.col("values") == 1) & (pl.col("who") == people))
    rows = same.select("name", "value", "file", "line", "nccl").rows()
    alike = _SharedSettings(
        {name: value for name, value, *_ in rows}, {name: (file, line or 0) for name, _, file, line, _ in rows},
        sum(nccl and bool(ENV_NAME.fullmatch(name)) for name, _, _, _, nccl in rows),
    )  # fmt: skip
    return alike, table.filter(~pl.col("name").is_in(same["name"].implode())).drop("who")


def _share(told: Sequence[ProcessSettings]) -> None:
    writers = Counter(file for process in told for file in process.files)
    for process in told:
        process.alone = all(writers[file] == 1 for file in process.files)


@lru_cache(maxsize=1 << 16)
def canonical_value(name: str, value: str) -> str:
    """The canonical spelling of a value: truth values, numbers, lists without order, versions without build."""
    text = value.strip().strip('"').lower()
    if name.startswith("version:"):
        found = _VERSION.search(text)
        return found[0] if found else text
    if text in _TRUE or text in _FALSE:
        return "1" if text in _TRUE else "0"
    if re.fullmatch(r"0*\d{1,18}", text):
        return str(int(text))
    if name.endswith(_LIST_SUFFIXES) and "," in text:
        return ",".join(sorted(text.split(",")))
    return text
