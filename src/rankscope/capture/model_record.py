"""Record of a model: each parameter of this rank with its shape, layout, wrapper and bytes, as lines of JSON.

docs/model.md describes the form. Only sizes and names are read, so no device is asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

from .wrapper_record import TP, MeshTable, WrappedTensor, ddp_paths, wrapped_tensors

VERSION = 1
MOST_PARAMETERS = 1 << 15
"""Parameters of a file; further ones are only counted."""
LONGEST_NAME = 512
_WORDS = {"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"}
"""Names of modules that wrappers add."""


def model_lines(model: Any, optimizer: Any, group: Any, process: Mapping[str, Any]) -> bytes:
    """The record of a model, which begins with the facts of the `process`.

    `model` is a module or a sequence of them, `optimizer` an optimizer, a sequence of them, or None,
    `group` a process group of ranks that hold the same model, or None.
    """
    parts = [model] if hasattr(model, "named_parameters") else list(model)
    states = _states(optimizer)
    meshes, lines, count = MeshTable(), list[str](), 0
    if group is not None:
        meshes.group(group, "group")
    for name, tensor, known in _parameters(parts):
        count += 1
        if count <= MOST_PARAMETERS:
            row = _row(tensor, known, states.get(id(tensor)) or states.get(id(known.tensor) if known else 0), meshes)
            lines.append(json.dumps({"name": name[:LONGEST_NAME], **row}))
    head = {
        "rankscope_model": VERSION, **process, "time_ns": time.time_ns(), "model": type(parts[0]).__name__,
        "parameters": count, "meshes": meshes.rows,
    }  # fmt: skip
    return "".join(f"{line}\n" for line in [json.dumps(head), *lines]).encode()


def _parameters(parts: list[Any]) -> Iterator[tuple[str, Any, WrappedTensor | None]]:
    """Name, tensor and wrapper of each parameter; names of several parts begin with the number of the part."""
    for place, part in enumerate(parts):
        known = wrapped_tensors(part)
        front = f"{place}." if len(parts) > 1 else ""
        ddp = [f"{path}." if path else "" for path in ddp_paths(part)]
        for name, tensor in part.named_parameters():
            yield front + _plain_name(name, ddp), tensor, known.get(id(tensor))


def _plain_name(name: str, ddp: list[str]) -> str:
    """The name without the words that wrappers put into it; `ddp` are the beginnings of names in DDP."""
    for path in ddp:
        if name.startswith(f"{path}module."):
            name = path + name[len(path) + len("module.") :]
            break
    return ".".join(word for word in name.split(".") if word not in _WORDS)


def _states(optimizer: Any) -> dict[int, Mapping[str, Any]]:
    """The state of each parameter by the `id` of the parameter."""
    if optimizer is None:
        return {}
    several: Iterable[Any] = [optimizer] if hasattr(optimizer, "state") else list(optimizer)
    return {id(tensor): state for one in several for tensor, state in one.state.items() if hasattr(state, "items")}


def _row(
    tensor: Any, known: WrappedTensor | None, state: Mapping[str, Any] | None, meshes: MeshTable
) -> dict[str, Any]:
    """The values of a parameter but its name."""
    if known is not None:
        tensor = known.tensor
    local = _local(tensor)
    shape = (known.shape if known is not None else None) or tuple(tensor.shape)
    is_placed = hasattr(tensor, "placements")
    wrapper = known.wrapper if known is not None else TP if is_placed else None
    values = [] if state is None else [value for value in state.values() if hasattr(value, "element_size")]
    return {
        "shape": list(shape), "local": list(local.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
        "requires_grad": bool(tensor.requires_grad), "device": str(local.device), "wrapper": wrapper,
        "mesh": meshes.mesh(tensor.device_mesh) if is_placed else None,
        "group": None if known is None or known.group is None else meshes.group(known.group, known.wrapper),
        "placements": list(known.placements) if known is not None and known.placements else _placements(tensor),
        "gradient_placements": _placements(tensor.grad),
        "state_placements": next((told for value in values if (told := _placements(value))), None),
        "bytes": _bytes(tensor), "gradient_bytes": 0 if tensor.grad is None else _bytes(tensor.grad),
        "state_bytes": sum(map(_bytes, values)),
    }  # fmt: skip


def _local(tensor: Any) -> Any:
    return getattr(tensor, "_local_tensor", tensor)


def _bytes(tensor: Any) -> int:
    """Bytes on this rank; a tensor of the meta device has none."""
    local = _local(tensor)
    return 0 if local.device.type == "meta" else prod(local.shape) * int(local.element_size())


def _placements(tensor: Any) -> list[str] | None:
    """The placements of a DTensor, as torch writes them: "S(0)", "R", "P(sum)"."""
    told = getattr(tensor, "placements", None)
    return None if told is None else [str(placement) for placement in told]
