"""Facts of the run in the header: its id, seeds, hashes of random states, and settings that decide numbers."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import uuid
from typing import Any

import torch

from ..code_record import process_record
from ..identity import environment

_VARIABLES = (
    "NCCL_",
    "GLOO_",
    "TORCH_",
    "PYTORCH_",
    "CUBLAS_",
    "CUDNN_",
    "CUDA_",
    "NVIDIA_TF32",
    "OMP_",
    "MKL_",
    "HCCL_",
)
"""Beginnings of variables that decide how numbers come about."""
_LONGEST = 200


def run_id() -> str:
    """The id of the run in hexadecimal: the same on all ranks where the launcher names the job or the meeting place."""
    known = environment()
    place = [os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
    parts = [str(known["job"] or ""), str(known["attempt"] or 0), *place]
    if not any((parts[0], *place)):
        return uuid.uuid4().hex[:16]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def random_states() -> dict[str, str]:
    """Hashes of the states of random generators: of Python, numpy where it is loaded, torch, and devices in use."""
    found = {"python": _short(repr(random.getstate()).encode()), "torch": _tensor_hash(torch.get_rng_state())}
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        found["numpy"] = _short(repr([_bytes(part) for part in numpy.random.get_state()]).encode())
    # asking whether there is a device would start the driver, and a later fork could use none
    if torch.cuda.is_initialized():
        found["cuda"] = _tensor_hash(torch.cuda.get_rng_state())
    return found


def _bytes(part: Any) -> object:
    return part.tobytes() if hasattr(part, "tobytes") else part


def _tensor_hash(state: Any) -> str:
    return _short(bytes(state.untyped_storage()))


def numeric_settings() -> dict[str, Any]:
    """Settings that decide numbers, seeds, and the random states now."""
    backends = torch.backends
    settings = {
        "seed": torch.initial_seed(),
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED"),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": backends.cudnn.deterministic,
        "cudnn_benchmark": backends.cudnn.benchmark,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu",
    }
    variables = {name: value[:_LONGEST] for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}
    return {**settings, "rng": random_states(), "environment": variables}


def code_settings() -> dict[str, str]:
    """The code of this process. It reads source files: not for a thread of the job."""
    return process_record().settings(is_first=not environment()["local_rank"])
