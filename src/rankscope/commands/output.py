"""Output of reports: to stdout, or to a file that is not overwritten without `force`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import click
from platformdirs import user_data_path

from rankscope.commands.source import LoadStep
from rankscope.parsers.file_access import is_directory, lies_in
from rankscope.text.escaping import plain


def write_report(content: bytes, output: str | None, force: bool) -> None:
    """Writes to stdout, or to the file `output` unless it exists and `force` is not set."""
    try:
        if output is None or output == "-":
            _print(content)
            return
        from rankscope.report.output_files import overwrite, write_new

        if force:
            overwrite(Path(output), content)
        else:
            write_new(Path(output), content)
    except FileExistsError as error:
        raise click.ClickException(f"{output}: already exists; --force overwrites it") from error
    except OSError as error:
        raise click.ClickException(f"{output or 'stdout'}: {error.strerror}") from error


# Files without a place of the user's go to the working directory, but never into what is looked at.

EXPORTS = "rankscope"
"""The directory of such files in the user's home, for those that would go into what is looked at."""


def export_directory(paths: Sequence[str]) -> Path:
    """The directory of exports: the working directory, or ~/rankscope, which is made, if that is being read."""
    here = Path.cwd()
    if not _is_read(here, paths):
        return here
    home = Path.home() / EXPORTS
    if _is_read(home, paths):
        # somebody looks at the whole home directory
        home = user_data_path("rankscope") / "exports"
    # where it cannot be made, the first export says why
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
    return home


def default_output(name: str, paths: Sequence[str]) -> str:
    """A name in the working directory, or the path of one in ~/rankscope if that directory is being read."""
    folder = export_directory(paths)
    return name if folder == Path.cwd() else str(folder / name)


def _is_read(directory: Path, paths: Sequence[str]) -> bool:
    """Whether a directory is one of the paths, or lies below one."""
    real = os.path.realpath(directory)
    return any(is_directory(Path(path)) and lies_in(real, os.path.realpath(path)) for path in paths)


def refuse_existing(output: str | None, force: bool) -> None:
    """Raises an error before the work is done if `output` cannot be written."""
    if output is None or output == "-":
        return
    path = Path(output)
    if is_directory(path):
        raise click.ClickException(f"{output}: is a directory")
    if not force and os.path.lexists(path):
        raise click.ClickException(f"{output}: already exists; --force overwrites it")
    if not is_directory(path.parent):
        raise click.ClickException(f"{path.parent}: no such directory")


def refuse_filled(output: str, force: bool) -> None:
    """Raises an error before the work is done if the directory `output` cannot be filled."""
    path = Path(output)
    if os.path.lexists(path) and not is_directory(path):
        raise click.ClickException(f"{output}: not a directory")
    if not force and is_directory(path) and any(path.iterdir()):
        raise click.ClickException(f"{output}: not empty; --force writes into it")
    if not is_directory(path.parent):
        raise click.ClickException(f"{path.parent}: no such directory")


def write_files(files: Iterable[tuple[str, bytes]], output: str, force: bool) -> None:
    """Writes files with these names into the directory `output`, which is made if it is missing."""
    try:
        Path(output).mkdir(exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror}") from error
    for name, content in files:
        write_report(content, str(Path(output) / name), force)


def _print(content: bytes) -> None:
    """Writes to stdout; a closed pipe is no error."""
    if not sys.stdout:
        return
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Progress on one line of stderr, if it is a terminal.

_INTERVAL_S = 0.1
_WIDTH = 79


def encoded(text: str, ascii_only: bool = False) -> bytes:
    """A text as it is written: what the encoding lacks is escaped."""
    return text.encode("ascii" if ascii_only else "utf-8", "backslashreplace")


class ProgressLine:
    """Shows the progress of loading while its block runs, and clears the line at the end."""

    def __init__(self) -> None:
        self._shown = bool(sys.stderr) and sys.stderr.isatty()
        self._next = 0.0

    def __call__(self, step: LoadStep) -> None:
        """Shows a step, unless another one was shown just before."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + _INTERVAL_S
            of = f" {step.done:,}/{step.total:,}" if step.total else ""
            self._write(plain(f"{step.what}{of}", _WIDTH))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._next:
            self._write("")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()
