"""Sends objects with large tables from one process of this program to another: tables as polars IPC, shared memory.

Unpickling holds up every other thread of a process until it is done: of a big job as long as a key may take. Polars
reads a table while the other threads go on.
"""

from __future__ import annotations

import io
import os
import pickle
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import polars as pl

LARGE = 1 << 13
"""Tables and arrays of so many bytes are sent apart from what they belong to."""
_PROTOCOL = 5
_COLUMN = "values"
_Table = pl.DataFrame | npt.NDArray[Any]


class _Packer(pickle.Pickler):
    """Leaves large tables out, and keeps them, each once."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _PROTOCOL)
        self.tables: dict[int, tuple[int, _Table]] = {}
        """By identity the number of a table."""

    def reducer_override(self, obj: object) -> Any:
        """A call for the number of a large table; asked for nothing that Python itself has a type for."""
        if not _is_large(obj):
            return NotImplemented
        number, _ = self.tables.setdefault(id(obj), (len(self.tables), obj))
        return _table, (number, obj.shape if isinstance(obj, np.ndarray) else None)


class _Unpacker(pickle.Unpickler):
    """Puts large tables where they were."""

    def __init__(self, data: bytes, tables: list[pl.DataFrame]) -> None:
        super().__init__(io.BytesIO(data))
        self._tables = tables

    def find_class(self, module: str, name: str) -> Any:
        """The callable of that name, as the object was packed with it."""
        ours = (module, name) == (__name__, _table.__name__)
        return self._given if ours else super().find_class(module, name)

    def _given(self, number: int, shape: tuple[int, ...] | None) -> _Table:
        table = self._tables[number]
        return table if shape is None else table[_COLUMN].to_numpy().reshape(shape)


def _table(number: int, _shape: tuple[int, ...] | None) -> _Table:
    """Stands in what is sent for the table with a number."""
    raise LookupError(f"table {number} was sent apart")


def send(connection: Connection, thing: object) -> None:
    """Sends anything that can be pickled. Raises OSError if the other end is gone, or if there is no memory left."""
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(thing)
    connection.send(len(packer.tables))
    for _, table in packer.tables.values():
        descriptor = os.memfd_create("rankscope")
        try:
            frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame({_COLUMN: table.reshape(-1)})
            with open(descriptor, "wb", closefd=False) as shared:
                frame.write_ipc(shared, compression="uncompressed")
            send_handle(connection, descriptor, 0)
        finally:
            os.close(descriptor)
    connection.send_bytes(file.getvalue())


def receive(connection: Connection) -> Any:
    """What was sent. Raises EOFError or OSError if the other end is gone."""
    tables = [_mapped(recv_handle(connection)) for _ in range(connection.recv())]
    return _Unpacker(connection.recv_bytes(), tables).load()


def _mapped(descriptor: int) -> pl.DataFrame:
    try:
        return pl.read_ipc(f"/proc/self/fd/{descriptor}").rechunk()
    finally:
        os.close(descriptor)


def _is_large(thing: object) -> TypeGuard[_Table]:
    if isinstance(thing, np.ndarray):
        return thing.nbytes >= LARGE and thing.dtype.kind in "iufb"
    return type(thing) is pl.DataFrame and thing.width > 0 and thing.estimated_size() >= LARGE
