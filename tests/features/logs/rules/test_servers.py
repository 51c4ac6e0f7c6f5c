"""Servers and their workers: a worker that died before any harm, and a scheduler whose watchdog works."""

from __future__ import annotations

from pathlib import Path

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

DIED = "ERROR 03-02 04:05:06 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 733 died, exit code: {}\n"
BEAT = (
    "[rank0]:[E302 04:15:06.100000000 ProcessGroupNCCL.cpp:1316] [PG 2 Rank 0] Heartbeat monitor timed out! Process "
    "will be terminated after dumping debug info. workMetaList_.size()=9\n"
)


def analysed(tmp_path: Path, text: str) -> Analysis:
    (tmp_path / "serve.log").write_text(text)
    return analyse(load([tmp_path / "serve.log"]))


def test_a_worker_that_was_aborted_before_any_harm_broke_the_server(tmp_path: Path) -> None:
    found = analysed(tmp_path, DIED.format(-6) + BEAT)
    assert "process 733 failed: aborted (SIGABRT)" in found.verdict
    assert found.findings[0].waiting_ranks == (0,)


def test_a_worker_that_a_watchdog_aborted_is_a_victim(tmp_path: Path) -> None:
    found = analysed(tmp_path, BEAT + DIED.format(-6))
    assert "733" not in found.verdict and not any(f.root_cause for f in found.findings)


def test_a_scheduler_that_stood_still_is_no_watchdog_that_did(tmp_path: Path) -> None:
    head = "[2026-03-02 04:05:06 TP1] "
    found = analysed(
        tmp_path,
        f"{head}Pyspy failed to dump PID 88. Error: /bin/sh: 1: py-spy: not found\n"
        f"{head}Watchdog timeout (self.watchdog_timeout=450)\n",
    )
    assert "the scheduler of rank 1 made no forward pass for 450 s" in found.verdict
    assert found.culprits == () and "pip install py-spy" in found.findings[0].next_steps[0]
