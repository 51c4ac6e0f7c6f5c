"""Modes that are on but not in all they need, and names that are no setting's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rankscope.analysis.logs.settings.rules import packs, rules
from rankscope.analysis.logs.settings.values import Process, names_of
from rankscope.analysis.model import Culprit, Evidence, Finding
from rankscope.analysis.wording import ranks_text

MOST_EVIDENCE = 8


def find_modes(told: Sequence[Process], paths: dict[int, str], place: Callable[[int], Culprit]) -> list[Finding]:
    """Modes that are on, but not in all they need."""
    found: defaultdict[tuple[str, str], list[tuple[Process, str]]] = defaultdict(list)
    effects: dict[tuple[str, str], str] = {}
    for rule in packs():
        for process in told:
            value = process.values.get(rule.trigger)
            if value is None or not re.fullmatch(rule.value, value.strip(), re.IGNORECASE):
                continue
            own = process.values.get(rule.name)
            if own is None and not (rule.required == "yes" and process.whole):
                continue
            if own is None or not re.fullmatch(rule.wants, own.strip(), re.IGNORECASE):
                found[rule.pack, rule.name].append((process, "unset" if own is None else own))
                effects[rule.pack, rule.name] = rule.effect
    return [
        Finding(
            kind="settings-mismatch", severity="warning",
            title=f"{pack} is on, but {name} is {people[0][1]} on {who([p for p, _ in people])}",
            explanation=effects[pack, name], culprits=culprits([p for p, _ in people], place),
            culprit_ranks=tuple(sorted(p.rank for p, _ in people if p.rank is not None)),
            evidence=tuple(told_by(p, name, paths) for p, _ in people[:MOST_EVIDENCE]),
        )
        for (pack, name), people in found.items()
    ]  # fmt: skip


def find_misspelt(told: Sequence[Process], paths: dict[int, str], place: Callable[[int], Culprit]) -> list[Finding]:
    """Names that are almost those of known settings."""
    names = misspelt(names_of(told))
    out = []
    for name, meant in sorted(names.items()):
        people = [p for p in told if name in p.values]
        out.append(
            Finding(
                kind="settings-mismatch", severity="warning",
                title=f"{name} is no known setting: {meant} may be meant",
                explanation=f"Set on {who(people)}. Unknown variables are ignored in silence.",
                culprit_ranks=tuple(sorted(p.rank for p in people if p.rank is not None)),
                culprits=culprits(people, place), confidence="medium",
                confidence_reasons=("a newer version, or a program of your own, may know the name",),
                evidence=tuple(told_by(p, name, paths) for p in people[:MOST_EVIDENCE]),
                next_steps=(f"Set {meant} instead, if that is what was meant.",),
            )
        )  # fmt: skip
    return out


# Names that are almost those of a known setting: unknown variables are ignored in silence.

PREFIXES = ("NCCL_", "RCCL_", "HCCL_", "HCC_", "LCCL_", "ATB_", "TORCH_", "NVTE_", "CUBLAS_", "NCC_", "CUDA_")
SHORT = 14
"""Names up to this length may differ in one place only: short ones are close to each other by chance."""


def intended(name: str) -> str | None:
    """The known setting that an unknown name was probably meant to be; None without exactly one."""
    known = rules()
    if name in known or not name.startswith(PREFIXES):
        return None
    most = 1 if len(name) <= SHORT else 2
    near = [(distance(name, other, most), other) for other in known if abs(len(other) - len(name)) <= most]
    best = sorted(pair for pair in near if pair[0] <= most)
    if not best or (len(best) > 1 and best[0][0] == best[1][0]):
        return None
    return best[0][1]


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """The intended name by each name that was probably misspelt."""
    return {name: meant for name in names if (meant := intended(name)) is not None}


def distance(one: str, other: str, most: int) -> int:
    """Edits between two names: letters put in, left out, exchanged, or two neighbours swapped (Damerau, restricted).

    More than `most` are not counted to their end.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row, older = row, [i], before
        for j, b in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = last
        if min(row) > most:
            return most + 1
    return row[-1]


# Words for the processes that a finding about settings names, and the places where they told of them.

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
