"""Paths to a Dataset. Importing this is cheap: polars is imported while the workers already start."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.kinds.input_kinds import NOT_A_FILE, UNKNOWN
from rankscope.parsers.files.directory_walk import FoundPath, printable_text, walk_paths
from rankscope.parsers.torch_profiler import DETAIL_VARIABLE
from rankscope.parsers.workers.byte_ranges import FileRanges
from rankscope.parsers.workers.pool import Pool, Result, WorkerError

if TYPE_CHECKING:
    from rankscope.assemble.sources import SourceFile
    from rankscope.schema import Dataset


LOG = "rankscope"
"""Name of the logger."""
_BLAS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True)
class LoadOptions:
    """What a user can settle by hand."""

    rank_from: str | None = None
    """Regular expression over the path; its first group is the rank."""
    world_size: int | None = None
    attempt: int | None = None
    """None: the newest."""
    jobs: int | None = None
    """Worker processes at most; None: one for each core."""
    errors: Path | None = None
    """A table of known errors of the user's own; see parsers/logs/c10d/known_errors.tsv."""
    called: tuple[str, ...] = ()
    """What the user calls the paths; empty: they are what was given."""
    detail: str = "all"
    """How much of profilers' traces is read, one of schema.DETAILS: "collectives" is several times as fast."""


@dataclass(frozen=True)
class LoadProgress:
    """How far reading got."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    rows: int


class SparseReading:
    """What a first, sparse reading has read whole, so that a second one reads only the traces again."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, int, int | None], list[SourceFile]] = {}
        self._sparse: set[tuple[str, int, int | None]] = set()

    def add(self, found: FoundPath, source: SourceFile) -> None:
        """Takes what a file, or a member of it, told."""
        stamp = found.path, found.size, found.mtime_ns
        self._read.setdefault(stamp, []).append(source)
        if source.trace is not None:
            self._sparse.add(stamp)

    def take(self, found: Sequence[FoundPath]) -> tuple[list[FoundPath], list[SourceFile]]:
        """The files that have to be read, and what the others told; they are held no longer."""
        stamps = {(f.path, f.size, f.mtime_ns): f for f in found}
        known = [stamp for stamp in stamps if stamp in self._read and stamp not in self._sparse]
        sources = [source.renewed() for stamp in known for source in self._read[stamp]]
        self._read.clear()
        return [f for stamp, f in stamps.items() if stamp not in set(known)], sources


class InputError(Exception):
    """Nothing can be read; the message is for a person."""


def load(
    paths: Sequence[Path],
    options: LoadOptions = LoadOptions(),
    progress: Callable[[LoadProgress], None] | None = None,
    kept: SparseReading | None = None,
) -> Dataset:
    """Everything under `paths`. What cannot be read becomes a row of `files`. Raises InputError if nothing is told.

    `kept` is filled by a sparse reading, and spares the next one all but the traces.
    """
    with _undisturbed():
        return _load(paths, options, progress, kept)


def _load(
    paths: Sequence[Path],
    options: LoadOptions,
    progress: Callable[[LoadProgress], None] | None,
    kept: SparseReading | None,
) -> Dataset:
    pattern = pattern_of(options.rank_from)
    found = _walk(paths)
    known: list[SourceFile] = []
    if kept is not None and options.detail == "all":
        found, known = kept.take(found)
        kept = None
    pool = _pool(found, options)
    try:
        _import_numpy()
        from rankscope.assemble.assembly import assemble
        from rankscope.assemble.attempts import NoSuchAttemptError

        sources = sorted([*known, *_read(pool, found, progress, kept)], key=lambda s: (s.shown, s.problem or ""))
    except WorkerError as error:
        raise InputError(str(error)) from error
    finally:
        pool.close()
    _log_slow(sources)
    root = root_of(paths, options)
    if not any(source.tells for source in sources):
        raise InputError(_nothing(root, sources))
    try:
        errors = None if options.errors is None else str(options.errors.resolve())
        return assemble(sources, printable_text(root), pattern, options.world_size, options.attempt, errors=errors)
    except NoSuchAttemptError as error:
        raise InputError(str(error)) from error


def _log_slow(sources: Sequence[SourceFile]) -> None:
    """Says in the debug log how many dumps were unpickled whole, which takes three times as long, and why."""
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
    """What is read, in a few words, as the user calls it."""
    names = options.called or tuple(map(str, paths))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Nobody looks for garbage meanwhile: loading makes hundreds of thousands of objects, and next to none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _import_numpy() -> None:
    """Without the threads of its linear algebra, which nothing here needs: they spin for a while when they start."""
    if "numpy" in sys.modules or _BLAS in os.environ:
        return
    os.environ[_BLAS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_BLAS]


def pattern_of(text: str | None) -> re.Pattern[str] | None:
    """The option `rank_from` as it is used. Raises InputError."""
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise InputError(f"not a regular expression: {text!r} ({error})") from error


def _walk(paths: Sequence[Path]) -> list[FoundPath]:
    if not paths:
        raise InputError("no path given")
    try:
        return walk_paths(paths)
    except OSError as error:
        raise InputError(f"{printable_text(str(error.filename))}: {error.strerror}") from error


def _pool(found: Sequence[FoundPath], options: LoadOptions) -> Pool:
    environment = {**environment_of(options.errors), DETAIL_VARIABLE: options.detail}
    try:
        return Pool([f for f in found if f.problem is None], options.jobs, environment)
    except WorkerError as error:
        raise InputError(str(error)) from error


def environment_of(errors: Path | None) -> dict[str, str]:
    """What the processes that read have to know besides the files. Raises InputError."""
    if errors is None:
        return {}
    from rankscope.parsers.logs.c10d.error_table import USER_TABLE, TableError, read_table

    try:
        read_table(errors)
    except TableError as error:
        raise InputError(str(error)) from error
    return {USER_TABLE: str(errors.resolve())}


def _read(
    pool: Pool, found: Sequence[FoundPath], progress: Callable[[LoadProgress], None] | None, kept: SparseReading | None
) -> list[SourceFile]:
    """Every file as a source, in any order."""
    from rankscope.assemble.sources import SourceFile

    sources = [
        SourceFile(f.shown, NOT_A_FILE.name, f.size, f.mtime_ns, f.problem) for f in found if f.problem is not None
    ]
    total = sum(f.size for f in found)
    files_done, bytes_done, rows = len(sources), 0, 0
    ranges = FileRanges()
    for result in pool.run():
        whole = ranges.take(result)
        if whole is not None and whole.kind is not None:
            sources.append(_source(whole))
            _draw(sources[-1])
            if kept is not None:
                kept.add(result.task.found, sources[-1])
            rows += result.decoded.rows if result.decoded else 0
        if result.last:
            bytes_done += result.task.found.size // result.task.parts
            files_done += result.task.part == 0
        if progress is not None:
            progress(LoadProgress(files_done, len(found), bytes_done, total, rows))
    return sources


def _draw(source: SourceFile) -> None:
    """What of a trace hangs on no other file is worked out while others are still being read."""
    if source.trace is not None:
        from rankscope.assemble.traces.trace_dataset import arrange_trace

        arrange_trace(source)


def _source(result: Result) -> SourceFile:
    from rankscope.assemble.sources import SourceFile

    found = result.task.found
    size = found.size if result.size is None else result.size
    mtime_ns = found.mtime_ns if result.mtime_ns is None else result.mtime_ns
    kind = result.kind or UNKNOWN.name
    return SourceFile(found.shown + result.inner, kind, size, mtime_ns, result.problem, result.decoded)


def _nothing(root: str, sources: Sequence[SourceFile]) -> str:
    """Why there is nothing to show, with the first reasons."""
    if not sources:
        return f"{printable_text(root)}: no files"
    reasons = [f"{s.shown}: {s.problem or 'it tells nothing of ranks or errors'}" for s in sources][:5]
    more = f" and {len(sources) - len(reasons)} more" if len(sources) > len(reasons) else ""
    looked = f"{len(sources)} files ({'; '.join(reasons)}{more})"
    return f"{printable_text(root)}: no flight recorder or py-spy dump, no log and no trace among {looked}"
