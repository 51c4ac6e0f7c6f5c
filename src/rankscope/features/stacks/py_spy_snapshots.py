"""Stacks of one attempt, in dumps of py-spy and in logs, with the ranks of their processes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, repeat
from typing import Any

import polars as pl

from rankscope.assemble.attempts import Attempt
from rankscope.assemble.gathering import Gathered, GatheredJob, PrintedStacks
from rankscope.assemble.operations import stack_table
from rankscope.assemble.sources import SourceFile
from rankscope.features.stacks.py_spy.frame_interning import SnapshotCollector, clip_text, valid_pid
from rankscope.features.stacks.py_spy.model import Identity, Snapshot
from rankscope.features.stacks.py_spy.thread_roles import is_main, roles_of, title_rank
from rankscope.features.stacks.py_spy_ranks import RankedStacks, claim_process_ranks, one_node
from rankscope.kinds.input_kinds import DUPLICATE
from rankscope.parsers.contents import StackFrame
from rankscope.schema.tables import THREADS, UNRANKED

SLACK_NS = 60 * 1_000_000_000
"""Largest clock difference between hosts and file servers; two processes of one rank start further apart."""
STEP_NS = 1_000_000_000
"""Resolution of the times in such names."""
_SERIES = re.compile(r"(?:^|[/!])(stacks|pyspy_dump)_(\d{8}_\d{6})\.txt(?:\.\w{1,4})?$")
COPIED_NS = 86_400 * 1_000_000_000
"""Time after the last event beyond which a file is a copy: its write time then does not show its attempt."""


@dataclass(frozen=True, kw_only=True)
class JobStacks(Gathered):
    """The stacks of a job, with the ranks of their processes."""

    seen: list[RankedStacks]
    places: dict[int, int]
    """The rows of `files` by the identities of the sources."""

    def add_tables(self, tables: dict[str, pl.DataFrame], world: int) -> tuple[dict[str, pl.DataFrame], int]:
        """The tables with the threads and their stacks; the number of ranks stays."""
        threads, stacks = thread_tables(self.seen, self.places, tables["ops"], tables["stacks"])
        return {**tables, "threads": threads, "stacks": stacks}, world


def gather_stacks(job: GatheredJob) -> JobStacks | None:
    """The stacks of the chosen attempt with their ranks; None without any. py-spy dumps of others get a note.

    Contradicting ranks are removed.
    """
    sources, runs, (chosen, pattern, _), world, in_logs = job.sources, job.runs, job.choice, job.world, job.stacks
    snapshots = [source for source in sources if isinstance(source.content, Snapshot)]
    if not in_logs and not snapshots:
        return None
    _attempts(sources, runs)
    seen = list(map(_ranked, in_logs))
    seen += [
        RankedStacks(source, source.content)
        for source in snapshots
        if isinstance(source.content, Snapshot) and source.attempt == (chosen if runs else 0)
    ]
    dumps: dict[int, list[SourceFile]] = defaultdict(list)
    for source in runs[chosen].sources if runs else ():
        if source.used and source.named is not None:
            dumps[source.named].append(source)
    _in_time(seen)
    for one in seen:
        claim_process_ranks(one, pattern, dumps, len(seen), world)
    _local(seen, world)
    _beyond(seen, world)
    _samples(seen)
    kept = _rivals(seen)
    _recognise(kept)
    for one in kept:
        _finish(one)
    if not kept:
        return None
    world = max((1 + rank for stacks in kept for rank in stacks.ranks.values()), default=0)
    return JobStacks(world=world, seen=kept, places=job.places)


def _ranked(printed: PrintedStacks) -> RankedStacks:
    """Stacks that a file of another kind holds, as those of a file of their own."""
    collector = SnapshotCollector()
    for process in printed.processes:
        titled = title_rank(process.command) if process.command else printed.rank
        rank = titled if process.rank is None else process.rank
        within = process.local_rank if rank is None else None
        place = collector.process(valid_pid(process.pid), None, process.command, "", rank, within, process.tool)
        for name, number, active, gil, frames in process.threads:
            clipped = (StackFrame(clip_text(function), clip_text(file), line) for function, file, line in frames)
            collector.thread(place, name, number, (active, gil), clipped)
    snapshot = collector.result([])
    snapshot.roles = roles_of(snapshot)
    return RankedStacks(printed.source, snapshot, in_log=printed.in_log)


def _in_time(seen: Sequence[RankedStacks]) -> None:
    """Orders the files that a debug server writes repeatedly by the times in their names."""
    series: dict[tuple[str, str], list[tuple[str, RankedStacks]]] = defaultdict(list)
    for one in seen:
        if (named := _SERIES.search(one.source.shown)) is not None:
            series[one.source.directory, named[1]].append((named[2], one))
    for files in series.values():
        before = None
        for _, one in sorted(files, key=lambda file: file[0], reverse=True):
            one.before_ns = before
            before = None if one.written_ns is None else one.written_ns - STEP_NS


def _finish(seen: RankedStacks) -> None:
    ranks, unknown = set(seen.ranks.values()), len(seen.unknown)
    seen.source.used = seen.snapshot.rows > 0 or seen.in_log
    if ranks and unknown:
        whose = "the stacks of " if seen.in_log else ""
        seen.source.note = f"{UNRANKED} of {whose}{unknown} of its {len(seen.owners)} processes"
    elif ranks:
        seen.source.note = None
        if len(ranks) == 1 and not seen.in_log:
            seen.source.rank, seen.source.rank_source = ranks.pop(), seen.how


def _attempts(sources: Sequence[SourceFile], runs: Sequence[Attempt]) -> None:
    """Gives every py-spy dump the number of its attempt; None if it belongs to no attempt with dumps."""
    snapshots = [s for s in sources if isinstance(s.content, Snapshot)]
    if not runs:
        newest = max(snapshots, key=lambda s: (s.mtime_ns or 0, s.shown), default=None)
        for source in snapshots:
            if newest is not None and source.tag == newest.tag:
                source.attempt = 0
            else:
                source.note = "of an earlier attempt"
        return
    tags = {s.tag: i for i, run in enumerate(runs) for s in run.files}
    homes: dict[str, set[int]] = defaultdict(set)
    for i, run in enumerate(runs):
        for file in run.files:
            homes[file.directory].add(i)
    for source in snapshots:
        tag, home = source.tag, homes.get(source.directory, set())
        if tag is not None and tag in tags:
            source.attempt = tags[tag]
        elif len(home) == 1:
            source.attempt = next(iter(home))
            _check_time(source, runs[source.attempt])
        else:
            _by_time(source, runs)


def _check_time(source: SourceFile, run: Attempt) -> None:
    start = _start(run)
    if start is not None and source.mtime_ns is not None and source.mtime_ns < start - SLACK_NS:
        source.attempt, source.note = None, "written before any operation in the dumps was issued"


def _by_time(source: SourceFile, runs: Sequence[Attempt]) -> None:
    """Sets the last attempt that had begun when the file was written."""
    last = runs[-1].newest_ns
    untimed = source.mtime_ns is None or (last is not None and source.mtime_ns > last + COPIED_NS)
    if len(runs) > 1 and untimed:
        source.note = "its attempt is not known"
        return
    begun = [i for i, run in enumerate(runs) if source.mtime_ns is None or (_start(run) or 0) <= source.mtime_ns]
    source.attempt = begun[-1] if begun else 0
    _check_time(source, runs[source.attempt])


def _start(run: Attempt) -> int | None:
    return min((s.span[0] for s in run.sources if s.span), default=None if run.sources else run.started_ns)


def _local(seen: Sequence[RankedStacks], world: int) -> None:
    """Removes ranks that count within a node, unless there is only one node."""
    if not one_node(seen, world):
        for one in seen:
            if one.local and one.ranks:
                one.give_up("it names only the rank within its node")


def _beyond(seen: Sequence[RankedStacks], world: int) -> None:
    for one in seen:
        too_large = [rank for rank in one.ranks.values() if world and rank >= world]
        if too_large:
            one.give_up(f"the job has {world} ranks, and {max(too_large)} is not one of them")


def _samples(seen: Sequence[RankedStacks]) -> None:
    """Removes bare numbers that count the dumps of one process."""
    by_pid: dict[tuple[str, Identity], list[RankedStacks]] = defaultdict(list)
    for one in seen:
        if one.bare:
            for pid in one.owners:
                by_pid[one.place, pid].append(one)
    for (_, pid), group in by_pid.items():
        for a, b in combinations(group[:64], 2):
            if set(a.ranks.values()) != set(b.ranks.values()) and _same_process(a, b, pid):
                for one in group:
                    one.give_up("the number in its name counts dumps of one process")
                break


def _same_process(one: RankedStacks, other: RankedStacks, pid: Identity) -> bool:
    a, b = one.threads_of(pid), other.threads_of(pid)
    return 2 * len(a & b) > max(len(a), len(b))


def _recognise(seen: Sequence[RankedStacks]) -> None:
    """Gives processes without a rank the one from another file of the same place."""
    known: dict[tuple[str, Identity], list[tuple[int, RankedStacks]]] = defaultdict(list)
    for one in seen:
        for index, rank in one.ranks.items():
            known[one.place, one.snapshot.identities[index]].append((rank, one))
    for one in [s for s in seen if not s.ranks]:
        for pid, indices in one.owners.items():
            told = known.get((one.place, pid), [])
            if len({rank for rank, _ in told}) == 1 and _same_process(one, told[0][1], pid):
                one.ranks |= dict.fromkeys(indices, told[0][0])
                one.how = told[0][1].how


def _rivals(seen: Sequence[RankedStacks]) -> list[RankedStacks]:
    """Sets aside dumps of an earlier process of a rank, and removes ranks that different processes claim."""
    claims: dict[tuple[int, bool], list[tuple[RankedStacks, Identity]]] = defaultdict(list)
    for one in seen:
        for rank, index in one.claimed.items():
            identity = one.snapshot.identities[index]
            # a process without an id contradicts none that has one
            if any(identity[i] is not None for i in (0, 3)):
                claims[rank, identity[0] is None].append((one, identity))
    gone: set[int] = set()
    for (rank, _), claimed in claims.items():
        if len({(one.place, pid) for one, pid in claimed}) > 1:
            gone |= _contest(rank, claimed)
    return [one for one in seen if id(one) not in gone]


def _contest(rank: int, claimed: list[tuple[RankedStacks, Identity]]) -> set[int]:
    """Decides on a rank that several processes claim; returns the identities that are set aside."""
    certain = [c for c in claimed if c[0].certain]
    if certain and len(certain) < len(claimed):
        _take_back(rank, [c for c in claimed if not c[0].certain])
        return _contest(rank, certain) if len({(one.place, pid) for one, pid in certain}) > 1 else set()
    newest = max(claimed, key=lambda c: (c[0].source.mtime_ns or 0, c[0].source.shown))
    others = [c for c in claimed if c[1] != newest[1] or not _one_place(c, newest)]
    if all(_earlier(other, newest) for other in others):
        for one, _ in others:
            one.source.kind, one.source.note = DUPLICATE.name, f"an earlier process of rank {rank}"
        return {id(one) for one, _ in others}
    _take_back(rank, claimed)
    return set()


def _one_place(one: tuple[RankedStacks, Identity], other: tuple[RankedStacks, Identity]) -> bool:
    """Whether two dumps of one process id are of one process: containers on different nodes reuse ids."""
    (a, pid), (b, _) = one, other
    if a.place == b.place or (a.certain and b.certain):
        return True
    hosts = a.source.host, b.source.host
    several = len(a.threads_of(pid)) > 3
    return (None in hosts or hosts[0] == hosts[1]) and several and _same_process(a, b, pid)


def _earlier(one: tuple[RankedStacks, Identity], newest: tuple[RankedStacks, Identity]) -> bool:
    """Whether a process of the same node existed earlier, by the files' times."""
    times = one[0].source.mtime_ns, newest[0].source.mtime_ns
    apart = times[0] is not None and times[1] is not None and times[1] - times[0] > SLACK_NS
    return apart and one[0].place == newest[0].place and len(one[0].owners) == 1


def _take_back(rank: int, claimed: list[tuple[RankedStacks, Identity]]) -> None:
    for one, _ in claimed:
        other = next((c[0] for c in claimed if c[0] is not one), None)
        beside = f": {other.source.shown}" if other is not None else ""
        one.give_up(f"another process also claims to be rank {rank}{beside}")


# The table of threads, and their stacks behind those of the recorders.


def thread_tables(
    seen: Sequence[RankedStacks], places: dict[int, int], ops: pl.DataFrame, stacks: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables `threads` and `stacks`. `places` are rows of `files` by the identity of a source."""
    if not seen:
        return THREADS.empty(), stacks
    ordered = sorted(seen, key=lambda s: places[id(s.source)])
    table, ids = stack_table([one.snapshot for one in ordered])
    beyond = 1 + max(
        (int(i) for i in (ops["stack_id"].max(), stacks["stack_id"].max()) if isinstance(i, int)), default=-1
    )
    table = table.with_columns((pl.col("stack_id") + beyond).cast(pl.UInt32))
    columns: dict[str, list[Any]] = {name: [] for name in THREADS}
    numbers = ids.to_numpy()
    for one in ordered:
        count = len(one.snapshot.stacks)
        _append(columns, one, places[id(one.source)], (numbers[:count] + beyond).tolist())
        numbers = numbers[count:]
    threads = pl.DataFrame(columns, schema=THREADS)
    return threads.sort("rank", "written_ns", maintain_order=True, nulls_last=True), pl.concat([stacks, table])


def _append(columns: dict[str, list[Any]], seen: RankedStacks, place: int, stack_ids: list[int]) -> None:
    snapshot, written = seen.snapshot, seen.written_ns
    threads, processes = snapshot.threads, snapshot.processes
    by_process: dict[str, list[Any]] = {
        "rank": [seen.rank_of(i) for i in range(len(processes))],
        "pid": [p.pid for p in processes],
        "parent_pid": [role.parent_pid for role in snapshot.roles],
        "command": [p.command for p in processes],
        "process": [i if role.owner == i else None for i, role in enumerate(snapshot.roles)],
        "tool": [p.tool for p in processes],
        "written_ns": [
            p.taken_ns if p.taken_ns is not None else None if written is None else written - p.later for p in processes
        ],
    }
    for name, values in by_process.items():
        columns[name].extend(values[t.process] for t in threads)
    columns["file"].extend(repeat(place, len(threads)))
    columns["thread"].extend(t.name for t in threads)
    columns["thread_id"].extend(t.thread_id for t in threads)
    columns["is_main"].extend(is_main(t.name, t.thread_id, processes[t.process].pid) for t in threads)
    columns["active"].extend(t.active for t in threads)
    columns["gil"].extend(t.gil for t in threads)
    columns["stack_id"].extend(stack_ids[t.stack] for t in threads)
