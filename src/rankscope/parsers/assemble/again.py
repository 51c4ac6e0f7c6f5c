"""The Dataset of a job that is watched once more, where only dumps of its ranks were written anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from rankscope.parsers.assemble import attempts, cards
from rankscope.parsers.assemble.files import with_rows
from rankscope.parsers.assemble.placed import Asked, Placed, place_again
from rankscope.parsers.assemble.repeats import repeat_table
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.tables import Memory, tables_again
from rankscope.parsers.sidecar.model import Card
from rankscope.schema import Dataset

Tables = dict[str, pl.DataFrame]


def again(memory: Memory, placed: Placed) -> Dataset | None:
    """The last Dataset with what is new in it; None if the whole has to be put together, of which nothing is done then.

    Dumps and sidecars must be all there is: what logs, traces, stacks and environments tell goes over many ranks.
    """
    memory.renewed = None
    return _again(memory, placed) if placed.plain else None


def partly_again(memory: Memory, asked: Asked, given: Sequence[Source]) -> Dataset | None:
    """The last Dataset with what is new in its dumps; None if that is not all that is new.

    What logs, traces and stacks tell is what they told when the whole was put together last.
    """
    memory.renewed, before = None, memory.placed
    placed = place_again(before, asked, given, rest_stays=True) if before is not None else None
    if placed is None:
        return None
    dataset = _again(memory, placed)
    memory.partly = dataset is not None and not placed.plain
    return dataset


def _again(memory: Memory, placed: Placed) -> Dataset | None:
    before, fresh = memory.dataset, placed.fresh
    if before is None or fresh is None or memory.files is None:
        return None
    tables = _tables_of(memory, placed, fresh)
    if tables is None:
        return None
    news = [placed.sources[place] for place in fresh]
    cards.place(news)
    memory.renewed = frozenset(source.rank for source in news if source.used and source.rank is not None)
    memory.placed, memory.files = placed, with_rows(memory.files, placed.sources, fresh)
    memory.dataset = replace(
        before,
        ops=tables["ops"],
        groups=tables["groups"],
        stacks=tables["stacks"],
        frontiers=tables["frontiers"],
        files=memory.files,
        attempts=attempts.table_again(before.attempts, placed.runs[0], news),
        repeats=repeat_table(placed.sources, memory.repeats, fresh),
    )
    return memory.dataset


def _tables_of(memory: Memory, placed: Placed, fresh: Sequence[int]) -> Tables | None:
    """The tables that come of dumps, as they are with all the rest; None if that has to be worked out."""
    known = [] if memory.placed is None else [memory.placed.sources[place] for place in fresh]
    own = [*known, *(placed.sources[place] for place in fresh)]
    if not all(_is_dump_or_its(source) or (placed.rest_stays and not _is_card(source)) for source in own):
        return None
    was, before = memory.made, memory.dataset
    now = tables_again(memory, placed.used, fresh)
    if now is None or placed.plain or was is None or before is None:
        return now
    return _beside(before, was.tables, now)


def _beside(before: Dataset, was: Tables, now: Tables) -> Tables | None:
    """Tables of dumps beside logs and stacks; None where these have rows of their own in them that may not fit now."""
    own = all(getattr(before, name).height == was[name].height for name in ("ops", "frontiers"))
    if not own or not was["groups"].equals(now["groups"]):
        return None
    stacks = now["stacks"]
    if not before.threads.is_empty():
        # stacks of processes are numbered behind those of operations
        if stacks is not was["stacks"]:
            return None
        stacks = before.stacks
    return {"ops": now["ops"], "frontiers": now["frontiers"], "groups": before.groups, "stacks": stacks}


def _is_dump_or_its(source: Source) -> bool:
    """Whether it is a dump, or the sidecar of a process that has not ended: that adds no rows to any other table."""
    return source.dump is not None or (isinstance(source.content, Card) and not source.content.ended)


def _is_card(source: Source) -> bool:
    return isinstance(source.content, Card)
