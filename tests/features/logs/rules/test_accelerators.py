"""Errors of Ascend, AMD, Intel and InfiniBand: who is a victim, who is accused, and what each status means."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

NPU = "[ERROR] 2026-03-02-04:05:06 (PID:{0}, Device:{1}, RankID:{2}) ERR00100 PTA call acl api failed\n"
FRAMES = '  File "/opt/run.py", line 12, in step\n    torch.npu.synchronize()\n'
WAITED = (
    "EI0002: [PID: {0}] 2026-03-02-04:05:06.100.200 The wait execution of the Notify register times out. Reason: The "
    "Notify register has not received the Notify record from remote rank: [{1}]. base information: [streamID:[3], "
    "taskID[8], tag[AllGather_{2}], AlgType(level 0-1-2):[ring-NHR-NHR].]"
)


def analysed(tmp_path: Path, text: str, name: str = "job.log") -> Analysis:
    (tmp_path / name).write_text(text)
    return analyse(load([tmp_path / name]))


@pytest.mark.parametrize("front", ["", "(Trainer pid=77, ip=10.1.1.4) "])
@pytest.mark.parametrize("code", ["507046", "507048"])
def test_an_exception_that_only_tells_of_a_wait_is_no_cause(front: str, code: str, tmp_path: Path) -> None:
    lines = (
        f"{FRAMES}RuntimeError: npuSynchronizeStream: NPU function error: AclrtSync, error code is {code}\n"
        + NPU.format(901, 3, 11)
        + "[Error]: The execution of the internal task times out.\n"
        + WAITED.format(901, "unknown", "group_name_3")
    )
    found = analysed(tmp_path, "".join(f"{front}{line}\n" for line in lines.splitlines()))
    assert found.culprits == ()
    assert "rank 11 gave up waiting in AllGather of group_name_3" in found.verdict
    assert found.findings[0].waiting_ranks == (11,)


def test_the_record_below_an_exception_tells_its_rank(tmp_path: Path) -> None:
    text = (
        f"{FRAMES}RuntimeError: [ERROR] HCCL error in: ProcessGroupHCCL.cpp:64\n" + NPU.format(902, 1, 9)
        + "EJ0001: 2026-03-02-04:05:06.1 Failed to initialize the HCCP process. Reason: Maybe the last training\n"
    )  # fmt: skip
    found = analysed(tmp_path, text)
    assert found.culprits == (9,)
    assert "rank 9 failed: the communication process of the device did not start" in found.verdict
    # a record that does not follow the exception is of another process
    apart = text.replace("[ERROR] 2026", "step 4 done\n[ERROR] 2026")
    assert analysed(tmp_path, apart, "apart.log").culprits == ()


def test_a_rank_of_a_group_is_not_taken_for_a_global_one(tmp_path: Path) -> None:
    more = " group information: [group:[{0}], user define information[Unspecified], rankSize[8], rankId[5 6]]"
    head = NPU.format(903, 5, 37)
    found = analysed(tmp_path, head + WAITED.format(903, 6, "group_name_9") + more.format("group_name_9") + "\n")
    assert "rank 37 gave up waiting in AllGather of group_name_9 (8 members) for rank 6 of that group" in found.verdict
    assert found.culprits == () and not any(6 in f.candidates for f in found.findings)
    assert not any("TORCH_FR" in step for f in found.findings for step in f.next_steps)
    world = more.format("hccl_world_group")
    found = analysed(tmp_path, head + WAITED.format(903, 6, "hccl_world_group") + world + "\n", "world.log")
    assert "of hccl_world_group (8 members) for rank 6 (" in found.verdict


IB = (
    "h{0}:40:41 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<53> with {1} (Send)\n"
)


@pytest.mark.parametrize(
    ("status", "says", "step"),
    [
        ("error 4, opcode 3, len 3, vendor err 81", "status 4", "nvidia_peermem"),
        ("status=IBV_WC_LOC_PROT_ERR(4) opcode=0 len=0 vendor err 81", "status 4", "nvidia_peermem"),
        ("status=12 opcode=0 len=0 vendor err 129", "nothing came back", "ibstat"),
        ("error 10, opcode 1, len 0, vendor err 136", "status 10", "the other end"),
        ("error 13, opcode 1, len 0, vendor err 135", "receiver was not ready", "process at the other end"),
        ("status=5 opcode=1 len=0 vendor err 249", "flushed", "another status"),
        ("status=21 opcode=1 len=0 vendor err 1", "failed transfer over InfiniBand", "ibstat"),
    ],
)
def test_each_status_of_infiniband_has_its_own_advice(status: str, says: str, step: str, tmp_path: Path) -> None:
    found = analysed(tmp_path, IB.format(1, status) + "h1:40:41 [0] NCCL INFO transport/net.cc:1008 -> 6\n")
    assert says in found.verdict and found.culprits == ()
    assert any(step in text for text in found.findings[0].next_steps)


@pytest.mark.parametrize(
    ("line", "label"),
    [
        (
            "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
            "the Intel GPU was lost",
        ),
        ("2026:03:02-04:05:06:(7) |CCL_ERROR| entry.cpp:3 do_progress: oneCCL: a", "an error in oneCCL"),
        (
            "RuntimeError: oneCCL: comm_selector.cpp:57 create_comm_impl: EXCEPTION: ze_data was not initialized",
            "Level Zero",
        ),
        ("RuntimeError: NPU error, error code is 507015", "a kernel failed on the NPU"),
        (
            "amdgpu 0000:03:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8)",
            "page fault of the GPU",
        ),
        ("Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error", "GPU lost"),
        (
            "EJ0003: [PID: 4] Failed to bind the IP port. Solution: end the process and try again.",
            "port or address of HCCL",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "NVML"),
    ],
)  # fmt: skip
def test_errors_of_other_accelerators_and_tools(line: str, label: str, tmp_path: Path) -> None:
    found = analysed(tmp_path, f"{line}\n")
    assert label in found.verdict and found.status == "failed"


@pytest.mark.parametrize(
    "line",
    [
        "[PID: 749] 2026-03-02-04:05:06.1 Get_Socket_Timeout(EI0006): Getting socket times out. Reason: 1. The remote",
        "[ERROR] HCCL(62,):2026-03-02-04:05:06.7 [hccl_socket_manager.cc:796] [8][Wait][LinkEstablish]wait "
        "socket establish "
        "timeout, role[0] rank[0] timeout[120 s]",
    ],
)
def test_waits_of_hccl_in_newer_words(line: str, tmp_path: Path) -> None:
    (tmp_path / "comment.md").write_text(f"it hangs\n```\n{line}\n```\n")
    found = analyse(load([tmp_path]))
    assert "gave up waiting" in found.verdict and found.culprits == ()


def test_a_lost_gpu_is_named_by_its_bus(tmp_path: Path) -> None:
    (tmp_path / "comment.md").write_text(
        "`nvidia-smi`\nUnable to determine the device handle for GPU 0000:1C:00.0: Unknown Error\n"
    )
    assert "the GPU at 0000:1C:00" in analyse(load([tmp_path])).verdict


def test_a_mismatch_of_which_the_details_were_left_out(tmp_path: Path) -> None:
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. \n"
        "Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=8, OpType=BROADCAST, ...)\n"
        "but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=9, OpType=BROADCAST, ...)\n"
    )
    assert "collective mismatch" in analysed(tmp_path, text).verdict
