"""Failed calls of NCCL with the trail of calls that returned their error, and sends without a receive in its lines.

An error that the table of known errors lacks is still a failure if it came out of NCCL. Warnings without such a trail
are often only advice, or NCCL then succeeded in another way.

A left-out operation shifts those after it, which shows if they differ in size or type. Lines at the end may be lost, so
there the sends are only counted. Sender and receiver are both candidates, because neither line tells who erred.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import Evidence, Finding, GroupRef
from rankscope.analysis.signatures import element_count
from rankscope.features.logs.rules.failures import cut_text
from rankscope.features.logs.rules.log_lines import LogLine, earliest_line, precedes, ranks_of, who_text
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.schema import Dataset
from rankscope.text.wording import plural

MOST_EVIDENCE = 8
_OUTER_CALL = re.compile(r"(?:^|/)(?:init|group|enqueue|bootstrap|collectives)\.(?:cc|cu|cpp):\d+ -> [1-5]\b")
"""Places where an error leaves NCCL; 6 is an error of another rank, 7 is none."""
_THREAD_CALL = re.compile(r"(?:^|/)(?:proxy|net)\.(?:cc|cu|cpp):\d+ -> [1-5]\b")
"""Threads of NCCL that end with an error of their own."""
_RESULT = re.compile(r" -> [1-5]\b")
_OUTCOMES = (", and these logs do not show whether it found another way", " and gives up the call")
_FEWEST_CALLS = 2
"""Fewest such calls: one alone may be a try."""
_CODES = {
    1: " (a CUDA call failed)", 2: " (a system call failed)", 3: " (internal error)", 4: " (invalid argument)",
    5: " (invalid usage)",
}  # fmt: skip
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_HEAD = re.compile(r".*? NCCL (?:WARN|ERROR) |^\S+ \[\d+\] \S+ WARN ")


def failed_call(line: LogLine) -> bool:
    """Whether the line is a warning whose error came out of NCCL, or ended a thread of it."""
    told = line.values.get("level") in ("WARN", "ERROR")
    return told and any(_OUTER_CALL.search(row) or _THREAD_CALL.search(row) for row in _rows(line))


def unknown_causes(lines: Sequence[LogLine]) -> list[Finding]:
    """A finding for the first unknown warning that made a call fail."""
    own = _in_time([line for line in lines if line.role in ("", "context") and _trail(line)], lines)
    failed = [line for line in own if failed_call(line)]
    if not own:
        return []
    own = failed or own
    alike: defaultdict[str, list[LogLine]] = defaultdict(list)
    for line in own:
        alike[_NUMBERS.sub("", warning_text(line))].append(line)
    first = earliest_line(own)
    same = alike[_NUMBERS.sub("", warning_text(first))]
    words = f"a call {'of' if failed else 'inside'} NCCL failed: {cut_text(warning_text(first))}"
    return [
        Finding(
            kind="known-error",
            severity="critical" if failed else "warning",
            title=f"{words}, reported by {who_text(same)} ({first.place})",
            explanation=(
                f"NCCL says so in a warning{_OUTCOMES[bool(failed)]}. The rank that prints it need not be at fault."
            ),
            candidates=ranks_of(same),
            confidence="low",
            confidence_reasons=(
                ("rankscope does not know this error, and the line does not say which rank is at fault"),
            ),
            evidence=tuple(line.evidence() for line in [first, *(o for o in own if o is not first)][:MOST_EVIDENCE]),
            next_steps=(f"Read the lines before {first.place}, and the source of NCCL at {_innermost(first)}.",),
        )
    ]


def returned_errors(lines: Sequence[LogLine]) -> Finding | None:
    """A finding on failed calls of which lines tell only the place in NCCL; None if none failed."""
    own = [line for line in lines if sum(bool(_OUTER_CALL.search(row)) for row in _rows(line)) >= _FEWEST_CALLS]
    if not own:
        return None
    first = earliest_line(own)
    code = int(_rows(first)[0].split(" -> ")[1].split(" ")[0])
    return Finding(
        kind="rank-failed",
        severity="critical",
        title=f"a call of NCCL failed in {who_text(own)} at {_innermost(first)}{_CODES.get(code, '')} ({first.place})",
        explanation="No line says why: NCCL prints only which of its calls returned the error.",
        candidates=ranks_of(own),
        confidence="low",
        confidence_reasons=("the lines do not say which rank is at fault",),
        evidence=tuple(line.evidence(" < ".join(_rows(line)[:MOST_EVIDENCE])) for line in own[:MOST_EVIDENCE]),
        next_steps=(f"Read the source of NCCL at {_innermost(first)}; collect the logs of all ranks.",),
    )


def _trail(line: LogLine) -> list[str]:
    """The calls that returned the error of a warning."""
    own = _rows(line) if line.values.get("level") in ("WARN", "ERROR") else []
    return [row for row in own if _RESULT.search(row)]


def _rows(line: LogLine) -> list[str]:
    trail = line.values.get("trail")
    return [str(row) for row in trail] if isinstance(trail, list) else []


def warning_text(line: LogLine) -> str:
    """The words of a warning, without its head."""
    found = _HEAD.match(line.text)
    return line.text[found.end() :].strip() if found else line.text.strip()


def _innermost(line: LogLine) -> str:
    return str(line.values["trail"][0]).split(" ")[0]


def _in_time(own: Sequence[LogLine], lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines that are proven to be older than any timeout of a rank, because calls also fail in the teardown."""
    first: dict[int, LogLine] = {}
    for line in lines:
        if line.has(GAVE_UP):
            first.setdefault(line.file, line)
    return [line for line in own if all(precedes(line, other) for other in first.values())]


MOST_LANES = 256
"""Most inconsistent pairs of ranks that are examined."""
MOST_UNMATCHED = 4
FEWEST_MATCHES = 2
"""Fewest operations that must match again after a missing one."""
_SizeType = tuple[str | None, str | None]
"""Size and type of an operation."""


class _UnmatchedLane(NamedTuple):
    """The first mismatch between the sends of one rank and the receives of another."""

    group: int
    src: int
    dst: int
    at: int
    """Place of the mismatch, from 1."""
    missing: int
    """Number of missing operations: sends if negative, receives if positive; 0: they differ."""
    sent: _SizeType
    received: _SizeType


def find_unmatched(dataset: Dataset) -> list[Finding]:
    """A finding for each group in which a send or receive was left out, or differs in size from its counterpart."""
    by_group: dict[int, list[_UnmatchedLane]] = {}
    for one in _unmatched(dataset):
        by_group.setdefault(one.group, []).append(one)
    return [_finding(dataset, group, found) for group, found in sorted(by_group.items())]


def _unmatched(dataset: Dataset) -> Iterator[_UnmatchedLane]:
    rows = p2p_lines(dataset)
    if rows.is_empty():
        return
    lanes = rows.group_by(*LANE_COLUMNS, maintain_order=True).agg(
        sent=pl.struct("size", "type").filter("is_send"), received=pl.struct("size", "type").filter(~pl.col("is_send"))
    )
    odd = lanes.filter(pl.col("sent") != pl.col("received")).sort(*LANE_COLUMNS).head(MOST_LANES)
    for group, src, dst, sent, received in odd.iter_rows():
        a, b = ([(row["size"], row["type"]) for row in side] for side in (sent, received))
        found = _place(a, b)
        if found is not None:
            at, missing = found
            yield _UnmatchedLane(group, src, dst, at + 1, missing, a[at], b[at])


def _place(sent: list[_SizeType], received: list[_SizeType]) -> tuple[int, int] | None:
    """The first difference and the number of missing operations there; None if one sequence only goes on longer."""
    at = next((i for i, (a, b) in enumerate(zip(sent, received, strict=False)) if a != b), None)
    if at is None:
        return None
    more = len(sent) - len(received)
    longer, shorter = (sent, received) if more > 0 else (received, sent)
    behind = len(shorter) - at
    if more and behind >= FEWEST_MATCHES and longer[at + abs(more) :] == shorter[at:]:
        return at, more
    # a single other size among many that match
    rest = [a == b for a, b in zip(sent[at + 1 :], received[at + 1 :], strict=False)]
    return (at, 0) if all(rest) and len(rest) >= FEWEST_MATCHES else None


def _finding(dataset: Dataset, number: int, found: list[_UnmatchedLane]) -> Finding:
    group, first = dataset.group_list[number], found[0]
    more = f" (and {plural(len(found) - 1, 'more pair')})" if len(found) > 1 else ""
    return Finding(
        kind="p2p-unmatched",
        severity="warning",
        title=f"{_told(first)}{more}",
        explanation=(
            "The k-th send of one rank and the k-th receive of the other are one transfer. Later transfers fit "
            "again, so one was left out there, or has another size. The lines do not show on which side."
        ),
        candidates=tuple(sorted({rank for one in found for rank in (one.src, one.dst)})),
        confidence="low",
        confidence_reasons=("a line that was lost would look the same",),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=tuple(Evidence(_told(one)) for one in found[:MOST_UNMATCHED]),
        next_steps=(f"Compare what ranks {first.src} and {first.dst} send and receive in the step of #{first.at}.",),
    )


def _told(one: _UnmatchedLane) -> str:
    if one.missing > 0:
        what = f"send #{one.at} of rank {one.src} to rank {one.dst} ({_size(one.sent)}) has no receive"
        return what if one.missing == 1 else f"{what}, nor do the next {one.missing - 1}"
    if one.missing < 0:
        what = f"receive #{one.at} of rank {one.dst} from rank {one.src} ({_size(one.received)}) has no send"
        return what if one.missing == -1 else f"{what}, nor do the next {-one.missing - 1}"
    return (
        f"send #{one.at} of rank {one.src} to rank {one.dst} is of {_size(one.sent)}, and its receive of "
        f"{_size(one.received)}"
    )


def _size(what: _SizeType) -> str:
    elements = element_count(what[0])
    kind = (what[1] or "").strip('[]"')
    return f"{'?' if elements is None else f'{elements:,}'} elements{f' {kind}' if kind else ''}"


# Counts of sends and receives in lines of NCCL on both ends: they show a missing one, but no culprit.

MOST_PAIRS = 3
LANE_COLUMNS = ["group", "src", "dst"]


def uneven_pairs_text(dataset: Dataset) -> str:
    """A sentence on pairs of ranks with more operations on one side than on the other; "" if all agree."""
    lanes = (
        p2p_lines(dataset)
        .group_by(*LANE_COLUMNS)
        .agg(sent=pl.col("is_send").sum(), received=(~pl.col("is_send")).sum())
    )
    told = [
        f"rank {src} issued {sent} to rank {dst}, which issued {received} to receive them"
        for _, src, dst, sent, received in lanes.filter(pl.col("sent") != pl.col("received"))
        .sort(*LANE_COLUMNS)
        .iter_rows()
    ]
    more = f"; {len(told) - MOST_PAIRS} more pairs" if len(told) > MOST_PAIRS else ""
    return (
        (f" Sends do not fit receives: {'; '.join(told[:MOST_PAIRS])}{more}. Lines may be lost at the end.")
        if told
        else ""
    )


def p2p_lines(dataset: Dataset) -> pl.DataFrame:
    """Sends and receives of ranks whose lines start with their first one: group, src, dst, is_send, what."""
    ops = dataset.ops.filter(
        (pl.col("source") == "nccl-log") & pl.col("is_p2p") & pl.col("peer").is_not_null()
        & pl.col("op").cast(pl.String).is_in(["send", "recv"])
    )  # fmt: skip
    whole = ops.group_by("rank", "group").agg(first=pl.col("p2p_seq").min()).filter(pl.col("first") == 1)
    known = whole.select("group", "rank")
    told = ops.select(
        "group", "rank", pl.col("peer").cast(pl.Int32), is_send=pl.col("op").cast(pl.String) == "send",
        size=pl.col("in_sizes").cast(pl.String), type=pl.col("in_dtypes").cast(pl.String),
    ).join(known, on=["group", "rank"], how="semi", maintain_order="left")  # fmt: skip
    told = told.join(known, left_on=["group", "peer"], right_on=["group", "rank"], how="semi", maintain_order="left")
    return told.select(
        "group", "is_send", "size", "type", src=pl.when("is_send").then("rank").otherwise("peer"),
        dst=pl.when("is_send").then("peer").otherwise("rank"),
    )  # fmt: skip


# Ranks whose logs share no operation and that did different operations at the same opCounts: only a hint.


def find_counted(lines: Sequence[LogLine], dataset: Dataset) -> list[Finding]:
    """A finding for each group with such ranks; nobody is accused."""
    by_group: defaultdict[int, list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.kind == "log-counts" and line.group is not None:
            by_group[line.group].append(line)
    return [_counts_finding(own, dataset) for own in by_group.values()]


def _counts_finding(own: list[LogLine], dataset: Dataset) -> Finding:
    first = own[0]
    group = dataset.group_list[first.group or 0]
    ranks = {line.rank for line in own} | {line.values.get("other_rank") for line in own}
    return Finding(
        kind="collective-mismatch",
        severity="warning",
        title=f"{first.text} ({first.place})",
        explanation=(
            "The lines of these ranks have no operation in common by which they could be laid side by side, and at "
            "every opCount that both have they did something else. They may have gone different ways in the program."
        ),
        candidates=tuple(sorted(rank for rank in ranks if isinstance(rank, int))),
        confidence="low",
        confidence_reasons=("opCount is no sequence number: these need not be the same place in the program",),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=tuple(line.evidence() for line in own[:MOST_UNMATCHED]),
        next_steps=("Keep the logs from the start of each process: then k-th lines are k-th collectives.",),
    )
