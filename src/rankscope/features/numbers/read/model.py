"""Rows of one file of tensor summaries, and their form between processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.parsers.contents import StackFrame
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.members import Members, unpack_members
from rankscope.parsers.safe_values import safe_text

Floats = npt.NDArray[np.float64]
DEFAULT_GROUP = "default group"
"""Name of the group of a call that names none; its members are not written, and it has all ranks that are there."""
SAMPLES = 64
"""Most sampled elements of a tensor."""
PLAIN = ("step", "micro", "order", "occurrence", "slice", "seq", "root", "peer", "numel", "nan", "inf", "zeros")
"""Number columns that hold the number of the key with their name, `NULL` for none."""
NUMBERS = ("line", "header", *PLAIN, "stack", "recompute", "hash", "told", "held", "sampled")
"""Number columns: `header` is the place of the header above the row, `stack` the number of the stack in the file.

`hash` holds 64 bits. Bits of `told` say which floats the row has: bit 0 is the hash, then those of `FLOATS`. Bits of
`held` say which of the samples it has; `sampled` is how many bytes they take. `recompute` is 0 or 1.
"""
SUMMED = ("all_reduce", "reduce_scatter", "reduce")
"""Operations whose samples the rules of one run compare."""
FLOATS = ("sum", "l2", "min", "max", "projection")
CODES = (
    "site", "name", "slot", "group", "op", "reduce_op", "dtype", "placements", "mesh", "md5", "shape", "offsets",
    "global_shape",
)  # fmt: skip
"""Columns of places in the tables of texts and of sizes; -1 for none."""
SIZES = ("shape", "offsets", "global_shape")
"""Those of `CODES` that hold lists of numbers."""


class NumbersHeader(NamedTuple):
    """The first line of a file, or of a part that was appended to it."""

    rank: int | None
    """None if only the path of the file tells it."""
    run: str
    world_size: int | None
    host: str
    pid: int | None
    time_ns: int | None
    settings: Sequence[Sequence[str]] = ()
    """Pairs of a name and a value: settings that decide numbers, seeds, and hashes of random states."""


class NumbersGroup(NamedTuple):
    """A process group of the rank."""

    name: str
    description: str
    ranks: Members


Narrow = npt.NDArray[np.signedinteger[Any]]
_KINDS: Mapping[int, type[np.signedinteger[Any]]] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
"""Integers by their bytes."""


def narrowed(column: Numbers) -> Narrow:
    """A column in the smallest integers that hold it, in which the smallest stands for `NULL`."""
    gone = column == NULL
    known = column[~gone] if gone.any() else column
    low, high = (int(known.min()), int(known.max())) if len(known) else (0, 0)
    for kind in (np.int8, np.int16, np.int32):
        limits = np.iinfo(kind)
        if limits.min < low and high <= limits.max:
            return np.where(gone, np.int64(limits.min), column).astype(kind)
    return column


def widened(column: Narrow) -> Numbers:
    """The column that `narrowed` was given."""
    if column.dtype == np.int64:
        return column.astype(np.int64, copy=False)
    return np.where(column == np.iinfo(column.dtype).min, np.int64(NULL), column)


@dataclass
class NumbersContent:
    """The rows of one file."""

    headers: list[NumbersHeader] = field(default_factory=list)
    groups: list[NumbersGroup] = field(default_factory=list)
    stacks: dict[int, list[StackFrame]] = field(default_factory=dict)
    """Frames of each stack by its number, innermost first."""
    texts: list[str] = field(default_factory=list)
    sizes: list[list[int]] = field(default_factory=list)
    random_states: Sequence[Sequence[Any]] = ()
    """Step, name of the generator and hash of its state, for the first recorded steps."""
    dropped: int = 0
    """Rows that the recorder dropped, by its own count."""
    problem: str | None = None
    tool: str = ""
    """The other tool that wrote the file; "" for the capture."""
    calls: list[str] = field(default_factory=list)
    """Names of the calls whose stacks stand in a file beside it; `stack` counts them."""
    rows: int = 0
    """Number of tensors."""
    columns: Mapping[str, Narrow] = field(default_factory=dict)
    """Columns of `NUMBERS` and of `CODES` by name, each in the smallest integers that hold it; see `narrowed`."""
    floats: Floats = field(default_factory=lambda: np.empty((len(FLOATS), 0), np.float64))
    samples: bytes | memoryview = b""
    """Samples of all rows, one after the other: little-endian float32 where that is exact, else float64."""

    def column(self, name: str) -> Numbers:
        """The number column of this name, `NULL` for none."""
        return widened(self.columns[name]) if self.rows else np.empty(0, np.int64)

    def code(self, name: str) -> Narrow:
        """The code column of this name."""
        return self.columns[name] if self.rows else np.empty(0, np.int8)

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""
        return {
            "headers": [list(one) for one in self.headers],
            "groups": [[one.name, one.description, one.ranks.packed] for one in self.groups],
            "stacks": [[number, [list(frame) for frame in frames]] for number, frames in self.stacks.items()],
            "texts": self.texts, "sizes": self.sizes, "dropped": self.dropped, "problem": self.problem,
            "tool": self.tool, "calls": self.calls, "random_states": self.random_states,
            "columns": [[name, one.dtype.itemsize] for name, one in self.columns.items()],
        }  # fmt: skip

    @property
    def is_consistent(self) -> bool:
        """Whether the samples are as many as the rows say."""
        count = np.unpackbits(self.column("held").view(np.uint8)).reshape(-1, SAMPLES).sum(axis=1, dtype=np.int64)
        size = self.column("sampled")
        fits = (size == 4 * count) | (size == 8 * count)
        return bool(fits.all()) and int(size.sum()) == len(self.samples)

    def body(self) -> list[memoryview]:
        """The arrays as bytes."""
        arrays: tuple[npt.NDArray[Any], ...] = (self.floats, *self.columns.values())
        return [*(np.ascontiguousarray(one).data.cast("B") for one in arrays if one.size), memoryview(self.samples)]


def numbers_from(header: dict[str, Any], body: memoryview, rows: int) -> NumbersContent:
    """The content whose `header()` and `body()` these are; the arrays are views of `body`.

    Raises ValueError if they are those of none.
    """
    place = len(FLOATS) * rows * 8
    floats = np.frombuffer(body[:place], np.float64).reshape(len(FLOATS), rows)
    columns: dict[str, Narrow] = {}
    for name, width in header["columns"]:
        columns[name] = np.frombuffer(body[place : place + rows * width], _KINDS[width])
        place += rows * width
    found = NumbersContent(
        headers=[NumbersHeader(*row)._replace(settings=tuple(map(tuple, row[-1]))) for row in header["headers"]],
        groups=[NumbersGroup(name, text, unpack_members(ranks)) for name, text, ranks in header["groups"]],
        stacks={number: [StackFrame(*frame) for frame in frames] for number, frames in header["stacks"]},
        texts=header["texts"], sizes=header["sizes"], dropped=header["dropped"], problem=header["problem"],
        tool=header["tool"], calls=header["calls"], random_states=header["random_states"],
        rows=rows, columns=columns, floats=floats, samples=body[place:],
    )  # fmt: skip
    if rows and not found.is_consistent:
        raise ValueError("columns that do not fit together")
    return found


SEED = "seed"
"""The name of the seed of torch among the random states of a step."""
HEADER_SETTINGS = {"torch": "version:torch", "level": "numbers level", "every": "numbers every", "mode": "numbers mode"}
"""Names of settings, by the keys of the header that tell them."""
MOST_SETTINGS = 512
MOST_STEPS = 4
"""Steps of a file whose random states are kept: the first ones tell whether two runs began alike."""
_PARTS = {"rng": "random state ", "environment": "", "code": ""}
"""Beginnings of the names of settings in an object of that key. Others are of torch, or variables."""


def header_settings(columns: Mapping[str, Any], settings: object) -> tuple[tuple[str, str], ...]:
    """The settings of a header with their names among those of a job; `told` is its object of settings."""
    pairs = [(HEADER_SETTINGS[key], text) for key, text in named_values(columns)]
    if isinstance(settings, dict):
        pairs += [(key if key.isupper() else f"torch.{key}", text) for key, text in named_values(settings)]
        for key, begin in _PARTS.items():
            pairs += [(begin + name, text) for name, text in named_values(settings.get(key))]
    return tuple(pairs[:MOST_SETTINGS])


def named_values(settings: object) -> Iterator[tuple[str, str]]:
    """Names and values of an object in a file, as text; all but texts and numbers is left out."""
    for key, value in list(settings.items())[:MOST_SETTINGS] if isinstance(settings, dict) else ():
        if isinstance(value, str | int | float):
            yield safe_text(str(key)) or "", safe_text(str(value)) or ""
