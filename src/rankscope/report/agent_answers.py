"""Answers to the questions of an agent: a verdict, and lists of which pages are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import polars as pl

from rankscope.analysis.explanations import explain_rank
from rankscope.analysis.model import Analysis, Finding
from rankscope.report.answer_pages import bounded
from rankscope.report.json import Json, ReportPart, answer_object, finding_object
from rankscope.report.log_excerpts import filled_time, with_paths
from rankscope.report.settings_section import all_settings, differing_settings
from rankscope.schema import Dataset, Frame
from rankscope.text.secrets import hide
from rankscope.text.wording import rank_ranges

MOST_CAUSES = 8
"""Most root causes in the answer with the verdict."""
FEW_FRAMES = 4
"""Innermost frames of an operation in a list."""
MOST_PROBLEMS = 20
LONGEST_RANGES = 200
"""Longest text of ranges of ranks."""


class AnswerRows(NamedTuple):
    """A list of rows that are made when they are asked for."""

    total: int
    rows_at: Callable[[int, int], Sequence[Json | ReportPart]]
    first: int = 0
    """The row with which the first page begins."""


class QuestionError(ValueError):
    """A question about something that the job does not have; the message is for the user."""


def verdict_answer(dataset: Dataset, analysis: Analysis) -> Json:
    """The verdict, its root causes and what was read; ranks as ranges."""
    files, causes = dataset.files, [finding for finding in analysis.findings if finding.root_cause]
    unread = files.filter(pl.col("problem").is_not_null())
    counts = {severity: sum(f.severity == severity for f in analysis.findings) for severity in _severities(analysis)}
    answer: Json = bounded({
        "verdict": analysis.verdict,
        "status": analysis.status,
        "world_size": dataset.world_size if dataset.is_sized else None,
        "ranks_seen": _ranges(dataset.seen_ranks),
        "ranks_missing": _ranges(dataset.unseen_ranks),
        "culprit_ranks": list(analysis.culprits),
        "root_causes": [_cause(finding) for finding in causes[:MOST_CAUSES]],
        "more_root_causes": max(0, len(causes) - MOST_CAUSES),
        "findings": counts,
        "mesh": str(analysis.mesh) if analysis.mesh is not None else None,
        "files": files.height,
        "problems": unread.select("path", "problem").head(MOST_PROBLEMS).to_dicts(),
        "more_problems": max(0, unread.height - MOST_PROBLEMS),
    })  # fmt: skip
    return answer


def _severities(analysis: Analysis) -> list[str]:
    return list(dict.fromkeys(finding.severity for finding in analysis.findings))


def _ranges(ranks: Sequence[int]) -> str:
    return rank_ranges(ranks, LONGEST_RANGES) if ranks else ""


def _cause(finding: Finding) -> Json:
    return {
        "id": finding.id, "kind": finding.kind, "severity": finding.severity, "title": finding.title,
        "explanation": finding.explanation, "culprit_ranks": sorted(finding.culprit_ranks),
        "candidates": finding.candidates, "confidence": finding.confidence, "holds_up_ranks": finding.blast_radius,
        "group": finding.group.id if finding.group else None, "seq": finding.seq, "op": finding.op,
        "next_steps": finding.next_steps,
    }  # fmt: skip


def finding_rows(analysis: Analysis, kind: str | None) -> AnswerRows:
    """Findings in the form of the JSON report, root causes first; only those of a kind, if one is given."""
    found = [finding for finding in analysis.findings if kind is None or finding.kind == kind]
    return AnswerRows(len(found), lambda begin, end: list(map(finding_object, found[begin:end])))


def why_answer(dataset: Dataset, analysis: Analysis, rank: int) -> Json:
    """The reasons why a rank is accused, or is not. Raises QuestionError."""
    check_rank(dataset, rank)
    answer: Json = bounded(answer_object(explain_rank(dataset, analysis, rank)))
    return answer


def check_rank(dataset: Dataset, rank: int) -> None:
    """Raises QuestionError if the job has no such rank."""
    if rank not in dataset.every_rank:
        raise QuestionError(f"the job has no rank {rank}: its ranks are {_ranges(dataset.every_rank) or 'not known'}")


def operation_rows(dataset: Dataset, rank: int, group: str | None, around_seq: int | None, limit: int) -> AnswerRows:
    """Operations of a rank in the order of issue, of one group by name or description, if one is given.

    With `around_seq` the page begins half a page before the operation of the group with that number. Raises
    QuestionError.
    """
    check_rank(dataset, rank)
    table = dataset.ops if dataset.ops.height else dataset.traced
    rows = table.filter(pl.col("rank") == rank)
    if group is not None:
        rows = rows.filter(pl.col("group").is_in(_group_ids(dataset, group)))
    elif around_seq is not None:
        raise QuestionError("around_seq needs a group: each group counts its own operations")
    first = 0 if around_seq is None else max(0, _place_of(rows, around_seq) - limit // 2)
    return AnswerRows(rows.height, lambda begin, end: list(_operations(dataset, rows[begin:end])), first)


def _group_ids(dataset: Dataset, name: str) -> list[int]:
    found = [group.id for group in dataset.group_list if name in (group.name, group.description)]
    if not found:
        known = ", ".join(f"{group.name} ({group.description})" for group in dataset.group_list[:MOST_PROBLEMS])
        raise QuestionError(f"the job has no group {name!r}; it has {len(dataset.group_list)}: {known}")
    return found


def _place_of(rows: pl.DataFrame, seq: int) -> int:
    """The row of the operation with a number, or of the last one before it."""
    numbers = rows.with_row_index("place").filter(~pl.col("is_p2p"))
    before = numbers.filter(pl.col("seq") <= seq)
    return int(before["place"].max()) if before.height else 0  # type: ignore[arg-type]


_OPERATION = (
    "seq", "p2p_seq", "op", "is_p2p", "peer", "state", "created_ns", "started_ns", "completed_ns", "duration_ns",
    "in_sizes", "out_sizes", "in_dtypes", "out_dtypes", "timeout_ms", "record_id",
)  # fmt: skip


def _operations(dataset: Dataset, rows: pl.DataFrame) -> Iterator[Json]:
    names = {group.id: (group.name, group.description) for group in dataset.group_list}
    for row in with_paths(dataset, rows).iter_rows(named=True):
        name, description = names.get(row["group"], (None, None))
        stack = _frames(dataset.stack(row["stack_id"]), FEW_FRAMES)
        told = {column: row[column] for column in _OPERATION}
        yield {"group": name, "description": description, **told, "stack": stack, "file": row["path"]}


def _frames(stack: Sequence[Frame], most: int | None = None) -> list[str]:
    """Frames as text, the innermost first."""
    return [f"{frame.function} ({frame.file}:{frame.line})" for frame in stack[:most]]


def stack_rows(dataset: Dataset, rank: int) -> AnswerRows:
    """Stacks of the pending operations of a rank, then of its threads, the newest first. Raises QuestionError."""
    check_rank(dataset, rank)
    pending = dataset.ops.filter(
        (pl.col("rank") == rank) & pl.col("state").is_in(["scheduled", "started"]) & pl.col("stack_id").is_not_null()
    )
    threads = dataset.threads.filter(pl.col("rank") == rank).sort(
        "written_ns", "is_main", descending=True, nulls_last=True, maintain_order=True
    )

    def rows_at(begin: int, end: int) -> list[Json]:
        of_threads = threads[max(0, begin - pending.height) : max(0, end - pending.height)]
        return [*_operation_stacks(dataset, pending[begin:end]), *_thread_stacks(dataset, of_threads)]

    return AnswerRows(pending.height + threads.height, rows_at)


def _operation_stacks(dataset: Dataset, rows: pl.DataFrame) -> Iterator[Json]:
    names = {group.id: group.name for group in dataset.group_list}
    for row in with_paths(dataset, rows).iter_rows(named=True):
        place = {"group": names.get(row["group"]), "seq": row["seq"], "op": row["op"], "state": row["state"]}
        yield {
            "of": "pending operation",
            **place,
            "file": row["path"],
            "frames": _frames(dataset.stack(row["stack_id"])),
        }


def _thread_stacks(dataset: Dataset, rows: pl.DataFrame) -> Iterator[Json]:
    told = ("thread", "thread_id", "is_main", "active", "gil", "pid", "parent_pid", "written_ns", "tool")
    for row in with_paths(dataset, rows).iter_rows(named=True):
        about = {column: row[column] for column in told}
        command = hide(row["command"] or "")
        frames = _frames(dataset.stack(row["stack_id"]))
        yield {"of": "thread", **about, "command": command, "file": row["path"], "frames": frames}


_LINE = ("time_ns", "rank", "host", "line", "severity", "kind", "role", "pattern")


def log_rows(dataset: Dataset, rank: int | None, role: str | None, contains: str | None) -> AnswerRows:
    """Relevant lines of logs by time, of a rank, of a role and with a text, where these are given."""
    rows = dataset.messages.with_columns(at=filled_time())
    for column, value in (("rank", rank), ("role", role)):
        rows = rows if value is None else rows.filter(pl.col(column) == value)
    if contains is not None:
        rows = rows.filter(pl.col("text").str.contains(contains, literal=True))
        # a search must not find out secrets either
        rows = rows.filter(pl.Series([contains in hide(text) for text in rows["text"]], dtype=pl.Boolean))
    rows = rows.sort("at", maintain_order=True, nulls_last=True)

    def rows_at(begin: int, end: int) -> list[Json]:
        shown = with_paths(dataset, rows[begin:end])
        lines = shown.select(*_LINE, pl.col("path").alias("file"), "text").to_dicts()
        return [{**line, "text": hide(line["text"] or "")} for line in lines]

    return AnswerRows(rows.height, rows_at)


def setting_rows(dataset: Dataset, name: str | None, only_differing: bool) -> AnswerRows:
    """Settings and versions with their values, those that differ between ranks first; ranks as ranges."""
    found = differing_settings(dataset) if only_differing else all_settings(dataset)
    named = [one for one in found if name is None or name.lower() in one.name.lower()]

    def rows_at(begin: int, end: int) -> list[Json]:
        return [
            {
                "name": one.name,
                "differs": one.differs,
                "values": [{"value": value.value, "ranks": _ranges(value.ranks)} for value in one.values],
            }
            for one in named[begin:end]
        ]

    return AnswerRows(len(named), rows_at)
