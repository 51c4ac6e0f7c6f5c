"""Calls of NCCL that failed: what is told of warnings that no table knows, and of those that are only advice."""

from __future__ import annotations

from pathlib import Path

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from tests.features.logs.read.lines import info, life

OUT = (info("init.cc:1263 -> 2", tid=7), info("group.cc:70 -> 2 [Async thread]", tid=7))


def warn(text: str, place: str = "misc/thing.cc:12", pid: int = 4100) -> str:
    return f"\nnode-1:{pid}:7 [0] {place} NCCL WARN {text}"


def told(folder: Path, *lines: str) -> Analysis:
    (folder / "train.log").write_text("".join(f"{line}\n" for line in lines))
    return analyse(load([folder]))


def test_an_unknown_warning_whose_error_comes_out_of_nccl_is_told(tmp_path: Path) -> None:
    analysis = told(tmp_path, info("Using network IB"), warn("No gadget 17 in slot 4"), *OUT)
    assert analysis.status == "failed"
    assert analysis.verdict.startswith(
        "a call of NCCL failed: No gadget 17 in slot 4, reported by process 4100 on node-1"
    )
    found = analysis.findings[0]
    assert (found.root_cause, found.confidence, found.culprit_ranks, found.culprits) == (True, "low", (), ())
    assert "misc/thing.cc:12" not in analysis.verdict and "init.cc:1263" in found.next_steps[0]


def test_advice_is_no_failure(tmp_path: Path) -> None:
    advice = warn('Missing "iommu=pt" from the command line of the kernel, which can lead to a hang!')
    analysis = told(tmp_path, advice, info(life()), info("include/net.h:24 -> 2"))
    assert analysis.status == "unknown" and not analysis.findings


def test_an_error_that_stays_inside_may_have_been_made_good(tmp_path: Path) -> None:
    analysis = told(tmp_path, warn("No gadget in slot 4"), info("transport/p2p.cc:590 -> 1", tid=7))
    assert analysis.status == "unknown"
    assert [(f.severity, f.root_cause) for f in analysis.findings] == [("warning", False)]
    assert "a call inside NCCL failed: No gadget in slot 4" in analysis.verdict


def test_a_known_cause_goes_before_what_nobody_knows(tmp_path: Path) -> None:
    analysis = told(
        tmp_path, warn("No gadget in slot 4"), *OUT, warn("Failed to CUDA calloc 6291456 bytes", pid=4103),
        info("init.cc:1 -> 1", pid=4103, tid=7),
    )  # fmt: skip
    assert "out of memory" in analysis.verdict and "gadget" not in analysis.verdict


def test_a_lost_connection_is_told_where_nothing_else_is(tmp_path: Path) -> None:
    lost = warn("socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort")
    analysis = told(tmp_path, lost, *OUT)
    assert analysis.status == "failed"
    assert "connection refused or lost" in analysis.verdict and "do not show" in analysis.verdict
    assert not any(f.root_cause for f in analysis.findings)


def test_calls_without_any_text_are_told_by_their_place(tmp_path: Path) -> None:
    calls = [info(f"{place} -> 3", tid=7) for place in ("graph/paths.cc:312", "init.cc:778", "group.cc:72")]
    analysis = told(tmp_path, info("Setting affinity for GPU 2 to ffff", tid=7), *calls)
    assert "failed in process 4100 on node-1 at graph/paths.cc:312 (internal error)" in analysis.verdict
    teardown = told(tmp_path, info(life("Abort COMPLETE")), info("misc/socket.cc:47 -> 3", tid=7))
    assert teardown.status == "unknown"


def test_an_unreachable_address_that_ends_a_call_is_a_failure(tmp_path: Path) -> None:
    text = "socketPollConnect: Connect to 10.0.0.4<5> returned 113(No route to host) errno 115"
    assert told(tmp_path, warn(text)).status == "unknown"
    assert told(tmp_path, warn(text), *OUT).status == "failed"


def test_who_wrote_is_not_a_file_of_the_source(tmp_path: Path) -> None:
    line = "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls"
    analysis = told(tmp_path, info("cudaDriverVersion 12040"), line)
    assert "1247 on" not in analysis.verdict and "mismatched collective" in analysis.verdict


def test_what_fails_once_ranks_gave_up_is_no_cause(tmp_path: Path) -> None:
    timeout = (
        "[rank1]:[E1120 22:10:10.375750231 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=19, OpType=ALLREDUCE, NumelIn=6, NumelOut=6, Timeout(ms)=600000) ran for 600086 "
        "milliseconds before timing out."
    )
    late = told(tmp_path, timeout, warn("No gadget in slot 4"), *OUT)
    assert "gave up waiting" in late.verdict and "gadget" not in late.verdict
    early = told(tmp_path, warn("No gadget in slot 4"), *OUT, timeout)
    assert early.verdict.startswith("a call of NCCL failed: No gadget in slot 4")


RAS = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

#0-0 (00c0ffee00c0ffee) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation {0}
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node n4
  Rank 13 -- GPU 5 managed by process 323033 on node n4
"""


def test_ras_names_the_few_but_counts_the_many(tmp_path: Path) -> None:
    ahead = told(tmp_path, RAS.format(640))
    assert "30 ranks of communicator #0-0 (00c0ffee00c0ffee) launched 640 AllGather" in ahead.verdict
    assert not any(f.culprit_ranks or f.candidates for f in ahead.findings)
    behind = told(tmp_path, RAS.format(642))
    assert "ranks 12,13 launched 641 AllGather, others up to 642" in behind.verdict
