"""Ranks of processes and devices that kernels, drivers and schedulers name: by process id, bus address or task.

A number counts only on its host: two hosts have the same process ids and the same bus addresses. A rank that is not
certain stays unknown, and the line names host and device.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import polars as pl

from rankscope import schema
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.rows.launcher_numbers import Lead, NumberedRank, TaskJudge, local_rank, read_launch
from rankscope.features.logs.rows.log_processes import LogScene
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.sidecar import Sidecar

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
    told = text.strip().lower()
    if (found := _ADDRESS.match(told)) is not None:
        return int(f"{found[1] or '0'}{found[2]}{found[3]}{found[4] or '0'}", 16)
    return int(told, 16) if _HEX.match(told) else None


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
    made = pl.DataFrame(rows, schema=dict(schema.MESSAGES), infer_schema_length=None)
    rest = messages.join(open_.select("file", "offset", "kind"), on=["file", "offset", "kind"], how="anti")
    tables["messages"] = pl.concat([rest, made]).sort("file", "offset", maintain_order=True)


_IS_HARDWARE = pl.col("values").str.contains('"fatal":', literal=True)


def read_seats(
    tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], scene: LogScene | None
) -> Seats:  # fmt: skip
    """The processes and devices of ranks, from NCCL's lines, sidecars, environments, stacks and other lines."""
    seats = Seats()
    if scene is not None:
        _read_scene(seats, scene)
    for place, source in enumerate(sources):
        card = source.card or (source.content if isinstance(source.content, Sidecar) else None)
        if card is not None and card.pid is not None:
            seats.process(card.host, card.pid, Lead(card.rank, place, 1))
    told = tables["messages"].filter(~_IS_HARDWARE)
    for name, table in (("messages", told), ("settings", tables.get("settings"))):
        if table is not None and not table.is_empty():
            own = table.drop_nulls(["rank", "pid"]).unique(["rank", "host", "pid"], keep="first", maintain_order=True)
            for rank, host, pid, file, line in own.select("rank", "host", "pid", "file", "line").iter_rows():
                seats.process(host or "", pid, Lead(rank, file, line if name == "messages" else 1))
    _read_settings(seats, tables.get("settings"))
    _read_threads(seats, tables.get("threads"), sources)
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


def _read_settings(seats: Seats, settings: pl.DataFrame | None) -> None:
    """Reads which rank has which task of srun, from the environments of ranks."""
    if settings is None or settings.is_empty():
        return
    own = settings.filter((pl.col("name") == "SLURM_PROCID") & pl.col("rank").is_not_null())
    for rank, value, file, line in own.select("rank", "value", "file", "line").iter_rows():
        if value.isdigit() and len(value) < 8:
            seats.tasks[int(value)].add(Lead(rank, file, line))


def _read_threads(seats: Seats, threads: pl.DataFrame | None, sources: Sequence[SourceFile]) -> None:
    """Reads processes with stacks, and their children: a data loader's worker belongs to its rank."""
    if threads is None or threads.is_empty():
        return
    own = threads.drop_nulls(["rank", "pid"]).unique(["rank", "pid", "file"], keep="first", maintain_order=True)
    for rank, pid, parent, file in own.select("rank", "pid", "parent_pid", "file").iter_rows():
        host = short_host(sources[file].host or "")
        seats.process(host, pid, Lead(rank, file, 1))
        if parent is not None:
            seats.children[host, pid] = parent


class _RankJudge:
    """Judge of single lines."""

    def __init__(
        self, seats: Seats, tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], scene: LogScene | None
    ) -> None:
        self._seats, self._sources, self._hosts = seats, sources, seats.hosts
        self._of_file: dict[int, str] = {}
        self._launch = read_launch(tables, scene, seats.homes)
        self._tasks = TaskJudge(self._launch, seats.tasks, seats.homes)

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
            yield from self._of_tasks(row, values)
            return
        found = self._lead(row, values)
        local = values.get("local_rank")
        if found is not None:
            yield self._told(row, values, *found)
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
            told = self._sources[file].host or (named[1] or named[2] if named is not None else "")
            self._of_file[file] = max(there, key=len) if there else told
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

    def _told(self, row: dict[str, Any], values: dict[str, Any], lead: Lead, what: str) -> dict[str, Any]:
        on = f" of {row['host']}" if row["host"] else ""
        child = row["pid"] is not None and (short_host(row["host"] or ""), row["pid"]) in self._seats.children
        verb = "belongs to" if child else "is that of" if "GPU" in what else "is"
        text = f"{what}{on} {verb} rank {lead.rank}"
        told = {**values, "joined": {"text": text, "file": self._sources[lead.file].shown, "line": lead.line}}
        if not row["host"] and len(self._hosts) > 1:
            told["doubt"] = "the line does not name its host, but only one host of the job has this number"
        return {**row, "rank": lead.rank, "values": orjson.dumps(told).decode()}

    def _of_tasks(self, row: dict[str, Any], values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        numbers = [n for low, high in values.get("tasks") or () for n in range(low, min(high, low + MOST_TASKS) + 1)]
        found = [self._tasks.rank(number, short_host(row["host"] or "")) for number in numbers[:MOST_TASKS]]
        memory = str(values.get("how") or "").startswith("Out Of Memory")
        if not found or len(found) < len(numbers) or (len(found) > 1 and not memory):
            yield row
        elif any(one.rank is None for one in found):
            doubt = next(one.doubt for one in found if one.rank is None)
            yield self._numbered(row, values, NumberedRank(None, doubt))
        else:
            yield from (self._numbered(row, values, one) for one in found)

    def _numbered(self, row: dict[str, Any], values: dict[str, Any], found: NumberedRank) -> dict[str, Any]:
        """The row with the rank of a launcher's number, or with the reason why it has none."""
        told = {**values, "doubt": found.doubt} if found.doubt else dict(values)
        if found.place is not None and found.place.file >= 0:
            place = found.place
            told["joined"] = {"text": found.text, "file": self._sources[place.file].shown, "line": place.line}
        return {**row, "rank": found.rank, "values": orjson.dumps(told).decode()}


def _bus(row: dict[str, Any], values: dict[str, Any]) -> str:
    """The bus address in a line, also in NCCL's own check."""
    if values.get("bus"):
        return str(values["bus"])
    found = re.search(r"\(GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\)", row["text"] or "")
    return found[1] if found is not None and row["kind"] == "nccl-diagnosis" else "none"
