"""The activity of a span: one byte, with its letter, its meaning and its style."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.tui.letters import BUSY, COPY, HOST, LETTERS, PATIENT, Codes, Mark, letter_number

WINDOW, PYTHON, OP, LAUNCH, DATA, SYNC, MEMORY, COMPUTE = range(8)
"""The window of the profiler, then activities of hosts, the outer before the inner, then activities of devices."""
MOVING = 16
"""A collective with all its members there; the number of its letter is added."""
WAITING = 32
"""A collective in which this rank waits for the last member; the number of its letter is added."""
NAMED = 8
"""A stretch of the host with a name from the user."""
NOTHING = 255
"""Hidden spans: those around everything, and those that mirror others."""
COUNT = 48
"""One more than the highest activity."""


_PENDING = int(Mark.SCHEDULED)


@dataclass(frozen=True)
class Kind:
    """The look of an activity."""

    letter: str
    meaning: str
    style: int
    """As `palette.cell_style` numbers them."""


KINDS: dict[int, Kind] = {
    COMPUTE: Kind("#", "compute", BUSY),
    MEMORY: Kind("m", "copy", COPY),
    OP: Kind("h", "host", HOST),
    LAUNCH: Kind("l", "launch", HOST),
    SYNC: Kind("s", "sync", PATIENT),
    DATA: Kind("d", "data", COPY),
    PYTHON: Kind("p", "Python", HOST),
    NAMED: Kind("u", "user's range", HOST),
    **{MOVING + at: Kind(letter, name, Mark.DONE) for at, (letter, name, _) in enumerate(LETTERS)},
    **{WAITING + at: Kind(letter.lower(), f"{name} waits", _PENDING) for at, (letter, name, _) in enumerate(LETTERS)},
}  # fmt: skip
"""Activities that have a letter."""
IDLE, BOTH, SPARSE = ".", "&", ":"
"""Characters of cells without, with two, and with little activity."""
CODE_OF_BOTH, CODE_OF_SPARSE = COUNT, COUNT + 1
"""Codes of cells beside those of activities."""

HOST_KINDS = (PYTHON, NAMED, OP, LAUNCH, DATA, SYNC)
"""Activities of hosts; of activities with equal time the last is shown."""
COMMUNICATION = range(MOVING, COUNT)

_CATEGORIES = {
    "cpu_op": OP, "python_function": PYTHON, "cuda_runtime": LAUNCH, "cuda_driver": LAUNCH, "mtia_runtime": LAUNCH,
    "xpu_runtime": LAUNCH, "cuda_sync": SYNC, "kernel": COMPUTE, "mtia_ccp_events": COMPUTE, "gpu_memcpy": MEMORY,
    "gpu_memset": MEMORY, "user_annotation": NAMED, "collective_comm": MOVING,
}  # fmt: skip
"""Activities of the categories of a trace; others only name their content (Kineto's ActivityType)."""

_AROUND = NAMED
_WRAPPERS = ("ProfilerStep#", "nccl:", "gloo:", "ucc:", "mpi:")
"""Annotations around a whole step, and those that torch puts around each collective."""
_LOADING = ("dataload", "data_load", "data load")
"""Parts of the names of spans that load data, in small letters."""


def activities(spans: pl.DataFrame, ops: pl.DataFrame) -> Codes:
    """The activity of each span; `ops` are the rows of `traced` that the spans execute."""
    kinds = spans["category"].cast(pl.String).replace_strict(_CATEGORIES, default=NOTHING, return_dtype=pl.UInt8)
    out: Codes = kinds.to_numpy().copy()
    by_name = _by_name(spans["name"])
    codes = spans["name"].to_physical().fill_null(0).to_numpy()
    named = np.zeros(int(codes.max(initial=0)) + 1, np.uint8)
    for code, kind in by_name:
        named[code] = kind
    hint = named[codes]
    out = np.where((hint == SYNC) & (out == LAUNCH), SYNC, out)
    out = np.where((hint == DATA) & np.isin(out, (NAMED, PYTHON, OP)), DATA, out)
    out = np.where((hint == _AROUND) & (out == NAMED), NOTHING, out)
    out = np.where((hint >= MOVING) & (out == COMPUTE), hint, out)
    row = spans["op"]
    known = row.is_not_null().to_numpy()
    letters = MOVING + _letters(ops)[row.drop_nulls().to_numpy()]
    out[known] = letters
    return out.astype(np.uint8)


def _letters(ops: pl.DataFrame) -> Codes:
    names = ops["op"].cast(pl.String)
    numbers = {name: letter_number(name) for name in names.unique().to_list() if name is not None}
    return names.replace_strict(numbers, default=0, return_dtype=pl.UInt8).fill_null(0).to_numpy()


def _by_name(names: pl.Series) -> list[tuple[int, int]]:
    """Activities that names show beyond their category: (code of the name, activity)."""
    table = pl.DataFrame({"code": names.to_physical(), "name": names}).drop_nulls().unique("code")
    out = []
    for code, text in table.with_columns(pl.col("name").cast(pl.String)).iter_rows():
        kind = _named(text or "")
        if kind:
            out.append((code, kind))
    return out


def _named(name: str) -> int:
    if name.startswith(("ncclKernel", "ncclDevKernel", "rcclGeneric", "ncclGeneric")):
        return MOVING + letter_number(name)
    if "Synchronize" in name:
        return SYNC
    if name.startswith(_WRAPPERS):
        return _AROUND
    return DATA if any(part in name.lower() for part in _LOADING) else 0


STEP = "|"
"""The character at the begin of a step, in cells in which nothing ran."""


def letters() -> list[tuple[str, str]]:
    """The letters of the lanes and their meaning, for the help."""
    return [
        ("A", "a collective moves data: all its members are there"),
        ("a", "a collective waits for the last of its members"),
        ("#", "a device computes"), (":", "a device computes for less than half of the cell"),
        ("&", "a device computes while a collective moves data"), ("m", "a device copies"),
        ("h", "the host runs an operation"), ("l", "the host launches, or calls the driver"),
        ("s", "the host waits for its device"), ("d", "the host loads data"), ("p", "the host runs Python"),
        ("u", "the host is in a range that the user has named"), (".", "nothing ran"),
        (STEP, "a step begins"), (" ", "the profiler was off"),
    ]  # fmt: skip


def legend(codes: Codes, *, has_steps: bool = False) -> list[str]:
    """The meaning of each of the letters of these codes of cells, the most important first; `has_steps` adds STEP."""
    present = set(codes.tolist())
    moving = [a for a in sorted(present) if MOVING <= a < WAITING]
    rest = [a for a in (DATA, OP, SYNC, LAUNCH, PYTHON, NAMED, MEMORY) if a in present]
    words = {
        **{_word(a): a for a in moving[:2]}, _word(COMPUTE): COMPUTE,
        "lower case waits": next((a for a in present if WAITING <= a < COUNT), -1),
        **{_word(a): a for a in rest}, f"{BOTH} both": CODE_OF_BOTH, f"{SPARSE} computes in part": CODE_OF_SPARSE,
        **{_word(a): a for a in moving[2:]}, f"{IDLE} idle": WINDOW,
    }  # fmt: skip
    return [*(word for word, code in words.items() if code in present), *([f"{STEP} step begins"] if has_steps else [])]


def _word(activity: int) -> str:
    return f"{KINDS[activity].letter} {KINDS[activity].meaning}"
