"""`rankscope ingest`: what is read of a job as a session, by one process, or by tasks of which each reads a share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankscope.commands.output import ProgressLine
from rankscope.commands.source import JobSource, LoadStep
from rankscope.parsers.file_access import is_directory, is_file
from rankscope.parsers.files.directory_walk import is_session
from rankscope.text.wording import byte_count, plural

if TYPE_CHECKING:
    from rankscope.assemble.load import LoadProgress
    from rankscope.parsers.files.directory_walk import FoundPath
    from rankscope.sessions.shares import Share


def run(
    source: JobSource, *, output: str, force: bool = False, shard: str | None = None, dask: str | None = None
) -> int:
    """Writes the session, or a part of it; prints what it holds. ClickException if that cannot be done."""
    source.check()
    directory = Path(output)
    _refuse_inside(source, directory)
    source = replace(source, is_compared=True, no_cache=True)
    try:
        if shard is None and dask is None:
            return _write_whole(source, directory, force)
        if source.redaction is not None:
            raise click.UsageError("--redact needs all files: it goes with a session of one task")
        _refuse_session(source)
        return _on_dask(source, directory, shard, dask) if dask is not None else _own_part(source, directory, shard)
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror or error}") from error


def _refuse_inside(source: JobSource, directory: Path) -> None:
    """Raises an error for a session below its own input: the next read would find its files there."""
    for path in map(Path, source.paths):
        if is_directory(path) and not is_session(path) and directory.resolve().is_relative_to(path.resolve()):
            raise click.ClickException(f"{directory}: lies below {path}, which is read; choose a place outside of it")


def _refuse_session(source: JobSource) -> None:
    """Raises an error for a session as the input of several tasks: its files cannot be shared out."""
    for path in filter(is_session, map(Path, source.paths)):
        raise click.UsageError(f"{path} is a session already: one task makes another of it, without --shard and --dask")


# One process: a session of tables.


def _write_whole(source: JobSource, directory: Path, force: bool) -> int:
    from rankscope.sessions.opening import asked_of
    from rankscope.sessions.session_files import write_session

    _refuse_other(directory, force)
    with ProgressLine() as narrator:
        dataset = source.read(narrator)
        narrator(LoadStep(0, 0, "writing"))
        directory.parent.mkdir(parents=True, exist_ok=True)
        write_session(dataset, directory, asked_of(source.options))
    size = sum(path.stat().st_size for path in directory.iterdir())
    counts = (
        (dataset.files.height, "file"), (len(dataset.told_ranks), "rank"),
        (dataset.ops.height + dataset.traced.height, "operation"),
    )  # fmt: skip
    held = ", ".join(plural(count, noun) for count, noun in counts if count)
    opens, part = shlex.join(["rankscope", str(directory)]), dataset.parts.words
    read = f" (read: {part})" if part else ""
    click.echo(f"{directory}: {held}{read}, {byte_count(size)}; {opens} opens it", err=True)
    return 0


def _refuse_other(directory: Path, force: bool) -> None:
    """Raises an error if something else is in the place of the session."""
    if not os.path.lexists(directory):
        return
    if not is_directory(directory) or (not is_session(directory) and any(directory.iterdir())):
        raise click.ClickException(f"{directory}: is there, and no session")
    if is_session(directory) and not force:
        raise click.ClickException(f"{directory}: is a session already; --force replaces it")


# Several tasks: a session of parts.


def _own_part(source: JobSource, directory: Path, shard: str | None) -> int:
    from rankscope.sessions.parquet_tables import SessionError
    from rankscope.sessions.shares import share_of

    try:
        share = share_of(shard or "", os.environ)
    except SessionError as error:
        raise click.ClickException(str(error)) from error
    with ProgressLine() as narrator:
        text = write_share(source, directory, share, narrator)
    click.echo(f"{directory}: {text}", err=True)
    return 0


def write_share(
    source: JobSource, directory: Path, share: Share, progress: Callable[[LoadStep], None] = lambda _step: None
) -> str:
    """Reads one share of the files and writes its part, unless it is there and the files are the same; says which.

    Raises ClickException and OSError.
    """
    from rankscope.assemble.load import InputError, walk

    _begin(source, directory, share)
    path = directory / share.file_name
    try:
        found = walk([Path(one) for one in source.paths], source.options)
        if _is_read(path, found, share):
            return f"{share} exists, and its files have not changed: nothing to read"
        count = _write_part(source, path, found, share, progress)
    except InputError as error:
        raise click.ClickException(str(error)) from error
    return f"{share} written, of {count:,} of {plural(len(found), 'file')}"


def _begin(source: JobSource, directory: Path, share: Share) -> None:
    """Writes the manifest, which is the same for each task. Raises ClickException for another session."""
    from rankscope.sessions.manifest import FORMAT, Manifest, read_manifest, write_manifest
    from rankscope.sessions.opening import asked_of
    from rankscope.sessions.parquet_tables import SessionError

    if directory.exists() and not is_directory(directory):
        raise click.ClickException(f"{directory}: is there, and no session")
    directory.mkdir(parents=True, exist_ok=True)
    if is_session(directory):
        try:
            there = read_manifest(directory)
        except SessionError as error:
            raise click.ClickException(f"{directory}: {error}") from error
        if there.parts != share.count:
            held = f"of {plural(there.parts, 'part')}" if there.parts else "of one task"
            raise click.ClickException(f"{directory}: a session {held}, not of {share.count:,}; choose another place")
        if there.asked != asked_of(source.options):
            raise click.ClickException(f"{directory}: a session read with other options; choose another place")
    elif any(not path.name.startswith(".") for path in directory.iterdir()) and not is_session(directory):
        raise click.ClickException(f"{directory}: is not empty, and no session")
    else:
        write_manifest(Manifest(format=FORMAT, parts=share.count, asked=asked_of(source.options)), directory)


def _is_read(path: Path, found: Sequence[FoundPath], share: Share) -> bool:
    """Whether the whole part of these very files is there."""
    from rankscope.sessions.parquet_tables import SessionError
    from rankscope.sessions.shard_parts import read_part

    if not is_file(path):
        return False
    try:
        head = read_part(path).head
    except SessionError:
        return False
    there = {(one.shown, one.size, one.mtime_ns) for one in head.found}
    return all((one.shown, one.size, one.mtime_ns) in there for one in found if share.owns(one))


def _write_part(
    source: JobSource, path: Path, found: Sequence[FoundPath], share: Share, progress: Callable[[LoadStep], None]
) -> int:
    """The number of files that were read."""
    from rankscope.assemble.load import read_sources, root_of, with_other_files
    from rankscope.parsers.files.directory_walk import printable_text
    from rankscope.sessions.shard_parts import ShardPart, part_head, write_part
    from rankscope.sessions.shares import own_files

    def tell(read: LoadProgress) -> None:
        progress(LoadStep(read.files_done, read.files_total, "reading"))

    options, own = source.options, own_files(found, share)
    sources = read_sources(own, options, tell)
    tells = any(one.tells for one in sources)
    others = [] if tells else [one for one in with_other_files(sources, own, options) if one not in sources]
    root = printable_text(root_of([Path(one) for one in source.paths], options))
    progress(LoadStep(0, 0, "writing"))
    write_part(path, ShardPart(part_head(root, found, own), sources, others))
    return len(own)


# The same as jobs of Dask.


def _share_count(shard: str | None) -> int | None:
    """The number of shares that `--shard /N` asks of Dask; None without. Raises UsageError for another share."""
    if not shard:
        return None
    from rankscope.sessions.manifest import MOST_PARTS

    number, _, count = shard.partition("/")
    if number or not 1 <= int(count) <= MOST_PARTS:
        raise click.UsageError(f"with --dask, --shard tells only how many: /N, from /1 to /{MOST_PARTS}")
    return int(count)


def _on_dask(source: JobSource, directory: Path, shard: str | None, address: str) -> int:
    """Writes all parts, each as a job of a Dask cluster: one for each of its workers, or as many as `shard` says."""
    try:
        from dask.distributed import Client, as_completed
    except ImportError as error:
        raise click.ClickException("--dask needs another package: pip install 'rankscope[dask]'") from error
    from rankscope.sessions.shares import Share

    asked = _share_count(shard)
    source = replace(source, paths=tuple(str(Path(path).absolute()) for path in source.paths), called=source.paths)
    with Client(None if address == "local" else address) as client:
        count = asked or max(1, len(client.scheduler_info()["workers"]))
        shares = [Share(index, count) for index in range(count)]
        _begin(source, directory, shares[0])
        jobs: list[Any] = client.map(partial(write_share, source, directory.absolute()), shares, pure=False)
        for job in as_completed(jobs):
            click.echo(f"{directory}: {job.result()}", err=True)
    return 0
