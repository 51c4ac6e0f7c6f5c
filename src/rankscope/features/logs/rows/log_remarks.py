"""Remarks of rankscope on logs: dropped lines, and contradictions to dumps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
import polars as pl

from rankscope.features.logs.read.bounded_rows import LEFT_OUT, STACKS, left_out
from rankscope.features.logs.read.model import IS_P2P, LogContent, only_starts
from rankscope.features.logs.rows import log_processes
from rankscope.features.logs.rows.launchers import run_offsets
from rankscope.features.logs.rows.log_processes import CommLife, LogScene
from rankscope.features.logs.rows.seq_numbering import SeqNumbering
from rankscope.parsers.matrices import NULL
from rankscope.text.wording import plural

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
            "file": log.place, "kind": "log-unplaced",
            "text": f"{count:,} operations: fingerprints that fit several groups; their group is not known",
            "values": {"operations": count},
        }
        for log, count in ((scene.logs[at], count) for at, count in scene.mixed_prints.items())
    ]  # fmt: skip


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
            "file": row["file"], "line": row["line"], "rank": row["rank"], "group": row["group"],
            "kind": "log-disagrees",
            "text": f"the log has {row['wire']} at #{row['seq']}, the dump {row['other']}; the dump is used",
            "values": orjson.dumps({"seq": row["seq"], "log": row["wire"], "dump": row["other"]}).decode(),
        }
        for row in first.iter_rows(named=True)
    ]  # fmt: skip


def _left_out(scene: LogScene, lives: Iterable[CommLife], kind: str, why: str) -> list[dict[str, Any]]:
    counts: dict[int, int] = defaultdict(int)
    for life in lives:
        counts[life.log] += life.comm.collectives + (life.comm.p2p if kind == "log-unplaced" else 0)
    return [
        {
            "file": scene.logs[log].place, "kind": kind,
            "text": f"{count:,} operations: {why}", "values": orjson.dumps({"operations": count}).decode(),
        }
        for log, count in sorted(counts.items()) if count
    ]  # fmt: skip


def start_remarks(scene: LogScene) -> Iterator[dict[str, Any]]:
    """Remarks on logs that only show how NCCL connects processes."""
    for log in scene.logs:
        if isinstance(log.source.content, LogContent) and only_starts(log.source.content):
            rows = log.content.processes
            hosts = len({row.host for row in rows})
            who = f"{plural(len(rows), 'process')} on {plural(hosts, 'host')}"
            text = f"{who} print only how NCCL connects them"
            yield {"file": log.place, "kind": "log-processes", "text": text, "values": {"processes": len(rows)}}


# Logs of one communicator without common operations, compared by NCCL's opCount.

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
    found = []
    for life in lost:
        own = rows[life.index]
        for other in (one for one in placed if one is not life):
            shared = sorted(own.keys() & rows[other.index].keys())
            if len(shared) >= LEAST_SHARED_COUNTS and all(own[n].op != rows[other.index][n].op for n in shared):
                found.append(_message(scene, life, own[shared[0]], other, rows[other.index][shared[0]], shared[0]))
                break
    return found


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


# Logs compared with dumps: whether the k-th collective of a communicator is the recorder's k-th.

LEAST_EQUAL_SHARE = 0.8
"""Smallest equal share of a log and the dumps of others that allows a join."""


class LogAgreement(NamedTuple):
    """Result of the comparison."""

    unfit: frozenset[int]
    """Groups whose collectives logs and dumps count differently."""
    differing: pl.DataFrame
    """Rows of logs (rank, group, seq, line, file, op, other) that differ from the rank's own dump."""


def compare_logs(rows: pl.DataFrame, ops: pl.DataFrame) -> LogAgreement:
    """Compares operation, elements and type of rows of logs with those of the dumps."""
    if rows.is_empty() or ops.is_empty():
        return LogAgreement(frozenset(), rows.select(_KEY).clear().with_columns(other=pl.lit("")))
    told = as_wire_rows(rows.filter(~pl.col("is_p2p") & pl.col("seq").is_not_null())).select(*_KEY, "wire")
    known = as_wire_rows(ops.filter(~pl.col("is_p2p") & (pl.col("coalesced") == "none")))
    own = known.select("rank", "group", "seq", other="wire").unique(["rank", "group", "seq"])
    both = told.join(own, on=["rank", "group", "seq"], how="inner")
    differing = both.filter(pl.col("wire") != pl.col("other"))
    # the value of most dumps
    common = known.group_by("group", "seq").agg(other=pl.col("wire").mode().sort().first())
    beside = told.join(common, on=["group", "seq"], how="inner")
    share = beside.group_by("group").agg(same=(pl.col("wire") == pl.col("other")).mean())
    unfit = share.filter(pl.col("same") < LEAST_EQUAL_SHARE)["group"].to_list()
    return LogAgreement(frozenset(unfit), differing)


_KEY = ["rank", "group", "seq", "file", "line", "op"]


def as_wire_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `wire`: operation, elements and type as NCCL gets them; elements only if the operation fixes
    them."""
    parts = ["op", "in_sizes", "in_dtypes"]
    distinct = rows.select(parts).unique()
    texts = distinct.select(pl.all().cast(pl.String))
    keys = [log_processes.wire_key(op, sizes, dtypes) for op, sizes, dtypes in texts.iter_rows()]
    table = distinct.with_columns(wire=pl.Series(keys, dtype=pl.String))
    return rows.join(table, on=parts, how="left", nulls_equal=True, maintain_order="left")
