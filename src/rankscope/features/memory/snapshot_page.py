"""Page of memory snapshots: who holds the memory of each device, as text, Markdown or JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import orjson

from rankscope.features.memory.rules.snapshot_holders import DeviceMemory, Holder, Lines, LoneHolder, SnapshotMemory
from rankscope.schema import Frame
from rankscope.text.escaping import markdown, plain
from rankscope.text.wording import byte_count, clipped, duration, plural, ranks_text

MOST_HOLDERS = 10
"""Most places of the program that text and Markdown list for a device."""
MOST_LONE = 10
MOST_FULL = 8
"""Most devices whose places are listed, the fullest; of the others only the sizes."""
WIDTH = 80
Unread = Sequence[tuple[str, str]]


def render_snapshots(memory: SnapshotMemory, unread: Unread, form: str) -> str:
    """The page in one of three formats; `unread` are paths of files with the reason why they could not be read."""
    if form == "json":
        return _json_page(memory, unread)
    return _markdown_page(memory, unread) if form == "markdown" else _text_page(memory, unread)


def holder_text(lines: Lines) -> str:
    """The innermost lines of the job: "forward model.py:7 < step train.py:12"."""
    if not lines:
        return "no stack was recorded"
    return " < ".join(plain(f"{f.function}{_place(f)}", 200) for f in lines[:3])


def _place(frame: Frame) -> str:
    """The file and the line of a frame; "" for a category of tensors, which has none."""
    return f" {PurePath(frame.file).name}:{frame.line}" if frame.file else ""


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
    if facts["failures"]:
        free = f", {byte_count(facts['free'])} free on the device" if facts["free"] is not None else ""
        yield "failed", f"{plural(facts['failures'], 'request')}, the last for {byte_count(facts['asked'])}{free}"


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
    return f"others at most {byte_count(one.others)}" if one.others else "others nothing"


# Text.


def _text_page(memory: SnapshotMemory, unread: Unread) -> str:
    lines = []
    if len(memory.compared) > 1:
        lines += [lone_title(memory), *(line for one in memory.lone[:MOST_LONE] for line in _lone_lines(one)), ""]
    full = _fullest(memory)
    for at, device in enumerate(memory.devices):
        lines += [*_device_lines(device, at in full), ""]
    if len(memory.devices) > MOST_FULL:
        lines += [f"places are listed of the {MOST_FULL} fullest devices: -f json has all of them", ""]
    lines += [line for path, problem in unread for line in _wrapped(f"not read: {plain(path)}: {plain(problem)}", "  ")]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _lone_lines(one: LoneHolder) -> Iterator[str]:
    yield f"  rank {one.rank}: {byte_count(one.held)}, {_others(one)}"
    yield from _wrapped(f"    {holder_text(one.lines)}", "      ")


def _device_lines(device: DeviceMemory, listed: bool) -> Iterator[str]:
    facts = device.facts
    yield clipped(f"{owner_text(facts['rank'], facts['device'])}: {plain(device.path)}", WIDTH)
    for label, text in size_lines(device):
        yield from _wrapped(f"  {label:<7} {text}", " " * 10)
    for text in device.advice:
        yield from _wrapped(f"  -> {text}", " " * 5)
    if listed:
        yield f"  {'at peak':>10} {'at dump':>10} {'live':>6}  allocated by"
        for one in device.holders[:MOST_HOLDERS]:
            yield from _holder_lines(one, facts["peak"] is not None)
        yield from _more(device)


def _holder_lines(one: Holder, has_peak: bool) -> Iterator[str]:
    peak = byte_count(one.at_peak) if has_peak else "-"
    yield from _wrapped(
        f"  {peak:>10} {byte_count(one.at_dump):>10} {one.blocks:>6,}  {holder_text(one.lines)}", " " * 33
    )


def _more(device: DeviceMemory) -> Iterator[str]:
    rest = device.holders[MOST_HOLDERS:]
    if rest:
        peak, dump = (sum(getattr(one, name) for one in rest) for name in ("at_peak", "at_dump"))
        yield f"  {byte_count(peak):>10} {byte_count(dump):>10} {'':>6}  {plural(len(rest), 'more place')}"


def _wrapped(text: str, indent: str) -> list[str]:
    """The text in lines of `WIDTH`, later ones behind `indent`."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


# Markdown.


def _markdown_page(memory: SnapshotMemory, unread: Unread) -> str:
    parts = ["# Memory snapshots"]
    if len(memory.compared) > 1:
        parts.append(f"## {lone_title(memory).capitalize()}")
        rows = [
            (str(one.rank), byte_count(one.held), _others(one), _code(one.lines)) for one in memory.lone[:MOST_LONE]
        ]
        parts += [_table(("rank", "held", "others", "allocated by"), rows)] if rows else []
    full = _fullest(memory)
    for at, device in enumerate(memory.devices):
        parts += _markdown_device(device, at in full)
    if unread:
        parts.append("\n".join(f"- not read: {markdown(path)}: {markdown(problem)}" for path, problem in unread))
    return "\n\n".join(parts) + "\n"


def _markdown_device(device: DeviceMemory, listed: bool) -> Iterator[str]:
    yield f"## {owner_text(device.facts['rank'], device.facts['device']).capitalize()}"
    yield markdown(device.path)
    told = [*size_lines(device), *(("to do", text) for text in device.advice)]
    yield "\n".join(f"- {label}: {text}" if label else f"- {text}" for label, text in told)
    if listed:
        has_peak = device.facts["peak"] is not None
        cells = [
            (byte_count(x.at_peak) if has_peak else "-", byte_count(x.at_dump), f"{x.blocks:,}", _code(x.lines))
            for x in device.holders[:MOST_HOLDERS]
        ]
        yield _table(("at peak", "at dump", "live", "allocated by"), cells)


def _code(lines: Lines) -> str:
    return markdown(holder_text(lines))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


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
        "unread": [{"path": plain(path), "problem": plain(problem)} for path, problem in unread],
    }  # fmt: skip
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"


def _json_device(device: DeviceMemory) -> dict[str, Any]:
    facts = {name: value for name, value in device.facts.items() if name != "file"}
    holders = [
        {"at_peak": one.at_peak, "at_dump": one.at_dump, "blocks": one.blocks, "stack": _json_lines(one.lines)}
        for one in device.holders
    ]
    return {"path": plain(device.path), **facts, "advice": device.advice, "allocations": holders}


def _json_lines(lines: Lines) -> list[dict[str, Any]]:
    return [{"function": plain(f.function), "file": plain(f.file), "line": f.line} for f in lines]
