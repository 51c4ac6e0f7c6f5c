"""A line of a log is a row of `messages` once, with all that was found in it."""

from __future__ import annotations

from typing import Any

import orjson

from rankscope.schema import Dataset
from tests.features.logs.rows.job import init, job, source
from tests.features.logs.rows.test_reports import STAMP, timeout

OOM = "node-1:4003:4100 [1] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"
ENDED = f"[rank2]:[{STAMP} ProcessGroupNCCL.cpp:2119] [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog "
SIGNAL = "W1206 18:44:13.187000 500 torch/elastic/multiprocessing/api.py:1028] Sending process 5 closing signal SIGTERM"


def rows(dataset: Dataset) -> list[dict[str, Any]]:
    return [{**row, "values": orjson.loads(row["values"])} for row in dataset.messages.iter_rows(named=True)]


def test_a_watchdog_line_that_is_in_the_table_is_one_row() -> None:
    (row,) = rows(job(source("train.log", [timeout(2, 8)])))
    assert (row["kind"], row["role"], row["pattern"]) == ("watchdog-timeout", "victim", "watchdog-timeout")
    assert (row["values"]["seq"], row["values"]["accuses"], row["severity"]) == (8, "nobody", "error")


def test_a_warning_that_is_in_the_table_is_one_row_with_its_process() -> None:
    lines = [*(init(rank) for rank in range(4)), OOM]
    (row,) = rows(job(source("train.log", lines)))
    assert (row["kind"], row["role"], row["pattern"]) == ("nccl-warning", "root", "nccl-out-of-memory")
    assert (row["rank"], row["host"], row["pid"]) == (3, "node-1", 4003)
    assert (row["values"]["level"], row["values"]["accuses"]) == ("WARN", "self")
    # its head tells the device
    assert "[1] include/alloc.h" in row["text"]


def test_several_events_of_a_line_are_one_row_of_the_most_telling() -> None:
    quoted = timeout(2, 8).split("] ", 2)[2]
    (row,) = rows(job(source("train.log", [f"{ENDED}thread terminated with exception: [Rank 2] {quoted}"])))
    assert (row["kind"], row["role"]) == ("watchdog-timeout", "victim")
    assert set(row["values"]["kinds"]) == {"watchdog-timeout", "watchdog-thread-terminated", "known-error"}
    assert row["values"]["reason"].startswith("[Rank 2] Watchdog caught")


def test_noise_that_tells_something_else_too_is_not_counted_as_noise() -> None:
    (row,) = rows(job(source("train.log", [SIGNAL])))
    assert (row["kind"], row["role"]) == ("signal", "")
