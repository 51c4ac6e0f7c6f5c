"""Hooks of collectives in torch's dispatcher: `c10d`, which DDP and FSDP2 call, and `_c10d_functional` for DTensor.

`c10d` operations are hooked at the Autograd key and go on below it; functional ones are hooked at the keys of devices
and go on at CompositeExplicitAutograd. A call through `call_boxed` would keep Python's lock and hang gloo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch._C import DispatchKey
from torch.distributed import ProcessGroup, Work

from .linear_hash import SAMPLES
from .session import GroupMembers, Session, TensorRow
from .work_hooks import PendingOutputs, PendingWorks, issuer_of, named_slots

FEW_SLICES = 8
"""Most members of a group whose slices have all samples."""
MOST_SLICES = 64
"""Most slices of a tensor that one member records; the members of a larger group record different ones."""
DEVICE_KEYS = ("CPU", "CUDA", "PrivateUse1", "XPU")
_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
"""Names of c10d's reductions, by number."""
WAIT = "wait_tensor"
WHOLE, SLICES, TRANSPOSED, CHUNKS = "whole", "slices", "transposed", "chunks"
"""Forms of an argument: tensors, a list with a tensor of each member, such lists by member, tensors in chunks."""


class Side(NamedTuple):
    """The inputs or outputs of an operation."""

    argument: int
    """Number of the argument."""
    form: str = WHOLE
    splits: int | None = None
    """Number of the argument with lengths of chunks along the first dimension."""
    only_root: bool = False


class CollectiveForm(NamedTuple):
    """How an operation names its tensors, its group, and its reduction."""

    op: str
    inputs: Side
    outputs: Side
    group: int
    reduction: int | None = None
    root: int | None = None


RESULT = -1
"""Number of the argument that stands for the result of a functional operation."""
C10D = {
    "allreduce_": CollectiveForm("all_reduce", Side(0), Side(0), 1, 2),
    "allreduce_coalesced_": CollectiveForm("all_reduce", Side(0), Side(0), 1, 2),
    "broadcast_": CollectiveForm("broadcast", Side(0, only_root=True), Side(0), 1, root=2),
    "reduce_": CollectiveForm("reduce", Side(0), Side(0, only_root=True), 1, 2, 3),
    "allgather_": CollectiveForm("all_gather", Side(1), Side(0, SLICES), 2),
    "allgather_coalesced_": CollectiveForm("all_gather", Side(1), Side(0, TRANSPOSED), 2),
    "_allgather_base_": CollectiveForm("all_gather", Side(1), Side(0, CHUNKS), 2),
    "allgather_into_tensor_coalesced_": CollectiveForm("all_gather", Side(1), Side(0, CHUNKS), 2),
    "reduce_scatter_": CollectiveForm("reduce_scatter", Side(1, SLICES), Side(0), 2, 3),
    "_reduce_scatter_base_": CollectiveForm("reduce_scatter", Side(1, CHUNKS), Side(0), 2, 3),
    "reduce_scatter_tensor_coalesced_": CollectiveForm("reduce_scatter", Side(1, CHUNKS), Side(0), 2, 3),
    "alltoall_": CollectiveForm("all_to_all", Side(1, SLICES), Side(0, SLICES), 2),
    "alltoall_base_": CollectiveForm("all_to_all", Side(1, CHUNKS, 4), Side(0, CHUNKS, 3), 2),
    "gather_": CollectiveForm("gather", Side(1), Side(0, SLICES, only_root=True), 2, root=3),
    "scatter_": CollectiveForm("scatter", Side(1, SLICES, only_root=True), Side(0), 2, root=3),
}
FUNCTIONAL = {
    **{
        f"all_reduce{kind}": CollectiveForm("all_reduce", Side(0), Side(RESULT), 2, 1)
        for kind in ("", "_", "_coalesced", "_coalesced_")
    },
    **{
        f"all_gather_into_tensor{kind}": CollectiveForm("all_gather", Side(0), Side(RESULT, CHUNKS), 2)
        for kind in ("", "_out", "_coalesced")
    },
    **{
        f"reduce_scatter_tensor{kind}": CollectiveForm("reduce_scatter", Side(0, CHUNKS), Side(RESULT), 3, 1)
        for kind in ("", "_out", "_coalesced")
    },
    "all_to_all_single": CollectiveForm("all_to_all", Side(0, CHUNKS, 2), Side(RESULT, CHUNKS, 1), 3),
    **{
        f"broadcast{kind}": CollectiveForm("broadcast", Side(0, only_root=True), Side(RESULT), 2, root=1)
        for kind in ("", "_")
    },
}


class Part(NamedTuple):
    """A tensor of an operation, or a slice of one."""

    tensor: Any
    slot: str
    slice: int | None


def parts(value: Any, side: Side, kind: str, args: Sequence[Any], group: GroupMembers, like: Any) -> Iterator[Part]:
    """The tensors of a side; `like` are the tensors of the other side, which give chunks their shapes."""
    if side.form == TRANSPOSED:
        value = list(zip(*value, strict=True))
    lists = _listed(value)
    if side.form == SLICES and not isinstance(lists[0], list | tuple):
        lists = [lists]
    others = _listed(like)
    for place, (slot, tensor) in enumerate(named_slots(kind, lists)):
        if side.form == WHOLE:
            yield Part(tensor, slot, None)
            continue
        splits = args[side.splits] if side.splits is not None else ()
        other = others[place] if place < len(others) and isinstance(others[place], torch.Tensor) else None
        chunks = _chunks(tensor, splits, other, len(group.ranks)) if side.form == CHUNKS else tensor
        count = len(group.ranks)
        for number in sorted((group.place + step) % count for step in range(min(count, MOST_SLICES))):
            yield Part(chunks[number], slot, number)


def _listed(value: Any) -> Sequence[Any]:
    """The tensors of an argument that is one tensor or several."""
    return value if isinstance(value, list | tuple) else [value]


def _chunks(tensor: Any, splits: Sequence[int], like: Any, count: int) -> Sequence[Any]:
    """The chunks of a tensor: by lengths along the first dimension, else equal ones, in the shape of `like`."""
    if splits:
        return list(torch.split(tensor, list(splits)))
    flat = tensor.reshape(count, -1)
    shape = (tensor.shape[0] // count, *tensor.shape[1:])
    if like is not None and like.numel() == flat.shape[1]:
        shape = like.shape
    return list(flat.reshape(count, *shape)) if prod(shape) == flat.shape[1] else list(flat)


class CollectiveHooks:
    """The hooks of all collectives; they stay registered until they are removed."""

    def __init__(self, session: Session, works: PendingWorks) -> None:
        self.session = session
        self.works = works
        self._libraries: list[Any] = []

    def install(self) -> None:
        """Registers the hooks of the operations that this torch has."""
        classic = torch.library.Library("c10d", "IMPL")
        functional = torch.library.Library("_c10d_functional", "IMPL")
        self._libraries = [classic, functional]
        for name, form in C10D.items():
            op = _operation(torch.ops.c10d, name)
            if op is not None:
                classic.impl(name, self._classic_hook(op, form), "Autograd")
        for name, form in FUNCTIONAL.items():
            self._register(functional, name, partial(self._functional_hook, form))
        self._register(functional, WAIT, self._wait_hook)

    def _register(self, library: Any, name: str, hook: Callable[[Any], Any]) -> None:
        op = _operation(torch.ops._c10d_functional, name)
        for key in DEVICE_KEYS if op is not None else ():
            library.impl(name, hook(op), key)

    def remove(self) -> None:
        """Takes the hooks out of the dispatcher."""
        for library in self._libraries:
            library._destroy()
        self._libraries = []

    def _classic_hook(self, op: Any, form: CollectiveForm) -> Callable[..., Any]:
        session = self.session
        # without the overload's look for fake objects, which never come to this key
        call_below = op._op

        def hook(*args: Any) -> Any:
            session.count_issue()
            if not session.recording:
                with torch._C._AutoDispatchBelowAutograd():
                    return call_below(*args)
            call = self._before(form, args, args[form.outputs.argument])
            with torch._C._AutoDispatchBelowAutograd():
                result = call_below(*args)
            if call is not None:
                with session.guarded():
                    boxed = result[-1] if isinstance(result, tuple) else result
                    self._after(call, args[form.outputs.argument], Work.unbox(boxed), issuer_of(1))
                self.works.arrange()
            return result

        return hook

    def _functional_hook(self, form: CollectiveForm, op: Any) -> Callable[..., Any]:
        session = self.session

        def hook(*args: Any, **kwargs: Any) -> Any:
            session.count_issue()
            call = self._before(form, args, kwargs.get("out")) if session.recording else None
            result = op._op_dk(DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
            if call is not None:
                with session.guarded():
                    self._after(call, result, None, "")
            return result

        return hook

    def _wait_hook(self, op: Any) -> Callable[..., Any]:
        def hook(tensor: Any) -> Any:
            result = op._op_dk(DispatchKey.CompositeExplicitAutograd, tensor)
            if self.session.recording:
                self.works.done(_address(tensor))
            return result

        return hook

    def _before(self, form: CollectiveForm, args: Sequence[Any], outputs: Any) -> IssuedCall | None:
        """Adds the rows of the inputs; None where that fails."""
        session, call = self.session, None
        with session.guarded():
            group = _process_group(args[form.group])
            known = session.group(group)
            facts: dict[str, Any] = {"occurrence": session.occurrence(form.op, known.name), "group": known.name}
            facts |= {"op": form.op, **session.caller()}
            if form.reduction is not None:
                facts["reduce_op"] = _reduction(args[form.reduction])
            if form.root is not None:
                facts["root"] = known.ranks[args[form.root]]
            call = IssuedCall(form, args, group, known, facts, [])
            if not call.is_left_out(form.inputs):
                for part in parts(args[form.inputs.argument], form.inputs, "in", args, known, outputs):
                    call.add(session, part)
        return call

    def _after(self, call: IssuedCall, outputs: Any, work: Any, issuer: str) -> None:
        """Notes the outputs of an issued operation."""
        number = self.session.sequence_number(call.process_group)
        for facts in (call.facts, *(row.facts for row in call.rows)) if number is not None else ():
            facts["seq"] = number
        form = call.form
        if call.is_left_out(form.outputs):
            return
        inputs = call.args[form.inputs.argument]
        rows = list(parts(outputs, form.outputs, "out", call.args, call.group, inputs))
        if work is not None:
            later: list[Callable[[], object]] = [partial(call.add, self.session, part) for part in rows]
            self.works.expect_work(work, later, rows[0].tensor.device, issuer)
            return
        for tensor in _listed(outputs):
            address = _address(tensor)
            mine = [part for part in rows if _address(part.tensor) == address]
            self.works.expect(address, PendingOutputs(tensor, [partial(call.add, self.session, part) for part in mine]))


class IssuedCall(NamedTuple):
    """A collective with its facts."""

    form: CollectiveForm
    args: Sequence[Any]
    process_group: Any
    group: GroupMembers
    facts: dict[str, Any]
    """Keys of its rows."""
    rows: list[TensorRow]
    """Rows of its inputs."""

    def is_left_out(self, side: Side) -> bool:
        """Whether this rank has no tensors on a side that only the root has."""
        return side.only_root and self.form.root is not None and self.args[self.form.root] != self.group.place

    def add(self, session: Session, part: Part) -> None:
        """Adds the row of a tensor."""
        count = len(self.group.ranks)
        few = part.slice is None or count <= FEW_SLICES
        most = SAMPLES if few else max(FEW_SLICES, SAMPLES * FEW_SLICES // count)
        placed = {} if part.slice is None else {"slice": part.slice}
        row = session.add(part.tensor, "collective", part.slot, most, name="", **placed, **self.facts)
        if row is not None and part.slot.startswith("in"):
            self.rows.append(row)


def _operation(namespace: Any, name: str) -> Any:
    packet = getattr(namespace, name, None)
    return getattr(packet, "default", None)


def _process_group(group: Any) -> Any:
    """The process group of an argument: its name, a boxed one, or itself."""
    if isinstance(group, str):
        return torch._C._distributed_c10d._resolve_process_group(group)
    return ProcessGroup.unbox(group) if isinstance(group, torch.ScriptObject) else group


def _reduction(operation: Any) -> str:
    """The name of a reduction: a functional operation has it, c10d has a number."""
    if isinstance(operation, str):
        return operation
    number = operation.op()
    return _REDUCTIONS[number] if 0 <= number < len(_REDUCTIONS) else str(number)


def _address(tensor: Any) -> int:
    """The address of a tensor's storage, by which the wait of a functional collective finds its outputs."""
    return int(tensor.untyped_storage().data_ptr())
