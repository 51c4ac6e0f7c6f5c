"""What the user pointed at, and how it becomes a dataset and its analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.analysis import analyse

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.assemble.load import LoadOptions, LoadProgress, SparseReading
    from rankscope.schema import Dataset


@dataclass(frozen=True)
class Step:
    """How far loading has come."""

    done: int
    total: int
    """Files; 0 where there is nothing to count."""
    what: str


@dataclass(frozen=True)
class Source:
    """The dumps to read, and what the user knows of them."""

    paths: tuple[str, ...]
    rank_from: str | None = None
    world_size: int | None = None
    attempt: int | None = None
    jobs: int | None = None
    errors: str | None = None
    called: tuple[str, ...] = ()
    """What the user calls the paths, where they are those of what was fetched for it; empty: the paths themselves."""

    @property
    def title(self) -> str:
        """The paths as they were given."""
        return " ".join(self.called or self.paths)

    @property
    def options(self) -> LoadOptions:
        """What the user knows, as loading needs it."""
        from rankscope.assemble.load import LoadOptions

        errors = Path(self.errors) if self.errors is not None else None
        return LoadOptions(self.rank_from, self.world_size, self.attempt, self.jobs, errors, self.called)

    def check(self, *, may_come: bool = False) -> None:
        """Refuses paths that are not there, before anything is opened, unless they `may_come` into their directory."""
        for path in self.paths:
            try:
                (Path(path).parent if may_come and not Path(path).exists() else Path(path)).stat()
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not a path"
                raise click.ClickException(f"{path}: {reason}") from error

    def load(
        self, progress: Callable[[Step], None], *, detail: str = "all", kept: SparseReading | None = None
    ) -> tuple[Dataset, Analysis]:
        """Reads and analyses; raises ClickException where there is nothing to read.

        `detail` is how much of traces is read; see `LoadOptions.detail`. `kept` is what a sparse reading leaves to the
        next one.
        """
        from rankscope.assemble.load import InputError, load

        def tell(read: LoadProgress) -> None:
            _prepare()
            progress(Step(read.files_done, read.files_total, "reading"))

        try:
            dataset = load([Path(p) for p in self.paths], replace(self.options, detail=detail), tell, kept)
        except InputError as error:
            raise click.ClickException(str(error)) from error
        progress(Step(0, 0, "analysing"))
        return dataset, _prepare()(dataset)


@cache
def _prepare() -> Callable[[Dataset], Analysis]:
    """Imports the analysis; called when the first file is read, while other processes read the rest."""

    return analyse


def with_local_paths(
    dataset: Dataset, analysis: Analysis, path_map: tuple[tuple[str, str], ...]
) -> tuple[Dataset, Analysis]:
    """Both with the files of stacks where they lie on this machine."""
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
    """The path with the first prefix that fits replaced; a prefix ends where a directory does."""
    for source, target in path_map:
        prefix = source.rstrip("/") + "/"
        if file.startswith(prefix):
            return f"{target.rstrip('/')}/{file[len(prefix) :]}"
    return file


# When a process that keeps a large dataset looks for cycles in it: a search goes through everything there is.

YOUNG_ONLY = (10_000, 20, 100_000)
"""Thresholds of the garbage collector with which it hardly ever looks at what is old; that is done when it fits."""
A_BIT_AT_A_TIME = (1_000, 10, 1_000_000)
"""Thresholds with which no search among young objects takes long, where a key waits for it.

Old ones are left to whoever knows when no key is awaited.
"""
