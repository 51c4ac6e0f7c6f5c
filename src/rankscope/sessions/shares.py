"""Shares of one read among tasks: the number of this task, and the files that are its own."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.sessions.manifest import MOST_PARTS
from rankscope.sessions.parquet_tables import SessionError

_LAUNCHERS = (
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS", None),
    ("Slurm array", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"),
    ("torchrun", "RANK", "WORLD_SIZE", None),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", None),
    ("MPI", "PMI_RANK", "PMI_SIZE", None),
    ("Kubernetes", "JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", None),
)
"""Launchers with their variables for the number of a task from 0, the number of tasks, and the lowest number.

Kubernetes tells an indexed Job only its index: a manifest sets JOB_COMPLETIONS, or `--shard /N` tells the number.
"""


@dataclass(frozen=True)
class Share:
    """One of `count` shares of the files; `index` counts from 0."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"part {self.index + 1} of {self.count}"

    @property
    def file_name(self) -> str:
        """The name of the file that holds what was read of it."""
        return f"part-{self.index + 1:05}-of-{self.count:05}.zst"

    def place(self, found: FoundPath) -> int:
        """The index of the share of a file. Its path alone decides, so that tasks agree while files still come."""
        return zlib.crc32(found.shown.encode()) % self.count

    def owns(self, found: FoundPath) -> bool:
        """Whether a file is in this share."""
        return self.place(found) == self.index


def share_of(text: str, environment: Mapping[str, str]) -> Share:
    """The share that `text` names: "3/8" counts from 1, "/8" and "" ask the launcher. Raises SessionError."""
    match = re.fullmatch(r"(?:(\d{1,6})?/(\d{1,6}))?", text, re.ASCII)
    if match is None:
        raise SessionError(f"{text!r} is no share: 3/8 is the third of eight")
    number, count = match.groups()
    if number is not None:
        return _checked(int(number) - 1, int(count), "--shard")
    shares = list(_told_shares(count, environment))
    if shares:
        # an array of single tasks runs each as the only one of its step
        return _checked(*next((share for share in shares if environment.get(share[3]) != "1"), shares[0])[:3])
    for launcher, index, *_ in _LAUNCHERS:
        if environment.get(index, "").isdecimal():
            raise SessionError(f"{launcher} tells the number of this task, not how many there are: --shard /8 says it")
    names = ", ".join(dict.fromkeys(name for name, *_ in _LAUNCHERS))
    raise SessionError(f"no launcher tells the share of this task ({names}): name it, as --shard 3/8")


def _told_shares(count: str | None, environment: Mapping[str, str]) -> Iterator[tuple[int, int, str, str]]:
    """Index, number of tasks, launcher and its variable for that number, of each launcher that tells both."""
    for launcher, index, tasks, lowest in _LAUNCHERS:
        texts = [environment.get(index), count or environment.get(tasks), environment.get(lowest or "", "0")]
        if all(text is not None and text.isdecimal() for text in texts):
            index_here, many, first = (int(text) for text in texts if text is not None)
            yield index_here - first, many, launcher, tasks


def _checked(index: int, count: int, source: str) -> Share:
    if not 0 <= index < count <= MOST_PARTS:
        raise SessionError(f"{source} tells part {index + 1} of {count}, which is no share; name it, as --shard 3/8")
    return Share(index, count)


def own_files(found: Iterable[FoundPath], share: Share) -> list[FoundPath]:
    """The files of a share."""
    return [path for path in found if share.owns(path)]
