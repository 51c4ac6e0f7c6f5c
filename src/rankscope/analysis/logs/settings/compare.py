"""`settings-mismatch` and `version-mismatch`: settings of every rank compared by meaning."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from rankscope.analysis.logs.settings.modes import find_misspelt, find_modes
from rankscope.analysis.logs.settings.people import culprits, told_by, who
from rankscope.analysis.logs.settings.splits import Split, find_splits
from rankscope.analysis.logs.settings.values import processes
from rankscope.analysis.model import Culprit, Evidence, Finding
from rankscope.schema import Dataset

SHOWN = 8
NAMES = 3


def find_settings(dataset: Dataset, place: Callable[[int], Culprit]) -> list[Finding]:
    """Findings about settings and versions, what can hang a job first."""
    told = processes(dataset)
    if not told:
        return []
    paths = dict(dataset.files.select("file", "path").iter_rows())
    by_people: defaultdict[tuple[object, ...], list[Split]] = defaultdict(list)
    for split in find_splits(told):
        by_people[split.is_version, split.common is None, split.lost, tuple(id(p) for p in split.odd)].append(split)
    found = [_finding(splits, paths, place) for splits in by_people.values()]
    return [*found, *find_modes(told, paths, place), *find_misspelt(told, paths, place)]


def _finding(splits: list[Split], paths: dict[int, str], place: Callable[[int], Culprit]) -> Finding:
    first = splits[0]
    people = who(first.odd)
    if first.common is None:
        names = ", ".join(s.name for s in splits[:NAMES])
        title = f"{people} do not agree on {names}: {' or '.join(_values(first))}"
    else:
        parts = [f"{s.name} {_own(s)}, most {s.common}" for s in splits[:NAMES]]
        title = f"{people}: {'; '.join(parts)}"
    if len(splits) > NAMES:
        title += f"; and {len(splits) - NAMES} more"
    accused = first.common is not None and not first.lost
    absent = any(s.unprinted for s in splits)
    ranks = tuple(sorted(p.rank for p in first.odd if p.rank is not None))
    return Finding(
        kind="version-mismatch" if first.is_version else "settings-mismatch",
        severity="info" if first.lost else "warning",
        title=title,
        explanation=" ".join(dict.fromkeys(f"{s.name}: {s.rule.effect}" for s in splits[:SHOWN])),
        culprit_ranks=ranks if accused else (),
        culprits=culprits(first.odd, place) if accused else (),
        candidates=() if accused else ranks,
        confidence="low" if not accused else "medium" if absent else "high",
        confidence_reasons=_reasons(first, absent),
        evidence=tuple(e for s in splits for e in _evidence(s, paths))[: 2 * SHOWN],
        next_steps=("Start all ranks with one environment and one image, and compare again.",),
    )


def _reasons(first: Split, absent: bool) -> tuple[str, ...]:
    if first.lost:
        return ("several processes wrote to that log: a line may have been lost, and the setting be the same",)
    if absent:
        return ("not printed is taken for unset: these processes printed other variables that they read",)
    return ("there is no majority",) if first.common is None else ()


def _own(split: Split) -> str:
    shown = sorted({p.values[split.name] for p in split.odd if split.name in p.values})
    return " or ".join(shown[:NAMES]) if shown else "is not printed" if split.lost else "is not set"


def _values(split: Split) -> list[str]:
    return sorted({p.values.get(split.name, "unset") for p in split.odd})[: NAMES + 1]


def _evidence(split: Split, paths: dict[int, str]) -> list[Evidence]:
    return [told_by(process, split.name, paths) for process in split.odd[:NAMES]]
