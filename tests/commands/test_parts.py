"""Options that read a part of a job: what they say, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rankscope.cli import rankscope
from rankscope.commands.source import JobSource


def asked(*arguments: str) -> Result:
    """A run of the command line."""
    return CliRunner().invoke(rankscope, list(arguments))


def test_the_parts_reach_the_source(hang: list[JobSource]) -> None:
    asked("report", "dumps", "--ranks", "0-2, 7", "--groups", "tp,0", "--last", "50")
    assert (hang[0].ranks, hang[0].groups, hang[0].last) == (frozenset({0, 1, 2, 7}), ("tp", "0"), 50)
    assert (hang[0].options.ranks, hang[0].options.is_part) == (frozenset({0, 1, 2, 7}), True)


def test_without_them_all_is_read(hang: list[JobSource]) -> None:
    asked("report", "dumps")
    assert (hang[0].ranks, hang[0].groups, hang[0].last) == (None, (), None)
    assert not hang[0].options.is_part
    assert hang[0].options.rings == ""


@pytest.mark.parametrize("text", ["a", "3-1", "1,,2", "-1", "", "12345678"])
def test_ranks_that_are_none_are_refused(text: str, hang: list[JobSource]) -> None:
    result = asked("report", "dumps", f"--ranks={text}")
    assert result.exit_code == 2
    assert "ranks are written as 0-7,12" in result.output
    assert not hang


def test_a_job_that_is_watched_is_read_whole(tmp_path: Path) -> None:
    result = asked("view", str(tmp_path), "--watch", "--last", "5")
    assert result.exit_code == 2
    assert "leave out --ranks, --groups and --last" in result.output


def test_repro_keeps_its_own_last() -> None:
    assert "Also the last N collectives of each group." in asked("repro", "--help").output
    assert "--ranks" not in asked("repro", "--help").output
