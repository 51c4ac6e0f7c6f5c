"""Lines that are only counted, and those that look like them and tell something."""

from __future__ import annotations

import pytest

from rankscope.features.logs.read.bulk_lines import MessageShapes, without_time
from tests.features.logs.read.lines import COMM, info, life, log

NOISE = [
    "Could not get speed from /sys/class/net/lo/speed. Defaulting to 10 Gbps.",
    "Connected to proxy localRank {0} -> connection 0x7f{0}a2c00",
    "New proxy send connection {0} from local rank {0}, transport 2",
    "Channel 0{0}/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "Connected all rings, use ring PXN 0 GDR 1",
]


def test_noise_is_counted_and_nothing_more() -> None:
    content = log(*(info(text.format(n)) for n in range(10) for text in NOISE))
    assert (content.counts["INFO"], content.counts["records"], content.counts["lines"]) == (50, 50, 50)
    assert content.processes[0].records == 50
    # but for the first channel over each transport
    assert [(row.name, row.value, row.line) for row in content.settings] == [("transport", "P2P/CUMEM", 4)]
    assert not content.events and not content.comms


def test_the_last_quiet_line_of_a_thread_is_the_text_of_a_failure() -> None:
    content = log(
        info("New proxy recv connection 3 from local rank 1, transport 2", tid=7),
        info("socketProgressOpt: abort called", tid=9),
        info("misc/socket.cc:64 -> 3", tid=9),
    )
    (warned,) = content.warnings
    assert (warned.text, warned.line) == ("socketProgressOpt: abort called", 2)
    assert warned.trail == ["misc/socket.cc:64 -> 3"]


@pytest.mark.parametrize("number", [7, 9, 11])
def test_a_word_with_numbers_is_found_behind_a_shape_without_it(number: int) -> None:
    lines = [info("task 3 ended: Signal 2 (SIGINT)"), info(f"task 4 ended: Signal {number} (SIGKILL)")]
    shapes = MessageShapes(lambda: ["Signal 9 (SIGKILL)"])
    kinds = [shapes.kind(line.split("INFO ", 1)[1].encode()) for line in lines]
    # another number looks the same without it: it is read the slow way, never the other way round
    assert kinds == ["other", ""]


@pytest.mark.parametrize(
    "message",
    [
        life(), "NCCL_ALGO set by environment to Ring", "NCCL version 2.28.9+cuda12.9", "Using network IB",
        "init.cc:1 -> 6", "done [rank3]:[E1120 12:34:56.789 a.cpp:1]", "x node:1:2 [0] NCCL INFO y",
        f"AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 1 datatype 7 op 0 root 0 comm {COMM}",
    ],
)  # fmt: skip
def test_what_tells_something_is_not_quiet(message: str) -> None:
    assert MessageShapes(lambda: ["CUDA out of memory"]).kind(message.encode()) == ""


def test_times_of_lines_do_not_tell_writers_apart() -> None:
    fronts = {without_time(f"[2026-11-22 08:41:{s:02d}.123456] vm:1:2 [0]".encode())[0] for s in range(60)}
    assert fronts == {b"vm:1:2 [0]"}
    assert without_time(b"[3] vm:1:2 [0]") == (b"[3] vm:1:2 [0]", None)
