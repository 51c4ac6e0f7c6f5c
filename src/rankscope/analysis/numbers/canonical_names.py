"""Names of tensors without wrappers, and as the user renames them, so that runs of other layouts have the same ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

_WRAPPER = re.compile(
    r"^(?:module|_forward_module)(?:\.|$)"
    r"|(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_dp_module)(?:\.|$)"
)
"""Modules that DDP, DeepSpeed, torch.compile, FSDP and activation checkpointing put around others."""
_CHANGE = re.compile(r"(?:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*):)?(.+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class NameChange:
    """A change of names in the run under test."""

    pattern: re.Pattern[str]
    text: str
    """It takes the place of each match; `\\1` is the first group of the pattern."""
    ranks: frozenset[int] | None = None
    """Ranks whose names change; None for all."""


def parsed_change(text: str) -> NameChange:
    """The change that "RANKS:REGEX=TEXT" or "REGEX=TEXT" asks for; RANKS are as in "0,4-7".

    Raises ValueError, with a message for users.
    """
    found = _CHANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not REGEX=TEXT")
    ranks, regex, new = found.groups()
    try:
        pattern = re.compile(regex)
        pattern.sub(new, "")
    except (re.error, IndexError) as error:
        raise ValueError(f"{regex!r} cannot be used: {error}") from None
    return NameChange(pattern, new, _members(ranks) if ranks else None)


def _members(text: str) -> frozenset[int]:
    """Ranks of "0,4-7". Raises ValueError if there are too many."""
    spans = [part.partition("-") for part in text.split(",")]
    ranges = [range(int(first), int(last or first) + 1) for first, _, last in spans]
    if sum(map(len, ranges)) > _MOST_RANKS:
        raise ValueError(f"{text!r} names more than {_MOST_RANKS} ranks")
    return frozenset(rank for one in ranges for rank in one)


_MOST_RANKS = 1 << 20


def canonical_name(name: str, rank: int, changes: Sequence[NameChange] = ()) -> str:
    """The name without wrappers, then changed.

    >>> canonical_name("module._orig_mod.layers.0.weight", 0)
    'layers.0.weight'
    """
    before = ""
    while before != name:
        before, name = name, _WRAPPER.sub("", name)
    name = name.removesuffix(".")
    for change in changes:
        if change.ranks is None or rank in change.ranks:
            name = change.pattern.sub(change.text, name)
    return name


def with_canonical_names(rows: pl.DataFrame, changes: Sequence[NameChange] = ()) -> pl.DataFrame:
    """Rows with canonical names; columns `rank` and `name`, a string."""
    known = rows.select("rank", "name").unique(maintain_order=True)
    pairs: Iterable[tuple[int, str | None]] = known.rows()
    told = [canonical_name(name or "", rank, changes) for rank, name in pairs]
    known = known.with_columns(canonical=pl.Series(told, dtype=pl.String))
    joined = rows.join(known, on=["rank", "name"], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(name=pl.col("canonical")).drop("canonical")
