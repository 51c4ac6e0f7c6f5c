"""Ranks of processes: what one line tells of a process holds for its other lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rankscope.analysis.logs.lines import Line


def with_ranks(lines: Sequence[Line]) -> list[Line]:
    """The lines with the rank of their process, wherever another line tells both."""
    ranks = _ranks_by_process(lines)
    if not ranks:
        return list(lines)
    return [replace(line, rank=_rank_of(line, ranks)) if line.rank is None else line for line in lines]


def _key(line: Line) -> tuple[str, int | None]:
    return line.host or "", line.pid


def _rank_of(line: Line, ranks: Mapping[tuple[str, int | None], int]) -> int | None:
    return ranks.get(_key(line), None if line.pid is None else ranks.get(("", line.pid)))


def _ranks_by_process(lines: Iterable[Line]) -> dict[tuple[str, int | None], int]:
    """The rank of a process, wherever a line told both; without the host where the process number is the only one."""
    found: defaultdict[tuple[str, int | None], set[int]] = defaultdict(set)
    for line in lines:
        if line.rank is not None and line.pid is not None:
            found[_key(line)].add(line.rank)
            found["", line.pid].add(line.rank)
    return {key: ranks.pop() for key, ranks in found.items() if len(ranks) == 1}
