"""Rules about the state of optimizers: second moments are not negative, and follow from earlier ones and the gradient.

Adam keeps v' = b v + (1 - b) g g of each element, so the sum of v' is b times that of v plus 1 - b times the square of
the norm of the gradient, whatever the elements are. One b holds for the whole run; it is the median of what steps tell.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.features.numbers.rules.model import BrokenRule, RuleAnswer, format_of
from rankscope.schema import Dataset

SECOND_MOMENTS = ("exp_avg_sq", "max_exp_avg_sq", "square_avg")
"""States of Adam and its kin, of AMSGrad and of RMSprop."""
DECAYED = ("exp_avg_sq", "square_avg")
FEWEST_KNOWN = 8
"""Fewest tensors from which the decay is learned."""
LEAST_DECAY = 0.5
MOST_OFF, MOST_ROUNDOFFS = 0.05, 32.0
"""Largest difference as a share of the expected sum, and what is added for roundings of narrow formats."""


def check_optimizer(dataset: Dataset) -> list[RuleAnswer]:
    """The answers of the rules about second moments."""
    rows = dataset.tensors.drop("samples").with_row_index("row")
    rows = rows.with_columns(pl.col("slot").cast(pl.String), pl.col("dtype").cast(pl.String))
    states = rows.filter((pl.col("site") == "optimizer") & pl.col("slot").is_in(SECOND_MOMENTS))
    return [_negative(states), _lost(states, rows)] if states.height else []


def _negative(states: pl.DataFrame) -> RuleAnswer:
    known = states.drop_nulls("min")
    wrong = known.filter(pl.col("min") < 0).sort("step", "order")
    broken = [
        BrokenRule("O1", row, (rank,), (), (rank,), value=least, note="it is a mean of squares")
        for row, rank, least in wrong.select("row", "rank", "min").iter_rows()
    ]
    return RuleAnswer.of("O1", known.height, broken, known["row"])


def _lost(states: pl.DataFrame, rows: pl.DataFrame) -> RuleAnswer:
    """O2: second moments of a step that those of the step before and the gradient do not give."""
    key = ["rank", "name", "numel"]
    now = states.filter(pl.col("slot").is_in(DECAYED)).unique([*key, "slot", "step"], keep="last", maintain_order=True)
    now = now.select(*key, "slot", "step", "row", "order", "dtype", "sum")
    before = now.select(*key, "slot", pl.col("step") + 1, before="sum", before_row="row")
    is_reduced = (pl.col("site") == "gradient") & (pl.col("slot") == "out0")
    gradients = rows.filter(is_reduced).unique([*key, "step"], keep="last", maintain_order=True)
    gradients = gradients.select(*key, "step", power=pl.col("l2") ** 2)
    both = now.join(before, on=[*key, "slot", "step"]).join(gradients, on=[*key, "step"])
    both = both.drop_nulls(["sum", "before", "power"]).sort("step", "order")
    finite = pl.all_horizontal(pl.col(name).is_finite() for name in ("sum", "before", "power"))
    both = both.filter(finite & (pl.col("power") > 0) & (pl.col("before") > 0))
    apart = (pl.col("before") - pl.col("power")).abs() > LEAST_DECAY * pl.max_horizontal("before", "power")
    told = both.filter(apart).select(b=(pl.col("sum") - pl.col("power")) / (pl.col("before") - pl.col("power")))["b"]
    decay = told.median()
    if len(told) < FEWEST_KNOWN or not isinstance(decay, float) or not LEAST_DECAY <= decay < 1:
        return RuleAnswer.of("O2", 0)
    expected = decay * pl.col("before") + (1 - decay) * pl.col("power")
    roundoff = np.array([form.roundoff if (form := format_of(dtype)) else 0.0 for dtype in both["dtype"]], np.float64)
    both = both.with_columns(
        off=(pl.col("sum") - expected).abs() / expected, limit=pl.Series(MOST_OFF + MOST_ROUNDOFFS * roundoff)
    ).with_columns(beyond=pl.col("off") > pl.col("limit"))
    # a parameter whose first pair of steps does not follow the rule has another optimizer or another decay
    lane = [*key, "slot"]
    asked = both.with_columns(begins=pl.col("beyond").first().over(lane), pair=pl.int_range(pl.len()).over(lane))
    asked = asked.filter(~pl.col("begins") & (pl.col("pair") > 0))
    wrong = asked.filter("beyond")
    everybody = asked["rank"].n_unique()
    ranks = dict(wrong.group_by("step").agg(pl.col("rank").unique().sort()).iter_rows())
    broken = [
        BrokenRule("O2", row, (rank,) if len(ranks[step]) < everybody else (), (), (rank,), off, limit, (earlier,),
                   note="the state of the optimizer was lost, or its decay changed, behind the step before")
        for row, rank, step, off, limit, earlier in wrong.select(
            "row", "rank", "step", "off", "limit", "before_row"
        ).iter_rows()
    ]  # fmt: skip
    return RuleAnswer.of("O2", asked.height, broken, asked["row"])
