"""What a rank's watchdog had seen at a moment: the difference between what happened and what a dump can say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulator.record import Record


@dataclass(frozen=True)
class Watchdog:
    """Looks every `poll_ns`, from `phase_ns` on, until its device is dead."""

    poll_ns: int
    phase_ns: int
    blind_from: int | None = None

    def looks_after(self, when: int | None, until: int) -> int | None:
        """When it saw something that happened at `when`; None if it had not by `until`."""
        if when is None:
            return None
        look = when + (self.phase_ns - when) % self.poll_ns
        return look if look <= until and (self.blind_from is None or look < self.blind_from) else None

    def sees_at_dump(self, when: int | None, at: int) -> bool:
        """Whether a dump taken at `at` sees what happened at `when`."""
        return when is not None and when <= at and (self.blind_from is None or at < self.blind_from)


@dataclass(frozen=True)
class Seen:
    """What a dump says of one operation."""

    state: str
    started_ns: int | None
    completed_ns: int | None
    retired: bool


def seen(record: Record, watchdog: Watchdog, at: int, timing: bool) -> Seen:
    """What a dump taken at `at` says of an operation."""
    if record.role == "inner":
        return Seen("scheduled", None, None, False)
    look = watchdog.looks_after(record.done, at)
    if look is not None:
        return Seen("completed", look - 400 if timing else None, look, True)
    at_dump = watchdog.sees_at_dump(record.done, at)
    started = timing and watchdog.sees_at_dump(record.arrived, at)
    state = "completed" if at_dump else "started" if started else "scheduled"
    return Seen(state, at - 200 if started else None, at if at_dump else None, False)


def status(records: Sequence[Record], watchdog: Watchdog, at: int, timing: bool) -> dict[str, dict[str, int]]:
    """pg_status by group: the counter of the last work enqueued, seen to start, and seen to end; -1 for none."""
    out: dict[str, dict[str, int]] = {}
    ended: dict[str, tuple[int, int]] = {}
    for index, record in enumerate(records):
        if record.role == "inner":
            continue
        counter = record.p2p_seq if record.is_p2p else record.seq
        row = out.setdefault(record.group, {f"last_{w}_collective": -1 for w in ("enqueued", "started", "completed")})
        row["last_enqueued_collective"] = counter
        if timing and watchdog.looks_after(record.arrived, at) is not None:
            row["last_started_collective"] = max(row["last_started_collective"], counter)
        look = watchdog.looks_after(record.done, at)
        if look is not None and (look, index) > ended.get(record.group, (-1, -1)):
            ended[record.group] = (look, index)
            row["last_completed_collective"] = counter
    return out
