"""Records of models: the parameters of one process, as lines of JSON; docs/model.md describes the form.

A line that is no parameter is counted and left out; so is the last line of a file that was being written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Annotated, Any

import msgspec

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.safe_values import RANK_LIMIT, safe_text
from rankscope.text.wording import plural

MOST_PARAMETER_LINES = 1 << 16
MOST_DIMENSIONS = 16
MOST_MESHES = 256
VERSION = 1
_BEGIN = re.compile(rb'\s*\{\s*"rankscope_model"\s*:')

Count = Annotated[int, msgspec.Meta(ge=0, le=2**48)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**32)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=RANK_LIMIT)]
Time = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Shape = Annotated[list[Size], msgspec.Meta(max_length=MOST_DIMENSIONS)]
Word = Annotated[str, msgspec.Meta(max_length=64)]
Words = Annotated[list[Word], msgspec.Meta(max_length=MOST_DIMENSIONS)]
Run = tuple[Rank, Annotated[int, msgspec.Meta(ge=1, le=RANK_LIMIT)], Annotated[int, msgspec.Meta(ge=1, le=RANK_LIMIT)]]


class RecordedMesh(msgspec.Struct):
    """A mesh or process group; `ranks` are runs of [first, step, count]."""

    names: Words = []
    shape: Shape = []
    ranks: Annotated[list[Run], msgspec.Meta(max_length=4096)] | None = None


class ModelHeader(msgspec.Struct):
    """The first line: who wrote the file."""

    rankscope_model: int
    rank: Rank
    world_size: Annotated[int, msgspec.Meta(ge=0, le=RANK_LIMIT)] | None = None
    host: str | None = None
    pid: Time | None = None
    started_ns: Time | None = None
    time_ns: Time | None = None
    model: str | None = None
    parameters: Count = 0
    buffers: Count = 0
    meshes: Annotated[list[RecordedMesh], msgspec.Meta(max_length=MOST_MESHES)] = []


class ParameterLine(msgspec.Struct):
    """One parameter or buffer on this rank; sizes are bytes, shapes in elements."""

    name: str
    shape: Shape
    local: Shape
    dtype: Word
    requires_grad: bool = True
    buffer: bool = False
    device: Word = ""
    wrapper: Word | None = None
    mesh: Count | None = None
    group: Count | None = None
    placements: Words | None = None
    gradient_placements: Words | None = None
    state_placements: Words | None = None
    bytes: Count = 0
    gradient_bytes: Count = 0
    state_bytes: Count = 0


_HEADER, _LINE = msgspec.json.Decoder(ModelHeader), msgspec.json.Decoder(ParameterLine)
_LINES = msgspec.json.Decoder(list[ParameterLine])
_INVALID = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class ModelRecord(msgspec.Struct):
    """The model of one process."""

    head: ModelHeader
    parameters: list[ParameterLine] = []
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of parameters."""
        return len(self.parameters)

    def header(self) -> dict[str, Any]:
        """All but the parameters, as JSON values."""
        return {"head": msgspec.to_builtins(self.head), "problem": self.problem}

    def body(self) -> list[memoryview]:
        """The parameters as bytes."""
        return [memoryview(msgspec.json.encode(self.parameters))]


def record_from(header: dict[str, Any], body: memoryview, *_: object) -> ModelRecord:
    """The record whose `header()` and `body()` these are."""
    head = msgspec.convert(header["head"], ModelHeader)
    return ModelRecord(head, _LINES.decode(body), header["problem"])


def looks_like_model(head: bytes) -> bool:
    """Whether a file with these first bytes holds the record of a model."""
    return _BEGIN.match(head) is not None


def decode_model(data: bytes) -> ModelRecord:
    """The record in `data`. Raises NotThisKindError without a first line that has a rank."""
    first, _, rest = data.partition(b"\n")
    try:
        head = _HEADER.decode(first)
    except _INVALID as error:
        raise NotThisKindError("the record of a model without a rank in its first line") from error
    lines = [text for text in rest.split(b"\n", MOST_PARAMETER_LINES)[:MOST_PARAMETER_LINES] if text.strip()]
    found = [line for text in lines if (line := _parameter(text)) is not None]
    lost, left = len(lines) - len(found), head.parameters + head.buffers - len(lines)
    notes = [f"{plural(lost, 'line')} that cannot be read"] if lost else []
    notes += [f"{plural(left, 'line')} missing at its end"] if left > 0 else []
    if head.rankscope_model > VERSION:
        notes.append(f"its format {head.rankscope_model} is newer than {VERSION}: some of it may be missing")
    head.host, head.model = safe_text(head.host), safe_text(head.model)
    return ModelRecord(head, found, "; ".join(notes) or None)


def _parameter(text: bytes) -> ParameterLine | None:
    """The parameter of a line; None for a line that is none."""
    try:
        line = _LINE.decode(text)
    except _INVALID:
        return None
    line.name = safe_text(line.name) or ""
    return line if max(prod(line.shape), prod(line.local)) < 2**62 else None


def layout_of(placements: Sequence[str] | None, sizes: Sequence[int]) -> str:
    """ "partial", "sharded" or "whole", by placements and the sizes of the dimensions of their mesh.

    A dimension of one rank shards nothing.
    """
    texts = placements or ()
    if any(text.startswith("P") for text in texts):
        return "partial"
    wide = [text for at, text in enumerate(texts) if at >= len(sizes) or sizes[at] > 1]
    return "sharded" if any(text.lstrip("_").startswith("S") for text in wide) else "whole"
