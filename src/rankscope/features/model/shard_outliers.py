"""Parameters that are whole, loose or partial where others are not, and ranks whose shards are far larger."""

from __future__ import annotations

import polars as pl

from rankscope.features.model.model import HeavyRank, LooseParameters, PartialTensor, WholeParameter
from rankscope.features.model.model_peers import few_of

SIZE_RATIO = 64
"""Two matrices are of one size if neither has this many times the elements of the other. The embedding of a large
vocabulary has 30 times those of another matrix, a norm a thousandth."""
FEWEST_SHARDED = 2
MOST_SHARDED = 0.8
"""Least number, and share, of the matrices of its size that are sharded."""
LEAST_SHARE = 0.05
"""Least share of the bytes of all parameters of the rank."""
HEAVY_SHARE = 0.25
HEAVY_BYTES = 64 << 20
"""Least excess over the peers: a share of what they hold, and bytes."""
MOST_NAMES = 3
COVERAGES = ("sharded", "replicated", "ignored", "unwrapped", "partial")
"""How ranks share a parameter: each holds a part, each holds all and a wrapper or a mesh knows it, all though a wrapper
was told to leave it, all and no wrapper took it, or a summand."""
_WRAPPERS = ("fsdp2", "fsdp1", "ddp", "zero", "megatron")
"""Wrappers that reduce gradients."""


def held_by_rank(rows: pl.DataFrame, buffers: pl.DataFrame) -> pl.DataFrame:
    """Bytes that each rank holds, in rows of `model_peers.with_stages` and rows of buffers.

    Columns: rank, stage, parameters (number), bytes, gradient_bytes, state_bytes, sharded and whole (parts of `bytes`),
    total (of the whole parameters), parts of `bytes` by `coverage_of`, and buffer_bytes.
    """
    is_sharded = pl.col("layout") == "sharded"
    buffer_sizes = buffers.group_by("rank").agg(buffer_bytes=pl.col("bytes").sum())
    parts = {name: pl.col("bytes").filter(coverage_of() == name).sum() for name in COVERAGES if name != "sharded"}
    return (
        rows.group_by("rank", maintain_order=True)
        .agg(
            pl.col("stage").first(),
            parameters=pl.len(),
            bytes=pl.col("bytes").sum(),
            gradient_bytes=pl.col("gradient_bytes").sum(),
            state_bytes=pl.col("state_bytes").sum(),
            sharded=pl.col("bytes").filter(is_sharded).sum(),
            whole=pl.col("bytes").filter(~is_sharded).sum(),
            total=pl.col("whole_bytes").sum(),
            **parts,
        )
        .join(buffer_sizes, on="rank", how="left")
        .with_columns(pl.col("buffer_bytes").fill_null(0))
        .sort("rank")
    )


def coverage_of() -> pl.Expr:
    """One of `COVERAGES` for each row: how the ranks share the parameter."""
    return (
        pl.when(pl.col("layout") != "whole")
        .then(pl.col("layout").cast(pl.String))
        .when(pl.col("wrapper") == "")
        .then(pl.lit("unwrapped"))
        .when(pl.col("wrapper") == "ignored")
        .then(pl.lit("ignored"))
        .otherwise(pl.lit("replicated"))
    )


def _examples(rows: pl.DataFrame, odd: frozenset[int]) -> list[tuple[pl.DataFrame, tuple[int, ...]]]:
    """The rows of one rank of each stage of several ranks, and its ranks; not of an odd rank if there are others."""
    out = []
    for _, part in rows.group_by("stage", maintain_order=True):
        ranks = sorted(part["rank"].unique().to_list())
        if len(ranks) > 1:
            chosen = next((rank for rank in ranks if rank not in odd), ranks[0])
            out.append((part.filter(pl.col("rank") == chosen), tuple(ranks)))
    return out


def find_whole(rows: pl.DataFrame, odd: frozenset[int]) -> list[WholeParameter]:
    """Large parameters that each rank holds whole, though nearly all matrices of their size are sharded."""
    found = []
    for part, ranks in _examples(rows, odd):
        total = max(1, int(part["bytes"].sum()))
        matrices = part.filter(pl.col("shape").list.len() >= 2)
        large = matrices.filter((pl.col("layout") == "whole") & (pl.col("bytes") >= LEAST_SHARE * total))
        for row in large.iter_rows(named=True):
            numel = row["numel"]
            like = matrices.filter(
                pl.col("numel").is_between(numel / SIZE_RATIO, numel * SIZE_RATIO) & (pl.col("line") != row["line"])
            )
            sharded = int((like["layout"] == "sharded").sum())
            if sharded >= max(FEWEST_SHARDED, MOST_SHARDED * like.height):
                share = row["bytes"] / total
                found.append(WholeParameter(row["name"], ranks, row["bytes"], share, sharded, row["wrapper"]))
    return found


def find_loose(rows: pl.DataFrame, odd: frozenset[int]) -> list[LooseParameters]:
    """Trainable parameters that no wrapper took nor was told to leave, where a wrapper that reduces took others."""
    found = []
    for part, ranks in _examples(rows, odd):
        trained = part.filter("requires_grad")
        taken = trained.filter(pl.col("wrapper").is_in(_WRAPPERS))
        loose = trained.filter(pl.col("wrapper") == "")
        if taken.height and loose.height:
            usual = str(taken["wrapper"].mode().sort()[0])
            found.append(LooseParameters(tuple(loose["name"].to_list()), ranks, usual))
    return found


def find_partial(rows: pl.DataFrame) -> list[PartialTensor]:
    """Parameters that are Partial, and gradients that are so and that no optimizer reduced.

    A plan with sequence parallelism leaves gradients of norms Partial, and the optimizer reduces them when it uses
    them: its state is Replicate then (torch 2.13).
    """
    is_own = pl.col("layout") == "partial"
    is_unused = (pl.col("gradient") == "partial") & (pl.col("state").is_null() | (pl.col("state") == "partial"))
    stepped_rows = rows.filter(is_own | is_unused).with_columns(is_own=is_own)
    # comparison with null is null: without state nothing tells
    sides = stepped_rows.group_by("stage", "name", "is_own", maintain_order=True).agg(
        pl.col("rank").sort(), stepped=(pl.col("state") == "partial").any()
    )
    sizes = dict(rows.group_by("stage").agg(pl.col("rank").n_unique()).iter_rows())
    return [
        PartialTensor(
            name,
            tuple(ranks),
            len(ranks) <= few_of(sizes[stage]),
            "parameter" if is_weight else "gradient",
            bool(stepped),
        )
        for stage, name, is_weight, ranks, stepped in sides.iter_rows()
    ]


def find_heavy(rows: pl.DataFrame, held: pl.DataFrame) -> list[HeavyRank]:
    """Ranks that hold far more bytes of parameters and optimizer state than their peers.

    Gradients are left out, for ranks may stand at different places of a step, and so is state that some do not have.
    """
    heavy_ranks = []
    for _, part in held.group_by("stage", maintain_order=True):
        states = part["state_bytes"] if (part["state_bytes"] > 0).all() else 0
        sized = part.with_columns(held=part["bytes"] + states).sort("held")
        usual = int(sized["held"][(sized.height - 1) // 2])
        heavy = sized.filter(pl.col("held") > usual + max(HEAVY_SHARE * usual, HEAVY_BYTES))
        for rank, size in heavy.select("rank", "held").iter_rows():
            other = int(sized["rank"][(sized.height - 1) // 2])
            names = _excess(rows, rank, other)
            heavy_ranks.append(HeavyRank(rank, size, usual, sized.height - heavy.height, names))
    return heavy_ranks


def _excess(rows: pl.DataFrame, rank: int, other: int) -> tuple[str, ...]:
    """The parameters of which a rank holds the most bytes more than another one."""
    usual = rows.filter(pl.col("rank") == other).select("name", usual="bytes")
    more = (
        rows.filter(pl.col("rank") == rank)
        .join(usual, on="name", how="left")
        .select("name", more=pl.col("bytes") - pl.col("usual").fill_null(0))
        .filter(pl.col("more") > 0)
        .sort("more", descending=True)
    )
    return tuple(more["name"].head(MOST_NAMES).to_list())
