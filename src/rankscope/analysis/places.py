"""Places of ranks: hosts, switches that hosts share, slots within hosts; and places that all culprits share.

Nothing is said if hosts are unknown, or if chance easily explains the shared place.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb

import polars as pl

from rankscope.analysis.host_stacks import MOST_NAMED_RANKS
from rankscope.analysis.model import Culprit, Finding
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

SWITCH_CHANCE = 0.05
"""Largest probability of chance at which a shared switch of all culprits' hosts is told."""
SLOT_CHANCE = 1 / 8
"""Largest probability of chance for a shared slot, which is only observed: two hosts of eight devices suffice."""
MOST_LOOKED_UP = 64
"""Most ranks whose hosts are looked up for a command."""
_TOPOLOGY = "SLURM_TOPOLOGY_ADDR"
"""Slurm's path of switches to the node, coarsest first: "spine1.leaf4.node07" (Slurm, topology/tree)."""
_CHUNK = re.compile(r"\D*\d+")
_ADDRESS = re.compile(r"(?:ip[-_.])?\d+(?:[-.]\d+){3}$", re.IGNORECASE)

ALL_STACKS = "rankscope stacks -o dumps"
"""As in `step_commands`, which a report does not load."""


@dataclass(frozen=True)
class SharedPlace:
    """A place that all culprits share."""

    sentence: str
    """Sentence for an explanation."""
    short: str
    """For the end of a line: "all on node07"."""


def known_hosts(dataset: Dataset) -> dict[int, str]:
    """The host of each rank that its file tells, or else its operations: a log may hold many ranks."""
    files = dataset.files.filter(pl.col("used")).select("rank", "host").drop_nulls()
    hosts: dict[int, str] = dict(files.filter(pl.col("host") != "").iter_rows())
    if len(hosts) < len(dataset.every_rank) and dataset.ops["host"].null_count() < dataset.ops.height:
        told = dataset.ops.select("rank", "host").drop_nulls().unique("rank", keep="first", maintain_order=True)
        hosts = {**dict(told.with_columns(pl.col("host").cast(pl.String)).iter_rows()), **hosts}
    return hosts


class Places:
    """The hosts of the ranks of a job."""

    def __init__(self, dataset: Dataset) -> None:
        used = dataset.files.filter(pl.col("used") & pl.col("host").is_not_null() & pl.col("rank").is_not_null())
        self._known = known_hosts(dataset)
        self._pids: dict[int, int] = dict(used.select("rank", "pid").drop_nulls().iter_rows())
        self._settings = _settings(dataset)
        self._world = dataset.world_size

    @cached_property
    def hosts(self) -> dict[int, str]:
        """The host of each rank, also of ranks without a dump if hosts hold blocks of ranks."""
        if not self._block:
            return self._known
        of_block = {rank // self._block: host for rank, host in self._known.items()}
        blocks = {rank: of_block.get(rank // self._block) for rank in range(self._world)}
        return {**{rank: host for rank, host in blocks.items() if host}, **self._known}

    @cached_property
    def _block(self) -> int:
        """Ranks per host if every host has a block of neighbours, two of them whole; else 0."""
        ranks: dict[str, list[int]] = defaultdict(list)
        for rank, host in self._known.items():
            ranks[host].append(rank)
        size = max(map(len, ranks.values()), default=0)
        blocks = [{rank // size for rank in own} for own in ranks.values()]
        whole = sum(len(own) == size for own in ranks.values())
        apart = all(len(b) == 1 for b in blocks) and len(set.union(set(), *blocks)) == len(blocks)
        return size if size > 1 and whole > 1 and apart else 0

    def slot(self, rank: int) -> int | None:
        """The index of a rank among those of its host; None if it is unknown."""
        told = self._settings.get(("LOCAL_RANK", rank), "")
        if told.isascii() and told.isdigit() and len(told) < 6:
            return int(told)
        return rank % self._block if self._block and rank in self.hosts else None

    def culprit(self, rank: int) -> Culprit:
        """A culprit with the known place of the rank."""
        slot = self.slot(rank)
        return Culprit(
            rank, self.hosts.get(rank), self._pids.get(rank), device=None if slot is None else f"local rank {slot}"
        )

    def shared(self, findings: Sequence[Finding]) -> SharedPlace | None:
        """The place that the culprits of these findings share; None for fewer than two culprits, or without one."""
        ranks = sorted({rank for finding in findings for rank in finding.culprit_ranks})
        hosts = {rank: self.hosts[rank] for rank in ranks if rank in self.hosts}
        if len(ranks) < 2 or len(hosts) < len(ranks):
            return None
        names = set(hosts.values())
        if len(names) == 1:
            host = names.pop()
            drain = all(FINDINGS[finding.kind].drains_node for finding in findings)
            if len(set(self.hosts.values())) == 1:
                return None
            advice = ": drain that node" if drain else ""
            return SharedPlace(f"All of them are on {host}{advice}.", f"all on {host}{advice}")
        found = [self._switch(names), self._same_slot(ranks, len(names), findings)]
        return next((shared for shared in found if shared is not None), None)

    def _switch(self, culprits: set[str]) -> SharedPlace | None:
        """The narrowest switch, rack or name part that holds all culprits' hosts, unless that may be chance."""
        units = self._units
        shared = [u for u in units[min(culprits)] if all(u in units[host] for host in culprits)]
        for unit in reversed(shared):
            depth = units[min(culprits)].index(unit)
            sizes = Counter(of[depth] for of in units.values() if len(of) > depth)
            ways = sum(comb(n, len(culprits)) for n in sizes.values())
            if sizes[unit] < len(units) and ways <= SWITCH_CHANCE * comb(len(units), len(culprits)):
                return _under(unit, len(culprits), len(units) - sizes[unit], told=bool(self._topology))
        return None

    @property
    def parts(self) -> set[str]:
        """Every switch or name part that more than one host may share."""
        return {unit for units in self._units.values() for unit in units}

    @cached_property
    def _units(self) -> dict[str, tuple[str, ...]]:
        return self._topology or {host: units_of(host) for host in set(self.hosts.values())}

    @cached_property
    def _topology(self) -> dict[str, tuple[str, ...]]:
        """By host the switches above it, coarsest first, from Slurm; empty if it is not known for every host."""
        out: dict[str, tuple[str, ...]] = {}
        for rank, host in self.hosts.items():
            path = self._settings.get((_TOPOLOGY, rank), "").split(".")
            if len(path) > 1:
                out[host] = tuple(".".join(path[: at + 1]) for at in range(len(path) - 1))
        return out if len(out) == len(set(self.hosts.values())) else {}

    def _same_slot(self, ranks: Sequence[int], hosts: int, findings: Sequence[Finding]) -> SharedPlace | None:
        """The slot that culprits share on different hosts, unless they are in one group that runs along that slot."""
        slots = {self.slot(rank) for rank in ranks}
        slot = slots.pop()
        if slots or slot is None or hosts < len(ranks) or self._block ** (1 - hosts) > SLOT_CHANCE:
            return None
        along = [f for f in findings if f.group and len(f.culprit_ranks) > 1]
        if any({self.slot(rank) for rank in f.group.ranks} == {slot} for f in along if f.group):
            return None
        return SharedPlace(
            f"Each of them is local rank {slot} of its host: the same slot, or the same rail of the network.",
            f"all local rank {slot} of their hosts",
        )


def _under(unit: str, culprits: int, others: int, *, told: bool) -> SharedPlace:
    if told:
        text = f"Their {plural(culprits, 'host')} are under switch {unit}, {plural(others, 'other host')} are not."
        return SharedPlace(f"{text} Look at that switch.", f"all under switch {unit}")
    text = f"The names of their {plural(culprits, 'host')} have {unit} in common, those of {others} others do not"
    return SharedPlace(f"{text}: perhaps one rack or switch.", f"all on {unit}")


def units_of(host: str) -> tuple[str, ...]:
    """The units in a host name, coarsest first: "pod3-sw2-n14" is in pod3 and in pod3-sw2.

    Each unit ends in a number, and the whole name is none of them. Names made of an address tell nothing.
    """
    if _ADDRESS.match(host):
        return ()
    short, *domains = host.split(".")
    above = [".".join(domains[at:]) for at in range(len(domains) - 1, -1, -1)]
    ends = [match.end() for match in _CHUNK.finditer(short)]
    within = [short[:end] for end in ends if end < len(short)]
    suffix = f".{above[-1]}" if above else ""
    return (*(d for d in above if any(c.isdigit() for c in d)), *(name + suffix for name in within))


def _settings(dataset: Dataset) -> dict[tuple[str, int], str]:
    wanted = dataset.settings.filter(pl.col("name").is_in(["LOCAL_RANK", _TOPOLOGY]) & pl.col("rank").is_not_null())
    return {(name, rank): value for rank, name, value in wanted.select("rank", "name", "value").iter_rows()}


def host_steps(dataset: Dataset, ranks: Sequence[int], question: str = "", native: bool = False) -> tuple[str, ...]:
    """Steps that collect stacks of those of `ranks` without a py-spy dump; empty if all have one."""
    seen = set(dataset.threads["rank"].drop_nulls().unique())
    left = [rank for rank in ranks if rank not in seen]
    if not left:
        return ()
    processes = {rank: _process_of(dataset, rank) for rank in left[:MOST_NAMED_RANKS]}
    others = [rank for rank in left if not processes.get(rank)]
    pids = " and ".join(filter(None, processes.values()))
    commands = [f"py-spy dump {'--native ' if native else ''}--pid {pids}"] if pids else []
    if others:
        # each look takes a pass over the files: with more ranks than can be named, no host is
        few = others if len(others) <= MOST_LOOKED_UP else ()
        hosts = dict.fromkeys(_facts_of(dataset, rank)[0] for rank in few)
        known = 0 < len(hosts) <= MOST_NAMED_RANKS and None not in hosts
        where = f"on {' and '.join(str(host) for host in hosts)}" if known else "on each host"
        commands.append(f"{ALL_STACKS} {where}, for {ranks_text(others)}")
    command = "; ".join(commands)
    return (f"{command}: {question}" if question else command,)


def _process_of(dataset: Dataset, rank: int) -> str:
    """The process of a rank in words: its id and its rank; "" where no sidecar tells the id."""
    host, pid = _facts_of(dataset, rank)
    return "" if pid is None else f"{pid} (rank {rank}" + (f" on {host})" if host is not None else ")")


def _facts_of(dataset: Dataset, rank: int) -> tuple[str | None, int | None]:
    """Host and process id that sidecars tell of a rank."""
    mine = dataset.files.filter(pl.col("used") & (pl.col("rank") == rank))
    return next(iter(mine["host"].drop_nulls()), None), next(iter(mine["pid"].drop_nulls()), None)
