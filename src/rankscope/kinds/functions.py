"""Rows of the tables of kinds, those of installed packages among them, and the functions that rows name."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

Row = TypeVar("Row")
GROUP = "rankscope.features"
"""The group of entry points by which installed packages add rows."""


class KindTable(Mapping[str, Row], Generic[Row]):
    """The rows of one kind by their names: rankscope's own, and behind them those of installed packages.

    The packages are asked for their rows at the first look into any table, and not at the import of one: their modules
    import ours.
    """

    def __init__(self, *rows: Row) -> None:
        self.ours: dict[str, Row] = {getattr(row, "name"): row for row in rows}  # noqa: B009 - rows of any kind have one

    @cached_property
    def _joined(self) -> dict[str, Row]:
        if not names_packages():
            return self.ours
        kind = type(next(iter(self.ours.values())))
        packages = function("kinds.site_packages:site_packages")()
        theirs = (row for package in packages for row in package.rows if isinstance(row, kind))
        return self.ours | {getattr(row, "name"): row for row in theirs}  # noqa: B009

    def __getitem__(self, name: str) -> Row:
        return self._joined[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._joined)

    def __len__(self) -> int:
        return len(self._joined)


@cache
def names_packages() -> bool:
    """Whether any installed package names rows: a look at 100 packages takes 1 ms, and importlib.metadata 15 ms."""
    for folder in filter(None, sys.path):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                # most packages have no entry points
                if entry.name.endswith(("dist-info", "egg-info")):
                    with contextlib.suppress(OSError):
                        if GROUP.encode() in Path(entry.path, "entry_points.txt").read_bytes():
                            return True
    return False


class RefusalError(Exception):
    """A function refuses what it is given, as a file of another kind: it did not fail."""


class PackageError(Exception):
    """A function of an installed package is not there, or failed.

    The message names package, function, error and line, and nothing from files: it stands in redacted reports, too.
    """

    def __init__(self, package: str, place: str, reason: str) -> None:
        super().__init__(f"the package {package} failed: {place}: {reason}")
        self.package = package


def is_of_package(name: str) -> bool:
    """Whether a function is one of an installed package."""
    return "/" in name


@cache
def function(name: str) -> Callable[..., Any]:
    """The function named "module:function", with its module below `rankscope`; the first call imports it.

    The name of one of a package stands behind "package/"; it raises nothing but `RefusalError` and PackageError.
    Raises ImportError or AttributeError for an unknown name, and PackageError for one of a package.
    """
    package, slash, place = name.rpartition("/")
    module, _, attribute = place.partition(":")
    if not slash:
        ours: Callable[..., Any] = getattr(import_module(f"rankscope.{module}"), attribute)
        return ours
    found = _found(package, place)
    if isinstance(found, PackageError):
        raise found
    return found


@cache
def _found(package: str, place: str) -> Callable[..., Any] | PackageError:
    """A function of a package; an import that fails is not tried again for each file."""
    module, _, attribute = place.partition(":")
    try:
        theirs: Any = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - their module may raise anything
        log_failure(error)
        return PackageError(package, place, reason_of(error, module))
    if not callable(theirs):
        return PackageError(package, place, "no function")
    if isinstance(theirs, type):
        return theirs  # of a page, which guards itself

    def guarded(*arguments: Any) -> Any:
        try:
            result = theirs(*arguments)
            return list(result) if isinstance(result, Iterator) else result
        except RefusalError:
            raise
        except Exception as error:
            log_failure(error)
            raise PackageError(package, place, reason_of(error, module)) from error

    return guarded


def log_failure(error: BaseException) -> None:
    """Writes what a package raised to the debug log, with its message and all lines."""
    logging.getLogger("rankscope").debug("a package failed", exc_info=error)


def reason_of(error: BaseException, module: str) -> str:
    """The type of an error, and its last line in a module: "ValueError in line 12". Messages may quote files."""
    line, step = 0, error.__traceback__
    while step is not None:
        line = step.tb_lineno if _is_within(step, module) else line
        step = step.tb_next
    if isinstance(error, ImportError) and error.name:
        return f"{type(error).__name__} ({error.name})"
    return f"{type(error).__name__}{f' in line {line}' if line else ''}"


def _is_within(step: TracebackType, module: str) -> bool:
    return str(step.tb_frame.f_globals.get("__name__", "")) == module
