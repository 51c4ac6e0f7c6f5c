"""Sends objects with large tables between two processes of this program, in pieces, and of these what is new.

Unpickling holds up every other thread of a process until it is done. In one piece, an update of a big job takes as long
as a key may; column by column, keys get in between. What the other end has of the time before is not sent again.
"""

from __future__ import annotations

import io
import pickle
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import polars as pl

from rankscope.commands.patches import Table, Told, news, of_splice, renewed

if TYPE_CHECKING:
    from rankscope.tui.live.spliced import Spliced

LARGE = 1 << 13
"""Tables and arrays of so many bytes are sent apart from what they belong to."""
PARCEL = 1 << 16
"""Pieces are sent together up to so many bytes."""
_PROTOCOL = 5


class _Packer(pickle.Pickler):
    """Leaves large tables out, and keeps them, each once."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _PROTOCOL)
        self.tables: dict[int, tuple[int, Table]] = {}
        """By identity the number of a table."""

    def reducer_override(self, obj: object) -> Any:
        """A call for the number of a large table; asked for nothing that Python itself has a type for."""
        if not _is_large(obj):
            return NotImplemented
        return _table, (self.tables.setdefault(id(obj), (len(self.tables), obj))[0],)


class _Unpacker(pickle.Unpickler):
    """Puts large tables where they were."""

    def __init__(self, data: bytes, tables: list[Table]) -> None:
        super().__init__(io.BytesIO(data))
        self._tables = tables

    def find_class(self, module: str, name: str) -> Any:
        """What is called when it is unpacked."""
        ours = (module, name) == (__name__, _table.__name__)
        return self._tables.__getitem__ if ours else super().find_class(module, name)


def _table(number: int) -> Table:
    """Stands in what is sent for the table with a number."""
    raise LookupError(f"table {number} was sent apart")


class Sender:
    """One end, which remembers what the other one has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sent: list[Table] = []

    def send(self, thing: object, spliced: Sequence[Spliced] = ()) -> None:
        """Sends anything that can be pickled. Raises OSError if the other end is gone.

        `spliced` tells of tables in it how they were made of those that were sent last.
        """
        file = io.BytesIO()
        packer = _Packer(file)
        packer.dump(thing)
        tables = [table for _, table in packer.tables.values()]
        before, made = versions(self._sent, tables), {id(one.now): one for one in spliced}
        told = [
            self._news(at, table, made.get(id(table))) for at, table in zip(before, tables, strict=True)
        ]  # fmt: skip
        self._connection.send([(at, len(pieces)) for at, pieces in zip(before, told, strict=True)])
        pieces = (pickle.dumps(piece, _PROTOCOL) for piece in chain.from_iterable(told))
        for parcel in _parcels(chain(pieces, [file.getvalue()])):
            self._connection.send_bytes(pickle.dumps(parcel, _PROTOCOL))
        self._sent = tables or self._sent

    def _news(self, at: int | None, table: Table, made: Spliced | None) -> list[Told]:
        before = None if at is None else self._sent[at]
        return of_splice(made) if made is not None and made.before is before else news(before, table)


class Receiver:
    """The other end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._got: list[Table] = []

    def receive(self) -> Any:
        """What was sent. Raises EOFError or OSError if the other end is gone."""
        counts: list[tuple[int | None, int]] = self._connection.recv()
        pieces = self._pieces()
        tables: list[Table] = []
        for at, count in counts:
            told: list[Told] = [_Unpacker(piece, []).load() for piece in islice(pieces, count)]
            tables.append(renewed(None if at is None else self._got[at], told))
        self._got = tables or self._got
        return _Unpacker(next(pieces), tables).load()

    def _pieces(self) -> Iterator[bytes]:
        while True:
            yield from self._connection.recv()


def versions(before: Sequence[Table], now: Sequence[Table]) -> list[int | None]:
    """For each table the place of the one that it is a newer version of: the next with the same columns."""
    places: dict[object, deque[int]] = defaultdict(deque)
    for place, table in enumerate(before):
        places[_kind(table)].append(place)
    return [theirs.popleft() if (theirs := places[_kind(table)]) else None for table in now]


def _kind(table: Table) -> object:
    return (table.dtype, table.ndim) if isinstance(table, np.ndarray) else tuple(table.schema.items())


def _parcels(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Pieces, small ones together."""
    parcel: list[bytes] = []
    size = 0
    for piece in pieces:
        if parcel and size + len(piece) > PARCEL:
            yield parcel
            parcel, size = [], 0
        parcel.append(piece)
        size += len(piece)
    yield parcel


def _is_large(thing: object) -> TypeGuard[Table]:
    if isinstance(thing, np.ndarray):
        return thing.nbytes >= LARGE and not thing.dtype.hasobject
    return type(thing) is pl.DataFrame and thing.width > 0 and thing.estimated_size() >= LARGE
