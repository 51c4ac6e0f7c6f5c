"""Words for values: durations, times, sizes, counts, ranks and names of groups, the same wherever they are shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

from rankscope.text.escaping import plain

SECOND_NS = 1_000_000_000

_SHORT_UNITS = ((SECOND_NS, "s"), (1_000_000, "ms"), (1_000, "us"))
_LONG_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
_LAST_NS = 253_402_300_799 * SECOND_NS


def duration(ns: int | None) -> str:
    """A length of time in two digits or two units: "162 us", "3.2 ms", "5 s", "1 min 40 s", "2 d 4 h"; "-" for None."""
    if ns is None:
        return "-"
    if ns < 0:
        return "-" + duration(-ns)
    seconds = round(ns / SECOND_NS)
    for size, name, rest_size, rest_name in _LONG_UNITS:
        if seconds >= size:
            rest = seconds % size // rest_size
            return f"{seconds // size} {name}" + (f" {rest} {rest_name}" if rest else "")
    for size, name in _SHORT_UNITS:
        # 999.7 of a unit would be written as 1000 of it: it is 1 of the next.
        if ns / size >= 0.9995:
            return f"{digits(ns / size)} {name}"
    return f"{ns} ns" if ns else "0 s"


def digits(value: float) -> str:
    """Two digits of a number below 10, whole numbers above: "3.2", "5", "350"."""
    return f"{value:.2g}" if value < 9.95 else f"{value:.0f}"


def exact_duration(ns: int) -> str:
    """A length of time to the microsecond, to tell places on an axis apart: "3.241 ms", "2.000013 s"."""
    return f"{ns / 1e9:.6f} s" if ns >= SECOND_NS else f"{ns / 1e6:.3f} ms"


def clock(ns: int | None, zone: tzinfo | None = None, digits: int = 3) -> str:
    """The time of day of `ns` since the epoch in `zone` (None: the local one), with `digits` of its second's fraction.

    "-" stands for None.
    """
    if ns is None:
        return "-"
    try:
        whole = datetime.fromtimestamp(ns // SECOND_NS, zone)
    except (ValueError, OverflowError, OSError):
        return f"{ns} ns"
    fraction = f"{ns % SECOND_NS:09d}"[:digits]
    return f"{whole:%H:%M:%S}" + (f".{fraction}" if fraction else "")


def moment(ns: int, zone: str = "UTC", *, with_year: bool = True) -> str:
    """Nanoseconds since the epoch as UTC date and time, to the second; `zone` is what stands behind it."""
    if not 0 <= ns <= _LAST_NS:
        return f"{ns} ns since 1970"
    form = "%Y-%m-%d %H:%M:%S" if with_year else "%d %b %H:%M:%S"
    return f"{datetime.fromtimestamp(ns // SECOND_NS, UTC).strftime(form)} {zone}"


def byte_count(count: int | None) -> str:
    """A number of bytes in binary units: "512 B", "1.5 KiB", "16 MiB"; "-" for None."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1023.5 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{digits(value)} {unit}"


def links_out(count: int, where: str) -> str:
    """The sentence on links that lead out of what was read, without its end."""
    lead, are, them = ("leads", "is", "it") if count == 1 else ("lead", "are", "them")
    return f"{plural(count, 'link')} {lead} out of {where} and {are} not followed: --follow-links reads {them}"


def plural(count: int, noun: str) -> str:
    """A number with its noun: "1 group", "2 groups", "3 processes", "12,000 operations"."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"


def rank_ranges(ranks: Iterable[int], width: int | None = None) -> str:
    """Ranks, or other numbers, as ranges: "0-3,7"; "none" without any.

    Where `width` characters do not hold them the rest is counted: "0,4,+30", "12000+4383".
    """
    ordered = sorted(set(ranks))
    parts = _ranges(ordered)
    full = ",".join(text for text, _ in parts) or "none"
    if width is None or len(full) <= width:
        return full
    left, label = len(ordered), ""
    for text, count in parts:
        longer = f"{label}{text},"
        if len(f"{longer}+{left - count}") > width:
            break
        label, left = longer, left - count
    if label:
        return f"{label}+{left}"
    first = str(ordered[0]) if ordered else full
    return next((text for text in (f"{first}+{left - 1}", f"{first}..") if len(text) <= width), first[:width])


def _ranges(ordered: Sequence[int]) -> list[tuple[str, int]]:
    """Ranges of sorted numbers, each with how many it holds; two neighbours are no range."""
    found: list[tuple[str, int]] = []
    start = 0
    for at in range(1, len(ordered) + 1):
        if at == len(ordered) or ordered[at] != ordered[at - 1] + 1:
            if at - start > 2:
                found.append((f"{ordered[start]}-{ordered[at - 1]}", at - start))
            else:
                found += [(str(number), 1) for number in ordered[start:at]]
            start = at
    return found


LONGEST_RANGES = 60
"""Characters for the ranks in a sentence: jobs have thousands; the JSON of a finding holds them all."""


def ranks_text(ranks: Collection[int], width: int | None = LONGEST_RANGES) -> str:
    """Ranks with the noun: "rank 3", "ranks 3,5-7", their numbers in at most `width` characters; "no rank"."""
    if not ranks:
        return "no rank"
    return f"{'rank' if _is_one(ranks) else 'ranks'} {rank_ranges(ranks, width)}"


def wait_text(ranks: Collection[int]) -> str:
    """The beginning of a sentence: "Rank 3 waits", "Ranks 3,5-7 wait"."""
    return f"{ranks_text(ranks).capitalize()} {'waits' if _is_one(ranks) else 'wait'}"


def _is_one(ranks: Collection[int]) -> bool:
    return len(set(ranks)) == 1


def group_name(name: str, description: str) -> str:
    """The description of a group, and its name where that says more: "mesh_tp (group 41)", "group 41"."""
    if not description or description == name:
        return f"group {name or '(unnamed)'}"
    return f"{description} (group {name or 'unnamed'})"


def sentence(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def clipped(text: str, width: int) -> str:
    """The text in at most `width` characters, with ".." where something had to go."""
    return text if len(text) <= width else text[: width - 2] + ".."


# Names of spans, short enough for a cell of the screen and long enough to be recognized.

_WRAPPERS = ("Kernel", "Kernel2", "device_kernel", "kernel", "GemmUniversal")
"""Template names without information: their first argument is the name."""
_ARGUMENT = re.compile(r"<\s*([A-Za-z_]\w*)", re.ASCII)
_CPP = re.compile(r"void .*|[\w:~]+(?:<.*>)?\(.*\)|[\w:~]+<.*>", re.ASCII)
_NCCL = re.compile(r"(nccl\w*?Kernel)_(\w+)", re.ASCII)


@lru_cache(4096)
def short_name(name: str) -> str:
    """`void at::native::reduce_kernel<512, ...>(...)` is "reduce_kernel"; names that are no C++ stay as they are."""
    text = plain(name, 400)
    if match := _NCCL.match(text):
        return match[2]
    if re.match(r".*\.py\(\d+\): ", text):
        file, _, function = text.partition(": ")
        return f"{function} {file.rpartition('/')[2].replace('(', ':').rstrip(')')}"
    if text.startswith("<"):
        return text.strip("<>")
    if not _CPP.fullmatch(text):
        return text.removeprefix("aten::")
    bare = re.split(r"[<(]", text.removeprefix("void ").removeprefix("(anonymous namespace)::"), maxsplit=1)[0]
    last = bare.rpartition("::")[2]
    if last in _WRAPPERS and "<" in text:
        inner = _ARGUMENT.search(text)
        return inner[1] if inner else last
    return last or text
