"""What nccl2 notices, and when."""

from __future__ import annotations

from tests.simulator.instructions import MS, SECOND
from tests.simulator.notices import next_look, noticed
from tests.simulator.record import Record, Role


def record(created: int, done: int | None, sync: bool = False, group: str = "0", role: Role = "plain") -> Record:
    """A collective issued and ended at these times."""
    op = "all_reduce"
    return Record(group, op, op, 1, 0, 1, False, None, (), (), "", 0, role, created, created, done, sync)


def test_the_watchdog_looks_once_a_second() -> None:
    looks = {next_look(when * MS, 300 * MS, "0") for when in range(5000)}
    assert len(looks) in (5, 6)
    assert {b - a for a, b in zip(sorted(looks), sorted(looks)[1:], strict=False)} == {SECOND}


def test_what_has_ended_is_noticed_by_the_watchdog() -> None:
    ends = noticed([record(5, 40 * MS)], 300 * MS)
    assert ends == {0: next_look(40 * MS, 300 * MS, "0")}


def test_the_next_operation_of_the_group_notices_it_before() -> None:
    when = next_look(0, 0, "0")
    records = [record(when + 1, when + 5), record(when + 3, None), record(when + 9, None)]
    assert noticed(records, 0) == {0: when + 9}
    assert noticed([*records[:2], record(when + 9, None, group="1")], 0) == {0: when + SECOND}


def test_what_has_not_ended_hides_what_is_behind_it() -> None:
    assert noticed([record(1, None), record(2, 9), record(3, 9)], 0) == {}


def test_each_stream_has_a_queue_of_its_own() -> None:
    assert set(noticed([record(1, None), record(2, 9, sync=True), record(3, 9)], 0)) == {1}


def test_a_batch_that_hangs_hides_what_is_behind_it() -> None:
    inner, closer = record(1, None, role="inner"), record(1, None, role="closer")
    assert noticed([inner, closer, record(2, 9)], 0) == {}
    assert set(noticed([inner, record(2, 9)], 0)) == {1}
