"""Who printed a fingerprint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rankscope.assemble.logs.log_processes import Scene
from rankscope.assemble.logs.numbers import rank as sound
from rankscope.assemble.logs.prints.rows import Told, events_of
from rankscope.parsers.logs.event import Event

_LOCAL = re.compile(r"^\[default(\d{1,7})\]:")
"""torchrun's prefix has the rank on its host."""


def speakers(scene: Scene, *kinds: str) -> list[Told]:
    """Events of these kinds of which the process is known that printed them."""
    found = list(events_of(scene, *kinds))
    local = _labels(scene)
    told = ((number, event, _global(scene, number, event, local)) for number, event in found)
    return [Told(number, rank, event) for number, event, rank in told if rank is not None]


def once(prints: Iterable[Told]) -> list[Told]:
    """Each rank's lines of the log that has the most of them: another may repeat them."""
    prints = list(prints)
    counts: dict[int, dict[int, int]] = {}
    for told in prints:
        own = counts.setdefault(told.rank, {})
        own[told.log] = own.get(told.log, 0) + 1
    best = {rank: max(own, key=lambda log: (own[log], -log)) for rank, own in counts.items()}
    return [told for told in prints if best[told.rank] == told.log]


def by_labels(scene: Scene) -> bool:
    """Whether ranks are only known by torchrun's prefixes, as those of one host."""
    return bool(_labels(scene))


def _global(scene: Scene, number: int, event: Event, local: Mapping[str, int]) -> int | None:
    own = event.rank if event.rank is not None else scene.logs[number].source.rank
    rank = sound(own if own is not None else local.get(str(event.values.get("label"))))
    return rank if rank is not None and rank < scene.world else None


def _labels(scene: Scene) -> dict[str, int]:
    """Ranks by prefix, in a log of one host and of torch 2.1 or older: some group has a member for each prefix."""
    prints = list(events_of(scene, "fingerprint"))
    if len({number for number, _ in prints}) != 1 or any(event.rank is not None for _, event in prints):
        return {}
    labels = {str(event.values.get("label")) for _, event in prints}
    found = {label: int(local[1]) for label in labels if (local := _LOCAL.match(label)) is not None}
    highest = max((event.values.get("rank_in_group") or 0 for _, event in prints), default=-1)
    fits = len(found) == len(labels) == highest + 1
    return found if fits and sorted(found.values()) == list(range(len(found))) else {}
