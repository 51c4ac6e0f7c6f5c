"""A run against a trusted run of another layout: shards, parts of sums, micro batches, the first wrong operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from rankscope.features.numbers.rules import layout_comparison
from rankscope.features.numbers.rules.named_tensors import canonical_name, parsed_change
from rankscope.features.numbers.rules.number_findings import NumbersJudgement
from rankscope.features.numbers.rules.reference import have_same_layout, judge_layouts
from rankscope.schema import Dataset
from tests.numbers_writer import NumbersJob, cast

Spoil = Callable[[str, int, Any], Any]
"""Changes an array of a rank in place: (place, rank, values)."""
TENSOR, DATA, STEPS = 2, 2, 2


class Tensors(NamedTuple):
    """The tensors of a step of the whole model; the second layer adds parts of a sum."""

    tokens: Any
    x: Any
    wide: Any
    parts: Any
    grads: Any
    """Of each data-parallel part."""
    weight: Any

    @classmethod
    def of(cls, step: int, noise: float) -> Tensors:
        """Those of a step, each element changed by noise."""
        rng, near = np.random.default_rng(step), np.random.default_rng(7 + step)
        shapes = ((8, 12), (8, 16), (TENSOR, 8, 12), (DATA, 16, 12))
        made = (rng.standard_normal(shape) * (1 + noise * near.standard_normal(shape)) for shape in shapes)
        x, wide, parts, grads = made
        weight = np.random.default_rng(99).standard_normal((16, 12))
        return cls(rng.integers(0, 1000, (4, 8)), x, wide, parts, grads, weight)

    def forward(self, rows: slice, part: int | None = None) -> Iterator[tuple[str, str, Any, int | None]]:
        """Slot, name and values of what goes through the layers, whole or a part, and the offset of the part."""
        at = None if part is None else 8 * part
        wide = self.wide[rows] if at is None else self.wide[rows, at : at + 8]
        parts, whole = self.parts[:, rows], self.parts[:, rows].sum(0)
        yield "in0", "up", self.x[rows], None
        yield "out0", "up", wide, at
        yield "in0", "down", wide, at
        yield "out0", "down.linear", whole if part is None else parts[part], None
        yield "out0", "down", whole, None


@cache
def one(noise: float = 0.0) -> Dataset:
    """The trusted run, on one rank with two micro batches."""
    made = NumbersJob({"world": [0]})
    for made.step in range(STEPS):
        told = Tensors.of(made.step, noise)
        for micro in range(DATA):
            made.row(0, "batch", "in0", told.tokens[2 * micro : 2 * micro + 2], "i64", name="tokens")
            for slot, name, values, _ in told.forward(slice(4 * micro, 4 * micro + 4)):
                made.row(0, "forward", slot, cast(values, "f32"), name=name)
        for site, slot, values in (
            ("gradient", "in0", told.grads.mean(0)), ("gradient", "out0", told.grads.mean(0)),
            ("parameter", "in0", told.weight),
        ):  # fmt: skip
            made.row(0, site, slot, cast(values, "f32"), name="up.weight")
    return made.dataset()


def four(spoil: Spoil = lambda *_: None) -> Dataset:
    """The run under test: two tensor groups, one for each micro batch of the trusted run."""
    made = NumbersJob({"tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]})
    for made.step in range(STEPS):
        told = Tensors.of(made.step, 1e-7)
        for rank in range(TENSOR * DATA):
            data, part = divmod(rank, TENSOR)
            tokens = told.tokens[2 * data : 2 * data + 2].copy()
            spoil("tokens", rank, tokens)
            made.row(rank, "batch", "in0", tokens, "i64", name="tokens")
            for slot, name, values, at in told.forward(slice(4 * data, 4 * data + 4), part):
                own = cast(values, "f32")
                spoil(f"{slot} {name}", rank, own)
                place: dict[str, Any] = {} if at is None else {"offsets": [0, at], "whole": [4, 16]}
                made.row(rank, "forward", slot, own, name=f"module.{name}", **place)
        for part in range(TENSOR):
            reduce(made, told, part, spoil)
    return made.dataset()


def reduce(made: NumbersJob, told: Tensors, part: int, spoil: Spoil) -> None:
    """The gradients of a part of the weight, their mean over the data-parallel ranks, and that part of the weight."""
    place: dict[str, Any] = {"name": "module.up.weight", "offsets": [8 * part, 0], "whole": [16, 12]}
    rows, ranks = slice(8 * part, 8 * part + 8), [part, part + TENSOR]
    brought = []
    for data, rank in enumerate(ranks):
        grad = cast(told.grads[data, rows], "f32")
        made.row(rank, "gradient", "in0", grad, **place)
        brought.append(grad.copy())
        spoil("brought", rank, brought[-1])
    made.all_reduce(f"dp{part}", brought)
    for rank in ranks:
        mean, weight = cast(np.sum(brought, axis=0) / DATA, "f32"), cast(told.weight[rows], "f32")
        spoil("reduced", rank, mean)
        made.row(rank, "gradient", "out0", mean, **place)
        spoil("weight", rank, weight)
        made.row(rank, "parameter", "in0", weight, **place)


def judged(run: Dataset, *perturbed: Dataset) -> NumbersJudgement:
    return judge_layouts(run, one(), perturbed)


def spoiled(place: str, *ranks: int, factor: float = 1.5) -> Spoil:
    """A fault: these values of these ranks are so many times too large."""
    return lambda at, rank, values: values.__imul__(factor) if (at, rank) in [(place, one) for one in ranks] else None


def test_a_healthy_run_of_another_layout_accuses_nobody() -> None:
    run = four()
    assert not have_same_layout(run, one())
    for perturbed in ([], [one(3e-7)]):
        found = judged(run, *perturbed)
        assert found.causes == () and all(count.asked > 0 == count.broken for count in found.counts)
        assert not any(note.startswith("not compared") for note in found.notes)
    assert any("control: shuffled samples fail" in note for note in found.notes)


@pytest.mark.parametrize(
    ("place", "ranks", "named", "note"),
    [
        ("out0 up", (1,), (1,), "its inputs are within their limits and its result is not"),
        ("in0 down", (2,), (2,), "the last tensor before it, the output of up, is within its limit"),
        ("out0 down", (0, 1), (0, 1), "the last tensor before it, the output of down.linear"),
        ("reduced", (3,), (3,), "between the two: all_reduce #1 of dp1 (ranks 1,3)"),
        ("brought", (2,), (2,), "rank 2 brought another gradient to the reduction than accumulated"),
    ],
)
def test_the_first_wrong_operation_is_named_with_its_ranks(
    place: str, ranks: tuple[int, ...], named: tuple[int, ...], note: str
) -> None:
    run = four(spoiled(place, *ranks))
    found = judged(run, one(3e-7))
    (cause,) = found.causes
    assert cause.first.ranks == named and cause.first.rule == "RP" and cause.first.value > cause.first.limit > 0
    assert note in cause.first.note
    shown = found.distances
    assert shown is not None and shown.roots == (cause.first.row,)
    assert set(run.tensors["rank"].to_numpy()[shown.first]) == set(named)
    assert (shown.off > shown.limit)[shown.first].all() and np.isfinite(shown.norm[shown.first]).all()


def test_a_gradient_that_no_reduction_gave_is_told() -> None:
    run = four(lambda at, _, values: values.cumsum(0, out=values) if at == "reduced" else None)
    (cause,) = judged(run, one(3e-7)).causes
    assert cause.first.ranks == (0, 1, 2, 3) and "no reduction of its size gave it" in cause.first.note


def test_rows_are_fitted_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    run = four(spoiled("out0 up", 1))
    whole = judged(run, one(3e-7))
    assert whole.distances is not None
    monkeypatch.setattr(layout_comparison, "CHUNK_ROWS", 3)
    parts = judged(run, one(3e-7))
    assert parts.distances is not None and parts.causes == whole.causes and parts.notes == whole.notes
    assert np.array_equal(parts.distances.off, whole.distances.off, equal_nan=True)


def test_constant_factors_need_no_perturbed_run_and_are_explained() -> None:
    (cause,) = judged(four(spoiled("reduced", 0, 1, 2, 3, factor=2.0))).causes
    assert cause.first.ranks == (0, 1, 2, 3) and "it is 2 times the reference, and 2 is the size of" in cause.first.note


def test_weights_that_differ_from_the_start_need_no_perturbed_run() -> None:
    def change(place: str, rank: int, values: Any) -> None:
        values[0, 0] += np.spacing(values[0, 0]) * (place == "weight" and rank in (1, 3))

    (cause,) = judged(four(change)).causes
    assert cause.first.rule == "RX" and set(cause.first.ranks) >= {1, 3}


def test_other_data_come_before_what_they_bring_about() -> None:
    def change(place: str, rank: int, values: Any) -> None:
        if place == "tokens" and rank > 1:
            values[0, 0] += 1
        if place == "brought" and rank > 1:
            values *= 2

    data, values = judged(four(change), one(3e-7)).causes
    assert "the data differ" in data.first.note and values.explained_by == 0


def test_what_cannot_be_merged_is_counted() -> None:
    other = NumbersJob({"world": [0, 1]})
    for rank in range(2):
        other.row(rank, "gradient", "out0", cast(np.ones((8, 12)), "f32"), name="up.weight")
    notes = judged(other.dataset()).notes
    assert notes[:2] == (
        "no tensor of the two runs can be compared: record modules in both, and declare shards",
        "not compared: 2 tensors whose shape differs and whose place in the whole is not recorded",
    )


def test_names_lose_their_wrappers_and_take_those_of_the_user() -> None:
    plain = "blocks.0.module.weight"
    assert canonical_name(f"module._orig_mod.{plain}", 0) == plain
    assert canonical_name("blocks.0._checkpoint_wrapped_module", 0) == "blocks.0"
    changes = [parsed_change(r"4-5,7:layers\.(\d)=layers.1\1")]
    assert [canonical_name("layers.3.mlp", rank, changes) for rank in (4, 6, 7)] == [
        "layers.13.mlp", "layers.3.mlp", "layers.13.mlp",
    ]  # fmt: skip
    for text in ("layers", "(=x", r"a=\3", "0-99999999:a=b"):
        with pytest.raises(ValueError, match=r"REGEX=TEXT|cannot be used|ranks"):
            parsed_change(text)


def data_parallel(wrong: dict[int, float], *, ranks: int = 4, noise: float = 0.0, behind: bool = True) -> Dataset:
    """A loss and the gradients at the last output of data-parallel ranks, those of some ranks times a factor."""
    made = NumbersJob({"dp": list(range(ranks))})
    for made.step in range(STEPS):
        rng = np.random.default_rng(made.step)
        losses, gradient = np.abs(rng.standard_normal((4, 1))) + 1, rng.standard_normal((16, 12))
        gradient *= 1 + noise * np.random.default_rng(9 + made.step).standard_normal((16, 12))
        losses *= 1 + noise
        for rank in range(ranks):
            factor, rows = wrong.get(rank, 1.0), 16 // ranks
            part = slice(rank * rows, (rank + 1) * rows)
            mean = losses[rank * 4 // ranks : (rank + 1) * 4 // ranks].mean(0)
            made.row(rank, "loss", "in0", cast(mean * factor, "f32"))
            place: dict[str, Any] = {"offsets": [part.start, 0], "whole": [16, 12]} if ranks > 1 else {}
            if behind:
                own = cast(gradient[part] * factor, "f32")
                made.row(rank, "backward", "in0", own, name="head", **place)
    return made.dataset()


def test_of_a_wrong_sum_of_losses_only_ranks_with_wrong_gradients_are_named() -> None:
    def found(wrong: dict[int, float], **more: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        one_rank = [data_parallel({}, ranks=1, **more), data_parallel({}, ranks=1, noise=1e-6, **more)]
        (cause,) = judge_layouts(data_parallel(wrong, **more), one_rank[0], one_rank[1:]).causes
        return cause.first.ranks, cause.first.candidates

    assert found({2: 8 / 7, 3: 8 / 7}) == ((2, 3), ())
    assert found(dict.fromkeys(range(4), 8 / 7)) == ((0, 1, 2, 3), ())
    # without gradients nobody is named: the loss of the reference is a mean
    assert found({2: 8 / 7, 3: 8 / 7}, behind=False) == ((), (0, 1, 2, 3))
