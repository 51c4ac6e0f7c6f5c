"""Texts as people paste them: sentences around a log, parts left out, and kinds of lines that stand alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.schema import Dataset


def job(tmp_path: Path, text: str, name: str = "issue.txt") -> tuple[Dataset, Analysis]:
    (tmp_path / name).write_text(text)
    dataset = load([tmp_path / name])
    return dataset, analyse(dataset)


def judged(tmp_path: Path, text: str) -> Analysis:
    return job(tmp_path, text)[1]


def gave_up(rank: int) -> str:
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds "
        "before timing out.\n"
    )


RAISED = '[rank5]: Traceback (most recent call last):\n[rank5]:   File "/app/a.py", line 4, in go\n[rank5]: ValueError: bad\n'  # noqa: E501


@pytest.mark.parametrize(
    "sentence",
    [
        'I think rank 3 OOMs, because I saw "CUDA out of memory" there last week.',
        "Has anyone seen CUDA out of memory on rank 2 with this model?",
        "Every few hours rank 3 dies with CUDA out of memory, probably in the loader.",
        "We get ncclSystemError: System call failed on another cluster.",
    ],
)
def test_sentences_of_people_are_no_evidence(sentence: str, tmp_path: Path) -> None:
    around = judged(tmp_path, f"{sentence}\n\n{RAISED}")
    assert around.verdict.startswith("rank 5 failed: ValueError: bad")
    assert all(one.line != 1 for finding in around.findings for one in finding.evidence)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. Please read the docs, or we fail.",
    ],
)
def test_lines_of_programs_are_no_sentences(line: str, tmp_path: Path) -> None:
    assert judged(tmp_path, f"{line}\n").status == "failed"


@pytest.mark.parametrize(
    "mark", ["<snip>", "[truncated]", "...", "[...]", "(... 2,311 lines omitted ...)", "... [truncated 12 lines] ..."]
)
def test_nobody_is_accused_for_lines_that_are_left_out(mark: str, tmp_path: Path) -> None:
    quiet = "[rank2]: Traceback (most recent call last):\nKeyboardInterrupt\n"
    whole = judged(tmp_path, gave_up(0) + gave_up(1) + gave_up(3) + quiet)
    assert whole.cause is not None and whole.cause.culprit_ranks == (2,)
    cut = judged(tmp_path, gave_up(0) + gave_up(1) + f"{mark}\n" + gave_up(3) + quiet)
    assert not any(finding.culprit_ranks or finding.candidates for finding in cut.findings)
    assert "is cut at issue.txt:3" in cut.findings[0].explanation


def test_a_process_of_several_replicas_has_no_rank(tmp_path: Path) -> None:
    """Of `DP1 TP2` nothing tells how replicas are counted; `TP2` alone is the rank."""
    head = "[2025-05-04 10:22:31 {}] Scheduler hit an exception: Traceback (most recent call last):\n"
    body = '  File "/srt/scheduler.py", line 22, in run\n    loop()\nRuntimeError: no blocks left\n'
    named = judged(tmp_path, head.format("DP1 TP2") + body)
    assert named.verdict.startswith("the process DP1 TP2 failed: RuntimeError: no blocks left")
    assert judged(tmp_path, head.format("TP2") + body).cause.culprit_ranks == (2,)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("line", "who", "severity"),
    [
        (
            "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
            "the GPU",
            "warning",
        ),
        ("pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0", "the PCIe device", "warning"),
        ("mlx5_core 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", "the port", "info"),
    ],
)
def test_errors_of_the_bus_alone(line: str, who: str, severity: str, tmp_path: Path) -> None:
    (finding,) = judged(tmp_path, f"[  812.334512] {line}\n").findings
    assert (finding.kind, finding.severity) == ("hardware-fault", severity)
    assert finding.title.startswith(f"{who} at 0000:41:00: ")


def test_the_port_above_a_device_is_told_with_it(tmp_path: Path) -> None:
    text = (
        "[  812.3] pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0\n"
        "[  812.4] nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n"
    )
    (finding,) = judged(tmp_path, text.replace("812.3", "812.300000").replace("812.4", "812.400000")).findings
    assert finding.title.startswith("the GPU at 0000:41:00") and len(finding.evidence) == 2


def test_a_driver_that_does_not_answer(tmp_path: Path) -> None:
    assert "(NVML)" in judged(tmp_path, "pynvml.nvml.NVMLError_Unknown: Unknown Error\n").verdict


def test_slow_ranks_by_another_tool_are_suspects_only(tmp_path: Path) -> None:
    text = (
        "[NeMo I 2025-03-04 10:12:01 cb:150]\n     GPU relative performance:\n      Worst performing 2/16 ranks:\n"
        "       Rank=3 Node=node-a Score=0.61\n       Rank=11 Node=node-b Score=0.93\n"
        "      Best performing 1/16 ranks:\n       Rank=0 Node=node-a Score=1.00\n"
        "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {3}\n"
    )
    (finding,) = judged(tmp_path, text).findings
    assert (finding.kind, finding.culprit_ranks, finding.candidates) == ("straggler", (), (3,))
    assert "0.61" in finding.explanation and "node-a" in finding.explanation


def test_what_the_client_of_ras_prints_of_its_checks(tmp_path: Path) -> None:
    text = (
        "=== RAS Diagnostics ===\n[OK] GPU inventory: 8x X per node consistent across 16 ranks in comm 0x6f1c22d0\n"
        "[WARN] ECC: uncorrected volatile errors on rank(s) 13 (worst=2) across 16 ranks in comm 0x6f1c22d0\n"
    )
    (finding,) = job(tmp_path, text, "health")[1].findings
    assert "ECC: uncorrected volatile errors on rank(s) 13" in finding.title


def test_transports_of_a_start(tmp_path: Path) -> None:
    head = "node01:44:52 [0] NCCL INFO "
    lines = ("Trees [0] 1/-1/-1->0->-1", "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/Socket/0",
             "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM")  # fmt: skip  # noqa: E501
    (finding,) = judged(tmp_path, "".join(f"{head}{line}\n" for line in lines)).findings
    assert "transports NET/Socket, SHM, P2P/CUMEM" in finding.title and "(issue.txt:2)" in finding.title
    assert "over sockets" in finding.explanation and "no way to read each other" in finding.explanation


def test_ranks_without_a_line_are_no_suspects_of_a_setup(tmp_path: Path) -> None:
    line = "node01:44:52 [0] NCCL INFO comm 0x55d0 rank 0 nranks 4 cudaDev 0 busId 1000 commId 0xabc1 - Init START\n"
    (finding,) = judged(tmp_path, line).findings
    assert finding.candidates == () and "there is no line of ranks 1-3" in finding.title


@pytest.mark.parametrize("width", [80, 100])
def test_steps_that_a_terminal_wrapped(width: int, tmp_path: Path) -> None:
    text = ""
    for at in range(1, 7):
        line = (
            f" iteration {at * 10:8d}/     200 | consumed samples: {at * 640:12d} | elapsed time per iteration (ms): 812.1 "  # noqa: E501
            f"| learning rate: 1.000E-05 | lm loss: {'NAN' if at > 3 else f'9.{at}1234E+00'} | grad norm: 3.121 |"
        )
        text += "".join(f"{line[i : i + width]}\n" for i in range(0, len(line), width))
    assert judged(tmp_path, text).verdict == "the loss is nan from step 40 on (9.312 at step 30)"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("[pod-n0-0] terminated with exit code (137). Reason [Error].\n", "the process behind pod-n0-0 failed: killed by"),  # noqa: E501
        ("[E socket.cpp:462] [c10d] The server socket has failed to listen on any local network address.\n",
         "the port of the rendezvous is in use"),
        ("run.sh: line 10:     93 Killed                  python a.py\n", "process 93 failed: killed by SIGKILL"),
        ("worker-1: EH9999: Inner Error!\nworker-1:         rtDeviceSynchronize execute failed, reason=[task timeout]\n",  # noqa: E501
         "the process behind worker-1 gave up waiting"),
    ],
)  # fmt: skip
def test_ends_as_shells_and_launchers_print_them(text: str, verdict: str, tmp_path: Path) -> None:
    assert judged(tmp_path, text).verdict.startswith(verdict)


def test_a_norm_that_is_nan_at_the_end_is_no_quiet_log(tmp_path: Path) -> None:
    lines = [f"{{'loss': 2.{at}, 'grad_norm': {'nan' if at > 3 else 1.5}, 'epoch': 0.{at}}}\n" for at in range(6)]
    assert "nan" in judged(tmp_path, "".join(lines)).verdict


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "torchrun ended since a rank failed"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "the rendezvous was closed"),
    ],
)
def test_the_end_of_a_launcher_alone_says_that_the_cause_is_elsewhere(line: str, meaning: str, tmp_path: Path) -> None:
    alone = judged(tmp_path, f"{line}\n")
    assert alone.status == "failed" and meaning in alone.verdict
    assert [finding.culprit_ranks for finding in alone.findings] == [()]
