"""What has changed of a table or an array since it was sent last: of most, nothing, or a few stretches of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.arrays import places_of

if TYPE_CHECKING:
    from rankscope.tui.live.spliced import Spliced

Array = npt.NDArray[Any]
Table = pl.DataFrame | Array
Places = npt.NDArray[np.int64]
LEAST = 1 << 8
"""So many rows that are the same between two that differ are left out."""
MOST = 128
"""Of more stretches than this all is sent: to put them together would take longer, where keys have to wait for it."""
SPOT = 4
"""Of an array, single values are sent if no more than one in so many differs."""
_Kind = TypeVar("_Kind", pl.DataFrame, Array)
_Column = pl.Series | Array


class Patch(NamedTuple):
    """Rows that differ from those before."""

    starts: list[int]
    """Where each stretch begins that is another one, in the rows before; rising."""
    ends: list[int]
    """Where it ended there."""
    sizes: list[int]
    """How long it is now."""
    middle: Table
    """All of these stretches, of a table in the columns that differ anywhere."""


class Spots(NamedTuple):
    """Values of an array, as long as before, that are others."""

    places: Array
    values: Array


Told = list[str] | pl.Series | Array | Patch | Spots
"""A piece of what is sent: of a table the names of its columns, columns that are sent whole, and a patch for others;
of an array all of it, or what differs."""


def news(before: Table | None, now: Table) -> list[Told]:
    """What has to be sent to one who has the table before: all where that is not much more, nothing if it is equal."""
    if before is now:
        return []
    if isinstance(now, np.ndarray):
        return _of_array(before, now) if isinstance(before, np.ndarray) and _alike(before, now) else [now]
    alike = isinstance(before, pl.DataFrame) and before.schema == now.schema
    told = _of_table(before, now) if alike and isinstance(before, pl.DataFrame) else list(now.iter_columns())
    return [now.columns, *told] if told else []


def of_splice(made: Spliced) -> list[Told]:
    """What has to be sent to one who has the table of which this one was made."""
    starts = made.starts + np.cumsum(made.sizes - (made.ends - made.starts)) - made.sizes + (made.ends - made.starts)
    middle = made.now[places_of(starts, starts + made.sizes)]
    patch = Patch(made.starts.tolist(), made.ends.tolist(), made.sizes.tolist(), middle)
    return [patch] if isinstance(made.now, np.ndarray) else [made.now.columns, patch]


def renewed(before: Table | None, told: list[Told]) -> Table:
    """The table of which these are the news. Raises ValueError if they are news of another one than `before`."""
    if not told and before is not None:
        return before
    if told and isinstance(told[0], list):
        return _renewed_table(before, told[0], told[1:])
    if told and isinstance(told[0], np.ndarray):
        return told[0]
    if not told or not isinstance(before, np.ndarray):
        raise ValueError("a patch came without what it is for")
    if isinstance(told[0], Spots):
        array = before.copy()
        array[told[0].places] = told[0].values
        return array
    patch = cast(Patch, told[0])
    return np.concatenate(_parts(before, cast(Array, patch.middle), patch))


def _renewed_table(before: Table | None, names: list[str], told: list[Told]) -> pl.DataFrame:
    columns: dict[str, pl.Series] = {}
    for one in told:
        if isinstance(one, pl.Series):
            columns[one.name] = one
        elif isinstance(one, Patch) and isinstance(one.middle, pl.DataFrame) and isinstance(before, pl.DataFrame):
            parts = _parts(before.select(one.middle.columns), one.middle, one)
            columns |= pl.concat([part for part in parts if part.height], rechunk=True).to_dict()
    if isinstance(before, pl.DataFrame):
        columns = {name: columns[name] if name in columns else before[name] for name in names}
    if len(columns) < len(names):
        raise ValueError("a patch came without what it is for")
    return pl.DataFrame([columns[name] for name in names])


def _parts(before: _Kind, middle: _Kind, told: Patch) -> list[_Kind]:
    """Stretches as they were and as they are, by turns."""
    parts: list[_Kind] = []
    known = at = 0
    for start, end, size in zip(told.starts, told.ends, told.sizes, strict=True):
        parts.append(before[known:start])
        parts.append(middle[at : at + size])
        known, at = end, at + size
    parts.append(before[known:])
    return parts


def _alike(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.ndim == other.ndim == 1


def _of_array(before: Array, now: Array) -> list[Told]:
    if len(before) != len(now):
        same = _ends(before, now)
        return [now if same is None else _cut(before, now, *same)]
    differ = _differ(before, now)
    if not len(differ):
        return []
    starts, ends = _stretches(differ)
    if _are_few(starts, ends, len(now)):
        return [Patch(starts.tolist(), ends.tolist(), (ends - starts).tolist(), now[places_of(starts, ends)])]
    if SPOT * len(differ) > len(now):
        return [now]
    return [Spots(differ.astype(np.int32) if len(now) < 1 << 31 else differ, now[differ])]


def _of_table(before: pl.DataFrame, now: pl.DataFrame) -> list[Told]:
    """Whole columns, and a patch for those that are the same but for some rows."""
    nested = [name for name, kind in now.schema.items() if kind.is_nested()]
    whole = [name for name in nested if not before[name].equals(now[name])]
    others = [name for name in now.columns if name not in nested]
    if before.height == now.height:
        patch, rest = _of_rows(before, now, others)
    else:
        patch, rest = _of_ends(before, now, others)
    return [*(now[name] for name in (*whole, *rest)), *([] if patch is None else [patch])]


def _of_rows(before: pl.DataFrame, now: pl.DataFrame, names: list[str]) -> tuple[Patch | None, list[str]]:
    """Of two tables of one height the rows that differ, and columns in which those are too many."""
    differ = {name: places for name in names if len(places := _differ(before[name], now[name]))}
    few = [name for name, places in differ.items() if _are_few(*_stretches(places), now.height)]
    if not few:
        return None, list(differ)
    there = np.zeros(now.height, np.bool_)
    for name in few:
        there[differ[name]] = True
    starts, ends = _stretches(np.flatnonzero(there))
    if not _are_few(starts, ends, now.height):
        return None, list(differ)
    middle = now.select(few)[places_of(starts, ends)]
    patch = Patch(starts.tolist(), ends.tolist(), (ends - starts).tolist(), middle)
    return patch, [name for name in differ if name not in few]


def _of_ends(before: pl.DataFrame, now: pl.DataFrame, names: list[str]) -> tuple[Patch | None, list[str]]:
    """Of two tables the rows between the first ones and the last ones that are the same in both."""
    found = {name: ends for name in names if (ends := _ends(before[name], now[name])) is not None}
    if not found:
        return None, names
    head, tail = (min(each) for each in zip(*found.values(), strict=True))
    return _cut(before.select(list(found)), now.select(list(found)), head, tail), [n for n in names if n not in found]


def _ends(before: _Column, now: _Column) -> tuple[int, int] | None:
    """How many values at the beginning, and at the end, are the same; None if that is not most of them."""
    common = min(len(before), len(now))
    ahead = _differ(before[:common], now[:common])
    behind = _differ(before[len(before) - common :], now[len(now) - common :])
    head = int(ahead[0]) if len(ahead) else common
    tail = min(common - 1 - int(behind[-1]) if len(behind) else common, common - head)
    return (head, tail) if head + tail > common // 2 else None


def _cut(before: Table, now: Table, head: int, tail: int) -> Patch:
    """Without so many rows at the beginning and at the end."""
    return Patch([head], [len(before) - tail], [len(now) - tail - head], now[head : len(now) - tail])


def _are_few(starts: Places, ends: Places, height: int) -> bool:
    return len(starts) <= MOST and 2 * int((ends - starts).sum()) <= height


def _stretches(differ: Places) -> tuple[Places, Places]:
    """Where stretches begin and end that hold all these places; what is between two of them is worth leaving out."""
    far = np.flatnonzero(np.diff(differ) > LEAST)
    starts = np.concatenate([differ[:1], differ[far + 1]])
    return starts, np.concatenate([differ[far], differ[-1:]]) + 1


def _differ(one: _Column, other: _Column) -> Places:
    """Places at which two columns of one length differ; nulls are equal."""
    if isinstance(one, pl.Series) and isinstance(other, pl.Series):
        if one.null_count() or other.null_count() or not one.dtype.is_numeric():
            return _differ_by_polars(one, other)
        one, other = one.to_numpy(), other.to_numpy()
    first, second = np.asarray(one), np.asarray(other)
    # a column that was not touched is often the same memory
    same = first.__array_interface__["data"][0] == second.__array_interface__["data"][0]
    return np.zeros(0, np.int64) if same and first.strides == second.strides else np.flatnonzero(first != second)


def _differ_by_polars(one: pl.Series, other: pl.Series) -> Places:
    if one.equals(other):
        return np.zeros(0, np.int64)
    found: Places = one.to_physical().ne_missing(other.to_physical()).arg_true().to_numpy()
    return found
