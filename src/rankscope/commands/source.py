"""Input paths from the user, and their loading into a dataset with its analysis."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.parsers.files.directory_walk import is_session

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.assemble.held_sources import SparseReading
    from rankscope.assemble.load import LoadOptions, LoadProgress
    from rankscope.parsers.files.directory_walk import FoundPath
    from rankscope.report.redact import Redaction
    from rankscope.schema import Dataset
    from rankscope.sessions.session_cache import CacheEntry
    from rankscope.text.given_input import GivenInput

STDIN_NAME = "standard input"
"""The name of standard input in reports."""
STDIN_PATHS = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_MOST_UNREAD = 3
"""Most unread files that an error names."""
_FEWEST_CACHED_BYTES = 16 << 20
"""Bytes of files below which reading them anew is as fast."""


def is_stdin(path: str) -> bool:
    """Whether a path from the user means standard input: "-", or the device if a pipe stands behind it."""
    return path == "-" or (path in STDIN_PATHS and Path(path).is_fifo())


def shown_path(path: str) -> str:
    """The name of a path in reports; an address without its user and password."""
    if is_address(path):
        return re.sub(r"(?<=://)[^/?#]*@", "", path)
    return STDIN_NAME if is_stdin(path) else path


def is_address(path: str) -> bool:
    """Whether a path from the user is the address of a server."""
    return path.startswith(("http://", "https://"))


def is_local(path: str) -> bool:
    """Whether a path from the user is one of this machine, that is read where it is."""
    return not is_address(path) and not is_stdin(path)


@dataclass(frozen=True)
class LoadStep:
    """Progress of loading."""

    done: int
    total: int
    """Number of files; 0 if there is nothing to count."""
    what: str


@dataclass(frozen=True)
class JobSource:
    """Input paths, with options of the user for loading."""

    paths: tuple[str, ...]
    rank_from: str | None = None
    world_size: int | None = None
    attempt: int | None = None
    jobs: int | None = None
    errors: str | None = None
    called: tuple[str, ...] = ()
    """The user's names of the paths if these are fetched copies; empty: the paths themselves."""
    wanted: str = ""
    """What the error asks for if there is nothing to read; empty for all that a report reads."""
    is_compared: bool = False
    """Whether numbers are compared with those of another run."""
    ranks: frozenset[int] | None = None
    groups: tuple[str, ...] = ()
    last: int | None = None
    """The part of the job to read; see LoadOptions."""
    within: tuple[Path, ...] = ()
    """Directories out of which no link is followed; empty for the paths."""
    follow_links: bool = False
    """Whether links may lead anywhere."""
    unread: tuple[tuple[str, str], ...] = ()
    """Names of inputs that could not be fetched, and why."""
    no_cache: bool = False
    """Whether the user's cache of earlier reads is left alone."""
    redaction: Redaction | None = None
    """Replaces names in all that is read, before anything judges or shortens it; None keeps them."""

    @property
    def title(self) -> str:
        """The paths as the user gave them, as far as they may be shown."""
        from rankscope.text.secrets import hide

        return hide(
            " ".join(self.redaction.title(path) if self.redaction else path for path in self.called or self.paths)
        )

    def shown(self, text: str) -> str:
        """A text of the user as it stands in the data: a group that he names may have a stand-in."""
        return self.redaction.text(text) if self.redaction else text

    @property
    def given(self) -> GivenInput:
        """The paths as commands for the user name them."""
        from rankscope.text.given_input import STDIN, GivenInput

        copies = zip(self.called or self.paths, self.paths, strict=True)
        names = tuple(STDIN if name == STDIN_NAME != path else name for name, path in copies)
        alone = names == self.paths and len(names) == 1
        session = alone and is_session(Path(names[0]))
        directory = names[0] if alone and not session and Path(names[0]).is_dir() else ""
        return GivenInput(names, directory, session)

    @property
    def options(self) -> LoadOptions:
        """The options for loading."""
        from rankscope.assemble.load import LoadOptions

        errors = Path(self.errors) if self.errors is not None else None
        return LoadOptions(
            self.rank_from, self.world_size, self.attempt, self.jobs, errors, self.called, is_sampled=self.is_compared,
            ranks=self.ranks, groups=self.groups, last=self.last, within=self.within,
            follow_links=self.follow_links, unread=self.unread, wanted=self.wanted,
        )  # fmt: skip

    def check(self, *, may_come: bool | None = None) -> None:
        """Raises an error for missing paths before anything is opened, unless they `may_come` into their directory.

        False: they are followed, and may not; the error then names the option.
        """
        for path in self.paths:
            try:
                (Path(path).parent if may_come and not Path(path).exists() else Path(path)).stat()
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not a path"
                hint = " (--wait waits for a path that is still to come)" if may_come is False else ""
                raise click.ClickException(f"{path}: {reason}{hint}") from error

    def load(
        self, progress: Callable[[LoadStep], None], *, detail: str = "all", kept: SparseReading | None = None
    ) -> tuple[Dataset, Analysis]:
        """Reads and analyses; raises ClickException if there is nothing to read.

        `detail` is how much of traces is read; see `LoadOptions.detail`. `kept` is the rest of a sparse reading, for
        the next one.
        """
        dataset = self.read(progress, detail=detail, kept=kept)
        progress(LoadStep(0, 0, "analysing"))
        return dataset, _prepare()(dataset)

    def read(
        self, progress: Callable[[LoadStep], None], *, detail: str = "all", kept: SparseReading | None = None
    ) -> Dataset:
        """Reads only; arguments and errors are those of `load`."""
        dataset = self._read(progress, detail, kept)
        return self.redaction.dataset(dataset) if self.redaction else dataset

    def _read(self, progress: Callable[[LoadStep], None], detail: str, kept: SparseReading | None) -> Dataset:
        from rankscope.assemble.load import InputError

        try:
            if any(map(is_session, paths := [Path(path) for path in self.paths])):
                return self._session(paths, progress)
            return self._files(paths, progress, detail, kept)
        except InputError as error:
            raise click.ClickException(self.shown(str(error))) from error

    def _session(self, paths: list[Path], progress: Callable[[LoadStep], None]) -> Dataset:
        from rankscope.sessions.opening import open_session
        from rankscope.sessions.parquet_tables import SessionError

        if len(paths) > 1:
            raise click.ClickException("a session is opened alone: it stands for all files of its job")
        if self.options.is_part:
            raise click.ClickException("a session is opened whole: --ranks, --groups and --last read files")
        try:
            return open_session(paths[0], self.options, lambda done, all_: progress(LoadStep(done, all_, "reading")))
        except SessionError as error:
            raise click.ClickException(str(error)) from error

    def _files(
        self, paths: list[Path], progress: Callable[[LoadStep], None], detail: str, kept: SparseReading | None
    ) -> Dataset:
        """The dataset of files, of this read or of an earlier one of the same files."""
        from rankscope.assemble.load import load, root_of, walk
        from rankscope.parsers.files.directory_walk import printable_text

        def tell(read: LoadProgress) -> None:
            _prepare()
            progress(LoadStep(read.files_done, read.files_total, "reading"))

        options = replace(self.options, detail=detail)
        found = walk(paths, options)
        entry = self._cache_entry(found)
        known = entry.dataset() if entry else None
        if known is not None:
            return replace(known, root=printable_text(root_of(paths, options)))
        dataset = load(paths, options, tell, kept, found)
        if entry and (detail == "all" or not dataset.has_traces) and not dataset.parts.words:
            entry.keep_later(dataset)
        return dataset

    def _cache_entry(self, found: Sequence[FoundPath]) -> CacheEntry | None:
        """The place of these files in the user's cache; None for copies of files or a part, and without a cache."""
        if (
            self.no_cache
            or self.options.is_part
            or self.called not in ((), self.paths)
            or sum(one.size for one in found) < _FEWEST_CACHED_BYTES
        ):
            return None
        from rankscope.sessions.session_cache import cache_entry

        return cache_entry(found, self.options, time.time_ns(), os.environ)


@cache
def _prepare() -> Callable[[Dataset], Analysis]:
    """Imports the analysis; called when the first file is read, while other processes read the rest."""

    from rankscope.analysis import analyse

    return analyse


def nothing_usable(source: JobSource, dataset: Dataset, reason: str) -> click.ClickException:
    """The error of a command that finds nothing of its kind; it names some files that were not read, and why."""
    unread = dataset.files.drop_nulls("problem").select("path", "problem").rows()[:_MOST_UNREAD]
    return click.ClickException(f"{source.title}: {reason}{''.join(f'; {path}: {why}' for path, why in unread)}")


def with_local_paths(
    dataset: Dataset, analysis: Analysis, path_map: tuple[tuple[str, str], ...]
) -> tuple[Dataset, Analysis]:
    """Both with the source files of stacks at their place on this machine."""
    if not path_map:
        return dataset, analysis
    import polars as pl

    moved = {file: _local(file, path_map) for file in dataset.stacks["file"].unique()}
    files = pl.Series("file", [moved[file] for file in dataset.stacks["file"]], dtype=pl.String)
    findings = tuple(
        replace(f, stack=tuple(frame._replace(file=_local(frame.file, path_map)) for frame in f.stack))
        for f in analysis.findings
    )
    return replace(dataset, stacks=dataset.stacks.with_columns(files)), replace(analysis, findings=findings)


def _local(file: str, path_map: tuple[tuple[str, str], ...]) -> str:
    """The path with its first matching prefix replaced; a prefix ends at a directory boundary."""
    for source, target in path_map:
        prefix = source.rstrip("/") + "/"
        if file.startswith(prefix):
            return f"{target.rstrip('/')}/{file[len(prefix) :]}"
    return file


# Thresholds for the garbage collector in a process with a large dataset, in which a full search is slow.

YOUNG_THRESHOLDS = (10_000, 20, 100_000)
"""Thresholds that almost never search old objects; that search is run at a good moment."""
SHORT_SEARCH_THRESHOLDS = (1_000, 10, 1_000_000)
"""Thresholds that keep searches of young objects short, for fast answers to keys.

Old objects are searched explicitly, when no key is expected.
"""
