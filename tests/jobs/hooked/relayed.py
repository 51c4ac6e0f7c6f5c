"""Backends that torch's FlightRecorderHook records, on a CPU: one in C++ (`relay.cpp`), and one written in Python.

That in C++ has the name of nccl2 and notices ends as that does. Of a backend in Python the hook learns of no end.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("relay.cpp")
NAMES = {"late": "nccl2", "never": "nccl2", "without": "plugin"}
"""The name of the backend by when the end of an operation is noticed: within a second, never, or it knows of no end."""
HOUR = timedelta(hours=1)
_made: list[object] = []
"""Backends in Python, which torch does not keep alive."""


def missing() -> str | None:
    """Why no hook records such jobs here; None if one does."""
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return "torch is not installed"
    if (int(major), int(minor)) < (2, 15):
        return f"torch {major}.{minor} has no backends that are recorded by a hook, 2.15 has"
    return None


def no_compiler() -> str | None:
    """Why the backend in C++ cannot be built here; None if it can."""
    absent = [name for name in ("c++", "ninja") if shutil.which(name) is None]
    return f"building the backend needs {' and '.join(absent)}" if absent else None


def build() -> Any:
    """The compiled module, built in torch's own cache of extensions if it is not there (half a minute)."""
    from torch.utils.cpp_extension import load

    return load("rankscope_relay", [str(SOURCE)], extra_cflags=["-O1", "-std=c++20", "-w"], with_cuda=False)


def register(completion: str, timeout_s: float) -> Callable[[], None]:
    """Makes "relay" a name for `init_process_group`; returns what waits for the device.

    Operations that take longer than the timeout are aborted, if their ends are noticed.
    """
    import torch.distributed as dist

    module = None if completion == "without" else build()

    def create(asked: Any, _options: object) -> Any:
        inner = dist.ProcessGroupGloo(asked.store, asked.group_rank, asked.group_size, HOUR)
        if module is None:
            _made.append(_in_python(inner, NAMES[completion]))
            return _made[-1]
        return module.relay(inner, NAMES[completion], completion, int(timeout_s * 1000))

    dist.Backend.register_backend("relay", create, extended_api=True, devices=["cpu"])
    return _nothing if module is None else module.synchronize


def _in_python(inner: Any, name: str) -> Any:
    """A backend whose operations are those of gloo."""
    from torch._C._distributed_c10d import Backend

    class InPython(Backend):
        # a batch is one send or receive after another
        supports_coalescing = False

        def __init__(self) -> None:
            super().__init__(inner.rank(), inner.size())

        def getBackendName(self) -> str:  # noqa: N802 - as torch calls it
            return name

    for operation in ("allreduce", "allgather", "broadcast", "barrier", "send", "recv"):
        setattr(InPython, operation, _passed_on(getattr(inner, operation)))
    return InPython()


def _passed_on(operation: Any) -> Callable[..., Any]:
    return lambda _backend, *arguments: operation(*arguments)


def _nothing() -> None:
    """The host has waited already."""
