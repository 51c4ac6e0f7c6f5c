"""Next steps: chosen by kind of failure, backend, launcher, and what is known."""

from __future__ import annotations

import string
import subprocess
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.advice_table import ADVICE, STARTS
from rankscope.analysis.explanations import explain_rank
from rankscope.analysis.failure_advice import Situation
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.report.next_commands import command_block
from rankscope.schema import Dataset
from rankscope.text.step_commands import first_command

OOM = (
    "torch.OutOfMemoryError: {} out of memory. Tried to allocate {} MiB. {} 3 has a total capacity of 79.1 GiB of "
    "which "
    "55.75 MiB is free. Including non-PyTorch memory, this process has 79.0 GiB memory in use. Of the allocated memory "
    "60.61 GiB is allocated by PyTorch, and 8.57 GiB is reserved by PyTorch but unallocated. If reserved but "
    "unallocated "
    "memory is large try setting {}=expandable_segments:True to avoid fragmentation.\n"
)
IB = (
    "n2:1998:2080 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.8.7.1<53249> with "
    "status={} opcode=1 len=32 vendor err 81 (Send)\n"
)
HCCL = (
    "[rank5]: EI0002: [PID: 2953] 2026-11-20-15:09:34.713.335 The wait execution of the Notify register times out. "
    "Reason: "
    "The Notify register has not received the Notify record from remote rank: [2].\n"
)
NCCL = (
    "[rank1]:[E410 09:00:00.000000000 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600029 milliseconds "
    "before timing out.\n"
)
NAN = "step 41 | loss 2.0 | grad_norm 1.0\nstep 42 | loss nan | grad_norm nan\n"


def job(tmp_path: Path, text: str) -> tuple[Dataset, Analysis]:
    (tmp_path / "job.log").write_text(text)
    dataset = load([tmp_path])
    return dataset, analyse(dataset)


def steps(tmp_path: Path, text: str) -> str:
    return "\n".join(job(tmp_path, text)[1].findings[0].next_steps)


def block(tmp_path: Path, text: str) -> str:
    """The block, which a shell must accept whole."""
    shown = command_block(*job(tmp_path, text))
    checked = subprocess.run(["bash", "-n"], input=shown.encode(), check=False, capture_output=True)
    assert checked.stderr == b"" and "{" not in shown.replace("${", "").replace("oom_rank_{", "")
    return shown


@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_memory_in_pieces_gets_the_setting_that_its_torch_names(tmp_path: Path, prefix: str, name: str) -> None:
    told = steps(tmp_path, prefix + OOM.format("CUDA", "388.00", "GPU", name))
    assert f"Set {name}=expandable_segments:True." in told
    assert told.count("expandable_segments") == 1 and "_dump_snapshot" in told
    assert first_command(told.split("\n")) == f"export {name}=expandable_segments:True"
    shown = block(tmp_path, prefix + OOM.format("CUDA", "388.00", "GPU", name))
    assert f"export {name}=expandable_segments:True" in shown and "NCCL_" not in shown


def test_memory_that_is_full_needs_less(tmp_path: Path) -> None:
    told = steps(tmp_path, OOM.format("CUDA", "16388.00", "GPU", "PYTORCH_CUDA_ALLOC_CONF"))
    assert told.startswith("Make a step smaller") and "printed before" not in told and "needs more" not in told


def test_memory_of_a_server_is_set_by_its_options(tmp_path: Path) -> None:
    server = "(EngineCore pid=77) " + OOM.format("CUDA", "16388.00", "GPU", "PYTORCH_CUDA_ALLOC_CONF")
    told = steps(tmp_path, "(EngineCore pid=77) INFO vllm engine\n" + server)
    assert "--gpu-memory-utilization" in told and "micro batch" not in told


def test_memory_of_an_npu_has_its_own_names(tmp_path: Path) -> None:
    told = steps(tmp_path, "[rank2]: " + OOM.format("NPU", "388.00", "NPU", "PYTORCH_NPU_ALLOC_CONF") + HCCL)
    assert "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True" in told and "nvidia-smi" not in told


@pytest.mark.parametrize(
    ("status", "has", "lacks"),
    [
        (4, "nvidia_peermem", "NCCL_IB_TIMEOUT"), (5, "another status", "nvidia_peermem"),
        (10, "remote access error", "NCCL_IB_TIMEOUT"), (12, "NCCL_IB_TIMEOUT=22", "nvidia_peermem"),
        (13, "receiver was not ready", "nvidia_peermem"), (21, "ibstat", "nvidia_peermem"),
    ],
)  # fmt: skip
def test_each_status_of_infiniband_has_its_own(tmp_path: Path, status: int, has: str, lacks: str) -> None:
    told = steps(tmp_path, IB.format(status))
    assert has in told and lacks not in told


def test_hccl_gets_its_own(tmp_path: Path) -> None:
    told, shown = steps(tmp_path, HCCL), block(tmp_path, HCCL)
    assert "plog" in told and "ASCEND_GLOBAL_LOG_LEVEL=1" in told
    for foreign in ("TORCH_FR_", "TORCH_NCCL_", " NCCL_"):
        assert foreign not in told and foreign not in shown
    assert "TORCH_HCCL_DUMP_ON_TIMEOUT" in shown and "ascend/log" in shown


@pytest.mark.parametrize(
    ("line", "has", "lacks"),
    [
        ("INFO 11-20 [vllm/v1/engine/core.py:12] EngineCore started\n[rank0]: Traceback (most recent call "
         "last):\n[rank0]:   "
         "File \"/x/vllm/v1/worker.py\", line 1, in f\n[rank0]: RuntimeError: vllm worker\n", "vllm serve", "torchrun"),
        ("", "torchrun $LAUNCH", "vllm"),
        ("srun: error: node07: task 3: Exited with exit code 1\n", "srun --export=ALL", "torchrun"),
    ],
)  # fmt: skip
def test_the_start_is_that_of_the_job(tmp_path: Path, line: str, has: str, lacks: str) -> None:
    dataset, _ = job(tmp_path, line + NCCL)
    finding = job(tmp_path, NCCL)[1].findings[0]
    launcher = Situation(dataset, finding).launcher
    start = "\n".join(STARTS[launcher])
    assert has in start and lacks not in start


def test_a_loss_that_is_lost_gets_the_steps_before_it(tmp_path: Path) -> None:
    told, shown = steps(tmp_path, NAN), block(tmp_path, NAN)
    assert "--numbers steps=39-42" in told and "set_detect_anomaly" in told
    assert "torchrun $LAUNCH -m rankscope.capture -o dumps --interval 10 --numbers steps=39-42 ${SCRIPT:?" in shown
    assert "NCCL_DEBUG" not in shown and "It is not proven" not in shown


def test_a_healthy_log_gets_no_advice(tmp_path: Path) -> None:
    dataset, analysis = job(tmp_path, NAN.replace("nan", "1.9"))
    shown = command_block(dataset, analysis)
    assert analysis.findings == () and "set_detect_anomaly" not in shown and "NCCL_" not in shown
    assert "rankscope.capture" in shown


def test_why_does_not_contradict_the_headline(tmp_path: Path) -> None:
    """A rank that only logs know is no rank that may not be part of the job."""
    dataset, analysis = job(tmp_path, HCCL)
    why = explain_rank(dataset, analysis, 5)
    assert "rank 5 gave up waiting" in analysis.verdict and not why.accused
    assert "the logs show that it was blocked: rank 5 gave up waiting" in why.title


def test_hosts_are_named_and_none_harms_a_shell(tmp_path: Path) -> None:
    assert "# on n2" in block(tmp_path, IB.format(4))
    evil = IB.format(4).replace("n2:", "$(id):")
    assert "$(id)" not in "\n".join(line for line in block(tmp_path, evil).split("\n") if not line.startswith("#"))


def test_each_row_can_be_filled(tmp_path: Path) -> None:
    """Every field that a text asks for is one of a situation, and every launcher of a row has a start."""
    dataset, analysis = job(tmp_path, NAN)
    situation = Situation(dataset, analysis.findings[0])
    for row in ADVICE:
        fields = {name for text in (row.says, row.command) for _, name, _, _ in string.Formatter().parse(text) if name}
        assert fields <= set(situation.fields), row
        assert not row.needs or row.needs in situation.facts
        assert {name.removeprefix("-") for name in row.launchers.split()} - {"*"} <= set(STARTS), row


ACCELERATORS = {
    "hip": ("[rank1]: RuntimeError: HIP error: an illegal memory access was encountered\n", "AMD_SERIALIZE_KERNEL"),
    "xpu": ("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB.\n", "xpu-smi ps"),
    "oneccl": ("2025:03:04-10:12:01:(4711) |CCL_ERROR| exec.cpp:120 wait_impl: timeout\n", "CCL_LOG_LEVEL=debug"),
    "npu": ("[rank3]: RuntimeError: NPU out of memory. Tried to allocate 128.00 MiB\n", "npu-smi info"),
    "rccl": ("node1:20:20 [0] NCCL INFO RCCL version 2.21.5-HEAD\n" + NCCL, "rocm-smi"),
}


@pytest.mark.parametrize("name", ACCELERATORS)
def test_the_words_of_a_line_tell_the_accelerator(name: str, tmp_path: Path) -> None:
    text, tool = ACCELERATORS[name]
    shown = block(tmp_path, text)
    assert tool in shown and "nvidia-smi" not in shown and "xid" not in shown and "CUDA_" not in shown


def test_an_exception_gets_the_steps_of_its_last_line(tmp_path: Path) -> None:
    """The error of a traceback stands below the line that is its evidence."""
    raised = 'Traceback (most recent call last):\n  File "/a/t.py", line 3, in f\n    x()\n' + OOM.format(
        "CUDA", 9000, "GPU", "PYTORCH_CUDA_ALLOC_CONF"
    )
    text = "".join(f"[rank1]: {line}\n" for line in raised.splitlines())
    assert "_dump_snapshot" in steps(tmp_path, text)
    shown = block(tmp_path, text)
    assert "nvidia-smi" in shown and "NCCL" not in shown and "TORCH_FR" not in shown


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("[rank1]: torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of "  # noqa: E501
         "(10.0.0.1, 29511). The client socket has failed to connect to 10.0.0.1:29511 (errno: 111).\n",
         "</dev/tcp/10.0.0.1/29511"),
        ("RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed "  # noqa: E501
         "to bind to [::]:29511 (errno: 98 - Address already in use).\n", 'ss -ltnp | grep ":29511 "'),
        ("[81234.100000] NVRM: Xid (PCI:0000:5d:00): 79, pid=4711, name=python, GPU has fallen off the bus.\n",
         "nvidia-smi -q -d ECC"),
        (IB.format(12), "ibstat; perfquery; dmesg -T | grep -i mlx5 | tail -20  # on n2"),
    ],
)  # fmt: skip
def test_failures_that_dumps_do_not_explain_get_no_recorder(text: str, command: str, tmp_path: Path) -> None:
    shown = block(tmp_path, text)
    assert command in shown and "TORCH_" not in shown and "rankscope.capture" not in shown


def test_a_comment_ends_a_command_and_begins_none() -> None:
    """What follows a comment in a line would not run."""
    for row in ADVICE:
        for line in row.command.split("\n"):
            assert "{on}" not in line.rstrip()[:-4], line


def test_the_number_of_processes_is_not_invented(tmp_path: Path) -> None:
    assert "--nproc-per-node auto" in block(tmp_path, NCCL)
