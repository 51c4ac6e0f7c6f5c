"""Wrappers of parameters: FSDP2, FSDP1, DDP, DeepSpeed, Megatron, and the meshes and process groups behind them.

Tables of wrappers are private to torch, and read as of torch 2.2 to 2.13; one that is not there is passed over.
DeepSpeed and Megatron are known by names of their classes and by attributes of their parameters: `ds_tensor`,
`ds_shape` and `ds_process_group` (deepspeed/runtime/zero/partition_parameters.py), `tensor_model_parallel` and
`partition_dim` (megatron/core/tensor_parallel/layers.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

FSDP2, FSDP1, DDP, TP, IGNORED = "fsdp2", "fsdp1", "ddp", "tp", "ignored"
ZERO, MEGATRON = "zero", "megatron"
FLAT = ("S(flat)",)
_FOREIGN = {
    "DeepSpeedEngine": ("deepspeed", ZERO),
    "PipelineEngine": ("deepspeed", ZERO),
    "DistributedDataParallel": ("megatron", MEGATRON),
    "Float16Module": ("megatron", None),
}
"""Classes outside of torch that hold a model as `module`: their package, and the wrapper they are."""
MOST_RUNS = 1024
"""Most runs of ranks that are written of a group."""


class WrappedTensor(NamedTuple):
    """A parameter that a wrapper took, or was told to ignore."""

    wrapper: str
    tensor: Any
    """The tensor that stays: of FSDP2 the shard, also while the module holds the whole one."""
    group: Any = None
    """The process group of DDP or FSDP1; None where a mesh tells."""
    shape: tuple[int, ...] | None = None
    """The shape before it was sharded, where the tensor does not tell it."""
    placements: tuple[str, ...] | None = None
    """`FLAT` for a shard of FSDP1, which cuts all parameters of a module as one row of elements; so does ZeRO-3."""
    local: Any = None
    """The shard, where another tensor than `tensor` holds it."""


def wrapped_tensors(part: Any) -> dict[int, WrappedTensor]:
    """The parameters below a module that wrappers know, by their `id`."""
    found: dict[int, WrappedTensor] = {}
    for module in part.modules():
        for tensor, known in (*_of_fsdp2(module), *_of_fsdp1(module), *_of_ddp(module), *_of_foreign(module)):
            found.setdefault(id(tensor), known)
    for module in part.modules():
        if hasattr(module, "_get_fsdp_state"):
            for tensor in module.parameters():
                if not hasattr(tensor, "placements"):
                    found.setdefault(id(tensor), WrappedTensor(IGNORED, tensor))
    return found


def _of_fsdp2(module: Any) -> Iterator[tuple[Any, WrappedTensor]]:
    if not hasattr(module, "_get_fsdp_state"):
        return
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    for one in (one for group in groups if group is not None for one in group.fsdp_params):
        known = WrappedTensor(FSDP2, one.sharded_param)
        yield one.sharded_param, known
        whole = getattr(one, "_unsharded_param", None)
        if whole is not None:
            yield whole, known


def _of_fsdp1(module: Any) -> Iterator[tuple[Any, WrappedTensor]]:
    package = sys.modules.get("torch.distributed.fsdp")
    if package is None or not isinstance(module, package.FullyShardedDataParallel):
        return
    for tensor in getattr(module, "_ignored_params", ()):
        yield tensor, WrappedTensor(IGNORED, tensor)
    flat = getattr(getattr(module, "_handle", None), "flat_param", None)
    if flat is None:
        return
    group, cut = module.process_group, FLAT if module._handle.uses_sharded_strategy else None
    yield flat, WrappedTensor(FSDP1, flat, group, tuple(flat._unpadded_unsharded_size), cut)
    for tensor, shape in zip(flat._params or (), flat._shapes, strict=False):
        yield tensor, WrappedTensor(FSDP1, tensor, group, tuple(shape), cut)


def _of_foreign(module: Any) -> Iterator[tuple[Any, WrappedTensor]]:
    """The parameters that an engine of DeepSpeed or DDP of Megatron holds; they may be sharded or not."""
    wrapper = _foreign(module)[1]
    if wrapper == ZERO:
        for tensor in module.module.parameters():
            yield tensor, _of_zero(tensor)
    elif wrapper == MEGATRON:
        for tensor in module.module.parameters():
            if tensor.requires_grad:
                yield tensor, _of_megatron(tensor, module)


def _of_zero(tensor: Any) -> WrappedTensor:
    """A parameter of DeepSpeed: of stage 3 with its shard, of the others whole."""
    shard = getattr(tensor, "ds_tensor", None)
    group = getattr(tensor, "ds_process_group", None)
    if shard is None:
        return WrappedTensor(ZERO, tensor, group)
    return WrappedTensor(ZERO, tensor, group, tuple(tensor.ds_shape), FLAT, shard)


def _of_megatron(tensor: Any, wrapper: Any) -> WrappedTensor:
    """A parameter of Megatron; of tensor parallel layers it is a part along one dimension."""
    is_expert = not getattr(tensor, "allreduce", True)
    group = getattr(wrapper, "expt_dp_group" if is_expert else "dp_group", None)
    parts = wrapper.tp_group.size() if getattr(tensor, "tensor_model_parallel", False) else 1
    if parts == 1:
        return WrappedTensor(MEGATRON, tensor, group)
    shape, cut = list(tensor.shape), int(tensor.partition_dim)
    shape[cut] *= parts
    return WrappedTensor(MEGATRON, tensor, group, tuple(shape), (f"S({cut})",))


def _foreign(module: Any) -> tuple[str, str | None]:
    """The package and the wrapper of a module that is not of torch; ("", None) if it is none."""
    kind = type(module)
    package, wrapper = _FOREIGN.get(kind.__name__, ("", None))
    is_known = package and kind.__module__.partition(".")[0] == package and hasattr(module, "module")
    return (package, wrapper) if is_known else ("", None)


def wrapper_paths(part: Any) -> list[str]:
    """The dotted names of modules that hold the model as `module`, innermost first."""
    package = sys.modules.get("torch.nn.parallel")
    known = (package.DistributedDataParallel,) if package is not None else ()
    found = [path for path, module in part.named_modules() if isinstance(module, known) or _foreign(module)[0]]
    return sorted(found, key=len, reverse=True)


def _of_ddp(module: Any) -> Iterator[tuple[Any, WrappedTensor]]:
    package = sys.modules.get("torch.nn.parallel")
    if package is not None and isinstance(module, package.DistributedDataParallel):
        ignored = set(module.parameters_to_ignore)
        for name, tensor in module.module.named_parameters():
            how, group = (IGNORED, None) if name in ignored else (DDP, module.process_group)
            yield tensor, WrappedTensor(how, tensor, group)
        return
    contract: Any = sys.modules.get("torch.distributed._composable.contract")
    if contract is not None and "replicate" in (contract._get_registry(module) or ()):
        for tensor in module.parameters():
            yield tensor, WrappedTensor(DDP, tensor)


class MeshTable:
    """The meshes and process groups of a model, each written once and named by its place in the table."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._places: dict[Any, int] = {}

    def mesh(self, mesh: Any) -> int:
        """The place of a device mesh."""
        if mesh not in self._places:
            shape = [int(size) for size in mesh.mesh.shape]
            self._add(mesh, list(mesh.mesh_dim_names or ()), shape, mesh.mesh.flatten().tolist())
        return self._places[mesh]

    def group(self, group: Any, name: str) -> int:
        """The place of a process group; `name` stands for its dimension."""
        if group not in self._places:
            distributed = sys.modules["torch.distributed"]
            ranks = distributed.get_process_group_ranks(group)
            self._add(group, [name], [len(ranks)], ranks)
        return self._places[group]

    def _add(self, key: Any, names: list[str], shape: list[int], ranks: Sequence[int]) -> None:
        runs = rank_runs(ranks)
        self._places[key] = len(self.rows)
        self.rows.append({"names": names, "shape": shape, "ranks": runs if len(runs) <= MOST_RUNS else None})


def rank_runs(ranks: Sequence[int]) -> list[list[int]]:
    """Ranks as runs of equal steps, each [first, step, count], in ascending order."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        last = runs[-1] if runs else None
        if last is not None and (last[2] == 1 or rank == last[0] + last[1] * last[2]):
            last[1] = rank - last[0] if last[2] == 1 else last[1]
            last[2] += 1
        else:
            runs.append([rank, 1, 1])
    return runs
