"""Record of a model: parameters and buffers of this rank with shape, layout, wrapper and bytes, as lines of JSON.

docs/model.md describes the form. Only sizes and names are read, so no device is asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

from .wrapper_record import TP, MeshTable, WrappedTensor, wrapped_tensors, wrapper_paths

VERSION = 1
MOST_PARAMETERS = 1 << 15
"""Parameters of a file; further ones are only counted."""
MOST_BUFFERS = 1 << 12
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
    buffers_held = [
        {"name": name[:LONGEST_NAME], "buffer": True, **_row(tensor, None, None, meshes)}
        for name, tensor in _buffers(parts)
    ]
    lines += map(json.dumps, buffers_held[:MOST_BUFFERS])
    head = {
        "rankscope_model": VERSION, **process, "time_ns": time.time_ns(), "model": type(parts[0]).__name__,
        "parameters": count, "buffers": len(buffers_held), "meshes": meshes.rows,
    }  # fmt: skip
    return "".join(f"{line}\n" for line in [json.dumps(head), *lines]).encode()


def _parameters(parts: list[Any]) -> Iterator[tuple[str, Any, WrappedTensor | None]]:
    """Name, tensor and wrapper of each parameter; names of several parts begin with the number of the part."""
    for place, part in enumerate(parts):
        known = wrapped_tensors(part)
        front, paths = f"{place}." if len(parts) > 1 else "", wrapper_paths(part)
        for name, tensor in part.named_parameters():
            yield front + _plain_name(name, paths), tensor, known.get(id(tensor))


def _buffers(parts: list[Any]) -> Iterator[tuple[str, Any]]:
    """Name and tensor of each buffer."""
    for place, part in enumerate(parts):
        front, paths = f"{place}." if len(parts) > 1 else "", wrapper_paths(part)
        for name, tensor in part.named_buffers():
            yield front + _plain_name(name, paths), tensor


def _plain_name(name: str, paths: list[str]) -> str:
    """The name without the words that wrappers put into it; `paths` are those of `wrapper_paths`."""
    for path in paths:
        begin = f"{path}." if path else ""
        if name.startswith(f"{begin}module."):
            name = begin + name[len(begin) + len("module.") :]
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
    local = known.local if known is not None and known.local is not None else _local(tensor)
    # Megatron sums gradients up in tensors of its own
    gradient = tensor.grad if tensor.grad is not None else getattr(tensor, "main_grad", None)
    shape = (known.shape if known is not None else None) or tuple(tensor.shape)
    is_placed = hasattr(tensor, "placements")
    wrapper = known.wrapper if known is not None else TP if is_placed else None
    values = [] if state is None else [value for value in state.values() if hasattr(value, "element_size")]
    return {
        "shape": list(shape), "local": list(local.shape), "dtype": str(local.dtype).removeprefix("torch."),
        "requires_grad": bool(tensor.requires_grad), "device": str(local.device), "wrapper": wrapper,
        "mesh": meshes.mesh(tensor.device_mesh) if is_placed else None,
        "group": None if known is None or known.group is None else meshes.group(known.group, known.wrapper),
        "placements": list(known.placements) if known is not None and known.placements else _placements(tensor),
        "gradient_placements": _placements(gradient),
        "state_placements": next((placed for value in values if (placed := _placements(value))), None),
        "bytes": _bytes(local), "gradient_bytes": 0 if gradient is None else _bytes(gradient),
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
    placements = getattr(tensor, "placements", None)
    return None if placements is None else [str(placement) for placement in placements]
