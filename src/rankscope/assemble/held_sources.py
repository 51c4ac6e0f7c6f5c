"""Sources that a read holds: in how much memory, and which of them for a second read of the same files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankscope.kinds.input_kinds import TRACE
from rankscope.text.wording import byte_count, plural

if TYPE_CHECKING:
    from rankscope.assemble.sources import SourceFile
    from rankscope.parsers.files.directory_walk import FoundPath
    from rankscope.parsers.flight_recorder.model import Dump

ENTRY_BYTES = 450
"""Memory of an entry of a dump, read, assembled, judged and shown; docs/speed.md has the measurement."""
DUMP_BYTES = 1 << 14
"""Memory of a dump without its entries and the rows of its tables."""
ROW_BYTES = 400
"""Memory of a row of a dump's tables: a call, a shape, a frame or a stack, as objects of Python."""
SMALL_BYTES = 32 << 20
"""Memory of dumps below which the machine is not asked for more: libraries take several times as much."""

MORE_MEMORY = "read some with --ranks, or give more memory (RANKSCOPE_MEMORY, srun --mem)"


class NoMemoryError(Exception):
    """The dumps need more memory than there is; the message is for the user."""


class RingRoom:
    """The memory for the entries of all dumps of a read. If they need more, each dump keeps its last N entries.

    N is the highest power of two with which they fit, so it depends on the dumps and not on the order in which they
    come. What an operation may wait for stays, as in every cut ring.
    """

    def __init__(self, memory: int | None = None, last: int | None = None) -> None:
        """`memory` is in bytes, None for a share of what the machine lends; `last` is the N of an earlier read."""
        self.last = last
        """Number of the last entries that each dump keeps; None while all fit."""
        self._memory = memory
        self._sources: list[SourceFile] = []
        self._bytes = 0

    def emptied(self) -> RingRoom:
        """The same room for a second read of the same files."""
        return RingRoom(self._memory, self.last)

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, source: SourceFile) -> None:
        """Makes room for a file that was read; dumps that it holds may be cut. Raises NoMemoryError without room."""
        if source.dump is None:
            return
        if self.last is not None:
            _keep_last(source, self.last)
        self._sources.append(source)
        self._bytes += needed_bytes(source.dump)
        while self._bytes > self._limit():
            self._cut_all()

    def forget(self, count: int) -> None:
        """Drops all but the first `count` dumps: the others came of a part that is damaged."""
        del self._sources[count:]
        self._count_bytes()

    def _limit(self) -> int:
        if self._memory is None and self._bytes > SMALL_BYTES:
            self._memory = max(SMALL_BYTES, entry_bytes())
        return SMALL_BYTES if self._memory is None else self._memory

    def _cut_all(self) -> None:
        """Cuts all dumps to the next lower power of two. Raises NoMemoryError if that is less than an entry."""
        most = max(source.dump.rows for source in self._sources if source.dump is not None)
        below = min(most, self.last or most) - 1
        if below < 1:
            raise NoMemoryError(
                f"{plural(len(self), 'dump')} need {byte_count(self._bytes)} of memory even with their last entries "
                f"only, and there is {byte_count(self._limit())} for them: {MORE_MEMORY}"
            )
        self.last = 1 << (below.bit_length() - 1)
        for source in self._sources:
            _keep_last(source, self.last)
        self._count_bytes()

    def _count_bytes(self) -> None:
        self._bytes = sum(needed_bytes(source.dump) for source in self._sources if source.dump is not None)


def entry_bytes() -> int:
    """Bytes that the machine lends to entries now. Raises NoMemoryError if the user's limit is no size."""
    from rankscope.assemble.machine_memory import MemorySizeError, entry_room

    try:
        return entry_room()
    except MemorySizeError as error:
        raise NoMemoryError(str(error)) from error


def needed_bytes(dump: Dump) -> int:
    """The memory of a dump with all that follows from it: its rows of tables, their analysis, the screen."""
    rows = len(dump.calls) + len(dump.shapes) + len(dump.frames) + len(dump.stacks)
    return DUMP_BYTES + ROW_BYTES * rows + ENTRY_BYTES * dump.rows


def _keep_last(source: SourceFile, last: int) -> None:
    from rankscope.assemble.read_parts import keep_last

    keep_last(source, last)


class SparseReading:
    """Files that a first, sparse read has read in full, so that a second one reads only the traces again."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, int, int | None], list[SourceFile]] = {}
        self._sparse: set[tuple[str, int, int | None]] = set()
        self._room: RingRoom | None = None

    def room(self, memory: int | None) -> RingRoom:
        """The room of this read; that of the first one for the second, for what is read takes memory already."""
        if self._room is not None:
            again, self._room = self._room.emptied(), None
            return again
        self._room = RingRoom(memory)
        return self._room

    def add(self, found: FoundPath, source: SourceFile) -> None:
        """Adds the content of a file, or of a member of it."""
        stamp = found.path, found.size, found.mtime_ns
        self._read.setdefault(stamp, []).append(source)
        if source.kind == TRACE.name and source.content is not None:
            self._sparse.add(stamp)

    def clear(self) -> None:
        """Lets go of everything: no second read comes."""
        self._read.clear()
        self._room = None

    def split_files(self, found: Sequence[FoundPath]) -> tuple[list[FoundPath], list[SourceFile]]:
        """The files that must be read, and the contents of the others, which are then dropped."""
        stamps = {(f.path, f.size, f.mtime_ns): f for f in found}
        known = [stamp for stamp in stamps if stamp in self._read and stamp not in self._sparse]
        sources = [source.renewed() for stamp in known for source in self._read[stamp]]
        self._read.clear()
        return [f for stamp, f in stamps.items() if stamp not in set(known)], sources
