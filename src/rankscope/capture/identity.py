"""Who this process is: rank, host, job, as its environment and torch.distributed tell."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, NamedTuple

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "RAY_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME")
NO_JOB = "none"
"""What torchrun calls a job to which nobody gave an id."""
_ATTEMPT = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


class Group(NamedTuple):
    """A process group this rank is in."""

    name: str
    """As in the recorder's entries."""
    description: str
    backend: str
    ranks: list[int]
    """Global ranks; the position is the rank within the group."""


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


def groups() -> list[Group]:
    """Every process group this rank is in, in the order in which they were made; the private tables of torch tell."""
    c10d = distributed().distributed_c10d
    world = c10d._world
    members = dict(world.pg_group_ranks)
    found = []
    for group, name in list(world.pg_names.items()):
        placed = members.get(group)
        if placed:
            ranks = sorted(placed, key=placed.__getitem__)
            found.append(Group(str(name), str(getattr(group, "group_desc", "")), _backend(world, group), ranks))
    return found


def _backend(world: Any, group: Any) -> str:
    """As "nccl", or "cpu:gloo,cuda:nccl" where devices have different ones."""
    config = getattr(world, "pg_backend_config", {}).get(group) or (world.pg_map.get(group) or ("",))[0]
    each = {part.rpartition(":")[2] for part in str(config).split(",")}
    return each.pop() if len(each) == 1 else str(config)


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
