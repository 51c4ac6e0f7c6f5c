"""Sends and receives of NCCL's lines, matched as the k-th of one rank to another and the k-th of that from the first.

One that was left out in the middle shifts those behind it: that is seen where they differ in size or type. At the end
lines may be lost, and there `sends` only counts. Sender and receiver are candidates, for neither line says who erred.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import Evidence, Finding, GroupRef
from rankscope.analysis.signatures import count
from rankscope.schema import Dataset
from rankscope.text.wording import plural

MOST_LANES = 256
"""So many pairs of ranks that do not fit are looked at."""
MOST_EVIDENCE = 4
BEHIND = 2
"""So many must fit again behind a place where one is missing."""
_What = tuple[str | None, str | None]
"""Sizes and type of an operation."""


class _Unmatched(NamedTuple):
    """Where what one rank sends is not what the other receives."""

    group: int
    src: int
    dst: int
    at: int
    """From 1."""
    missing: int
    """So many sends are missing there if negative, else receives; 0: they differ."""
    sent: _What
    received: _What


def find_unmatched(dataset: Dataset) -> list[Finding]:
    """A finding for each group in which a send or receive was left out, or has another size than its counterpart."""
    by_group: dict[int, list[_Unmatched]] = {}
    for one in _unmatched(dataset):
        by_group.setdefault(one.group, []).append(one)
    return [_finding(dataset, group, found) for group, found in sorted(by_group.items())]


def _unmatched(dataset: Dataset) -> Iterator[_Unmatched]:
    rows = p2p_lines(dataset)
    if rows.is_empty():
        return
    lanes = rows.group_by(*LANE, maintain_order=True).agg(
        sent=pl.struct("size", "type").filter("is_send"), received=pl.struct("size", "type").filter(~pl.col("is_send"))
    )
    odd = lanes.filter(pl.col("sent") != pl.col("received")).sort(*LANE).head(MOST_LANES)
    for group, src, dst, sent, received in odd.iter_rows():
        a, b = ([(row["size"], row["type"]) for row in side] for side in (sent, received))
        found = _place(a, b)
        if found is not None:
            at, missing = found
            yield _Unmatched(group, src, dst, at + 1, missing, a[at], b[at])


def _place(sent: list[_What], received: list[_What]) -> tuple[int, int] | None:
    """Where the two first differ, and how many are missing there; None if one only goes on longer."""
    at = next((i for i, (a, b) in enumerate(zip(sent, received, strict=False)) if a != b), None)
    if at is None:
        return None
    more = len(sent) - len(received)
    longer, shorter = (sent, received) if more > 0 else (received, sent)
    behind = len(shorter) - at
    if more and behind >= BEHIND and longer[at + abs(more) :] == shorter[at:]:
        return at, more
    # one other size among many that fit
    rest = [a == b for a, b in zip(sent[at + 1 :], received[at + 1 :], strict=False)]
    return (at, 0) if all(rest) and len(rest) >= BEHIND else None


def _finding(dataset: Dataset, number: int, found: list[_Unmatched]) -> Finding:
    group, first = dataset.group_list[number], found[0]
    more = f" (and {plural(len(found) - 1, 'more pair')})" if len(found) > 1 else ""
    return Finding(
        kind="p2p-unmatched",
        severity="warning",
        title=f"{_told(first)}{more}",
        explanation=(
            "By their lines, the k-th of one rank and the k-th of the other are one transfer. What stands behind fits "
            "again: so it was left out there, or is of another size. Neither line says on which side."
        ),
        candidates=tuple(sorted({rank for one in found for rank in (one.src, one.dst)})),
        confidence="low",
        confidence_reasons=("a line that was lost would look the same",),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=tuple(Evidence(_told(one)) for one in found[:MOST_EVIDENCE]),
        next_steps=(f"Compare what ranks {first.src} and {first.dst} send and receive in the step of #{first.at}.",),
    )


def _told(one: _Unmatched) -> str:
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


def _size(what: _What) -> str:
    elements = count(what[0])
    kind = (what[1] or "").strip('[]"')
    return f"{'?' if elements is None else elements} elements{f' {kind}' if kind else ''}"


# Sends and receives that NCCL's lines tell of, counted at both ends: whose is missing, and never whose fault it is.

MOST_PAIRS = 3
LANE = ["group", "src", "dst"]


def uneven(dataset: Dataset) -> str:
    """A sentence on pairs of ranks of which one issued more than the other answers; "" where all agree."""
    lanes = p2p_lines(dataset).group_by(*LANE).agg(sent=pl.col("is_send").sum(), received=(~pl.col("is_send")).sum())
    told = [
        f"rank {src} issued {sent} to rank {dst}, which issued {received} to receive them"
        for _, src, dst, sent, received in lanes.filter(pl.col("sent") != pl.col("received")).sort(*LANE).iter_rows()
    ]
    more = f"; {len(told) - MOST_PAIRS} more pairs" if len(told) > MOST_PAIRS else ""
    return f" Of sends, {'; '.join(told[:MOST_PAIRS])}{more}: lines may be lost at the end." if told else ""


def p2p_lines(dataset: Dataset) -> pl.DataFrame:
    """Sends and receives of ranks whose lines are there from their first one on: group, src, dst, is_send, what."""
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
