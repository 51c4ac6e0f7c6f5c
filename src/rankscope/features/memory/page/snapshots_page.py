"""The page of memory snapshots: places of the program over ranks, those of one device, and segments of all devices."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any, Literal

from textual import on, work
from textual.message import Message

from rankscope.analysis.model import Analysis
from rankscope.features.memory.rules.snapshot_growth import PlaceGrowth, SnapshotGrowth, snapshot_growths
from rankscope.features.memory.rules.snapshot_holders import (
    DeviceMemory,
    Holder,
    Lines,
    PlaceOverRanks,
    SnapshotMemory,
    holder_text,
    snapshot_memory,
    went_on,
)
from rankscope.features.memory.snapshot_page import (
    ALLOCATED_BY,
    GROWTH_HEAD,
    growth_cells,
    growth_title,
    growth_words,
    holder_columns,
    owner_text,
    size_lines,
)
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, plural, ranks_text
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.screens.page import TablePage, Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, cut, line, wrapped

BAR = 10
"""Cells of the bar that shows how the reserved memory is used."""
MOST_SIZES = 8
"""Most sizes that stand below the list, each with the ranks that hold so much, the largest first."""
Part = Literal["ranks", "growth", "device", "segments"]
"""What the rows are: places over ranks, what grew between two snapshots of a device, places of one device, or devices
with their segments."""


Row = PlaceOverRanks | PlaceGrowth | Holder | DeviceMemory


@dataclass
class Summed(Message):
    """The holders of all snapshots are summed up."""

    memory: SnapshotMemory


class SnapshotsScreen(TablePage[Row]):
    """The holders of the memory of each device; dismisses with a rank."""

    WAYS = (
        Way("m", "part", "ranks, segments or growth"),
        Way("d", "device(1)", "the next device"),
        Way("p", "device(-1)", "the device before"),
        Way("r", "rank", "go to the lane of the rank with most"),
    )
    DEFAULT_CSS = "SnapshotsScreen #text { height: 9; max-height: 50%; }"
    VIEW = "snapshots"
    ENTER = "open"
    FIND_HINT = "part of a function or file; in segments a rank"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        del analysis
        self.dataset = dataset
        self.memory: SnapshotMemory | None = None
        """None while the holders are summed up."""
        self.part: Part = "ranks"
        self.device = 0
        """The place of the shown device in those of `memory`."""
        self.growths: tuple[SnapshotGrowth, ...] = ()
        self.grown = 0
        """The place of the shown growth in `growths`."""
        self._alone: dict[Lines, int] = {}
        """The places that one rank holds alone, with their order."""
        super().__init__(options or ViewOptions())

    def begin(self) -> None:
        """Starts to sum up the snapshots."""
        super().begin()
        if not self.dataset.snapshots.is_empty():
            self._sum_up()

    @work(thread=True)
    def _sum_up(self) -> None:
        """Sums up the holders: seconds for many ranks, for which no key should wait."""
        self.post_message(Summed(snapshot_memory(self.dataset)))

    @on(Summed)
    def _summed(self, event: Summed) -> None:
        self.memory = event.memory
        self._alone = {place.lines: at for at, place in enumerate(event.memory.lone)}
        failed = next((at for at, one in enumerate(event.memory.devices) if _ran_out(one)), None)
        self.growths = snapshot_growths(event.memory.devices)
        self.part = "device" if failed is not None else self.parts[0]
        self.device = failed or 0
        self.fill()
        self.draw_bars()

    @property
    def parts(self) -> list[Part]:
        """The parts that have rows, that with most to tell first."""
        assert self.memory is not None
        growth: list[Part] = ["growth"] if self.growths else []
        if len(self.memory.compared) > 1:
            return ["ranks", *growth, "device", "segments"]
        # places over ranks of one rank are no comparison
        return [*growth, "device", "segments", "ranks"]

    def heading(self) -> list[Line]:
        """The largest place that one rank holds alone, the shown part, and the names of the columns."""
        if self.memory is None:
            waits = not self.dataset.snapshots.is_empty()
            return [line(Span(" snapshots", "head"), Span("  summing up" if waits else "", "dim"))]
        titles = {
            "ranks": _ranks_title, "growth": self._growth_title, "device": self._device_title,
            "segments": _segments_title,
        }  # fmt: skip
        title = titles[self.part]
        return [
            *(cut(parts, self.size.width) for parts in (self._first_line(self.memory), title(self.memory))),
            self.titles("bold"),
        ]

    def _first_line(self, memory: SnapshotMemory) -> Line:
        """A request that failed, else what one rank holds alone, else what grew on one rank."""
        failed = next((one for one in memory.devices if _ran_out(one)), None)
        if failed is not None:
            return failure_line(failed)
        if self.growths and len(memory.compared) < 2:
            return growth_line(self.growths[0])
        return lone_line(memory)

    def _device_title(self, memory: SnapshotMemory) -> Line:
        shown = memory.devices[self.device]
        of = f"  {self.device + 1} of {len(memory.devices)}, {plural(len(shown.holders), 'place')}"
        return line(Span(f" {device_name(shown)}", "head"), Span(of, "dim"))

    def _growth_title(self, _: SnapshotMemory) -> Line:
        return line(Span(f" {growth_title(self.growths[self.grown])}", "head"))

    def table(self) -> Columns[Any]:
        """The columns of the shown part."""
        if self.part == "segments":
            return SEGMENT_COLUMNS
        if self.part == "growth":
            return GROWTH_COLUMNS
        if self.part == "device":
            return device_columns(self.memory.devices[self.device]) if self.memory else Columns()
        return place_columns(self.memory.compared if self.memory else (), self._alone)

    def rows(self) -> Sequence[Row]:
        """The places over ranks, what one rank holds alone first; those of a device; or the devices, fullest first."""
        if self.memory is None:
            return ()
        if self.part == "growth":
            return self.growths[self.grown].places
        if self.part == "segments":
            return sorted(self.memory.devices, key=lambda device: -device.most)
        if self.part == "device":
            return self.memory.devices[self.device].holders
        return sorted(self.memory.places, key=lambda place: self._alone.get(place.lines, len(self._alone)))

    def has(self, row: Row, text: str) -> bool:
        """Whether a place has `text` in its lines, or a device is that of a rank."""
        if isinstance(row, DeviceMemory):
            return str(row.facts["rank"]) == text
        return text in holder_text(row.lines).lower()

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The whole stack of a place with its bytes over ranks, or the facts of a device."""
        assert self.memory is not None
        row = self.row(at)
        if isinstance(row, DeviceMemory):
            return wrapped(device_facts(row), width, 10)
        if isinstance(row, PlaceGrowth):
            words = plain(growth_words(self.growths[self.grown]))
            return wrapped([line(Span("files  ", "dim"), words), *stack_text(row.lines)], width, 7)
        place = next((place for place in self.memory.places if place.lines == row.lines), None)
        held = [place_facts(place, self.memory.compared)] if place is not None and self.memory.compared else []
        return wrapped([*held, *stack_text(row.lines)], width, 7)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has a use here: one device leaves no other."""
        if action.startswith("device"):
            return self.memory is not None and len(self.memory.devices) > 1
        return super().check_action(action, parameters)

    def action_part(self) -> None:
        """Shows the next part."""
        if self.memory is not None:
            self._show(self.parts[(self.parts.index(self.part) + 1) % len(self.parts)], self.device)

    def action_device(self, by: int) -> None:
        """Shows the places, or the growth, of the next or previous device."""
        if self.memory is not None and self.part == "growth":
            self.grown = (self.grown + by) % len(self.growths)
            self._show("growth", self.device)
        elif self.memory is not None:
            self._show("device", (self.device + by) % len(self.memory.devices))

    def _show(self, part: Part, device: int) -> None:
        self.part, self.device = part, device
        self.fill()
        self.draw_bars()

    def action_rank(self) -> None:
        """Goes to the lanes of the rank that holds most of the place, or of the device."""
        if self.memory is None or not self.shown:
            return
        row = self.row(self.listing.cursor)
        rank: int | None
        if isinstance(row, PlaceOverRanks) and self.memory.compared:
            rank = row.ordered(self.memory.compared)[0][0]
        else:
            of_growth = isinstance(row, PlaceGrowth)
            shown = self.growths[self.grown].last if of_growth else self.memory.devices[self.device]
            device = row if isinstance(row, DeviceMemory) else shown
            rank = device.facts["rank"]
        if rank is None:
            self.note("the name of this file tells no rank: --rank-from helps")
        elif self.dataset.ops.is_empty():
            self.note(f"rank {rank} has no lane: give flight recorder dumps or traces, too")
        else:
            self.dismiss(Selection(rank))

    def choose(self, at: int) -> None:
        """Opens the source of a place, or the places of a device."""
        row = self.row(at)
        if not isinstance(row, DeviceMemory):
            self.open_source(next((frame for frame in row.lines if frame.file), None))
        elif self.memory is not None:
            self._show("device", self.memory.devices.index(row))

    def nothing(self) -> list[Line]:
        """The text for an empty list: how to write snapshots, or what was looked for."""
        if self.memory is None and not self.dataset.snapshots.is_empty():
            return [line(Span("summing up the snapshots", "dim"))]
        return super().nothing()


def _ranks_title(memory: SnapshotMemory) -> Line:
    when = "at the peaks" if memory.moment == "at_peak" else "at the dumps"
    what = f"places of {plural(len(memory.compared), 'rank')} {when}, held alone (!) first"
    return line(Span(" over ranks  ", "head"), what)


def _segments_title(memory: SnapshotMemory) -> Line:
    what = f"{plural(len(memory.devices), 'device')}: # in tensors, . in gaps, - in unused segments"
    return line(Span(" segments  ", "head"), what)


def _ran_out(device: DeviceMemory) -> bool:
    """Whether a request failed for want of memory, and the program did not go on."""
    return bool(device.facts["failures"]) and not went_on(device.facts)


def device_name(device: DeviceMemory) -> str:
    """The rank, the device and the file."""
    return f"{owner_text(device.facts['rank'], device.facts['device'])}: {plain(device.path)}"


def failure_line(device: DeviceMemory) -> Line:
    """The request of a device that failed, and who asked."""
    facts = device.facts
    by = f": {holder_text(device.asked_by)}" if device.asked_by else ""
    sizes = (
        f"asked {byte_count(facts['asked'])}, {byte_count(facts['free'])} free, {byte_count(facts['held_then'])} held"
    )
    who = owner_text(facts["rank"], facts["device"])
    return line(" ", Span(f"{who} OUT OF MEMORY", "bad"), f"  {sizes}{by}")


def growth_line(growth: SnapshotGrowth) -> Line:
    """The place that grew most between two snapshots."""
    first = next((place for place in growth.places if place.grown > 0), None)
    if first is None:
        return line(Span(" no place of the program holds more than before", "good"))
    return line(" ", Span("GREW MOST", "warn"), f"  {byte_count(first.grown)}: {holder_text(first.lines)}")


def lone_line(memory: SnapshotMemory) -> Line:
    """The largest place that one rank holds alone."""
    if not memory.lone:
        if len(memory.compared) > 1:
            return line(Span(" no rank holds what others do not", "good"))
        return line(Span(" one rank: nothing to compare", "dim"))
    first, more = memory.lone[0], len(memory.lone) - 1
    rest = f"; {more:,} more" if more else ""
    others = f"the others at most {byte_count(first.others)}" if first.others else "the others none"
    where = f"  {byte_count(first.held)}, {others}: {holder_text(first.lines)}"
    return line(" ", Span(f"rank {first.rank} HOLDS ALONE", "bad"), where, Span(rest, "dim"))


def place_columns(ranks: Sequence[int], alone: Container[Lines]) -> Columns[PlaceOverRanks]:
    """The columns of places over ranks: the most with its rank, the median and the least, and the lines."""
    known: dict[Lines, tuple[int, int, int, int]] = {}

    def sizes(place: PlaceOverRanks) -> tuple[int, int, int, int]:
        """The most bytes, their rank, the median and the least; kept, because it sorts all ranks."""
        if place.lines not in known:
            held = place.ordered(ranks)
            known[place.lines] = held[0][1], held[0][0], round(median(size for _, size in held)), held[-1][1]
        return known[place.lines]

    return Columns(
        Col(title="", cell=lambda place: Span("!" if place.lines in alone else "", "bad"), width=2, right=True),
        Col(title="most", cell=lambda place: byte_count(sizes(place)[0]), width=9, right=True),
        Col(title="on", cell=lambda place: str(sizes(place)[1]), width=5, right=True),
        Col(title="median", cell=lambda place: byte_count(sizes(place)[2]), width=9, right=True),
        Col(title="least", cell=lambda place: byte_count(sizes(place)[3]), width=9, right=True),
        LINES_OF_PLACE,
    )


def device_columns(device: DeviceMemory) -> Columns[Holder]:
    """The columns of places of one device."""
    sizes = [
        Col(title=column.heading, cell=column.cell, width=column.width, right=True) for column in holder_columns(device)
    ]
    return Columns(*sizes, LINES_OF_PLACE)


GROWTH_WIDTHS = (10, 10, 10, 6)


def growth_cell(at: int, place: PlaceGrowth) -> str:
    """A cell of a place that grew, by its number in `GROWTH_HEAD`."""
    return growth_cells(place)[at]


LINES_OF_PLACE = Col[Any](title=f" {ALLOCATED_BY}", cell=lambda place: f" {holder_text(place.lines)}")


GROWTH_COLUMNS = Columns[PlaceGrowth](
    *(
        Col[PlaceGrowth](title=title, cell=partial(growth_cell, at), width=width, right=True)
        for at, (title, width) in enumerate(zip(GROWTH_HEAD, GROWTH_WIDTHS, strict=True))
    ),
    LINES_OF_PLACE,
)


def _sizes(title: str, name: str) -> Col[DeviceMemory]:
    """A column of bytes; "-" where they are not known."""
    return Col(
        title=title,
        cell=lambda device: "-" if device.facts[name] is None else byte_count(device.facts[name]),
        width=8,
        right=True,
    )


SEGMENT_COLUMNS = Columns[DeviceMemory](
    Col(title="rank", cell=lambda device: _number(device.facts["rank"]), width=4, right=True),
    Col(title="dev", cell=lambda device: _number(device.facts["device"]), width=3, right=True),
    _sizes("peak", "peak"),
    _sizes("tensors", "allocated"),
    _sizes("reserved", "reserved"),
    Col(title="segments", cell=lambda device: f"{device.facts['segments']:,}", width=8, right=True),
    _sizes("gaps", "gaps"),
    _sizes("unused", "cached"),
    Col(title="", cell=lambda device: line(" ", *_bar(device.facts))),
)


def _number(number: int | None) -> str:
    return "?" if number is None or number < 0 else str(number)


def _bar(facts: Mapping[str, Any]) -> list[Span]:
    """Cells for bytes in tensors, in gaps, and in unused segments."""
    held, gaps, reserved = facts["allocated"] + facts["pending"], facts["gaps"], facts["reserved"]
    if not reserved:
        return []
    used = round(BAR * min(held / reserved, 1))
    torn = min(round(BAR * min((held + gaps) / reserved, 1)), BAR) - used
    return [Span("#" * used, "text"), Span("." * torn, "bad"), Span("-" * (BAR - used - torn), "dim")]


def device_facts(device: DeviceMemory) -> list[Line]:
    """The sizes of a device, and what helps."""
    labelled = [*size_lines(device), *(("to do", text) for text in device.advice)]
    return [
        line(Span(device_name(device), "head")),
        *(line(Span(f"{label:<8}", "dim"), text) for label, text in labelled),
    ]


def place_facts(place: PlaceOverRanks, ranks: Sequence[int]) -> Line:
    """The bytes that ranks hold by a place, the most first, and the ranks that hold none."""
    held = [(rank, size) for rank, size in place.ordered(ranks) if size]
    by_size = groupby(held, key=lambda item: byte_count(item[1]))
    sizes = [(size, [rank for rank, _ in group]) for size, group in by_size]
    parts = [f"{size} on {ranks_text(alike, 40)}" for size, alike in sizes[:MOST_SIZES]]
    rest = sum(len(alike) for _, alike in sizes[MOST_SIZES:])
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
            plain(f"{frame.function} {frame.file}:{frame.line}" if frame.file else frame.function),
        )
        for at, frame in enumerate(lines)
    ]
