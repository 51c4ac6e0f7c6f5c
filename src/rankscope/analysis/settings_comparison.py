"""`settings-mismatch` and `version-mismatch`: settings of all ranks compared by meaning, and the rules about them."""

from __future__ import annotations

import re
from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import Culprit, Evidence, Finding
from rankscope.schema import Dataset
from rankscope.schema.tables import ENVIRONMENTS
from rankscope.text.wording import plural, ranks_text

# Rules about settings: two tables of the package.


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
    processes: dict[tuple[int | None, str, int | None, int | None], ProcessSettings] = {}
    for rank, host, pid, alone, whole, files in (
        table.group_by("rank", "host", "pid", "alone", maintain_order=True)
        .agg(pl.col("source").is_in(ENVIRONMENTS).any(), pl.col("file").unique())
        .iter_rows()
    ):
        settings = processes.setdefault(
            _key(rank, host, pid, alone),
            ProcessSettings(rank, host, pid, ChainMap({}, alike.values), ChainMap({}, alike.places), alike.printed),
        )
        settings.host, settings.pid = settings.host or host, pid if settings.pid is None else settings.pid
        settings.whole = settings.whole or whole
        settings.files.update(files)
    several: defaultdict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    for rank, host, pid, name, value, source, file, line, alone in rest.iter_rows():
        settings = processes[_key(rank, host, pid, alone)]
        spellings = several[id(settings), name]
        spellings.setdefault(canonical_value(name, value), value)
        settings.values[name], settings.means[name] = (
            ", ".join(sorted(spellings.values())),
            ", ".join(sorted(spellings)),
        )
        settings.places.maps[0].setdefault(name, (file, line or 0))
        if source == "nccl" and ENV_NAME.fullmatch(name):
            settings.printed.add(name)
    writers = Counter(file for process in processes.values() for file in process.files)
    for process in processes.values():
        process.alone = all(writers[file] == 1 for file in process.files)
    return list(processes.values())


def _key(
    rank: int | None, host: str, pid: int | None, alone: int | None
) -> tuple[int | None, str, int | None, int | None]:
    return (rank, "", None, None) if rank is not None else (None, host, pid, alone)


def _table(dataset: Dataset) -> pl.DataFrame:
    """Rows of all settings with a known process."""
    dumps = dataset.dumps.filter(pl.col("library_version").is_not_null() & pl.col("rank").is_not_null())
    versions = dumps.select(
        "rank",
        "host",
        pl.lit(None, pl.Int64).alias("pid"),
        pl.lit("version:nccl").alias("name"),
        pl.col("library_version").alias("value"),
        pl.lit("flight-recorder").alias("source"),
        "file",
        pl.lit(None, pl.Int64).alias("line"),
    )
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
        pl.col("value").n_unique().alias("values"),
        pl.col("who").n_unique(),
        pl.col("value").first().alias("value"),
        pl.col("file").first(),
        pl.col("line").first(),
        (pl.col("source") == "nccl").all().alias("nccl"),
    )
    same = by_name.filter((pl.col("values") == 1) & (pl.col("who") == people))
    rows = same.select("name", "value", "file", "line", "nccl").rows()
    alike = _SharedSettings(
        {name: value for name, value, *_ in rows},
        {name: (file, line or 0) for name, _, file, line, _ in rows},
        sum(nccl and bool(ENV_NAME.fullmatch(name)) for name, _, _, _, nccl in rows),
    )
    return alike, table.filter(~pl.col("name").is_in(same["name"].implode())).drop("who")


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


# Findings about settings.


MOST_EVIDENCE = 8
MOST_NAMES = 3


def find_settings(dataset: Dataset, place: Callable[[int], Culprit]) -> list[Finding]:
    """Findings about settings and versions, those that can hang a job first."""
    processes = process_settings(dataset)
    if not processes:
        return []
    paths = dict(dataset.files.select("file", "path").iter_rows())
    by_people: defaultdict[tuple[object, ...], list[SettingSplit]] = defaultdict(list)
    for split in find_splits(processes):
        by_people[split.is_version, split.common is None, split.lost, tuple(id(p) for p in split.odd)].append(split)
    mismatches = [_finding(splits, paths, place) for splits in by_people.values()]
    return [*mismatches, *find_modes(processes, paths, place), *find_misspelt(processes, paths, place)]


def _finding(splits: list[SettingSplit], paths: dict[int, str], place: Callable[[int], Culprit]) -> Finding:
    first = splits[0]
    people = processes_text(first.odd)
    if first.common is None:
        names = ", ".join(s.name for s in splits[:MOST_NAMES])
        values = sorted({p.values.get(first.name, "unset") for p in first.odd})[: MOST_NAMES + 1]
        title = f"{people} do not agree on {names}: {' or '.join(values)}"
    else:
        parts = [f"{s.name} {_own(s)}, most {s.common}" for s in splits[:MOST_NAMES]]
        title = f"{people}: {'; '.join(parts)}"
    if len(splits) > MOST_NAMES:
        title += f"; and {len(splits) - MOST_NAMES} more"
    accused = first.common is not None and not first.lost
    absent = any(s.unprinted for s in splits)
    ranks = tuple(sorted(p.rank for p in first.odd if p.rank is not None))
    return Finding(
        kind="version-mismatch" if first.is_version else "settings-mismatch",
        severity="info" if first.lost else "warning",
        title=title,
        explanation=" ".join(dict.fromkeys(f"{s.name}: {s.rule.effect}" for s in splits[:MOST_EVIDENCE])),
        culprit_ranks=ranks if accused else (),
        culprits=process_culprits(first.odd, place) if accused else (),
        candidates=() if accused else ranks,
        confidence="low" if not accused else "medium" if absent else "high",
        confidence_reasons=_reasons(first, absent),
        evidence=tuple(e for s in splits for e in _evidence(s, paths))[: 2 * MOST_EVIDENCE],
        next_steps=("Start all ranks with one environment and one image, and compare again.",),
    )


def _reasons(first: SettingSplit, absent: bool) -> tuple[str, ...]:
    if first.lost:
        return ("several processes wrote to that log: a line may be lost, and the setting may be the same",)
    if absent:
        return (
            ("a variable that is not printed counts as unset: these processes printed other variables that they read"),
        )
    return ("there is no majority",) if first.common is None else ()


def _own(split: SettingSplit) -> str:
    shown = sorted({p.values[split.name] for p in split.odd if split.name in p.values})
    return " or ".join(shown[:MOST_NAMES]) if shown else "is not printed" if split.lost else "is not set"


def _evidence(split: SettingSplit, paths: dict[int, str]) -> list[Evidence]:
    return [told_by(process, split.name, paths) for process in split.odd[:MOST_NAMES]]


# Settings on which processes disagree, and the minority.

UNKNOWN_RULE = SettingRule(
    "", "same", "", "hang", "rankscope does not know this setting; ranks rarely differ in it on purpose."
)
VERSION_RULE = SettingRule(
    "", "same", "", "result", "Another version of a library may compute or communicate in another way."
)
HARMS = ("hang", "result", "speed", "evidence", "")
"""Possible harms of a mismatch, the worst first."""


@dataclass(frozen=True)
class SettingSplit:
    """One setting on which processes disagree."""

    name: str
    rule: SettingRule
    common: str | None
    """The value of the majority, as printed; None without a majority."""
    odd: tuple[ProcessSettings, ...]
    """The minority; all processes without a majority."""
    unprinted: bool = False
    """The odd processes printed no value, so it is taken as unset."""
    lost: bool = False
    """Their lines may have got lost among those of others in the same file, so nobody is accused."""

    @property
    def is_version(self) -> bool:
        """Whether it is the version of a library or driver."""
        return self.name.startswith("version:") or self.name == "cuda-driver"


def find_splits(processes: Sequence[ProcessSettings]) -> list[SettingSplit]:
    splits = []
    for name in sorted({name for process in processes for name in process.means}):
        rule = rule_of(name) or (VERSION_RULE if name.startswith("version:") else None)
        rule = rule or (UNKNOWN_RULE if ENV_NAME.fullmatch(name) else None)
        if rule is None or rule.scope in OF_RANK:
            continue
        split = _split(name, rule if rule.effect else UNKNOWN_RULE._replace(harm=rule.harm), processes)
        if split is not None and not (rule is UNKNOWN_RULE and split.common is None):
            splits.append(split)
    return sorted(splits, key=lambda s: (HARMS.index(s.rule.harm), s.name))


def _split(name: str, rule: SettingRule, processes: Sequence[ProcessSettings]) -> SettingSplit | None:
    """The disagreement on a setting; None if all comparable values agree."""
    printed = [p for p in processes if name in p.means]
    values = {id(p): p.means[name] for p in printed}
    usual = _usual(printed)
    silent = [p for p in processes if name not in p.means and _would_print(p, name, usual)]
    unset = canonical_value(name, rule.default) if rule.default else ""
    values |= {id(p): unset for p in silent}
    people = [*printed, *silent]
    counts = Counter(values.values()).most_common()
    if len(counts) < 2 or (rule.scope == "node" and _apart(people, values)):
        return None
    if len(counts) > max(2, len(people) // 2):
        # every rank has its own value: that is intended
        return None
    majority = counts[0][1] * 2 > len(people) and counts[0][1] > counts[1][1]
    odd = tuple(p for p in people if values[id(p)] != counts[0][0]) if majority else tuple(people)
    if not majority and not printed:
        return None
    common = next((p.values[name] for p in printed if values[id(p)] == counts[0][0]), f"unset{unset and f' ({unset})'}")
    unprinted = majority and not any(p in printed for p in odd)
    lost = unprinted and not all(p.alone or p.whole for p in odd)
    return SettingSplit(name, rule, common if majority else None, odd, unprinted, lost)


def _usual(printed: Sequence[ProcessSettings]) -> frozenset[str]:
    """Other variables that NCCL printed for most of the processes that printed one."""
    told = [p.printed for p in printed]
    counts = Counter(name for names in told for name in names)
    return frozenset(name for name, count in counts.items() if count * 2 > len(told))


def _would_print(process: ProcessSettings, name: str, usual: frozenset[str]) -> bool:
    """Whether a name that a process did not print is unset there.

    That holds if its whole environment is known; or if it printed at least half of the variables that the printers of
    this one usually print, because NCCL prints the variables it reads, and reads the same everywhere.
    """
    if not ENV_NAME.fullmatch(name):
        return False
    others = usual - {name}
    expected, seen = len(others) + process.alike, len(process.printed & others) + process.alike
    return process.whole or 0 < expected <= 2 * seen


def _apart(people: Sequence[ProcessSettings], values: dict[int, str]) -> bool:
    """Whether values differ only between hosts."""
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    for process in people:
        hosts[process.host].add(values[id(process)])
    return len(hosts) > 1 and all(len(own) == 1 for own in hosts.values())


# Modes that are on without all they need, and misspelt names.

MOST_LINES = 8


def find_modes(
    processes: Sequence[ProcessSettings], paths: dict[int, str], place: Callable[[int], Culprit]
) -> list[Finding]:
    """Modes that are on without all they need."""
    lacking: defaultdict[tuple[str, str], list[tuple[ProcessSettings, str]]] = defaultdict(list)
    effects: dict[tuple[str, str], str] = {}
    for rule in pack_rules():
        for process in processes:
            value = process.values.get(rule.trigger)
            if value is None or not re.fullmatch(rule.value, value.strip(), re.IGNORECASE):
                continue
            setting = process.values.get(rule.name)
            if setting is None and not (rule.required == "yes" and process.whole):
                continue
            if setting is None or not re.fullmatch(rule.wants, setting.strip(), re.IGNORECASE):
                lacking[rule.pack, rule.name].append((process, "unset" if setting is None else setting))
                effects[rule.pack, rule.name] = rule.effect
    return [
        Finding(
            kind="settings-mismatch",
            severity="warning",
            title=f"{pack} is on, but {name} is {people[0][1]} on {processes_text([p for p, _ in people])}",
            explanation=effects[pack, name],
            culprits=process_culprits([p for p, _ in people], place),
            culprit_ranks=tuple(sorted(p.rank for p, _ in people if p.rank is not None)),
            evidence=tuple(told_by(p, name, paths) for p, _ in people[:MOST_LINES]),
        )
        for (pack, name), people in lacking.items()
    ]


def find_misspelt(
    processes: Sequence[ProcessSettings], paths: dict[int, str], place: Callable[[int], Culprit]
) -> list[Finding]:
    """Names that are almost those of known settings."""
    names = misspelt_names(names_of(processes))
    out = []
    for name, meant in sorted(names.items()):
        people = [p for p in processes if name in p.values]
        out.append(
            Finding(
                kind="settings-mismatch",
                severity="warning",
                title=f"{name} is no known setting: {meant} may be meant",
                explanation=f"Set on {processes_text(people)}. Unknown variables are ignored in silence.",
                culprit_ranks=tuple(sorted(p.rank for p in people if p.rank is not None)),
                culprits=process_culprits(people, place),
                confidence="medium",
                confidence_reasons=("a newer version, or a program of your own, may know the name",),
                evidence=tuple(told_by(p, name, paths) for p in people[:MOST_LINES]),
                next_steps=(f"Set {meant} instead, if you meant that.",),
            )
        )
    return out


# Names close to a known setting: unknown variables are ignored in silence.

PREFIXES = ("NCCL_", "RCCL_", "HCCL_", "HCC_", "LCCL_", "ATB_", "TORCH_", "NVTE_", "CUBLAS_", "NCC_", "CUDA_")
LONGEST_SHORT_NAME = 14
"""Names up to this length may differ in one place only, because short names are close by chance."""


def intended_name(name: str) -> str | None:
    """The known setting that an unknown name was probably meant to be; None unless exactly one fits."""
    known = load_rules()
    if name in known or not name.startswith(PREFIXES):
        return None
    most = 1 if len(name) <= LONGEST_SHORT_NAME else 2
    near = [(edit_distance(name, other, most), other) for other in known if abs(len(other) - len(name)) <= most]
    best = sorted(pair for pair in near if pair[0] <= most)
    if not best or (len(best) > 1 and best[0][0] == best[1][0]):
        return None
    return best[0][1]


def misspelt_names(names: Iterable[str]) -> dict[str, str]:
    """By each probably misspelt name: the intended name."""
    return {name: meant for name in names if (meant := intended_name(name)) is not None}


def edit_distance(one: str, other: str, most: int) -> int:
    """Edit distance of two names: insertions, deletions, substitutions, swaps of neighbours (Damerau, restricted).

    Counting stops above `most`.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row, older = row, [i], before
        for j, b in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = last
        if min(row) > most:
            return most + 1
    return row[-1]


# Words for the processes that a finding about settings names, and for the places of their settings.

MOST_HOSTS = 3


def told_by(process: ProcessSettings, name: str, paths: dict[int, str]) -> Evidence:
    """The place where a process has a setting, or a note that it has none."""
    if name not in process.values:
        return Evidence(f"{name} is {'unset' if process.whole else 'not printed'}", rank=process.rank)
    file, line = process.places.get(name, (-1, 0))
    return Evidence(f"{name}={process.values[name]}", paths.get(file), process.rank, line=line or None)


def processes_text(people: Sequence[ProcessSettings]) -> str:
    """Ranks, and the number of processes without a rank on which hosts."""
    ranks = sorted(p.rank for p in people if p.rank is not None)
    rest = [p for p in people if p.rank is None]
    hosts = sorted({p.host for p in rest if p.host})
    more = plural(len(rest), "process") if rest else ""
    more += f" on {', '.join(hosts[:MOST_HOSTS])}" if hosts else ""
    return " and ".join(part for part in (ranks_text(ranks) if ranks else "", more) if part)


def process_culprits(people: Sequence[ProcessSettings], place: Callable[[int], Culprit]) -> tuple[Culprit, ...]:
    """All processes as culprits, ranks first."""
    known = sorted(p.rank for p in people if p.rank is not None)
    return (*map(place, known), *(Culprit(None, p.host or None, p.pid) for p in people if p.rank is None))
