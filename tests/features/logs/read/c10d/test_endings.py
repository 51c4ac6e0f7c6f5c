"""How processes ended, in the words of schedulers, the kernel and others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.logs.read.c10d.lines import only

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "srun: error: node12: task 0: Exited with exit code 1": (
        "srun-exit", {"host": "node12", "tasks": [[0, 0]], "how": "Exited with exit code 1", "exitcode": 1},
    ),
    "srun: error: f07210: tasks 8-12,14: Aborted (core dumped)": (
        "srun-exit", {"host": "f07210", "tasks": [[8, 12], [14, 14]], "how": "Aborted (core dumped)", "exitcode": None},
    ),
    "srun: error: f07200: task 3: Out Of Memory": ("srun-exit", {"tasks": [[3, 3]], "how": "Out Of Memory"}),
    "slurmstepd: error: *** STEP 30399.0 ON sn30 CANCELLED AT 2024-04-03T09:40:00 ***": (
        "job-cancelled", {"step": "30399.0", "host": "sn30", "why": None},
    ),
    "slurmstepd: error: *** JOB 7 ON sn30 CANCELLED AT 2024-04-03T09:40:00 DUE TO TIME LIMIT ***": (
        "job-cancelled", {"step": "7", "why": "TIME LIMIT"},
    ),
    "slurmstepd: error: Detected 2 oom_kill events in StepId=7.0. Some of the step tasks have been OOM Killed.": (
        "oom-kill", {"count": 2, "pid": None},
    ),
    "[12.5] Out of memory: Killed process 4711 (python) total-vm:9kB": (
        "oom-kill", {"pid": 4711, "name": "python", "count": 1},
    ),
    "W1120 19:13:47.187000 28532 torch/x/api.py:1028] Sending process 28536 closing signal SIGTERM": (
        "signal", {"signal": 15, "pid": 28536, "sender": "launcher"},
    ),
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 2": (
        "signal", {"signal": 2, "pid": 12, "sender": "outside"},
    ),
    "Fatal Python error: Segmentation fault": ("signal", {"signal": 11, "pid": None}),
    "[node3:12345] Signal: Bus error (7)": ("signal", {"signal": 7}),
    "./run.sh: line 3: 99 Aborted                 (core dumped) python train.py": ("signal", {"signal": 6}),
    "E1120 19:13:47.2 28532 torch/x/api.py:1002] failed (exitcode: -11) local_rank: 2 (pid: 9) of binary: /v/python3": (
        "child-exit", {"exitcode": -11, "local_rank": 2, "pid": 9},
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", CASES)
def test_an_ending(line: str) -> None:
    kind, expected = CASES[line]
    event = only(line)
    assert event.kind == kind
    assert {name: event.values[name] for name in expected} == expected
    assert event.rank is None


def test_a_process_of_mpirun_is_a_rank() -> None:
    told = only("mpirun noticed that process rank 7 with PID 0 on node node-3 exited on signal 9 (Killed).")
    assert (told.kind, told.rank) == ("child-exit", 7)
    assert (told.values["exitcode"], told.values["pid"], told.values["host"]) == (-9, None, "node-3")
