"""Loader: paths to a Dataset. Its import is cheap: polars is imported while the workers start."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.assemble.held_sources import NoMemoryError, RingRoom, SparseReading
from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import INPUTS, TEXT, UNKNOWN, UNKNOWN_KIND, UNREADABLE
from rankscope.parsers.contents import DETAIL_VARIABLE, RINGS_VARIABLE, SAMPLES_VARIABLE
from rankscope.parsers.files.directory_walk import FoundPath, printable_text, walk_paths
from rankscope.parsers.workers.pool import Pool, Result, WorkerError

if TYPE_CHECKING:
    from rankscope.assemble.sources import SourceFile
    from rankscope.parsers.workers.byte_ranges import FileRanges
    from rankscope.schema import Dataset


LOG = "rankscope"
"""Name of the logger."""
_BLAS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True)
class LoadOptions:
    """Options of the user."""

    rank_from: str | None = None
    """Regular expression over the path; its first group is the rank."""
    world_size: int | None = None
    attempt: int | None = None
    """None for the newest."""
    jobs: int | None = None
    """Most worker processes; None for one for each core."""
    errors: Path | None = None
    """The user's own table of known errors; see features/logs/read/c10d/known_errors.tsv."""
    called: tuple[str, ...] = ()
    """The user's names for the paths; empty for the paths themselves."""
    detail: str = "all"
    """Detail of profilers' traces, one of schema.DETAILS: "collectives" is several times as fast."""
    is_sampled: bool = False
    """Whether the samples of all tensors are read, to compare them with another run; else those of reductions, which
    are all that the rules of one run look at."""
    within: tuple[Path, ...] = ()
    """Directories out of which no link is followed; empty for the paths that are read."""
    follow_links: bool = False
    """Whether links may lead anywhere."""
    unread: tuple[tuple[str, str], ...] = ()
    """Names of inputs of the user that could not be fetched, and why."""
    ranks: frozenset[int] | None = None
    """The ranks to read; None for all."""
    groups: tuple[str, ...] = ()
    """Names or descriptions of the groups whose history is read; empty for all."""
    last: int | None = None
    """Number of the last entries of each dump to read; None for all."""
    wanted: str = ""
    """What the error asks for if there is nothing to read; empty for dumps, logs, stacks and traces."""
    memory: int | None = None
    """Bytes that the entries of dumps may take; None for a share of what the machine lends."""

    @property
    def is_part(self) -> bool:
        """Whether only a part of the job is read."""
        return self.ranks is not None or bool(self.groups) or self.last is not None

    @property
    def rings(self) -> str:
        """The value of RINGS_VARIABLE; empty for whole rings."""
        if not self.groups and self.last is None:
            return ""
        return json.dumps({"last": self.last, "groups": list(self.groups) or None})


@dataclass(frozen=True)
class LoadProgress:
    """Progress of the read."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    rows: int


class InputError(Exception):
    """Nothing can be read; the message is for the user."""


def load(
    paths: Sequence[Path],
    options: LoadOptions = LoadOptions(),
    progress: Callable[[LoadProgress], None] | None = None,
    kept: SparseReading | None = None,
    found: Sequence[FoundPath] | None = None,
) -> Dataset:
    """The Dataset of everything under `paths`. Unreadable files become rows of `files`. Raises InputError without any
    content.

    A sparse read fills `kept`, so that the next one reads only the traces again; of long dumps it takes only the last
    entries, and the next one all. `found` is the result of `walk`, if the caller has it. Dumps that need more memory
    than there is keep their last entries; the Dataset says so.
    """
    with undisturbed():
        pattern_of(options.rank_from)
        there = walk(paths, options) if found is None else found
        room = RingRoom(options.memory) if kept is None else kept.room(options.memory)
        sources = read_sources(there, options, progress, kept, room)
        if not any(source.tells for source in sources):
            sources = with_other_files(sources, there, options)
        if kept is not None and options.detail != "all" and options.last is None:
            early = _early(sources, root_of(paths, options), options, room)
            if early is not None:
                return early
        dataset = assemble_sources(sources, root_of(paths, options), options)
        if options.is_part or room.last is not None:
            dataset = part_of(dataset, options, room.last)
        if dataset.has_sparse_traces:
            from rankscope.assemble.read_parts import announced

            dataset = announced(dataset)
        if options.is_part:
            return dataset
        copied = options.called and tuple(map(Path, options.called)) != tuple(paths)
        if copied or not dataset.missing_ranks:
            return dataset
        from rankscope.assemble.read_parts import with_siblings

        return with_siblings(dataset, paths)


def _early(sources: Sequence[SourceFile], root: str, options: LoadOptions, room: RingRoom) -> Dataset | None:
    """The Dataset of the last entries of all dumps; None if the whole takes no longer."""
    from rankscope.assemble.read_parts import EARLY_ENTRIES, announced, are_long, last_entries

    if not are_long(sources) or (room.last is not None and room.last <= EARLY_ENTRIES):
        return None
    dataset = assemble_sources(list(map(last_entries, sources)), root, options)
    return announced(part_of(dataset, replace(options, last=EARLY_ENTRIES)))


def read_sources(
    found: Sequence[FoundPath],
    options: LoadOptions,
    progress: Callable[[LoadProgress], None] | None,
    kept: SparseReading | None = None,
    room: RingRoom | None = None,
) -> list[SourceFile]:
    """The content of each found file, in the order of their shown paths; dumps are cut until they have `room`.

    Raises InputError without a worker, and without memory.
    """
    known: list[SourceFile] = []
    if kept is not None and options.detail == "all":
        found, known = kept.split_files(found)
        kept = None
    pool = _pool(found, options)
    try:
        _import_numpy()
        import_module("rankscope.assemble.assembly")  # while the workers read
        if room is not None:
            for source in known:
                room.take(source)
        sources = sorted([*known, *_read(pool, found, progress, kept, room)], key=place_of)
    except (WorkerError, NoMemoryError) as error:
        raise InputError(str(error)) from error
    finally:
        pool.close()
    _log_slow(sources)
    return sources


def place_of(source: SourceFile) -> tuple[str, str]:
    """The place of a file in the order of all: by its shown path."""
    return source.shown, source.problem or ""


def assemble_sources(sources: Sequence[SourceFile], root: str, options: LoadOptions) -> Dataset:
    """The Dataset of files in the order of `place_of`. Raises InputError without any content."""
    from rankscope.assemble.assembly import assemble
    from rankscope.assemble.attempts import NoSuchAttemptError
    from rankscope.assemble.sources import empty_reason

    if not any(source.tells for source in sources):
        raise InputError(empty_reason(root, sources, options.wanted))
    errors = None if options.errors is None else str(options.errors.resolve())
    pattern = pattern_of(options.rank_from)
    try:
        return assemble(sources, printable_text(root), pattern, options.world_size, options.attempt, errors=errors)
    except NoSuchAttemptError as error:
        raise InputError(str(error)) from error


def part_of(dataset: Dataset, options: LoadOptions, room: int | None = None) -> Dataset:
    """The part of the dataset that the user wants, and for which there was room. Raises InputError if it is empty."""
    from rankscope.assemble.read_parts import NoSuchPartError, narrowed

    try:
        return narrowed(dataset, options.ranks, options.groups, options.last, room)
    except NoSuchPartError as error:
        raise InputError(str(error)) from error


MOST_OTHER_FILES, MOST_OTHER_BYTES = 64, 64 << 20
"""Most files, and bytes of them, that are read as logs if nothing else is there."""


def with_other_files(sources: list[SourceFile], found: Sequence[FoundPath], options: LoadOptions) -> list[SourceFile]:
    """The sources, with files of no known kind read as if the user had named each: a pasted issue, a note."""
    unknown = {source.shown for source in sources if source.problem == UNKNOWN_KIND}
    some = [replace(one, given=True) for one in found if one.shown in unknown and not one.given]
    if not 0 < len(some) <= MOST_OTHER_FILES or sum(one.size for one in some) > MOST_OTHER_BYTES:
        return sources
    pool = _pool(some, options)
    try:
        again = {source.shown: source for source in _read(pool, some)}
    except WorkerError:
        return sources
    finally:
        pool.close()
    return [own if (own := again.get(source.shown)) is not None and own.tells else source for source in sources]


def _log_slow(sources: Sequence[SourceFile]) -> None:
    """Writes the number of fully unpickled dumps, which take three times as long, and the reasons to the debug log."""
    import logging

    log = logging.getLogger(LOG)
    if not log.isEnabledFor(logging.DEBUG):
        return
    dumps = [source for source in sources if source.dump is not None]
    slow = [(source.shown, source.dump.slow) for source in dumps if source.dump is not None and source.dump.slow]
    log.debug("%d of %d flight recorder dumps were read the slow way", len(slow), len(dumps))
    for shown, reason in slow:
        log.debug("%s was read the slow way: %s", shown, reason)


def root_of(paths: Sequence[Path], options: LoadOptions) -> str:
    """A short name of the input, in the user's words."""
    names = options.called or tuple(map(str, paths))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Turns garbage collection off: the load makes hundreds of thousands of objects, and almost no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _import_numpy() -> None:
    """Imports numpy without the threads of its linear algebra: they are not needed, and use time at their start."""
    if "numpy" in sys.modules or _BLAS in os.environ:
        return
    os.environ[_BLAS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_BLAS]


def pattern_of(text: str | None) -> re.Pattern[str] | None:
    """The compiled option `rank_from`. Raises InputError."""
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise InputError(f"not a regular expression: {text!r} ({error})") from error


def walk(paths: Sequence[Path], options: LoadOptions = LoadOptions()) -> list[FoundPath]:
    """Every file under the paths of the user that may tell of the ranks he wants, and what could not be fetched.

    Raises InputError.
    """
    unread = [FoundPath(name, name, problem=reason, kind=UNREADABLE.name) for name, reason in options.unread]
    if options.ranks is None:
        return [*_walk(paths, options), *unread]
    from rankscope.assemble.read_parts import may_tell

    found = [*_walk(paths, options, may_tell(options.ranks, pattern_of(options.rank_from))), *unread]
    if not found:
        raise InputError(f"{printable_text(root_of(paths, options))}: no file of the ranks that were asked for")
    return found


def _walk(paths: Sequence[Path], options: LoadOptions, wanted: Callable[[str], bool] | None = None) -> list[FoundPath]:
    if not paths:
        raise InputError("no path given")
    try:
        return walk_paths(paths, wanted, within=options.within, follow_links=options.follow_links)
    except OSError as error:
        raise InputError(f"{printable_text(str(error.filename))}: {error.strerror}") from error


def _pool(found: Sequence[FoundPath], options: LoadOptions) -> Pool:
    environment = {**environment_of(options.errors), DETAIL_VARIABLE: options.detail}
    environment[RINGS_VARIABLE] = options.rings
    environment[SAMPLES_VARIABLE] = "all" if options.is_sampled else "sums"
    try:
        return Pool([f for f in found if f.problem is None], options.jobs, environment)
    except WorkerError as error:
        raise InputError(str(error)) from error


def environment_of(errors: Path | None) -> dict[str, str]:
    """The environment of worker processes. Raises InputError."""
    if errors is None:
        return {}
    from rankscope.parsers.user_tables import TableError

    try:
        environment: dict[str, str] = function(TEXT.user_table)(errors)
    except TableError as error:
        raise InputError(str(error)) from error
    return environment


def _read(
    pool: Pool,
    found: Sequence[FoundPath],
    progress: Callable[[LoadProgress], None] | None = None,
    kept: SparseReading | None = None,
    room: RingRoom | None = None,
) -> list[SourceFile]:
    """Every file as a source, in any order. Raises NoMemoryError."""
    from rankscope.assemble.sources import SourceFile

    ranges: FileRanges | None = None
    sources = [SourceFile(f.shown, f.kind, f.size, f.mtime_ns, f.problem) for f in found if f.problem is not None]
    total = sum(f.size for f in found)
    files_done, bytes_done, rows = len(sources), 0, 0
    for result in pool.run():
        whole: Result | None = result
        if result.task.parts > 1:
            ranges = ranges or _file_ranges()
            whole = ranges.add(result)
        if whole is not None and whole.kind is not None:
            sources.append(_source(whole))
            if arrange := INPUTS[whole.kind].arrange:
                function(arrange)(sources[-1])
            if room is not None:
                room.take(sources[-1])
            if kept is not None:
                kept.add(result.task.found, sources[-1])
            rows += result.decoded.rows if result.decoded else 0
        if result.last:
            bytes_done += result.task.found.size // result.task.parts
            files_done += result.task.part == 0
        if progress is not None:
            progress(LoadProgress(files_done, len(found), bytes_done, total, rows))
    return sources


def _file_ranges() -> FileRanges:
    """The ranges of files; its import is only worth it for large ones."""
    from rankscope.parsers.workers.byte_ranges import FileRanges

    return FileRanges()


def _source(result: Result) -> SourceFile:
    from rankscope.assemble.sources import SourceFile

    found = result.task.found
    size = found.size if result.size is None else result.size
    mtime_ns = found.mtime_ns if result.mtime_ns is None else result.mtime_ns
    kind = result.kind or UNKNOWN.name
    return SourceFile(found.shown + result.inner, kind, size, mtime_ns, result.problem, result.decoded)
