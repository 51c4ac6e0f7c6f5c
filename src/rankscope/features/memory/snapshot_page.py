"""Page of memory snapshots: who holds the memory of each device, as text, Markdown, HTML or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from rankscope.features.memory.rules.snapshot_growth import PlaceGrowth, SnapshotGrowth, snapshot_growths
from rankscope.features.memory.rules.snapshot_holders import (
    DeviceMemory,
    Holder,
    Lines,
    LoneHolder,
    SnapshotMemory,
    holder_text,
    went_on,
)
from rankscope.report.blocks import Block, Grid, Prose, Records, Section
from rankscope.report.markdown import sections_markdown
from rankscope.report.text import sections_text
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, duration, plural, ranks_text, sentence

MOST_HOLDERS = 10
"""Most places of the program that text and Markdown list for a device."""
MOST_LONE = 10
MOST_GROWTHS = 4
"""Most devices with several snapshots whose growth is listed, the largest first."""
MOST_SHRUNK = 3
"""Most places that hold less than before."""
MOST_FULL = 8
"""Most devices whose places are listed, the fullest; of the others only the sizes."""
TITLE = "Memory snapshots"
Unread = Sequence[tuple[str, str]]


class HolderColumn(NamedTuple):
    """A column of the places that hold memory of a device."""

    heading: str
    cell: Callable[[Holder], str]
    width: int
    """Its characters on the page of the screen."""


def holder_columns(device: DeviceMemory) -> tuple[HolderColumn, ...]:
    """The sizes of a place, as the report and the screen list them before its lines."""
    facts = device.facts
    failure = (HolderColumn("at failure", lambda holder: byte_count(holder.at_failure), 10),)
    return (
        *(failure if facts["failures"] else ()),
        HolderColumn("at peak", lambda holder: byte_count(holder.at_peak) if facts["peak"] is not None else "-", 9),
        HolderColumn("at dump", lambda holder: byte_count(holder.at_dump), 9),
        HolderColumn("live", lambda holder: f"{holder.blocks:,}", 6),
    )


ALLOCATED_BY = "allocated by"
"""The heading of the lines of a place."""


def render_snapshots(memory: SnapshotMemory, unread: Unread, form: str, is_redacted: bool = False) -> str:
    """The page in one of four formats; `unread` are paths of files with the reason why they could not be read."""
    if form == "json":
        return _json_page(memory, unread)
    sections = list(snapshot_sections(memory, unread))
    if form == "html":
        from rankscope.report.html import sections_page

        return sections_page("memory", TITLE, sections, is_redacted)
    return sections_markdown(TITLE, sections) if form == "markdown" else sections_text(sections)


def snapshot_sections(memory: SnapshotMemory, unread: Unread) -> Iterator[Section]:
    """Sections on what each rank holds alone, then on each device with the places that hold its memory."""
    if len(memory.compared) > 1:
        rows = [
            (str(one.rank), byte_count(one.held), _others(one), holder_text(one.lines))
            for one in memory.lone[:MOST_LONE]
        ]
        head = ("rank", "held", "others", ALLOCATED_BY)
        grids = (Grid(head=head, rows=rows, numbers=(0, 1), wraps=True),) if rows else ()
        yield Section(sentence(lone_title(memory)), grids or (Prose("Nothing is held by one rank alone."),))
    for growth in snapshot_growths(memory.devices)[:MOST_GROWTHS]:
        yield Section(sentence(growth_title(growth)), tuple(_growth_blocks(growth)))
    full = _fullest(memory)
    for at, device in enumerate(memory.devices):
        yield Section(
            sentence(owner_text(device.facts["rank"], device.facts["device"])),
            tuple(_device_blocks(device, at in full)),
        )
    if len(memory.devices) > MOST_FULL:
        text = f"Places are listed of the {MOST_FULL} fullest devices: the JSON page has all of them."
        yield Section("Other devices", (Prose(text),))
    if unread:
        yield Section("Files not read, or only in part", (Records(head=("file", "why"), rows=unread),))


GROWTH_HEAD = ("grew", "before", "after", "live")
"""Headings of what a place holds more in the last of several snapshots, as the report and the screen list it."""


def growth_cells(place: PlaceGrowth) -> tuple[str, ...]:
    """Cells by the names of `GROWTH_HEAD`."""
    sign = "-" if place.grown < 0 else ""
    sizes = (byte_count(place.before), byte_count(place.after))
    return f"{sign}{byte_count(abs(place.grown))}", *sizes, f"{place.blocks:,}"


def growth_title(growth: SnapshotGrowth) -> str:
    """The device, with what is in tensors in the first and in the last snapshot."""
    facts = growth.last.facts
    before, after = (byte_count(one.facts["allocated"]) for one in (growth.first, growth.last))
    who = owner_text(facts["rank"], facts["device"])
    known = "" if facts["rank"] is not None else ", if the files are of one process"
    return f"what grew on {who}{known}: {before} in tensors, then {after}"


def growth_words(growth: SnapshotGrowth) -> str:
    """The two files, and the time between them."""
    later = f", {duration(growth.apart_ns)} later" if growth.apart_ns else ""
    of = f" (first and last of {growth.snapshots} snapshots)" if growth.snapshots > 2 else ""
    return f"from {growth.first.path} to {growth.last.path}{later}{of}"


def _growth_blocks(growth: SnapshotGrowth) -> Iterator[Block]:
    yield Prose(growth_words(growth))
    more = [place for place in growth.places if place.grown > 0]
    less = [place for place in growth.places if place.grown < 0]
    rows = [
        (*growth_cells(place), holder_text(place.lines))
        for place in (*more[:MOST_HOLDERS], *less[: -MOST_SHRUNK - 1 : -1])
    ]
    if not rows:
        yield Prose("No place of the program holds more or less than before.")
        return
    head = (*GROWTH_HEAD, ALLOCATED_BY)
    left = len(more[MOST_HOLDERS:]) + len(less[:-MOST_SHRUNK])
    rest = f"{plural(left, 'more place')} changed: the JSON page has all" if left else ""
    yield Grid(head=head, rows=rows, numbers=tuple(range(len(GROWTH_HEAD))), wraps=True, more=rest)


def _device_blocks(device: DeviceMemory, listed: bool) -> Iterator[Block]:
    facts = [*size_lines(device), *(("to do", text) for text in device.advice)]
    yield Prose(device.path)
    yield Records(head=("", ""), rows=facts, labelled=True)
    if listed:
        columns = holder_columns(device)
        rows = [
            (*(column.cell(holder) for column in columns), holder_text(holder.lines))
            for holder in device.holders[:MOST_HOLDERS]
        ]
        if rest := device.holders[MOST_HOLDERS:]:
            names = ("at_peak", "at_failure", "at_dump", "blocks")
            whole = Holder((), *(sum(getattr(one, name) for one in rest) for name in names))
            rows.append((*(column.cell(whole) for column in columns), plural(len(rest), "more place")))
        head = (*(column.heading for column in columns), ALLOCATED_BY)
        yield Grid(head=head, rows=rows, numbers=tuple(range(len(columns))), wraps=True)


def owner_text(rank: int | None, device: int) -> str:
    """The rank and its device in words."""
    return f"{'rank unknown' if rank is None else f'rank {rank}'}, device {'unknown' if device < 0 else device}"


def size_lines(device: DeviceMemory) -> Iterator[tuple[str, str]]:
    """Facts on a device: label and text."""
    facts = device.facts
    if not facts["segments"]:
        ago = f", {duration(facts['ago_ns'])} before the end" if facts["ago_ns"] is not None else ""
        yield "dump", f"{byte_count(facts['allocated'])} in tensors; segments are not told"
        yield "peak", f"{byte_count(facts['peak'])} in tensors{ago}"
        return
    pending = f", {byte_count(facts['pending'])} freed and waiting for a stream" if facts["pending"] else ""
    yield (
        "dump",
        (
            f"{byte_count(facts['allocated'])} in tensors{pending}, of {byte_count(facts['reserved'])} reserved in "
            f"{plural(facts['segments'], 'segment')}"
        ),
    )
    if facts["peak"] is not None:
        ago = f", {duration(facts['ago_ns'])} before its end" if facts["ago_ns"] is not None else ""
        yield "peak", f"{byte_count(facts['peak'])} in tensors, in a history of {plural(facts['events'], 'event')}{ago}"
    else:
        yield "peak", "unknown: no history was recorded"
    if facts["unknown"]:
        yield "", f"{byte_count(facts['unknown'])} of it are older than the history: by whom is not known"
    yield (
        "free",
        (
            f"{byte_count(facts['gaps'])} in gaps of used segments, {byte_count(facts['cached'])} in unused segments; "
            f"largest block {byte_count(facts['largest'])}"
        ),
    )
    yield from _failure_lines(device)


def _failure_lines(device: DeviceMemory) -> Iterator[tuple[str, str]]:
    """Facts on the last failed request, and on what was held when it failed."""
    facts = device.facts
    if not facts["failures"]:
        return
    by = f" in {holder_text(device.asked_by)}" if device.asked_by else ""
    yield "failed", f"{plural(facts['failures'], 'request')}, the last for {byte_count(facts['asked'])}{by}"
    held = f"{byte_count(facts['held_then'])} in tensors, {byte_count(facts['free'])} free by the driver"
    if facts["reserved_then"] is None:
        yield "", f"then {held}; the history does not tell what was reserved"
    else:
        unused = facts["gaps_then"] + facts["cached_then"]
        yield (
            "",
            (
                f"then {held}; {byte_count(unused)} of {byte_count(facts['reserved_then'])} reserved unused, in pieces "
                f"of at most {byte_count(facts['largest_then'])}"
            ),
        )
    if went_on(facts):
        yield "", f"it went on: {plural(facts['later'], 'allocation')} of {byte_count(facts['later_bytes'])} followed"


def _fullest(memory: SnapshotMemory) -> set[int]:
    """Places of the devices whose holders are listed."""
    order = sorted(range(len(memory.devices)), key=lambda at: -memory.devices[at].most)
    return set(order[:MOST_FULL])


def lone_title(memory: SnapshotMemory) -> str:
    """The head of the list of what one rank holds alone."""
    when = "at its peak" if memory.moment == "at_peak" else "at the dump"
    ranks = ranks_text(memory.compared)
    return f"held by one rank alone {when}, of {ranks}" if memory.lone else f"{ranks}: no rank holds what others do not"


def _others(one: LoneHolder) -> str:
    return f"at most {byte_count(one.others)}" if one.others else "nothing"


# JSON.


def _json_page(memory: SnapshotMemory, unread: Unread) -> str:
    value = {
        "devices": [_json_device(device) for device in memory.devices],
        "compared_ranks": memory.compared, "moment": memory.moment,
        "held_alone": [
            {"rank": one.rank, "bytes": one.held, "others_most": one.others, "others_median": one.usual,
             "stack": _json_lines(one.lines)}
            for one in memory.lone
        ],
        "growth": [
            {"rank": growth.last.facts["rank"], "device": growth.last.facts["device"],
             "first": plain(growth.first.path), "last": plain(growth.last.path), "snapshots": growth.snapshots,
             "apart_ns": growth.apart_ns, "before": growth.first.facts["allocated"],
             "after": growth.last.facts["allocated"],
             "places": [
                 {"grown": place.grown, "before": place.before, "after": place.after,
                  "blocks_before": place.blocks_before, "blocks": place.blocks, "stack": _json_lines(place.lines)}
                 for place in growth.places
             ]}
            for growth in snapshot_growths(memory.devices)
        ],
        "unread": [{"path": plain(path), "problem": plain(problem)} for path, problem in unread],
    }  # fmt: skip
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"


def _json_device(device: DeviceMemory) -> dict[str, Any]:
    facts = {name: value for name, value in device.facts.items() if name not in ("file", "asked_by")}
    holders = [
        {"at_peak": one.at_peak, "at_failure": one.at_failure, "at_dump": one.at_dump, "blocks": one.blocks,
         "stack": _json_lines(one.lines)}
        for one in device.holders
    ]  # fmt: skip
    return {
        "path": plain(device.path),
        **facts,
        "asked_by": _json_lines(device.asked_by),
        "advice": device.advice,
        "allocations": holders,
    }


def _json_lines(lines: Lines) -> list[dict[str, Any]]:
    return [{"function": plain(f.function), "file": plain(f.file), "line": f.line} for f in lines]
