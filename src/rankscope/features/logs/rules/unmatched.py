"""Operations in NCCL's lines without a counterpart: sends without a receive, and ranks that did other operations.

A left-out operation shifts those after it, which shows if they differ in size or type. Lines at the end may be lost, so
there the sends are only counted. Sender and receiver are both candidates, because neither line tells who erred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.analysis.signatures import element_count
from rankscope.features.logs.rules.log_lines import LogEvidence, LogLine
from rankscope.schema import Dataset
from rankscope.text.wording import plural

MOST_LANES = 256
"""Most inconsistent pairs of ranks that are examined."""
MOST_UNMATCHED = 4
MOST_PAIRS = 3
FEWEST_MATCHES = 2
"""Fewest operations that must match again after a missing one."""
LANE_COLUMNS = ["group", "src", "dst"]
_SizeType = tuple[str | None, str | None]
"""Size and type of an operation."""


def find_unmatched(logs: LogEvidence) -> Iterator[Finding]:
    """A finding for each group in which a send or receive was left out, or differs in size from its counterpart."""
    rows = p2p_lines(logs.dataset)
    if rows.is_empty():
        return
    lanes = rows.group_by(*LANE_COLUMNS, maintain_order=True).agg(
        sent=pl.struct("size", "type").filter("is_send"), received=pl.struct("size", "type").filter(~pl.col("is_send"))
    )
    odd = lanes.filter(pl.col("sent") != pl.col("received")).sort(*LANE_COLUMNS).head(MOST_LANES)
    # by group: source, destination, place of the mismatch, and what is wrong there
    by_group: defaultdict[int, list[tuple[int, int, int, str]]] = defaultdict(list)
    for group, src, dst, *sides in odd.iter_rows():
        sent, received = ([(row["size"], row["type"]) for row in side] for side in sides)
        place = _mismatch(sent, received)
        if place is not None:
            at, missing = place
            by_group[group].append((src, dst, at + 1, _text(src, dst, at + 1, missing, sent[at], received[at])))
    for group, pairs in sorted(by_group.items()):
        src, dst, at, text = pairs[0]
        more = f" (and {plural(len(pairs) - 1, 'more pair')})" if len(pairs) > 1 else ""
        yield Finding(
            kind="p2p-unmatched",
            severity="warning",
            title=f"{text}{more}",
            explanation=(
                "The k-th send of one rank and the k-th receive of the other are one transfer. Later transfers fit "
                "again, so one was left out there, or has another size. The lines do not show on which side."
            ),
            candidates=tuple(sorted({rank for pair in pairs for rank in pair[:2]})),
            confidence="low",
            confidence_reasons=("a line that was lost would look the same",),
            group=logs.group(group),
            evidence=tuple(Evidence(text) for *_, text in pairs[:MOST_UNMATCHED]),
            next_steps=(f"Compare what ranks {src} and {dst} send and receive in the step of #{at}.",),
        )


def _mismatch(sent: list[_SizeType], received: list[_SizeType]) -> tuple[int, int] | None:
    """The first difference, and the number of operations that are missing there: sends if negative, receives if
    positive, 0 if they only differ; None if one sequence only goes on longer."""
    at = next((i for i, (a, b) in enumerate(zip(sent, received, strict=False)) if a != b), None)
    if at is None:
        return None
    more = len(sent) - len(received)
    longer, shorter = (sent, received) if more > 0 else (received, sent)
    if more and len(shorter) - at >= FEWEST_MATCHES and longer[at + abs(more) :] == shorter[at:]:
        return at, more
    # a single other size among many that match
    rest = [a == b for a, b in zip(sent[at + 1 :], received[at + 1 :], strict=False)]
    return (at, 0) if all(rest) and len(rest) >= FEWEST_MATCHES else None


def _text(src: int, dst: int, at: int, missing: int, sent: _SizeType, received: _SizeType) -> str:
    if missing == 0:
        return f"send #{at} of rank {src} to rank {dst} is of {_size(sent)}, and its receive of {_size(received)}"
    text = f"send #{at} of rank {src} to rank {dst} ({_size(sent)}) has no receive"
    if missing < 0:
        text = f"receive #{at} of rank {dst} from rank {src} ({_size(received)}) has no send"
    return text if abs(missing) == 1 else f"{text}, nor do the next {abs(missing) - 1}"


def _size(what: _SizeType) -> str:
    elements = element_count(what[0])
    kind = (what[1] or "").strip('[]"')
    return f"{'?' if elements is None else f'{elements:,}'} elements{f' {kind}' if kind else ''}"


def uneven_pairs_text(dataset: Dataset) -> str:
    """A sentence on pairs of ranks with more operations on one side than on the other; "" if all agree."""
    lanes = (
        p2p_lines(dataset)
        .group_by(*LANE_COLUMNS)
        .agg(sent=pl.col("is_send").sum(), received=(~pl.col("is_send")).sum())
    )
    uneven = [
        f"rank {src} issued {sent} to rank {dst}, which issued {received} to receive them"
        for _, src, dst, sent, received in lanes.filter(pl.col("sent") != pl.col("received"))
        .sort(*LANE_COLUMNS)
        .iter_rows()
    ]
    more = f"; {len(uneven) - MOST_PAIRS} more pairs" if len(uneven) > MOST_PAIRS else ""
    return (
        (f" Sends do not fit receives: {'; '.join(uneven[:MOST_PAIRS])}{more}. Lines may be lost at the end.")
        if uneven
        else ""
    )


def p2p_lines(dataset: Dataset) -> pl.DataFrame:
    """Sends and receives of ranks whose lines start with their first one: group, src, dst, is_send, what."""
    ops = dataset.ops.filter(
        (pl.col("source") == "nccl-log")
        & pl.col("is_p2p")
        & pl.col("peer").is_not_null()
        & pl.col("op").cast(pl.String).is_in(["send", "recv"])
    )
    whole = ops.group_by("rank", "group").agg(first=pl.col("p2p_seq").min()).filter(pl.col("first") == 1)
    known = whole.select("group", "rank")
    lines = ops.select(
        "group",
        "rank",
        pl.col("peer").cast(pl.Int32),
        is_send=pl.col("op").cast(pl.String) == "send",
        size=pl.col("in_sizes").cast(pl.String),
        type=pl.col("in_dtypes").cast(pl.String),
    ).join(known, on=["group", "rank"], how="semi", maintain_order="left")
    lines = lines.join(known, left_on=["group", "peer"], right_on=["group", "rank"], how="semi", maintain_order="left")
    return lines.select(
        "group",
        "is_send",
        "size",
        "type",
        src=pl.when("is_send").then("rank").otherwise("peer"),
        dst=pl.when("is_send").then("peer").otherwise("rank"),
    )


def find_counted(logs: LogEvidence) -> Iterator[Finding]:
    """A finding for each group with ranks that did other operations at all opCounts that both have; only a hint."""
    by_group: defaultdict[int, list[LogLine]] = defaultdict(list)
    for line in logs.lines:
        if line.kind == "log-counts" and line.group is not None:
            by_group[line.group].append(line)
    for group, lines in by_group.items():
        ranks = {rank for line in lines for rank in (line.rank, line.values.get("other_rank"))}
        yield Finding(
            kind="collective-mismatch",
            severity="warning",
            title=f"{lines[0].text} ({lines[0].place})",
            explanation=(
                "The lines of these ranks have no operation in common by which they could be laid side by side, and "
                "at every opCount that both have they did something else. They may have gone different ways in the "
                "program."
            ),
            candidates=tuple(sorted(rank for rank in ranks if isinstance(rank, int))),
            confidence="low",
            confidence_reasons=("opCount is no sequence number: these need not be the same place in the program",),
            group=logs.group(group),
            evidence=tuple(line.evidence() for line in lines[:MOST_UNMATCHED]),
            next_steps=("Keep the logs from the start of each process: then k-th lines are k-th collectives.",),
        )
