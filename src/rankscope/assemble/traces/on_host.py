"""Operations that a thread of the host runs: gloo's, issued by c10d's operators and run by its own loops.

A trace of gloo ties neither to the other: the order of issue is that of the operators, and each is joined to the first
run of its kind and size that begins after it. Nor does it say a group.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import islice

import numpy as np
import orjson

from rankscope.assemble.traces.device import Row
from rankscope.assemble.traces.roles import Places, Roles
from rankscope.parsers.torch_profiler import names
from rankscope.parsers.torch_profiler.model import Call

_VARIANT = re.compile(r"_|base|coalesced|into|tensor")
AHEAD = 64
"""So many waiting operators of one kind are looked at for a run: a loop takes them in order."""


def rows(roles: Roles) -> list[Row]:
    """The operations of a window that a thread of the host runs."""
    annotations = [i for i in roles.annotations.tolist() if roles.names[i].startswith("gloo:")]
    if not annotations:
        return []
    operators = roles.operators
    busy = roles.within(np.concatenate([roles.comms, _others(roles)]), operators)
    free = np.ones(len(operators), np.bool_)
    free[busy[busy >= 0]] = False
    joined = _joined(roles, operators[free], np.array(annotations, np.int64))
    return [_row(roles, operator, run) for operator, run in joined]


def _others(roles: Roles) -> Places:
    return np.array([i for i in roles.annotations.tolist() if not roles.names[i].startswith("gloo:")], np.int64)


def _row(roles: Roles, operator: int, run: int) -> Row:
    if run < 0:
        issued = names.ISSUED.match(roles.names[operator])
        return Row(
            operator, op=names.op_of_collective(issued[1] if issued else ""), library="gloo", call=roles.calls[operator]
        )
    found = names.ANNOTATED.match(roles.names[run])
    assert found is not None
    call = roles.calls[run]
    row = Row(operator, run, [run], call, op=found["op"], library="gloo")
    row.peer = int(found["peer"]) if found["peer"] else None
    thread = roles.window.content.lanes[int(roles.window.content.code("lane")[roles.span[run]])].tid
    row.group = roles.window.loops.get(thread) if thread is not None else None
    return row


def _joined(roles: Roles, operators: Places, annotations: Places) -> list[tuple[int, int]]:
    """Each operator with its run, -1 if the window ended before; runs of what was issued before it by themselves.

    One after the other: which run an operator gets depends on what those before it left.
    """
    start = roles.window.start[roles.span]
    held = roles.within(annotations, operators)
    pairs = [(int(operators[at]), int(a)) for a, at in zip(annotations, held, strict=True) if at >= 0]
    taken = {operator for operator, _ in pairs}
    waiting: dict[str, list[int]] = defaultdict(list)
    for operator in operators[np.argsort(start[operators], kind="stable")].tolist():
        if operator not in taken:
            waiting[_kind(roles.names[operator])].append(operator)
    left = annotations[held < 0]
    for run in left[np.argsort(start[left], kind="stable")].tolist():
        queue = waiting[_kind(roles.names[run])]
        ahead = islice(queue, AHEAD)
        fitting = (o for o in ahead if start[o] <= start[run] and _fits(roles.calls[o], roles.calls[run]))
        operator = next(fitting, -1)
        if operator >= 0:
            queue.remove(operator)
        pairs.append((operator, run))
    return pairs + [(operator, -1) for queue in waiting.values() for operator in queue]


def _kind(name: str) -> str:
    """What c10d's operator and gloo's annotation have in common: c10d::_allgather_base_ runs as gloo:all_gather."""
    return _VARIANT.sub("", name.partition(":")[2].lstrip(":").partition(" ")[0])


def _fits(operator: Call, run: Call) -> bool:
    """Whether the tensor of a run is among those of an operator, as far as shapes were recorded."""
    mine, its = _sizes(run.dims), _sizes(operator.dims)
    return not mine or not its or bool(mine & its)


def _sizes(dims: str | None) -> set[int]:
    """Numbers of elements of all tensors in a list of shapes, or of lists of shapes."""
    try:
        shapes = orjson.loads(dims or "[]")
    except orjson.JSONDecodeError:
        return set()
    return set(_elements(shapes))


def _elements(shape: object) -> list[int]:
    if not isinstance(shape, list) or not shape:
        return []
    if all(isinstance(size, int) for size in shape):
        return [int(np.prod(np.array(shape, np.float64)))]
    return [size for inner in shape for size in _elements(inner)]
