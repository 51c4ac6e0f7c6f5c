"""What stands in front of a cause: the surface of an error, a process before its rank, a launcher's own exception."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

REFUSED = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/job/train.py", line 7, in <module>
[rank3]:     dist.barrier()
[rank3]: torch.distributed.DistBackendError: NCCL error in: /x/c10d/ProcessGroupNCCL.cpp:1287, invalid usage (run with \
NCCL_DEBUG=WARN for details), NCCL version 2.27.3
[rank3]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
"""
NAMED = "[rank3]: Last error:\n[rank3]: Duplicate GPU detected : rank 3 and rank 2 both on CUDA device e2000\n"
NPU = "[ERROR] 2026-10-11-15:09:34 (PID:2969, Device:0, RankID:5) ERR00100 PTA call acl api failed.\n"
WAITED = (
    "EI0002: [PID: 2969] 2026-10-11-15:09:34.713.335 The wait execution of the Notify register times out. Reason: x\n"
)
ACTOR = """\
  File "/job/main.py", line 8, in fit
    ray.get(refs)
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\tclass_name: Worker
\tpid: 4711
\tip: 10.0.0.7
"""
ECC = """\
Traceback (most recent call last):
  File "/job/train.py", line 7, in <module>
    loss.backward()
RuntimeError: CUDA error: uncorrectable ECC error encountered
[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC \
error encountered
"""
KILLED = """\
  File "/env/ray/tune/tune.py", line 272, in run
    raise TuneError("Trials did not complete", errored_trials)
ray.tune.error.TuneError: ('Trials did not complete', [job:5591])
slurmstepd: error: Detected 8 oom-kill event(s) in step 5913.batch cgroup. Some of your processes may have been killed.
"""
CASES = {
    "why NCCL refused": (REFUSED + NAMED, "failed", "duplicate GPU, reported by rank 3 (job.log:7)"),
    "only that NCCL refused": (REFUSED, "failed", "invalid usage of NCCL, reported by rank 3 (job.log:4)"),
    "the rank of a process in another line": (NPU + WAITED, "hang", (
        "rank 5 gave up waiting (job.log:2); these logs do not show which rank"
    )),
    "an actor below a traceback": (ACTOR, "failed", "process 4711 on 10.0.0.7 failed: died unexpectedly (job.log:3)"),
    "one cause, with and without its place": (ECC, "failed", "[Rank 1] failed: uncorrectable memory error of the GPU"),
    "a launcher's exception before the kernel's word": (KILLED, "failed", "a process failed: host out of memory"),
    "mpirun": (
        "mpirun noticed that process rank 7 with PID 0 on node node-3 exited on signal 9 (Killed).\n",
        "failed", "rank 7 failed: killed by SIGKILL (job.log:1)",
    ),
    "tasks of srun that only ended": (
        "srun: error: node-0: tasks 2-7: Exited with exit code 1\n", "failed",
        "tasks 2-7 on node-0 ended with exit code 1 (job.log:1); these logs do not show why",
    ),
    "tasks of srun that crashed": (
        "srun: error: node-3: task 0: Segmentation fault (core dumped)\n", "failed", "task 0 on node-3 failed",
    ),
    "tasks of srun that somebody ended": ("srun: error: node-0: task 2: Exited with exit code 143\n", "unknown", ""),
    "a name that is looked up again": (
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node-1, 29500) cannot be retrieved (gai error: -2)\n",
        "unknown", "no failure in these logs, but: a process: the name of a host is not known",
    ),
    "a rank that was well": (
        "[2026-03-17 17:15:55 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/job/runner.py", line 417, in load_model\n    raise ValueError(\n'
        "ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't finish loading.\n",
        "failed", "a process: says that another rank failed (job.log:4); these logs do not show what failed first",
    ),
    "an agent that was told to end": (
        "W0409 07:28:49.530000 1359 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, "
        "shutting down workers\n",
        "unknown", "no failure in these logs, but: ended by a signal from outside",
    ),
    "behind the name of a host": (
        'node-12:   File "/job/load.py", line 28, in load\nnode-12:     part = torch.load(path)\n'
        "node-12: RuntimeError: PytorchStreamReader failed reading zip archive\n",
        "failed", "the process behind node-12 failed: RuntimeError: PytorchStreamReader failed reading zip archive",
    ),
    "a process of a process": (
        "(Actor pid=41, ip=10.0.0.7) (Engine pid=42) ERROR 03-05 00:25:45 [core.py:1094] Traceback (most recent call "
        'last):\n(Actor pid=41, ip=10.0.0.7) (Engine pid=42) ERROR 03-05 00:25:45 [core.py:1094]   File '
        '"/job/core.py", line 9, in step\n',
        "failed", "process 42 on 10.0.0.7 ended with an exception that is cut off (job.log:1); these logs do not",
    ),
    "a parent of processes, as pytest shows it": (
        "E       torch.multiprocessing.spawn.ProcessRaisedException:\nE\n"
        "E       -- Process 3 terminated with the following error:\n"
        "E       RuntimeError: NCCL error in: /x/c10d/P.cpp:957, unhandled system error, NCCL version 2\n",
        "failed", "a call to the system failed under NCCL",
    ),
    "a rendezvous that another closed": (
        '  File "/env/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", line 635, in run\n'
        "    raise RendezvousClosedError()\ntorch.distributed.elastic.rendezvous.api.RendezvousClosedError\n"
        "srun: error: node-1: task 1: Exited with exit code 1\n",
        "failed", "the rendezvous was closed (job.log:3); these logs do not show what failed first",
    ),
    "a GPU of the driver": (
        "kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python3, GPU has fallen off the bus.\n",
        "failed", "process 4711 failed: GPU lost: Xid 79 of the GPU at 0000:3b:00, reported by the driver (job.log:1)",
    ),
    "a GPU with a number": (
        "kernel: NVRM: Xid (PCI:0000:3b:00): 94, pid=4711, name=python3, Contained error\n",
        "failed", "process 4711 failed: Xid 94 of the GPU at 0000:3b:00, reported by the driver (job.log:1)",
    ),
}  # fmt: skip


def verdict(tmp_path: Path, text: str) -> Analysis:
    (tmp_path / "job.log").write_text(text)
    return analyse(load([tmp_path / "job.log"]))


def test_the_end_of_a_traceback_is_waited_for_while_the_job_is_watched(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(CASES["a process of a process"][0])
    dataset = load([tmp_path / "job.log"])
    waiting = analyse(dataset, lambda freeze: replace(freeze, watched=True, stopped=False))
    assert not waiting.is_critical
    assert analyse(dataset, lambda freeze: replace(freeze, watched=True, stopped=None)).is_critical


@pytest.mark.parametrize("name", CASES)
def test_the_cause_behind_it_leads(tmp_path: Path, name: str) -> None:
    text, status, title = CASES[name]
    told = verdict(tmp_path, text)
    assert told.status == status
    assert title in told.verdict


def test_who_only_prints_that_nccl_refused_is_not_accused(tmp_path: Path) -> None:
    for text in (REFUSED, REFUSED + NAMED):
        assert all(not finding.culprit_ranks for finding in verdict(tmp_path, text).findings)
