"""Input paths from the user, and their loading into a dataset with its analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.assemble.load import LoadOptions, LoadProgress, SparseReading
    from rankscope.schema import Dataset

_MOST_UNREAD = 3
"""Most unread files that an error names."""


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
    is_compared: bool = False
    """Whether numbers are compared with those of another run."""
    within: tuple[Path, ...] = ()
    """Directories out of which no link is followed; empty if links may lead anywhere."""

    @property
    def title(self) -> str:
        """The paths as the user gave them."""
        return " ".join(self.called or self.paths)

    @property
    def options(self) -> LoadOptions:
        """The options for loading."""
        from rankscope.assemble.load import LoadOptions

        errors = Path(self.errors) if self.errors is not None else None
        return LoadOptions(
            self.rank_from, self.world_size, self.attempt, self.jobs, errors, self.called, is_sampled=self.is_compared,
            within=self.within,
        )  # fmt: skip

    def check(self, *, may_come: bool = False) -> None:
        """Raises an error for missing paths before anything is opened, unless they `may_come` into their directory."""
        for path in self.paths:
            try:
                (Path(path).parent if may_come and not Path(path).exists() else Path(path)).stat()
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not a path"
                raise click.ClickException(f"{path}: {reason}") from error

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
        from rankscope.assemble.load import InputError, load

        def tell(read: LoadProgress) -> None:
            _prepare()
            progress(LoadStep(read.files_done, read.files_total, "reading"))

        try:
            return load([Path(p) for p in self.paths], replace(self.options, detail=detail), tell, kept)
        except InputError as error:
            raise click.ClickException(str(error)) from error


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
