"""Tensors of a run by names without wrappers: pieces of ranks with their places, and whole tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.features.numbers.rules.model import Floats
from rankscope.schema import Dataset
from rankscope.schema.tables import MOST_SAMPLES

_WRAPPER = re.compile(
    r"^(?:module|_forward_module)(?:\.|$)"
    r"|(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_dp_module)(?:\.|$)"
)
"""Modules that DDP, DeepSpeed, torch.compile, FSDP and activation checkpointing put around others."""
_CHANGE = re.compile(r"(?:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*):)?(.+)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class NameChange:
    """A change of names in the run under test."""

    pattern: re.Pattern[str]
    text: str
    """It takes the place of each match; `\\1` is the first group of the pattern."""
    ranks: frozenset[int] | None = None
    """Ranks whose names change; None for all."""


def parsed_change(text: str) -> NameChange:
    """The change that "RANKS:REGEX=TEXT" or "REGEX=TEXT" asks for; RANKS are as in "0,4-7".

    Raises ValueError, with a message for users.
    """
    found = _CHANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not REGEX=TEXT")
    ranks, regex, new = found.groups()
    try:
        pattern = re.compile(regex)
        pattern.sub(new, "")
    except (re.error, IndexError) as error:
        raise ValueError(f"{regex!r} cannot be used: {error}") from None
    return NameChange(pattern, new, _members(ranks) if ranks else None)


def _members(text: str) -> frozenset[int]:
    """Ranks of "0,4-7". Raises ValueError if there are too many."""
    spans = [part.partition("-") for part in text.split(",")]
    ranges = [range(int(first), int(last or first) + 1) for first, _, last in spans]
    if sum(map(len, ranges)) > _MOST_RANKS:
        raise ValueError(f"{text!r} names more than {_MOST_RANKS} ranks")
    return frozenset(rank for one in ranges for rank in one)


_MOST_RANKS = 1 << 20


def canonical_name(name: str, rank: int, changes: Sequence[NameChange] = ()) -> str:
    """The name without wrappers, then changed.

    >>> canonical_name("module._orig_mod.layers.0.weight", 0)
    'layers.0.weight'
    """
    before = ""
    while before != name:
        before, name = name, _WRAPPER.sub("", name)
    name = name.removesuffix(".")
    for change in changes:
        if change.ranks is None or rank in change.ranks:
            name = change.pattern.sub(change.text, name)
    return name


def with_canonical_names(rows: pl.DataFrame, changes: Sequence[NameChange] = ()) -> pl.DataFrame:
    """Rows with canonical names; columns `rank` and `name`, a string."""
    known = rows.select("rank", "name").unique(maintain_order=True)
    pairs: Iterable[tuple[int, str | None]] = known.rows()
    names = [canonical_name(name or "", rank, changes) for rank, name in pairs]
    known = known.with_columns(canonical=pl.Series(names, dtype=pl.String))
    joined = rows.join(known, on=["rank", "name"], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(name=pl.col("canonical")).drop("canonical")


def is_no_replay() -> pl.Expr:
    """Whether a row of `tensors` is not of a forward pass that ran again on the spot, which another run need not have.

    Those rows come before the backward pass of their step; what activation checkpointing computes again comes in it.
    """
    behind = pl.col("order").filter(pl.col("site").is_in(["backward", "gradient"])).min().over("rank", "step")
    is_early = (pl.col("order") < behind).fill_null(value=True)
    return ~(pl.col("recompute").fill_null(value=False) & pl.col("tool").is_null() & is_early)


Bits = npt.NDArray[np.uint64]


class SampleRows:
    """The samples of all tensors of a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self.tensors = dataset.tensors

    def take(self, rows: pl.Series) -> tuple[Floats, Bits]:
        """Samples of rows, shape (rows, MOST_SAMPLES), NaN where there is none, and a bit for each that is there."""
        columns = self.tensors.select("samples", "held")[rows.to_numpy()]
        bits = columns["held"].to_numpy()
        return unpacked(columns["samples"], bits), bits


def unpacked(samples: pl.Series, bits: Bits) -> Floats:
    """Samples at their places, shape (rows, MOST_SAMPLES), NaN where `held` has no bit."""
    out = np.full((len(bits), MOST_SAMPLES), np.nan)
    there = spread(bits)
    is_wide = samples.bin.size().to_numpy() > 4 * there.sum(axis=1)
    for kind, of_kind in (("<f4", ~is_wide), ("<f8", is_wide)):
        if of_kind.any():
            data = b"".join(samples.filter(pl.Series(of_kind)).to_list())
            place = there & of_kind[:, None]
            out[place] = np.frombuffer(data, kind)
    return out


def spread(bits: Bits) -> npt.NDArray[np.bool_]:
    """A truth for each sample, shape (rows, MOST_SAMPLES)."""
    return np.unpackbits(bits.view(np.uint8), bitorder="little").reshape(-1, MOST_SAMPLES).view(np.bool_)


CALL = ["step", "site", "name", "call", "slot", "data"]
"""Key of a whole tensor: `call` counts the calls of a module in the step, `data` is the hash of the batch of the call,
where calls of two runs meet by that."""
_ACTIVATIONS = ("forward", "backward", "loss")
_SITES = ("forward", "backward", "gradient", "parameter", "optimizer", "batch", "loss")
_NAMELESS = ("batch", "loss")
IS_BATCH = pl.col("site") == "batch"
PARTIAL_GRADIENT = (pl.col("site") == "gradient") & pl.col("slot").str.starts_with("in")
"""A gradient as it was accumulated, before it is reduced."""


@dataclass(frozen=True)
class NamedTensors:
    """Pieces of the tensors of a run: one row for each tensor of each rank.

    Columns: those of `CALL`, rank, row (of `Dataset.tensors`), order, dtype, numel, hash, held, whole (shape of the
    whole tensor as a text), size (its number of elements), place (offsets as a text), sum, l2, varied.
    """

    rows: pl.DataFrame
    source: Dataset

    @cached_property
    def samples(self) -> Floats:
        """Samples of the rows, shape (rows, MOST_SAMPLES), NaN where there is none."""
        return SampleRows(self.source).take(self.rows["row"])[0]

    def by_data(self, common: frozenset[int]) -> NamedTensors:
        """The same; tensors of calls meet by the hash of their batch if `common`, such hashes of both runs, has any."""
        on = pl.col("data").is_in(list(common)) if common else pl.lit(value=False)
        rows = self.rows.with_columns(
            data=pl.when(on).then("data"), call=pl.when(on.fill_null(value=False)).then(0).otherwise("call")
        )
        return NamedTensors(rows, self.source)


def named_tensors(dataset: Dataset, changes: Sequence[NameChange] = ()) -> NamedTensors:
    """The tensors of modules, parameters, batches and losses; what was computed again is left out."""
    texts = [pl.col(name).cast(pl.String) for name in ("site", "name", "slot", "dtype")]
    rows = dataset.tensors.drop("samples").with_row_index("row")
    rows = rows.filter(pl.col("site").is_in(_SITES) & pl.col("slice").is_null() & ~pl.col("recompute").fill_null(False))
    rows = with_canonical_names(rows.with_columns(*texts), changes)
    rows = rows.filter((pl.col("name") != "") | pl.col("site").is_in(_NAMELESS))
    rows = _numbered(rows.sort("rank", "step", "micro", "occurrence", "order", maintain_order=True))
    shape = pl.col("global_shape").fill_null(pl.col("shape"))
    rows = rows.with_columns(
        whole=_text(shape),
        size=shape.list.eval(pl.element().product()).list.first().fill_null(pl.col("numel")),
        place=_text(pl.col("offsets")).fill_null(""),
        varied=(pl.col("min") != pl.col("max")).fill_null(value=False),
        held=pl.col("held").fill_null(0),
    )
    hashed = rows.filter((pl.col("site") == "batch") & pl.col("hash").is_not_null())
    batches = hashed.group_by("rank", "step", "call").agg(batch=pl.col("hash").sum())
    batches = batches.with_columns(batches=pl.len().over("rank", "step"))
    rows = rows.join(batches, on=["rank", "step", "call"], how="left", maintain_order="left")
    known = pl.col("site").is_in(_ACTIVATIONS) & (pl.col("batches") == pl.col("calls"))
    rows = rows.with_columns(data=pl.when(known.fill_null(value=False)).then("batch"))
    keep = ["rank", "row", "order", "dtype", "numel", "hash", "held", "whole", "size", "place", "sum", "l2", "varied"]
    return NamedTensors(rows.select(*CALL, *keep).sort("row"), dataset)


def _text(sizes: pl.Expr) -> pl.Expr:
    return sizes.cast(pl.List(pl.String)).list.join(",")


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the number of their call in the step; of accumulated gradients only the last ones, of a module and its
    wrapper only one."""
    site, slot = pl.col("site"), pl.col("slot")
    calls = ["rank", "step", "site", "name", "slot"]
    rows = rows.unique([*calls, "micro", "occurrence"], keep="last", maintain_order=True)
    rows = rows.with_columns(call=pl.int_range(pl.len()).over(calls), calls=pl.len().over(calls))
    last = pl.col("call") == pl.col("calls") - 1
    rows = rows.filter(~PARTIAL_GRADIENT | last)
    return rows.with_columns(call=pl.when((site == "gradient") & slot.str.starts_with("in")).then(0).otherwise("call"))


@dataclass(frozen=True)
class WholeTensors:
    """Whole tensors, made of the pieces of all ranks."""

    table: pl.DataFrame
    """Columns: those of `CALL`, number (row of `samples`), row and order (of the first piece), dtype, whole, size, hash
    (null where pieces have none), held, sum, l2."""
    samples: Floats
    """Shape (tensors, MOST_SAMPLES)."""
    unclear: int
    """Tensors of which pieces are missing, or of which copies differ."""


def whole_tensors(tensors: NamedTensors) -> WholeTensors:
    """The whole tensors of a run that is right, but no batches: of copies the first, of parts of a sum their mean."""
    rows = tensors.rows.with_row_index("own").filter(~IS_BATCH).with_row_index("at")
    piece = [*CALL, "place"]
    rows = rows.with_columns(
        differ=(pl.col("hash").n_unique() > 1).over(piece),
        first=pl.int_range(pl.len()).over(piece) == 0,
        mean=PARTIAL_GRADIENT | (pl.col("site") == "loss"),
        piece=pl.struct(piece).rank("dense") - 1,
    )
    firsts = rows.filter("first")
    facts = firsts.group_by(CALL, maintain_order=True).agg(
        pl.col("row", "order", "dtype", "whole", "size").first(), hash=pl.col("hash").sum(),
        known=pl.col("hash").is_not_null().all(), covered=pl.col("numel").sum(), held=pl.col("held").bitwise_or(),
        clear=(~pl.col("differ") | pl.col("mean")).all(), one=(pl.col("whole").n_unique() == 1), at=pl.col("at"),
        sum=pl.col("sum").sum(), l2=(pl.col("l2") ** 2).sum().sqrt(), is_mean=(pl.col("differ") & pl.col("mean")).any(),
    )  # fmt: skip
    is_whole = (pl.col("covered") == pl.col("size")) & pl.col("clear") & pl.col("one")
    wholes = facts.filter(is_whole.fill_null(value=False))
    wholes = wholes.with_columns(hash=pl.when(pl.col("known") & ~pl.col("is_mean")).then("hash"))
    samples_of_rows = tensors.samples[rows["own"].to_numpy()]
    samples = _joined(samples_of_rows, rows["piece"].to_numpy().astype(np.int64), wholes.select("at"))
    wholes = wholes.drop("known", "covered", "clear", "one", "at", "is_mean").with_row_index("number")
    return WholeTensors(wholes, samples, facts.height - wholes.height)


def _joined(samples: Floats, piece: npt.NDArray[np.int64], wholes: pl.DataFrame) -> Floats:
    """The samples of whole tensors: each place from the piece that holds it, the mean of the copies of that piece."""
    out = np.full((wholes.height, MOST_SAMPLES), np.nan)
    if not wholes.height:
        return out
    means = piece_sums(samples, piece) / np.bincount(piece)[:, None]
    parts = wholes.with_row_index("whole").explode("at")
    begin = np.flatnonzero(np.diff(parts["whole"].to_numpy().astype(np.int64), prepend=-1))
    joined: Floats = np.fmax.reduceat(means[piece[parts["at"].to_numpy()]], begin)
    return joined


def piece_sums(values: Floats, piece: npt.NDArray[np.int64]) -> Floats:
    """Sums of the rows of each piece, shape (pieces, columns); pieces are numbered from 0 on, each has a row."""
    order = np.argsort(piece, kind="stable")
    begin = np.flatnonzero(np.diff(piece[order], prepend=-1))
    sums: Floats = np.add.reduceat(values[order], begin)
    return sums
