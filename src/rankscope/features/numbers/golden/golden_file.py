"""Golden file: digests, norms and few samples of the tensors of a run, and the tolerance of each kind of tensor.

It is JSON with a line for each tensor, so that a change of few tensors is a small difference in a repository. Equal
tensors of several ranks take one line. It is read as records of the capture are, by the same decoder.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import polars as pl

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.numbers.read.decode import Ranks, Real, Short, Size, Text, Whole, decode_numbers
from rankscope.features.numbers.rules.named_tensors import is_no_replay, spread, unpacked
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.safe_values import safe_text
from rankscope.schema import Dataset
from rankscope.schema.tables import MOST_SAMPLES

VERSION = 1
FEW_SAMPLES = 6
"""Samples of a tensor that are kept: 24 bytes of float32, 32 characters."""
_FIRST_DRAWN = 4
"""The first sampled place of a large tensor that is drawn; those before it are its first and last elements."""
LARGEST_FILE = 64 << 20
"""Bytes of the largest golden file that is read."""
MOST_TENSORS = 1 << 19
_BEGIN = b'{"rankscope_golden":'
_MORE = ("micro", "slice", "group", "seq", "op", "reduce_op", "root", "peer", "offsets", "global_shape",
         "recompute")  # fmt: skip
"""Columns of `tensors` that most rows do not have."""
_KEY = ("step", "site", "name", "slot", "occurrence", "dtype", "shape", "hash", "l2", *_MORE)


class GoldenTensor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A tensor of one or several ranks."""

    ranks: Ranks
    step: Whole | None
    site: Text
    name: Text
    slot: Text
    occurrence: Short | None
    dtype: Text | None
    shape: Size | None
    hash: Text | None
    l2: Real | None
    samples: Annotated[bytes, msgspec.Meta(max_length=8 * FEW_SAMPLES)] = b""
    """Little-endian float32, or float64 where float32 is not exact; in the file as base64."""
    sample_at: Annotated[list[Annotated[int, msgspec.Meta(ge=0, lt=MOST_SAMPLES)]], msgspec.Meta(max_length=64)] = []
    more: dict[Text, bool | Whole | Text | Size] = {}
    """Those of `_MORE` that it has."""


class GoldenHead(msgspec.Struct, forbid_unknown_fields=True):
    """The file."""

    rankscope_golden: Whole
    perturbed: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
    """Number of runs from which the tolerance was learned; 0 where bits must be equal."""
    tolerance: dict[Text, Annotated[float, msgspec.Meta(ge=0)]]
    """Largest difference of each kind of tensor, as a share of its norm."""
    groups: list[tuple[Text, Ranks]]
    """Name and members: several groups of one name are common, as one of data parallelism for each stage."""
    tensors: Annotated[list[GoldenTensor], msgspec.Meta(max_length=MOST_TENSORS)]


@dataclass(frozen=True)
class GoldenRun:
    """A golden file that was read."""

    dataset: Dataset
    tolerance: Mapping[str, float]
    perturbed: int
    """Number of runs from which the tolerance was learned."""


def looks_like_golden(head: bytes) -> bool:
    """Whether a file with these first bytes is a golden file."""
    return head.lstrip().startswith(_BEGIN)


def decode_golden(data: bytes, title: str) -> GoldenRun:
    """The run in a golden file. Raises ValueError, with a reason for users, for one that is none."""
    if len(data) > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE >> 20} MiB")
    if not looks_like_golden(data[:64]):
        raise ValueError("no golden file: it does not begin with rankscope_golden")
    try:
        golden = msgspec.json.decode(data, type=GoldenHead)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"a golden file that cannot be read: {safe_text(str(error))}") from None
    if golden.rankscope_golden > VERSION:
        raise ValueError(f"its format {golden.rankscope_golden} is newer than {VERSION}")
    if not golden.tensors:
        raise ValueError("a golden file without tensors")
    if sum(len(tensor.ranks) for tensor in golden.tensors) > MOST_TENSORS:
        raise ValueError(f"more than {MOST_TENSORS:,} tensors over all ranks")
    tolerance = {safe_text(kind) or "": limit for kind, limit in golden.tolerance.items() if math.isfinite(limit)}
    return GoldenRun(_dataset(golden, title), tolerance, golden.perturbed)


def _dataset(golden: GoldenHead, title: str) -> Dataset:
    """The tensors of all ranks, as records of the capture."""
    rows: defaultdict[int, list[bytes]] = defaultdict(list)
    for order, tensor in enumerate(golden.tensors):
        line = msgspec.json.encode(_line(tensor, order))
        for rank in tensor.ranks:
            rows[rank].append(line)
    sources = []
    for rank, lines in sorted(rows.items()):
        head: list[dict[str, Any]] = [{"rankscope_numbers": 1, "rank": rank, "world_size": 1 + max(rows)}]
        head += [{"group": name, "ranks": ranks} for name, ranks in golden.groups if rank in ranks]
        text = b"\n".join([*map(msgspec.json.encode, head), *lines, b""])
        try:
            content = decode_numbers(text)
        except NotThisKindError as error:
            raise ValueError(str(error)) from None
        if content.problem is not None:
            raise ValueError(f"tensors of rank {rank}: {content.problem}")
        sources.append(SourceFile(f"rank {rank}", "numbers", 1, 1, None, content))
    return assemble(sources, title, None, None, None)


def _line(tensor: GoldenTensor, order: int) -> dict[str, Any]:
    """A line of a record; keys without a value are left out."""
    if unknown := sorted(set(tensor.more) - set(_MORE)):
        raise ValueError(f"a tensor with the unknown key {safe_text(unknown[0])}")
    wide = len(tensor.samples) == 8 * len(tensor.sample_at)
    line = {
        "step": tensor.step, "order": order, "site": tensor.site, "name": tensor.name, "slot": tensor.slot,
        "occurrence": tensor.occurrence, "dtype": tensor.dtype, "shape": tensor.shape, "hash": tensor.hash,
        "l2": tensor.l2, "numel": None if tensor.shape is None else math.prod(tensor.shape),
        ("samples_f64" if wide else "samples_f32"): tensor.samples, "sample_at": tensor.sample_at, **tensor.more,
    }  # fmt: skip
    return {key: value for key, value in line.items() if value is not None}


def encode_golden(dataset: Dataset, tolerance: Mapping[str, float], perturbed: int) -> bytes:
    """The golden file of a run.

    Collectives are left out where modules were recorded: their tensors have names there.
    """
    rows = kept_rows(dataset)
    groups = dataset.groups.filter(pl.col("group").is_in(rows["group"].drop_nulls().unique().to_list()))
    names = dict(groups.select("group", "name").iter_rows())
    titles = {number: name or str(number) for number, name in names.items()}
    members = [(titles[number], list(ranks)) for number, ranks in groups.select("group", "ranks").iter_rows()]
    head = {
        "rankscope_golden": VERSION,
        "perturbed": perturbed,
        "tolerance": {kind: float(f"{limit:.4g}") for kind, limit in sorted(tolerance.items())},
        "groups": members,
    }
    lines = b",\n".join(map(msgspec.json.encode, _tensors(rows, titles)))
    body = b",\n".join(
        msgspec.json.encode(key) + b":" + msgspec.json.format(msgspec.json.encode(value), indent=0)
        for key, value in head.items()
    )
    return b"{" + body + b',\n"tensors":[\n' + lines + b"\n]}\n"


def kept_rows(dataset: Dataset) -> pl.DataFrame:
    """The rows of `tensors` that a golden file keeps."""
    rows = dataset.tensors.filter(is_no_replay())
    named = rows.filter(~pl.col("site").is_in(["collective", "p2p"]) & (pl.col("site") != "batch"))
    return rows if named.is_empty() else rows.filter(~pl.col("site").is_in(["collective", "p2p"]))


def _tensors(rows: pl.DataFrame, groups: Mapping[int, str]) -> Iterator[GoldenTensor]:
    """The tensors of rows, those that are equal on several ranks once, in program order."""
    texts = [name for name in _KEY if rows.schema[name] == pl.Categorical or name == "site"]
    rows = rows.with_columns(pl.col(texts).cast(pl.String)).with_row_index("at")
    sets = rows.group_by([*_KEY], maintain_order=True).agg(pl.col("rank", "at", "order"))
    few = sets.with_columns(first=pl.col("order").list.min()).sort("first", maintain_order=True)
    firsts = few["at"].list.first()
    held = rows["held"].fill_null(0).to_numpy()[firsts.to_numpy()]
    samples = unpacked(rows["samples"].fill_null(b"")[firsts.to_numpy()], held)
    places = _places(held, few["shape"].list.eval(pl.element().product()).list.first().fill_null(0).to_numpy())
    for row, at, values in zip(few.iter_rows(named=True), places, samples, strict=True):
        exact = values[at]
        with np.errstate(over="ignore"):
            single = exact.astype("<f4")
        is_single = bool(np.array_equal(single.astype(np.float64), exact, equal_nan=True))
        more = {name: row[name] for name in _MORE if row[name] is not None and row[name] is not False}
        if "group" in more:
            more["group"] = groups[more["group"]]
        yield GoldenTensor(
            sorted(set(row["rank"])), row["step"], row["site"], row["name"] or "", row["slot"] or "", row["occurrence"],
            row["dtype"], row["shape"], None if row["hash"] is None else f"{row['hash']:016x}", _real(row["l2"]),
            single.tobytes() if is_single else exact.astype("<f8").tobytes(), at, more,
        )  # fmt: skip


def _real(value: float | None) -> Real | None:
    if value is None or math.isfinite(value):
        return None if value is None else float(f"{value:.9g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _places(held: Any, sizes: Any) -> list[list[int]]:
    """The places of the samples that are kept, of each tensor: the first ones that are drawn."""
    out = []
    for bits, size in zip(spread(held), sizes, strict=True):
        known = np.flatnonzero(bits)
        drawn = known[known >= _FIRST_DRAWN] if size > MOST_SAMPLES else known
        out.append([int(place) for place in (drawn if len(drawn) else known)[:FEW_SAMPLES]])
    return out
