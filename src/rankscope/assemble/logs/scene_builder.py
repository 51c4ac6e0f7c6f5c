"""Builder of the scene of an attempt's logs: lines of one process in several files are joined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rankscope.assemble.logs.comm_lifetimes import FileSeries, fill_life, join_lives, series_of
from rankscope.assemble.logs.log_processes import CommLife, LogFile, LogProcess, LogScene
from rankscope.assemble.logs.log_values import int32_or_none, valid_rank, valid_size
from rankscope.assemble.logs.restarts import only_run
from rankscope.assemble.sources import SourceFile


def build_scene(sources: Sequence[tuple[int, SourceFile]], run: int = -1) -> LogScene:
    """The scene of logs, given with their rows of `files`; from logs with several runs, of that run."""
    speakers: list[LogProcess] = []
    index: dict[tuple[str, int], int] = {}
    logs: list[LogFile] = []
    for place, source in sources:
        content = source.log
        if content is None:
            continue
        content = only_run(content, run)
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
