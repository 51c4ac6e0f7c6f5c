"""What crosses between two processes comes as it was, however large its tables are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from rankscope.commands.follower_process import LARGE_BYTES, receive, send


@dataclass(frozen=True)
class Thing:
    """Holds tables."""

    table: pl.DataFrame
    array: npt.NDArray[Any]
    again: pl.DataFrame


class Crossing:
    """Both ends."""

    def __init__(self) -> None:
        self._here, self._there = Pipe()

    def __call__(self, thing: object) -> Any:
        """The thing on the other side."""
        sending = threading.Thread(target=send, args=(self._here, thing))
        sending.start()
        try:
            return receive(self._there)
        finally:
            sending.join()

    def close(self) -> None:
        self._here.close()
        self._there.close()


@pytest.fixture
def crossed() -> Iterator[Crossing]:
    crossing = Crossing()
    yield crossing
    crossing.close()


def table(rows: int) -> pl.DataFrame:
    numbers = pl.Series("n", range(rows), dtype=pl.Int64)
    return pl.DataFrame({
        "n": numbers,
        "op": (numbers % 3).cast(pl.String).cast(pl.Categorical),
        "state": pl.Series(["done", None], dtype=pl.Enum(["done", "open"])).gather(numbers % 2),
        "ranks": pl.Series([[1, 2]], dtype=pl.List(pl.Int32)).gather(numbers * 0),
    })  # fmt: skip


@pytest.mark.parametrize("rows", [0, 1, 10, LARGE_BYTES])
def test_tables_come_as_they_were(crossed: Crossing, rows: int) -> None:
    sent = table(rows)
    got = crossed(Thing(sent, np.arange(rows), sent))
    assert got.table.equals(sent) and got.table.schema == sent.schema
    assert got.array.dtype == np.int64 and (got.array == np.arange(rows)).all()
    assert got.again is got.table, "what is one table stays one"


def test_tables_without_columns_or_rows_come_as_they_were(crossed: Crossing) -> None:
    assert crossed(pl.DataFrame()).shape == (0, 0)
    assert crossed(pl.DataFrame(schema={"a": pl.Int8})).schema == {"a": pl.Int8}


def test_arrays_of_any_shape_and_order_come_as_they_were(crossed: Crossing) -> None:
    square = np.arange(LARGE_BYTES, dtype=np.float32).reshape(-1, 4).T
    assert (crossed({"a": square})["a"] == square).all()
    words = np.array(["a", None] * LARGE_BYTES, dtype=object)
    assert (crossed(words) == words).all()


def test_other_things_are_no_trouble(crossed: Crossing) -> None:
    first, second = np.arange(LARGE_BYTES), np.arange(float(LARGE_BYTES))
    assert [one.dtype for one in crossed([second, first])] == [np.float64, np.int64]
    assert crossed("nothing large") == "nothing large"
    assert crossed([table(LARGE_BYTES), first])[0].equals(table(LARGE_BYTES))


def test_nothing_stays_open(crossed: Crossing) -> None:
    crossed(table(LARGE_BYTES))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        crossed([table(LARGE_BYTES), np.arange(LARGE_BYTES)])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_end_that_is_gone_is_told() -> None:
    here, there = Pipe()
    here.close()
    with pytest.raises(EOFError):
        receive(there)
