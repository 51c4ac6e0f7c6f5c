"""Sends objects with large tables between two processes of this program, in pieces.

Unpickling holds up every other thread of a process until it is done. In one piece, an update of a big job takes as long
as a key may; column by column, keys get in between.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import polars as pl

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


def send(connection: Connection, thing: object) -> None:
    """Sends anything that can be pickled. Raises OSError if the other end is gone."""
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(thing)
    tables = [list(_pieces(table)) for _, table in packer.tables.values()]
    connection.send([len(pieces) for pieces in tables])
    for pieces in tables:
        for piece in pieces:
            connection.send_bytes(pickle.dumps(piece, _PROTOCOL))
    connection.send_bytes(file.getbuffer())


def receive(connection: Connection) -> Any:
    """What `send` sent. Raises EOFError or OSError if the other end is gone."""
    counts: list[int] = connection.recv()
    tables = [_joined([connection.recv() for _ in range(count)]) for count in counts]
    return _Unpacker(connection.recv_bytes(), tables).load()


def _is_large(thing: object) -> TypeGuard[Table]:
    if isinstance(thing, np.ndarray):
        return thing.nbytes >= LARGE and not thing.dtype.hasobject
    return type(thing) is pl.DataFrame and thing.width > 0 and thing.height * thing.width >= LARGE


def _pieces(table: Table) -> Iterator[Table | pl.Series]:
    if isinstance(table, pl.DataFrame):
        yield from table.iter_columns()
    else:
        yield table


def _joined(pieces: list[Any]) -> Table:
    table: Table = pl.DataFrame(pieces) if isinstance(pieces[0], pl.Series) else pieces[0]
    return table
