"""What a debug server's health checks tell: messages of the newest, and who waits for nobody."""

from __future__ import annotations

from pathlib import Path

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from tests.features.logs.health.test_sections import UNWELL, WELL, written

EARLY, LATE = "c10d_health_check_20261125_194610.txt", "c10d_health_check_20261125_194710.txt"


def test_the_newest_check_says_who_is_unhealthy(tmp_path: Path) -> None:
    (tmp_path / EARLY).write_bytes(written(WELL, WELL, WELL))
    (tmp_path / LATE).write_bytes(written(UNWELL, WELL, "Error: 503"))
    messages = load([tmp_path]).messages
    assert messages.select("rank", "kind", "severity", "host", "text").rows() == [
        (0, "health-check", "error", "node07", "unhealthy: an operation of nccl2 timed out or failed"),
        (1, "health-check", "info", "node07", "healthy: no operation of its own timed out or failed"),
        (None, "health-check", "info", "node07", "rank 2 did not answer the health check: error 503"),
    ]
    assert messages["time_ns"].cast(int).unique().to_list() == [1_795_636_030 * 10**9]
    files = load([tmp_path]).files
    assert files.select("path", "kind", "rank", "used", "problem").rows() == [
        (EARLY, "health-check", None, False, None),
        (LATE, "health-check", None, True, None),
    ]


def test_who_alone_is_healthy_is_what_the_others_wait_for(tmp_path: Path) -> None:
    (tmp_path / LATE).write_bytes(written(UNWELL, UNWELL, WELL, UNWELL))
    found = analyse(load([tmp_path]))
    assert (found.status, found.culprits) == ("hang", (2,))
    assert found.findings[0].kind == "missing-rank"


def test_of_several_that_are_healthy_none_is_accused(tmp_path: Path) -> None:
    (tmp_path / LATE).write_bytes(written(UNWELL, WELL, WELL, UNWELL, UNWELL))
    found = analyse(load([tmp_path]))
    assert found.culprits == ()
    assert found.findings[0].candidates == (1, 2)


def test_where_all_are_well_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / LATE).write_bytes(written(WELL, WELL))
    found = load([tmp_path])
    assert (found.messages.height, found.world_size) == (0, 2)
    assert analyse(found).status == "unknown"


def test_where_some_or_all_are_unhealthy_nobody_is_accused(tmp_path: Path) -> None:
    gone = "Error: 503"
    for answers in ([UNWELL] * 3, [UNWELL, WELL], [UNWELL, UNWELL, gone], [UNWELL, UNWELL, WELL, gone]):
        (tmp_path / LATE).write_bytes(written(*answers))
        assert analyse(load([tmp_path])).culprits == ()
