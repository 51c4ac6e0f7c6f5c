"""What crosses between two processes comes as it was, however large its tables are."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from rankscope.commands.crossing import LARGE, Receiver, Sender
from rankscope.commands.patches import Patch, Spots, news, renewed
from rankscope.tui.live.spliced import Spliced, spliced


@dataclass(frozen=True)
class Thing:
    """Holds tables."""

    table: pl.DataFrame
    array: npt.NDArray[Any]
    again: pl.DataFrame


class Crossing:
    """Both ends, and how much went from one to the other."""

    def __init__(self) -> None:
        self._here, self._there = Pipe()
        self._sender, self._receiver = Sender(self._here), Receiver(self._there)
        self.bytes = 0
        self._send_bytes = self._here.send_bytes
        self._here.send_bytes = self._counted  # type: ignore[method-assign, assignment]

    def _counted(self, data: bytes) -> None:
        self.bytes += len(data)
        self._send_bytes(data)

    def __call__(self, thing: object, *made: Spliced) -> Any:
        """The thing on the other side; some tables in it were `made` of those before."""
        self.bytes = 0
        sending = threading.Thread(target=self._sender.send, args=(thing, made))
        sending.start()
        try:
            return self._receiver.receive()
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


@pytest.mark.parametrize("rows", [0, 1, 10, LARGE])
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
    square = np.arange(LARGE, dtype=np.float32).reshape(-1, 4).T
    assert (crossed({"a": square})["a"] == square).all()
    words = np.array(["a", None] * LARGE, dtype=object)
    assert (crossed(words) == words).all()


def put_between(before: pl.DataFrame) -> tuple[pl.DataFrame, Spliced]:
    """The table with another row for two, and with more rows in a hundred places."""
    places = np.array([0, *range(40, 4000, 40)], np.int64)
    ends, sizes = places + (np.arange(100) == 1), np.full(100, 2, np.int64)
    middle = before[:200].with_columns(n=-pl.col("n"))
    parts, last = [], 0
    for at, (start, end) in enumerate(zip(places.tolist(), ends.tolist(), strict=True)):
        parts += [before[last:start], middle[2 * at : 2 * at + 2]]
        last = end
    now = pl.concat([*parts, before[last:]], rechunk=True)
    return now, Spliced(before, now, places, ends, sizes)


def test_of_a_table_in_which_more_was_put_only_that_is_sent(crossed: Crossing) -> None:
    before = table(LARGE)
    crossed(before)
    now, made = put_between(before)
    got = crossed(now, made)
    assert got.equals(now) and got.schema == now.schema
    assert crossed.bytes < now.estimated_size() / 10
    assert crossed(now).equals(now)


def test_how_a_table_was_made_of_another_than_was_sent_is_of_no_use(crossed: Crossing) -> None:
    before = table(LARGE)
    now, made = put_between(before)
    crossed(before.with_columns(n=pl.col("n") + 1))
    assert crossed(now, made).equals(now)


def test_an_array_in_which_more_was_put(crossed: Crossing) -> None:
    before = np.arange(LARGE)
    starts, sizes = np.arange(5, LARGE, 70), np.full(len(range(5, LARGE, 70)), 3)
    now = spliced(before, starts, starts + 1, np.arange(int(sizes.sum())), sizes)
    crossed(before)
    got = crossed(now, Spliced(before, now, starts, starts + 1, sizes))
    assert (got == now).all() and len(now) == LARGE + 2 * len(starts)


Rows = list[int | None]
CHANGES: dict[str, Callable[[Rows], Rows]] = {
    "nothing": lambda rows: rows,
    "one in the middle": lambda rows: [*rows[:5000], -5, *rows[5001:]],
    "a few more in the middle": lambda rows: [*rows[:5000], 1, 2, 3, *rows[5000:]],
    "less in the middle": lambda rows: rows[:5000] + rows[5100:],
    "more at the end": lambda rows: [*rows, 7, 8],
    "less at the end": lambda rows: rows[:-3],
    "more at the beginning": lambda rows: [7, 8, *rows],
    "less at the beginning": lambda rows: rows[3:],
    "a null": lambda rows: [*rows[:9], None, *rows[10:]],
    "here and there": lambda rows: [-1 if at % 3000 < 20 else row for at, row in enumerate(rows)],
    "everywhere a little": lambda rows: [-4 if at % 300 == 0 else row for at, row in enumerate(rows)],
    "the first and the last": lambda rows: [-2, *rows[1:-1], -3],
    "everything": lambda rows: [None if row is None else row + 1 for row in rows],
    "a repeat that looks like its neighbours": lambda rows: [*rows[:6000], *rows[5000:]],
}


@pytest.mark.parametrize("seed", range(3))
def test_after_any_changes_the_other_end_has_the_same(crossed: Crossing, seed: int) -> None:
    chance = random.Random(seed)
    rows: Rows = list(range(LARGE))
    for name in chance.choices(list(CHANGES), k=12):
        rows = CHANGES[name](rows)
        array = np.array([row or 0 for row in rows], np.int32)
        sent = Thing(pl.DataFrame({"n": rows, "s": pl.Series(rows, dtype=pl.Int64).cast(pl.String)}), array, table(1))
        got = crossed(sent)
        assert got.table.equals(sent.table) and got.table.schema == sent.table.schema, name
        assert (got.array == array).all() and got.array.dtype == array.dtype, name


def test_what_the_other_end_has_is_not_sent_again(crossed: Crossing) -> None:
    sent = table(LARGE)
    crossed(Thing(sent.drop("ranks"), np.arange(LARGE), sent))
    whole = crossed.bytes
    again = pl.concat([sent[:100], sent[:1], sent[101:]], rechunk=True)
    got = crossed(Thing(again.drop("ranks"), np.arange(LARGE), sent))
    assert got.table.equals(again.drop("ranks")) and crossed.bytes < whole / 100
    places = np.arange(LARGE)
    places[::5000] = 1
    scattered = again[places]
    got = crossed(Thing(scattered.drop("ranks"), places, sent))
    assert got.table.equals(scattered.drop("ranks")) and (got.array == places).all()
    assert crossed.bytes < whole / 50


def test_what_comes_in_between_does_not_make_the_rest_new(crossed: Crossing) -> None:
    sent, other, array = table(LARGE), pl.DataFrame({"other": range(LARGE)}), np.arange(LARGE)
    crossed([sent, array])
    whole = crossed.bytes
    new = array.copy()
    new[7] = -1
    tables = crossed([other.head(LARGE // 4), sent, new])
    assert tables[1].equals(sent) and (tables[2] == new).all()
    assert crossed.bytes < whole / 5
    assert (crossed([sent, new])[1] == new).all() and crossed.bytes < whole / 100


def test_other_tables_and_things_without_any_are_no_trouble(crossed: Crossing) -> None:
    first, second = np.arange(LARGE), np.arange(float(LARGE))
    assert (crossed([first, second])[1] == second).all()
    assert crossed("nothing large") == "nothing large"
    assert [one.dtype for one in crossed([second, first])] == [np.float64, np.int64]
    assert crossed(table(LARGE)).equals(table(LARGE))
    assert crossed([table(LARGE), first])[0].equals(table(LARGE))


def test_an_end_that_is_gone_is_told() -> None:
    here, there = Pipe()
    here.close()
    with pytest.raises(EOFError):
        Receiver(there).receive()


def test_of_a_table_only_the_rows_and_the_columns_that_differ_are_told() -> None:
    before = pl.DataFrame({"a": range(1000), "b": pl.Series(range(1000)).cast(pl.String), "c": [[1]] * 1000})
    assert news(before, before.clone()) == []
    now = pl.concat([before[:500], before[:7], before[507:]]).with_columns(c=before["c"])
    names, patch = news(before, now)
    assert names == ["a", "b", "c"]
    assert isinstance(patch, Patch) and isinstance(patch.middle, pl.DataFrame)
    assert (patch.starts, patch.sizes, patch.middle.columns) == ([500], [7], ["a", "b"])
    again = renewed(before, [names, patch])
    assert isinstance(again, pl.DataFrame) and again.equals(now)


def test_of_an_array_with_changes_all_over_it_those_are_told() -> None:
    before = np.zeros(100_000, np.int64)
    now = before.copy()
    now[::400] = 1
    (spots,) = news(before, now)
    assert isinstance(spots, Spots)
    assert len(spots.places) == 250
    again = renewed(before, [spots])
    assert np.array_equal(again, now) and (before == 0).all()


@pytest.mark.parametrize("other", [None, pl.DataFrame({"a": [1]}), np.zeros(3)])
def test_news_of_another_table_are_refused(other: pl.DataFrame | npt.NDArray[Any] | None) -> None:
    before, array = pl.DataFrame({"b": range(1000), "c": range(1000)}), np.arange(1000)
    now, later = before.with_columns(pl.Series("b", [*range(999), 0])), array + 1
    later[5:] = array[5:]
    for one in (news(before, now), news(array, later)):
        if other is None or isinstance(other, np.ndarray) == isinstance(one[0], list):
            with pytest.raises(ValueError, match="without what it is for"):
                renewed(other, one)


def test_a_column_that_is_the_same_memory_is_not_sent() -> None:
    values = pl.DataFrame({"a": np.arange(1000)})
    assert news(values, values.clone()) == []
    array = values["a"].to_numpy()
    assert isinstance(news(array, array[::-1])[0], np.ndarray)
