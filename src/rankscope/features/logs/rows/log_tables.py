"""Tables of logs for one attempt."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import polars as pl

from rankscope import schema
from rankscope.assemble.gathering import GatheredJob
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.rows import launchers, log_messages, log_remarks, process_ranks
from rankscope.features.logs.rows.c10d_claims import Claim, Claims, highest_rank, read_reports
from rankscope.features.logs.rows.comm_groups import group_evidence, housed_rows
from rankscope.features.logs.rows.comm_lifetimes import CommMemory, FileSeries, fill_life, join_lives, series_of
from rankscope.features.logs.rows.fingerprint_groups import place_fingerprints
from rankscope.features.logs.rows.hardware_ranks import add_hardware_ranks
from rankscope.features.logs.rows.launchers import only_run
from rankscope.features.logs.rows.log_groups import LogGroups
from rankscope.features.logs.rows.log_operations import (
    add_absent_rows,
    add_claimed_rows,
    claimed_frontiers,
    last_counted,
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
from rankscope.features.logs.rows.log_remarks import LogAgreement, compare_logs
from rankscope.features.logs.rows.process_ranks import identify_lives
from rankscope.features.logs.rows.seq_numbering import SeqNumbering, number_lives
from rankscope.features.stacks.py_spy_ranks import RankedStacks
from rankscope.kinds.event_kinds import EVENTS
from rankscope.text.wording import duration, plural

Tables = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class JobLogs:
    """The logs of the chosen attempt of a job."""

    scene: LogScene
    sources: Sequence[SourceFile]
    stacks: Sequence[RankedStacks]
    attempt: tuple[int, pl.DataFrame] | None = None

    @property
    def world(self) -> int:
        """The number of ranks, as far as logs tell it."""
        return self.scene.world

    def add_tables(self, tables: Tables, world: int) -> tuple[Tables, int]:
        """The tables with the rows of logs, and the number of ranks, which groups of logs may raise."""
        tables = add_log_tables(tables, self.scene)
        highest = tables["groups"]["ranks"].explode().max()
        return tables, max(world, 1 + (int(highest) if isinstance(highest, int) else -1))

    def finish(self, tables: Tables) -> None:
        """Gives lines of kernels and schedulers their ranks."""
        add_hardware_ranks(tables, self.sources, self.scene)


def gather_logs(job: GatheredJob) -> JobLogs | None:
    """The log processes of the chosen attempt."""
    runs, chosen = job.runs, job.choice.attempt
    logs = [source for source in job.sources if isinstance(source.content, LogContent)]
    launchers.settle_log_attempts(logs, runs)
    attempt = max(0, chosen) if runs else 0
    mine = [(job.places[id(source)], source) for source in logs if source.attempt == attempt]
    number = launchers.run_at(logs, runs, chosen, job.asked)
    recall: CommMemory | None = None if job.recall is None else job.recall.setdefault("logs", CommMemory())
    scene = read_scene(mine, job.world, job.choice.pattern, number, recall)
    return JobLogs(scene, job.sources, log_messages.stacks_in(scene))


def read_scene(
    sources: Sequence[tuple[int, SourceFile]],
    world: int,
    pattern: re.Pattern[str] | None,
    run: int,
    recall: CommMemory | None,
) -> LogScene:
    """The scene of the logs of one attempt, given with their rows of `files`; `world` is the job's size, if known.

    From a log with several runs of the job, it reads the run of that number, -1 for the last. `recall` holds known
    communicators from earlier reads of these logs.
    """
    scene = build_scene(sources, run)
    launchers.settle_local_prefixes(scene)
    launchers.settle_labels(scene, world)
    if recall is not None:
        recall.remind(scene)
    identify_lives(scene)
    if recall is not None:
        recall.remember(scene)
    process_ranks.settle_process_ranks(scene, world, highest_rank(scene), pattern)
    return scene


MEMORY_PATTERNS = ("cuda-out-of-memory", "host-allocation")
"""Known errors whose messages have sizes."""


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
    unfit = frozenset(agreement.unfit | (_relative(scene, numbering) & {group for _, group in dumped}))
    rows = _without(rows, dumped).filter(~pl.col("group").is_in(list(unfit)))
    kept = _kept_claims(claims, dumped, groups.with_p2p())
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
    remarks = _remarks(scene, numbering, agreement, unfit)
    made = {
        "ops": ops.sort("rank", maintain_order=True) if tables["ops"].height and rows.height else ops,
        "groups": groups.frame(),
        "frontiers": pl.concat([tables["frontiers"], frontiers]).sort("rank", "group"),
        "messages": log_messages.message_table(scene, groups, remarks),
    }
    if made["messages"]["pattern"].is_in(MEMORY_PATTERNS).any():
        from rankscope.features.memory.memory_rows import add_message_rows

        add_message_rows(made)
    return {**tables, **made, **record_tables(scene)}


def _kept_claims(claims: Claims, dumped: Collection[tuple[int, int]], mixed: Collection[int]) -> Claims:
    """The claims about ranks and groups without dumps; without counters for groups with sends and receives."""
    return {
        key: claim.without_counters() if key[1] in mixed else claim
        for key, claim in claims.items()
        if key not in dumped
    }


def _remarks(
    scene: LogScene, numbering: Mapping[tuple[int, int], SeqNumbering], agreement: LogAgreement, unfit: frozenset[int]
) -> list[dict[str, Any]]:
    """The remarks on logs, as rows of `messages`."""
    return [
        *log_remarks.unplaced_remarks(scene), *log_remarks.differing_operations(agreement),
        *log_remarks.unnumbered_remarks(scene, numbering, unfit),
        *log_remarks.count_remarks(scene, numbering), *log_remarks.fingerprint_remarks(scene),
        *log_remarks.cut_remarks(scene), *log_remarks.run_remarks(scene), *log_remarks.start_remarks(scene),
    ]  # fmt: skip


def _relative(scene: LogScene, numbering: Mapping[tuple[int, int], SeqNumbering]) -> set[int]:
    lives = (scene.by_place[key] for key, n in numbering.items() if n.relative)
    return {life.group for life in lives if life.group is not None}


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
                life.identity for life in by_pointer.get(values["comm"], ())
                if life.comm.rank in (None, values["pg_rank"]) and event.rank in (None, life.rank)
            }  # fmt: skip
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


# Tables of settings, communicators and RAS.


def record_tables(scene: LogScene) -> dict[str, pl.DataFrame]:
    """The tables that only records of NCCL fill."""
    return {"settings": _setting_table(scene), "comms": _comm_table(scene), "ras": _ras_table(scene)}


def _setting_table(scene: LogScene) -> pl.DataFrame:
    """The table `settings`, with each value of a process once."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for log in scene.logs:
        for row in _settings(log, scene):
            rows.setdefault((row["rank"], row["host"], row["pid"], row["name"], row["value"]), row)
    return pl.DataFrame(list(rows.values()), schema=dict(schema.SETTINGS), infer_schema_length=None)


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
    return pl.DataFrame(rows, schema=dict(schema.COMMS), infer_schema_length=None)


def _versions(scene: LogScene) -> dict[int, str]:
    """NCCL's version by log process; by -1 - log for a line without a process."""
    versions: dict[int, str] = {}
    for at, log in enumerate(scene.logs):
        for setting in log.content.settings:
            if setting.name == "version":
                versions[log.speakers[setting.process] if setting.process >= 0 else -1 - at] = setting.value
    return versions


def _ras_table(scene: LogScene) -> pl.DataFrame:
    """The table `ras`. From NCCL 2.29 on its hash is the commId of the logs."""
    groups = {_hash(identity): lives[0].group for identity, lives in scene.identities().items()}
    rows = [row for log in scene.logs for row in _ras(log, groups)]
    return pl.DataFrame(rows, schema=dict(schema.RAS), infer_schema_length=None)


def _ras(log: LogFile, groups: Mapping[str, int | None]) -> Iterator[dict[str, Any]]:
    for row in log.content.ras:
        yield {
            "comm": row.comm, "group": groups.get(_hash(row.comm)), "rank": int32_or_none(row.rank), "host": row.host,
            "pid": int64_or_none(row.pid), "device": int32_or_none(row.device), "size": int32_or_none(row.size),
            "present": int32_or_none(row.present), "missing": int32_or_none(row.missing),
            "status": row.status, "counts": orjson.dumps(row.counts).decode(), "source": "ras", "file": log.place,
            "line": row.line, "text": row.text, "answer": row.answer, "time_ns": row.time_ns,
        }  # fmt: skip
    for told in log.content.inspected:
        slowest = duration(round(told.slowest_us * 1000))
        yield {
            "comm": told.comm, "group": groups.get(_hash(told.comm)), "rank": int32_or_none(told.rank),
            "host": told.host, "pid": int64_or_none(told.pid), "device": None, "size": int32_or_none(told.nranks),
            "present": None, "missing": None, "status": "",
            "counts": orjson.dumps({told.op: told.last_seq}).decode(), "source": "inspector",
            "file": log.place, "line": 1, "text": f"{plural(told.rows, 'row')} of {told.op}, slowest {slowest}",
            "answer": 0, "time_ns": None,
        }  # fmt: skip


def _hash(text: str) -> str:
    inner = text[text.find("(") + 1 : -1] if text.endswith(")") else text
    return inner.lower().removeprefix("0x").lstrip("0")


# Builder of the scene of an attempt's logs: lines of one process in several files are joined.


def build_scene(sources: Sequence[tuple[int, SourceFile]], run: int = -1) -> LogScene:
    """The scene of logs, given with their rows of `files`; from logs with several runs, of that run."""
    speakers: list[LogProcess] = []
    index: dict[tuple[str, int], int] = {}
    logs: list[LogFile] = []
    for place, source in sources:
        if not isinstance(source.content, LogContent):
            continue
        content = only_run(source.content, run)
        here: list[int] = []
        for process in content.processes:
            at = index.setdefault((process.host, process.pid), len(speakers))
            if at == len(speakers):
                speakers.append(LogProcess(process.host, process.pid))
            speakers[at].told |= {told for told in [valid_rank(process.rank)] if told is not None}
            speakers[at].labels |= {process.label} - {""}
            if process.device is not None:
                speakers[at].device = process.device
            here.append(at)
        logs.append(LogFile(place, source, content, here))
    logs, series = _ordered_logs(logs)
    lives, by_place = _lives(logs, series)
    return LogScene(logs, speakers, lives, by_place, lines_before=_lines_before(logs, series))


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


def _lines_before(logs: Sequence[LogFile], series: Sequence[FileSeries]) -> dict[int, int]:
    found = {}
    for one in series:
        lines = 0
        for number in one.members:
            found[logs[number].place] = lines
            lines += logs[number].content.counts.get("lines", 0)
    return found


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
    for one in series:
        own = (by_place[number, at] for number in one.members for at in range(len(logs[number].content.comms)))
        join_lives(one, [life for life in own if not life.twin], logs)
    _twins(lives, {log: number for number, one in enumerate(series) for log in one.members})
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
