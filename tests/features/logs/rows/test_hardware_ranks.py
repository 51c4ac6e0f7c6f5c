"""Lines of kernels, drivers and schedulers, joined to the ranks whose processes, devices and tasks they name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from rankscope.assemble.load import load
from rankscope.features.logs.rows.hardware_ranks import bus_number, short_host

BUSES = ("1b000", "29000", "45000", "4e000")
DAY = "Wed Nov 25"


def init(rank: int, host: str = "gpu-a", pid: int = 0, world: int = 4) -> str:
    """NCCL's line of the communicator of all ranks."""
    pid, local = pid or 7300 + rank, rank % 4
    return (
        f"{host}:{pid}:{pid} [{local}] NCCL INFO ncclCommInitRank comm 0x55{rank} rank {rank} nranks {world} "
        f"cudaDev {local} nvmlDev {local} busId {BUSES[local]} commId 0x7955 - Init COMPLETE\n"
    )


def timeout(rank: int, clock: str = "14:22:41", ran_s: int = 600) -> str:
    """A watchdog that gave up waiting."""
    return (
        f"[rank{rank}]:[E1125 {clock}.941975490 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum=26, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)={ran_s * 1000}) "
        f"ran for {ran_s * 1000} milliseconds before timing out.\n"
    )


def one_host(silent: int = 2) -> str:
    """Four ranks on gpu-a; all but one give up waiting at 14:22:41, after ten minutes."""
    return "".join(map(init, range(4))) + "".join(timeout(rank) for rank in range(4) if rank != silent)


def two_hosts(silent: int = 6) -> str:
    """Eight ranks on gpu-a and gpu-b, which have the same process ids and the same bus addresses."""
    lines = [init(rank, "gpu-a" if rank < 4 else "gpu-b", 7300 + rank % 4, 8) for rank in range(8)]
    return "".join(lines) + "".join(timeout(rank) for rank in range(8) if rank != silent)


def told(path: Path, files: Mapping[str, str]) -> Analysis:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return analyse(load([path]))


def faults(analysis: Analysis) -> list[Finding]:
    return [finding for finding in analysis.findings if finding.kind == "hardware-fault"]


KILLS = {
    "of the host": "Out of memory: Killed process 7302 (python3) total-vm:91kB, anon-rss:61kB, UID:1000",
    "of a group": "Memory cgroup out of memory: Killed process 7302 (python3) total-vm:91kB",
    "of old kernels": "Memory cgroup out of memory: Kill process 7302 (python3) score 1974 or sacrifice child",
    "with its constraint": "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=7302,uid=1000",
}
FRONTS = {
    "dmesg -T": f"[{DAY} 14:12:41 2026] ",
    "journalctl": "Nov 25 14:12:41 gpu-a kernel: ",
    "syslog": "Nov 25 14:12:41 gpu-a kernel: [ 7488.644138] ",
    "journalctl -o short-iso": "2026-11-25T14:12:41+0000 gpu-a kernel: ",
    "dmesg -x": f"kern  :err   : [{DAY} 14:12:41 2026] ",
    "seconds of the host": "[ 7488.644138] ",
}


@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("front", FRONTS)
def test_a_kill_for_memory_is_of_the_rank_with_the_process(tmp_path: Path, kill: str, front: str) -> None:
    found = told(tmp_path, {"job.log": one_host(), "dmesg.log": FRONTS[front] + KILLS[kill] + "\n"})
    assert (found.status, found.culprits) == ("failed", (2,))
    assert "memory" in found.verdict
    root = found.findings[0]
    assert any(e.file == "job.log" and "process 7302" in e.text and "rank 2" in e.text for e in root.evidence)
    assert (root.confidence == "high") == (front not in ("seconds of the host", "journalctl -o short-iso"))


@pytest.mark.parametrize(
    ("name", "rank"), [("gpu-a/dmesg.txt", 2), ("gpu-b/dmesg.txt", 6), ("logs/dmesg_gpu-b.log", 6)]
)
def test_a_process_counts_on_its_host_only(tmp_path: Path, name: str, rank: int) -> None:
    line = f"[{DAY} 14:12:41 2026] Out of memory: Killed process 7302 (python3)\n"
    assert told(tmp_path, {"job.log": two_hosts(rank), name: line}).culprits == (rank,)


def test_the_host_of_syslog_counts(tmp_path: Path) -> None:
    line = "Nov 25 14:12:41 gpu-b.site.org kernel: Out of memory: Killed process 7301 (python3)\n"
    assert told(tmp_path, {"job.log": two_hosts(5), "messages.log": line}).culprits == (5,)


@pytest.mark.parametrize("name", ["dmesg.log", "gpu-z/dmesg.log"])
def test_nobody_is_accused_where_the_host_is_another_or_unknown(tmp_path: Path, name: str) -> None:
    line = f"[{DAY} 14:12:41 2026] Out of memory: Killed process 7302 (python3)\n"
    found = told(tmp_path, {"job.log": two_hosts(), name: line})
    assert found.culprits == () and "process 7302" in found.verdict


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("NVRM: Xid (PCI:0000:45:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "Xid 79"),
        ("NVRM: Xid (PCI:0000:45:00): 48, pid=7302, name=python3, DBE (double bit error) ECC Error", "Xid 48"),
        ("NVRM: Xid (PCI:0000:45:00): 119, pid=7302, name=python3, Timeout waiting for RPC from GSP!", "Xid 119"),
        ("NVRM: Xid (PCI:0000:45:00): 74, NVLink: fatal error detected on link 3", "Xid 74"),
        ("NVRM: Xid (PCI:0000:45:00): 140, pid=7302, name=python3, Unrecovered ECC Error", "Xid 140"),
    ],
)
def test_a_fatal_fault_of_a_device_is_of_the_rank_at_its_address(tmp_path: Path, said: str, number: str) -> None:
    found = told(tmp_path, {"job.log": one_host(), "gpu-a/dmesg.txt": f"[{DAY} 14:12:40 2026] {said}\n"})
    assert (found.status, found.culprits) == ("failed", (2,))
    assert number in found.verdict and "0000:45:00" in found.verdict


def test_an_address_without_a_host_is_of_no_rank_of_two_hosts(tmp_path: Path) -> None:
    line = f"[{DAY} 14:12:40 2026] NVRM: Xid (PCI:0000:45:00): 79, GPU has fallen off the bus.\n"
    found = told(tmp_path, {"job.log": two_hosts(), "dmesg.txt": line})
    assert found.culprits == () and "0000:45:00" in found.verdict


def test_a_device_of_no_rank_is_named_with_its_host(tmp_path: Path) -> None:
    line = "Nov 25 14:12:40 gpu-a kernel: NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.\n"
    found = told(tmp_path, {"job.log": one_host(), "messages.log": line})
    assert found.culprits == () and "the GPU at 0000:c1:00 on gpu-a failed" in found.verdict


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 154])
def test_what_a_program_causes_is_no_cause(tmp_path: Path, number: int) -> None:
    line = f"[{DAY} 14:12:40 2026] NVRM: Xid (PCI:0000:45:00): {number}, pid=7302, name=python3, Ch 00000008\n"
    found = told(tmp_path, {"job.log": one_host(1), "gpu-a/dmesg.txt": line})
    assert 2 not in found.culprits
    (fault,) = faults(found)
    assert (fault.severity, fault.candidates) == ("warning", (2,))
    assert f"rank 2: Xid {number}" in fault.title and "no proven cause" in fault.title


def test_a_fault_long_before_the_wait_is_a_circumstance(tmp_path: Path) -> None:
    line = f"[{DAY} 09:12:40 2026] NVRM: Xid (PCI:0000:45:00): 94, pid=7302, name=python3, Contained ECC\n"
    found = told(tmp_path, {"job.log": one_host(1), "gpu-a/dmesg.txt": line})
    assert 2 not in found.culprits
    (fault,) = faults(found)
    assert (fault.severity, fault.candidates) == ("info", ())
    assert "the job went on for" in fault.explanation and fault.evidence[0].time_ns is not None


def test_a_fault_after_others_gave_up_is_no_cause(tmp_path: Path) -> None:
    line = f"[{DAY} 14:23:40 2026] NVRM: Xid (PCI:0000:45:00): 79, GPU has fallen off the bus.\n"
    found = told(tmp_path, {"job.log": one_host(1), "gpu-a/dmesg.txt": line})
    assert 2 not in found.culprits
    assert any(f.kind == "rank-failed" and f.culprit_ranks == (2,) and not f.root_cause for f in found.findings)


def test_of_times_in_another_zone_the_order_is_not_told(tmp_path: Path) -> None:
    line = "2026-11-25T19:12:40+0000 gpu-a kernel: NVRM: Xid (PCI:0000:45:00): 79, GPU has fallen off the bus.\n"
    found = told(tmp_path, {"job.log": one_host(), "messages.log": line})
    assert found.culprits == (2,) and found.findings[0].confidence == "medium"
    assert any("another time zone" in reason for reason in found.findings[0].confidence_reasons)


def test_a_fault_while_others_waited_already_is_less_certain(tmp_path: Path) -> None:
    line = f"[{DAY} 14:20:00 2026] NVRM: Xid (PCI:0000:45:00): 79, GPU has fallen off the bus.\n"
    found = told(tmp_path, {"job.log": one_host(), "gpu-a/dmesg.txt": line})
    assert found.culprits == (2,) and found.findings[0].confidence == "medium"
    assert any("others had waited for" in reason for reason in found.findings[0].confidence_reasons)


def test_the_watchdog_of_a_lost_gpu_may_give_up_too(tmp_path: Path) -> None:
    line = f"[{DAY} 14:12:40 2026] NVRM: Xid (PCI:0000:45:00): 79, GPU has fallen off the bus.\n"
    text = "".join(map(init, range(4))) + "".join(map(timeout, range(4)))
    assert told(tmp_path, {"job.log": text, "gpu-a/dmesg.txt": line}).culprits == (2,)


def test_a_log_of_the_kernel_in_the_directory_of_a_rank_is_of_the_host(tmp_path: Path) -> None:
    line = "Nov 25 14:12:40 gpu-a kernel: NVRM: Xid (PCI:0000:29:00): 79, GPU has fallen off the bus.\n"
    assert told(tmp_path, {"job.log": one_host(1), "rank_3/dmesg.txt": line}).culprits == (1,)


CIRCUMSTANCES = {
    "a port": (
        "Nov 25 14:12:40 gpu-a kernel: mlx5_core 0000:9a:00.0 ens1f0np0: Link down\n",
        "the port at 0000:9a:00 on gpu-a",
    ),
    "a switch": (
        "Nov 25 14:12:40 gpu-a kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress\n",
        "the NVSwitch at 0000:c1:00 on gpu-a: SXid 12028",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CIRCUMSTANCES)
def test_a_link_is_a_circumstance_of_its_host(tmp_path: Path, name: str) -> None:
    line, title = CIRCUMSTANCES[name]
    found = told(tmp_path, {"job.log": one_host(), "messages.log": line})
    (fault,) = faults(found)
    assert fault.title.startswith(title) and fault.severity == "warning"
    assert (fault.culprits[0].rank, fault.culprits[0].host) == (None, "gpu-a")


SMI = """\
==============NVSMI LOG==============

Timestamp                                 : Wed Nov 25 14:25:02 2026
Attached GPUs                             : 2
GPU 00000000:29:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Minor Number                          : 1
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 0
        Aggregate
            DRAM Uncorrectable            : 7
    Remapped Rows
        Pending                           : No
GPU 00000000:45:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 2
    Remapped Rows
        Uncorrectable Error               : 1
        Pending                           : Yes
        Remapping Failure Occurred        : No
"""


def test_a_report_of_devices_is_a_circumstance_of_the_rank(tmp_path: Path) -> None:
    found = told(tmp_path, {"job.log": one_host(), "gpu-a/nvidia-smi.txt": SMI})
    (fault,) = faults(found)
    assert fault.candidates == (2,)
    assert "DRAM Uncorrectable: 2" in fault.title and "Pending: Yes" in fault.title


PORTS = {
    "ibv_devinfo": (
        "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
        "hca_id:\tmlx5_3\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n",
        "port mlx5_3 on gpu-a", "PORT_DOWN",
    ),
    "perfquery": (
        "# Port counters: Lid 12 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n"
        "SymbolErrorCounter:..............0\nLinkDownedCounter:...............12\nPortRcvErrors:...................0\n",
        "port Lid 12 port 1 on gpu-a", "LinkDownedCounter: 12",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PORTS)
def test_a_report_of_ports_names_port_and_host(tmp_path: Path, name: str) -> None:
    text, who, what = PORTS[name]
    found = told(tmp_path, {"job.log": one_host(), f"gpu-a/{name}.txt": text})
    (fault,) = faults(found)
    assert fault.title.startswith(who) and what in fault.title and fault.candidates == ()


def test_a_healthy_report_is_no_fault(tmp_path: Path) -> None:
    well = SMI.replace("DRAM Uncorrectable            : 2", "DRAM Uncorrectable            : 0").replace("Yes", "No")
    well = well.replace("Uncorrectable Error               : 1", "Uncorrectable Error               : 0")
    found = told(tmp_path, {"job.log": one_host(), "gpu-a/nvidia-smi.txt": well})
    assert faults(found) == []


def test_a_health_check_counts_the_gpus_of_its_host(tmp_path: Path) -> None:
    table = (
        "+---------------------------+----------------------------------------------------------+\n"
        "| Health Monitor Report                                                                |\n"
        "| Overall Health            | Failure                                                  |\n"
        "| GPU ID: 2                 | Failure: Detected 4 volatile DBEs in GPU 2               |\n"
    )
    found = told(tmp_path, {"job.log": two_hosts(), "gpu-b/dcgmi_health.log": table})
    (fault,) = faults(found)
    assert fault.candidates == (6,)


def test_the_own_check_of_nccl_names_the_rank_at_an_address(tmp_path: Path) -> None:
    said = "Xid 48 detected 3 seconds ago (GPU 0000:4e:00.0) on host gpu-b. See the documentation"
    found = told(tmp_path, {"job.log": f"{two_hosts()}gpu-a:7300 NCCL DIAG [WARN] {said}\n"})
    (fault,) = [f for f in found.findings if "NCCL's own check finds faults" in f.title]
    assert fault.candidates == (7,)


@pytest.mark.parametrize("name", ["dmesg.node-3.log", "node-3_dmesg.txt", "kern-node-3.log", "node-3/var/log/kern.log"])
def test_the_host_in_the_name_of_a_log_of_the_system(tmp_path: Path, name: str) -> None:
    line = f"[{DAY} 14:12:40 2026] NVRM: Xid (PCI:0000:45:00): 79, GPU has fallen off the bus.\n"
    found = told(tmp_path, {"job.log": one_host(), name: line})
    assert found.culprits == () and "the GPU at 0000:45:00 on node-3 failed" in found.verdict


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0000:5d:00.0", 0x5D000),
        ("5d000", 0x5D000),
        ("00000000:5D:00", 0x5D000),
        ("<unknown>", None),
        ("5d:00.1", 0x5D001),
    ],
)
def test_an_address_in_every_form(text: str, number: int | None) -> None:
    assert bus_number(text) == number


def test_a_host_without_its_domain() -> None:
    assert [short_host(name) for name in ("Node7.site.org", "10.0.0.7", "fe80::1")] == ["node7", "10.0.0.7", "fe80::1"]
