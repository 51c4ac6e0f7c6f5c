"""A line of a file of tensor summaries with the limits of its values, and its samples as bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from rankscope.features.numbers.read.model import SAMPLES, SUMMED
from rankscope.parsers.contents import SAMPLES_VARIABLE
from rankscope.parsers.matrices import NULL
from rankscope.parsers.safe_values import RANK_LIMIT

Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=RANK_LIMIT)]
Short = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Real = float | Literal["NaN", "Infinity", "-Infinity"]
Size = Annotated[tuple[Whole, ...], msgspec.Meta(max_length=16)]
Frames = Annotated[list[tuple[Text, Text, Whole]], msgspec.Meta(max_length=256)]
Ranks = Annotated[list[Rank], msgspec.Meta(max_length=RANK_LIMIT)]
Single = Annotated[bytes, msgspec.Meta(max_length=4 * SAMPLES)]
Double = Annotated[bytes, msgspec.Meta(max_length=8 * SAMPLES)]
"""Little-endian numbers, in the file as base64."""
NOTHING = msgspec.Raw()


class NumbersLine(msgspec.Struct, gc=False):
    """Any line of the file: a header, a group, a stack, a tensor, the end of a step or of a part; keys that nobody asks
    for are left out. Samples stay text until somebody compares them; a number that is left out is `NULL`."""

    site: Text | None = None
    step: Whole | None = NULL
    order: Whole | None = NULL
    micro: Short | None = NULL
    name: Text = ""
    occurrence: Short | None = NULL
    slot: Text | None = None
    slice: Short | None = NULL
    group: Text | None = None
    seq: Whole | None = NULL
    op: Text | None = None
    reduce_op: Text | None = None
    root: Short | None = NULL
    peer: Short | None = NULL
    dtype: Text | None = None
    numel: Whole | None = NULL
    shape: Size | None = None
    offsets: Size | None = None
    global_shape: Size | None = None
    placements: Text | None = None
    mesh: Text | None = None
    hash: Text | None = None
    sum: Real | None = None
    l2: Real | None = None
    min: Real | None = None
    max: Real | None = None
    nan: Whole | None = NULL
    inf: Whole | None = NULL
    zeros: Whole | None = NULL
    projection: Real | None = None
    samples: msgspec.Raw = NOTHING
    samples_f32: Single | None = None
    samples_f64: Double | None = None
    sample_at: msgspec.Raw = NOTHING
    recompute: bool | None = None
    stack_id: Whole | None = NULL
    md5: Text | None = None
    ranks: Ranks | None = None
    description: Text = ""
    stack: Whole | None = None
    frames: Frames | None = None
    rankscope_numbers: Whole | None = None
    rank: Rank | None = None
    run: Text = ""
    world_size: Whole | None = None
    host: Text = ""
    pid: Whole | None = None
    time_ns: Whole | None = None
    torch: Any = None
    level: Any = None
    every: Any = None
    mode: Any = None
    settings: Any = None
    end_of_step: Whole | None = None
    rng: Any = None
    seed: Any = None
    dropped: Whole | None = None


_VALUES = msgspec.json.Decoder(list[Annotated[list[Real], msgspec.Meta(max_length=SAMPLES)] | None])
_Place = Annotated[int, msgspec.Meta(ge=0, lt=SAMPLES)]
_PLACES = msgspec.json.Decoder(Annotated[list[_Place], msgspec.Meta(max_length=SAMPLES)] | None)
MOST_KNOWN = 1 << 12
"""Most different lists of places that are remembered."""
Held = tuple[int, tuple[int, ...] | None]
"""A bit for each place, and the order that sorts the values by their places, None if they are sorted."""
Packed = tuple[bytes, int]
"""The samples of a row in the order of their places, and a bit for each place."""
NONE: Packed = (b"", 0)


class SamplePacker:
    """Packs the samples of rows; of those only that some rule compares, if the environment says so."""

    def __init__(self) -> None:
        self._only_sums = os.environ.get(SAMPLES_VARIABLE) == "sums"
        self._known: dict[bytes, Held | None] = {}

    def packed(self, rows: Sequence[NumbersLine]) -> list[Packed]:
        """The samples of each row. Raises msgspec.ValidationError for lists that are none of samples or of places."""
        out = [NONE] * len(rows)
        told = []
        for place, row in enumerate(rows):
            if self._only_sums and (row.op not in SUMMED or row.site != "collective"):
                continue
            if row.samples_f32 is not None:
                out[place] = self._placed(row.samples_f32, 4, row.sample_at)
            elif row.samples_f64 is not None:
                out[place] = self._placed(row.samples_f64, 8, row.sample_at)
            elif len(row.samples):
                told.append(place)
        for place, (data, width) in zip(told, _written([rows[place].samples for place in told]), strict=True):
            out[place] = self._placed(data, width, rows[place].sample_at)
        return out

    def _placed(self, data: bytes, width: int, places: msgspec.Raw) -> Packed:
        """The samples at the places that the row tells; none if they are not as many."""
        count, rest = divmod(len(data), width)
        if rest:
            return NONE
        held = self._held(bytes(places)) if len(places) else None
        if held is None:
            return data, (1 << count) - 1
        bits, order = held
        if bits.bit_count() != count or (order is not None and len(order) != count):
            return NONE
        return data if order is None else b"".join(data[width * k : width * k + width] for k in order), bits

    def _held(self, text: bytes) -> Held | None:
        if text not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            places = _PLACES.decode(text)
            self._known[text] = None if places is None else _bits_of(places)
        return self._known[text]


def _bits_of(places: Sequence[int]) -> Held:
    bits = 0
    for place in places:
        bits |= 1 << place
    order = tuple(sorted(range(len(places)), key=places.__getitem__))
    return bits, None if order == tuple(range(bits.bit_count())) else order


def _written(texts: Sequence[msgspec.Raw]) -> list[tuple[bytes, int]]:
    """Samples that are written as numbers, with the width of each."""
    if not texts:
        return []
    own = [one or () for one in _VALUES.decode(b"[" + b",".join(map(bytes, texts)) + b"]")]
    ends = np.cumsum(np.fromiter(map(len, own), np.int64, len(own)))
    begins = np.append(0, ends[:-1])
    values = _floats(own, int(ends[-1]))
    with np.errstate(over="ignore"):
        single = values.astype("<f4")
    # how many of the values before each place are no float32
    off = np.append(0, np.cumsum((single != values) & ~np.isnan(values)))
    fits = off[ends] == off[begins]
    narrow, wide = single.tobytes(), values.astype("<f8").tobytes()
    return [
        (narrow[4 * begin : 4 * end], 4) if small else (wide[8 * begin : 8 * end], 8)
        for begin, end, small in zip(begins.tolist(), ends.tolist(), fits.tolist(), strict=True)
    ]


def _floats(own: Sequence[Sequence[float | str]], count: int) -> npt.NDArray[np.float64]:
    """All values, one after the other."""
    values: Any = chain.from_iterable(own)
    try:
        return np.fromiter(values, np.float64, count)
    except (ValueError, TypeError):
        # "NaN" and "Infinity"
        return np.fromiter(map(float, chain.from_iterable(own)), np.float64, count)
