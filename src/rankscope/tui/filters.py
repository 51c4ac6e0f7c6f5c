"""The filter of the lanes: some ranks, one group, one operation, one state."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text
from rankscope.tui.letters import DIFFERING, LETTERS, NUMBER, OVER, PENDING, SHIFT, Mark
from rankscope.tui.model import Model

STATES: dict[str, tuple[Mark, ...]] = {
    "done": (*OVER, Mark.WRONG_NUMBERS),
    "late": (Mark.LATE, Mark.VERY_LATE),
    "pending": PENDING,
    "absent": (Mark.MISSING, Mark.ABSENT),
    "mismatch": DIFFERING,
    "numbers off": (Mark.WRONG_NUMBERS,),
    "unknown": (Mark.GONE, Mark.UNSURE),
}
"""States that can be asked for, with the marks that show them."""

_PART = re.compile(r"(\d{1,18})(?:-(\d{1,18})?)?(?:/(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True)
class Filter:
    """The shown ranks, group, operation and state; None means all of them."""

    ranks: frozenset[int] | None = None
    group: int | None = None
    letter: int | None = None
    """The number of a letter in LETTERS."""
    state: str | None = None
    """A key of STATES."""

    def __bool__(self) -> bool:
        return self != Filter()


def parse_ranks(text: str, highest: int) -> frozenset[int]:
    """The ranks in "0-7,64", "8-" (to the end), "0-63/8" (each eighth); ValueError tells the problem."""
    ranks: set[int] = set()
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"not a list of ranks: {part}")
        first = int(match[1])
        last = int(match[2]) if match[2] else (highest if "-" in part else first)
        ranks.update(range(first, min(last, highest) + 1, max(1, int(match[3] or 1))))
    if not ranks:
        raise ValueError(f"no rank up to {highest} in it" if text.strip() else "no ranks given")
    return frozenset(ranks)


FILTER_HINT = "0-7,64  group dp_0  all_reduce  pending"
"""An example of a typed filter."""


def parse_filter(text: str, model: Model) -> Filter:
    """The filter in a line like "0-7,64 dp_0 all_reduce pending": each word is ranks, a group, an operation or a state.

    A group is known by its name or its description, and "group NAME" says that a word is one. ValueError names the
    word that is none of them, or that several groups share.
    """
    highest = int(model.ranks.max(initial=0))
    names = {name for group in model.dataset.group_list for name in (group.description, group.name)}
    letters = {name: number for number, (_, name, _) in enumerate(LETTERS)}
    wanted, ranks, as_group = Filter(), list[str](), False
    for word in text.replace("numbers off", "numbers-off").split():
        if word == "group" and not as_group:
            as_group = True
        elif word in names and (as_group or not _PART.fullmatch(word)):
            wanted, as_group = replace(wanted, group=_group_called(word, model)), False
        elif as_group:
            raise ValueError(f"no group is called {word!r}; 4 lists them")
        elif word.lower() in letters:
            wanted = replace(wanted, letter=letters[word.lower()])
        elif word.lower().replace("-", " ") in STATES:
            wanted = replace(wanted, state=word.lower().replace("-", " "))
        elif word[0].isdigit():
            ranks.append(word)
        else:
            raise ValueError(f"{word!r} is no rank, group, operation or state ({', '.join(STATES)})")
    if as_group:
        raise ValueError("which group? 4 lists them")
    return replace(wanted, ranks=parse_ranks(",".join(ranks), highest)) if ranks else wanted


def _group_called(name: str, model: Model) -> int:
    """The number of a group; a description that several share, as ranks of a mesh do, names none of them."""
    groups = model.dataset.group_list
    by_name = [at for at, group in enumerate(groups) if group.name == name]
    called = by_name or [at for at, group in enumerate(groups) if group.description == name]
    if len(called) > 1:
        raise ValueError(f"{len(called):,} groups are called {name!r}: 4 lists them, and enter there shows one")
    return called[0]


def apply(model: Model, wanted: Filter) -> Model:
    """The part of the model that passes the filter. Ranks with nothing left are not shown."""
    if not wanted:
        return model
    items = _item_mask(model, wanted)
    lanes = np.ones(len(model.ranks), np.bool_)
    if wanted.ranks is not None:
        lanes &= np.isin(model.ranks, list(wanted.ranks))
    if wanted.group is not None:
        lanes &= np.isin(model.ranks, model.dataset.group_list[wanted.group].ranks)
    if wanted.letter is not None or wanted.state is not None:
        lanes &= np.isin(np.arange(len(model.ranks)), model.items.lane[items])
    # only dumps have states
    timed = None if model.timed is None else model.timed.narrowed(wanted.group, wanted.letter)
    return replace(model.take(lanes, items), timed=timed)


def _item_mask(model: Model, wanted: Filter) -> NDArray[np.bool_]:
    items = model.items
    mask = np.ones(len(items.col), np.bool_)
    if wanted.group is not None:
        mask &= items.group == wanted.group
    if wanted.letter is not None:
        mask &= ((items.code & NUMBER) == wanted.letter) & (items.row >= 0)
    if wanted.state is not None:
        mask &= np.isin(items.code >> SHIFT, STATES[wanted.state])
    return mask


def describe(wanted: Filter, model: Model) -> str:
    """The filter in a few words."""
    parts = []
    if wanted.ranks is not None:
        parts.append(ranks_text(wanted.ranks, 24))
    if wanted.group is not None:
        group = model.dataset.group_list[wanted.group]
        parts.append(f"group {plain(group.description or group.name)}")
    if wanted.letter is not None:
        parts.append(LETTERS[wanted.letter][1])
    if wanted.state is not None:
        parts.append(wanted.state)
    return ", ".join(parts)
