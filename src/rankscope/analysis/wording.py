"""Words for people: ranks folded to ranges, operations with their place, durations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def fold(ranks: Iterable[int]) -> str:
    """Ranks as ranges: "0-3,7"."""
    ordered = sorted(set(ranks))
    parts: list[list[int]] = []
    for rank in ordered:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in parts)


def ranks_text(ranks: Sequence[int]) -> str:
    """ "rank 3" or "ranks 3,5-7"; "no rank" without any."""
    if not ranks:
        return "no rank"
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {fold(ranks)}"


def wait_text(ranks: Sequence[int]) -> str:
    """ "Rank 3 waits" or "Ranks 3,5-7 wait", to begin a sentence with."""
    return f"{ranks_text(ranks).capitalize()} {'waits' if len(ranks) == 1 else 'wait'}"


def plural(count: int, noun: str) -> str:
    """ "1 group", "2 groups", "3 processes"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def duration(ns: int) -> str:
    """A length of time as a person says it: "350 ms", "12 s", "10 min", "3.5 h", "2 d"."""
    seconds = ns / 1e9
    for limit, unit, size in ((1, "ms", 1e-3), (120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"


def short_duration(ns: int) -> str:
    """The same of what may be short: "162 us" below a millisecond."""
    return duration(ns) if abs(ns) >= 1_000_000 else f"{ns / 1e3:.3g} us"
