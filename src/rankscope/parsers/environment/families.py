"""Which variables matter to a distributed job. All others may hold what is nobody's business, and are not kept."""

from __future__ import annotations

import re

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
