"""From the text of logs to the verdict, in the words of torch, NCCL and torchrun."""

from __future__ import annotations

from pathlib import Path

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

OUT_OF_MEMORY = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/job/train.py", line 88, in <module>
[rank3]:     main()
[rank3]:   File "/job/train.py", line 43, in step
[rank3]:     out = model(batch)
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB
"""
TIMEOUT = (
    "[rank{0}]:[E1120 22:10:10.37575023{0} ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=19, OpType=ALLREDUCE, NumelIn=6, NumelOut=6, Timeout(ms)=600000) ran for 600086 "
    "milliseconds before timing out.\n"
)
NCCL = """\
node1:3025:3048 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node1<51159>
node1:3025:3048 [0] NCCL INFO misc/socket.cc:749 -> 6

node1:3028:3152 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'
node1:3028:3152 [3] NCCL INFO transport/p2p.cc:204 -> 1
"""
SUMMARY = """\
W1120 22:11:00.187000 500 torch/elastic/multiprocessing/api.py:1028] Sending process 512 closing signal SIGTERM
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_22:11:00
  host      : node1
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 511)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 511
[2]:
  time      : 2026-11-20_22:11:00
  host      : node1
  rank      : 2 (local_rank: 2)
  exitcode  : -15 (pid: 512)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 512
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_22:11:00
  host      : node1
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 510)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
VICTIM = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 90, in <module>
[rank0]:     dist.all_reduce(x)
[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:33203
"""


def verdict(tmp_path: Path, **logs: str) -> Analysis:
    for name, text in logs.items():
        (tmp_path / f"{name}.log").write_text(text)
    return analyse(load([tmp_path]))


def test_an_out_of_memory_explains_the_timeouts_of_the_others(tmp_path: Path) -> None:
    log = OUT_OF_MEMORY + "".join(TIMEOUT.format(rank) for rank in (0, 1, 2))
    found = verdict(tmp_path, train=log)
    assert (found.status, found.culprits) == ("failed", (3,))
    assert found.verdict == "rank 3 failed: CUDA out of memory (train.log:1); 3 ranks wait or were killed"
    assert [f.kind for f in found.findings if f.root_cause] == ["rank-failed"]


def test_the_process_that_ran_out_of_memory_outranks_the_closed_connection_before_it(tmp_path: Path) -> None:
    found = verdict(tmp_path, nccl=NCCL)
    root = found.findings[0]
    assert (root.kind, root.culprits[0].host, root.culprits[0].pid) == ("rank-failed", "node1", 3028)
    assert found.verdict.startswith("process 3028 on node1 (GPU 3) failed: NCCL out of memory (nccl.log:4)")


def test_a_kill_outranks_whom_torchrun_calls_the_root_cause(tmp_path: Path) -> None:
    found = verdict(tmp_path, train=VICTIM + SUMMARY)
    assert (found.status, found.culprits) == ("failed", (1,))
    assert "SIGKILL" in found.verdict


def test_timeouts_alone_are_one_verdict_that_accuses_nobody(tmp_path: Path) -> None:
    found = verdict(tmp_path, train=TIMEOUT.format(0) + TIMEOUT.format(1))
    assert (found.status, found.culprits) == ("hang", ())
    assert sum(f.severity == "critical" for f in found.findings) == 1


def test_victims_alone_are_told_without_a_culprit(tmp_path: Path) -> None:
    found = verdict(tmp_path, train=VICTIM)
    assert (found.status, found.culprits) == ("failed", ())
    assert found.verdict.startswith("rank 0: the other end closed the connection (train.log:4)")
    assert found.verdict.endswith("these logs do not show what failed first")


def test_a_port_in_use_that_was_raised_is_the_cause(tmp_path: Path) -> None:
    raised = [*VICTIM.splitlines()[:3], "[rank0]: OSError: [Errno 98] Address already in use"]
    found = verdict(tmp_path, train="\n".join(raised) + "\n")
    assert (found.status, found.culprits) == ("failed", ())
    assert found.findings[0].root_cause
    assert "port in use" in found.verdict
    warned = verdict(tmp_path, train="[rank0]:[W1120 22:10:10.375750230 socket.cpp:2] [c10d] bind: EADDRINUSE\n")
    assert (warned.status, warned.findings[0].severity) == ("unknown", "warning")


DESYNC = """\
[rank0]:[E515 18:36:47.343377708 ProcessGroupNCCL.cpp:1937] Rank 0
\t - [0] Timeout at collective: ALLREDUCE, #21
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   - [3] finished collective #17, but didn't join collective #18 (count from 1)
\t - Snapshot of ranks' latest states:
\t   #17 finished ranks:
\t     [3] finished ALLREDUCE
\t   #21 started ranks:
\t     [0, 1, 2] started ALLREDUCE
[rank0]:[E515 18:36:47.343391940 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected \
by watchdog at work sequence id: 19 PG status: last enqueued work: 21, last completed work: 18
"""


def test_what_c10d_says_of_an_older_collective_leads(tmp_path: Path) -> None:
    found = verdict(tmp_path, train=TIMEOUT.format(0) + DESYNC)
    root = found.findings[0]
    # by the counters of rank 0 it would be #19
    assert (root.kind, root.culprit_ranks, root.seq) == ("missing-rank", (3,), 18)
    assert found.verdict.startswith("rank 3 finished #17 and never joined #18, while others wait in #21")
    assert root.waiting_ranks == (0, 1, 2)
