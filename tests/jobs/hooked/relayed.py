"""The backend of `relay.cpp`, which torch's FlightRecorderHook records under the name of nccl2."""

from __future__ import annotations

import importlib.metadata
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("relay.cpp")
NAME = "nccl2"
COMPLETIONS = ("late", "never", "without")
"""When the end of an operation is noticed: within a second, never, or by a backend that knows no end at all."""
HOUR = timedelta(hours=1)


def missing() -> str | None:
    """Why such jobs cannot run here; None if they can."""
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return "torch is not installed"
    if (int(major), int(minor)) < (2, 15):
        return f"torch {major}.{minor} has no backends that are recorded by a hook, 2.15 has"
    absent = [name for name in ("c++", "ninja") if shutil.which(name) is None]
    return f"building the backend needs {' and '.join(absent)}" if absent else None


def build() -> Any:
    """The compiled module, built in torch's own cache of extensions if it is not there (half a minute)."""
    from torch.utils.cpp_extension import load

    return load("rankscope_relay", [str(SOURCE)], extra_cflags=["-O1", "-std=c++20", "-w"], with_cuda=False)


def register(module: Any, completion: str, timeout_s: float) -> None:
    """Makes "relay" a name for `init_process_group`; operations that take longer than the timeout are aborted."""
    import torch.distributed as dist

    def create(asked: Any, _options: object) -> Any:
        inner = dist.ProcessGroupGloo(asked.store, asked.group_rank, asked.group_size, HOUR)
        return module.relay(inner, NAME, completion, int(timeout_s * 1000))

    dist.Backend.register_backend("relay", create, extended_api=True, devices=["cpu"])
