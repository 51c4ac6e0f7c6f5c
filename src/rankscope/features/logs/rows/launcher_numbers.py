"""Ranks behind the numbers that launchers give to processes: tasks of srun, and local ranks, which count on each host.

A task is a rank only where srun starts each process of the job, and not a launcher on each host. A local rank is a rank
only on the first host, or where the log tells the first rank of its host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
import polars as pl

from rankscope.features.logs.rows.launchers import SRUN, read_front
from rankscope.features.logs.rows.log_processes import LogScene
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.safe_values import RANK_LIMIT

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
    told: dict[int, Lead] = {}
    for row, values in _rows(tables["messages"]):
        _read_row(launch, row, values)
        for nodes in _nodes_of(values, launch.world):
            told.setdefault(nodes, Lead(0, row["file"], row["line"]))
    for nodes, lead in _nodes_of_settings(tables.get("settings")):
        launch.by_launcher = True
        told.setdefault(nodes, lead)
    hosts = [homes.get(rank, set()) - {""} for rank in range(launch.world)]
    if not told and launch.world and all(len(own) == 1 for own in hosts):
        told[len(set().union(*hosts))] = Lead(0, -1, 0)
    if len(told) == 1:
        launch.nodes, launch.nodes_place = next(iter(told.items()))
    return launch


def _rows(messages: pl.DataFrame) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    relevant = pl.col("kind").is_in([*_BY_LAUNCHER, "srun-exit"]) | pl.col("values").str.contains(
        '"front":', literal=True
    )
    for row in messages.filter(relevant).select("kind", "rank", "file", "line", "values").iter_rows(named=True):
        yield row, orjson.loads(row["values"])


def _read_row(launch: Launch, row: Mapping[str, Any], values: Mapping[str, Any]) -> None:
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
