"""A line of a file of tensor summaries, with the limits of its values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from rankscope.parsers.matrices import NULL
from rankscope.parsers.numbers.model import SAMPLES
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
    dropped: Whole | None = None
