"""Sends objects with large tables between two processes of this program, in pieces, and of these what is new.

Unpickling holds up every other thread of a process until it is done. In one piece, an update of a big job takes as long
as a key may; column by column, keys get in between. What the other end has of the time before is not sent again.
"""

from __future__ import annotations

import io
import pickle
from itertools import zip_longest
from multiprocessing.connection import Connection
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.commands.patches import Patch, Piece, patch, patched

LARGE = 1 << 16
"""Tables of so many cells, and arrays of so many bytes, are sent apart from what they belong to."""
_PROTOCOL = 5
Table = pl.DataFrame | npt.NDArray[Any]


class _Packer(pickle.Pickler):
    """Leaves large tables out, and keeps them, each once."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _PROTOCOL)
        self.tables: dict[int, tuple[int, Table]] = {}
        """By identity the number of a table."""

    def persistent_id(self, obj: object) -> int | None:
        """The number of a large table."""
        if not _is_large(obj):
            return None
        return self.tables.setdefault(id(obj), (len(self.tables), obj))[0]


class _Unpacker(pickle.Unpickler):
    """Puts large tables where they were."""

    def __init__(self, data: bytes, tables: list[Table]) -> None:
        super().__init__(io.BytesIO(data))
        self._tables = tables

    def persistent_load(self, pid: int) -> Table:
        """The table with a number."""
        return self._tables[pid]


class Sender:
    """One end, which remembers what the other one has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sent: list[Table] = []

    def send(self, thing: object) -> None:
        """Sends anything that can be pickled. Raises OSError if the other end is gone."""
        file = io.BytesIO()
        packer = _Packer(file)
        packer.dump(thing)
        tables = [table for _, table in packer.tables.values()]
        told = [_news(before, now) for before, now in zip_longest(self._sent[: len(tables)], tables)]
        self._connection.send([len(pieces) for pieces in told])
        for pieces in told:
            for piece in pieces:
                self._connection.send_bytes(pickle.dumps(piece, _PROTOCOL))
        self._connection.send_bytes(file.getbuffer())
        self._sent = tables or self._sent


class Receiver:
    """The other end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._got: list[Table] = []

    def receive(self) -> Any:
        """What was sent. Raises EOFError or OSError if the other end is gone."""
        connection = self._connection
        counts: list[int] = connection.recv()
        before = [*self._got, *[None] * len(counts)]
        tables = [_joined(before[i], [connection.recv() for _ in range(count)]) for i, count in enumerate(counts)]
        self._got = tables or self._got
        return _Unpacker(connection.recv_bytes(), tables).load()


def _is_large(thing: object) -> TypeGuard[Table]:
    if isinstance(thing, np.ndarray):
        return thing.nbytes >= LARGE and not thing.dtype.hasobject
    return type(thing) is pl.DataFrame and thing.width > 0 and thing.height * thing.width >= LARGE


def _news(before: Table | None, now: Table) -> list[Piece | Patch]:
    """The pieces of a table, as far as they are not what they were; none of them if it is the same table."""
    if before is now:
        return []
    old = _pieces(before) if type(before) is type(now) and before is not None else []
    return [patch(one, other) for one, other in zip_longest(old[: len(_pieces(now))], _pieces(now))]


def _pieces(table: Table) -> list[Piece]:
    return list(table.iter_columns()) if isinstance(table, pl.DataFrame) else [table]


def _joined(before: Table | None, told: list[Piece | Patch]) -> Table:
    if not told:
        assert before is not None
        return before
    old = [*(_pieces(before) if before is not None else []), *[None] * len(told)]
    pieces = [patched(one, piece) for one, piece in zip(old, told, strict=False)]
    columns = [piece for piece in pieces if isinstance(piece, pl.Series)]
    table: Table = pl.DataFrame(columns) if columns else cast("npt.NDArray[Any]", pieces[0])
    return table
