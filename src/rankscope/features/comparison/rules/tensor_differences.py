"""Summaries of tensors of two runs: the first operation whose numbers differ, and what it had before.

The matching and the first differences are those of `analysis.numbers`, with run A as the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.features.comparison.rules.model import RunDifference, StackPair
from rankscope.features.numbers.rules.model import format_of, gamma
from rankscope.features.numbers.rules.named_tensors import SampleRows
from rankscope.features.numbers.rules.tensor_matching import (
    ComparedTensors,
    DifferenceOrigin,
    compared_tensors,
    difference_origins,
    is_small,
    last_equal,
)
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

PLACE = ("site", "name", "op", "slot")
Place = tuple[Any, ...]
"""Values of `PLACE`: the same tensor in any step."""
_LONGEST_RANKS = 40
START, NEXT = ("seed", "initial-values", "data", "dropout"), ("lr", "optimizer", "data")
"""Kinds of cause of a difference in the first step, and in the one after it."""


@dataclass(frozen=True)
class TensorDifference:
    """A place at which the numbers of two runs begin to differ."""

    found: RunDifference
    place: Place
    is_root: bool
    """All recorded inputs of the operation are equal: it made the difference."""
    kinds: tuple[str, ...]
    """Kinds of cause, of `option_roles.CAUSES`, of which it is one; empty if nothing recorded tells."""
    reason: str
    """The ground of the kinds, as a part of a sentence."""
    is_before_update: bool = False
    """Whether it is in the first step of the job, before the optimizer acts."""


@dataclass(frozen=True)
class TensorComparison:
    """The tensors of both runs."""

    compared: int
    equal: int
    differences: tuple[TensorDifference, ...]
    """The first of each rank, those at one place together, in program order."""
    places: frozenset[Place] = frozenset()
    """All tensors that differ in any step."""
    is_ranked: bool = True
    alone: tuple[int, int] = (0, 0)
    """Tensors that only A has, and only B, of ranks and steps that both recorded."""
    equal_start: str = ""
    """Words for equal parameters of the first step, before any update; empty if they differ or are not recorded."""
    parting: RunDifference | None = None
    """The first operation of which only one of the two recorded the input."""


def compare_tensors(a: Dataset, b: Dataset) -> TensorComparison | None:
    """The summaries of tensors of two runs; None if a run has none, or if no tensor is in both."""
    if not (a.has_tensors and b.has_tensors):
        return None
    tensors = compared_tensors(b, a)
    if tensors.table.is_empty():
        return None
    pair = _TensorPair(a, b, tensors)
    alone = tensors.unmatched.join(tensors.table, on=["rank", "step"], how="semi", nulls_equal=True)
    only_b = alone.filter("ours").height
    return TensorComparison(
        tensors.table.height,
        int(tensors.table["equal"].sum()),
        tuple(map(pair.difference, difference_origins(tensors))),
        frozenset(pair.wrong.select(PLACE).unique().rows()),
        tensors.is_ranked,
        (alone.height - only_b, only_b),
        equal_start=_equal_start(tensors.table),
        parting=pair.parting(alone),
    )


def _equal_start(table: pl.DataFrame) -> str:
    """Words for equal parameters of step 0: those of modules, or all that one rank broadcasts to the others."""
    start = table.filter(pl.col("step") == 0)
    parameters = start.filter(pl.col("site") == "parameter")
    if parameters.height:
        return "the parameters of the first step are equal" if parameters["equal"].all() else ""
    # names and sizes are broadcast as integers
    is_float = pl.col("dtype").cast(pl.String).str.contains("(?i)^(?:b?f|float|bfloat)")
    sent = start.filter((pl.col("site") == "collective") & (pl.col("op").cast(pl.String) == "broadcast") & is_float)
    return (
        "what one rank broadcasts in the first step is equal: parameters" if sent.height and sent["equal"].all() else ""
    )


@dataclass(frozen=True)
class _TensorPair:
    a: Dataset
    b: Dataset
    found: ComparedTensors

    @cached_property
    def wrong(self) -> pl.DataFrame:
        """Tensors that differ."""
        return self.found.table.filter(~pl.col("equal"))

    @cached_property
    def _facts(self) -> Facts:
        return Facts(self.b)

    def difference(self, same: list[DifferenceOrigin]) -> TensorDifference:
        """The difference that begins at one place, on some ranks."""
        origin, row = same[0], same[0].first
        ranks = tuple(sorted({each.first["rank"] for each in same if each.first["rank"] is not None}))
        who = f" on {ranks_text(ranks, _LONGEST_RANKS)}" if ranks else ""
        when = f" in step {row['step']}" if row["step"] is not None else ""
        inputs = "; all of its recorded inputs are equal" if origin.is_exact else ""
        kinds, reason = self._kinds(origin)
        mine = self.b.tensors.row(row["row"], named=True)
        stacks = StackPair(self.a.stack(self.a.tensors["stack_id"][row["other_row"]]), self.b.stack(mine["stack_id"]))
        title = f"{self._subject(mine)}{who}{when}: {_size_text(row)}{inputs}"
        details = tuple(self._details(origin, reason))
        result = RunDifference("values-differ", title, ranks, details, stacks, step=row["step"])
        is_early = row["step"] == 0 and row["site"] != "optimizer"
        return TensorDifference(result, tuple(row[name] for name in PLACE), origin.is_exact, kinds, reason, is_early)

    def parting(self, alone: pl.DataFrame) -> RunDifference | None:
        """The first operation between ranks that stands in one run only; outputs may be lost for other reasons."""
        moved = alone.filter(
            pl.col("site").is_in(["collective", "p2p"])
            & pl.col("slot").str.starts_with("in")
            & pl.col("slice").is_null()
        )
        if not self.found.is_ranked or moved.is_empty():
            return None
        first = moved.sort("step", "order").row(0, named=True)
        same = moved.filter(
            *(pl.col(name).eq_missing(first[name]) for name in ("step", "op", "lane", "occurrence", "ours"))
        )
        run, label = (self.b, "B") if first["ours"] else (self.a, "A")
        row = run.tensors.row(first["row"], named=True)
        facts = Facts(run)
        group = f" of {facts.label(row['group'])}" if row["group"] is not None else ""
        ranks = tuple(sorted(same["rank"].unique().to_list()))
        what = f"{row['op'] or 'an operation'} of {row['numel'] or 0:,} elements{group}"
        when = f" in step {row['step']}" if row["step"] is not None else ""
        title = f"only {label} recorded {what} on {ranks_text(ranks, _LONGEST_RANKS)}{when}"
        return RunDifference("schedule-differs", title, ranks, step=row["step"])

    def _details(self, one: DifferenceOrigin, reason: str) -> Iterator[str]:
        if reason:
            yield reason
        yield last_equal(one)
        steps = self.wrong["step"].drop_nulls().unique().sort()
        yield f"{plural(self.wrong.height, 'tensor')} of {self.found.table.height:,} differ in all" + (
            f", in {plural(len(steps), 'step')}" if len(steps) else ""
        )

    def _subject(self, row: dict[str, Any]) -> str:
        """The tensor in words: "the output of layers.1"."""
        is_input = (row["slot"] or "").startswith("in")
        end = "the input" if is_input else "the output"
        name = row["name"] or "the model"
        if row["site"] == "p2p":
            return f"what rank {row['rank']} {'sends to' if row['op'] == 'send' else 'gets from'} rank {row['peer']}"
        if row["site"] == "collective":
            group = f" of {self._facts.label(row['group'])}" if row["group"] is not None else ""
            number = f" #{row['seq']}" if row["seq"] is not None else ""
            return f"{end} of {row['op'] or 'a collective'}{number}{group}"
        if row["site"] == "gradient":
            return f"the gradient of {name}{'' if is_input else ', as the optimizer finds it,'}"
        return {
            "forward": f"{end} of {name}",
            "backward": f"the gradient at {name}",
            "parameter": f"the parameter {name}",
            "batch": f"the batch{f' {name}' if row['name'] else ''}",
            "loss": "the loss",
            "optimizer": f"the new parameter {name}" if row["slot"] == "out0" else f"{row['slot']} of {name}",
        }.get(row["site"], name)

    # Kinds of cause.

    def _kinds(self, one: DifferenceOrigin) -> tuple[tuple[str, ...], str]:
        """Kinds of cause, and their ground in words."""
        row = one.first
        for what, kind in (("dtype", "precision"), ("reduce_op", "code")):
            if row[what] != row[f"{what}_other"]:
                return (kind,), f"it is {row[f'{what}_other']} in A and {row[what]} in B"
        if row["site"] == "batch":
            return ("data",), self._batch_text(row)
        if row["site"] == "optimizer":
            grads = self._of_step(row, "gradient").filter(pl.col("name") == row["name"])
            is_equal = grads.height and grads["equal"].all()
            return ("optimizer", "lr"), "the gradient of this parameter is equal" if is_equal else ""
        return self._operation_kinds(one) if one.is_exact else self._early_kinds(row)

    def _operation_kinds(self, one: DifferenceOrigin) -> tuple[tuple[str, ...], str]:
        """Kinds for an operation whose inputs are equal."""
        if "dropout" in (one.first["name"] or "").lower():
            return ("dropout",), "its input is equal, and a dropout draws random numbers"
        if one.first["site"] == "collective":
            if one.first["op"] == "broadcast":
                return self._weight_kinds(one.first, "what one rank broadcasts to the others differs")
            within = self._is_rounding(one)
            if within is None:
                within = is_small(one.first)
            if within:
                return ("order",), "the difference is within the rounding of a sum in another order"
            return (), "no order of sums explains it: rankscope report --only numbers says which run is wrong"
        return self._module_kinds(one.first) if one.first["site"] in ("forward", "backward") else ((), "")

    def _is_rounding(self, one: DifferenceOrigin) -> bool | None:
        """Whether all samples of a sum differ by no more than two orders of additions may; None if that is unknown.

        Each is within gamma(n - 1) * sum |x_r| of the exact sum (Higham); a sum of two members has one result.
        """
        row = self.b.tensors.row(one.first["row"], named=True)
        form, n = format_of(row["dtype"]), len(one.inputs)
        known = row["group"] is not None and row["op"] == "all_reduce" and row["reduce_op"] in ("sum", "avg")
        if form is None or not known or n != len(self._facts.groups[row["group"]].ranks):
            return None
        x = SampleRows(self.b).take(pl.Series(one.inputs))[0]
        y_b, y_a = (
            SampleRows(run).take(pl.Series([one.first[name]]))[0][0]
            for run, name in ((self.b, "row"), (self.a, "other_row"))
        )
        share, roundings = (n, n + 1) if row["reduce_op"] == "avg" else (1, n - 1)
        if (n < 3 and share == 1) or not np.isfinite(one.first["off"]):
            return False
        limit = 2 * (gamma(roundings, form.roundoff) * np.abs(x).sum(axis=0) / share + n * form.tiny)
        off = np.abs(y_a - y_b)
        compared = np.isfinite(off) & np.isfinite(limit)
        return bool((off <= limit)[compared].all()) if compared.any() else None

    def _module_kinds(self, row: dict[str, Any]) -> tuple[tuple[str, ...], str]:
        """Kinds for a module whose inputs are equal: its weights, random numbers, or the kernel."""
        inside = pl.col("name").str.starts_with(f"{row['name']}.")
        weights = self._of_step(row, "parameter").filter(inside)
        if weights.height and not weights["equal"].all():
            return self._weight_kinds(row, "the weights of this module differ already")
        if is_small(row):
            return ("kernel",), "the difference is as small as rounding"
        if weights.height:
            return ("dropout", "kernel"), "its weights are equal, too"
        return ("initial-values", "dropout", "kernel"), "its weights are not recorded"

    def _weight_kinds(self, row: dict[str, Any], said: str) -> tuple[tuple[str, ...], str]:
        if row["step"] == self._steps[0] == 0:
            return ("seed", "initial-values"), f"{said}, in the first step"
        if row["step"] == self._steps[0]:
            return (), f"{said}, in the first step that both recorded: it began before"
        return ("optimizer", "lr"), said

    def _early_kinds(self, row: dict[str, Any]) -> tuple[tuple[str, ...], str]:
        """Kinds for tensors of which it is not known what made them: by the step."""
        if row["site"] == "parameter":
            return self._weight_kinds(row, "the parameter differs before the step")
        if row["op"] == "broadcast":
            # parameters and buffers: what they hold was made before
            return self._weight_kinds(row, "what one rank broadcasts to the others differs")
        known = {"data"} if self._of_step(row, "batch").height else set[str]()
        first, *others = self._steps
        if row["step"] == first == 0:
            return tuple(one for one in START if one not in known), "nothing differs before it in the first step"
        if row["step"] == first:
            return (), "it differs in the first step that both recorded: it began before"
        if others and row["step"] == others[0] == first + 1:
            return tuple(one for one in NEXT if one not in known), f"step {first}, before the first update, is equal"
        return (), ""

    @cached_property
    def _steps(self) -> list[int]:
        return self.found.table["step"].drop_nulls().unique().sort().to_list() or [0]

    def _of_step(self, row: dict[str, Any], site: str) -> pl.DataFrame:
        mine = pl.col("rank").eq_missing(row["rank"]) & pl.col("step").eq_missing(row["step"])
        return self.found.table.filter(mine & (pl.col("site") == site))

    def _batch_text(self, row: dict[str, Any]) -> str:
        """Where run A has the batch, if it has it at all: then only the order is another one."""
        batch = self.a.tensors.filter((pl.col("site") == "batch") & (pl.col("hash") == pl.lit(row["hash"], pl.UInt64)))
        there = batch.filter(pl.col("name").cast(pl.String) == row["name"]).select("rank", "step").sort("step", "rank")
        if row["hash"] is None or there.is_empty():
            return "A has this batch in no recorded step"
        rank, step = there.row(0)
        who = "it is the batch that" if row["rank"] is None else f"rank {row['rank']} has the batch that"
        return f"{who} rank {rank} has in step {step} of A: the order of the data is another one"


def _size_text(row: dict[str, Any]) -> str:
    """How much a tensor differs, in words."""
    if not np.isfinite(row["off"]):
        return "it is finite in one run only"
    if row["off"] > 0:
        return f"relative difference {row['off']:.2g} of the samples"
    norm, other = row["l2"], row["l2_other"]
    if norm is not None and other and norm != other:
        return f"relative difference {abs(norm / other - 1):.2g} of the norms"
    return "other bits, and no sampled element differs"
