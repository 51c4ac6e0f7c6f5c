"""Elements of the tensors of a replay: few, or as many as were recorded, as far as memory goes.

Small ones keep only which sizes are equal. NCCL chooses protocol and algorithm by the size: a hang that comes from
there needs the recorded ones.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from rankscope.features.replay.schedule import Key, Schedule, Step
from rankscope.text.wording import byte_count, plural

BASE = 4
"""Elements of the smallest tensor, and of those of unknown size; distinct sizes stay distinct multiples of it."""
BYTES = {"Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2}
"""Bytes of an element by the name of its type in dumps; others are played by bytes."""
SCATTERED, GATHERED = "reduce_scatter", "all_gather"
_NO_LIMIT = 1 << 62
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]")


def type_name(step: Step) -> str:
    """The type as dumps name it: `Float`."""
    return _UNSAFE.sub("", step.dtype or "Float")[:24] or "Float"


@dataclass(frozen=True)
class ReplaySizes:
    """The size of each operation, as a replay takes it: of the input, and of reduce_scatter of the output."""

    sizes: dict[Key, dict[int | None, int]]
    """By operation and its recorded elements."""
    remarks: tuple[str, ...] = field(default_factory=tuple)
    """Sentences on what is not as recorded."""

    def of(self, step: Step) -> int:
        """Elements for an operation of one rank."""
        return self.sizes[step.key][step.elements]


def small_sizes(schedule: Schedule) -> ReplaySizes:
    """Few elements; what is equal in the recorded sizes, stays equal. An unknown size is that of the other members."""
    known = sorted({s.elements for steps in schedule.steps.values() for s in steps if s.elements is not None})
    sizes = {elements: BASE * (at + 1) for at, elements in enumerate(known)}
    sizes_of_key: dict[Key, dict[int | None, int]] = {}
    for key, steps in _by_key(schedule).items():
        scaled: dict[int | None, int] = {s.elements: sizes[s.elements] for s in steps if s.elements is not None}
        sizes_of_key[key] = {None: max(scaled.values(), default=BASE), **scaled}
    return ReplaySizes(sizes_of_key)


def real_sizes(schedule: Schedule, memory: int | None = None, *, serial: bool = True) -> ReplaySizes:
    """The recorded elements, with at most `memory` bytes of tensors on a rank at a time, if that is given."""
    most = max((_at_once(schedule, rank, serial=serial) for rank in schedule.steps), default=1)
    sizes: dict[Key, dict[int | None, int]] = {}
    capped, unknown, largest = 0, 0, 0
    for key, steps in _by_key(schedule).items():
        members = len(schedule.members[key])
        recorded = {step.elements: _recorded(step, steps, members) for step in steps}
        bytes_each = max(BYTES.get(type_name(step), 1) for step in steps) * (
            members + 1 if steps[0].op in (SCATTERED, GATHERED) else 1
        )
        limit = max((memory or _NO_LIMIT) // max(most, 1) // bytes_each, len(recorded))
        # sizes that differ still differ when both are capped
        ordered = sorted(recorded.items(), key=lambda item: item[1])
        sizes[key] = {e: min(size, limit - len(ordered) + 1 + at) for at, (e, size) in enumerate(ordered)}
        top = ordered[-1][1]
        capped, largest = capped + (top > limit), max(largest, top if top > limit else 0)
        unknown += steps[0].op != "barrier" and all(s.elements is None and s.sent is None for s in steps)
    remarks = [f"sizes as recorded, in at most {byte_count(memory)} a rank"] if memory else []
    if capped:
        remarks.append(f"capped: {plural(capped, 'operation')}, the largest of {largest:,} elements")
    remarks += [f"{plural(unknown, 'operation')} of unknown size: {BASE} elements"] if unknown else []
    return ReplaySizes(sizes, tuple(remarks))


def _recorded(step: Step, steps: list[Step], members: int) -> int:
    """The recorded elements, or where they may differ between members the most of any, because one size is played."""
    elements = step.elements
    if elements is None:
        elements = max((s.sent for s in steps if s.sent is not None), default=BASE)
    return max(elements // members if step.op == SCATTERED else elements, 1)


def _at_once(schedule: Schedule, rank: int, *, serial: bool) -> int:
    """How many operations of a rank run at a time at most."""
    return max(map(len, schedule.units(rank)), default=1) if serial else len(schedule.steps[rank])


def _by_key(schedule: Schedule) -> dict[Key, list[Step]]:
    found: defaultdict[Key, list[Step]] = defaultdict(list)
    for steps in schedule.steps.values():
        for step in steps:
            found[step.key].append(step)
    return found
