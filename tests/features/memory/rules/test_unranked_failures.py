"""Failures of memory of which no line tells the rank, other processes on a device, summaries, kills of the kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

TRACEBACK = 'Traceback (most recent call last):\n  File "/job/train.py", line 31, in <module>\n    main()\n'
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU {gpu} has a total capacity of 39.39 "
    "GiB of which {free} is free. {process}Including non-PyTorch memory, this process has {used} memory in use. Of the "
    "allocated memory {held} is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated.{hint}"
)
HINT = " If reserved but unallocated memory is large try setting {}=expandable_segments:True to avoid fragmentation."


def judged(folder: Path, text: str, name: str = "job.log") -> Analysis:
    """The analysis of one log."""
    (folder / name).write_text(text)
    return analyse(load([folder]))


def oom(gpu: int = 3, *, held: str = "20.00 GiB", unused: str = "15.20 GiB", used: str = "38.00 GiB", free: str =
        "1.20 GiB", process: str = "", setting: str = "PYTORCH_CUDA_ALLOC_CONF") -> str:  # fmt: skip
    """A message of the allocator."""
    return OOM.format(asked="2.50 GiB", gpu=gpu, free=free, process=process, used=used, held=held, unused=unused,
                      hint=HINT.format(setting))  # fmt: skip


@pytest.mark.parametrize("before", ["", TRACEBACK])
def test_a_process_without_a_rank_gets_the_account_of_one_with_a_rank(before: str, tmp_path: Path) -> None:
    found = judged(tmp_path, before + oom()).findings
    assert (found[0].kind, found[0].culprit_ranks) == ("rank-failed", ()) and "(GPU 3)" in found[0].title
    assert "It asked cuda:3 for 2.5 GiB. Its 39 GiB: 1.2 GiB free, 20 GiB in tensors, 15 GiB" in found[0].explanation
    assert "fragmentation" in found[0].explanation
    assert found[0].next_steps[0] == "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
    assert "memory of a process on cuda:3 is fragmented: 15 GiB reserved" in found[1].title
    assert "this rank needs more" not in " ".join(found[0].next_steps)


def test_each_message_is_of_its_own_failure(tmp_path: Path) -> None:
    """A message of another process, behind the failure that is told, says nothing of it."""
    text = TRACEBACK + oom(unused="0.10 GiB") + "\n" + TRACEBACK + oom(5)
    first = judged(tmp_path, text).findings[0]
    assert "(GPU 3)" in first.title and "It asked cuda:3" in first.explanation


def test_the_setting_is_that_of_the_message(tmp_path: Path) -> None:
    first = judged(tmp_path, oom(setting="PYTORCH_ALLOC_CONF")).findings[0]
    assert first.next_steps[0] == "Set PYTORCH_ALLOC_CONF=expandable_segments:True."


def test_a_torch_without_expandable_segments_gets_its_own_setting(tmp_path: Path) -> None:
    text = (
        "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 1; 15.78 GiB total capacity; 9.0 GiB "
        "already allocated; 200.00 MiB free; 14.50 GiB reserved in total by PyTorch) If reserved memory is >> "
        "allocated memory try setting max_split_size_mb to avoid fragmentation."
    )
    step = judged(tmp_path, text).findings[0].next_steps[0]
    assert step.startswith("Set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128") and "From torch 2.1 on" in step


def test_a_setting_that_is_there_is_not_advised(tmp_path: Path) -> None:
    (tmp_path / "environ_rank_0.txt").write_text(
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nRANK=0\nWORLD_SIZE=1\nHOME=/home/u\nPATH=/usr/bin\n"
    )
    dataset = load([tmp_path])
    if dataset.settings.is_empty():
        pytest.fail("the environment was not read")
    steps = judged(tmp_path, oom()).findings[0].next_steps
    assert steps[0].startswith("expandable_segments is set already")


def test_another_process_on_the_device_is_named_with_the_command_that_shows_it(tmp_path: Path) -> None:
    text = oom(
        held="1.50 GiB", unused="0.10 GiB", used="2.10 GiB", process="Process 12345 has 30.00 GiB memory in use. "
    )
    first = judged(tmp_path, text).findings[0]
    assert "Other processes hold memory of this device: process 12345 30 GiB." in first.explanation
    assert first.next_steps[0].endswith("ps -o pid,user,lstart,cmd -p 12345")
    assert "fragmentation" not in first.explanation


def test_the_process_itself_is_no_other_one_in_a_container(tmp_path: Path) -> None:
    """There the driver tells the ids of the host: no sentence is on this process, which holds what torch reserves."""
    both = "Process 711 has 22.00 GiB memory in use. Process 902 has 16.00 GiB memory in use. "
    own = "Including non-PyTorch memory, this process has 38.00 GiB memory in use. "
    text = oom(unused="0.50 GiB", process=both).replace(own, "")
    first = judged(tmp_path, text).findings[0]
    assert "device: process 902 16 GiB; in a container" in first.explanation and "711" not in first.explanation


SUMMARY = """|===========================================================================|
|                  PyTorch {kind} memory summary, device ID {device}                 |
|---------------------------------------------------------------------------|
|            {kind} OOMs: {ooms}            |        {malloc} retries: 4         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |   3000 {unit} |   9000 {unit} |  89299 {unit} |  88237 {unit} |
|       from large pool |   2048 {unit} |   4865 {unit} |  89263 {unit} |  88215 {unit} |
|---------------------------------------------------------------------------|
| Active memory         |   3000 {unit} |   9000 {unit} |  89299 {unit} |  88237 {unit} |
|---------------------------------------------------------------------------|
| {gpu} reserved memory   |  20480 {unit} |  20480 {unit} |  16924 {unit} |   4504 {unit} |
|---------------------------------------------------------------------------|
| Non-releasable memory |  {torn} {unit} |  17900 {unit} |  80000 {unit} |  68642 {unit} |
|===========================================================================|
"""


def summary(device: int = 6, ooms: int = 2, torn: int = 17408, unit: str = "MiB", kind: str = "CUDA") -> str:
    """A table of torch, or of torch_npu."""
    malloc, gpu = ("cudaMalloc", "GPU") if kind == "CUDA" else ("npuMalloc", "NPU")
    return SUMMARY.format(kind=kind, device=device, ooms=ooms, torn=torn, unit=unit, malloc=malloc, gpu=gpu)


@pytest.mark.parametrize(("unit", "kind"), [("MiB", "CUDA"), ("MB", "CUDA"), ("MiB", "NPU")])
def test_a_summary_tells_of_a_failed_request(unit: str, kind: str, tmp_path: Path) -> None:
    found = judged(tmp_path, summary(unit=unit, kind=kind))
    first = found.findings[0]
    assert (found.status, first.kind, first.confidence) == ("failed", "rank-failed", "medium")
    assert "(GPU 6)" in first.title and "out of memory" in first.title
    assert "2.9 GiB of 20 GiB reserved are in tensors, at most 8.8 GiB" in first.explanation
    assert "17 GiB lie in pieces that cannot be released: fragmentation" in first.explanation
    assert "expandable_segments:True" in first.next_steps[0]
    assert "2 requests failed" in first.evidence[0].text and "17,408" in first.evidence[0].text


def test_a_summary_of_a_rank_is_of_that_rank(tmp_path: Path) -> None:
    lines = "".join(f"[rank2]: {line}\n" for line in (TRACEBACK + oom(6) + "\n" + summary()).splitlines())
    first = judged(tmp_path, lines).findings[0]
    assert first.culprit_ranks == (2,) and "It asked cuda:6 for 2.5 GiB" in first.explanation
    assert "By its memory summary 2.9 GiB of 20 GiB" in first.explanation


@pytest.mark.parametrize(("torn", "severity"), [(17408, "warning"), (100, "info")])
def test_a_summary_without_a_failed_request_accuses_nobody(torn: int, severity: str, tmp_path: Path) -> None:
    found = judged(tmp_path, "step 100\n" + summary(ooms=0, torn=torn))
    (first,) = found.findings
    assert (found.status, first.kind, first.severity) == ("unknown", "memory-summary", severity)
    assert found.verdict.startswith("a process on cuda:6 has 2.9 GiB in tensors, of 20 GiB reserved")
    assert ("pieces" in found.verdict) == (severity == "warning")


def test_the_kernel_tells_what_it_killed_held_and_whose_limit_was_reached(tmp_path: Path) -> None:
    text = (
        "[ 811.02] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg=/kubepods/pod7"
        ",task_memcg=/kubepods/pod7/c1,task=python3,pid=5123,uid=0\n"
        "[ 811.03] Memory cgroup out of memory: Killed process 5123 (python3) total-vm:99999999kB, anon-rss:31457280kB"
        ", file-rss:0kB, shmem-rss:4194304kB, UID:0 pgtables:1kB oom_score_adj:0\n"
    )
    first = judged(tmp_path, text).findings[0]
    assert "process 5123" in first.title
    assert "It held 30 GiB of its own, and 4 GiB shared" in first.explanation
    assert "the limit of its control group /kubepods/pod7" in first.explanation


@pytest.mark.parametrize("text", [
    "NAME            READY   STATUS      RESTARTS   AGE\ntrain-worker-0   0/1     OOMKilled   2          41m\n",
    "    state:\n      terminated:\n        exitCode: 137\n        reason: OOMKilled\n",
    "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
])  # fmt: skip
def test_kubernetes_tells_that_a_container_was_killed_for_memory(text: str, tmp_path: Path) -> None:
    found = judged(tmp_path, text, "pods.txt")
    assert found.status == "failed" and re.search("host out of memory|killed because memory ran out", found.verdict)


def test_the_kill_of_a_data_loaders_worker_is_the_cause_of_its_end(tmp_path: Path) -> None:
    text = (
        "RuntimeError: DataLoader worker (pid 702) is killed by signal: Killed.\n"
        "Memory cgroup out of memory: Killed process 702 (python) total-vm:9kB, anon-rss:8388608kB, file-rss:0kB\n"
    )
    (first,) = judged(tmp_path, text).findings
    assert "process 702 failed: host out of memory" in first.title and "8 GiB of its own" in first.explanation


def test_memory_outside_of_torch_is_told_where_no_process_is_named(tmp_path: Path) -> None:
    text = (
        "RuntimeError: CUDA out of memory. Tried to allocate 300.00 MiB (GPU 0; 23.00 GiB total capacity; 1.00 GiB "
        "already allocated; 20.00 MiB free; 1.10 GiB reserved in total by PyTorch)"
    )
    first = judged(tmp_path, text).findings[0]
    assert "22 GiB are held outside of torch" in first.explanation
    assert "nvidia-smi --query-compute-apps" in first.next_steps[0]


def test_a_request_for_more_than_the_device_is_told_so(tmp_path: Path) -> None:
    text = oom(free="38.00 GiB", held="0.20 GiB", unused="0.10 GiB", used="0.90 GiB").replace("2.50 GiB", "93.00 GiB")
    first = judged(tmp_path, text).findings[0]
    assert "more than the whole device has" in first.explanation


def test_what_is_free_on_the_device_is_no_room_for_a_limited_process(tmp_path: Path) -> None:
    text = oom(free="30.00 GiB", held="7.00 GiB", unused="0.10 GiB").replace("is free. ", "is free. 8.00 GiB allowed; ")
    first = judged(tmp_path, text).findings[0]
    assert "Its limit of 8 GiB: 7 GiB in tensors" in first.explanation and "30 GiB" not in first.explanation
    assert "set_per_process_memory_fraction limits this process" in first.explanation


def test_holes_do_not_explain_a_failure_while_the_device_has_enough(tmp_path: Path) -> None:
    first = judged(tmp_path, oom(free="15.00 GiB")).findings[0]
    assert "fragmentation" not in first.explanation and "More was free than it asked for" in first.explanation
