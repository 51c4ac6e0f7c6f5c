"""Every command that a report, a card or `rankscope next` prints can be pasted whole."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.advice_table import ADVICE, HOST_FINDERS, STARTS
from rankscope.analysis.failure_advice import Situation
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.report.next_commands import command_block
from rankscope.schema import Dataset
from rankscope.text.step_commands import command_of
from tests.report import samples

PLACEHOLDER = re.compile(
    r"\bHOSTS?\b|(?<![$\w])PID\b|<[A-Za-z_][^>]*>|\.\.\.|\bFILES_OF\b|(?<![_\w])MODEL\b"
    r"|train\.py|main\.py|on its host|the host of"
)
WATCHDOG = (
    "[rank1]:[E410 09:00:00.000000000 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600029 milliseconds "
    "before timing out.\n"
)
TEXTS = {
    "torchrun": WATCHDOG,
    "oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 3 has a total capacity of "
    "79.1 GiB of which 55.75 MiB is free.\n",
    "infiniband": "n2:1998:2080 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.8.7.1<5>"
    " with status=12 opcode=1 len=32 vendor err 129 (Send)\n",
    "hccl": "[rank5]: EI0002: [PID: 2953] 2026-11-20-15:09:34.713.335 The wait execution of the Notify register times "
    "out. Reason: The Notify register has not received the Notify record from remote rank: [2].\n",
    "nan": "step 41 | loss 2.0 | grad_norm 1.0\nstep 42 | loss nan | grad_norm nan\n",
    "killed": "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the tasks have been OOM Killed.\n",
    "vllm": "ERROR 11-08 11:01:29 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting "
    "down executor.\n",
    "sglang": "[2026-11-20 10:00:00 TP3] Watchdog timeout (self.watchdog_timeout=300)\n",
    "ray": "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tpid: 16424\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n",
    "amdgpu": "amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!\n",
    "kernel": "RuntimeError: CUDA error: an illegal memory access was encountered\n" + WATCHDOG,
    "port": "RuntimeError: The server socket has failed to listen on any local network address.\n" + WATCHDOG,
}


def check(dataset: Dataset, analysis: Analysis) -> str:
    """The block; no command in it or in a step has a placeholder, and a shell accepts all of it."""
    block = command_block(dataset, analysis)
    commands = [line for line in block.splitlines() if line and not line.startswith("#")]
    commands += [command_of(step) for finding in analysis.findings for step in finding.next_steps]
    assert [command for command in commands if PLACEHOLDER.search(command)] == []
    steps = [step for finding in analysis.findings for step in finding.next_steps if "py-spy" in step]
    assert [step for step in steps if PLACEHOLDER.search(step)] == []
    checked = subprocess.run(["bash", "-n"], input=block.encode(), check=False, capture_output=True)
    assert checked.stderr == b""
    return block


@pytest.mark.parametrize("sample", [samples.hang, samples.logged, samples.healthy, samples.traced, samples.many_ranks])
def test_commands_of_samples(sample: Callable[[], tuple[Dataset, Analysis]]) -> None:
    check(*sample())


@pytest.mark.parametrize("kind", TEXTS)
def test_commands_of_kinds_of_failure(kind: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(TEXTS[kind])
    dataset = load([tmp_path])
    check(dataset, analyse(dataset))


def test_no_text_of_the_tables_has_a_placeholder() -> None:
    texts = [text for row in ADVICE for text in (row.says, row.command)]
    texts += [*HOST_FINDERS.values(), *(line for lines in STARTS.values() for line in lines)]
    assert [text for text in texts if PLACEHOLDER.search(text)] == []


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (TEXTS["kernel"], "grep -rhE"), (TEXTS["killed"], "squeue --me"),
        ("(WorkerDict pid=2) RuntimeError: CUDA error: an illegal memory access was encountered\n", "ray list nodes"),
        ("    Last State:  Terminated\n      Reason:  OOMKilled\n      Exit Code:  137\n", "kubectl get pods -o wide"),
    ],
)  # fmt: skip
def test_a_host_that_no_source_tells_is_found_by_what_placed_the_processes(
    tmp_path: Path, text: str, command: str
) -> None:
    (tmp_path / "job.log").write_text(text)
    dataset = load([tmp_path])
    assert command in check(dataset, analyse(dataset))


def test_a_script_that_the_stacks_name_is_filled_in(tmp_path: Path) -> None:
    stack = 'Traceback (most recent call last):\n  File "/ws/pretrain.py", line 9, in <module>\n    main()\n'
    (tmp_path / "job.log").write_text(
        "".join(f"[rank1]: {line}\n" for line in stack.splitlines()) + "[rank1]: RuntimeError: no\n" + TEXTS["torchrun"]
    )
    dataset = load([tmp_path])
    assert Situation(dataset, None).script == "/ws/pretrain.py"
    unknown = load([_written(tmp_path / "other", WATCHDOG)])
    assert Situation(unknown, None).script == "" and "${SCRIPT:?" in check(unknown, analyse(unknown))


def _written(directory: Path, text: str) -> Path:
    directory.mkdir()
    (directory / "job.log").write_text(text)
    return directory
