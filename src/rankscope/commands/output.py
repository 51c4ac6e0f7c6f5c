"""Puts the bytes of a report where they belong: stdout, or a file that is not overwritten unasked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from rankscope.report.files import overwrite, write_new


def emit(content: bytes, output: str | None, force: bool) -> None:
    """Writes to stdout, or to the file `output` unless it exists and `force` is not set."""
    try:
        if output is None or output == "-":
            _print(content)
        elif force:
            overwrite(Path(output), content)
        else:
            write_new(Path(output), content)
    except FileExistsError as error:
        raise click.ClickException(f"{output}: is there already; --force overwrites it") from error
    except OSError as error:
        raise click.ClickException(f"{output or 'stdout'}: {error.strerror}") from error


def refuse_existing(output: str | None, force: bool) -> None:
    """Says so before the work is done if `output` cannot be written."""
    if output is None or output == "-":
        return
    path = Path(output)
    if path.is_dir():
        raise click.ClickException(f"{output}: is a directory")
    if not force and os.path.lexists(path):
        raise click.ClickException(f"{output}: is there already; --force overwrites it")
    if not path.parent.is_dir():
        raise click.ClickException(f"{path.parent}: no such directory")


def _print(content: bytes) -> None:
    """Writes to stdout; a reader that has seen enough is no error."""
    if not sys.stdout:
        return
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
