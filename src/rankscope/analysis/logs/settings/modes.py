"""Modes that are on but not in all they need, and names that are no setting's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

from rankscope.analysis.logs.settings.people import culprits, told_by, who
from rankscope.analysis.logs.settings.rules import packs
from rankscope.analysis.logs.settings.spelling import misspelt
from rankscope.analysis.logs.settings.values import Process, names_of
from rankscope.analysis.model import Culprit, Finding

SHOWN = 8


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
            evidence=tuple(told_by(p, name, paths) for p, _ in people[:SHOWN]),
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
                evidence=tuple(told_by(p, name, paths) for p in people[:SHOWN]),
                next_steps=(f"Set {meant} instead, if that is what was meant.",),
            )
        )  # fmt: skip
    return out
