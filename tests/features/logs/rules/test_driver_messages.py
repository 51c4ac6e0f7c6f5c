"""Messages of drivers over several lines, and errors that processes and cards meet at their start."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

LOST = (
    "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    "               NVRM: fallen off the bus and is not responding to commands.\n"
)
XID = (
    "Nov 20 04:11:02 gpu12 kernel: NVRM: Xid (PCI:0000:5e:00):\n"
    "Nov 20 04:11:02 gpu12 kernel: NVRM: 79, pid=4711, name=python, GPU has fallen off the bus.\n"
)
RING = (
    "[ 2679.300365] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=5, emitted seq=7\n"
    "[ 2679.300490] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* Process information: process trainer pid 10728 thread x "
    "pid 10762\n"
    "[ 2679.300601] amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!\n"
)
HEALTH = (
    "Nov 20 04:11:02 gpu12 kernel: mlx5_core 0000:3b:00.0: print_health_info:428:(pid 0): Health issue observed, "
    "firmware internal error, severity(3) ERROR:\n"
    "Nov 20 04:11:02 gpu12 kernel: mlx5_core 0000:3b:00.0: print_health_info:432:(pid 0): assert_var[0] 0x00000000\n"
)
LISTEN = (
    "[ERROR] HCCL(271,python3):2025-07-23-03:47:57.070.463 [hccl_socket.cc:100] [271][HcclSocket][Listen] socket "
    "type[1], listen on ip[192.168.20.160] and specific port[16666] fail. Please check the port status.\n"
    "[ERROR] HCCL(271,python3):2025-07-23-03:49:57.177.194 [hccl_socket_manager.cc:778] [273][Wait][LinkEstablish]wait "
    "socket establish timeout, role[1] rank[12] timeout[120]\n"
)
THREADS = (
    "(WorkerDict pid=27497) [2025-03-04 19:28:30,014 E 27497 27497] logging.cc:113: Unhandled exception: "
    "N5boost10wrapexceptINS_6system12system_errorEEE. what(): thread: Resource temporarily unavailable [system:11]\n"
)


def analysed(tmp_path: Path, text: str) -> Analysis:
    (tmp_path / "kern.log").write_text(text)
    return analyse(load([tmp_path]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LOST, "the GPU at 0000:b3:00 failed: GPU lost"), (XID, "process 4711 on gpu12 failed: GPU lost"),
        (RING, "process 10728"), (RING, "the driver resets the GPU"), (HEALTH, "the port at 0000:3b:00 on gpu12"),
        (LISTEN, "HCCL cannot listen on its port"), (THREADS, "no more threads or processes may start"),
    ],
)  # fmt: skip
def test_the_lines_of_a_message_are_one(tmp_path: Path, text: str, words: str) -> None:
    assert words in analysed(tmp_path, text).verdict


def test_a_message_without_its_end_names_no_fault(tmp_path: Path) -> None:
    first = LOST.splitlines(keepends=True)[0]
    assert "0000:b3:00 failed" not in analysed(tmp_path, first + XID).verdict
