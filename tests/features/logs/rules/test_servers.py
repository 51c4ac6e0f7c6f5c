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


def test_an_engine_that_died_is_not_the_process_that_tells_of_it(tmp_path: Path) -> None:
    line = (
        "(APIServer pid=1) ERROR 03-02 04:05:06 [core_client.py:564] Engine core proc EngineCore_DP2 died unexpectedly"
    )
    found = analysed(tmp_path, f"{line}, shutting down client.\n")
    assert found.verdict.startswith("EngineCore_DP2 failed: died unexpectedly")


def test_a_call_that_no_worker_answered(tmp_path: Path) -> None:
    front = "(EngineCore pid=9) ERROR 03-02 04:05:06 [core.py:1138] "
    text = f"{front}Traceback (most recent call last):\n{front}TimeoutError: RPC call to load_model timed out.\n"
    found = analysed(tmp_path, text)
    assert "gave up waiting for its workers to answer load_model" in found.verdict
    assert found.culprits == () and not any("TORCH_FR" in step for step in found.findings[0].next_steps)


def test_the_last_line_on_a_dead_actor_alone(tmp_path: Path) -> None:
    dead = (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: x.\n"
    )
    assert "a process failed: died unexpectedly" in analysed(tmp_path, dead).verdict
    entries = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    entries += "\tpid: 41\n\tip: 10.2.0.3\n"
    found = analysed(tmp_path, entries + dead)
    assert "process 41 on 10.2.0.3 failed: died unexpectedly" in found.verdict
    assert len([f for f in found.findings if f.kind == "rank-failed"]) == 1


def test_processes_whose_shell_tells_how_they_ended(tmp_path: Path) -> None:
    found = analysed(tmp_path, "/opt/run.sh: line 18: 5512 Aborted                 (core dumped) python train.py\n")
    assert "process 5512 ended by SIGABRT" in found.verdict and found.status == "failed" and found.culprits == ()
    killed = analysed(tmp_path, "/opt/run.sh: line 18: 5512 Killed                  python train.py\n")
    assert "process 5512 failed: killed by SIGKILL" in killed.verdict
