"""Words for the processes that a finding about settings names, and the places where they told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.analysis.logs.settings.values import Process
from rankscope.analysis.model import Culprit, Evidence
from rankscope.analysis.wording import ranks_text

HOSTS = 3


def told_by(process: Process, name: str, paths: dict[int, str]) -> Evidence:
    """Where a process told of a setting, or that it did not."""
    if name not in process.values:
        return Evidence(f"{name} is {'unset' if process.whole else 'not printed'}", rank=process.rank)
    file, line = process.places.get(name, (-1, 0))
    return Evidence(f"{name}={process.values[name]}", paths.get(file), process.rank, line=line or None)


def who(people: Sequence[Process]) -> str:
    """Ranks, and how many processes without one on which hosts."""
    ranks = sorted(p.rank for p in people if p.rank is not None)
    rest = [p for p in people if p.rank is None]
    hosts = sorted({p.host for p in rest if p.host})
    more = ("1 process" if len(rest) == 1 else f"{len(rest)} processes") if rest else ""
    more += f" on {', '.join(hosts[:HOSTS])}" if hosts else ""
    return " and ".join(part for part in (ranks_text(ranks) if ranks else "", more) if part)


def culprits(people: Sequence[Process], place: Callable[[int], Culprit]) -> tuple[Culprit, ...]:
    """All of them, ranks first."""
    known = sorted(p.rank for p in people if p.rank is not None)
    return (*map(place, known), *(Culprit(None, p.host or None, p.pid) for p in people if p.rank is None))
