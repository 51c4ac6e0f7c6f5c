"""Logs that hold no cause: what they tell all the same, and whom they do not accuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

WORK = "WorkNCCL(SeqNum={}, OpType={}, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600020 milliseconds before"
HEAD = "[rank{0}]:[E626 06:24:44.90388{0}913 ProcessGroupNCCL.cpp:616] "
STATUS = (
    "[PG ID 0 PG GUID 0(default_pg) Rank {0}] Exception (either an error or timeout) detected by watchdog at work: "
    "{1}, last enqueued NCCL work: {2}, last completed NCCL work: {3}."
)
BARRIER = "rank: {}, {}key: store_based_barrier_key:1 (world_size={}, worker_count={}, timeout=0:30:00)"
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'


def verdict(tmp_path: Path, text: str) -> Analysis:
    (tmp_path / "job.log").write_text(text)
    return analyse(load([tmp_path / "job.log"]))


def gave_up(rank: int, seq: int, op: str = "ALLREDUCE", done: int | None = None, ahead: int = 0) -> str:
    """Both lines of a rank that gave up."""
    work = f"[Rank {rank}] Watchdog caught collective operation timeout: {WORK.format(seq, op)} timing out."
    status = STATUS.format(rank, seq, seq + ahead, seq - 1 if done is None else done)
    return f"{HEAD.format(rank)}{work}\n{HEAD.format(rank)}{status}\n"


UNTOLD = {
    "all that speak had joined, and others may have no log": (
        "".join(gave_up(rank, 808, ahead=3) for rank in (0, 1, 2)),
        "hang", (
            "ranks 0-2 gave up waiting in allreduce #808 (job.log:1); these logs do not show which rank did not come"
        ),
    ),
    "one rank alone": (gave_up(0, 716), "hang", (
        "rank 0 gave up waiting in allreduce #716 (job.log:1); these logs do not show which rank"
    )),
    "counters without a work": (
        gave_up(2, 19) + HEAD.format(1) + STATUS.format(1, 19, 19, 18) + "\n",
        "hang", "ranks 1,2 gave up waiting in allreduce #19 (job.log:3)",
    ),
    "older torch tells ranks of a group": (
        "".join(
            f"[E ProcessGroupNCCL.cpp:475] [Rank {r}] Watchdog caught collective operation timeout: "
            f"{WORK.format(880, 'BROADCAST')} timing out.\n"
            for r in (6, 2, 4)
        ),
        "hang", "[Rank 2], [Rank 4] and [Rank 6] gave up waiting in broadcast #880",
    ),
    "who is asked for a dump": (
        HEAD.format(0) + "[PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to a collective timeout "
        "from  rank 13 and we will try our best to dump it. "
        "Last enqueued NCCL work: 12, last completed NCCL work: 10.This is most likely\n",
        "hang", (
            "rank 13 gave up waiting, as rank 0 was told (job.log:1); these logs do not show which rank did not come"
        ),
    ),
    "who dumps for a timeout of its own": (
        HEAD.format(3) + "[PG ID 2 PG GUID 7(tp) Rank 1] Received a dump signal due to a collective timeout from "
        "this local rank and we will try to dump it. Last enqueued NCCL work: 44, last completed NCCL work: 41.\n"
        + "".join(f"{HEAD.format(r)}[Rank {r}] Some NCCL operations have failed or timed out.\n" for r in (3, 5, 6)),
        "hang", "rank 3 gave up waiting in tp, with 41 of 44 works completed (job.log:1), and ranks 5,6 failed",
    ),
    "the words of a process that goes down": (
        HEAD.format(4) + "[Rank 4] To avoid data inconsistency, we are taking the entire process down.\n",
        "hang", (
            "rank 4 failed or timed out in a collective (job.log:1); these logs do not show which rank did not come"
        ),
    ),
    "the last words of a process": (
        HEAD.format(2) + "[PG ID 0 PG GUID 0(default_pg) Rank 2] Terminating the process after attempting to dump "
        "debug info, due to collective timeout or exception.\n",
        "hang", (
            "rank 2 failed or timed out in a collective (job.log:1); these logs do not show which rank did not come"
        ),
    ),
    "a dump that takes too long": (
        HEAD.format(2) + "[PG ID 0 PG GUID 0(default_pg) Rank 2] timed out after waiting for 15000ms Flight recorder "
        "dump in heartbeatMonitor\n",
        "hang", (
            "rank 2 failed or timed out in a collective (job.log:1); these logs do not show which rank did not come"
        ),
    ),
    "who sees that another dumps": (
        HEAD.format(6) + "[PG ID 0 PG GUID 0(default_pg) Rank 6] Observed flight recorder dump signal from another "
        "rank via TCPStore.\n",
        "hang", (
            "another rank failed or timed out in a collective, as rank 6 was told (job.log:1); these logs do not "
            "show which rank"
        ),
    ),
    "a signal beside an end that tells less": (
        HEAD.format(1) + "FlightRecorderHook: dumping trace on collective failure\nE1125 17:20:50.2 40990 torch/distri"
        "buted/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) local_rank: 1 (pid: 41) of binary: python3\n",
        "hang", "rank 1 failed or timed out in a collective (job.log:1)",
    ),
    "only the watchdog's end": (
        "".join(
            f"[{n}]:\n  time      : 2026-06-14_22:36:10\n  host      : n1\n  rank      : {n} (local_rank: {n})\n"
            f"  exitcode  : -6 (pid: 58{n})\n  error_file: <N/A>\n  traceback : Signal 6 received by PID 58{n}\n"
            for n in (0, 1)
        ).join(["Failures:\n", "=" * 40 + "\n"]) + HEAD.format(0) + "text\n",
        "failed", "ranks 0,1 ended with exit code -6 (job.log:2); these logs do not show why",
    ),
    "a connection that broke": (
        HEAD.format(5) + "[Rank 5] Collective " + WORK.format(7, "ALLREDUCE") + " raised the following async "
        "exception: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5\n",
        "failed", (
            "rank 5: an error that NCCL reported to the watchdog (job.log:1); these logs do not"
        ),
    ),
    "the store that went away": (
        "[rank2]:[W810 23:02:42.7 ProcessGroupNCCL.cpp:1826] [PG ID 0 PG GUID 0 Rank 2] Failed to check the "
        "\"should dump\" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe\n",
        "unknown", "no failure in these logs, but: rank 2 lost the store, whose process had ended (job.log:1)",
    ),
    "a connection of something else": (
        "[rank0]: wandb: Network error (ConnectionError), entering retry loop: Connection reset by peer\n",
        "unknown", "no failure in these logs, but: rank 0: the other end broke the connection (job.log:1)",
    ),
    "a connection that is tried again": (
        "n:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying\n",
        "unknown", "no failure in these logs, but: process 1 on n (GPU 0): connection refused (job.log:1)",
    ),
    "a connection of NCCL": (
        "n:1:2 [0] misc/socket.cc:30 NCCL WARN Call to recv from 10.1.4.3<49> failed : Broken pipe\n",
        "failed", (
            "process 1 on n (GPU 0): the other end broke the connection (job.log:1); these logs do not show what "
            "failed first"
        ),
    ),
    "the first rank of a group is late": (
        TRACE + "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
        "key-value store by key '0', but store->get('0') got error: Socket Timeout\n",
        "hang", (
            "[Rank 1] gave up waiting for [Rank 0] of its group to set up NCCL (job.log:4); these logs do not show "
            "why it did not come"
        ),
    ),
    "a launcher's last command is not who ended": (
        "[2026-03-20 20:31:29,269] [ERROR] [launch.py:321:sigkill_handler] ['python', '--local_rank=7'] exits with "
        "return code = 1\n",
        "failed", "a process ended with exit code 1 (job.log:1); these logs do not show why",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTOLD)
def test_nobody_is_accused(name: str, tmp_path: Path) -> None:
    text, status, begins = UNTOLD[name]
    found = verdict(tmp_path, text)
    assert found.status == status, found.verdict
    assert found.verdict.startswith(begins)
    assert found.culprits == ()


def test_who_gave_up_in_two_groups_is_named_once(tmp_path: Path) -> None:
    status = "failure detected by watchdog at work sequence id: {} PG status: last enqueued work: 19, "
    status += "last completed work: 14\n"
    found = verdict(tmp_path, "".join(HEAD.format(3) + status.format(number) for number in (15, 18)))
    assert found.verdict.startswith(
        "rank 3 gave up waiting at #15 and at #18 (job.log:1); these logs do not show which rank"
    )


def test_counters_do_not_tell_a_dead_device_from_another_collective(tmp_path: Path) -> None:
    found = verdict(tmp_path, gave_up(1, 121) + gave_up(0, 122, "BROADCAST"))
    assert found.verdict.startswith(
        "rank 1 is stuck in all_reduce #121 of default_pg, and rank 0 went past that number"
    )
    assert found.culprits == ()


def test_who_is_alone_behind_is_named(tmp_path: Path) -> None:
    found = verdict(tmp_path, gave_up(1, 121) + "".join(gave_up(rank, 122) for rank in (0, 2, 3)))
    assert found.culprits == (1,)


def test_who_never_came_to_start(tmp_path: Path) -> None:
    waits = "Waiting in store based barrier to initialize process group for " + BARRIER.format(0, "", 3, 1) + "\n"
    late = "RuntimeError: Timed out initializing process group in store based barrier on "
    found = verdict(tmp_path, waits + "".join(f"{late}{BARRIER.format(rank, 'for ', 3, 2)}\n" for rank in (0, 2)))
    assert (found.verdict.split(" (")[0], found.culprits) == ("rank 1 never reached init_process_group", (1,))
    (tmp_path / "few").mkdir()
    few = verdict(tmp_path / "few", f"{late}{BARRIER.format(4, 'for ', 8, 5)}\n")
    assert (few.verdict.split(" (")[0], few.culprits) == ("3 of 8 ranks never reached init_process_group", ())


def test_more_processes_than_ranks(tmp_path: Path) -> None:
    found = verdict(
        tmp_path, "Waiting in store based barrier to initialize process group for " + BARRIER.format(0, "", 4, 8) + "\n"
    )
    assert found.verdict.startswith("8 processes came to set up a group of 4 (job.log:1)")
    assert found.culprits == ()


@pytest.mark.parametrize(
    ("missing", "culprits"), [(("1", "1, 3"), (1,)), (("1", "2"), ())], ids=["one misses in all", "each waits"]
)
def test_whom_horovod_waits_for(missing: tuple[str, ...], culprits: tuple[int, ...], tmp_path: Path) -> None:
    lines = [
        f"[1,0]<stderr>:[2026-04-13 13:55:31.8: W horovod/common/operations.cc:588] Op_{i} [missing ranks: {who}]\n"
        for i, who in enumerate(missing)
    ]
    found = verdict(tmp_path, "".join(lines))
    assert (found.status, found.culprits) == ("hang" if culprits else "mismatch", culprits)


def test_a_worker_that_died_without_a_word(tmp_path: Path) -> None:
    died = "(EngineCore pid=2) ERROR 08-25 12:24:19 [executor.py:146] Worker proc VllmWorker-1 died unexpectedly.\n"
    found = verdict(tmp_path, died)
    assert (found.verdict, found.culprits) == ("rank 1 failed: died unexpectedly (job.log:1)", (1,))
    (tmp_path / "late").mkdir()
    waited = verdict(tmp_path / "late", gave_up(0, 7) + gave_up(1, 7) + died)
    assert waited.culprits == ()


def test_an_exception_and_the_message_behind_a_prefix_are_one(tmp_path: Path) -> None:
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    text = f"[2026-08-13 02:01:56 TP0] Scheduler hit an exception: {TRACE}{error}"
    found = verdict(tmp_path, text)
    assert found.verdict == "rank 0 failed: uncorrectable memory error of the GPU (job.log:1)"


def test_a_few_that_speak_are_no_majority_of_those_that_may_exist(tmp_path: Path) -> None:
    others = "".join(gave_up(rank, 70, "REDUCE") for rank in (11, 12, 14))
    found = verdict(tmp_path, gave_up(6, 70) + others)
    assert found.verdict.startswith("ranks 6,11,12,14 disagree at #70 of default_pg: all_reduce / reduce")
    assert found.findings[0].confidence == "low"
    (tmp_path / "all").mkdir()
    most = verdict(tmp_path / "all", gave_up(2, 70) + "".join(gave_up(rank, 70, "REDUCE") for rank in (0, 1, 3)))
    assert (most.status, most.culprits) == ("mismatch", (2,))


def test_a_checkpoint_that_one_rank_could_not_write_is_told_by_all(tmp_path: Path) -> None:
    raised = TRACE + "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])\n"
    passed = "Traceback (most recent call last): (RANK 3)\n" + TRACE.split("\n", 1)[1] + "OSError: [Errno 28] No space "
    text = "".join(
        f"[rank{rank}]: {line}\n" for rank in (0, 1, 3) for line in f"{raised}{passed}left on device".splitlines()
    )
    found = verdict(tmp_path, text)
    assert found.culprits == (3,)
    assert found.verdict.startswith("rank 3 failed: disk full")


def test_a_traceback_behind_the_name_of_a_host(tmp_path: Path) -> None:
    text = "".join(f"worker-1: {line}\n" for line in f"{TRACE}ValueError: bad sample".splitlines())
    found = verdict(tmp_path, text + "worker-2: " + gave_up(9, 33))
    assert found.verdict.startswith("the process behind worker-1 failed: ValueError: bad sample (job.log:1)")


SIGNAL = (
    "[PG ID 0 PG GUID 0(default_pg) Rank {0}] Received a dump signal due to a collective timeout from this local rank "
    "and we will try our best to dump the debug info. Last enqueued NCCL work: 90, last completed NCCL work: 12."
)


def test_the_signal_of_a_timeout_alone_is_no_log_without_a_failure(tmp_path: Path) -> None:
    analysis = verdict(tmp_path, "".join(f"{HEAD.format(rank)}{SIGNAL.format(rank)}\n" for rank in (3, 1)))
    assert analysis.status == "hang" and not analysis.culprits
    assert analysis.verdict.startswith("ranks 1,3 gave up waiting in default_pg")
    others = SIGNAL.replace("from this local rank", "from  rank 1").format(4)
    assert "rank 4 gave up" not in verdict(tmp_path, f"{HEAD.format(4)}{others}\n").verdict


@pytest.mark.parametrize("end", ["[ra", "[rank3]:[E626 06:24:44.9", HEAD.format(3) + "[Rank 3] Watchdog caught coll"])
def test_nobody_is_accused_for_lines_that_were_cut_off(end: str, tmp_path: Path) -> None:
    made = "h:9:9 [0] NCCL INFO comm 0x5a rank 0 nranks 4 cudaDev 0 busId 41000 commId 0x7 - Init COMPLETE\n"
    text = made + "".join(gave_up(rank, 1, done=-1) for rank in range(3))
    whole = verdict(tmp_path, text)
    assert any(3 in (*f.culprit_ranks, *f.candidates) for f in whole.findings)
    cut = verdict(tmp_path, text + end)
    assert not any(3 in (*f.culprit_ranks, *f.candidates) for f in cut.findings)
    assert "cut at job.log:8" in cut.findings[0].explanation
    assert "first operation of the group" in cut.findings[0].explanation
