"""Laws that the first steps keep, held against later ones: a fault that begins in the middle of a run needs no trusted
run then.

Each law is about one place of the program, on each rank, and is learned from the first `LEARNED_STEPS` recorded steps.
Training changes values slowly, and a program may do something else now and then (an evaluation, a layer that is dropped
by chance), so a law counts as broken only where it is broken in every recorded step from one on, and in three at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from rankscope.features.numbers.rules.collective_units import REDUCTIONS, CollectiveUnits, group_kinds
from rankscope.features.numbers.rules.equality_checks import LEARNED_STEPS, is_varied
from rankscope.features.numbers.rules.model import BrokenRule, Ints, RuleAnswer
from rankscope.schema import Dataset
from rankscope.text.wording import ranks_text

FEWEST_LATER = LEARNED_STEPS + 1
"""Fewest later steps in which a law must be broken: more than those in which it was kept, which may be chance."""
_KEY = ["site", "name", "op", "kind", "slot", "slice", "numel", "dtype"]
_AT = ["rank", "place", "k"]
"""A place of a rank, and its number among those of the step."""
_MOVED = ("collective", "p2p", "forward", "backward", "gradient")
"""Sites whose tensors are made anew in each step."""


def check_step_laws(dataset: Dataset, units: CollectiveUnits) -> list[RuleAnswer]:
    """The answers of the laws; none where too few steps are recorded."""
    steps = _trained_steps(dataset)
    if len(steps) < LEARNED_STEPS + FEWEST_LATER:
        return []
    laws = StepLaws(dataset, units, steps)
    return [laws.flows(), laws.averages(), laws.digits(), laws.calls(), laws.parts(), laws.jumps()]


def _trained_steps(dataset: Dataset) -> list[int]:
    """The recorded steps, without first ones behind which no parameter changes, as in a warm-up that begins at 0:
    parts that begin as zero, and what they add nothing to, say nothing about later steps."""
    steps: list[int] = dataset.tensors["step"].drop_nulls().unique().sort().to_list()
    key = ["rank", "name", "numel"]
    weights = dataset.tensors.filter(pl.col("site") == "parameter").select(*key, "step", "hash").drop_nulls()
    weights = weights.unique([*key, "step"], keep="first").sort("step")
    changed = weights.filter(pl.col("hash").shift(-1).over(key) != pl.col("hash"))["step"].min()
    return steps if weights.is_empty() else [step for step in steps if isinstance(changed, int) and step >= changed]


@dataclass(frozen=True)
class StepLaws:
    """The laws of a run."""

    dataset: Dataset
    units: CollectiveUnits
    steps: Sequence[int]
    """Recorded steps, at least `LEARNED_STEPS` and `FEWEST_LATER`."""

    @property
    def _learned(self) -> list[int]:
        return list(self.steps[:LEARNED_STEPS])

    @cached_property
    def _rows(self) -> pl.DataFrame:
        """Floating-point tensors that the capture wrote, at places that are numbered over all ranks: row, rank, step,
        order, place, k, calls (of the place in the step), site, name, size (of its group), hash, statistics, varied
        (and without NaN), is_input, and whether its operation reduces."""
        tensors = self.dataset.tensors.drop("samples", "held").with_row_index("row")
        is_float = pl.col("dtype").cast(pl.String).str.contains("^b?f")
        rows = tensors.filter(is_float & pl.col("tool").is_null() & pl.col("step").is_not_null())
        rows = rows.filter(pl.col("order").is_not_null() & ~pl.col("recompute").fill_null(value=False))
        rows = rows.join(self._groups, on="group", how="left", maintain_order="left")
        rows = rows.with_columns(varied=is_varied())
        places = rows.select(_KEY).unique(maintain_order=True).with_row_index("place")
        rows = rows.join(places, on=_KEY, how="left", nulls_equal=True, maintain_order="left")
        rows = rows.sort("rank", "step", "order")
        call = ["rank", "place", "step"]
        rows = rows.with_columns(k=pl.int_range(pl.len()).over(call), calls=pl.len().over(call))
        known = pl.col("hash").is_not_null() & (pl.col("nan").fill_null(0) == 0)
        return rows.select(
            "row", "order", "step", *_AT, "calls", "site", "name", "dtype", "numel", "hash", "l2", "min", "max",
            "projection", "size",
            varied=pl.col("varied") & known, is_input=pl.col("slot").cast(pl.String).str.starts_with("in"),
            reduces=pl.col("op").cast(pl.String).is_in(REDUCTIONS).fill_null(value=False),
        )  # fmt: skip

    @property
    def _groups(self) -> pl.DataFrame:
        sizes = self.dataset.groups.select("group", size=pl.col("ranks").list.len())
        return group_kinds(self.dataset).join(sizes, on="group")

    def _lasting(self, asked: pl.DataFrame) -> pl.DataFrame:
        """The first broken row of each place of a rank at which all steps from there on are broken.

        `asked` has a row for each place and later step: the columns `_AT`, step, order, row and `wrong`.
        """
        last_right = pl.col("step").filter(~pl.col("wrong")).max().over(_AT).fill_null(-1)
        wrong = asked.filter(pl.col("wrong") & (pl.col("step") > last_right))
        wrong = wrong.filter(pl.len().over(_AT) >= FEWEST_LATER)
        return wrong.sort("step", "order").unique(_AT, keep="first", maintain_order=True)

    def _answer(self, rule: str, asked: pl.DataFrame, note: str) -> RuleAnswer:
        """The answer of a law about single places; `asked` as in `_lasting`, with `before`, a row that keeps the law.

        Ranks are named where all others keep the law at the same place, in all steps: what some ranks break now and
        then happens by chance, and says nothing about others.
        """
        broken_on = pl.col("rank").filter("wrong").n_unique()
        holding = asked.group_by("place", "k").agg(holders=pl.col("rank").n_unique(), broken_on=broken_on)
        wrong = self._lasting(asked).join(holding, on=["place", "k"], maintain_order="left")
        wrong = wrong.with_columns(breaking=pl.len().over("place", "k"))
        wrong = wrong.filter(pl.col("breaking") == pl.col("broken_on"))
        wrong = wrong.with_columns(is_shared=pl.col("breaking") == pl.col("holders"))
        sets = wrong.group_by("place", "k", "step", maintain_order=True).agg(
            pl.col("rank", "row", "before"), pl.col("is_shared").first(), pl.col("order").min()
        ).sort("step", "order", maintain_order=True)  # fmt: skip
        broken = [
            _broken(rule, ranks, rows, before, note, is_shared=is_shared)
            for ranks, rows, before, is_shared in sets.select("rank", "row", "before", "is_shared").iter_rows()
        ]
        return RuleAnswer.of(rule, asked.height, broken)

    def flows(self) -> RuleAnswer:
        """H1: what an operation gave to another one, bit for bit, in the first steps it also gives in later ones.

        The gradients that the optimizer finds are left out: they may be clipped or scaled from some step on. So is what
        passes through a module that changes nothing, from its input to its output or from its gradient to the one
        before: a dropout with probability 0, a fake quantizer that is switched off, a branch that is left out.
        """
        is_final = (pl.col("site") == "gradient") & ~pl.col("is_input")
        rows = self._rows.filter(pl.col("site").is_in(_MOVED) & pl.col("varied") & ~is_final)
        same = ["rank", "step", "hash", "numel", "dtype"]
        given = rows.with_columns(
            pl.col("place", "k", "calls", "site", "name", "is_input").shift().over(same).name.prefix("from_")
        )
        begun = given.filter(pl.col("step").is_in(self._learned) & pl.col("from_place").is_not_null())
        is_same = (pl.col("from_site") == pl.col("site")) & (pl.col("from_name") == pl.col("name"))
        through = is_same & pl.col("from_is_input") & ~pl.col("is_input")
        through |= (pl.col("from_site") == "backward") & (pl.col("site") == "backward")
        begun = begun.filter(~through.fill_null(value=False))
        link = [*_AT, "calls", "from_place", "from_k", "from_calls"]
        links = begun.group_by(link).len().filter(pl.col("len") == len(self._learned)).drop("len")
        later = rows.filter(pl.col("step") > self._learned[-1]).join(links, on=[*_AT, "calls"])
        sources = rows.select(
            "rank", "step", from_place="place", from_k="k", from_calls="calls", given="hash", before="row"
        )
        pairs = later.join(sources, on=["rank", "step", "from_place", "from_k", "from_calls"])
        asked = pairs.with_columns(wrong=pl.col("hash") != pl.col("given"))
        return self._answer("H1", asked, "in the first steps it was, bit for bit, what came before it")

    def averages(self) -> RuleAnswer:
        """H2: a gradient that was the sum of its reduction over the size of its group in the first steps, and is larger
        by a constant factor later."""
        linear = pl.all_horizontal(pl.col("l2", "projection").is_not_null()) & (pl.col("l2") > 0)
        rows = self._rows.filter(pl.col("varied") & linear)
        final = rows.filter((pl.col("site") == "gradient") & ~pl.col("is_input"))
        sums = rows.filter((pl.col("site") == "collective") & pl.col("reduces") & ~pl.col("is_input"))
        sums = sums.filter(pl.col("size") > 1).select(
            "rank", "step", "numel", "dtype", "size", sum_place="place", sum_k="k", sum_calls="calls",
            average=pl.col("l2") / pl.col("size"), average_projection=pl.col("projection") / pl.col("size"),
            before="row",
        )  # fmt: skip
        learned, same = pl.col("step").is_in(self._learned), ["rank", "step", "numel", "dtype"]
        # the average whose norm is the nearest one: pairs of all gradients and sums of one size would be too many
        begun = final.filter(learned).sort("l2").join_asof(
            sums.filter(learned).sort("average"), left_on="l2", right_on="average", by=same, strategy="nearest",
            check_sortedness=False,
        )  # fmt: skip
        factor = pl.col("l2") / pl.col("average")
        turned = pl.col("projection") / pl.col("average_projection") / factor
        is_average = ((factor - 1).abs() < SAME_FACTOR) & ((turned - 1).abs() < SAME_FACTOR)
        link = [*_AT, "sum_place", "sum_k", "sum_calls"]
        links = begun.filter(is_average).group_by(link).agg(pl.len(), usual=pl.col("l2").max())
        links = links.filter(pl.col("len") == len(self._learned)).drop("len")
        later = final.filter(pl.col("step") > self._learned[-1]).join(links, on=_AT)
        pairs = later.join(sums, on=[*same, "sum_place", "sum_k", "sum_calls"])
        # not where the sum is smaller instead, as that of a loss scaler whose scale was the size of the group
        grown = pl.min_horizontal(factor, pl.col("l2") / pl.col("usual")) > 1 + LEAST_GROWTH
        asked = pairs.filter((turned - 1).abs() < SAME_FACTOR).with_columns(wrong=grown)
        note = "in the first steps it was the sum of its reduction over the number of ranks, and it is larger now"
        return self._answer("H2", asked, note)

    def digits(self) -> RuleAnswer:
        """H3: tensors whose samples have all digits of their type in the first steps fit no narrower one later."""
        dtype = pl.col("dtype").cast(pl.String)
        made = pl.col("site").is_in(["forward", "backward"]) & dtype.is_in(list(_DIGITS)) & pl.col("varied")
        rows = self._rows.filter(made).with_columns(
            whole=dtype.replace_strict({name: digits for name, (digits, _) in _DIGITS.items()}, return_dtype=pl.Int64),
            narrow=dtype.replace_strict({name: narrow for name, (_, narrow) in _DIGITS.items()}, return_dtype=pl.Int64),
        )
        digits, count = sample_digits(self.dataset.tensors["samples"][rows["row"].to_numpy()])
        rows = rows.with_columns(digits=pl.Series(digits)).filter(pl.Series(count >= FEWEST_SAMPLES))
        learned = rows.filter(pl.col("step").is_in(self._learned)).group_by(_AT).agg(
            pl.len(), full=(pl.col("digits") >= pl.col("whole") - 1).all(), before=pl.col("row").last()
        ).filter((pl.col("len") == len(self._learned)) & pl.col("full"))  # fmt: skip
        asked = rows.filter(pl.col("step") > self._learned[-1]).join(learned.drop("len", "full"), on=_AT)
        asked = asked.with_columns(wrong=pl.col("digits") <= pl.col("narrow"))
        return self._answer("H3", asked, "all of its samples fit a narrower type now: a cast stands before it")

    def calls(self) -> RuleAnswer:
        """H4: a module whose outputs get a gradient as often as in the first steps, measured by the other modules."""
        rows = self._rows.filter((pl.col("site") == "backward") & (pl.col("k") == 0))
        begun = rows.filter(pl.col("step").is_in(self._learned)).with_columns(
            agrees=pl.col("calls").n_unique().over("place") == 1
        )
        # where the data decide how often a module runs, ranks differ already in the first steps
        begun = begun.filter("agrees").group_by(_AT).agg(
            pl.len(), usual=pl.col("calls").first(), before=pl.col("row").last()
        ).filter(pl.col("len") == len(self._learned))  # fmt: skip
        asked = rows.filter(pl.col("step") > self._learned[-1]).join(begun.drop("len"), on=_AT)
        times = pl.col("calls") / pl.col("usual")
        least = times.min().over("rank", "step")
        # all change with the number of micro batches, and some run less often where layers are dropped by chance
        asked = asked.with_columns(wrong=(times > least) & (least >= 1))
        return self._answer("H4", asked, "it runs more often in a step than in the first steps, and others do not")

    def parts(self) -> RuleAnswer:
        """H5: members whose inputs of a sum overlapped nowhere in the first steps overlap nowhere later.

        Such are the rows of an embedding whose vocabulary is spread: each member has zeros where another has values.
        Only the forward pass is asked: which rows the gradient of an embedding has is decided by the data.
        """
        units = self.units
        fit = units.table.select(pl.col("whole") & pl.col("alike") & (pl.col("size") > 1)
                                 & pl.col("op").is_in(["all_reduce", "reduce_scatter"])).to_series()  # fmt: skip
        rows = units.chosen(fit).rows
        zeros = self.dataset.tensors["zeros"].cast(pl.Int64)[rows["row"].to_numpy()]
        behind = self._rows.filter(pl.col("site").is_in(["loss", "backward", "gradient"]))
        behind = behind.group_by("rank", "step").agg(backward=pl.col("order").min())
        rows = rows.with_columns(filled=pl.col("numel") - zeros)
        rows = rows.join(behind, on=["rank", "step"], how="left", maintain_order="left")
        is_forward = (pl.col("order") < pl.col("backward")).fill_null(value=False)
        given = pl.col("filled").filter(~pl.col("is_out"))
        sums = rows.group_by("unit", maintain_order=True).agg(
            pl.col("group", "op", "step", "numel", "piece", "size").first(), first=pl.col("order").min(),
            given=given.sum(), most=given.max(), got=pl.col("filled").filter("is_out").max(),
            is_forward=is_forward.all(),
        ).filter("is_forward").drop_nulls(["given", "got"]).with_columns(
            place=pl.struct("group", "op", "numel", "piece").rank("dense"), overlap=pl.col("given") - pl.col("got")
        ).sort("step", "first").with_columns(k=pl.int_range(pl.len()).over("place", "step"))  # fmt: skip
        members = rows.filter(~pl.col("is_out")).select("unit", "rank", "row", "order", "filled")
        sums = sums.select("unit", "step", "place", "k", "numel", "size", "overlap", "most").join(members, on="unit")
        apart = (pl.col("overlap") == 0) & (pl.col("most") < (1 - LEAST_ZEROS) * pl.col("numel"))
        begun = sums.filter(pl.col("step").is_in(self._learned)).group_by(_AT).agg(
            pl.len(), apart=apart.all(), usual=pl.col("filled").max(), before=pl.col("row").last()
        ).filter((pl.col("len") == len(self._learned)) & pl.col("apart"))  # fmt: skip
        asked = sums.filter(pl.col("step") > self._learned[-1]).join(begun.drop("len", "apart"), on=_AT)
        # whose values are more by a good part of the overlap: it is the sum of what such members have too much
        grown = pl.col("filled") - pl.col("usual") > pl.col("overlap") / (2 * pl.col("size"))
        asked = asked.with_columns(wrong=(pl.col("overlap") > LEAST_ZEROS * pl.col("numel")) & grown)
        return self._answer(
            "H5", asked, "each element came from one member in the first steps, and comes from several now"
        )

    def jumps(self) -> RuleAnswer:
        """H7: losses, and the gradients that the optimizer finds, do not grow suddenly and for good.

        A loss scaler changes the gradients before, and takes its scale out of these.
        """
        is_final = (pl.col("site") == "gradient") & ~pl.col("is_input") & pl.col("varied")
        kinds = (
            (self._rows.filter(pl.col("site") == "loss"), LEAST_LOSS_JUMP, "loss is", "that"),
            (self._rows.filter(is_final), LEAST_GRADIENT_JUMP, "gradients are", "those"),
        )
        broken: list[BrokenRule] = []
        asked = 0
        for rows, least, what, those in kinds:
            changes = _changes(rows)
            asked += changes.height
            broken += self._jump(rows, changes, least, what, those)
        return RuleAnswer.of("H7", asked, broken)

    def _jump(
        self, rows: pl.DataFrame, changes: pl.DataFrame, least: float, what: str, those: str
    ) -> Iterable[BrokenRule]:
        for at, (step, follows, change, error) in enumerate(
            changes.select("step", "follows", "change", "error").iter_rows()
        ):
            usual = changes["change"].head(at).abs().max()
            if step <= self._learned[-1] or not follows or not isinstance(usual, float):
                continue
            limit = max(least, TIMES_USUAL * usual, TIMES_ERROR * error)
            behind = changes["change"].slice(at).cum_sum()
            if change > limit and len(behind) >= FEWEST_LATER and bool((behind > limit).all()):
                here = rows.filter(pl.col("step") == step).sort("order")
                before = rows.filter(pl.col("step") < step).sort("step", "order", descending=[True, False])
                ranks = tuple(here["rank"].unique().sort())
                note = f"the {what} {np.exp(change):.3g} times {those} of the step before on {ranks_text(ranks)}"
                yield BrokenRule(
                    "H7", here["row"][0], (), (), ranks, float(np.exp(change)), float(np.exp(limit)),
                    note=note, after=before["row"][0],
                )  # fmt: skip
                return


SAME_FACTOR = 1e-3
"""Largest relative difference of two factors that count as the same; roundings of bf16 average out to less."""
LEAST_GROWTH = 0.2
FEWEST_SAMPLES = 16
"""Fewest samples that are finite and not zero, from which digits are told."""
LEAST_ZEROS = 0.05
"""Least share of zeros of each member of a sum in parts, and least share of elements that overlap."""
LEAST_LOSS_JUMP, LEAST_GRADIENT_JUMP = 0.18, 0.4
TIMES_USUAL, TIMES_ERROR = 3.0, 6.0
_DIGITS = {"f32": (24, 11), "f16": (11, 4), "bf16": (8, 4)}
"""Binary digits of a number of each type, and of the next narrower ones: TF32, f16 and bf16, or FP8."""


def sample_digits(samples: pl.Series) -> tuple[Ints, Ints]:
    """The most binary digits that a sample of each tensor has, and the number of samples that are finite and not zero.

    `samples` holds little-endian float32, which holds all that narrower types can; of other tensors both are 0.
    """
    sizes = samples.bin.size().fill_null(0).to_numpy().astype(np.int64) // 4
    bits = np.frombuffer(b"".join(samples.fill_null(b"").to_list()), np.uint32)
    ends = np.cumsum(sizes)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    is_number = (magnitude > 0) & (magnitude < np.uint32(0x7F800000))
    mantissa = np.where(is_number, bits & np.uint32(0x7FFFFF), np.uint32(0)).astype(np.uint32)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    count = np.bincount(owner, is_number, len(sizes)).astype(np.int64)
    joined = np.zeros(len(sizes), np.uint32)
    filled = sizes > 0
    if filled.any():
        joined[filled] = np.bitwise_or.reduceat(mantissa, (ends - sizes)[filled])
    lowest = (joined & (~joined + np.uint32(1))).astype(np.float64)
    zeros_behind = np.where(lowest > 0, np.log2(np.maximum(lowest, 1)), 23).astype(np.int64)
    return np.where(count > 0, 24 - zeros_behind, 0), count


def _changes(rows: pl.DataFrame) -> pl.DataFrame:
    """The change of the logarithm of the norm from step to step: step, follows (the step before is recorded), change
    (the median over places and ranks), and error (the standard error of the mean over ranks)."""
    own = pl.col("step").shift().over(_AT)
    level = pl.col("l2").log()
    changed = rows.sort("step").with_columns(
        off=level - level.shift().over(_AT), follows=(pl.col("step") - own) == 1
    ).filter(pl.col("off").is_finite())  # fmt: skip
    by_rank = changed.group_by("step", "rank").agg(pl.col("off").median(), pl.col("follows").all())
    return by_rank.group_by("step").agg(
        pl.col("follows").all(), change=pl.col("off").mean(),
        error=(pl.col("off").std() / pl.len().sqrt()).fill_null(0.0),
    ).sort("step")  # fmt: skip


def _broken(
    rule: str, ranks: list[int], rows: list[int], before: list[int], note: str, *, is_shared: bool
) -> BrokenRule:
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    members = tuple(ranks[i] for i in order)
    return BrokenRule(
        rule, rows[order[0]], () if is_shared else members, (), members, note=note, after=before[order[0]]
    )
