"""The Dataset of a job that is watched once more, where only dumps of its ranks were written anew."""

from __future__ import annotations

from dataclasses import replace

from rankscope.parsers.assemble import attempts, cards
from rankscope.parsers.assemble.files import with_rows
from rankscope.parsers.assemble.placed import Placed
from rankscope.parsers.assemble.repeats import repeat_table
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.tables import Memory, tables_again
from rankscope.parsers.sidecar.model import Card
from rankscope.schema import Dataset


def again(memory: Memory, placed: Placed) -> Dataset | None:
    """The last Dataset with what is new in it; None if the whole has to be put together, of which nothing is done then.

    Dumps and sidecars must be all there is: what logs, traces, stacks and environments tell goes over many ranks.
    """
    before, fresh, memory.renewed = memory.dataset, placed.fresh, None
    if before is None or fresh is None or memory.files is None or not placed.plain:
        return None
    news = [placed.sources[place] for place in fresh]
    known = [] if memory.placed is None else [memory.placed.sources[place] for place in fresh]
    only_dumps = all(source.dump is not None or _runs_on(source) for source in (*known, *news))
    tables = tables_again(memory, placed.used, fresh) if only_dumps else None
    if tables is None:
        return None
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


def _runs_on(source: Source) -> bool:
    """Whether it is a sidecar of a process that has not ended: nothing of it but its row of the files can be new."""
    return isinstance(source.content, Card) and not source.content.ended
