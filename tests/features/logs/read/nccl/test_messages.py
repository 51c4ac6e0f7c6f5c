"""Settings, versions, warnings and what else is read."""

from __future__ import annotations

import pytest

from tests.features.logs.read.lines import coll, info, log


def test_settings_and_versions() -> None:
    content = log(
        "NCCL version 2.20.5+cuda12.4",
        info("NCCL_DEBUG set by environment to INFO"),
        info("NCCL_IB_TIMEOUT set by environment to 22."),
        info("NCCL_IB_TIMEOUT set by environment to 22."),
        info("NCCL version 2.22.3+cuda12.5", pid=4200),
        info("cudaDriverVersion 12020"),
        info("Using network AWS Libfabric"),
        info("Bootstrap: Using eth0:10.0.0.1<0>"),
        "RCCL version : 2.18.6-HEAD:7ce2c8c",
    )
    assert [(s.process, s.name, s.value) for s in content.settings] == [
        (-1, "version", "NCCL 2.20.5+cuda12.4"), (0, "NCCL_DEBUG", "INFO"), (0, "NCCL_IB_TIMEOUT", "22"),
        (1, "version", "NCCL 2.22.3+cuda12.5"), (0, "cuda-driver", "12020"), (0, "network", "AWS Libfabric"),
        (0, "bootstrap", "eth0:10.0.0.1<0>"), (-1, "version", "RCCL 2.18.6-HEAD:7ce2c8c"),
    ]  # fmt: skip


FORMS = {
    "2.4": "node-1:41:42 [0] misc/socket.cc:49 NCCL WARN Net : Call to recv failed",
    "2.30": "node-1:41:42 [0] misc/socket.cc:49 (ncclSocketProgress) NCCL WARN Net : Call to recv failed",
    "stamped": "[2026-04-22 21:34:20] node-1:41:42 [0] misc/socket.cc:49 NCCL WARN Net : Call to recv failed",
    "labelled": "[1,2]<stdout>:node-1:41:42 [0] misc/socket.cc:49 NCCL WARN Net : Call to recv failed",
    "before 2.0": "node-1:41:42 [0] misc/socket.cc:49 WARN Net : Call to recv failed",
}


@pytest.mark.parametrize("form", FORMS)
def test_warnings_with_their_trail(form: str) -> None:
    content = log(
        "", FORMS[form], info("misc/socket.cc:749 -> 6", pid=41, tid=42), info("other", pid=41, tid=43),
        info("transport.cc:33 -> 6 [Async thread]", pid=41, tid=42), info("init.cc:9 -> 3", pid=41, tid=99),
    )  # fmt: skip
    first, second = content.warnings
    assert first.place.startswith("misc/socket.cc:49")
    assert (first.level, first.text, first.tid) == ("WARN", "Net : Call to recv failed", 42)
    assert first.trail == ["misc/socket.cc:749 -> 6", "transport.cc:33 -> 6 [Async thread]"]
    assert (second.level, second.trail) == ("INFO", ["init.cc:9 -> 3"])


def test_an_error_that_was_no_warning_has_the_text_before_it() -> None:
    content = log(info("Call to connect returned Connection refused"), info("misc/socket.cc:1 -> 2"))
    assert [(w.level, w.text) for w in content.warnings] == [("INFO", "Call to connect returned Connection refused")]


def test_what_is_only_counted() -> None:
    content = log(
        info("Channel 00/16 : 0 1 2 3"), info("Trees [0] 1/-1/-1->0->-1"), info("AllReduce: 4 Bytes -> Algo 1 proto 2"),
        info("4 Bytes -> Algo 1 proto 2 time 3.5"), info("Launch mode Parallel"),
    )  # fmt: skip
    assert (content.counts["channels"], content.counts["tuning"], content.counts["other"]) == (2, 2, 1)


def test_traces_of_plugins_and_rccl_times() -> None:
    content = log(
        "node-1:41:42 [2] 99.114184 nccl_net_ofi_init:1396 NCCL TRACE NET/OFI Provider",
        "node-1:41:42 [1] 1558545003174220 NCCL INFO Launch mode Parallel",
        "node-1:41 NCCL DIAG === NCCL Diagnostics ===",
    )
    assert [(p.host, p.pid, p.records) for p in content.processes] == [("node-1", 41, 3)]


def test_phantoms_of_hosts() -> None:
    lines = [info(f"message {i}", "x300node7", 77) for i in range(20)]
    glued = ["node7:77:77 [0] NCCL INFO message", "Chax300node7:77:77 [0] NCCL INFO message"]
    other = ["othernode:77:77 [0] NCCL INFO message"]
    content = log(*glued[:1], *lines, *glued[1:], *other)
    assert [(p.host, p.records, p.torn_at is not None) for p in content.processes] == [
        ("x300node7", 22, True), ("othernode", 1, False),
    ]  # fmt: skip


def test_a_counted_line_may_have_another_record_in_it() -> None:
    glued = info("Channel 03/0 : 3[3") + info(coll(), pid=4200)
    watchdog = (
        "[rank3]:[E ProcessGroupNCCL.cpp:563] [Rank 3] Process group watchdog thread terminated with exception: x"
    )
    content = log(info("Channel 00 : 0 1"), glued, info("Trees [0] 1") + watchdog)
    assert [content.processes[c.process].pid for c in content.comms] == [4200]
    assert content.processes[0].torn_at == len(info("Channel 00 : 0 1")) + 1
    assert {event.rank for event in content.events} == {3}
    assert (content.counts["channels"], content.counts["torn"]) == (3, 2)
