"""Rows of one file of tensor summaries, and their form between processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.parsers.contents import StackFrame
from rankscope.parsers.matrices import Codes, ColumnMatrix, Numbers
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
`held` say which of the samples it has; `sampled` is its row among the samples. `recompute` is 0 or 1.
"""
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


@dataclass
class NumbersContent(ColumnMatrix):
    """The rows of one file."""

    number_names = NUMBERS
    code_names = CODES

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
    numbers: Numbers = field(default_factory=lambda: np.empty((len(NUMBERS), 0), np.int64))
    codes: Codes = field(default_factory=lambda: np.empty((len(CODES), 0), np.int32))
    floats: Floats = field(default_factory=lambda: np.empty((len(FLOATS), 0), np.float64))
    samples: Sequence[Floats] = ()
    """Arrays of shape (rows, SAMPLES), one after the other: a row for each tensor that has samples."""

    @property
    def rows(self) -> int:
        """Number of tensors."""
        return int(self.numbers.shape[1])

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""
        return {
            "headers": [list(one) for one in self.headers],
            "groups": [[one.name, one.description, one.ranks.packed] for one in self.groups],
            "stacks": [[number, [list(frame) for frame in frames]] for number, frames in self.stacks.items()],
            "texts": self.texts, "sizes": self.sizes, "dropped": self.dropped, "problem": self.problem,
            "tool": self.tool, "calls": self.calls,
            "random_states": self.random_states,
            "sampled": sum(len(one) for one in self.samples),
        }  # fmt: skip

    def body(self) -> list[memoryview]:
        """The arrays as bytes."""
        arrays: tuple[npt.NDArray[Any], ...] = (self.numbers, self.codes, self.floats, *self.samples)
        return [np.ascontiguousarray(one).data.cast("B") for one in arrays if one.size]


def numbers_from(header: dict[str, Any], body: memoryview, rows: int) -> NumbersContent:
    """The content whose `header()` and `body()` these are; the arrays are views of `body`."""
    arrays, place = [], 0
    shapes: tuple[tuple[int, int, Any], ...] = (
        (len(NUMBERS), rows, np.int64), (len(CODES), rows, np.int32), (len(FLOATS), rows, np.float64),
        (header["sampled"], SAMPLES, np.float64),
    )  # fmt: skip
    for first, second, kind in shapes:
        size = first * second * np.dtype(kind).itemsize
        arrays.append(np.frombuffer(body[place : place + size], kind).reshape(first, second))
        place += size
    return NumbersContent(
        headers=[NumbersHeader(*row)._replace(settings=tuple(map(tuple, row[-1]))) for row in header["headers"]],
        groups=[NumbersGroup(name, text, unpack_members(ranks)) for name, text, ranks in header["groups"]],
        stacks={number: [StackFrame(*frame) for frame in frames] for number, frames in header["stacks"]},
        texts=header["texts"], sizes=header["sizes"], dropped=header["dropped"], problem=header["problem"],
        tool=header["tool"], calls=header["calls"],
        random_states=header["random_states"],
        numbers=arrays[0], codes=arrays[1], floats=arrays[2], samples=(arrays[3],),
    )  # fmt: skip


# Settings in the header of a file.

HEADER_SETTINGS = {"torch": "version:torch", "level": "numbers level", "every": "numbers every", "mode": "numbers mode"}
"""Names of settings, by the keys of the header that tell them."""
MOST_SETTINGS = 512
MOST_STEPS = 4
"""Steps of a file whose random states are kept: the first ones tell whether two runs began alike."""
_PARTS = {"rng": "random state ", "environment": ""}
"""Beginnings of the names of settings in an object of that key. Others are of torch, or variables."""


def header_settings(own: Mapping[str, Any], told: object) -> tuple[tuple[str, str], ...]:
    """The settings of a header with their names among those of a job; `told` is its object of settings."""
    found = [(HEADER_SETTINGS[key], text) for key, text in named_values(own)]
    if isinstance(told, dict):
        found += [(key if key.isupper() else f"torch.{key}", text) for key, text in named_values(told)]
        for key, begin in _PARTS.items():
            found += [(begin + name, text) for name, text in named_values(told.get(key))]
    return tuple(found[:MOST_SETTINGS])


def named_values(told: object) -> Iterator[tuple[str, str]]:
    """Names and values of an object in a file, as text; all but texts and numbers is left out."""
    for key, value in list(told.items())[:MOST_SETTINGS] if isinstance(told, dict) else ():
        if isinstance(value, str | int | float):
            yield safe_text(str(key)) or "", safe_text(str(value)) or ""
