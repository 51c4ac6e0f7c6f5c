"""A schedule as execution traces of PyTorch, one JSON file a rank, as comm_replay of PARAM reads them.

The form is that of `torch.profiler.ExecutionTraceObserver`, schema 1.1.1-chakra.0.0.4: a node `process_group:init` with
the groups of the rank, and for each operation a node `record_param_comms`, whose inputs are tensors, number, group,
rank, name and splits. A `wait` behind each keeps the order in which the rank came to its operations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from rankscope.analysis.signatures import ROOTED_OPS
from rankscope.features.replay.replay_sizes import BYTES, GATHERED, SCATTERED, ReplaySizes, type_name
from rankscope.features.replay.schedule import Schedule, Splits, Step
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide

SCHEMA = "1.1.1-chakra.0.0.4"
_ROOT, _THREAD, _GROUPS, _FIRST = 1, 2, 3, 4
"""Ids of the first nodes."""
_NAMES = {
    "all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_allv", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather",
    "scatter": "scatter", "barrier": "barrier", "send": "send", "recv": "recv",
}  # fmt: skip
"""Names of operations in such traces; others are played by an all_reduce."""
_TYPES = {
    "Float": "float", "Double": "double", "Half": "c10::Half", "BFloat16": "c10::BFloat16", "Long": "long int",
    "Int": "int", "Char": "signed char", "Byte": "unsigned char", "Bool": "bool",
}  # fmt: skip
_ATTRIBUTES: tuple[tuple[str, str, int | str], ...] = (
    ("rf_id", "uint64", 0), ("fw_parent", "uint64", 0), ("seq_id", "int64", -1), ("scope", "uint64", 0),
    ("tid", "uint64", 1), ("fw_tid", "uint64", 0), ("op_schema", "string", ""), ("kernel_backend", "string", ""),
    ("kernel_file", "string", ""), ("tensor_range", "string", ""),
)  # fmt: skip
Node = dict[str, Any]
Value = tuple[str, Any, Any]
"""Type, value and shape of an input."""


def execution_traces(dataset: Dataset, schedule: Schedule, sizes: ReplaySizes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files; ranks are counted from 0 in the order of the job."""
    numbers = {rank: at for at, rank in enumerate(sorted(schedule.steps))}
    groups = {group: at + 1 for at, group in enumerate(sorted(schedule.groups))}
    for rank, number in numbers.items():
        trace = _RankTrace(dataset, schedule, sizes, numbers, groups, rank)
        whole = {
            "schema": SCHEMA,
            "pid": number + 1,
            "time": "",
            "start_ts": 0,
            "nodes": list(trace.nodes()),
            "finish_ts": 0,
        }
        yield f"rank-{number}.json", json.dumps(whole).encode()


class _RankTrace:
    """The trace of one rank; `numbers` are those of ranks, and `groups` those of groups, in the trace."""

    def __init__(
        self,
        dataset: Dataset,
        schedule: Schedule,
        sizes: ReplaySizes,
        numbers: dict[int, int],
        groups: dict[int, int],
        rank: int,
    ) -> None:
        self.dataset, self.schedule, self.sizes = dataset, schedule, sizes
        self.numbers, self.groups, self.rank = numbers, groups, rank
        self.tensors = 0

    def nodes(self) -> Iterator[Node]:
        """The nodes; the root comes last, as in traces of PyTorch."""
        yield _node(_THREAD, "[pytorch|profiler|execution_trace|thread]", _ROOT, scope=7)
        yield _node(_GROUPS, "## process_group:init ##", _THREAD, [("String", self._groups_text(), [])], scope=7)
        number, requests = _FIRST, 0
        for unit in self.schedule.units(self.rank):
            issued = []
            for step in unit:
                requests += 1
                request = [requests if step.is_p2p else step.key[1], step.is_p2p]
                yield self._call(number, step, request)
                issued.append((step, request))
                number += 1
            for step, request in issued:
                values = self._told(step, request, "wait")
                more = _attributes("Byte", "wait", 0, 0, values)
                yield _node(number, "record_param_comms", _THREAD, values, more=more)
                number += 1
        yield _node(_ROOT, "[pytorch|profiler|execution_trace|process]", _ROOT, scope=7)

    def _groups_text(self) -> str:
        """All groups of this rank, and how many there are in all, as JSON."""
        every = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": len(self.numbers)}]
        for group, number in self.groups.items():
            members = self.schedule.groups[group]
            if self.rank in members:
                ranks = [self.numbers[rank] for rank in members]
                every.append(
                    {"pg_name": str(number), "pg_desc": self._name(group), "ranks": ranks, "group_size": len(ranks)}
                )
        more = {"backend_config": "cuda:nccl", "group_count": len(self.groups) + 1}
        return json.dumps([{**one, **more} for one in every])

    def _name(self, group: int) -> str:
        known = self.dataset.group_list[group]
        return plain(hide(known.description or known.name or f"g{group}"), 60)

    def _call(self, number: int, step: Step, request: list[Any]) -> Node:
        name = _NAMES.get(step.op, "allreduce")
        values = self._told(step, request, name)
        if name == "barrier":
            return _node(number, "record_param_comms", _THREAD, values, more=_attributes("Byte", name, 0, 0, values))
        sent, received = self.elements(step)
        before, after = self._tensor(step, sent), self._tensor(step, received)
        attributes = _attributes(self._kind(step), name, sent, received, values, step.splits or ((), ()))
        return _node(number, "record_param_comms", _THREAD, [before, *values], [after], more=attributes)

    def elements(self, step: Step) -> tuple[int, int]:
        """Elements that go in and come out."""
        if step.splits:
            return sum(step.splits[0]), sum(step.splits[1])
        size, members = self.sizes.of(step), len(self.schedule.members[step.key])
        if step.op in (GATHERED, "gather"):
            return size, size * members
        if step.op in (SCATTERED, "scatter"):
            return size * members, size
        # splits are not recorded: even ones
        size = -(-size // members) * members if step.op == "all_to_all" else size
        return size, size

    def _kind(self, step: Step) -> str:
        kind = type_name(step)
        return kind if kind in _TYPES else "Byte"

    def _tensor(self, step: Step, count: int) -> Value:
        """A list of one tensor: id, storage, offset, elements, bytes of each, device."""
        self.tensors += 2
        kind = self._kind(step)
        value = [self.tensors - 1, self.tensors, 0, count, BYTES.get(kind, 1), "cuda:0"]
        return f"GenericList[Tensor({_TYPES[kind]})]", [value], [[count]]

    def _told(self, step: Step, request: list[Any], name: str) -> list[Value]:
        """The inputs behind the tensors."""
        members = self.schedule.groups[step.group]
        # of rooted operations it is the root, which is not recorded
        place = 0 if step.op in ROOTED_OPS else members.index(self.rank)
        if step.is_p2p:
            place = members.index(step.key[2] if self.rank == step.key[1] else step.key[1])
        group = [str(self.groups[step.group]), self._name(step.group)]
        ranks = [self.numbers[rank] for rank in members]
        stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
        even = all(b - a == stride for a, b in pairwise(ranks))
        return [
            ("Tuple[Int,Bool]", request, [[], []]), ("Tuple[String,String]", group, [[], []]), ("Int", place, []),
            ("String", name, []), ("GenericList[]", [], []), ("GenericList[]", [], []),
            ("Int", ranks[0] if even else -1, []), ("Int", stride if even else -1, []), ("Int", len(ranks), []),
        ]  # fmt: skip


def _attributes(
    kind: str, name: str, sent: int, received: int, values: list[Value], splits: Splits = ((), ())
) -> list[tuple[str, str, int | str]]:
    """Attributes of a communication node, beside its inputs."""
    group, start, stride, size = values[1][1], values[6][1], values[7][1], values[8][1]
    before, after = (str(list(side)) for side in splits)
    return [
        ("collective_name", "string", name), ("dtype", "string", kind), ("in_msg_nelems", "uint64", sent),
        ("out_msg_nelems", "uint64", received), ("in_split_size", "string", before),
        ("out_split_size", "string", after), ("global_rank_start", "uint64", start),
        ("global_rank_stride", "uint64", stride), ("pg_name", "string", group[0]), ("pg_desc", "string", group[1]),
        ("pg_size", "uint64", size),
    ]  # fmt: skip


def _node(
    number: int,
    name: str,
    parent: int,
    inputs: list[Value] | None = None,
    outputs: list[Value] | None = None,
    more: list[tuple[str, str, int | str]] | None = None,
    scope: int = 0,
) -> Node:
    attributes = [(key, kind, scope if key == "scope" else value) for key, kind, value in _ATTRIBUTES]
    return {
        "id": number, "name": name, "ctrl_deps": parent, "inputs": _values(inputs or []),
        "outputs": _values(outputs or []),
        "attrs": [{"name": key, "type": kind, "value": value} for key, kind, value in (*attributes, *(more or []))],
    }  # fmt: skip


def _values(values: list[Value]) -> dict[str, list[Any]]:
    strides: list[Any] = [
        [[1]] if "Tensor" in kind else [[] for _ in shape] if shape else [] for kind, _, shape in values
    ]
    return {
        "values": [value for _, value, _ in values],
        "shapes": [shape for _, _, shape in values],
        "types": [kind for kind, _, _ in values],
        "strides": strides,
    }
