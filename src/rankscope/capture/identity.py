"""Who this process is: rank, host, job, as its environment and torch.distributed tell."""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Any, NamedTuple

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "RAY_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME")
NO_JOB = "none"
"""What torchrun calls a job to which nobody gave an id."""
_ATTEMPT = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


ITSELF, HOOK, NOBODY = "itself", "hook", "nobody"
"""Who records the operations of a backend."""
_RECORD_THEMSELVES = {"nccl", "gloo", "xccl"}
"""Backends with a recorder of their own, by the names that they give themselves."""
_NAMES = re.compile(r"[a-z_0-9]+")


class ProcessGroup(NamedTuple):
    """A process group this rank is in."""

    name: str
    """As in the recorder's entries."""
    description: str
    backend: str
    ranks: list[int]
    """Global ranks; the position is the rank within the group."""


class Backend(NamedTuple):
    """A backend of the process groups, and who records its operations."""

    name: str
    """As "nccl" or "gloo"; since torch 2.15 "nccl2" where the trainer says "nccl"."""
    recorder: str
    """`ITSELF`, `HOOK` or `NOBODY`."""
    completion: bool | None = None
    """Whether the hook is told when an operation has ended; None where no hook records."""
    ring: str = ""
    """The recorder's name of what it holds of this backend; empty before torch 2.15, where there is one for all."""


def distributed() -> Any:
    """torch.distributed if the trainer has imported it, else None. It is never imported on the trainer's behalf."""
    torch = sys.modules.get("torch")
    module = getattr(torch, "distributed", None)
    return module if hasattr(module, "is_initialized") and hasattr(module, "distributed_c10d") else None


def initialized() -> bool:
    """Whether there is a default process group."""
    module = distributed()
    return module is not None and bool(module.is_initialized())


def rank_and_world() -> tuple[int | None, int | None]:
    """Global rank and number of ranks, of torch.distributed, else of the launcher."""
    module = distributed()
    if module is not None and module.is_initialized():
        return int(module.get_rank()), int(module.get_world_size())
    return _number(_RANK), _number(_WORLD)


def groups() -> list[ProcessGroup]:
    """Every process group this rank is in, in the order in which they were made; the private tables of torch tell."""
    world = distributed().distributed_c10d._world
    members = dict(world.pg_group_ranks)
    found = []
    for group, name in list(world.pg_names.items()):
        placed = members.get(group)
        if placed:
            ranks = sorted(placed, key=placed.__getitem__)
            found.append(ProcessGroup(str(name), str(getattr(group, "group_desc", "")), _named(world, group), ranks))
    return found


def backends() -> list[Backend]:
    """The backends of all process groups of this rank, those of the first group first."""
    world = distributed().distributed_c10d._world
    hooks = getattr(world, "pg_flight_recorder_hooks", None)
    found: dict[str, Backend] = {}
    for group in list(world.pg_names):
        for one in _configured(world, group) if hooks is None else _made(world, group, group in hooks):
            # of two groups one may have been made while the recorder was off
            if one.name not in found or found[one.name].recorder == NOBODY:
                found[one.name] = one
    return list(found.values())


def _configured(world: Any, group: Any) -> list[Backend]:
    """As the group was asked for: "gloo", or "cpu:gloo,cuda:nccl"."""
    names = [_NAMES.findall(part) for part in _config(world, group).lower().split(",")]
    return [Backend(found[-1], ITSELF) for found in names if found]


def _made(world: Any, group: Any, hooked: bool) -> list[Backend]:
    """The backends that a group has, since torch 2.15; one that is written in Python as a whole has none."""
    found = []
    for backend in _by_device(group).values():
        name = str(backend.name())
        recorder = ITSELF if name in _RECORD_THEMSELVES else HOOK if hooked else NOBODY
        completion = getattr(backend, "supports_completion_hooks", None) is True if recorder == HOOK else None
        found.append(Backend(name, recorder, completion, name))
    return found or [one._replace(recorder=NOBODY) for one in _configured(world, group)]


def _by_device(group: Any) -> dict[str, Any]:
    return {device.type: group._get_backend(device) for device in getattr(group, "_device_types", ())}


def _named(world: Any, group: Any) -> str:
    """As "nccl", or "cpu:gloo,cuda:nccl" where devices have different ones."""
    config = _config(world, group)
    if hasattr(world, "pg_flight_recorder_hooks"):
        # what was asked for as "nccl" may be another backend
        config = ",".join(f"{device}:{made.name()}" for device, made in _by_device(group).items()) or config
    each = {part.rpartition(":")[2] for part in config.split(",")}
    return each.pop() if len(each) == 1 else config


def _config(world: Any, group: Any) -> str:
    return str(getattr(world, "pg_backend_config", {}).get(group) or (world.pg_map.get(group) or ("",))[0])


def environment() -> dict[str, Any]:
    """What does not change while the process lives."""
    return {
        "local_rank": _number(_LOCAL),
        "host": platform.node(),
        "pid": os.getpid(),
        "job": next((os.environ[name] for name in _JOB if os.environ.get(name, NO_JOB) not in ("", NO_JOB)), None),
        "attempt": _number(_ATTEMPT),
    }


def versions() -> dict[str, str]:
    """Of what the trainer has loaded."""
    torch: Any = sys.modules.get("torch")
    told = {"python": platform.python_version(), "torch": str(getattr(torch, "__version__", ""))}
    nccl = getattr(getattr(torch, "_C", None), "_nccl_version", None)
    if nccl is not None:
        code = nccl()
        told["nccl"] = f"{code >> 32}.{(code >> 16) & 0xFFFF}.{code & 0xFFFF}" if isinstance(code, int) else str(code)
    return {name: value for name, value in told.items() if value}


def _number(names: tuple[str, ...]) -> int | None:
    told = (os.environ[name] for name in names if os.environ.get(name, "").isdigit())
    return next(map(int, told), None)
