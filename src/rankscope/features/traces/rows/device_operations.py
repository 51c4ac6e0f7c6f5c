"""Process groups of traces, and operations on a device, joined with the kernels that they launched.

A kernel belongs to the record_param_comms with its external id, else to the one in which the host launched it. Without
one (before torch 1.13, or cut off by the window), the annotation or the arguments of the kernel decide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import orjson
import polars as pl

from rankscope.assemble.groups import DEFAULT_GROUP
from rankscope.assemble.op_names import P2P_OPS
from rankscope.features.traces.read import event_names
from rankscope.features.traces.read.model import TracedCall
from rankscope.features.traces.rows.span_tables import Places, SpanRoles
from rankscope.features.traces.rows.trace_window import TraceWindow
from rankscope.parsers.matrices import NULL
from rankscope.parsers.safe_values import RANK_LIMIT, rank_list
from rankscope.schema.tables import GROUPS

Members = tuple[int, ...]


class TraceGroups:
    """Rows of `groups`; rows of traces follow the others."""

    def __init__(self, table: pl.DataFrame, windows: Sequence[TraceWindow], world: int) -> None:
        self.rows: list[dict[str, Any]] = table.sort("group").rows(named=True)
        self.world = world
        self._by_name: dict[str, list[int]] = defaultdict(list)
        for i, row in enumerate(self.rows):
            self._by_name[row["name"]].append(i)
        self._open: dict[int, set[int]] = {}
        """Ranks seen in groups without written members."""
        self._told: dict[tuple[int, int | str], int] = {}
        """Groups by the index of a window, and by their reference there."""
        for window in windows:
            for group in window.content.about.groups:
                if group.ranks and group.name:
                    self._find(group.name, tuple(group.ranks), group.description)

    def frame(self) -> pl.DataFrame:
        """The table `groups`."""
        for i, users in self._open.items():
            row = self.rows[i]
            everybody = self.world > 0 and (row["description"] == DEFAULT_GROUP or not row["name"])
            self.rows[i]["ranks"] = list(range(self.world)) if everybody else sorted(users)
        rows = [{**row, "group": i} for i, row in enumerate(self.rows)]
        return pl.DataFrame(rows, schema=GROUPS)

    def members(self, group: int) -> Sequence[int]:
        """Ranks of a group, if they are written down."""
        return () if group in self._open else self.rows[group]["ranks"]

    def of(self, window: TraceWindow, reference: int | str) -> int:
        """The group of a window's call, by its number, or of a listed group, by its name."""
        key = window.place, reference
        if key not in self._told:
            if isinstance(reference, str):
                listed = next(g for g in window.content.about.groups if g.name == reference and g.ranks)
                self._told[key] = self._find(reference, tuple(listed.ranks or ()), listed.description)
            else:
                self._told[key] = self._of(window.content.calls[reference], window)
        return self._told[key]

    def _of(self, call: TracedCall, window: TraceWindow) -> int:
        """The group of an operation; without a name, the only group."""
        stated = [g for g in window.content.about.groups if g.ranks and g.name]
        name, description = call.group, call.description or ""
        if name is None:
            if len(stated) != 1:
                return self._unknown("", "", window.rank)
            name = stated[0].name
        found = next((g for g in stated if g.name == name), None)
        members = tuple(found.ranks or ()) if found else written_members(call)
        group = self._find(name, members, description) if members else self._known(name, window.rank, call)
        if group is None:
            group = self._unknown(name, description, window.rank)
        if call.collective in P2P_OPS and not self.rows[group]["has_p2p"]:
            self.rows[group]["has_p2p"] = True
        return group

    def _known(self, name: str, rank: int, call: TracedCall) -> int | None:
        size = call.group_size
        fitting = [
            i for i in self._by_name[name]
            if i not in self._open and rank in self.rows[i]["ranks"] and size in (None, len(self.rows[i]["ranks"]))
        ]  # fmt: skip
        return fitting[0] if len(fitting) == 1 else None

    def _find(self, name: str, members: Members, description: str) -> int:
        for i in self._by_name[name]:
            if tuple(self.rows[i]["ranks"]) == members and i not in self._open:
                if description and not self.rows[i]["description"]:
                    self.rows[i]["description"] = description
                return i
        return self._add(name, members, description, "config")

    def _unknown(self, name: str, description: str, rank: int) -> int:
        found = next((i for i in self._by_name[name] if i in self._open), None)
        group = self._add(name, (), description, "inferred") if found is None else found
        self._open.setdefault(group, set()).add(rank)
        return group

    def _add(self, name: str, members: Members, description: str, how: str) -> int:
        row = {"name": name, "description": description, "ranks": list(members), "membership": how, "has_p2p": False}
        self.rows.append(row)
        self._by_name[name].append(len(self.rows) - 1)
        return len(self.rows) - 1


def written_members(call: TracedCall) -> Members:
    """The members that an operation writes: all of them, or first, step and number of a long list."""
    size = call.group_size
    ranks = None if call.members is None or len(call.members) > 1 << 16 else rank_list(_list(call.members))
    if ranks and size in (None, len(ranks)):
        return tuple(ranks)
    if ranks or size is None or call.start is None or not call.stride:
        return ()
    last = call.start + call.stride * (size - 1)
    fits = 0 < size <= RANK_LIMIT and call.start >= 0 and call.stride > 0 and last < RANK_LIMIT
    return tuple(range(call.start, last + 1, call.stride)) if fits else ()


def _list(said: str) -> Any:
    try:
        return orjson.loads(said)
    except orjson.JSONDecodeError:
        return None


@dataclass
class DeviceOperation:
    """An operation during assembly; numbers are rows of candidates, -1 without."""

    issue: int
    annotation: int = -1
    runs: list[int] = field(default_factory=list)
    call: TracedCall | None = None
    coalesced: str = "none"
    op: str = ""
    library: str = ""
    peer: int | None = None
    """Place in the group."""
    group: str | None = None
    """Name of the group, if `call` lacks it."""


def device_rows(roles: SpanRoles) -> list[DeviceOperation]:
    """The operations of a window that run on a device, in no order."""
    annotations, comms = roles.annotations, roles.comms
    matches = (event_names.ANNOTATION_NAME.match(roles.names[i]) for i in annotations)
    annotations = annotations[[match is not None and match["library"] != "gloo" for match in matches]]
    holder = roles.within(annotations, comms)
    bare = annotations[holder < 0]
    issues = np.concatenate([comms, bare])
    made = [DeviceOperation(issue) for issue in issues.tolist()]
    for annotation, at in zip(annotations[holder >= 0].tolist(), holder[holder >= 0].tolist(), strict=True):
        made[at].annotation = annotation if made[at].annotation < 0 else made[at].annotation
    for row in made[len(comms) :]:
        row.annotation = row.issue
    alone = _give_runs(roles, made, issues, annotations, holder)
    _coalesce(roles, made, comms)
    found = [row for row in made if _is_operation(roles, row)] + alone
    for row in found:
        _name(roles, row)
    return found


def _give_runs(
    roles: SpanRoles, made: list[DeviceOperation], issues: Places, annotations: Places, holder: Places
) -> list[DeviceOperation]:
    """Assigns the kernels; returns rows for kernels with arguments that the host issued before the window."""
    runs = roles.runs
    at = roles.launched_by(runs, issues)
    # newer annotations have their own id
    by_annotation = roles.launched_by(runs, annotations)
    inner = (at < 0) & (by_annotation >= 0)
    at[inner] = holder[by_annotation[inner]]
    alone = []
    for run, place in zip(runs.tolist(), at.tolist(), strict=True):
        if place >= 0:
            made[place].runs.append(run)
        elif (name := roles.calls[run].collective) is not None:
            alone.append(
                DeviceOperation(-1, runs=[run], coalesced="closer" if _kind(name) == event_names.END else "none")
            )
    return alone


def _coalesce(roles: SpanRoles, made: list[DeviceOperation], comms: Places) -> None:
    """Marks operations between the start and the end of a coalesced group on one thread."""
    order = np.lexsort((roles.window.start[roles.span[comms]], roles.window.track[roles.span[comms]]))
    inside = False
    track = -1
    for i in order.tolist():
        row, here = made[i], int(roles.window.track[roles.span[comms[i]]])
        kind = _kind(roles.calls[row.issue].collective or "")
        inside = inside and here == track
        track = here
        if kind == event_names.START:
            inside = True
        elif kind == event_names.END:
            inside, row.coalesced = False, "closer"
        elif inside and kind not in event_names.PSEUDO_OPS:
            row.coalesced = "inner"


def _kind(collective: str) -> str:
    return collective.lower().replace("_", "")


def _is_operation(roles: SpanRoles, row: DeviceOperation) -> bool:
    """Whether a row is work, and not a note of the same form."""
    collective = roles.calls[row.issue].collective
    if row.coalesced == "closer":
        return bool(row.runs)
    if collective is not None:
        return _kind(collective) not in event_names.PSEUDO_OPS
    return row.annotation >= 0 or bool(row.runs)


def _name(roles: SpanRoles, row: DeviceOperation) -> None:
    """Sets arguments, operation and peer."""
    said = roles.calls[row.issue] if row.issue >= 0 else None
    run = next((roles.calls[i] for i in row.runs if roles.calls[i].collective is not None), None)
    call = said if said is not None and said.collective is not None else run or said or roles.calls[row.runs[0]]
    if row.annotation >= 0 and roles.calls[row.annotation].dims is not None:
        call = _with_shapes(call, roles.calls[row.annotation])
    annotated = event_names.ANNOTATION_NAME.match(roles.names[row.annotation]) if row.annotation >= 0 else None
    row.call = call
    row.library = annotated["library"] if annotated else roles.window.content.about.backend.split(":")[0] or "nccl"
    if row.coalesced == "closer":
        row.op = "coalesced"
        return
    row.op = annotated["op"] if annotated else event_names.op_of_collective(call.collective or "")
    if annotated and annotated["peer"]:
        row.peer = int(annotated["peer"])
    elif row.op in ("send", "recv"):
        other = call.target if row.op == "send" else call.source
        row.peer = other if other is not None else call.rank


def _with_shapes(call: TracedCall, other: TracedCall) -> TracedCall:
    """The call with the shapes of another."""
    return call._replace(dims=other.dims, types=other.types)


def number_of(roles: SpanRoles, row: DeviceOperation, name: str) -> int | None:
    """Its `seq` in the group, or its `comms_id`; None if the trace lacks it."""
    numbers = roles.column_list(name)
    if row.issue >= 0 and (number := numbers[row.issue]) != NULL:
        return number
    return next((numbers[run] for run in row.runs if numbers[run] != NULL), None)


# Operations of gloo on the host: issued by c10d's operators and run by gloo's own loops.

_VARIANT = re.compile(r"_|base|coalesced|into|tensor")
LAUNCH_LEAD = 64
"""Most waiting operators of one kind that are compared with a run: a loop takes them in order."""


def host_operations(roles: SpanRoles) -> list[DeviceOperation]:
    """The operations of a window that run on a thread of the host."""
    annotations = [i for i in roles.annotations.tolist() if roles.names[i].startswith("gloo:")]
    if not annotations:
        return []
    operators = roles.operators
    others = np.array([i for i in roles.annotations.tolist() if not roles.names[i].startswith("gloo:")], np.int64)
    busy = roles.within(np.concatenate([roles.comms, others]), operators)
    free = np.ones(len(operators), np.bool_)
    free[busy[busy >= 0]] = False
    joined = _joined_runs(roles, operators[free], np.array(annotations, np.int64))
    return [_row(roles, operator, run) for operator, run in joined]


def _row(roles: SpanRoles, operator: int, run: int) -> DeviceOperation:
    if run < 0:
        issued = event_names.ISSUED_NAME.match(roles.names[operator])
        return DeviceOperation(
            operator,
            op=event_names.op_of_collective(issued[1] if issued else ""),
            library="gloo",
            call=roles.calls[operator],
        )
    found = event_names.ANNOTATION_NAME.match(roles.names[run])
    assert found is not None
    call = roles.calls[run]
    row = DeviceOperation(operator, run, [run], call, op=found["op"], library="gloo")
    row.peer = int(found["peer"]) if found["peer"] else None
    thread = roles.window.content.lanes[int(roles.window.content.code("lane")[roles.span[run]])].tid
    row.group = roles.window.loops.get(thread) if thread is not None else None
    return row


def _joined_runs(roles: SpanRoles, operators: Places, annotations: Places) -> list[tuple[int, int]]:
    """Pairs of operators and their runs, -1 for a run after the window; runs without an operator were issued before it.

    It works in order: the run of an operator depends on the operators before it.
    """
    start = roles.window.start[roles.span]
    held = roles.within(annotations, operators)
    pairs = [(int(operators[at]), int(a)) for a, at in zip(annotations, held, strict=True) if at >= 0]
    taken = {operator for operator, _ in pairs}
    waiting: dict[str, list[int]] = defaultdict(list)
    for operator in operators[np.argsort(start[operators], kind="stable")].tolist():
        if operator not in taken:
            waiting[_host_kind(roles.names[operator])].append(operator)
    left = annotations[held < 0]
    for run in left[np.argsort(start[left], kind="stable")].tolist():
        queue = waiting[_host_kind(roles.names[run])]
        ahead = islice(queue, LAUNCH_LEAD)
        fitting = (o for o in ahead if start[o] <= start[run] and _run_fits(roles.calls[o], roles.calls[run]))
        operator = next(fitting, -1)
        if operator >= 0:
            queue.remove(operator)
        pairs.append((operator, run))
    return pairs + [(operator, -1) for queue in waiting.values() for operator in queue]


def _host_kind(name: str) -> str:
    """The common name of c10d's operator and gloo's annotation: c10d::_allgather_base_ runs as gloo:all_gather."""
    return _VARIANT.sub("", name.partition(":")[2].lstrip(":").partition(" ")[0])


def _run_fits(operator: TracedCall, run: TracedCall) -> bool:
    """Whether the tensor of a run is among those of an operator, if shapes were recorded."""
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
