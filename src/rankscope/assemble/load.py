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

from rankscope.kinds.input_kinds import NOT_A_FILE, UNKNOWN, UNKNOWN_KIND
from rankscope.parsers.contents import RINGS_VARIABLE, SAMPLES_VARIABLE
from rankscope.parsers.files.directory_walk import FoundPath, printable_text, walk_paths
from rankscope.parsers.torch_profiler import DETAIL_VARIABLE
from rankscope.parsers.workers.byte_ranges import FileRanges
from rankscope.parsers.workers.pool import Pool, Result, WorkerError
from rankscope.text.wording import plural

if TYPE_CHECKING:
    from rankscope.assemble.sources import SourceFile
    from rankscope.schema import Dataset


LOG = "rankscope"
"""Name of the logger."""
_WANTED = (
    "rankscope reads flight recorder dumps (PyTorch writes them to TORCH_FR_DUMP_TEMP_FILE), logs, py-spy dumps and "
    "profiler traces"
)
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
    """The user's own table of known errors; see parsers/logs/c10d/known_errors.tsv."""
    called: tuple[str, ...] = ()
    """The user's names for the paths; empty for the paths themselves."""
    detail: str = "all"
    """Detail of profilers' traces, one of schema.DETAILS: "collectives" is several times as fast."""
    is_sampled: bool = False
    """Whether the samples of all tensors are read, to compare them with another run; else those of reductions, which
    are all that the rules of one run look at."""
    within: tuple[Path, ...] = ()
    """Directories out of which no link is followed; empty if links may lead anywhere."""
    ranks: frozenset[int] | None = None
    """The ranks to read; None for all."""
    groups: tuple[str, ...] = ()
    """Names or descriptions of the groups whose history is read; empty for all."""
    last: int | None = None
    """Number of the last entries of each dump to read; None for all."""

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


class SparseReading:
    """Files that a first, sparse read has read in full, so that a second one reads only the traces again."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, int, int | None], list[SourceFile]] = {}
        self._sparse: set[tuple[str, int, int | None]] = set()

    def add(self, found: FoundPath, source: SourceFile) -> None:
        """Adds the content of a file, or of a member of it."""
        stamp = found.path, found.size, found.mtime_ns
        self._read.setdefault(stamp, []).append(source)
        if source.trace is not None:
            self._sparse.add(stamp)

    def clear(self) -> None:
        """Lets go of everything: no second read comes."""
        self._read.clear()

    def split_files(self, found: Sequence[FoundPath]) -> tuple[list[FoundPath], list[SourceFile]]:
        """The files that must be read, and the contents of the others, which are then dropped."""
        stamps = {(f.path, f.size, f.mtime_ns): f for f in found}
        known = [stamp for stamp in stamps if stamp in self._read and stamp not in self._sparse]
        sources = [source.renewed() for stamp in known for source in self._read[stamp]]
        self._read.clear()
        return [f for stamp, f in stamps.items() if stamp not in set(known)], sources


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
    entries, and the next one all. `found` is the result of `walk`, if the caller has it.
    """
    with undisturbed():
        pattern_of(options.rank_from)
        there = walk(paths, options) if found is None else found
        sources = read_sources(there, options, progress, kept)
        if not any(source.tells for source in sources):
            sources = with_other_files(sources, there, options)
        if kept is not None and options.detail != "all" and options.last is None:
            early = _early(sources, root_of(paths, options), options)
            if early is not None:
                return early
        dataset = assemble_sources(sources, root_of(paths, options), options)
        if options.is_part:
            return part_of(dataset, options)
        copied = options.called and tuple(map(Path, options.called)) != tuple(paths)
        if copied or not dataset.missing_ranks:
            return dataset
        from rankscope.assemble.read_parts import with_siblings

        return with_siblings(dataset, paths)


def _early(sources: Sequence[SourceFile], root: str, options: LoadOptions) -> Dataset | None:
    """The Dataset of the last entries of all dumps; None if the whole takes no longer."""
    from rankscope.assemble.read_parts import EARLY_ENTRIES, announced, are_long, last_entries

    if not are_long(sources):
        return None
    dataset = assemble_sources(list(map(last_entries, sources)), root, options)
    return announced(part_of(dataset, replace(options, last=EARLY_ENTRIES)))


def read_sources(
    found: Sequence[FoundPath],
    options: LoadOptions,
    progress: Callable[[LoadProgress], None] | None,
    kept: SparseReading | None = None,
) -> list[SourceFile]:
    """The content of each found file, in the order of their shown paths. Raises InputError without a worker."""
    known: list[SourceFile] = []
    if kept is not None and options.detail == "all":
        found, known = kept.split_files(found)
        kept = None
    pool = _pool(found, options)
    try:
        _import_numpy()
        import_module("rankscope.assemble.assembly")  # while the workers read
        sources = sorted([*known, *_read(pool, found, progress, kept)], key=place_of)
    except WorkerError as error:
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

    if not any(source.tells for source in sources):
        raise InputError(_empty_reason(root, sources))
    errors = None if options.errors is None else str(options.errors.resolve())
    pattern = pattern_of(options.rank_from)
    try:
        return assemble(sources, printable_text(root), pattern, options.world_size, options.attempt, errors=errors)
    except NoSuchAttemptError as error:
        raise InputError(str(error)) from error


def part_of(dataset: Dataset, options: LoadOptions) -> Dataset:
    """The part of the dataset that the user wants. Raises InputError if it is empty."""
    from rankscope.assemble.read_parts import NoSuchPartError, narrowed

    try:
        return narrowed(dataset, options.ranks, options.groups, options.last)
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
        again = {source.shown: source for source in _read(pool, some, None, None)}
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
    """Every file under the paths of the user that may tell of the ranks he wants; no link leads out of the directories
    `within`, if given. Raises InputError."""
    if options.ranks is None:
        return _walk(paths, options.within)
    from rankscope.assemble.read_parts import may_tell

    found = _walk(paths, options.within, may_tell(options.ranks, pattern_of(options.rank_from)))
    if not found:
        raise InputError(f"{printable_text(root_of(paths, options))}: no file of the ranks that were asked for")
    return found


def _walk(
    paths: Sequence[Path], within: Sequence[Path], wanted: Callable[[str], bool] | None = None
) -> list[FoundPath]:
    if not paths:
        raise InputError("no path given")
    try:
        return walk_paths(paths, within, wanted)
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
    from rankscope.parsers.logs.c10d.known_errors import FORM, read_table
    from rankscope.parsers.user_tables import TableError

    try:
        read_table(errors)
    except TableError as error:
        raise InputError(str(error)) from error
    return {FORM.variable: str(errors.resolve())}


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
        whole = ranges.add(result)
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
    """Computes the parts of a trace that need no other file, while others are still being read."""
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


def _empty_reason(root: str, sources: Sequence[SourceFile]) -> str:
    """The reason why there is nothing to show, with the first problems."""
    if not sources:
        return f"{printable_text(root)}: no files; {_WANTED}"
    # what is known of a file helps more than that it is not known
    told = sorted(sources, key=lambda s: s.problem in (UNKNOWN_KIND, None))
    reasons = [
        f"{s.shown}: {s.problem or 'no line reports an operation, an error or the end of a process'}" for s in told
    ][:5]
    more = f" and {len(sources) - len(reasons):,} more" if len(sources) > len(reasons) else ""
    looked = f"{plural(len(sources), 'file')} ({'; '.join(reasons)}{more})"
    return f"{printable_text(root)}: no dump, stack, log or trace in {looked}; {_WANTED}"
