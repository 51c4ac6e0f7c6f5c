"""Ranks whose logs share no operation, and that did other things at the same opCounts: a hint, and no more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rankscope.analysis.logs.lines import Line
from rankscope.analysis.model import Finding, GroupRef
from rankscope.schema import Dataset

SHOWN = 4


def find_counted(lines: Sequence[Line], dataset: Dataset) -> list[Finding]:
    """A finding for each group with such ranks; nobody is accused."""
    by_group: defaultdict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line.kind == "log-counts" and line.group is not None:
            by_group[line.group].append(line)
    return [_finding(own, dataset) for own in by_group.values()]


def _finding(own: list[Line], dataset: Dataset) -> Finding:
    first = own[0]
    group = dataset.group_list[first.group or 0]
    ranks = {line.rank for line in own} | {line.values.get("other_rank") for line in own}
    return Finding(
        kind="collective-mismatch",
        severity="warning",
        title=f"{first.text} ({first.place})",
        explanation=(
            "The lines of these ranks have no operation in common by which they could be laid side by side, and at "
            "every opCount that both have they did something else. They may have gone different ways in the program."
        ),
        candidates=tuple(sorted(rank for rank in ranks if isinstance(rank, int))),
        confidence="low",
        confidence_reasons=("opCount is no sequence number: these need not be the same place in the program",),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=tuple(line.evidence() for line in own[:SHOWN]),
        next_steps=("Keep the logs from the start of each process: then k-th lines are k-th collectives.",),
    )
