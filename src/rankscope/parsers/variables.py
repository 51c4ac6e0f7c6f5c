"""Variables of an environment in its written forms, and which of them are kept: all others may hold secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"(?:export |declare -x )?([A-Za-z_][\w.%()\-]{0,199})=(.*)", re.DOTALL)
_QUOTED = re.compile(r"\"(.*)\"|'(.*)'|\$'(.*)'", re.DOTALL)


class VariablePair(NamedTuple):
    """A variable as the file writes it."""

    name: str
    value: str
    line: int


def pairs_of_nul(text: str) -> Iterator[VariablePair]:
    """/proc/PID/environ: entries that end with a NUL."""
    for entry in text.split("\0"):
        name, equals, value = entry.partition("=")
        if equals:
            yield VariablePair(name, value, 1)


def pairs_of_lines(text: str) -> tuple[list[VariablePair], int]:
    """The variables that env, export or declare prints, and the number of lines that belong to none.

    A value with line ends goes on to the next line that begins a variable; bash prints functions like this.
    """
    found: list[VariablePair] = []
    lost = 0
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        pair = pair_of(line, number)
        if pair is not None:
            found.append(pair)
            inside = pair.value.startswith("() {") or _is_open(pair.value)
        elif line.strip() and not inside:
            lost += 1
    return found, lost


def pair_of(line: str, number: int) -> VariablePair | None:
    """The variable that a line sets; None if it sets none."""
    found = _LINE.fullmatch(line.strip())
    return VariablePair(found[1], _unquoted(found[2]), number) if found is not None else None


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value)
    return next(part for part in quoted.groups() if part is not None) if quoted is not None else value


def _is_open(value: str) -> bool:
    """Whether a quote is still open, so that the value goes on in the next line."""
    return value[:1] in ('"', "'") and (len(value) < 2 or value[-1] != value[0])


_PREFIXES = (
    # with misspelt forms of each: the analysis looks for variables that nobody reads
    "NCCL", "NCC", "NCLL", "NNCL", "RCCL", "RCC", "HCCL", "HCC", "HCLL", "LCCL", "LCC", "ATB", "ASCEND", "MSCCL",
    "OFI_NCCL", "GLOO", "UCX", "UCC", "FI", "NVSHMEM", "SHARP", "TORCH", "TORCHINDUCTOR", "TORCHELASTIC", "PYTORCH",
    "CUDA", "CUBLAS", "CUBLASLT", "CUDNN", "NVTE", "NVIDIA", "HIP", "HSA", "ROCR", "MIOPEN", "ROCM", "OMP", "MKL",
    "KMP", "OPENBLAS", "NUMEXPR", "MAMBA", "CAUSAL_CONV1D", "TRITON", "XLA", "MEGATRON", "DEEPSPEED", "DS", "FSDP",
    "ACCELERATE", "VLLM", "SGLANG", "TE", "NPU", "MINDSPEED", "MASTER",
)  # fmt: skip
_NAMES = (
    "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "LOCAL_ADDR", "POD_IP", "POD_NAME", "HOSTNAME", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONHOME",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "CLOSE_MATMUL_K_SHIFT", "CUSTOM_MATMUL_SHUFFLE", "TASK_QUEUE_ENABLE",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_JOB_ID",
    "SLURMD_NODENAME", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK",
    "PMI_SIZE", "PMIX_RANK", "CPU_AFFINITY_CONF", "MULTI_STREAM_MEMORY_REUSE", "COMBINED_ENABLE",
)  # fmt: skip
_KEPT_NAMES = re.compile(rf"(?:{'|'.join(_PREFIXES)})_[A-Z0-9_]{{1,100}}|{'|'.join(_NAMES)}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
"""A valid name in the shell; bash exports functions under longer names."""
VALUE_LIMIT = 4096
_SECRET = re.compile(r"KEY|TOKEN(?!I[SZ])|SECRET|PASS|CRED|(?:^|_)AUTH(?:$|_)|(?:^|_)PWD|COOKIE")


def is_kept(name: str) -> bool:
    """Whether a variable is kept; variables that may hold credentials never are."""
    return _KEPT_NAMES.fullmatch(name) is not None and not _SECRET.search(name)
