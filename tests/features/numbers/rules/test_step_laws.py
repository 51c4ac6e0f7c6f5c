"""Laws of the first steps, held against later ones: flows, averages, digits, calls, parts, levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.collective_units import collective_units
from rankscope.features.numbers.rules.model import number_results
from rankscope.features.numbers.rules.number_findings import NumberCause, judge_numbers, with_numbers
from rankscope.features.numbers.rules.step_laws import check_step_laws, sample_digits
from tests.numbers_writer import NumbersJob, cast

BEGIN = 2
RANKS = 4


def values(*seed: int, size: float = 1.0) -> Any:
    return cast(size * np.random.default_rng(seed).standard_normal((12, 10)), "f32")


class LawfulJob(NumbersJob):
    """Four data-parallel ranks with an embedding in parts, a layer, its gradient and its average, and a loss."""

    def __init__(self, fault: str = "", *, lasting: bool = True, ranks: tuple[int, ...] = tuple(range(RANKS))) -> None:
        super().__init__({"dp": list(range(RANKS)), "tp": list(range(RANKS))}, level="modules")
        self.fault, self.lasting, self.faulty = fault, lasting, ranks

    def has(self, fault: str, rank: int = 0) -> bool:
        """Whether a rank does this wrongly in this step."""
        begun = self.step >= BEGIN if self.lasting else self.step == BEGIN
        return self.fault == fault and begun and rank in self.faulty

    def play(self, steps: int = 5) -> list[NumberCause]:
        """The causes that are told of so many steps."""
        for self.step in range(steps):
            self._embed()
            for rank in range(RANKS):
                self.row(rank, "parameter", "in0", values(self.step), name="layer.weight")
                out = values(1, self.step, rank)
                self.row(rank, "forward", "out0", out, name="layer")
                given = out + np.float32(1) if self.has("flow", rank) else out
                kept = values(6, self.step, rank)
                self.row(rank, "forward", "in0", kept, name="drop")
                dropped = kept * (kept > 0) if self.has("dropout", rank) else kept
                self.row(rank, "forward", "out0", dropped, name="drop")
                self.row(rank, "forward", "in0", given, name="head")
                scale = 2.0 if self.has("scale") else 1.0
                self.row(rank, "loss", "in0", cast([[scale * (4 + 0.01 * rank + 0.02 * self.step)]], "f32"))
                logits = cast(scale * np.clip(values(2, self.step, rank), -0.5, 0.5), "f32")
                self.row(rank, "backward", "in0", logits, name="")
                for name in ("head", "layer"):
                    for _ in range(2 if name == "layer" and self.has("twice", rank) else 1):
                        grad = values(3, self.step, rank)
                        narrow = name == "layer" and self.has("digits", rank)
                        self.row(rank, "backward", "in0", cast(grad, "bf16") if narrow else grad, name=name)
            self._average()
        return [cause for cause in judge_numbers(self.dataset()).causes if cause.explained_by is None]

    def _embed(self) -> None:
        parts = []
        for rank in range(RANKS):
            part = values(4, self.step, rank)
            if not self.has("overlap", rank):
                part[[i for i in range(len(part)) if i % RANKS != rank]] = 0
            parts.append(part)
        self.all_reduce("tp", parts)

    def _average(self) -> None:
        grads = [values(5, self.step, rank, size=3 if self.has("gradient") else 1) for rank in range(RANKS)]
        total = cast(sum(grad.astype(np.float64) for grad in grads), "f32")
        for rank, grad in enumerate(grads):
            self.row(rank, "gradient", "in0", grad, name="layer.weight")
        self.collective("all_reduce", "dp", dict(enumerate(grads)), dict.fromkeys(range(RANKS), total),
                        reduce_op="sum")  # fmt: skip
        found = total if self.has("sum") else total / np.float32(RANKS)
        for rank in range(RANKS):
            self.row(rank, "gradient", "out0", found, name="layer.weight")


def test_a_run_that_keeps_its_laws_is_right() -> None:
    assert LawfulJob().play() == []
    judged = judge_numbers(_played(LawfulJob()))
    asked = {count.rule for count in judged.counts}
    assert {"H1", "H2", "H3", "H4", "H5", "H7"} <= asked


def _played(job: LawfulJob) -> Any:
    job.play()
    return job.dataset()


@pytest.mark.parametrize(
    ("fault", "rule", "variant", "rank"),
    [
        ("flow", "H1", "flow-changes", True),
        ("sum", "H2", "scale-changes", False),
        ("digits", "H3", "digits-change", True),
        ("twice", "H4", "calls-change", True),
        ("overlap", "H5", "parts-overlap", True),
    ],
)
def test_a_law_that_breaks_in_the_middle_is_told(fault: str, rule: str, variant: str, rank: bool) -> None:
    (cause,) = LawfulJob(fault, ranks=(1,) if rank else tuple(range(RANKS))).play()
    assert (cause.first.rule, cause.variant) == (rule, variant)
    assert cause.first.ranks == ((1,) if rank else ())


@pytest.mark.parametrize("fault", ["flow", "digits", "twice", "overlap", "scale"])
def test_what_all_ranks_change_is_a_note_and_no_fault(fault: str) -> None:
    job = LawfulJob(fault)
    job.play()
    found = with_numbers(Facts(job.dataset()), Analysis("", "unknown"))
    counts = number_results(found).counts
    kept = sum(count.asked - count.broken for count in counts)
    assert found.status == "numbers-ok" and found.verdict.startswith(f"{kept} checks hold")
    assert any(count.broken for count in counts)
    assert {(f.severity, f.root_cause, f.culprit_ranks) for f in found.findings} == {("info", False, ())}


def test_a_note_explains_no_fault() -> None:
    """A cast on one rank, behind a change on all ranks."""

    class Changed(LawfulJob):
        def row(self, rank: int, site: str, slot: str, values: Any, dtype: str = "f32", **more: Any) -> None:
            late = self.step > BEGIN and rank == 1 and site == "backward" and more["name"] == "head"
            super().row(rank, site, slot, cast(values, "bf16") if late else values, dtype, **more)

    note, fault = sorted(Changed("flow").play(7), key=lambda cause: not cause.is_note)
    assert (note.variant, note.is_note) == ("flow-changes", True)
    assert (fault.variant, fault.first.ranks, fault.is_root) == ("digits-change", (1,), True)


@pytest.mark.parametrize("fault", ["flow", "digits", "twice"])
def test_nobody_is_named_where_all_break_the_law(fault: str) -> None:
    (cause,) = LawfulJob(fault).play()
    assert cause.first.ranks == () and cause.first.members == tuple(range(RANKS))


class LateJob(LawfulJob):
    """Faulty ranks begin one after the other, or do it in these steps alone."""

    def __init__(self, fault: str, *, steps: dict[int, list[int]]) -> None:
        super().__init__(fault)
        self.wrong_steps = steps

    def has(self, fault: str, rank: int = 0) -> bool:
        return self.fault == fault and self.step in self.wrong_steps.get(rank, [])


@pytest.mark.parametrize("fault", ["flow", "digits", "twice"])
def test_nobody_is_named_where_all_break_the_law_in_different_steps(fault: str) -> None:
    steps = {rank: list(range(BEGIN + rank % 2, 7)) for rank in range(RANKS)}
    (cause,) = LateJob(fault, steps=steps).play(7)
    assert cause.first.ranks == ()


@pytest.mark.parametrize("fault", ["flow", "digits", "twice"])
def test_nobody_is_named_for_what_others_do_now_and_then(fault: str) -> None:
    assert LateJob(fault, steps={1: [2, 3, 4, 5, 6], 2: [2, 4]}).play(7) == []


def test_nobody_is_named_for_one_step_in_which_parts_overlap() -> None:
    assert LateJob("overlap", steps={1: [3]}).play(7) == []


@pytest.mark.parametrize("before_loss", [True, False])
def test_sparse_gradients_that_begin_to_overlap_are_no_fault(before_loss: bool) -> None:
    """Rows of an embedding that each rank has seen: none in common in the first steps, and some later. Nothing tells
    where the backward pass begins in a run without losses."""

    class Sparse(NumbersJob):
        def play(self) -> Any:
            rng = np.random.default_rng(1)
            for self.step in range(8):
                parts = []
                for rank in range(RANKS):
                    part = np.zeros((200, 4), np.float32)
                    count = int(rng.integers(3, 60))
                    rows = np.arange(rank * 50, rank * 50 + 5) if self.step < BEGIN else rng.choice(200, count, False)
                    part[rows] = rng.standard_normal((len(rows), 4))
                    parts.append(part)
                    self.row(rank, "parameter", "in0", values(self.step), name="w")
                    if not before_loss:
                        self.row(rank, "loss", "in0", cast([[4.0]], "f32"))
                self.all_reduce("dp", parts)
            return self.dataset()

    dataset = Sparse({"dp": list(range(RANKS))}, level="modules").play()
    assert judge_numbers(dataset).causes == ()


def test_a_rank_whose_share_of_a_vocabulary_grows_is_not_named() -> None:
    """Rank 1 gives the rows of all, and the tokens of rank 2 are more by a third than in the first steps."""

    class Uneven(LawfulJob):
        def _embed(self) -> None:
            shares = (10, 10, 13, 10) if self.step >= BEGIN else (11, 11, 10, 10)
            begin, parts = 0, []
            for rank, share in enumerate(shares):
                part = np.zeros((48, 10), np.float32)
                rows = slice(None) if self.has("overlap", rank) else slice(begin, begin + share)
                part[rows] = cast(np.random.default_rng((9, self.step, rank)).standard_normal((48, 10)), "f32")[rows]
                begin += share
                parts.append(part)
            self.all_reduce("tp", parts)

    (cause,) = Uneven("overlap", ranks=(1,)).play(6)
    assert (cause.first.rule, cause.first.ranks) == ("H5", (1,))


def test_the_first_broken_step_is_named() -> None:
    job = LawfulJob("flow", ranks=(1,))
    (cause,) = job.play()
    assert job.dataset().tensors["step"][cause.first.row] == BEGIN


@pytest.mark.parametrize("fault", ["scale", "gradient"])
def test_a_loss_or_gradient_that_grows_for_good_is_a_note(fault: str) -> None:
    causes = LawfulJob(fault).play(6)
    assert ("level-changes", "H7", True) in [(cause.variant, cause.first.rule, cause.is_note) for cause in causes]


@pytest.mark.parametrize("scales", [(1024.0, 2048.0), (1024.0, 512.0), (4.0, 2.0), (1.0, 2.0)])
def test_a_loss_scaler_that_changes_its_scale_is_no_fault(scales: tuple[float, float]) -> None:
    """All gradients before the optimizer and their sums change, and those that it finds do not."""

    class Scaled(LawfulJob):
        def row(self, rank: int, site: str, slot: str, values: Any, dtype: str = "f32", **more: Any) -> None:
            scale = np.float32(scales[self.step >= BEGIN])
            is_scaled = site == "backward" or (site, slot) == ("gradient", "in0") or more.get("group") == "dp"
            super().row(rank, site, slot, values * scale if is_scaled else values, dtype, **more)

    assert Scaled().play(6) == []


@pytest.mark.parametrize("fault", ["flow", "sum", "digits", "twice", "scale"])
def test_what_happens_once_is_no_fault(fault: str) -> None:
    assert LawfulJob(fault, lasting=False).play(5) == []


@pytest.mark.parametrize("fault", ["flow", "sum", "digits", "twice", "scale", "overlap"])
@pytest.mark.parametrize("steps", [3, 4])
def test_as_many_wrong_steps_as_right_ones_say_nothing(fault: str, steps: int) -> None:
    """Neither in a short run, nor at the end of a longer one."""
    assert LawfulJob(fault).play(steps) == []
    assert LateJob(fault, steps={rank: list(range(9 - steps + BEGIN, 9)) for rank in range(RANKS)}).play(9) == []


def test_nobody_is_named_where_data_decide_how_often_a_module_runs() -> None:
    """Ranks differ in the first steps, each has the same number by chance, and one has more of them later."""

    class Uneven(LawfulJob):
        def _average(self) -> None:
            for rank in range(RANKS):
                for call in range(5 if self.step >= BEGIN and rank == 1 else 1 + rank):
                    self.row(rank, "backward", "in0", values(9, self.step, rank, call), name="cell")

    assert Uneven().play() == []


@pytest.mark.parametrize("ranks", [(1,), tuple(range(RANKS))])
def test_a_module_that_begins_to_change_what_it_gets_is_no_fault(ranks: tuple[int, ...]) -> None:
    """A dropout schedule, late fake quantization, or a branch that begins to be left out."""
    assert LawfulJob("dropout", ranks=ranks).play(6) == []


def test_a_gradient_that_passes_through_a_module_may_change() -> None:
    """A dropout in code gives its gradient to the module before, unchanged only as long as its probability is 0."""

    class Passing(LawfulJob):
        def row(self, rank: int, site: str, slot: str, values: Any, dtype: str = "f32", **more: Any) -> None:
            super().row(rank, site, slot, values, dtype, **more)
            if site == "backward" and more["name"] == "head":
                before = values * np.float32(2) if self.step >= BEGIN and rank == 1 else values
                super().row(rank, site, slot, before, dtype, name="body")

    assert Passing().play(6) == []


def test_a_sum_that_is_smaller_by_the_scale_of_the_loss_is_no_fault() -> None:
    """Gradients are sums, and the scale of the loss was as large as the group."""

    class Halved(LawfulJob):
        def row(self, rank: int, site: str, slot: str, values: Any, dtype: str = "f32", **more: Any) -> None:
            is_scaled = (site, slot) == ("gradient", "in0") or more.get("group") == "dp"
            halves = self.step >= BEGIN and is_scaled
            super().row(rank, site, slot, values / np.float32(2) if halves else values, dtype, **more)

    assert Halved().play(6) == []


def test_gradients_of_one_size_are_told_apart_without_pairs_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """No join has more rows than there are tensors, however many gradients and sums have one size."""
    heights: list[int] = []
    join = pl.DataFrame.join

    def counted(frame: pl.DataFrame, *others: Any, **options: Any) -> pl.DataFrame:
        joined = join(frame, *others, **options)
        heights.append(joined.height)
        return joined

    class Many(LawfulJob):
        def _average(self) -> None:
            for number in range(12):
                grads = [values(8, number, self.step, rank) for rank in range(RANKS)]
                total = cast(sum(grad.astype(np.float64) for grad in grads), "f32")
                self.collective("all_reduce", "dp", dict(enumerate(grads)), dict.fromkeys(range(RANKS), total),
                                reduce_op="sum")  # fmt: skip
                is_sum = self.has("sum") and number == 4
                for rank in range(RANKS):
                    found = total if is_sum else total / np.float32(RANKS)
                    self.row(rank, "gradient", "out0", found, name=f"layer.{number}")

    job = Many("sum")
    job.play(6)
    dataset = job.dataset()
    monkeypatch.setattr(pl.DataFrame, "join", counted)
    answers = {answer.rule: answer for answer in check_step_laws(dataset, collective_units(dataset))}
    (broken,) = answers["H2"].broken
    assert dataset.tensors["name"][broken.row] == "layer.4" and answers["H2"].asked == 4 * 12 * RANKS
    assert max(heights) <= dataset.tensors.height


def test_a_clipped_gradient_is_no_fault() -> None:
    """From a step on the gradient is smaller than the average."""

    class Clipped(LawfulJob):
        def row(self, rank: int, site: str, slot: str, values: Any, dtype: str = "f32", **more: Any) -> None:
            clips = self.step >= BEGIN and site == "gradient" and slot == "out0"
            super().row(rank, site, slot, values * np.float32(0.3) if clips else values, dtype, **more)

    assert Clipped().play() == []


def test_steps_before_the_first_update_teach_nothing() -> None:
    """A branch that begins as zero adds nothing while the learning rate is 0, and does later."""

    class Warm(LawfulJob):
        def row(self, rank: int, site: str, slot: str, values: Any, dtype: str = "f32", **more: Any) -> None:
            if site == "parameter" and self.step < BEGIN:
                values = np.full_like(values, 0.5)
            super().row(rank, site, slot, values, dtype, **more)

    assert Warm("flow").play(5) == []


def test_digits_of_samples() -> None:
    full = np.array([1 + 2.0**-23, 0.0, 3.0, np.inf], "<f4").tobytes()
    narrow = np.array([1.5, -0.75], "<f4").tobytes()
    digits, count = sample_digits(pl.Series([full, b"", narrow, None], dtype=pl.Binary))
    assert digits.tolist() == [24, 0, 2, 0] and count.tolist() == [2, 0, 2, 0]
