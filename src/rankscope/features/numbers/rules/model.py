"""Rules about numbers, formats of floating point, and what breaks a rule. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.model import Analysis, FeaturePart
from rankscope.kinds.finding_kinds import Standing

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NumberRule:
    """A rule that healthy numbers satisfy."""

    name: str
    variant: str
    """Kind of wrong number that breaks it."""
    standing: Standing
    statement: str
    """The rule as a sentence for reports."""
    fault: str
    """The fault where the rule does not hold, as a sentence."""


RULES: Mapping[str, NumberRule] = {
    rule.name: rule
    for rule in (
        NumberRule(
            "E1", "members-differ", "proof", "all members end with the same bits", "members hold different bits"
        ),
        NumberRule(
            "E1p",
            "members-differ",
            "heuristic",
            "all members print the same statistics",
            "members print different statistics",
        ),
        NumberRule("E2", "moved-wrong", "proof", "what arrives is what was sent", "what arrives is not what was sent"),
        NumberRule(
            "E3",
            "not-the-sum",
            "proof",
            "integers add up, by their hashes",
            "the result is not the sum of the integers",
        ),
        NumberRule(
            "N2",
            "not-the-sum",
            "proof",
            "two members give the rounded sum",
            "the result is not the rounded sum of two members",
        ),
        NumberRule(
            "R1",
            "not-the-sum",
            "proof",
            "samples are the sum, up to rounding",
            "samples are not the sum, beyond rounding",
        ),
        NumberRule(
            "R2",
            "not-the-sum",
            "model",
            "sample errors are independent roundings",
            "sample errors are no independent roundings",
        ),
        NumberRule(
            "R3",
            "not-the-sum",
            "model",
            "the projection is the sum of projections",
            "the projection is not the sum of projections",
        ),
        NumberRule(
            "R3s", "not-the-sum", "proof", "the total is the sum of totals", "the total is not the sum of totals"
        ),
        NumberRule(
            "R4",
            "not-the-sum",
            "proof",
            "no element exceeds its inputs together",
            "an element exceeds its inputs together",
        ),
        NumberRule(
            "R5",
            "non-finite",
            "proof",
            "finite inputs give finite outputs",
            "finite inputs give an infinite value or NaN",
        ),
        NumberRule("NF", "non-finite", "proof", "values are finite", "a value is infinite or NaN"),
        NumberRule(
            "S1",
            "stale-input",
            "heuristic",
            "inputs are not those of an earlier step",
            "the input is that of an earlier step",
        ),
        NumberRule("S2", "same-input", "heuristic", "members bring different inputs", "members bring the same input"),
        NumberRule("S3", "replicas-differ", "proof", "declared replicas stay equal", "declared replicas differ"),
        NumberRule(
            "S4",
            "schedule-changes",
            "heuristic",
            "steps have the operations of those before",
            "an operation of the steps before is missing",
        ),
        NumberRule(
            "S5",
            "weights-changed",
            "heuristic",
            "weights stay as the optimizer left them",
            "weights changed after the optimizer left them",
        ),
        NumberRule("O1", "state-wrong", "proof", "second moments are not negative", "a second moment is negative"),
        NumberRule(
            "O2",
            "state-wrong",
            "heuristic",
            "second moments follow from those before and the gradient",
            "the second moment does not follow from the one before and the gradient",
        ),
        NumberRule(
            "S3t", "replicas-differ", "heuristic", "weights with two names stay tied", "weights with two names differ"
        ),
        NumberRule(
            "S6",
            "recompute-differs",
            "heuristic",
            "recomputed tensors equal the first ones",
            "the recomputed tensor differs from the first one",
        ),
        NumberRule(
            "H1",
            "flow-changes",
            "heuristic",
            "what is passed on in the first steps is passed on in later ones",
            "what is passed on changes on its way, unlike in the first steps",
        ),
        NumberRule(
            "H2",
            "scale-changes",
            "heuristic",
            "gradients stay averages of their sums",
            "the gradient is no average of its sum any more",
        ),
        NumberRule(
            "H3",
            "digits-change",
            "heuristic",
            "values keep the digits of their type",
            "values fit a narrower type than in the steps before",
        ),
        NumberRule(
            "H4",
            "calls-change",
            "heuristic",
            "modules run as often as in the first steps",
            "a module runs more often than in the first steps",
        ),
        NumberRule(
            "H5",
            "parts-overlap",
            "heuristic",
            "parts of a sum that overlap nowhere stay apart",
            "parts of the sum overlap, unlike in the first steps",
        ),
        NumberRule(
            "H7",
            "level-changes",
            "heuristic",
            "losses and gradients do not grow suddenly and for good",
            "a loss or gradient grows suddenly and for good",
        ),
        NumberRule(
            "RS", "schedule-differs", "heuristic", "both runs record the same tensors", "one run records another tensor"
        ),
        NumberRule(
            "RX",
            "differs-from-reference",
            "heuristic",
            "tensors equal the reference bit for bit",
            "the tensor differs from the reference",
        ),
        NumberRule(
            "RP",
            "differs-from-reference",
            "model",
            "differences are within what perturbed runs allow",
            "the difference exceeds what perturbed runs allow",
        ),
        NumberRule(
            "S3l",
            "replicas-differ",
            "heuristic",
            "tensors equal at first stay equal",
            "tensors differ that were equal at first",
        ),
    )
}
"""The rules by name."""


class NumberFormat(NamedTuple):
    """A format of floating point."""

    roundoff: float
    """Half the distance of 1 to the next number."""
    tiny: float
    """Half the smallest subnormal number."""
    largest: float


_FORMATS: Mapping[str, NumberFormat] = {
    "f64": NumberFormat(2.0**-53, 0.0, float(np.finfo(np.float64).max)),
    "f32": NumberFormat(2.0**-24, 2.0**-150, float(np.finfo(np.float32).max)),
    "f16": NumberFormat(2.0**-11, 2.0**-25, 65504.0),
    "bf16": NumberFormat(2.0**-8, 2.0**-134, 3.3895313892515355e38),
    "f8e4m3": NumberFormat(2.0**-4, 2.0**-10, 448.0),
    "f8e5m2": NumberFormat(2.0**-3, 2.0**-17, 57344.0),
}
INTEGER_BITS: Mapping[str, int] = {"i64": 64, "u64": 64, "i32": 32, "u32": 32, "i16": 16, "u16": 16, "i8": 8, "u8": 8}
"""Widths of the integers whose sums wrap, by name."""


def format_of(dtype: str | None) -> NumberFormat | None:
    """The floating-point format of a short name; None for integers and unknown ones."""
    name = (dtype or "").removesuffix("fn").removesuffix("fnuz")
    return _FORMATS.get(name)


def gamma(count: Ints | int, roundoff: float) -> Floats:
    """Bound k*u / (1 - k*u) on the relative error of k roundings; infinite from k*u = 1 on.

    Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1.
    """
    product = np.asarray(count, np.float64) * roundoff
    with np.errstate(divide="ignore"):
        return np.where(product < 1, product / np.maximum(1 - product, 0), np.inf)


def rounded(values: Floats, dtype: str) -> tuple[Floats, Floats]:
    """Values rounded to nearest in a format: at once, and by way of float32, as some hardware does."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
        if dtype == "f16":
            return values.astype(np.float16).astype(np.float64), single.astype(np.float16).astype(np.float64)
        if dtype == "bf16":
            return _bfloat(values), _bfloat(single.astype(np.float64))
        if dtype == "f32":
            return single.astype(np.float64), single.astype(np.float64)
        return values, values


def _bfloat(values: Floats) -> Floats:
    """Values rounded to 8 bits of precision, ties to even; subnormal numbers keep their distance of 2**-133."""
    mantissa, exponent = np.frexp(values)
    unit = np.ldexp(1.0, np.maximum(exponent - 8, -133))
    with np.errstate(invalid="ignore", over="ignore"):
        found: Floats = np.where(np.isfinite(values) & (mantissa != 0), np.rint(values / unit) * unit, values)
        return np.where(np.abs(found) > _FORMATS["bf16"].largest, np.sign(found) * np.inf, found)


@dataclass(frozen=True)
class BrokenRule:
    """A place at which a rule does not hold."""

    rule: str
    row: int
    """Row of `Dataset.tensors` that shows it: the wrong tensor, or the output of one member."""
    ranks: tuple[int, ...] = ()
    """Ranks that the rule names; empty if it names only the group."""
    candidates: tuple[int, ...] = ()
    """Ranks of which one is wrong, where the rule cannot say which."""
    members: tuple[int, ...] = ()
    """Ranks at the place."""
    value: float = 0.0
    limit: float = 0.0
    rows: tuple[int, ...] = ()
    """Further rows that show it."""
    note: str = ""
    """What the values tell beyond the rule, as a sentence."""
    times: int = 1
    """Places of the same kind at which the rule does not hold, this one included."""
    last_step: int | None = None
    after: int | None = None
    """Row of the last right tensor before it, where that is known."""


MOST_BROKEN = 2_000
"""Most places of one rule that are looked at one by one, the earliest first."""


class RuleAnswer(NamedTuple):
    """The answer of one rule about a run."""

    rule: str
    asked: int
    """How often it was asked."""
    broken: Sequence[BrokenRule]
    """The first places at which it does not hold, at most `MOST_BROKEN`."""
    places: int
    """Number of all places at which it does not hold."""
    rows: pl.Series | None = None
    """Rows of `Dataset.tensors` about which it was asked; None where it does not tell them."""

    @classmethod
    def of(cls, rule: str, asked: int, broken: Sequence[BrokenRule] = (), rows: pl.Series | None = None) -> RuleAnswer:
        """The answer with all places at which the rule does not hold, the earliest first."""
        return cls(rule, asked, broken[:MOST_BROKEN], len(broken), rows)


@dataclass(frozen=True)
class RuleCount:
    """How often a rule was asked, and how often it did not hold."""

    rule: str
    asked: int
    broken: int


class RowState(IntEnum):
    """The answer of the rules about a tensor, the worst last."""

    NOT_JUDGED = 0
    """No rule was asked about it, but whether it is finite."""
    RIGHT = 1
    FOLLOWS = 2
    """A rule does not hold, and an earlier wrong value explains it."""
    SUSPICIOUS = 3
    """A rule that is no proof does not hold."""
    WRONG = 4


@dataclass(frozen=True, eq=False)
class NumberMarks:
    """The answer of the rules about each row of `Dataset.tensors`; all arrays have its height."""

    state: npt.NDArray[np.uint8]
    """Numbers of `RowState`."""
    rule: npt.NDArray[np.uint8]
    """Place in `RULES` of the broken rule, else of the one whose limit is nearest."""
    value: Floats
    limit: Floats
    """Both 0 for rules that compare bits."""
    after: npt.NDArray[np.bool_]
    """The rank may hold wrong values by then: it comes behind what a proof calls wrong."""
    roots: tuple[int, ...] = ()
    """Rows of the causes that nothing explains, in the order of the findings."""


@dataclass(frozen=True, eq=False)
class ReferenceMarks:
    """The distance of each row of `Dataset.tensors` from the reference; all arrays have its height."""

    off: Floats
    """Norm of the difference as a share of the norm of the reference; NaN where nothing was compared."""
    equal: npt.NDArray[np.bool_]
    """Equal bit for bit."""
    limit: Floats
    """NaN where no run tells a limit."""
    norm: Floats
    """Norm of the tensor in the reference; NaN where it is not known."""
    first: npt.NDArray[np.bool_]
    """The first difference of a rank that nobody brought in, or the first other operation."""
    roots: tuple[int, ...] = ()
    """Rows of the first differences, in the order of the findings."""


@dataclass(frozen=True)
class NumberResults:
    """The answers of the rules about a job."""

    counts: tuple[RuleCount, ...] = ()
    """How often each rule was asked."""
    notes: tuple[str, ...] = ()
    """Sentences on the comparison with a reference run."""
    marks: NumberMarks | None = None
    """The answer of the rules about each row of `Dataset.tensors`."""
    distances: ReferenceMarks | None = None
    """The distance of each row of `Dataset.tensors` from a reference; None without a reference."""


NUMBER_RESULTS = FeaturePart[NumberResults]("numbers")
"""Results on numbers in an analysis."""


def number_results(analysis: Analysis) -> NumberResults:
    """The results on numbers of an analysis; empty without summaries of tensors."""
    return NUMBER_RESULTS.find(analysis) or NumberResults()
