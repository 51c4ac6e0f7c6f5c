"""Ranks of processes and devices that kernels, drivers and schedulers name: by process id, bus address or task.

A number counts only on its host: two hosts have the same process ids, bus addresses and local ranks. A task of srun is
a rank only where srun starts each process of the job, and not a launcher on each host; a local rank only on the first
host, or where the log tells the first rank of its host. A rank that is not certain stays unknown, and the line names
host and device.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import polars as pl

from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.rows.launchers import SRUN, read_front
from rankscope.features.logs.rows.log_processes import LogScene
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.safe_values import RANK_LIMIT
from rankscope.parsers.sidecar import Sidecar
from rankscope.schema.tables import MESSAGES

_BY_LAUNCHER = [name for name, row in EVENTS.items() if row.by_launcher]
_SIZES = ("GROUP_WORLD_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


class Lead(NamedTuple):
    """A rank, and the place that says so."""

    rank: int
    file: int
    line: int


class NumberedRank(NamedTuple):
    """The rank of a number, None if it is not certain, with a reason for doubt, and the place of the proof."""

    rank: int | None
    doubt: str = ""
    text: str = ""
    """Words for the proof, where it has a place."""
    place: Lead | None = None


@dataclass
class Launch:
    """The start of a job, as far as its logs and environments tell."""

    world: int = 0
    """Ranks of the job; 0 if unknown."""
    nodes: int | None = None
    """Hosts of the job."""
    nodes_place: Lead | None = None
    by_launcher: bool = False
    """A launcher starts the ranks of each host."""
    first_ranks: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By file the first ranks of its hosts."""
    tasks: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By host, "" for an unknown one, the seen tasks of srun: those that ended, and those before lines."""

    @property
    def task_count(self) -> int:
        """The least number of tasks."""
        return 1 + max((task for own in self.tasks.values() for task in own), default=-1)


def read_launch(tables: Mapping[str, pl.DataFrame], scene: LogScene | None, homes: Mapping[int, set[str]]) -> Launch:
    """The start of the job; `homes` are the known hosts of ranks."""
    launch = Launch(scene.world if scene is not None and scene.sized else 0)
    counts: dict[int, Lead] = {}
    for row, values in _rows(tables["messages"]):
        launch.by_launcher |= row["kind"] in _BY_LAUNCHER
        local, first = values.get("local_rank"), values.get("first_rank")
        if isinstance(first, int) and row["kind"] == "launch":
            launch.first_ranks[row["file"]].add(first)
        elif row["kind"] == "torchrun-failure" and isinstance(local, int) and row["rank"] is not None:
            launch.first_ranks[row["file"]].add(row["rank"] - local)
        if row["kind"] == "srun-exit":
            launch.tasks[values.get("host") or ""] |= {n for low, high in values["tasks"] for n in (low, high)}
        elif (front := read_front(values.get("front") or "")) is not None and front.form == SRUN:
            launch.tasks[""].add(front.number)
        for nodes in _nodes_of(values, launch.world):
            counts.setdefault(nodes, Lead(0, row["file"], row["line"]))
    for nodes, lead in _nodes_of_settings(tables.get("settings")):
        launch.by_launcher = True
        counts.setdefault(nodes, lead)
    hosts = [homes.get(rank, set()) - {""} for rank in range(launch.world)]
    if not counts and launch.world and all(len(homes_of) == 1 for homes_of in hosts):
        counts[len(set().union(*hosts))] = Lead(0, -1, 0)
    if len(counts) == 1:
        launch.nodes, launch.nodes_place = next(iter(counts.items()))
    return launch


def _rows(messages: pl.DataFrame) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    relevant = pl.col("kind").is_in([*_BY_LAUNCHER, "srun-exit"]) | pl.col("values").str.contains(
        '"front":', literal=True
    )
    for row in messages.filter(relevant).select("kind", "rank", "file", "line", "values").iter_rows(named=True):
        yield row, orjson.loads(row["values"])


def _nodes_of(values: Mapping[str, Any], world: int) -> Iterator[int]:
    nodes, per_node = values.get("nodes"), values.get("per_node")
    if isinstance(nodes, int) and nodes > 0:
        yield nodes
    if isinstance(per_node, int) and per_node > 0 and world and world % per_node == 0:
        yield world // per_node


def _nodes_of_settings(settings: pl.DataFrame | None) -> Iterator[tuple[int, Lead]]:
    """The number of hosts by each environment of a rank that a launcher started."""
    if settings is None or settings.is_empty():
        return
    sizes: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for name, value, file in settings.filter(pl.col("name").is_in(_SIZES)).select("name", "value", "file").iter_rows():
        if value.isdigit() and 0 < len(value) < 8:
            sizes[file][name] = int(value)
    for file, own in sizes.items():
        world, local = own.get("WORLD_SIZE", 0), own.get("LOCAL_WORLD_SIZE", 0)
        nodes = own.get("GROUP_WORLD_SIZE") or (world // local if local and world % local == 0 else 0)
        if nodes:
            yield nodes, Lead(0, file, 1)


class TaskJudge:
    """Judge of tasks of srun."""

    def __init__(self, launch: Launch, leads: Mapping[int, set[Lead]], homes: Mapping[int, set[str]]) -> None:
        self._launch, self._leads, self._homes = launch, leads, homes

    def rank(self, task: int, host: str) -> NumberedRank:
        """The rank of a task on a host."""
        leads, launch = self._leads.get(task, set()), self._launch
        if leads:
            ranks = {lead.rank for lead in leads}
            text = f"task {task} of srun is rank {min(ranks)}"
            return NumberedRank(min(ranks), text=text, place=min(leads)) if len(ranks) == 1 else NumberedRank(None)
        if self._leads or task >= RANK_LIMIT:
            return NumberedRank(None)
        homes = self._homes.get(task, set()) - {""}
        if homes and host not in homes:
            return NumberedRank(None, f"task {task} of srun is not rank {task}, which is on another host")
        if launch.world > 1 and launch.task_count == launch.world:
            return NumberedRank(task)
        return self._by_counts(task, host, bool(homes))

    def _by_counts(self, task: int, host: str, at_home: bool) -> NumberedRank:
        """The rank of a task where the number of tasks does not tell."""
        launch = self._launch
        node = f"task {task} of srun is a launcher of ranks, not a rank"
        known = [own for name, own in launch.tasks.items() if name]
        if launch.by_launcher or (len(known) > 1 and all(len(own) == 1 for own in known)):
            return NumberedRank(None, node)
        if at_home and task > 0 and self._several(host):
            # of a launcher inside the tasks, another task would be on this host
            return NumberedRank(task)
        if self._homes or (task == 0 and launch.task_count < 2):
            return NumberedRank(None, f"task {task} of srun may be a launcher of ranks, and not rank {task}")
        assumed = f"task {task} of srun is assumed to be rank {task}, as where srun starts one task per rank"
        return NumberedRank(task, assumed)

    def _several(self, host: str) -> bool:
        """Whether the number of tasks can be that of ranks: the host has others."""
        return sum(1 for homes in self._homes.values() if host in homes) > 1


class PodJudge:
    """Judge of pods: a process has the name of its pod as its host, or that of its node."""

    def __init__(self, world: int, homes: Mapping[int, set[str]]) -> None:
        self._world, self._homes = world, homes

    def rank(self, values: Mapping[str, Any], place: Lead) -> NumberedRank:
        """The rank in a pod, if there is one alone; `place` is the line that tells of the pod."""
        pod = values["pod"]
        for host in (pod, values.get("node")):
            ranks = [rank for rank, homes in self._homes.items() if host and short_host(host) in homes]
            if len(ranks) == 1:
                return NumberedRank(ranks[0], text=f"rank {ranks[0]} ran on {host}", place=place)
            if ranks:
                return NumberedRank(None, f"several ranks ran on {host}")
        rank, world = values.get("env_rank"), values.get("env_world")
        if not self._homes and isinstance(rank, int) and world == self._world > rank >= 0:
            return NumberedRank(rank, text=f"RANK of pod {pod} is {rank}", place=place)
        return NumberedRank(None)


def local_rank(launch: Launch, local: int, file: int) -> NumberedRank:
    """The rank of a process that a launcher numbers on its host, told in a file."""
    first = launch.first_ranks.get(file, set())
    if len(first) == 1 and min(first) >= 0:
        return NumberedRank(min(first) + local)
    if launch.nodes == 1 and (not launch.world or local < launch.world):
        return NumberedRank(
            local, text=f"local rank {local} is rank {local}: the job has one host", place=launch.nodes_place
        )
    several = launch.nodes is not None and launch.nodes > 1
    hosts = f"the job has {launch.nodes} hosts" if several else "the number of hosts of the job is not known"
    return NumberedRank(None, f"a local rank counts on its host only, and {hosts}")


_NAMES_PART = [name for name, row in EVENTS.items() if row.names_part]
MOST_TASKS = 64
"""Most tasks of one line that become rows of their own."""
_ADDRESS = re.compile(r"^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?$")
_SYSTEM_LOG = r"(?:dmesg|messages|kern(?:el)?|syslog|journal(?:ctl)?|nvidia[_\-]smi|dcgmi?|rocm[_\-]smi)"
_IN_NAME = re.compile(
    rf"(?:^|[/!._\-]){_SYSTEM_LOG}[._\-]([a-z][a-z0-9\-]*\d)(?=[._]|$)|(?:^|[/!])([a-z][a-z0-9\-]*\d)[._\-]{_SYSTEM_LOG}(?=[._\-]|$)"
)
"""A host in the name of a log of the system: `dmesg.node-3.log`, `node07_dmesg.txt`."""
_HEX = re.compile(r"^[0-9a-f]{1,16}$")


@dataclass
class Seats:
    """Processes and devices of the job, on their hosts, with the ranks that have them."""

    pids: defaultdict[tuple[str, int], set[Lead]] = field(default_factory=lambda: defaultdict(set))
    buses: defaultdict[tuple[str, int], set[Lead]] = field(default_factory=lambda: defaultdict(set))
    devices: defaultdict[tuple[str, int], set[Lead]] = field(default_factory=lambda: defaultdict(set))
    """By the index that the driver counts with."""
    tasks: defaultdict[int, set[Lead]] = field(default_factory=lambda: defaultdict(set))
    """By the number of the task of srun."""
    children: dict[tuple[str, int], int] = field(default_factory=dict)
    """The process that started another one, by host and process id."""

    @property
    def hosts(self) -> frozenset[str]:
        """The known hosts of the job."""
        return frozenset(host for table in (self.pids, self.buses, self.devices) for host, _ in table if host)

    @property
    def homes(self) -> dict[int, set[str]]:
        """The hosts of each rank with a known process; "" for an unknown one."""
        found: defaultdict[int, set[str]] = defaultdict(set)
        for (host, _), leads in self.pids.items():
            for lead in leads:
                found[lead.rank].add(host)
        return dict(found)

    def process(self, host: str, pid: int, lead: Lead) -> None:
        """Notes a process of a rank."""
        self.pids[short_host(host), pid].add(lead)

    def find(self, table: dict[tuple[str, int], set[Lead]], host: str, number: int, known: frozenset[str]) -> set[Lead]:
        """The ranks with a number on a host; without a host on the only one, and for "" on a host that nothing tells.

        `known` are the hosts of the job.
        """
        if host:
            return table.get((host, number), set())
        own = [leads for (_, other), leads in table.items() if other == number]
        return own[0] if len(own) == 1 and (len(known) <= 1 or table is self.pids) else set()


def short_host(host: str) -> str:
    """A host without its domain, in small letters; an address stays."""
    name = host.strip().lower()
    return name if name.replace(".", "").isdigit() or ":" in name else name.partition(".")[0]


def bus_number(text: str) -> int | None:
    """The address of a PCI device as one number, from `0000:5d:00.0` or NCCL's `5d000`; None for other texts."""
    address = text.strip().lower()
    if (parts := _ADDRESS.match(address)) is not None:
        return int(f"{parts[1] or '0'}{parts[2]}{parts[3]}{parts[4] or '0'}", 16)
    return int(address, 16) if _HEX.match(address) else None


def add_hardware_ranks(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], scene: LogScene | None) -> None:
    """Gives lines of `messages` that name a process, a device or a task their rank and host, where these are certain.

    `values` of such a line then has `joined`: text, file and line of what led to the rank; or `doubt`.
    """
    messages = tables.get("messages")
    if messages is None or not messages["kind"].is_in(_NAMES_PART).any():
        return
    # lines of most logs need none of this
    open_ = messages.filter(pl.col("kind").is_in(_NAMES_PART) & (pl.col("rank").is_null() | _IS_HARDWARE))
    if open_.is_empty():
        return
    judge = _RankJudge(read_seats(tables, sources, scene), tables, sources, scene)
    rows = [row for one in open_.iter_rows(named=True) for row in judge.joined(one)]
    made = pl.DataFrame(rows, schema=MESSAGES, infer_schema_length=None)
    rest = messages.join(open_.select("file", "offset", "kind"), on=["file", "offset", "kind"], how="anti")
    tables["messages"] = pl.concat([rest, made]).sort("file", "offset", maintain_order=True)


_IS_HARDWARE = pl.col("values").str.contains('"fatal":', literal=True)


def read_seats(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], scene: LogScene | None) -> Seats:
    """The processes and devices of ranks, from NCCL's lines, sidecars, environments, stacks and other lines."""
    seats = Seats()
    if scene is not None:
        _read_scene(seats, scene)
    for place, source in enumerate(sources):
        card = source.card or (source.content if isinstance(source.content, Sidecar) else None)
        if card is not None and card.pid is not None:
            seats.process(card.host, card.pid, Lead(card.rank, place, 1))
    lines = tables["messages"].filter(~_IS_HARDWARE)
    for name, table in (("messages", lines), ("settings", tables.get("settings"))):
        if table is not None and not table.is_empty():
            rows = table.drop_nulls(["rank", "pid"]).unique(["rank", "host", "pid"], keep="first", maintain_order=True)
            for rank, host, pid, file, line in rows.select("rank", "host", "pid", "file", "line").iter_rows():
                seats.process(host or "", pid, Lead(rank, file, line if name == "messages" else 1))
    # reads which rank has which task of srun, from the environments of ranks
    settings = tables.get("settings")
    if settings is not None and not settings.is_empty():
        rows = settings.filter((pl.col("name") == "SLURM_PROCID") & pl.col("rank").is_not_null())
        for rank, value, file, line in rows.select("rank", "value", "file", "line").iter_rows():
            if value.isdigit() and len(value) < 8:
                seats.tasks[int(value)].add(Lead(rank, file, line))
    # reads processes with stacks, and their children: a data loader's worker belongs to its rank
    threads = tables.get("threads")
    if threads is not None and not threads.is_empty():
        rows = threads.drop_nulls(["rank", "pid"]).unique(["rank", "pid", "file"], keep="first", maintain_order=True)
        for rank, pid, parent, file in rows.select("rank", "pid", "parent_pid", "file").iter_rows():
            host = short_host(sources[file].host or "")
            seats.process(host, pid, Lead(rank, file, 1))
            if parent is not None:
                seats.children[host, pid] = parent
    return seats


def _read_scene(seats: Seats, scene: LogScene) -> None:
    """Reads NCCL's lines: each names its process, and those of an initialisation the device."""
    for life in scene.lives:
        speaker = scene.speakers[life.speaker]
        rank = speaker.rank
        if rank is None or speaker.old:
            continue
        lead, host = Lead(rank, scene.logs[life.log].place, life.comm.line), short_host(speaker.host)
        if not any(known.rank == rank for known in seats.pids[host, speaker.pid]):
            seats.process(speaker.host, speaker.pid, lead)
        bus = bus_number(life.comm.bus_id)
        for table, number in ((seats.buses, bus), (seats.devices, life.comm.nvml_device)):
            if number is not None and not any(known.rank == rank for known in table[host, number]):
                table[host, number].add(lead)
    for log in scene.logs:
        for at in log.speakers:
            speaker = scene.speakers[at]
            if (
                speaker.rank is not None
                and not speaker.old
                and (short_host(speaker.host), speaker.pid) not in seats.pids
            ):
                seats.process(speaker.host, speaker.pid, Lead(speaker.rank, log.place, 1))


class _RankJudge:
    """Judge of single lines."""

    def __init__(
        self, seats: Seats, tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], scene: LogScene | None
    ) -> None:
        self._seats, self._sources, self._hosts = seats, sources, seats.hosts
        self._of_file: dict[int, str] = {}
        self._launch = read_launch(tables, scene, seats.homes)
        self._tasks = TaskJudge(self._launch, seats.tasks, seats.homes)
        self._pods = PodJudge(self._launch.world, seats.homes)

    def joined(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The row, with host and rank if these are certain; a row for each task of a line about several."""
        values = orjson.loads(row["values"])
        row = {**row, "host": row["host"] or values.get("host") or values.get("node") or self._host_of(row["file"])}
        if "fatal" in values and self._sources[row["file"]].rank is not None:
            # the kernel's log lies in the directory of one rank, and tells of all of its host
            row["rank"] = None
        if row["rank"] is not None:
            yield row
            return
        if row["kind"] == "srun-exit" or values.get("tasks"):
            numbers = [
                n for low, high in values.get("tasks") or () for n in range(low, min(high, low + MOST_TASKS) + 1)
            ]
            tasks = [self._tasks.rank(number, short_host(row["host"] or "")) for number in numbers[:MOST_TASKS]]
            memory = str(values.get("how") or "").startswith("Out Of Memory")
            if not tasks or len(tasks) < len(numbers) or (len(tasks) > 1 and not memory):
                yield row
            elif any(task.rank is None for task in tasks):
                doubt = next(task.doubt for task in tasks if task.rank is None)
                yield self._numbered(row, values, NumberedRank(None, doubt))
            else:
                yield from (self._numbered(row, values, task) for task in tasks)
            return
        if values.get("pod"):
            yield self._numbered(row, values, self._pods.rank(values, Lead(-1, row["file"], row["line"])))
            return
        lead = self._lead(row, values)
        local = values.get("local_rank")
        if lead is not None:
            yield self._with_rank(row, values, *lead)
        elif isinstance(local, int) and EVENTS[row["kind"]].by_launcher:
            yield self._numbered(row, values, local_rank(self._launch, local, row["file"]))
        else:
            yield row

    def _host_of(self, file: int) -> str | None:
        """The host in the path of a file: one of the job's, else a plain one."""
        if file not in self._of_file:
            shown = self._sources[file].shown.lower()
            there = [
                host for host in self._hosts if re.search(rf"(?:^|[^a-z0-9\-]){re.escape(host)}(?![a-z0-9])", shown)
            ]
            named = _IN_NAME.search(shown)
            plain = self._sources[file].host or (named[1] or named[2] if named is not None else "")
            self._of_file[file] = max(there, key=len) if there else plain
        return self._of_file[file] or None

    def _lead(self, row: dict[str, Any], values: dict[str, Any]) -> tuple[Lead, str] | None:
        """The rank of the process or device of a line, and words for it; None unless exactly one."""
        host = short_host(row["host"] or "")
        found: dict[int, tuple[Lead, str]] = {}
        tables = (
            ("process {}", self._seats.pids, row["pid"] if row["pid"] is not None else values.get("pid")),
            (f"the GPU at {values.get('bus')}", self._seats.buses, bus_number(str(_bus(row, values)))),
            ("GPU {}", self._seats.devices, values.get("gpu")),
        )
        for words, table, number in tables:
            if isinstance(number, int):
                leads = self._seats.find(table, host, number, self._hosts)
                if len({lead.rank for lead in leads}) > 1:
                    return None
                for lead in leads:
                    found.setdefault(lead.rank, (lead, words.format(number)))
        return next(iter(found.values())) if len(found) == 1 else None

    def _with_rank(self, row: dict[str, Any], values: dict[str, Any], lead: Lead, what: str) -> dict[str, Any]:
        on = f" of {row['host']}" if row["host"] else ""
        child = row["pid"] is not None and (short_host(row["host"] or ""), row["pid"]) in self._seats.children
        verb = "belongs to" if child else "is that of" if "GPU" in what else "is"
        text = f"{what}{on} {verb} rank {lead.rank}"
        joined = {**values, "joined": {"text": text, "file": self._sources[lead.file].shown, "line": lead.line}}
        if not row["host"] and len(self._hosts) > 1:
            joined["doubt"] = "the line does not name its host, but only one host of the job has this number"
        return {**row, "rank": lead.rank, "values": orjson.dumps(joined).decode()}

    def _numbered(self, row: dict[str, Any], values: dict[str, Any], found: NumberedRank) -> dict[str, Any]:
        """The row with the rank of a launcher's number, or with the reason why it has none."""
        joined = {**values, "doubt": found.doubt} if found.doubt else dict(values)
        if found.place is not None and found.place.file >= 0:
            place = found.place
            joined["joined"] = {"text": found.text, "file": self._sources[place.file].shown, "line": place.line}
        return {**row, "rank": found.rank, "values": orjson.dumps(joined).decode()}


def _bus(row: dict[str, Any], values: dict[str, Any]) -> str:
    """The bus address in a line, also in NCCL's own check."""
    if values.get("bus"):
        return str(values["bus"])
    found = re.search(r"\(GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\)", row["text"] or "")
    return found[1] if found is not None and row["kind"] == "nccl-diagnosis" else "none"
