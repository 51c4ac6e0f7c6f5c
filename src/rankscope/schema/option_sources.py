"""Options of a trainer: trees of plain values, each from one configuration file or from the lines of logs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

OptionScalar = str | int | float | bool | bytes | date | None
OptionTree = OptionScalar | list["OptionTree"] | dict[str, "OptionTree"]


class OptionSource(NamedTuple):
    """The options of one file, or of all lines of one form in the logs of a run."""

    name: str
    """The path of the file below the run, or the form of the lines: "log: Namespace"."""
    tree: dict[str, OptionTree] | list[OptionTree]
    is_file: bool = True
    """Whether a name that is not there is not set: logs may leave names out."""


class RunOptions(NamedTuple):
    """All that a run tells of the options of its trainer."""

    sources: tuple[OptionSource, ...] = ()
    resumed: tuple[int, ...] = ()
    """Steps of checkpoints from which the run went on."""
    unread: tuple[str, ...] = ()
    """Configuration files that could not be read, each with the reason."""
    notes: tuple[str, ...] = ()
    """Parts of files that were read with a limit, each with the file: keys that stand twice, tags."""


def printed_options(values: Mapping[str, OptionTree]) -> RunOptions:
    """The options of one log, by name."""
    return RunOptions((OptionSource("log", dict(values), is_file=False),) if values else ())
