"""What the host of a rank does, one instruction after the other. Sizes are shapes, durations nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

Shapes = tuple[tuple[int, ...], ...]

ANY_SOURCE = -1
US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Host:
    """The host works for a while; None: it never comes back."""

    ns: int | None


@dataclass(frozen=True, slots=True)
class Compute:
    """A kernel on the compute stream; None: it never ends."""

    ns: int | None


@dataclass(frozen=True, slots=True)
class Sync:
    """The host waits until the compute stream is empty, as `.item()` does."""


@dataclass(frozen=True, slots=True)
class WaitAll:
    """Later compute waits for all operations issued with `wait=False` so far."""


@dataclass(frozen=True, slots=True)
class DeviceDies:
    """The device stops for good when the compute stream gets here; the host notices nothing."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place of the program whose time is noted."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The process ends here, leaving no dump."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of a group, or a coalesced group of them."""

    group: str
    op: str
    inputs: Shapes
    outputs: Shapes
    dtype: str = "BFloat16"
    stack: int = 0
    wait: bool = True
    blocks_host: bool = False
    inner: tuple[Collective, ...] = ()
    on_host: bool = False
    """Goes through the gloo half of a group of two backends: the host itself runs it, and waits for it."""


@dataclass(frozen=True, slots=True)
class P2P:
    """A send to, or a receive from, a global rank; a receive from ANY_SOURCE holds up the host until it is done."""

    group: str
    op: str
    """"send" or "recv"."""
    peer: int
    shape: tuple[int, ...]
    dtype: str = "BFloat16"
    stack: int = 0
    wait: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """Sends and receives launched as one, the way `batch_isend_irecv` does."""

    group: str
    inner: tuple[P2P, ...]
    stack: int = 0
    wait: bool = True


Instruction = Host | Mark | Compute | Sync | WaitAll | DeviceDies | Crash | Collective | P2P | Batch
Communication = Collective | P2P | Batch

WIDTHS = {"BFloat16": 2, "Half": 2, "Float": 4, "Int": 4, "Long": 8, "Byte": 1}
"""Bytes of an element."""


def elements(shapes: Shapes) -> int:
    """The number of elements of all tensors together."""
    total = 0
    for shape in shapes:
        count = 1
        for size in shape:
            count *= size
        total += count
    return total
