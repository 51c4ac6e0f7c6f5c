"""A call too many or too few of an operation and size that its group issues anyway: ends meet with the wrong partners.

The job hangs where a host waits for one of them. Where calls only follow each other on the device, all that have a
partner end: `finished` makes the records of such a job from one without a fault.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tests.simulator.faults import SHIFTED, Inject, Place, TruthOf, pick, put
from tests.simulator.instructions import Collective
from tests.simulator.job import Outcome, Plan, calls_of
from tests.simulator.options import DumpOptions
from tests.simulator.record import Record
from tests.simulator.stacks import METRIC
from tests.simulator.truth import Truth

ALIKE = ("op", "inputs", "outputs", "dtype")
"""What two records or instructions have in common that nothing but their call site tells apart."""


def _alike(one: Collective, other: Collective) -> bool:
    return one.group == other.group and all(getattr(one, name) == getattr(other, name) for name in ALIKE)


def _truth(fault: str, rank: int, group: str) -> TruthOf:
    def truth(outcome: Outcome, options: DumpOptions) -> Truth:
        members = frozenset(outcome.topology.groups[group])
        sure = Truth(fault, SHIFTED, frozenset({rank}))
        return sure if len(members) > 2 else replace(sure, also=frozenset({members}), note="one against one")

    return truth


def extra_alike(job: Plan, rng: random.Random) -> TruthOf:
    """One rank issues a call from a line of its own, right before the next one of the same operation and size."""
    at = pick(job, rng, lambda one: isinstance(one, Collective) and not one.inner)
    one = at.instruction
    assert isinstance(one, Collective)
    put(job, at, replace(one, stack=METRIC))
    return _truth("extra-alike", at.rank, one.group)


def skipped_alike(job: Plan, rng: random.Random) -> TruthOf:
    """One rank leaves a call out, and the next one in the group is of the same operation and size."""
    at = pick(job, rng, lambda one: isinstance(one, Collective) and not one.inner)
    one = at.instruction
    assert isinstance(one, Collective)
    following = next(_after(job, at), None)
    if following is None or not _alike(one, following):
        raise LookupError("the next call of the group has another operation or size")
    put(job, at, instead=True)
    return _truth("skipped-alike", at.rank, one.group)


def _after(job: Plan, at: Place) -> Iterator[Collective]:
    """The calls of the group behind a place of the plan."""
    assert isinstance(at.instruction, Collective)
    steps = job.steps[at.rank]
    rest = [*steps[at.step][at.index + 1 :], *(i for step in steps[at.step + 1 :] for i in step)]
    return (one for _, one in calls_of(rest) if isinstance(one, Collective) and one.group == at.instruction.group)


def finished(outcome: Outcome, rng: random.Random, extra: bool) -> tuple[int, Record]:
    """(rank, record): the rank whose records now have one call too many or too few, and that call.

    All pairs end. Of a call too many, the last one of the group has no partner and is in no dump; of one too few, the
    peers' last one. Raises LookupError where no call has others alike behind it.
    """
    places = [
        (rank, position) for rank, records in outcome.records.items() for position, one in enumerate(records)
        if one.role == "plain" and not one.is_p2p and 4 * position < 3 * len(records) and _only_alike(records, position)
    ]  # fmt: skip
    if not places:
        raise LookupError("no call has only calls of its kind behind it")
    rank, position = rng.choice(places)
    records = outcome.records[rank]
    one = records[position]
    group = [r for r in records[position:] if r.channel == one.channel and not r.is_p2p]
    if extra:
        added = replace(one, stack=METRIC)
        for record in group:
            record.seq += 1
            record.op_id += 1
        records.insert(position, added)
        records.remove(group[-1])
        return rank, added
    for record in group:
        record.seq -= 1
        record.op_id -= 1
    records.remove(one)
    last = max(r.seq for r in outcome.records[rank] if r.channel == one.channel)
    for peer, theirs in outcome.records.items():
        if peer in outcome.topology.groups[one.group]:
            theirs[:] = [r for r in theirs if r.channel != one.channel or r.is_p2p or r.seq <= last]
    return rank, one


def _only_alike(records: list[Record], position: int) -> bool:
    """Whether all calls of the group from this one on have one operation and size, and there are some."""
    one = records[position]
    behind = [r for r in records[position:] if r.channel == one.channel and not r.is_p2p]
    return len(behind) > 1 and all(getattr(r, name) == getattr(one, name) for r in behind for name in ALIKE)


SHIFTED_CALLS: dict[str, Inject] = {"extra-alike": extra_alike, "skipped-alike": skipped_alike}
"""These faults by name."""
