"""A session of tables: a Dataset written into a directory, and read from it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankscope.assemble.read_parts import shortened
from rankscope.assemble.secret_texts import without_secrets
from rankscope.parsers.files.directory_walk import is_session
from rankscope.schema import Dataset, DumpsBeside
from rankscope.sessions.manifest import FORMAT, Manifest, ReadingOptions, write_manifest
from rankscope.sessions.parquet_tables import read_tables, write_tables


def write_session(dataset: Dataset, directory: Path, asked: ReadingOptions) -> None:
    """Writes a session that takes its name when it is whole; it replaces another session there. Raises OSError."""
    with _new_directory(directory) as unfinished:
        rows = write_tables(dataset, unfinished)
        write_manifest(_manifest(dataset, asked, rows), unfinished)


def _manifest(dataset: Dataset, asked: ReadingOptions, rows: dict[str, int]) -> Manifest:
    return Manifest(
        format=FORMAT,
        root=dataset.root,
        asked=asked,
        attempt=dataset.attempt,
        world_size=dataset.world_size,
        left_out=tuple(sorted(dataset.left_out)),
        beside=(dataset.beside.ranks, dataset.beside.directory),
        rows=rows,
        part=dataset.parts,
    )


@contextmanager
def _new_directory(directory: Path) -> Iterator[Path]:
    unfinished = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}")
    try:
        unfinished.mkdir()
        yield unfinished
        if is_session(directory):
            shutil.rmtree(directory)
        unfinished.rename(directory)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_dataset(directory: Path, manifest: Manifest, memory: int | None = None, within: str = "") -> Dataset:
    """The Dataset of a session of tables, which says so if there was no memory for all of its operations.

    `memory` and `within` are those of `read_tables`. It has no secrets, whatever wrote it. Raises SessionError.
    """
    stored = read_tables(directory, manifest.rows, memory, within)
    dataset = Dataset(
        attempt=manifest.attempt,
        world_size=manifest.world_size,
        left_out=frozenset(manifest.left_out),
        root=manifest.root,
        beside=DumpsBeside(*manifest.beside),
        parts=manifest.part if stored.last is None else shortened(manifest.part, stored.last),
    )
    return without_secrets(dataset.with_tables(stored.tables))
