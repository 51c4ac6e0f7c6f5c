"""Fingerprints as rows of `ops`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rankscope.assemble.logs import names
from rankscope.assemble.logs.log_processes import Log, Scene
from rankscope.assemble.logs.reports import Claim, Row
from rankscope.assemble.logs.times import moment
from rankscope.assemble.logs.works import not_before
from rankscope.parsers.logs.event import Event

_PRINTED = ("seq", "op", "shape", "dtype", "device")


class Told(NamedTuple):
    """An event, in which log it stands, and the global rank that printed it."""

    log: int
    rank: int
    event: Event


def events_of(scene: Scene, *kinds: str) -> Iterator[tuple[int, Event]]:
    """Events of these kinds with the number of their log; what stands in front of the last run is of an earlier one."""
    for number, log in enumerate(scene.logs):
        since = scene.since.get(number, 0)
        yield from ((number, event) for event in log.content.events if event.kind in kinds and event.offset >= since)


def row(log: Log, event: Event, printed: Sequence[Any], state: str) -> Row:
    """The operation of a fingerprint: sequence number, operation, shape, type, device."""
    seq, op, shape, dtype, device = printed
    created = moment(event.stamp, log.source.mtime_ns) if event.kind == "fingerprint" else None
    return Row(
        seq, names.c10d_op(op), state, created_ns=created, in_sizes=None if shape is None else f"[{list(shape)}]",
        dtypes=None if dtype is None else f'["{dtype}"]' if dtype.isalnum() else None,
        library="nccl" if device == "cuda" else "gloo", file=log.place, line=event.line, attempt=log.source.attempt,
    )  # fmt: skip


def printed_row(log: Log, event: Event, before: int | None) -> Row:
    """The operation of an event that is a fingerprint, issued no earlier than the one before it."""
    made = row(log, event, [event.values.get(name) for name in _PRINTED], "unknown")
    return made._replace(created_ns=not_before(made.created_ns, before))


def add(claim: Claim, scene: Scene, own: Sequence[tuple[int, Event]]) -> None:
    """Takes the fingerprints of a rank's group, in their order."""
    before: int | None = None
    for number, event in own:
        made = printed_row(scene.logs[number], event, before)
        before = made.created_ns
        claim.add(made)
    claim.enqueued = max(event.values["seq"] for _, event in own)
    claim.whole = own[0][1].values["seq"] <= 1
