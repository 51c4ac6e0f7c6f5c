"""First wrong operation of a run beside a trusted run of another layout: its ranks, and what lies before it.

The program of the reference gives the order of first differences over ranks: of tensors that it computes one after the
other, the later ones follow. Within a rank its own program order counts. Clocks do not.

A reduction has no name of a parameter. It is known by what it gave: its output is the gradient up to a factor.
Statistics are compared and not hashes, which are those of a place in the whole for shards, and of the local tensor for
reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import polars as pl

from rankscope.features.numbers.rules.layout_comparison import LayoutComparison
from rankscope.features.numbers.rules.model import BrokenRule, format_of
from rankscope.features.numbers.rules.named_tensors import CALL, PARTIAL_GRADIENT
from rankscope.features.numbers.rules.number_rules import NumberCause
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

SAME_TOTALS = 1e-3
"""Relative difference of totals up to which one tensor is a multiple of the other."""
_FACTS = ["sum", "l2", "min", "max"]
_CALL = ["op", "group", "seq"]


class GradientRows(NamedTuple):
    """The rows of `tensors` of one gradient of a rank in a step."""

    accumulated: dict[str, Any]
    reduced: dict[str, Any]


def moved_tensors(ours: Dataset, rank: int, step: int | None, begin: int, end: int) -> pl.DataFrame:
    """Tensors of collectives, sends and receives of a rank, between two places in its program."""
    order, site = pl.col("order"), pl.col("site").cast(pl.String)
    mine = (pl.col("rank") == rank) & pl.col("step").eq_missing(step)
    rows = ours.tensors.drop("samples").filter(mine, (order > begin) & (order < end), site.is_in(["collective", "p2p"]))
    return rows.with_columns(is_in=pl.col("slot").cast(pl.String).str.starts_with("in")).sort("order")


def giving(rows: pl.DataFrame, reduced: dict[str, Any]) -> pl.DataFrame:
    """The outputs among moved tensors that are the reduced gradient, up to a factor."""
    if not reduced["sum"] or not reduced["l2"]:
        return rows.clear()
    factor = pl.col("l2") / reduced["l2"]
    off = (pl.col("sum") / reduced["sum"] / factor - 1).abs()
    return rows.filter(~pl.col("is_in") & (pl.col("numel") == reduced["numel"]) & (off < SAME_TOTALS))


def brought_its_own(ours: Dataset, gradient: GradientRows) -> bool | None:
    """Whether a rank brought to the last reduction of a gradient the accumulated one, or the output of an earlier one.

    None where that reduction is not known.
    """
    first, last = gradient
    rows = moved_tensors(ours, last["rank"], last["step"], first["order"], last["order"])
    rows = rows.filter(pl.col("numel") == last["numel"])
    gave = giving(rows, last).tail(1)
    brought = rows.filter("is_in").join(gave.select(_CALL), on=_CALL, how="semi", nulls_equal=True)
    if brought.is_empty():
        return None
    earlier = rows.filter(~pl.col("is_in") & (pl.col("order") < gave["order"][0]))
    known = {tuple(first[name] for name in _FACTS), *earlier.select(_FACTS).rows()}
    return all(facts in known for facts in brought.select(_FACTS).rows())


VARIANT = "differs-from-reference"
LARGEST_PART = 64
"""Largest numerator and denominator of a factor that is told as a fraction."""
_FACTOR_ERROR = 1e-4
_LEAST_FACTOR = 0.01
"""Factors nearer to 1 may be roundings."""
_MOST_BETWEEN = 3
"""Most operations between two tensors that are named."""
_AT_STEP = ("gradient", "parameter", "optimizer")
"""What a rank has at the step of the optimizer; of several names none comes before the others."""


def layout_causes(found: LayoutComparison, ours: Dataset, judged: bool) -> list[NumberCause]:
    """The first wrong tensor, with the ranks that have it; at most one cause.

    Without limits only weights that the runs begin with, and constant factors, are judged.
    """
    table = found.table
    bad = table.filter("wrong") if judged else _certain(table)
    if bad.is_empty():
        return []
    firsts = bad.sort("rank", "step", "order").unique("rank", keep="first", maintain_order=True)
    firsts = firsts.sort("step", "order_other", "rank")
    root = firsts.row(0, named=True)
    at = CALL if root["site"] not in _AT_STEP or root["slot"].startswith("in") else ["step", "site", "slot"]
    there = firsts.filter(*(pl.col(name).eq_missing(root[name]) for name in at))
    firsts_by_rank = {row["rank"]: row for row in there.iter_rows(named=True)}
    cause = _FirstWrong(found, ours, root, firsts_by_rank, tuple(firsts["rank"].to_list()))
    broken = cause.broken("RP" if judged else "RX", bad.height)
    return [NumberCause(VARIANT, broken, (broken,), 1, None)]


def _certain(table: pl.DataFrame) -> pl.DataFrame:
    """Differences that no rounding explains: of the weights of the first step, and constant factors."""
    factor = pl.Series([fraction(value) is not None for value in table["factor"]], dtype=pl.Boolean)
    return table.filter((begins_with() & ~pl.col("equal")) | factor)


def begins_with() -> pl.Expr:
    """Whether a row is about a weight before the first step: both runs begin with the same bits."""
    first = (pl.col("step") == pl.col("step").min()) & (pl.col("dtype") == pl.col("dtype_other"))
    return first & (pl.col("site") == "parameter") & pl.col("hash").is_not_null() & pl.col("hash_other").is_not_null()


def fraction(factor: float | None) -> Fraction | None:
    """The simple fraction that a factor is; None without one, or if it may be a rounding."""
    if factor is None or not abs(factor) < LARGEST_PART + 1 or abs(factor - 1) < _LEAST_FACTOR:
        return None
    near = Fraction(factor).limit_denominator(LARGEST_PART)
    return near if near and abs(float(near) - factor) < _FACTOR_ERROR * abs(factor) else None


@dataclass(frozen=True)
class _FirstWrong:
    found: LayoutComparison
    ours: Dataset
    root: dict[str, Any]
    """Row of the table."""
    firsts: dict[int, dict[str, Any]]
    """The first wrong tensor of each rank that has it at this place, by rank."""
    all_ranks: tuple[int, ...]
    """Ranks that hold any."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks with the first wrong tensor."""
        return tuple(sorted(self.firsts))

    def broken(self, rule: str, count: int) -> BrokenRule:
        """The broken rule, with a note."""
        root, named = self.root, self._narrowed()
        row = self.firsts[named[0]]["row"]
        later = sorted(set(self.all_ranks) - set(self.ranks))
        parts = [
            self._where(),
            self._narrow_text(named),
            self._others_text(),
            self._factor_text(),
            f"{ranks_text(later)} differ{'s' if len(later) == 1 else ''} only later" if later else "",
            f"{plural(count, 'tensor')} {'differ' if count != 1 else 'differs'} in all",
            f"Megatron's bound, which does not judge here, is {root['ladder']:.3g}" if root["ladder"] else "",
        ]
        return BrokenRule(
            rule, row, named, (), self.ranks, float(root["off"]), float(root["limit"] or 0.0),
            note="; ".join(part for part in parts if part),
        )  # fmt: skip

    # Where it came about.

    def _where(self) -> str:
        """The bracket in the program of the rank: what is right before the tensor, and what lies between."""
        before, made = self._before(), self._inputs_are_right()
        if self.root["limit"] is None:
            return "what came about before it is not judged without perturbed runs"
        operations = ", ".join(self._between(before))
        if before is None:
            behind = f", behind {operations}" if operations else ""
            return f"it came about at it or before it: it is the first tensor of the step that is compared{behind}"
        behind = f"; between the two: {operations}" if operations else ""
        last = f"the last tensor before it, {_words(before)}, is within its limit{behind}"
        if made:
            inner = f"; {last}" if before["name"] != self.root["name"] else behind
            return f"its inputs are within their limits and its result is not, so it made the difference{inner}"
        around = self._module_around()
        return f"it came about at it or before it{f', inside of {around}' if around else ''}: {last}"

    def _own(self, *conditions: pl.Expr) -> pl.DataFrame:
        """Compared rows of the rank in the step before the first wrong one, in program order."""
        rank, step, order = (self.root[name] for name in ("rank", "step", "order"))
        mine = (pl.col("rank") == rank) & pl.col("step").eq_missing(step) & (pl.col("order") < order)
        return self.found.table.filter(mine, *conditions).sort("order")

    def _before(self) -> dict[str, Any] | None:
        """The last compared tensor before the first wrong one; of a reduced gradient the accumulated one."""
        rows = self._own()
        if self.root["site"] == "gradient" and self.root["slot"].startswith("out"):
            own = rows.filter(PARTIAL_GRADIENT & (pl.col("name") == self.root["name"]))
            rows = own if own.height else rows
        return rows.row(-1, named=True) if rows.height else None

    def _inputs_are_right(self) -> bool:
        """Whether inputs of the operation were compared; those before the first wrong tensor are within limits."""
        site, slot, name = (self.root[key] for key in ("site", "slot", "name"))
        if site == "forward" and slot.startswith("out"):
            call = [pl.col(key).eq_missing(self.root[key]) for key in ("name", "call", "data")]
            return self._own(pl.col("site") == "forward", pl.col("slot").str.starts_with("in"), *call).height > 0
        if site == "optimizer":
            own = self._own(pl.col("name") == name, pl.col("site").is_in(["gradient", "parameter"]))
            return {"gradient", "parameter"} <= set(own["site"])
        return False

    def _module_around(self) -> str:
        """The innermost module around the first wrong tensor of which the inputs are within limits."""
        if self.root["site"] != "forward":
            return ""
        parts = self.root["name"].split(".")[:-1]
        known = set(self._own(pl.col("site") == "forward", pl.col("slot").str.starts_with("in"))["name"])
        around = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((name for name in around if name in known), "")

    def _between(self, before: dict[str, Any] | None) -> Iterator[str]:
        """Collectives, sends and receives of the rank between two of its tensors; None: since the step began."""
        begin = -1 if before is None else before["order"]
        rows = moved_tensors(self.ours, self.root["rank"], self.root["step"], begin, self.root["order"])
        if self.root["site"] == "gradient":
            own = self._tensor(self.root["row"])
            rows = rows.filter(pl.col("numel") == own["numel"])
            gave = giving(rows, own)
            if rows.height and gave.is_empty():
                yield "no reduction of its size gave it"
                return
            rows = gave
        rows = rows.unique(["op", "group", "seq", "peer"], keep="first", maintain_order=True)
        for row in rows.head(_MOST_BETWEEN).iter_rows(named=True):
            number = f" #{row['seq']}" if row["seq"] is not None and row["peer"] is None else ""
            peer = f" with rank {row['peer']}" if row["peer"] is not None else f" of {self._members(row['group'])}"
            yield f"{row['op']}{number}{peer}"
        if rows.height > _MOST_BETWEEN:
            yield f"{plural(rows.height - _MOST_BETWEEN, 'more operation')}"

    def _tensor(self, row: int) -> dict[str, Any]:
        return self.ours.tensors.drop("samples").row(row, named=True)

    def _members(self, group: int | None) -> str:
        if group is None:
            return "a group"
        name, ranks = self.ours.groups.filter(pl.col("group") == group).select("description", "ranks").row(0)
        return f"{name} ({ranks_text(tuple(ranks))})" if name else ranks_text(tuple(ranks))

    # A gradient that one of the members changed before it was reduced.

    def _narrowed(self) -> tuple[int, ...]:
        """The ranks that brought another gradient to its reduction than they had accumulated, if not all did."""
        if self.root["site"] != "gradient" or not self.root["slot"].startswith("out"):
            return self.ranks
        kept = {rank: self._brought_its_own(rank) for rank in self.ranks}
        if True not in kept.values() or False not in kept.values():
            return self.ranks
        return tuple(rank for rank, same in kept.items() if same is False)

    def _brought_its_own(self, rank: int) -> bool | None:
        """Whether a rank brought its own gradient to the reduction; None if unknown."""
        first = self.firsts[rank]
        mine = (pl.col("rank") == rank) & pl.col("step").eq_missing(first["step"]) & (pl.col("name") == first["name"])
        kept = self.found.table.filter(mine, PARTIAL_GRADIENT)["row"]
        if kept.is_empty():
            return None
        return brought_its_own(self.ours, GradientRows(self._tensor(kept[0]), self._tensor(first["row"])))

    def _others_text(self) -> str:
        """Ranks that first differ at the same moment, in a tensor of another name."""
        others = {rank: row for rank, row in self.firsts.items() if row["name"] != self.root["name"]}
        if not others:
            return ""
        ranks = tuple(others)
        verb = "differ" if len(ranks) > 1 else "differs"
        return f"{ranks_text(ranks)} {verb} at the same moment, in {_words(others[ranks[0]])}"

    def _narrow_text(self, named: Sequence[int]) -> str:
        if tuple(named) == self.ranks:
            return ""
        brought = ranks_text(tuple(named))
        return f"of the ranks with that result, {brought} brought another gradient to the reduction than accumulated"

    # How it differs.

    def _factor_text(self) -> str:
        part = fraction(self.root["factor"])
        if part is None:
            return _usual_reason(self.root)
        sizes = self.ours.groups.with_columns(size=pl.col("ranks").list.len())
        text = f"it is {_fraction_text(part)} times the reference"
        if part.numerator != 1 and part.denominator != 1:
            return text
        size = max(abs(part.numerator), part.denominator)
        known = sizes.filter(pl.col("size") == size)
        if known.height:
            names = known.filter(pl.col("description") != "")["description"].unique().sort().to_list()
            return f"{text}, and {size} is the size of {' and of '.join(names[:_MOST_BETWEEN]) or 'a group'}"
        calls = self.found.table["call"].max()
        is_micro = isinstance(calls, int) and calls + 1 == size
        return f"{text}, and a step has {size} micro batches" if is_micro else text


def _fraction_text(part: Fraction) -> str:
    return str(part.numerator) if part.denominator == 1 else f"{part.numerator}/{part.denominator}"


def _usual_reason(root: dict[str, Any]) -> str:
    """The usual reason for such a difference; "" without one."""
    if root["dtype"] != root["dtype_other"]:
        return f"it is {root['dtype']}, and {root['dtype_other']} in the reference"
    if root["site"] == "optimizer":
        return "look at the optimizer and its state"
    if "dropout" in root["name"].lower():
        return "the seed of a dropout may differ"
    form = format_of(root["dtype"])
    small = form is not None and root["off"] <= 16 * form.roundoff
    return "a kernel of another precision, or one that is not deterministic, may do that" if small else ""


def _words(row: dict[str, Any]) -> str:
    """A compared tensor in words: "the input of blocks.0"."""
    is_input = row["slot"].startswith("in")
    noun = {
        "forward": "the input of" if is_input else "the output of", "backward": "the gradient at",
        "gradient": "the accumulated gradient of" if is_input else "the reduced gradient of",
        "parameter": "the parameter", "optimizer": "the optimizer's",
    }.get(row["site"], f"the {row['site']}")  # fmt: skip
    return f"{noun} {row['name']}".strip()
