"""Identity of this process: rank, host, job, from its environment and torch.distributed."""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Any, NamedTuple

from . import writers
from .lineage import RANK_VARIABLES, lineage, process_ticks

_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "RAY_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME")
NO_JOB = "none"
"""Name that torchrun gives to a job without an id."""
_ATTEMPT = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


ITSELF, HOOK, NOBODY = "itself", "hook", "nobody"
"""Recorders of the operations of a backend."""
_RECORD_THEMSELVES = {"nccl", "gloo", "xccl"}
"""Backends with a recorder of their own, by their own names."""
_NAMES = re.compile(r"[a-z_0-9]+")


class ProcessGroup(NamedTuple):
    """A process group of this rank."""

    name: str
    """Its name in the recorder's entries."""
    description: str
    backend: str
    ranks: list[int]
    """Global ranks; the position is the rank within the group."""


class Backend(NamedTuple):
    """A backend of the process groups, and the recorder of its operations."""

    name: str
    """"nccl" or "gloo"; since torch 2.15 "nccl2" for the trainer's "nccl"."""
    recorder: str
    """`ITSELF`, `HOOK` or `NOBODY`."""
    completion: bool | None = None
    """Whether the hook gets notice of the end of an operation; None without a hook."""
    ring: str = ""
    """The recorder's name for the ring of this backend; empty before torch 2.15, which has one ring for all."""


def distributed() -> Any:
    """torch.distributed if the trainer has imported it, else None. The capture never imports it."""
    torch = sys.modules.get("torch")
    module = getattr(torch, "distributed", None)
    return module if hasattr(module, "is_initialized") and hasattr(module, "distributed_c10d") else None


def initialized() -> bool:
    """Whether a default process group exists."""
    module = distributed()
    return module is not None and bool(module.is_initialized())


def rank_and_world() -> tuple[int | None, int | None]:
    """Global rank and number of ranks, from torch.distributed, else from the launcher of this process."""
    module = distributed()
    if module is not None and module.is_initialized():
        return int(module.get_rank()), int(module.get_world_size())
    if not lineage(False).has_own_launcher:
        return None, None
    return _number(RANK_VARIABLES), _number(_WORLD)


def groups() -> list[ProcessGroup]:
    """Every process group of this rank, in order of creation, from private tables of torch."""
    world = distributed().distributed_c10d._world
    members = dict(world.pg_group_ranks)
    found = []
    for group, name in list(world.pg_names.items()):
        placed = members.get(group)
        if placed:
            ranks = sorted(placed, key=placed.__getitem__)
            found.append(
                ProcessGroup(str(name), str(getattr(group, "group_desc", "")), _backend_names(world, group), ranks)
            )
    return found


def backends() -> list[Backend]:
    """The backends of all process groups of this rank, those of the first group first."""
    world = distributed().distributed_c10d._world
    hooks = getattr(world, "pg_flight_recorder_hooks", None)
    by_name: dict[str, Backend] = {}
    for group in list(world.pg_names):
        for backend in (
            _configured_backends(world, group) if hooks is None else _made_backends(world, group, group in hooks)
        ):
            # one of two groups may have been made while the recorder was off
            if backend.name not in by_name or by_name[backend.name].recorder == NOBODY:
                by_name[backend.name] = backend
    return list(by_name.values())


def _configured_backends(world: Any, group: Any) -> list[Backend]:
    """The requested backends of a group: "gloo", or "cpu:gloo,cuda:nccl"."""
    names = [_NAMES.findall(part) for part in _config(world, group).lower().split(",")]
    return [Backend(found[-1], ITSELF) for found in names if found]


def _made_backends(world: Any, group: Any, hooked: bool) -> list[Backend]:
    """The backends of a group, since torch 2.15; a group written only in Python has none."""
    found = []
    for backend in _by_device(group).values():
        name = str(backend.name())
        recorder = ITSELF if name in _RECORD_THEMSELVES else HOOK if hooked else NOBODY
        completion = getattr(backend, "supports_completion_hooks", None) is True if recorder == HOOK else None
        found.append(Backend(name, recorder, completion, name))
    return found or [one._replace(recorder=NOBODY) for one in _configured_backends(world, group)]


def _by_device(group: Any) -> dict[str, Any]:
    return {device.type: group._get_backend(device) for device in getattr(group, "_device_types", ())}


def _backend_names(world: Any, group: Any) -> str:
    """The name of a group's backends: "nccl", or "cpu:gloo,cuda:nccl" for several devices."""
    config = _config(world, group)
    if hasattr(world, "pg_flight_recorder_hooks"):
        # a backend requested as "nccl" may be another one
        config = ",".join(f"{device}:{backend.name()}" for device, backend in _by_device(group).items()) or config
    each = {part.rpartition(":")[2] for part in config.split(",")}
    return each.pop() if len(each) == 1 else config


def _config(world: Any, group: Any) -> str:
    return str(getattr(world, "pg_backend_config", {}).get(group) or (world.pg_map.get(group) or ("",))[0])


def environment() -> dict[str, Any]:
    """The constant facts of the process."""
    return {
        "local_rank": _number(_LOCAL),
        "host": platform.node(),
        "pid": os.getpid(),
        "job": next((os.environ[name] for name in _JOB if os.environ.get(name, NO_JOB) not in ("", NO_JOB)), None),
        "attempt": _number(_ATTEMPT),
        "machine": writers.machine(),
        "process_ticks": process_ticks(os.getpid()),
    }


def versions() -> dict[str, str]:
    """The versions of loaded libraries of the trainer."""
    torch: Any = sys.modules.get("torch")
    texts = {"python": platform.python_version(), "torch": str(getattr(torch, "__version__", ""))}
    nccl = getattr(getattr(torch, "_C", None), "_nccl_version", None)
    if nccl is not None:
        code = nccl()
        texts["nccl"] = f"{code >> 32}.{(code >> 16) & 0xFFFF}.{code & 0xFFFF}" if isinstance(code, int) else str(code)
    return {name: value for name, value in texts.items() if value}


def _number(names: tuple[str, ...]) -> int | None:
    values = (os.environ[name] for name in names if os.environ.get(name, "").isdigit())
    return next(map(int, values), None)
