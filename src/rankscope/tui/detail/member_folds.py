"""Folds of equal members of a collective, one entry each; the culprit and the odd members come first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import polars as pl

from rankscope.analysis.presence import Absence
from rankscope.tui.detail.peers import ISSUED, NOT_YET, UNFINISHED, Peers

_ALIKE = ["order", "accused", "presence", "state", "differs", "late", "op", "parts", "sizes", "dtypes"]


@dataclass(frozen=True)
class Fold:
    """Members with equal facts; one member is a fold of one rank."""

    ranks: tuple[int, ...]
    presence: str
    state: str
    op: str
    parts: int
    sizes: str | None
    dtypes: str | None
    accused: bool
    differs: bool
    late: bool
    lag_ns: tuple[int, int] | None
    """Delay of the first and of the last of them after the first member, in ns; None if no time is known."""
    row: int | None
    """The row of the first rank, in ops."""
    stack_id: int | None
    """The stack of the first rank."""
    host: str | None
    """The host of all of them; None if there are several or it is not known."""

    @property
    def issued(self) -> bool:
        """Whether they have a row."""
        return self.presence == ISSUED

    @property
    def mark(self) -> str:
        """One character: `!` proven absent, `*` other operation, `?` unknown, `+` late, `~` in it; "" is done."""
        if self.presence == Absence.NEVER_ISSUED:
            return "!"
        if not self.issued:
            return "?"
        return "*" if self.differs else "+" if self.late else "~" if self.state in UNFINISHED else ""


def fold(peers: Peers, alone: Collection[int] = ()) -> list[Fold]:
    """Equal members in one fold each, except the ranks in `alone`; the odd first, then the fewest."""
    by_itself = pl.when(pl.col("rank").is_in(list(alone))).then("rank")
    groups = (
        _ordered(peers.table).with_columns(by_itself=by_itself).sort("rank", maintain_order=True)
        .group_by(*_ALIKE, "by_itself", maintain_order=True)
        .agg(
            pl.col("rank"), pl.len().alias("size"), pl.col("lag_ns").min().alias("least"),
            pl.col("lag_ns").max().alias("most"), pl.col("row").first(), pl.col("stack_id").first(),
            pl.when(pl.col("host").n_unique() == 1).then(pl.col("host").first()).alias("host"),
        )
        .with_columns(pl.col("size").sum().over(_ALIKE), first=pl.col("rank").list.min().min().over(_ALIKE))
        .sort("order", "size", "first", pl.col("rank").list.first(), maintain_order=True)
    )  # fmt: skip
    return [_fold(row) for row in groups.iter_rows(named=True)]


def members(peers: Peers, ranks: Collection[int]) -> list[Fold]:
    """These members one by one, in the same order."""
    part = Peers(peers.group, peers.seq, peers.op, peers.table.filter(pl.col("rank").is_in(list(ranks))))
    return fold(part, alone=ranks)


def _ordered(table: pl.DataFrame) -> pl.DataFrame:
    presence = pl.col("presence")
    order = (
        pl.when(pl.col("accused")).then(0)
        .when(presence == Absence.NEVER_ISSUED).then(1)
        .when(pl.col("differs")).then(2)
        .when(presence == Absence.NO_DUMP).then(3)
        .when(presence == NOT_YET).then(4)
        .when(presence != ISSUED).then(5)
        .when(pl.col("late")).then(6)
        .when(pl.col("state").is_in(UNFINISHED)).then(7)
        .otherwise(8)
    )  # fmt: skip
    return table.with_columns(order=order)


def _fold(row: dict[str, Any]) -> Fold:
    least, most = row["least"], row["most"]
    return Fold(
        ranks=tuple(row["rank"]), presence=row["presence"], state=row["state"], op=row["op"] or "",
        parts=row["parts"] or 1, sizes=row["sizes"], dtypes=row["dtypes"], accused=row["accused"],
        differs=row["differs"], late=row["late"], lag_ns=None if least is None else (least, most), row=row["row"],
        stack_id=row["stack_id"], host=row["host"],
    )  # fmt: skip
