"""Process groups of traces, in one table with those of dumps and logs, by name and members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import orjson
import polars as pl

from rankscope import schema
from rankscope.assemble.groups import DEFAULT_GROUP
from rankscope.assemble.op_names import P2P_OPS
from rankscope.assemble.traces.trace_window import TraceWindow
from rankscope.parsers.safe_values import RANK_LIMIT, rank_list
from rankscope.parsers.torch_profiler.model import TracedCall

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
            self.rows[i]["ranks"] = list(range(self.world)) if self._everybody(i) else sorted(users)
        rows = [{**row, "group": i} for i, row in enumerate(self.rows)]
        return pl.DataFrame(rows, schema=dict(schema.GROUPS))

    def members(self, group: int) -> Sequence[int]:
        """Ranks of a group, if they are written down."""
        return () if group in self._open else self.rows[group]["ranks"]

    def _everybody(self, group: int) -> bool:
        row = self.rows[group]
        return self.world > 0 and (row["description"] == DEFAULT_GROUP or not row["name"])

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
