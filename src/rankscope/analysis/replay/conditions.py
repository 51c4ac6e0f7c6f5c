"""How a replay is run beside its schedule: settings of the environment, ranks that sleep, and a time-out.

They act on real runs only. In the simulator an operation ends once all its ranks have come, however late.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rankscope.analysis.replay.edits import parse_place, place_text
from rankscope.analysis.replay.schedule import Key, Schedule
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text

PREFIXES = ("NCCL_", "TORCH_", "GLOO_", "CUDA_", "HCCL_", "RCCL_", "HSA_", "UCX_", "FI_", "OMP_", "PYTORCH_")
"""Names of settings that libraries of collectives, or what they rest on, read."""
LONGEST_S = 60.0
"""The longest time-out, and the longest that one rank sleeps: a run has an end."""
_NAME = re.compile(r"[A-Z][A-Z0-9_]{1,79}", re.ASCII)
_VALUE = re.compile(r"[ -~]{0,200}", re.ASCII)
_SECONDS = re.compile(r"\d{1,4}(?:\.\d{1,3})?", re.ASCII)


@dataclass(frozen=True)
class Delay:
    """A rank that sleeps before an operation, or before its first one."""

    rank: int
    key: Key
    """The operation; empty for the first of the rank."""
    seconds: float


@dataclass(frozen=True)
class ReplayConditions:
    """Settings, delays and time-out of a replay."""

    settings: tuple[tuple[str, str], ...] = ()
    delays: tuple[Delay, ...] = ()
    timeout: float | None = None
    """Seconds that each operation may take."""

    def __bool__(self) -> bool:
        """Whether anything differs from a plain run."""
        return bool(self.settings or self.delays or self.timeout)

    def sentences(self, dataset: Dataset) -> Iterator[str]:
        """A phrase for each of them: `with NCCL_ALGO=Ring`."""
        yield from (f"with {name}={plain(value, 60)}" for name, value in self.settings)
        for delay in self.delays:
            where = place_text(dataset, delay.key) if delay.key else "its first operation"
            yield f"rank {delay.rank} sleeps {delay.seconds:g} s before {where}"
        if self.timeout:
            yield f"an operation fails after {self.timeout:g} s"

    def remarks(self) -> Iterator[str]:
        """Sentences on effects that these conditions cannot have."""
        if any(name.startswith(("NCCL_", "RCCL_")) for name, _ in self.settings):
            yield "over gloo NCCL_* and RCCL_* have no effect: run the script with BACKEND=nccl"
        if self.delays:
            yield "a delay alone hangs nothing in the simulator: an operation ends when its last rank comes"
        if self.settings or self.timeout:
            yield "settings and the time-out change nothing in the simulator"


PLAIN = ReplayConditions()


def parse_conditions(
    dataset: Dataset, settings: Iterable[str], delays: Iterable[str], timeout: float | None
) -> ReplayConditions:
    """The conditions as typed: NAME=VALUE, RANK:SECONDS or RANK:GROUP#SEQ:SECONDS; ValueError tells what is wrong."""
    found = tuple(parse_delay(dataset, text) for text in delays)
    for rank in {delay.rank for delay in found}:
        if sum(delay.seconds for delay in found if delay.rank == rank) > LONGEST_S:
            raise ValueError(f"--delay: rank {rank} sleeps longer than {LONGEST_S:g} s")
    return ReplayConditions(tuple(map(_setting, settings)), found, timeout)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise ValueError(f"--env {plain(text, 60)}: not NAME=VALUE with capital letters, digits and _ in the name")
    if not name.startswith(PREFIXES):
        raise ValueError(f"--env {name}: only names that begin with {', '.join(PREFIXES)}")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"--env {name}: the value is not up to 200 printable ASCII characters")
    return name, value


def parse_delay(dataset: Dataset, text: str) -> Delay:
    """The delay in `text`; ValueError tells the forms, or the groups of the rank."""
    place, _, seconds = text.strip().rpartition(":")
    if not _SECONDS.fullmatch(seconds) or not place:
        raise ValueError(f"--delay {plain(text, 60)}: not RANK:SECONDS or RANK:GROUP#SEQ:SECONDS")
    if place.isascii() and place.isdecimal() and len(place) < 10:
        return Delay(int(place), (), float(seconds))
    return Delay(*parse_place(dataset, place), float(seconds))


def check_delays(conditions: ReplayConditions, schedule: Schedule) -> None:
    """ValueError if a rank that is to sleep, or the operation before which it does, is not in the schedule."""
    for delay in conditions.delays:
        own = schedule.steps.get(delay.rank)
        if own is None:
            known = ranks_text(sorted(schedule.steps))
            raise ValueError(f"--delay: rank {delay.rank} is not in the replay, which has {known}")
        if delay.key and all(step.key != delay.key for step in own):
            raise ValueError(f"--delay: the replay of rank {delay.rank} does not hold that operation")
