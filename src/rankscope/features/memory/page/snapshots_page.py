"""The page of memory snapshots: places of the program over ranks, those of one device, and segments of all devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import ClassVar, Literal

from textual import on, work
from textual.binding import Binding, BindingType
from textual.message import Message

from rankscope.analysis.model import Analysis
from rankscope.features.memory.rules.snapshot_holders import (
    DeviceMemory,
    Holder,
    Lines,
    PlaceOverRanks,
    SnapshotMemory,
    snapshot_memory,
)
from rankscope.features.memory.snapshot_page import holder_text, owner_text, size_lines
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, plural, ranks_text
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, cut, line, wrapped

PLACE_HEADS = f"   {'most':>9} {'on':>5} {'median':>9} {'least':>9}  allocated by"
DEVICE_HEADS = f" {'at peak':>9} {'at dump':>9} {'live':>6}  allocated by"
SEGMENT_HEADS = " rank dev" + "".join(
    f" {name:>8}" for name in ("peak", "tensors", "reserved", "segments", "gaps", "unused")
)  # fmt: skip
BAR = 10
"""Cells of the bar that shows how the reserved memory is used."""
MOST_SIZES = 8
"""Most sizes that stand below the list, each with the ranks that hold so much, the largest first."""
Part = Literal["ranks", "device", "segments"]
"""What the rows are: places over ranks, places of one device, or devices with their segments."""


@dataclass
class Summed(Message):
    """The holders of all snapshots are summed up."""

    memory: SnapshotMemory


class SnapshotsScreen(ListPage):
    """The holders of the memory of each device; dismisses with a rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "part", "ranks or segments"),
        Binding("d", "device(1)", "next device", key_display="d D"),
        Binding("D", "device(-1)", "device before", show=False),
        Binding("o", "rank", "rank"),
    ]
    DEFAULT_CSS = "SnapshotsScreen #text { height: 9; max-height: 50%; }"
    VIEW = "snapshots"
    ENTER = "open"
    FIND_HINT = "part of a function or file; in segments a rank"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        del analysis
        self.dataset = dataset
        self.memory: SnapshotMemory | None = None
        """None while the holders are summed up."""
        self.part: Part = "ranks"
        self.device = 0
        """The place of the shown device in those of `memory`."""
        self._alone: dict[Lines, int] = {}
        """The places that one rank holds alone, with their order."""
        self._shown: list[int] = []
        """The places of the rows in what `part` lists."""

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether there is no snapshot."""
        del analysis
        return dataset.snapshots.is_empty()

    def on_mount(self) -> None:
        """Starts to sum up the snapshots."""
        super().on_mount()
        if not self.dataset.snapshots.is_empty():
            self._sum_up()

    @work(thread=True)
    def _sum_up(self) -> None:
        """Sums up the holders: seconds for many ranks, for which no key should wait."""
        self.post_message(Summed(snapshot_memory(self.dataset)))

    @on(Summed)
    def _summed(self, event: Summed) -> None:
        self.memory = event.memory
        self._alone = {one.lines: at for at, one in enumerate(event.memory.lone)}
        self.part = "ranks" if len(event.memory.compared) > 1 else "device"
        self.fill()
        self.draw_bars()

    # Drawing

    def heading(self) -> list[Line]:
        """The largest place that one rank holds alone, the shown part, and the names of the columns."""
        if self.memory is None:
            waits = not self.dataset.snapshots.is_empty()
            return [line(Span(" snapshots", "head"), Span("  summing up" if waits else "", "dim"))]
        told, heads = {
            "ranks": (self._ranks_title, PLACE_HEADS),
            "device": (self._device_title, DEVICE_HEADS),
            "segments": (self._segments_title, SEGMENT_HEADS),
        }[self.part]
        lines = [lone_line(self.memory), told(self.memory), line(Span(heads, "bold"))]
        return [cut(one, self.size.width) for one in lines]

    def _ranks_title(self, memory: SnapshotMemory) -> Line:
        when = "at the peaks" if memory.moment == "at_peak" else "at the dumps"
        what = f"places of {plural(len(memory.compared), 'rank')} {when}, held alone (!) first"
        return line(Span(" over ranks  ", "head"), what)

    def _device_title(self, memory: SnapshotMemory) -> Line:
        shown = memory.devices[self.device]
        of = f"  {self.device + 1} of {len(memory.devices)}, {plural(len(shown.holders), 'place')}"
        return line(Span(f" {device_name(shown)}", "head"), Span(of, "dim"))

    def _segments_title(self, memory: SnapshotMemory) -> Line:
        what = f"{plural(len(memory.devices), 'device')}: # in tensors, . in gaps, - in unused segments"
        return line(Span(" segments  ", "head"), what)

    def search(self, text: str) -> int:
        """Lists places with the text in their lines, or devices of a rank."""
        if self.memory is None:
            return 0
        if self.part == "segments":
            rows = [str(one.facts["rank"]) == text or not text for one in self.memory.devices]
            order = sorted(range(len(rows)), key=lambda at: -self.memory_of(at).most)
        else:
            rows = [text in holder_text(lines).lower() for lines in self._lines()]
            order = (
                sorted(range(len(rows)), key=self._rank_of_place) if self.part == "ranks" else list(range(len(rows)))
            )
        self._shown = [at for at in order if rows[at]]
        return len(self._shown)

    def _lines(self) -> list[Lines]:
        """The lines of all places of the shown part."""
        assert self.memory is not None
        if self.part == "ranks":
            return [one.lines for one in self.memory.places]
        return [one.lines for one in self.memory.devices[self.device].holders]

    def _rank_of_place(self, at: int) -> int:
        """The order of a place: what one rank holds alone comes first."""
        assert self.memory is not None
        return self._alone.get(self.memory.places[at].lines, len(self._alone) + at)

    def memory_of(self, at: int) -> DeviceMemory:
        """A device by its place."""
        assert self.memory is not None
        return self.memory.devices[at]

    def entry_line(self, at: int, width: int) -> Line:
        """A place, or a device."""
        assert self.memory is not None
        place = self._shown[at]
        if self.part == "segments":
            return cut(segment_row(self.memory_of(place)), width)
        if self.part == "device":
            device = self.memory_of(self.device)
            return cut(holder_row(device.holders[place], device.facts["peak"] is not None), width)
        shared = self.memory.places[place]
        return cut(place_row(shared, self.memory.compared, shared.lines in self._alone), width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The whole stack of a place with its bytes over ranks, or the facts of a device."""
        assert self.memory is not None
        place = self._shown[at]
        if self.part == "segments":
            return wrapped(device_facts(self.memory_of(place)), width, 10)
        lines = self._lines()[place]
        found = next((one for one in self.memory.places if one.lines == lines), None)
        told = [place_facts(found, self.memory.compared)] if found is not None and self.memory.compared else []
        return wrapped([*told, *stack_text(lines)], width, 7)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has a use here: one device leaves no other."""
        if action.startswith("device"):
            return self.memory is not None and len(self.memory.devices) > 1
        return super().check_action(action, parameters)

    def action_part(self) -> None:
        """Shows the next part."""
        if self.memory is not None:
            parts: list[Part] = ["ranks", "device", "segments"]
            self._show(parts[(parts.index(self.part) + 1) % len(parts)], self.device)

    def action_device(self, by: int) -> None:
        """Shows the places of the next or previous device."""
        if self.memory is not None:
            self._show("device", (self.device + by) % len(self.memory.devices))

    def _show(self, part: Part, device: int) -> None:
        self.part, self.device = part, device
        self.fill()
        self.draw_bars()

    def action_rank(self) -> None:
        """Goes to the lanes of the rank that holds most of the place, or of the device."""
        if self.memory is None or not self._shown:
            return
        place = self._shown[self.listing.cursor]
        rank: int | None
        if self.part == "ranks" and self.memory.compared:
            rank = self.memory.places[place].ordered(self.memory.compared)[0][0]
        else:
            rank = self.memory_of(place if self.part == "segments" else self.device).facts["rank"]
        if rank is None:
            self.note("the name of this file tells no rank: --rank-from helps")
        elif self.dataset.ops.is_empty():
            self.note(f"rank {rank} has no lane: give flight recorder dumps or traces, too")
        else:
            self.dismiss(Selection(rank))

    def choose(self, at: int) -> None:
        """Opens the source of a place, or the places of a device."""
        if self.part == "segments":
            self._show("device", self._shown[at])
        else:
            lines = self._lines()[self._shown[at]]
            self.open_source(lines[0] if lines else None)

    def nothing(self) -> list[Line]:
        """The text for an empty list: how to write snapshots, or what was looked for."""
        if self.memory is None and not self.dataset.snapshots.is_empty():
            return [line(Span("summing up the snapshots", "dim"))]
        return super().nothing()


# Rows of places and of devices, the stack of a place, and the facts of a device, in words.


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
    """The bytes that ranks hold by a place, the most first, and the ranks that hold none."""
    told = groupby((one for one in place.ordered(ranks) if one[1]), key=lambda one: byte_count(one[1]))
    sizes = [(size, [rank for rank, _ in own]) for size, own in told]
    parts = [f"{size} on {ranks_text(own, 40)}" for size, own in sizes[:MOST_SIZES]]
    rest = sum(len(own) for _, own in sizes[MOST_SIZES:])
    parts += [f"less on {plural(rest, 'rank')} more"] if rest else []
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
