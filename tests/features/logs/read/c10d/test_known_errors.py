"""The table of known errors, and what it finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankscope.features.logs.read.c10d.known_errors import (
    ROLES,
    packaged_table,
    read_table,
    required,
)
from rankscope.features.logs.read.c10d.recogniser import Recogniser
from rankscope.features.logs.read.log_record import Event
from rankscope.parsers.user_tables import TableError, merge_tables
from tests.features.logs.read.c10d.lines import everything, records, values

HEADER = "id\trole\tpattern\tmeaning\n"
OWN = HEADER + "disk\troot\tlustre: (?:evicted|timeout) client\tThe file system went away\n"
SAID = {
    "peer-closed": "n:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n<51159>",
    "nccl-out-of-memory": "n:1:2 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'",
    "host-allocation": "RuntimeError: [enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate "
    "memory: you tried to allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)",
    "cuda-out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
    "duplicate-gpu": "init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000",
    "service-closed": "n:1:2 [0] NCCL INFO [Service thread] Connection closed by localRank 0",
    "connection-refused": "n:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying",
    "connection-timeout": "n:1:2 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out",
    "shared-memory": "shm.h:28 NCCL WARN Call to posix_fallocate failed: No space left on device",
    "ib-completion": "NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189> with error 4, opcode 5327",
    "host-out-of-memory": "[1.2] Out of memory: Killed process 99 (python)",
    "xid": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
    "agent-store-port": "The server socket on 29500 has failed to bind. TORCHELASTIC_USE_AGENT_STORE is enabled so",
    "ddp-no-parameters": "DDP expects same model across all ranks, but Rank 1 has 70 params, while rank 0 has "
    "inconsistent 0 params",
    "ddp-parameters": "DDP expects same model across all ranks, but Rank 1 has 70 params, while rank 0 has "
    "inconsistent 64 params",
    "store-id-timeout": "[1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value "
    "store by key '0', but store->get('0') got error: Socket Timeout",
    "store-wait": "[c10d] waitForInput: socket SocketImpl(fd=79, addr=[n]:4, remote=[n]:2) timed out after 1800000ms",
    "nccl-aborted": "RuntimeError: NCCL communicator was aborted on rank 3.",
    "hccl-timeout": "EI0006: [PID: 12] Getting socket times out. Reason: Remote Rank did not send the data in time.",
    "gloo-refused": "RuntimeError: [/x/gloo/transport/tcp/pair.cc:799] connect [10.3.7.1]:13195: Connection refused",
    "ray-memory": "(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed",
    "horovod-stalled": "W horovod/common/operations.cc:588] HorovodBroadcast_kernel_0 [missing ranks: 1, 3]",
    "cancelled": "slurmstepd: error: *** STEP 6053.0 ON n1 CANCELLED AT 2026-04-23T12:18:08 ***",
    "time-limit": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T03:12:41 DUE TO TIME LIMIT ***",
    "preempted": "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-25T03:12:41 DUE TO PREEMPTION ***",
    "node-failure": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-25T03:12:41 DUE TO NODE FAILURE, SEE ***",
    "memory-limit": "    Reason:       OOMKilled",
    "dump-begins": "[Rank 2] ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1",
    "ib-completion-old": "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
    "hccl-inconsistent": "EI0005: The arguments for collective communication are inconsistent between ranks",
    "hccl-stream-timeout": "rtDeviceSynchronize execute failed, reason=[task timeout][FUNC:FuncErrorReason]",
    "store-unreachable": "[c10d] The client socket has failed to connect to any network address of (node-1, 29500).",
    "host-unresolved": "The IPv6 network addresses of (node-1, 29500) cannot be retrieved (gai error: -2 - Name)",
    "host-not-found": "ValueError: host not found: Name or service not known",
    "xid-cleanup": "NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=python3, Ch 00000001 caused by previous Xid 149",
    "amdgpu-reset": "amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!",
    "hccl-listen": "listen on ip[192.168.20.160] and specific port[16666] fail. Please check the port status",
    "no-threads": "RuntimeError: can't start new thread",
    "ib-open": "node1:80746:80746 [3] transport/net_ib.cc:149 NCCL WARN NET/IB : Unable to open device mlx5_59",
    "gpu-lost": "NVRM: fallen off the bus and is not responding to commands.",
    "disk-full": "checkpoint write retry: [Errno 28] No space left on device",
    "nccl-argument": "RuntimeError: NCCL error in: /x/c10d/NCCLUtils.hpp:82, invalid argument, NCCL version 2.4.8",
    "horovod-shut-down": "Aborted: Horovod has been shut down. This was caused by an exception on one of the ranks",
    "others-failed": "ValueError: TP rank 1 could finish, but there are other ranks that didn't finish loading.",
    "ended-from-outside": "WARNING:torch.distributed.elastic.agent.server.api:Received 15 death signal, shutting down",
    "wrong-sizes": "RuntimeError: world_size (8) is not divisible by expert_tensor_model_pipeline_parallel size (16)",
    "data-loader": "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.",
}


def known(text: str) -> list[Event]:
    return [event for event in everything(text) if event.kind == "known-error"]


@pytest.mark.parametrize("name", SAID)
def test_a_line_and_its_meaning(name: str) -> None:
    (event,) = known(SAID[name])
    assert name.removesuffix("-old") in (event.values["id"], *event.values["also"])


def test_a_root_outranks_what_else_is_in_its_line() -> None:
    (event,) = known("Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error")
    assert values(event, "id", "role", "accuses", "also") == ("ecc", "root", "self", ["watchdog-ended"])


def test_who_prints_a_root_is_not_always_accused() -> None:
    (late,) = known("[rank0]:[E X.cpp:1] [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms")
    assert (late.rank, *values(late, "role", "accuses", "named")) == (0, "root", "named", [1, 3])
    (mismatch,) = known("Detected mismatch between collectives on ranks. Rank 1 is running collective: X")
    assert values(mismatch, "role", "accuses", "named") == ("root", "nobody", [])


def test_a_line_that_tells_its_own_rank() -> None:
    (event,) = known("AssertionError: Rank 11: found NaN in local grad norm in backward pass. Device: 3")
    assert (event.rank, *values(event, "role", "accuses")) == (11, "root", "self")


def test_a_line_that_tells_its_process() -> None:
    (event,) = known(
        "EI0002: [PID: 2969] 2026-10-11-15:09:34.713.335 The wait execution of the Notify register times out"
    )
    assert values(event, "id", "pid") == ("hccl-timeout", 2969)
    (fault,) = known("NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error")
    assert values(fault, "id", "pid") == ("xid", 1234)


def test_code_in_a_traceback_is_no_message() -> None:
    said = known(
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/job/train.py", line 3, in main\n'
        '[rank1]:     raise RuntimeError("CUDA out of memory")\n'
        "[rank1]: RuntimeError: Connection reset by peer"
    )
    assert [(e.line, e.values["id"]) for e in said] == [(4, "peer-reset")]


def test_nothing_is_found_where_nothing_is() -> None:
    assert known("step 5 loss 2.31 | 1.2 GiB free | connection pool ready\nINFO: out of 5 epochs, memory fine") == []


def test_records_one_at_a_time_and_all_at_once_are_the_same() -> None:
    text = "\n".join([*SAID.values(), "step"] * 10)
    whole, single = Recogniser(), Recogniser()
    at_once = whole.feed_all(records(text)) + whole.finish()
    one_by_one = [event for record in records(text) for event in single.feed(record)] + single.finish()
    assert sorted(at_once, key=str) == sorted(one_by_one, key=str)
    assert len([e for e in at_once if e.kind == "known-error"]) == 10 * len(SAID)


def test_every_entry_of_the_package() -> None:
    table = packaged_table()
    assert len(table) > 80
    for error in table:
        assert error.meaning.endswith(".")
        assert error.role in ROLES
        assert error.next or error.role == "noise"
        assert re.fullmatch(r"(https://\S+)?", error.source)
        assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", error.id)


def test_a_users_own_table(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("# ours\n" + OWN + "xid\tnoise\tNVRM: Xid\tknown here\n")
    table = merge_tables(packaged_table(), read_table(tmp_path / "own.tsv"))
    recogniser = Recogniser(table)
    said = recogniser.feed_all(records("lustre: evicted client 4\nNVRM: Xid (PCI): 13\n" + SAID["duplicate-gpu"]))
    assert [values(e, "id", "role") for e in said if e.kind == "known-error"] == [
        ("disk", "root"), ("xid", "noise"), ("duplicate-gpu", "root"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty: the first line names the columns"),
        ("id\tpattern\n", ":1: no column 'role'"),
        ("id\trole\tpattern\tcolour\n", ":1: unknown column 'colour'"),
        (HEADER + "a\tcause\tword word\n", ":2: role 'cause' is none of root, victim, context, noise"),
        (HEADER + "a\troot\t\n", ":2: no pattern"),
        (HEADER + "\troot\tword\n", ":2: no id"),
        (HEADER + "a\troot\tword (\n", ":2: pattern: "),
        (HEADER + "a\troot\t(?i)word\n", ":2: pattern: flags and look-around are not supported"),
        (HEADER + "a\troot\tword \\x41\n", r":2: pattern: escape \x is not supported"),
        (HEADER + "a\troot\tword [a[bc]]\n", ":2: pattern: a set within a set is not supported"),
        (HEADER + "a\troot\tword \\b{start}\n", r":2: pattern: write \{ for a brace"),
        (HEADER + "a\troot\tword (?=x)\n", ":2: pattern: "),
        (HEADER + "a\troot\t[Ww]o.*\n", ":2: pattern: every alternative needs 4 plain characters"),
        (HEADER + "a\troot\tword|x+\n", ":2: pattern: every alternative needs 4 plain characters"),
        (HEADER + "a\troot\tword\nb\troot\tword\na\troot\tword\n", ":4: id 'a' is there twice"),
        (HEADER + "a\troot\tword\tm\textra\n", ":2: 5 cells for 4 columns"),
        ("id\trole\tpattern\taccuses\na\troot\tword\tnamed\n", ":2: who accuses 'named' has a group (?P<ranks>...)"),
        ("id\trole\tpattern\taccuses\na\troot\tword\tall\n", ":2: accuses 'all' is none of self, named, nobody"),
        (HEADER + f"a\troot\t{'w' * 501}\n", ":2: pattern longer than 500 characters"),
    ],
)
def test_a_table_that_is_wrong_says_where(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text(text)
    with pytest.raises(TableError, match=re.escape(str(path))) as caught:
        read_table(path)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "none.tsv")
    (tmp_path / "bytes.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TableError, match="not UTF-8"):
        read_table(tmp_path / "bytes.tsv")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("out of memory", ("out of memory",)),
        (r"Rank \d+ failed (?:hard|badly)", (" failed ",)),
        ("abcd|efgh+ij|abcd", ("abcd", "efgh")),
        (r"\[Rank 0\]: late", ("[Rank 0]: late",)),
        ("colou?rs of", ("rs of",)),
        ("abcdx*efghi", ("efghi",)),
        ("abcdx{2,3}", ("abcd",)),
        ("abcd(x|y)?efghi", ("efghi",)),
        (r"line\twith\ttabs", ("line",)),
        (r"[abc\]d]word[^]]", ("word",)),
        (r"(a(b|c)d|inner words)outer", ("outer",)),
        (r"end\.$", ("end.",)),
    ],
)
def test_the_words_of_a_pattern(pattern: str, words: tuple[str, ...]) -> None:
    assert required(pattern) == words


def test_a_pattern_of_the_users_takes_time_linear_in_the_line(tmp_path: Path) -> None:
    """A backtracking matcher would need years for it."""
    (tmp_path / "own.tsv").write_text(HEADER + "slow\troot\tword(?:(?:a+)+)+!\n")
    recogniser = Recogniser(read_table(tmp_path / "own.tsv"))
    assert recogniser.feed_all(records("word" + "a" * 8000)) == []
