"""Whose lines a log without a failure holds, and where those ranks stand."""

from __future__ import annotations

from rankscope.analysis import analyse
from tests.features.logs.read.lines import info
from tests.features.logs.rows.job import init, job, said, source, step


def verdict(*lines: str) -> str:
    return analyse(job(source("train.log", lines))).verdict


def test_the_ranks_without_a_line_are_counted() -> None:
    lines = [line for rank in range(3) for line in (init(rank), step(rank, 0))]
    assert verdict(*lines).endswith("; they hold lines of 3 of 4 ranks, all of which issued all_reduce #1 last")
    lines += [step(0, 1)]
    assert verdict(*lines).endswith("; they hold lines of 3 of 4 ranks")


def test_nothing_is_said_where_all_speak() -> None:
    lines = [line for rank in range(4) for line in (init(rank), step(rank, 0))]
    assert verdict(*lines) == "no failure in these logs; they do not show whether the job went on"


def test_a_log_of_channels_is_no_failure() -> None:
    lines = [info(f"Channel 0{i}/0 : 0[0] -> 1[0] [send] via NET/Socket/0", pid=4100 + i % 2) for i in range(4)]
    assert verdict(*lines).endswith(": 2 processes on 1 host print only how NCCL connects them")


def test_one_line_that_a_text_quotes_is_no_log() -> None:
    assert not source("train.log", [said(0, "Connected all rings")]).tells
