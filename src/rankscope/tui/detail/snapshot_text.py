"""Memory snapshots in words: rows of places and of devices, the stack of a place, and the facts of a device."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rankscope.analysis.memory.snapshot_holders import DeviceMemory, Holder, Lines, PlaceOverRanks, SnapshotMemory
from rankscope.report.snapshot_page import holder_text, owner_text, size_lines
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, ranks_text
from rankscope.tui.styled_text import Line, Span, line

PLACE_HEADS = f"   {'most':>9} {'on':>5} {'median':>9} {'least':>9}  allocated by"
DEVICE_HEADS = f" {'at peak':>9} {'at dump':>9} {'live':>6}  allocated by"
SEGMENT_HEADS = " rank dev" + "".join(
    f" {name:>8}" for name in ("peak", "tensors", "reserved", "segments", "gaps", "unused")
)  # fmt: skip
BAR = 10
"""Cells of the bar that shows how the reserved memory is used."""
MOST_RANKS = 8
"""Most ranks whose bytes stand below the list, those with most first."""


def device_name(device: DeviceMemory) -> str:
    """The rank, the device and the file."""
    return f"{owner_text(device.facts['rank'], device.facts['device'])}: {plain(device.path)}"


def lone_line(memory: SnapshotMemory) -> Line:
    """The largest place that one rank holds alone."""
    if not memory.lone:
        told = "no rank holds what others do not" if len(memory.compared) > 1 else "one rank: nothing to compare"
        return line(Span(f" {told}", "good" if len(memory.compared) > 1 else "dim"))
    one, more = memory.lone[0], len(memory.lone) - 1
    rest = f"; {more:,} more" if more else ""
    others = f"the others at most {byte_count(one.others)}" if one.others else "the others none"
    where = f"  {byte_count(one.held)}, {others}: {holder_text(one.lines)}"
    return line(" ", Span(f"rank {one.rank} HOLDS ALONE", "bad"), where, Span(rest, "dim"))


def place_row(place: PlaceOverRanks, ranks: Sequence[int], alone: bool) -> Line:
    """A place over ranks: the most with its rank, the median and the least, and its lines."""
    told = place.ordered(ranks)
    rank, most = told[0]
    middle = round(median(held for _, held in told))
    sizes = f" {byte_count(most):>9} {rank:>5} {byte_count(middle):>9} {byte_count(told[-1][1]):>9}  "
    return line(Span(" !" if alone else "  ", "bad"), sizes, holder_text(place.lines))


def holder_row(holder: Holder, has_peak: bool) -> Line:
    """A place of one device."""
    peak = byte_count(holder.at_peak) if has_peak else "-"
    return line(f" {peak:>9} {byte_count(holder.at_dump):>9} {holder.blocks:>6,}  {holder_text(holder.lines)}")


def segment_row(device: DeviceMemory) -> Line:
    """A device: its bytes, its segments, and how its reserved memory is used."""
    facts = device.facts
    rank = _number(facts["rank"])
    names = ("peak", "allocated", "reserved", "segments", "gaps", "cached")
    peak, allocated, reserved, segments, gaps, unused = (facts[name] for name in names)
    sizes = (byte_count(peak) if peak is not None else "-", byte_count(allocated), byte_count(reserved))
    told = " ".join(f"{text:>8}" for text in (*sizes, f"{segments:,}", byte_count(gaps), byte_count(unused)))
    return line(
        f" {rank:>4} {_number(facts['device']):>3} {told}  ", *_bar(allocated + facts["pending"], gaps, reserved)
    )


def _number(told: int | None) -> str:
    return "?" if told is None or told < 0 else str(told)


def _bar(held: int, gaps: int, reserved: int) -> list[Span]:
    """Cells for bytes in tensors, in gaps, and in unused segments."""
    if not reserved:
        return []
    used = round(BAR * min(held / reserved, 1))
    torn = min(round(BAR * min((held + gaps) / reserved, 1)), BAR) - used
    return [Span("#" * used, "text"), Span("." * torn, "bad"), Span("-" * (BAR - used - torn), "dim")]


def device_facts(device: DeviceMemory) -> list[Line]:
    """The sizes of a device, and what helps."""
    told = [line(Span(device_name(device), "head"))]
    told += [line(Span(f"{label:<8}", "dim"), text) for label, text in size_lines(device)]
    return told + [line(Span(f"{'to do':<8}", "dim"), text) for text in device.advice]


def place_facts(place: PlaceOverRanks, ranks: Sequence[int]) -> Line:
    """The bytes of the ranks that hold most by a place, and the ranks that hold none."""
    told = [one for one in place.ordered(ranks) if one[1]]
    parts = [f"rank {rank} {byte_count(held)}" for rank, held in told[:MOST_RANKS]]
    parts += [f"{len(told) - MOST_RANKS:,} more"] if len(told) > MOST_RANKS else []
    without = [rank for rank in ranks if rank not in place.held]
    none = f"; none on {ranks_text(without, 40)}" if without else ""
    return line(Span("held   ", "dim"), f"{', '.join(parts)}{none}")


def stack_text(lines: Lines) -> list[Line]:
    """All frames of a place, the innermost first."""
    if not lines:
        return [line(Span("no stack was recorded", "dim"))]
    return [
        line(
            Span("by     " if at == 0 else "       ", "dim"),
            plain(f"{one.function} {one.file}:{one.line}" if one.file else one.function),
        )
        for at, one in enumerate(lines)
    ]
