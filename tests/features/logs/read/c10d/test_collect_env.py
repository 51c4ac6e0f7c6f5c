"""The report of collect_env, by itself and in logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from tests.features.logs.read.c10d.lines import everything

REPORT = """\
Collecting environment information...
PyTorch version: {torch}
Is debug build: False
CUDA used to build PyTorch: 12.6
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.4 LTS (x86_64)
GCC version: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
Libc version: glibc-2.35

Python version: 3.12.3 (main, Jun  1 2026, 10:00:00) [GCC 11.4.0] (64-bit runtime)
Is CUDA available: True
CUDA runtime version: 12.6.85
CUDA_MODULE_LOADING set to: LAZY
GPU models and configuration:
GPU 0: NVIDIA H100 80GB HBM3
GPU 1: NVIDIA H100 80GB HBM3

Nvidia driver version: 560.35.03
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.9.5.1
/usr/lib/x86_64-linux-gnu/libcudnn_adv.so.9.5.1
HIP runtime version: N/A

CPU:
Architecture:                            x86_64
Vendor ID:                               AuthenticAMD
Model name:                              AMD EPYC 9654
Vulnerability Spec rstack overflow:      Mitigation; Safe RET

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] nvidia-nccl-cu12==2.28.9
[conda] Could not collect
vLLM Version: 0.7.3

NCCL_CUMEM_ENABLE=0
VLLM_API_KEY=hunter2
"""


def report(text: str) -> dict[str, str]:
    (event,) = [e for e in everything(text) if e.kind == "collect-env"]
    settings: Any = event.values["settings"]
    return dict(settings)


def test_what_a_report_tells() -> None:
    told = report(REPORT.format(torch="2.11.0+cu126"))
    assert told == {
        "version:torch": "2.11.0+cu126", "debug-build": "False", "version:cuda": "12.6",
        "os": "Ubuntu 22.04.4 LTS (x86_64)", "version:libc": "glibc-2.35",
        "version:python": "3.12.3 (main, Jun  1 2026, 10:00:00) [GCC 11.4.0] (64-bit runtime)",
        "cuda-available": "True", "version:cuda-runtime": "12.6.85", "CUDA_MODULE_LOADING": "LAZY",
        "gpus": "2 x NVIDIA H100 80GB HBM3", "version:driver": "560.35.03", "version:cudnn": "9.5.1",
        "cpu-vendor": "AuthenticAMD", "cpu-model": "AMD EPYC 9654", "version:numpy": "1.26.4",
        "version:nvidia-nccl-cu12": "2.28.9", "NCCL_CUMEM_ENABLE": "0",
    }  # fmt: skip


def test_reports_in_a_log_of_several_ranks_are_kept_apart() -> None:
    lines = zip(*(REPORT.format(torch=f"2.{rank}.0").splitlines() for rank in range(2)), strict=True)
    text = "".join(f"[rank{rank}]: {line}\n" for row in lines for rank, line in enumerate(row))
    found = [e for e in everything(text) if e.kind == "collect-env"]
    assert {e.rank: dict(e.values["settings"])["version:torch"] for e in found} == {0: "2.0.0", 1: "2.1.0"}


def test_a_report_ends_where_the_job_begins() -> None:
    text = REPORT.format(torch="2.11.0") + "step 1\n" * 12 + "Is CUDA available: False\n"
    assert report(text)["cuda-available"] == "True"
    failed = REPORT.format(torch="2.11.0") + "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"
    assert [e.values.get("id") for e in everything(failed) if e.kind == "known-error"] == ["cuda-out-of-memory"]


def test_reports_of_ranks_are_compared(tmp_path: Path) -> None:
    for rank in range(4):
        text = REPORT.format(torch="2.10.0+cu126" if rank == 1 else "2.11.0+cu126")
        (tmp_path / f"collect_env_rank{rank}.txt").write_text(text)
    dataset = load([tmp_path])
    assert set(dataset.files["kind"]) == {"collect_env"}
    assert set(dataset.settings["source"]) == {"collect_env"}
    (found,) = [f for f in analyse(dataset).findings if f.kind == "version-mismatch"]
    assert (found.culprit_ranks, found.title) == ((1,), "rank 1: version:torch 2.10.0+cu126, most 2.11.0+cu126")
    # a report says nothing of variables that it does not list
    assert not any("unset" in f.title for f in analyse(dataset).findings)
