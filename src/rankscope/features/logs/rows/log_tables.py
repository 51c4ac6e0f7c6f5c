"""Tables of logs for one attempt: its scene, in which files of one process are joined, rows, remarks on logs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson
import polars as pl

from rankscope.assemble.gathering import Gathered, GatheredJob
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.bounded_rows import LEFT_OUT, STACKS, left_out
from rankscope.features.logs.read.model import IS_P2P, LogContent, only_starts
from rankscope.features.logs.rows import launchers, log_attempts, log_messages, process_ranks
from rankscope.features.logs.rows.abort_ranks import add_abort_ranks
from rankscope.features.logs.rows.c10d_claims import Claim, Claims, highest_rank, read_reports
from rankscope.features.logs.rows.comm_groups import LogAgreement, compare_logs, group_evidence, housed_rows
from rankscope.features.logs.rows.comm_lifetimes import CommMemory, FileSeries, fill_life, join_lives, series_of
from rankscope.features.logs.rows.earlier_ends import printed_ends
from rankscope.features.logs.rows.fingerprint_groups import place_fingerprints
from rankscope.features.logs.rows.hardware_ranks import add_hardware_ranks
from rankscope.features.logs.rows.log_attempts import only_run, run_offsets
from rankscope.features.logs.rows.log_groups import LogGroups
from rankscope.features.logs.rows.log_operations import (
    SeqNumbering,
    add_absent_rows,
    add_claimed_rows,
    claimed_frontiers,
    last_counted,
    number_lives,
    seen_in,
)
from rankscope.features.logs.rows.log_processes import (
    CommLife,
    LogFile,
    LogProcess,
    LogScene,
    int32_or_none,
    int64_or_none,
    print_time,
    valid_rank,
    valid_size,
)
from rankscope.features.logs.rows.log_training import training_table
from rankscope.features.logs.rows.process_ends import add_earlier
from rankscope.features.logs.rows.process_ranks import identify_lives
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.matrices import NULL
from rankscope.schema.tables import COMMS, RAS, SETTINGS
from rankscope.text.wording import duration, plural

Tables = dict[str, pl.DataFrame]


@dataclass(frozen=True, kw_only=True)
class JobLogs(Gathered):
    """The logs of the chosen attempt of a job."""

    scene: LogScene
    sources: Sequence[SourceFile]
    homes: Mapping[int, Sequence[int]]
    """By row of `files` the attempt of each run of the job in a log, where several are told apart."""
    number: int
    """The attempt that is judged."""
    errors: str | None
    """Path of the user's own table of known errors."""

    def add_tables(self, tables: Tables, world: int) -> tuple[Tables, int]:
        """The tables with the rows of logs, and the number of ranks, which groups of logs may raise."""
        tables = add_log_tables(tables, self.scene)
        highest = tables["groups"]["ranks"].explode().max()
        return tables, max(world, 1 + (int(highest) if isinstance(highest, int) else -1))

    def finish(self, tables: Tables) -> None:
        """Gives lines of kernels, schedulers and the C++ runtime their ranks."""
        add_hardware_ranks(tables, self.sources, self.scene)
        add_abort_ranks(tables, self.sources, self.scene.world)
        if self.homes and self.number > 0:
            add_earlier(tables, printed_ends(self.sources, self.homes, self.number, self.errors))


def gather_logs(job: GatheredJob) -> JobLogs | None:
    """The log processes of the chosen attempt."""
    runs, chosen = job.runs, job.choice.attempt
    logs = [source for source in job.sources if isinstance(source.content, LogContent)]
    log_attempts.settle_log_attempts(logs, runs)
    read = log_attempts.runs_of_attempt(logs, runs, max(0, chosen) if runs else chosen, job.asked)
    mine = [(job.places[id(source)], source, number) for source, number in read]
    recall: CommMemory | None = None if job.recall is None else job.recall.setdefault("logs", CommMemory())
    scene = read_scene(mine, job.world, job.choice.pattern, recall)
    stacks = log_messages.stacks_in(scene)
    homes = {job.places[id(source)]: log_attempts.attempts_in(source, runs) for source in logs}
    count = max((len(numbers) for numbers in homes.values()), default=0)
    number = max(0, chosen) if runs or job.asked else max(0, count - 1)
    return JobLogs(
        world=scene.world,
        sized=scene.sized or scene.is_covered,
        stacks=stacks,
        scene=scene,
        sources=job.sources,
        homes={place: numbers for place, numbers in homes.items() if numbers},
        number=number,
        errors=job.choice.errors,
        attempt=(number, log_attempts.attempt_table(count)) if count > 1 and not runs else None,
    )


def read_scene(
    sources: Sequence[tuple[int, SourceFile, int | None]],
    world: int,
    pattern: re.Pattern[str] | None,
    recall: CommMemory | None,
) -> LogScene:
    """The scene of the logs of one attempt, given with their rows of `files` and the run of the job to read in each.

    `world` is the job's size, if known. `recall` holds known communicators from earlier reads of these logs.
    """
    scene = build_scene(sources)
    launchers.settle_local_prefixes(scene)
    launchers.settle_labels(scene, world)
    if recall is not None:
        recall.remind(scene)
    identify_lives(scene)
    if recall is not None:
        recall.remember(scene)
    process_ranks.settle_process_ranks(scene, world, highest_rank(scene), pattern)
    return scene


def add_log_tables(tables: Tables, scene: LogScene) -> Tables:
    """`tables` of dumps with the rows of logs. For a rank's group with a dump, log rows are only compared."""
    groups = LogGroups(tables["groups"], scene.sized)
    claims: Claims = defaultdict(Claim, read_reports(scene, groups))
    place_fingerprints(scene, groups, claims)
    groups.settle_members(scene)
    numbering = number_lives(scene)
    rows = housed_rows(scene, groups, _named_groups(scene), numbering, group_evidence(tables["ops"], claims))
    dumped = set(tables["frontiers"].select("rank", "group").iter_rows())
    agreement = compare_logs(rows, tables["ops"])
    # relative numbers do not match those of dumps
    relative = {scene.by_place[key].group for key, n in numbering.items() if n.relative}
    unfit = agreement.unfit | {group for _, group in dumped if group in relative}
    rows = _without(rows, dumped).filter(~pl.col("group").is_in(list(unfit)))
    # the claims about ranks and groups without dumps; without counters for groups with sends and receives
    mixed = groups.with_p2p()
    kept = {
        key: claim.without_counters() if key[1] in mixed else claim
        for key, claim in claims.items()
        if key not in dumped
    }
    reached = {k: n for k, n in last_counted(scene, numbering).items() if k not in dumped and k[1] not in unfit}
    rows = add_claimed_rows(rows, kept, scene.lines_before)
    if log_messages.failed_ranks(scene):
        rows = add_absent_rows(rows, kept, groups.members)
    if tables["ops"].height:
        # a log has local times, a dump does not
        rows = rows.with_columns(created_ns=pl.lit(None, pl.Int64))
    frontiers = claimed_frontiers(seen_in(rows), kept, reached)
    ops = pl.concat([tables["ops"], rows.drop("line").select(tables["ops"].columns)])
    for log in scene.logs:
        log.source.used = log.source.tells
    remarks = [
        *unplaced_remarks(scene),
        *differing_operations(agreement),
        *unnumbered_remarks(scene, numbering, unfit),
        *count_remarks(scene, numbering),
        *fingerprint_remarks(scene),
        *cut_remarks(scene),
        *run_remarks(scene),
        *start_remarks(scene),
    ]
    made = {
        "ops": ops.sort("rank", maintain_order=True) if tables["ops"].height and rows.height else ops,
        "groups": groups.frame(),
        "frontiers": pl.concat([tables["frontiers"], frontiers]).sort("rank", "group"),
        "messages": log_messages.message_table(scene, groups, remarks),
    }
    return {**tables, **made, **record_tables(scene)}


def _named_groups(scene: LogScene) -> dict[str, tuple[str, str]]:
    """Name and description of the process group of each communicator that c10d connects with a pointer."""
    by_pointer: dict[str, list[Any]] = defaultdict(list)
    for life in scene.lives:
        if life.identity and life.stands:
            by_pointer[life.comm.pointer].append(life)
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for log in scene.logs:
        for event in log.content.events:
            if event.kind != "pg-created":
                continue
            values = event.values
            fitting = {
                life.identity
                for life in by_pointer.get(values["comm"], ())
                if life.comm.rank in (None, values["pg_rank"]) and event.rank in (None, life.rank)
            }
            name = values["pg_guid"] or (str(values["pg_id"]) if values["pg_id"] is not None else "")
            if len(fitting) == 1 and name:
                found[fitting.pop()].add((name, values["pg_desc"] or ""))
    return {identity: next(iter(names)) for identity, names in found.items() if len(names) == 1}


def _without(rows: pl.DataFrame, dumped: set[tuple[int, int]]) -> pl.DataFrame:
    if not dumped or rows.is_empty():
        return rows
    return rows.join(_keys(dumped), on=["rank", "group"], how="anti", maintain_order="left")


def _keys(dumped: set[tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame(sorted(dumped), schema={"rank": pl.Int32, "group": pl.UInt32}, orient="row")


def record_tables(scene: LogScene) -> dict[str, pl.DataFrame]:
    """The tables that only records of NCCL fill."""
    # the table `ras`. From NCCL 2.29 on its hash is the commId of the logs
    groups = {_hash(identity): lives[0].group for identity, lives in scene.identities().items()}
    rows = [row for log in scene.logs for row in _ras(log, groups)]
    return {
        "settings": _setting_table(scene),
        "comms": _comm_table(scene),
        "ras": pl.DataFrame(rows, schema=RAS, infer_schema_length=None),
        "training": training_table(scene),
    }


def _setting_table(scene: LogScene) -> pl.DataFrame:
    """The table `settings`, with each value of a process once."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for log in scene.logs:
        for row in _settings(log, scene):
            rows.setdefault((row["rank"], row["host"], row["pid"], row["name"], row["value"]), row)
    return pl.DataFrame(list(rows.values()), schema=SETTINGS, infer_schema_length=None)


def _settings(log: LogFile, scene: LogScene) -> Iterator[dict[str, Any]]:
    for setting in log.content.settings:
        speaker = scene.speakers[log.speakers[setting.process]] if setting.process >= 0 else None
        yield {
            "rank": speaker.rank if speaker else log.source.rank, "host": speaker.host if speaker else None,
            "pid": speaker.pid if speaker else None,
            "name": "version:nccl" if setting.name == "version" else setting.name, "value": setting.value,
            "source": "nccl", "file": log.place, "line": setting.line,
        }  # fmt: skip
    for event in log.content.events:
        if EVENTS[event.kind].settings_source:
            rank = valid_rank(event.rank if event.rank is not None else log.source.rank)
            for name, value in event.values.get("settings") or ():
                known = "version:nccl" if name.lower() == "nccl version" else name
                yield {
                    "rank": rank, "host": log.source.host, "pid": None, "name": known, "value": value,
                    "source": EVENTS[event.kind].settings_source,
                    "file": log.place, "line": event.line,
                }  # fmt: skip


def _comm_table(scene: LogScene) -> pl.DataFrame:
    """The table `comms`."""
    versions = _versions(scene)
    rows = []
    for life in scene.lives:
        if not life.stands:
            continue
        log, comm, speaker = scene.logs[life.log], life.comm, scene.speakers[life.speaker]
        written = log.source.mtime_ns
        rows.append(
            {
                "group": life.group, "rank": life.rank, "host": speaker.host, "pid": speaker.pid,
                "comm_rank": comm.rank, "size": comm.nranks, "device": comm.device, "state": comm.state,
                "identity": life.identity, "started_ns": print_time(comm.started, written),
                "completed_ns": print_time(comm.completed, written),
                "collectives": sum(piece.comm.collectives for piece in life.pieces),
                "version": versions.get(life.speaker) or versions.get(-1 - life.log), "file": log.place,
                "line": comm.line,
            }
        )  # fmt: skip
    return pl.DataFrame(rows, schema=COMMS, infer_schema_length=None)


def _versions(scene: LogScene) -> dict[int, str]:
    """NCCL's version by log process; by -1 - log for a line without a process."""
    versions: dict[int, str] = {}
    for at, log in enumerate(scene.logs):
        for setting in log.content.settings:
            if setting.name == "version":
                versions[log.speakers[setting.process] if setting.process >= 0 else -1 - at] = setting.value
    return versions


def _ras(log: LogFile, groups: Mapping[str, int | None]) -> Iterator[dict[str, Any]]:
    for row in log.content.ras:
        yield {
            "comm": row.comm, "group": groups.get(_hash(row.comm)), "rank": int32_or_none(row.rank), "host": row.host,
            "pid": int64_or_none(row.pid), "device": int32_or_none(row.device), "size": int32_or_none(row.size),
            "present": int32_or_none(row.present), "missing": int32_or_none(row.missing),
            "status": row.status, "counts": orjson.dumps(row.counts).decode(), "source": "ras", "file": log.place,
            "line": row.line, "text": row.text, "answer": row.answer, "time_ns": row.time_ns,
        }  # fmt: skip
    for kind in log.content.inspected:
        slowest = duration(round(kind.slowest_us * 1000))
        yield {
            "comm": kind.comm, "group": groups.get(_hash(kind.comm)), "rank": int32_or_none(kind.rank),
            "host": kind.host, "pid": int64_or_none(kind.pid), "device": None, "size": int32_or_none(kind.nranks),
            "present": None, "missing": None, "status": "",
            "counts": orjson.dumps({kind.op: kind.last_seq}).decode(), "source": "inspector",
            "file": log.place, "line": 1, "text": f"{plural(kind.rows, 'row')} of {kind.op}, slowest {slowest}",
            "answer": 0, "time_ns": None,
        }  # fmt: skip


def _hash(text: str) -> str:
    inner = text[text.find("(") + 1 : -1] if text.endswith(")") else text
    return inner.lower().removeprefix("0x").lstrip("0")


_OLD_STACKS = left_out(STACKS)


def unplaced_remarks(scene: LogScene) -> list[dict[str, Any]]:
    """Remarks on operations without known rank or group, for each log."""
    lost = (life for life in scene.lives if not life.twin and None in (life.group, life.rank))
    why = "their rank or group is not known"
    return _left_out(scene, lost, "log-unplaced", why)


def unnumbered_remarks(
    scene: LogScene, numbering: Mapping[tuple[int, int], SeqNumbering], unfit: frozenset[int] | set[int]
) -> list[dict[str, Any]]:
    """Remarks on operations without a common sequence number, for each log."""
    placed = [
        (key, life) for key, life in scene.by_place.items() if not life.twin and None not in (life.group, life.rank)
    ]
    apart = (life for _, life in placed if life.group in unfit)
    lost = (life for key, life in placed if key not in numbering and life.group not in unfit)
    why = "lines are missing, and their place among those of other ranks is not known"
    other = "their numbers differ from those of the dumps"
    return [*_left_out(scene, lost, "log-unaligned", why), *_left_out(scene, apart, "log-unaligned", other)]


def fingerprint_remarks(scene: LogScene) -> list[dict[str, Any]]:
    """Remarks on logs with fingerprints that fit several groups, or none."""
    return [
        {
            "file": log.place,
            "kind": "log-unplaced",
            "text": f"{count:,} operations: fingerprints that fit several groups; their group is not known",
            "values": {"operations": count},
        }
        for log, count in ((scene.logs[at], count) for at, count in scene.mixed_prints.items())
    ]


def run_remarks(scene: LogScene) -> list[dict[str, Any]]:
    """Remarks on logs with several runs of the job."""
    out = []
    for log in scene.logs:
        count = 1 + len(run_offsets(log.source.content)) if isinstance(log.source.content, LogContent) else 1
        if count > 1:
            text = f"{count} runs of the job follow each other in this log; one is read: --attempt 0 to {count - 1}"
            out.append({"file": log.place, "kind": "log-runs", "text": text})
    return out


def cut_remarks(scene: LogScene) -> list[dict[str, Any]]:
    """Remarks on logs whose events are not all kept."""
    out = []
    for log in scene.logs:
        # only the last stacks are of use
        lost = sum(n for name, n in log.content.counts.items() if name.startswith(LEFT_OUT) and name != _OLD_STACKS)
        if lost > 0:
            text = f"{lost} relevant lines were dropped because there are too many; the last of each kind were kept"
            out.append({"file": log.place, "kind": "log-cut", "text": text})
    return out


def differing_operations(agreement: LogAgreement) -> list[dict[str, Any]]:
    """Remarks on the first operation of each rank that differs between log and dump."""
    first = agreement.differing.sort("seq").unique(["rank", "group"], keep="first", maintain_order=True)
    return [
        {
            "file": row["file"],
            "line": row["line"],
            "rank": row["rank"],
            "group": row["group"],
            "kind": "log-disagrees",
            "text": f"the log has {row['wire']} at #{row['seq']}, the dump {row['other']}; the dump is used",
            "values": orjson.dumps({"seq": row["seq"], "log": row["wire"], "dump": row["other"]}).decode(),
        }
        for row in first.iter_rows(named=True)
    ]


def _left_out(scene: LogScene, lives: Iterable[CommLife], kind: str, why: str) -> list[dict[str, Any]]:
    counts: dict[int, int] = defaultdict(int)
    for life in lives:
        counts[life.log] += life.comm.collectives + (life.comm.p2p if kind == "log-unplaced" else 0)
    return [
        {
            "file": scene.logs[log].place,
            "kind": kind,
            "text": f"{count:,} operations: {why}",
            "values": orjson.dumps({"operations": count}).decode(),
        }
        for log, count in sorted(counts.items())
        if count
    ]


def start_remarks(scene: LogScene) -> Iterator[dict[str, Any]]:
    """Remarks on logs that only show how NCCL connects processes."""
    for log in scene.logs:
        if isinstance(log.source.content, LogContent) and only_starts(log.source.content):
            rows = log.content.processes
            hosts = len({row.host for row in rows})
            who = f"{plural(len(rows), 'process')} on {plural(hosts, 'host')}"
            text = f"{who} print only how NCCL connects them"
            yield {"file": log.place, "kind": "log-processes", "text": text, "values": {"processes": len(rows)}}


LEAST_SHARED_COUNTS = 2
"""Fewest common counts for a comparison."""
MOST_ROWS = 1000
MOST_LIVES = 64


class _RemarkRow(NamedTuple):
    op: str
    line: int


def count_remarks(scene: LogScene, numbering: Mapping[tuple[int, int], SeqNumbering]) -> list[dict[str, Any]]:
    """Rows of `messages` for ranks that differ at each common count from another rank of the group."""
    out: list[dict[str, Any]] = []
    for lives in scene.identities().values():
        placed = [life.pieces[-1] for life in lives if None not in (life.group, life.rank)][:MOST_LIVES]
        lost = [life for life in placed if (life.log, life.at) not in numbering]
        if lost:
            out += _group_remarks(scene, lost, placed)
    return out


def _group_remarks(scene: LogScene, lost: Sequence[CommLife], placed: Sequence[CommLife]) -> list[dict[str, Any]]:
    rows = {life.index: _rows(scene, life) for life in placed}
    remarks = []
    for life in lost:
        counts = rows[life.index]
        for other in (life_ for life_ in placed if life_ is not life):
            shared = sorted(counts.keys() & rows[other.index].keys())
            if len(shared) >= LEAST_SHARED_COUNTS and all(counts[n].op != rows[other.index][n].op for n in shared):
                remarks.append(_message(scene, life, counts[shared[0]], other, rows[other.index][shared[0]], shared[0]))
                break
    return remarks


def _rows(scene: LogScene, life: CommLife) -> dict[int, _RemarkRow]:
    """By opCount, the last collectives of a life; none unless the counts rise."""
    content = scene.logs[life.log].content
    # operations of a communicator are in one block
    comm = content.code("comm")
    first, last = np.searchsorted(comm, np.array([life.at, life.at + 1], comm.dtype))
    mine = first + np.flatnonzero((content.code("flags")[first:last] & IS_P2P) == 0)[-MOST_ROWS:]
    counts = content.column("op_count")[mine]
    if len(counts) < LEAST_SHARED_COUNTS or (counts == NULL).any() or not (np.diff(counts) > 0).all():
        return {}
    ops, lines = content.code("op")[mine], content.column("line")[mine]
    return {
        count: _RemarkRow(content.ops[op], line)
        for count, op, line in zip(counts.tolist(), ops.tolist(), lines.tolist(), strict=True)
    }


def _message(
    scene: LogScene, life: CommLife, own: _RemarkRow, other: CommLife, theirs: _RemarkRow, count: int
) -> dict[str, Any]:
    text = f"rank {life.rank} called {own.op} and rank {other.rank} {theirs.op} at opCount {count:x}"
    values = {"op_count": count, "op": own.op, "other_op": theirs.op, "other_rank": other.rank}
    return {
        "file": scene.logs[life.log].place, "line": own.line, "rank": life.rank, "group": life.group,
        "kind": "log-counts", "text": text, "values": values,
    }  # fmt: skip


def build_scene(sources: Sequence[tuple[int, SourceFile, int | None]]) -> LogScene:
    """The scene of logs, given with their rows of `files`, and of logs with several runs the number of that to read."""
    speakers: list[LogProcess] = []
    index: dict[tuple[str, int], int] = {}
    logs: list[LogFile] = []
    for place, source, run in sources:
        if not isinstance(source.content, LogContent):
            continue
        content = only_run(source.content, run)
        here: list[int] = []
        for process in content.processes:
            at = index.setdefault((process.host, process.pid), len(speakers))
            if at == len(speakers):
                speakers.append(LogProcess(process.host, process.pid))
            speakers[at].told |= {rank for rank in [valid_rank(process.rank)] if rank is not None}
            speakers[at].labels |= {process.label} - {""}
            if process.device is not None:
                speakers[at].device = process.device
            here.append(at)
        logs.append(LogFile(place, source, content, here))
    logs, series = _ordered_logs(logs)
    lives, by_place = _lives(logs, series)
    lines_before = {}
    for files in series:
        lines = 0
        for number in files.members:
            lines_before[logs[number].place] = lines
            lines += logs[number].content.counts.get("lines", 0)
    return LogScene(logs, speakers, lives, by_place, lines_before=lines_before)


def _ordered_logs(logs: Sequence[LogFile]) -> tuple[list[LogFile], list[FileSeries]]:
    """The logs, with those of a series in the order of writing, and the series."""
    spoken: dict[tuple[int, str], set[int]] = defaultdict(set)
    for number, log in enumerate(logs):
        for speaker in log.speakers:
            spoken[speaker, log.source.directory].add(number)
    # the name alone does not prove a series: the same process must be in its files
    shared = sorted({number for numbers in spoken.values() if len(numbers) > 1 for number in numbers})
    series = series_of([logs[number].source.shown for number in shared])
    of_log = {shared[i]: [shared[k] for k in one.members] for one in series for i in one.members}
    order = [k for i in range(len(logs)) for k in ([i] if i not in of_log else of_log[i] * (i == min(of_log[i])))]
    moved = {number: place for place, number in enumerate(order)}
    return [logs[number] for number in order], [
        FileSeries(tuple(moved[shared[i]] for i in one.members), frozenset(moved[shared[i]] for i in one.behind_gaps))
        for one in series
    ]


def _lives(
    logs: Sequence[LogFile], series: Sequence[FileSeries]
) -> tuple[list[CommLife], dict[tuple[int, int], CommLife]]:
    lives: list[CommLife] = []
    by_place: dict[tuple[int, int], CommLife] = {}
    for number, log in enumerate(logs):
        for at, comm in enumerate(log.content.comms):
            sound = comm._replace(
                nranks=valid_size(comm.nranks), rank=valid_rank(comm.rank), device=int32_or_none(comm.device)
            )
            life = CommLife(log.speakers[comm.process], number, at, sound, len(lives))
            # its lines belong to another one: a piece of a line was in front
            life.twin = not (comm.init or comm.collectives or comm.p2p or comm.state != "seen")
            lives.append(life)
            by_place[number, at] = life
    for life in lives:
        if life.comm.parent_comm is not None:
            life.parent = by_place.get((life.log, life.comm.parent_comm))
    for files in series:
        of_series = (by_place[number, at] for number in files.members for at in range(len(logs[number].content.comms)))
        join_lives(files, [life for life in of_series if not life.twin], logs)
    _twins(lives, {log: number for number, files in enumerate(series) for log in files.members})
    return lives, by_place


def _twins(lives: Sequence[CommLife], series: dict[int, int]) -> None:
    """Marks lives that a second log of the same process repeats, and takes missing facts from them."""
    same: dict[tuple[int, str, int], list[CommLife]] = defaultdict(list)
    counted: dict[tuple[int, str, int], int] = defaultdict(int)
    for life in lives:
        if not life.stands:
            continue
        # logs of a series never repeat each other
        key = (life.speaker, life.comm.pointer, series.get(life.log, -1 - life.log))
        same[life.speaker, life.comm.pointer, counted[key]].append(life)
        counted[key] += 1
    for group in same.values():
        best = max(group, key=lambda life: (life.operation_count, life.comm.init))
        for life in group:
            if life is not best:
                for piece in life.pieces:
                    piece.twin = True
                best.comm = fill_life(best.comm, life.comm)
                best.parent = best.parent or life.parent
