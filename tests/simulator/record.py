"""What the recorder of each rank remembers: one Record for each operation, in the order of issue."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from tests.simulator.instructions import ANY_SOURCE, P2P, Batch, Collective, Shapes
from tests.simulator.topology import Topology

Role = Literal["plain", "inner", "closer"]


@dataclass(slots=True)
class Record:
    """One operation of one rank; times are true nanoseconds, None for what has not happened."""

    group: str
    name: str
    """"all_reduce", "send 0->1", "coalesced"."""
    op: str
    seq: int
    p2p_seq: int
    op_id: int
    is_p2p: bool
    peer: int | None
    inputs: Shapes
    outputs: Shapes
    dtype: str
    stack: int
    role: Role
    created: int
    arrived: int | None = None
    done: int | None = None
    sync: bool = False
    """A collective that the current stream waits for."""
    on_host: bool = False
    """Of the gloo half of its group, which counts for itself."""

    @property
    def channel(self) -> str:
        """Whom it meets: each backend of a group has its own."""
        return channel(self.group, self.on_host)


def channel(group: str, on_host: bool) -> str:
    """The name of one backend of a group."""
    return f"{group}/host" if on_host else group


@dataclass
class _Counters:
    seq: int = 0
    p2p_seq: int = 0
    op_id: int = 0


@dataclass
class Recorder:
    """The recorder of one rank."""

    rank: int
    topology: Topology
    records: list[Record] = field(default_factory=list)
    counters: defaultdict[str, _Counters] = field(default_factory=lambda: defaultdict(_Counters))

    def collective(self, one: Collective, created: int) -> list[Record]:
        """Records a collective: itself, or the inner ones and then the closer, which comes last."""
        count = self.counters[channel(one.group, one.on_host)]
        count.seq += 1
        inner = [self._collective(c, count, created, "inner") for c in one.inner]
        return [*inner, self._collective(one, count, created, "closer" if inner else "plain", bump=not inner)]

    def p2p(self, one: P2P, created: int) -> Record:
        """Records a send or a receive outside a batch."""
        count = self.counters[one.group]
        count.p2p_seq += 1
        return self._p2p(one, count, created, "plain")

    def batch(self, one: Batch, created: int) -> list[Record]:
        """Records a batch: the inner operations, then the closer."""
        count = self.counters[one.group]
        count.p2p_seq += 1
        inner = [self._p2p(p, count, created, "inner") for p in one.inner]
        closer = Record(
            one.group, "coalesced", "coalesced", count.seq, count.p2p_seq, count.op_id, True, None, (), (), "",
            one.stack, "closer", created,
        )  # fmt: skip
        self.records.append(closer)
        return [*inner, closer]

    def _collective(self, one: Collective, count: _Counters, created: int, role: Role, bump: bool = True) -> Record:
        count.op_id += bump
        record = Record(
            one.group, one.op, one.op, count.seq, count.p2p_seq, count.op_id, False, None, one.inputs, one.outputs,
            one.dtype, one.stack, role, created, sync=one.wait, on_host=one.on_host,
        )  # fmt: skip
        self.records.append(record)
        return record

    def _p2p(self, one: P2P, count: _Counters, created: int, role: Role) -> Record:
        count.op_id += 1
        ranks = self.topology.groups[one.group]
        arrow = "->" if one.op == "send" else "<-"
        name = f"{one.op} {ranks.index(self.rank)}{arrow}{'?' if one.peer == ANY_SOURCE else ranks.index(one.peer)}"
        record = Record(
            one.group, name, one.op, count.seq, count.p2p_seq, count.op_id, True, one.peer, (one.shape,), (one.shape,),
            one.dtype, one.stack, role, created,
        )  # fmt: skip
        self.records.append(record)
        return record
