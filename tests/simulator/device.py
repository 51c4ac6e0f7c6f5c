"""Streams of a device: items that start when what they depend on is done."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulator.record import Record


@dataclass(slots=True, eq=False)
class Item:
    """Something on a stream: a kernel, a communication, the death of the device, or just a point to wait for."""

    rank: int
    enqueued: int
    duration: int | None = 0
    """Of a kernel; None never ends. Communications end when their partners let them."""
    records: list[Record] = field(default_factory=list)
    """The communication; the last one is the work, those before it are inside it."""
    batch: tuple[str, ...] | None = None
    """The communicator of sends and receives."""
    on_host: bool = False
    """Run by the host itself, on no stream."""
    kills: bool = False
    pending: int = 0
    waiters: list[Item] = field(default_factory=list)
    host_waits: bool = False
    unmatched: int = 0
    done_at: int | None = None

    def after(self, *others: Item | None) -> None:
        """Makes this start only when the others are done."""
        for other in others:
            if other is not None and other.done_at is None:
                other.waiters.append(self)
                self.pending += 1
            elif other is not None and other.done_at is not None:
                self.enqueued = max(self.enqueued, other.done_at)


@dataclass
class Device:
    """The streams of one rank, as the item at their end."""

    compute: Item | None = None
    streams: dict[tuple[str, ...], Item] = field(default_factory=dict)
    outstanding: list[Item] = field(default_factory=list)
    """Asynchronous communications that no compute waits for yet."""
    dead_at: int | None = None
