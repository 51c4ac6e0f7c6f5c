"""Files of one rank, put in place in one step, with the last few kept.

dumps/fr_trace_rank_3               the newest dump
dumps/capture_rank_3.json           who wrote it
dumps/exception_rank_3.log          the exception that ended it, if one did
dumps/stacks_rank_3.txt             the stacks of its threads once it stood still, crashed or was ended by SIGTERM
dumps/history/1_fr_trace_rank_3     an earlier one of the same process
dumps/earlier_1/fr_trace_rank_3     the last one of an earlier process of this rank
dumps/job_2/fr_trace_rank_3         the newest dump of another job that runs at the same time
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from .writers import header

HISTORY = "history"
EARLIER_PREFIX = "earlier_"
PART_SUFFIX = ".part"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def replace_file(path: Path, data: bytes, taken_ns: int | None = None) -> None:
    """Replaces a file; a reader sees either the old or the new one. Raises OSError, and leaves no part.

    Its modification time is `taken_ns` if given: the read of the recorder and the write may take long, and a dump that
    looks newer than it is shows a job without progress.
    """
    part = path.with_name(f".{path.name}{PART_SUFFIX}")
    try:
        part.write_bytes(data)
        if taken_ns is not None:
            with contextlib.suppress(OSError):
                os.utime(part, ns=(taken_ns, taken_ns))
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


class DumpFiles:
    """The files of one rank in a directory."""

    def __init__(self, directory: str | Path, rank: int, keep: int) -> None:
        self.directory = Path(directory)
        self.card = self.directory / f"capture_rank_{rank}.json"
        self.traceback = self.directory / f"exception_rank_{rank}.log"
        self.memory = self.directory / f"memory_rank_{rank}.jsonl"
        self.model = self.directory / f"model_rank_{rank}.jsonl"
        self.stacks = self.directory / f"stacks_rank_{rank}.txt"
        self.rank = rank
        self.keep = keep
        self._turns: dict[Path, int] = {}

    def path(self, prefix: str) -> Path:
        """The path of a recorder's newest dump."""
        return self.directory / f"{prefix}{self.rank}"

    def put(self, path: Path, data: bytes, remember: bool, taken_ns: int | None = None) -> None:
        """Writes the newest dump; with `remember`, the dump before it goes to the history. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if remember and self.keep:
            turn = self._turns.get(path, 0)
            slot = self._slots(path)[turn % self.keep]
            part = slot.with_name(f".{slot.name}{PART_SUFFIX}")
            with contextlib.suppress(OSError):
                slot.parent.mkdir(exist_ok=True)
                part.unlink(missing_ok=True)
                # a link, so that the newest dump always exists
                os.link(path, part)
                part.replace(slot)
                self._turns[path] = turn + 1
        try:
            replace_file(path, data, taken_ns)
        except OSError as error:
            if error.errno not in _NO_ROOM or not self._forget(path):
                raise
            replace_file(path, data, taken_ns)

    def _slots(self, path: Path) -> list[Path]:
        return [self.directory / HISTORY / f"{i + 1}_{path.name}" for i in range(self.keep)]

    def _forget(self, path: Path) -> bool:
        """Makes room on a full disk; returns whether a file could be removed."""
        found = [slot for slot in self._slots(path) if slot.exists()]
        for slot in found:
            slot.unlink(missing_ok=True)
        return bool(found)

    def is_lost(self, mine: tuple[object, ...]) -> bool:
        """Whether another process than `mine` (host, pid, start) has written its sidecar here."""
        return bool(writer := _writer(self.card)) and writer != mine

    def set_aside(self, prefixes: list[str], mine: tuple[object, ...], stand_in: bool = False) -> None:
        """Moves the files of an earlier process of this rank, unless they are of the process `mine` (host, pid, start).

        Dumps have the names in its sidecar, or begin with one of the prefixes. Those of a `stand_in` are removed.
        """
        if not self.card.exists() or _writer(self.card) == mine:
            return
        usual = [f"{prefix}{self.rank}" for prefix in prefixes]
        if stand_in:
            self._move(usual, self.directory, None)
            return
        left = {*usual, *_dumps(self.card, self.rank)}
        for number in range(self.keep, 0, -1):
            source = self.directory if number == 1 else self.directory / f"{EARLIER_PREFIX}{number - 1}"
            self._move(usual, source, self.directory / f"{EARLIER_PREFIX}{number}")
        for name in left:
            for slot in self._slots(self.directory / name):
                slot.unlink(missing_ok=True)
        if not self.keep:
            self._move(usual, self.directory, None)

    def _move(self, usual: list[str], source: Path, target: Path | None) -> None:
        places = [source] if target is None else [source, target]
        dumps = {name for place in places for name in _dumps(place / self.card.name, self.rank)}
        others = (self.card, self.traceback, self.stacks, self.memory, self.model)
        for name in [*sorted(dumps.union(usual)), *(path.name for path in others)]:
            if target is None:
                (source / name).unlink(missing_ok=True)
            elif (source / name).exists():
                target.mkdir(exist_ok=True)
                (source / name).replace(target / name)
            else:
                (target / name).unlink(missing_ok=True)


def _writer(card: Path) -> tuple[object, ...]:
    """(host, pid, start) of the writer of a sidecar."""
    head = header(card)
    return tuple(head[key] for key in ("host", "pid", "started_ns") if key in head)


def _dumps(card: Path, rank: int) -> list[str]:
    """The names of a rank's dumps beside its sidecar."""
    named = header(card).get("dumps")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    return [name for name in names if name == Path(name).name and name.endswith(f"_rank_{rank}")]
