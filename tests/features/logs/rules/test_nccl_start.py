"""Logs that hold only the start of NCCL: what it chose, and what looks wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from rankscope.assemble.load import load

HEAD = "pod-{0}:20:20 [0] NCCL INFO "


def findings(tmp_path: Path, *messages: str) -> list[Finding]:
    text = "".join(f"{HEAD.format(0)}{message}\n" for message in messages)
    (tmp_path / "worker-0.log").write_text(text)
    return list(analyse(load([tmp_path])).findings)


@pytest.mark.parametrize(
    "line",
    [
        "NET/Socket : Using [0]lo:127.0.0.1<0> [1]net1:10.8.0.4<0>",
        "NET/Socket : Using [0]docker0:172.17.0.1<0> [1]net1:10.8.0.4<0>",
    ],
)
def test_a_first_interface_that_others_cannot_reach(line: str, tmp_path: Path) -> None:
    (found,) = findings(tmp_path, line)
    assert found.severity == "warning" and found.culprit_ranks == ()
    assert "NCCL_SOCKET_IFNAME=net1" in found.next_steps[0]


def test_what_was_chosen(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "NET/IB : No device found.", "NET/Socket : Using [0]net1:10.8.0.4<0>")
    assert found.severity == "info" and "network Socket; interface net1" in found.title
    assert "no InfiniBand card" in found.explanation


def test_a_loopback_alone_is_that_of_a_job_of_one_host(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "Bootstrap : Using lo:127.0.0.1<0>", "Using network Socket")
    assert found.severity == "info"
