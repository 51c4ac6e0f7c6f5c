"""Transfers whose end no recorder tells, and receives that name no sender."""

from __future__ import annotations

import polars as pl
import pytest

from rankscope.features.replay.replay_source import senders_by_turns, with_held_transfers

Row = tuple[int, int, int | None, int | None, str, bool]


def held(*rows: Row) -> list[int]:
    """The rows that are pending in the end, of rows of (rank, row, sender, receiver, state, pending)."""
    names = {"rank": pl.Int32, "row": pl.Int64, "low": pl.Int32, "high": pl.Int32, "state": pl.String}
    frame = pl.DataFrame(rows, schema={**names, "pending": pl.Boolean}, orient="row")
    told = with_held_transfers(frame.with_columns(group=pl.lit(0), k=pl.lit(0)))
    return told.filter("pending")["row"].to_list()


def test_a_transfer_behind_one_that_did_not_end_is_held_up_and_holds_up_the_next_rank() -> None:
    rows: list[Row] = [
        (0, 1, 9, 0, "scheduled", True), (0, 2, 0, 1, "unknown", False),
        (1, 3, 1, 3, "unknown", False), (1, 4, 0, 1, "unknown", False), (1, 5, 1, 2, "unknown", False),
        (2, 6, 1, 2, "unknown", False), (3, 7, 1, 3, "unknown", False),
    ]  # fmt: skip
    assert held(*rows) == [1, 2, 4, 5, 6]
    # rank 2 has come past it
    assert held(*rows, (2, 8, None, None, "completed", False)) == [1, 2, 4]


@pytest.mark.parametrize(
    ("sends", "receives", "senders"),
    [
        ({1: 1, 2: 1, 3: 0}, 3, [1, 2, 3]),
        ({1: 2, 2: 1}, 4, [1, 2, 1, 2]),
        ({1: 2, 2: 1}, 2, [1, 2]),
        # who did not send cannot be told
        ({1: 1, 2: 1, 3: 0, 4: 0}, 3, [1, 2]),
        ({}, 1, []),
    ],
)
def test_receives_from_any_source_belong_to_those_who_sent(
    sends: dict[int, int], receives: int, senders: list[int]
) -> None:
    assert list(senders_by_turns(sends, receives))[:receives] == senders
