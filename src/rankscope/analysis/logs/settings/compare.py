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
        by_people[split.is_version, split.common is None, tuple(id(p) for p in split.odd)].append(split)
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
    accused = first.common is not None
    absent = any(s.unprinted for s in splits)
    ranks = tuple(sorted(p.rank for p in first.odd if p.rank is not None))
    return Finding(
        kind="version-mismatch" if first.is_version else "settings-mismatch",
        severity="warning",
        title=title,
        explanation=" ".join(dict.fromkeys(f"{s.name}: {s.rule.effect}" for s in splits[:SHOWN])),
        culprit_ranks=ranks if accused else (),
        culprits=culprits(first.odd, place) if accused else (),
        candidates=() if accused else ranks,
        confidence="medium" if absent else "high" if accused else "low",
        confidence_reasons=_reasons(absent, accused),
        evidence=tuple(e for s in splits for e in _evidence(s, paths))[: 2 * SHOWN],
        next_steps=("Start all ranks with one environment and one image, and compare again.",),
    )


def _reasons(absent: bool, accused: bool) -> tuple[str, ...]:
    reasons = []
    if absent:
        reasons.append("not printed is taken for unset: these processes printed other variables that they read")
    if not accused:
        reasons.append("there is no majority")
    return tuple(reasons)


def _own(split: Split) -> str:
    shown = sorted({p.values[split.name] for p in split.odd if split.name in p.values})
    return " or ".join(shown[:NAMES]) if shown else "is not set"


def _values(split: Split) -> list[str]:
    return sorted({p.values.get(split.name, "unset") for p in split.odd})[: NAMES + 1]


def _evidence(split: Split, paths: dict[int, str]) -> list[Evidence]:
    return [told_by(process, split.name, paths) for process in split.odd[:NAMES]]
