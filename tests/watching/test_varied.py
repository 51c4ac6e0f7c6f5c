"""A job whose sizes are others in every step, as of tokens that are sent to experts, leaves nothing of them behind."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl

from rankscope.tui.live.prepared import prepare
from rankscope.watching.update import JobUpdate
from tests.watching.following import Following
from tests.watching.jobs import RANKS, Running, target
from tests.watching.writer import Writer

KEPT = 4
"""So many entries a recorder holds."""
ALWAYS = pl.Series(["there"], dtype=pl.Categorical)
"""A column of the kind that remembers its values as long as there is any of its kind, as there is on the screen."""


def known_to_all(probe: str) -> int:
    """How many values of categorical columns this process remembers, before a new one."""
    return int(pl.Series([probe], dtype=ALWAYS.dtype).to_physical()[0])


def shows(sizes: str, update: JobUpdate) -> bool:
    return int((update.dataset.ops["in_sizes"] == sizes).sum()) == RANKS


def move(running: Running, turn: int) -> None:
    for recorder in running.ranks:
        for step in range(KEPT):
            tokens = [[1000 * turn + step, 4096], [step, 4096]]
            recorder.collective(op="all_to_all", input_sizes=tokens, output_sizes=[[*tokens[0], recorder.rank]])
        del recorder.entries[:-KEPT]


def test_sizes_are_forgotten_with_the_operations_that_had_them(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    running, remembered = Running(tmp_path / "drafts"), []
    with Writer() as writer, Following(dumps) as following:
        for turn in range(1, 5):
            move(running, turn)
            for rank in range(RANKS):
                writer.do("replace", running.draft(rank), target(dumps, rank))
            newest = f"[[{1000 * turn + KEPT - 1},4096],[{KEPT - 1},4096]]"
            update = following.until(partial(shows, newest))
            assert update.dataset.ops.height == KEPT * RANKS
            prepare(update)
            remembered.append(known_to_all(f"probe {turn}"))
    assert remembered == [remembered[0] + turn for turn in range(4)]
