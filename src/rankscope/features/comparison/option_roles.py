"""Roles of options of trainers: a table of names in the words of each trainer, and a user's own that adds to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from rankscope.parsers.user_tables import TableError, TableForm, checked_pattern, with_users_rows

Weight = Literal["repeatability", "behaviour", "speed", "option", "place", "unknown"]
"""Possible effects of another value: results need not repeat; the job may behave differently or only be slower; it is
an option of the trainer of which nothing else is known; it runs in another place; nothing is known."""
FORM = TableForm(
    "rankscope.features.comparison", "option_roles.tsv", "RANKSCOPE_OPTIONS", "options",
    ("id", "role", "weight", "pattern", "effect"), ("id", "role", "pattern"),
)  # fmt: skip
_INDEX = re.compile(r"\[[^\]]*\]")


CAUSES: Mapping[str, str] = {
    "seed": "another seed",
    "initial-values": "other initial values",
    "data": "other data, or another order of it",
    "dropout": "another dropout",
    "batch": "another size of batch",
    "model": "another model",
    "precision": "another precision",
    "lr": "another learning rate",
    "optimizer": "another optimizer, or other options of it",
    "optimizer-state": "a resumed run without its optimizer's state",
    "resume-state": "a restart that did not restore all state: parameters, order of data, or random numbers",
    "order": "another order of sums: sizes of buckets, number or placement of ranks, algorithm",
    "kernel": "a kernel that does not repeat, or another kernel",
    "scale": "gradients of another scale: averaging, clipping, or the divisor of a sum",
    "event": "an event at that step: a skipped step, a retry, other data from there on",
    "small-change": "a small real change",
    "code": "other code",
    "version": "another version of a package",
    "world-size": "another number of ranks",
    "accumulation": "another number of micro-batches in a step",
    "option": "an option of which nothing else is known",
    "mesh": "another order of pipeline stages, or another mesh",
    "slow-rank": "one rank is slow",
    "data-loader": "the data loader is late",
    "host-work": "other work of the host before the first collective of a step",
    "machine": "another speed of the machine or of the code",
}
"""Kinds of cause, in words."""


class OptionRole(NamedTuple):
    """A group of options with one effect."""

    id: str
    role: str
    """The cause that a change of such an option is: one of `CAUSES`."""
    weight: Weight
    names: re.Pattern[str]
    """It fits the end of a path, from one of its parts on."""
    effect: str


def plain_name(path: str) -> str:
    """A name in the spelling that command lines and files share."""
    return path.replace("-", "_").lower()


def option_role(path: str) -> OptionRole | None:
    """The role of an option, by its path; None where nothing is known of it."""
    return _role_of(FORM.users_path(), path)


@lru_cache(1 << 14)
def _role_of(table: Path | None, path: str) -> OptionRole | None:
    name = plain_name(_INDEX.sub("", path))
    return next((one for one in _roles_with(table)[0] if one.names.fullmatch(name)), None)


def current_roles() -> tuple[tuple[OptionRole, ...], str | None]:
    """The table of rankscope with the user's own, whose rows come first, and why that cannot be read."""
    return _roles_with(FORM.users_path())


@cache
def _roles_with(path: Path | None) -> tuple[tuple[OptionRole, ...], str | None]:
    return with_users_rows(tuple(_rows(FORM.packaged_text(), FORM.file_name)), read_roles, path)


def read_roles(path: Path) -> tuple[OptionRole, ...]:
    """A user's own table. Raises TableError."""
    return tuple(_rows(FORM.text_of(path), str(path)))


def _rows(text: str, name: str) -> Iterator[OptionRole]:
    for place, values in FORM.rows(text, name):
        if checked_pattern(values["pattern"], place):
            raise TableError(f"{place}: pattern: it fits every name")
        weight = values["weight"] or "option"
        if weight not in get_args(Weight):
            raise TableError(f"{place}: weight '{weight}': there are {', '.join(get_args(Weight))}")
        if values["role"] not in CAUSES:
            raise TableError(f"{place}: role '{values['role']}': there are {', '.join(CAUSES)}")
        try:
            pattern = re.compile(rf"(?:.*[._])?(?:{values['pattern']})")
        except re.error as error:
            raise TableError(f"{place}: pattern: {error}") from error
        yield OptionRole(values["id"], values["role"], cast("Weight", weight), pattern, values["effect"])
