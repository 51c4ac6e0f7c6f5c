"""Names and values from the forms in which an environment is written down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"(?:export |declare -x )?([A-Za-z_][\w.%()\-]{0,199})=(.*)", re.DOTALL)
_QUOTED = re.compile(r"\"(.*)\"|'(.*)'|\$'(.*)'", re.DOTALL)


class Pair(NamedTuple):
    """A variable as it stands in a file."""

    name: str
    value: str
    line: int


def of_nul(text: str) -> Iterator[Pair]:
    """/proc/PID/environ: entries that end with a NUL."""
    for entry in text.split("\0"):
        name, equals, value = entry.partition("=")
        if equals:
            yield Pair(name, value, 1)


def of_lines(text: str) -> tuple[list[Pair], int]:
    """What env, export or declare print, and how many lines belong to nothing.

    A value with line ends goes on to the next line that begins a variable; bash prints functions like this.
    """
    found: list[Pair] = []
    lost = 0
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        pair = pair_of(line, number)
        if pair is not None:
            found.append(pair)
            inside = pair.value.startswith("() {") or _open(pair.value)
        elif line.strip() and not inside:
            lost += 1
    return found, lost


def pair_of(line: str, number: int) -> Pair | None:
    """The variable that a line sets; None if it sets none."""
    found = _LINE.fullmatch(line.strip())
    return Pair(found[1], _unquoted(found[2]), number) if found is not None else None


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value)
    return next(part for part in quoted.groups() if part is not None) if quoted is not None else value


def _open(value: str) -> bool:
    """Whether a quote is not closed: the value goes on in the next line."""
    return value[:1] in ('"', "'") and (len(value) < 2 or value[-1] != value[0])


# Which variables matter to a distributed job. All others may hold what is nobody's business, and are not kept.

_PREFIXES = (
    # with what their names are misspelt as: a variable that nobody reads is what is looked for
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
_KEPT = re.compile(rf"(?:{'|'.join(_PREFIXES)})_[A-Z0-9_]{{1,100}}|{'|'.join(_NAMES)}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
"""What the shell takes for a name; bash exports functions under names with more in them."""
VALUE_LIMIT = 4096
_SECRET = re.compile(r"KEY|TOKEN(?!I[SZ])|SECRET|PASS|CRED|(?:^|_)AUTH(?:$|_)|(?:^|_)PWD|COOKIE")


def kept(name: str) -> bool:
    """Whether a variable is kept: none that may hold what lets somebody in."""
    return _KEPT.fullmatch(name) is not None and not _SECRET.search(name)
