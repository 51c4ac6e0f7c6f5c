"""Healthy reductions accuse nobody; each planted fault is found, by the rule that is meant to find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rankscope.features.numbers.rules.number_findings import NumberCause, judge_numbers
from tests.numbers_writer import NumbersJob, cast, in_order, ring, tree, wide

Draw = Callable[[np.random.Generator, tuple[int, ...], int], npt.NDArray[Any]]
DATA: dict[str, Draw] = {
    "normal": lambda rng, shape, _: rng.standard_normal(shape),
    "positive": lambda rng, shape, r: rng.random(shape) * (r + 1),
    "equal": lambda _, shape, r: np.full(shape, 0.1 * (r + 1)),
    "spread": lambda rng, shape, _: rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 3, shape),
    "sparse": lambda rng, shape, _: (rng.random(shape) < 0.1) * 0.3,
    "few": lambda rng, shape, _: rng.integers(0, 3, shape) * 0.1,
    "tiny": lambda rng, shape, _: rng.standard_normal(shape) * 1e-7,
}


def drawn(members: int, shape: tuple[int, ...] = (40, 33), seed: int = 0, kind: str = "normal") -> list[Any]:
    """Inputs of all members."""
    rng = np.random.default_rng(seed)
    return [DATA[kind](rng, shape, rank) for rank in range(members)]


def causes(job: NumbersJob) -> list[NumberCause]:
    """What is wrong with the numbers of a job."""
    return list(judge_numbers(job.dataset()).causes)


def seen(job: NumbersJob) -> list[tuple[str, set[str], tuple[int, ...]]]:
    """Variant, rules and ranks of each root."""
    roots = [one for one in causes(job) if one.explained_by is None]
    return [(one.variant, {rule.rule for rule in one.rules}, one.first.ranks) for one in roots]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(("members", "way"), [(2, in_order), (3, tree), (8, ring), (16, in_order), (16, wide)])
def test_healthy_reductions_accuse_nobody(dtype: str, members: int, way: Callable[..., Any]) -> None:
    job = NumbersJob({"dp": list(range(members))})
    for kind in DATA:
        for reduce_op in ("sum", "avg"):
            job.step += 1
            job.all_reduce("dp", drawn(members, (20, 15), job.step, kind), dtype, reduce_op, way=way)
    judged = judge_numbers(job.dataset())
    assert judged.causes == ()
    asked = {count.rule: count.asked for count in judged.counts}
    assert asked["R1"] == asked["R4"] == asked["E1"] == 2 * len(DATA)
    assert asked["N2" if members == 2 else "R2"] > 0


Spoil = Callable[[dict[int, Any], list[Any]], Any]


def flip(outs: dict[int, Any], ins: list[Any]) -> None:
    outs[2].view(np.uint32)[3, 3] ^= 1


def drop(outs: dict[int, Any], ins: list[Any]) -> None:
    outs.update(dict.fromkeys(outs, in_order(ins[:-1], "f32")))


def double(outs: dict[int, Any], ins: list[Any]) -> None:
    outs.update(dict.fromkeys(outs, in_order([*ins, ins[0]], "f32")))


def overflow(outs: dict[int, Any], ins: list[Any]) -> None:
    bad = outs[0].copy()
    bad[5, 5] = 1e30
    outs.update(dict.fromkeys(outs, bad))


def tail(outs: dict[int, Any], ins: list[Any]) -> None:
    bad = outs[0].copy()
    bad.ravel()[-8:] = ins[0].ravel()[-8:]
    outs.update(dict.fromkeys(outs, bad))


@pytest.mark.parametrize(
    ("spoil", "variant", "rules", "ranks"),
    [
        (flip, "members-differ", {"E1"}, (2,)),
        (drop, "not-the-sum", {"R1", "R2", "R3"}, ()),
        (double, "not-the-sum", {"R1", "R2", "R3"}, ()),
        (overflow, "not-the-sum", {"R4"}, ()),
        (tail, "not-the-sum", {"R1"}, ()),
    ],
)
@pytest.mark.parametrize("reduce_op", ["sum", "avg"])
def test_a_wrong_reduction_is_found(
    spoil: Spoil, variant: str, rules: set[str], ranks: tuple[int, ...], reduce_op: str
) -> None:
    job = NumbersJob({"dp": [0, 1, 2, 3]})
    for step in range(3):
        job.step = step
        ins = drawn(4, seed=step)

        def spoiled(outs: dict[int, Any], ins: list[Any]) -> None:
            whole = {rank: one * len(ins) for rank, one in outs.items()} if reduce_op == "avg" else outs
            if spoil is not flip:
                spoil(whole, ins)
                outs.update(
                    {rank: cast(one / (len(ins) if reduce_op == "avg" else 1), "f32") for rank, one in whole.items()}
                )
            else:
                spoil(outs, ins)

        job.all_reduce("dp", ins, reduce_op=reduce_op, **({"spoil": spoiled} if step == 1 else {}))  # type: ignore[arg-type]
    ((found, own, who),) = seen(job)
    assert (found, who) == (variant, ranks)
    assert rules <= own


def test_a_tie_of_two_is_settled_by_the_inputs() -> None:
    job = NumbersJob({"tp": [0, 1]})
    job.all_reduce("tp", drawn(2), spoil=lambda outs, _: outs[1].__setitem__((0, 0), 9))
    ((variant, rules, who),) = seen(job)
    assert (variant, who) == ("members-differ", (1,)) and rules > {"E1", "N2", "R1"}


def test_two_members_give_the_rounded_sum() -> None:
    job = NumbersJob({"tp": [0, 1]})

    def off_by_one(outs: dict[int, Any], ins: list[Any]) -> None:
        outs[0].view(np.uint32)[0, 1] += 1
        outs[1] = outs[0]

    job.all_reduce("tp", drawn(2), spoil=off_by_one)
    assert ("not-the-sum", ()) in [(variant, who) for variant, rules, who in seen(job) if "N2" in rules]


def test_integers_add_up_modulo_their_width() -> None:
    for dtype in ("i64", "i32"):
        job = NumbersJob({"dp": [0, 1, 2]})
        ins = [np.arange(100) - 50 * rank for rank in range(3)]
        job.all_reduce("dp", ins, dtype)
        assert seen(job) == []
        job.all_reduce("dp", ins, dtype, spoil=lambda outs, _: [one.__setitem__(70, 5) for one in outs.values()])
        assert seen(job) == [("not-the-sum", {"E3"}, ())]


def test_largest_values_are_exact() -> None:
    job = NumbersJob({"dp": [0, 1, 2]})
    job.all_reduce("dp", drawn(3), reduce_op="max", way=lambda parts, _: np.max(parts, axis=0))
    assert seen(job) == []
    job.all_reduce("dp", drawn(3), reduce_op="max", way=lambda parts, _: parts[0])
    assert seen(job) == [("not-the-sum", {"R1"}, ())]


def test_slices_of_a_reduce_scatter() -> None:
    job = NumbersJob({"dp": [0, 1, 2]})
    parts = [[cast(one, "f32") for one in drawn(3, (70,), seed=rank)] for rank in range(3)]
    outs = {k: in_order([parts[rank][k] for rank in range(3)], "f32") for k in range(3)}
    job.collective("reduce_scatter", "dp", dict(enumerate(parts)), outs, reduce_op="sum")
    assert seen(job) == []
    outs[1] = outs[1] + np.float32(0.5)
    job.collective("reduce_scatter", "dp", dict(enumerate(parts)), outs, reduce_op="sum")
    (cause,) = causes(job)
    assert cause.variant == "not-the-sum" and cause.first.members == (0, 1, 2)


def moved(job: NumbersJob, op: str, spoil: Callable[[dict[int, Any]], Any] | None = None) -> None:
    """A collective of three members that moves data, with its outputs changed."""
    own = [cast(one, "f32") for one in drawn(3, (9,))]
    pairs = [[own[(i + k) % 3] for k in range(3)] for i in range(3)]
    kinds: dict[str, tuple[dict[int, Any], dict[int, Any]]] = {
        "all_gather": (dict(enumerate(own)), {r: [one.copy() for one in own] for r in range(3)}),
        "broadcast": ({1: own[1]}, {r: own[1].copy() for r in range(3)}),
        "scatter": ({1: own}, {r: own[r].copy() for r in range(3)}),
        "gather": (dict(enumerate(own)), {1: [one.copy() for one in own]}),
        "all_to_all": (dict(enumerate(pairs)), {r: [pairs[s][r].copy() for s in range(3)] for r in range(3)}),
    }  # fmt: skip
    ins, outs = kinds[op]
    if spoil is not None:
        spoil(outs)
    job.collective(op, "ep", ins, outs, root=1)


@pytest.mark.parametrize("op", ["all_gather", "broadcast", "scatter", "gather", "all_to_all"])
def test_what_arrives_is_what_was_sent(op: str) -> None:
    job = NumbersJob({"ep": [0, 1, 2]})
    moved(job, op)
    judged = judge_numbers(job.dataset())
    assert judged.causes == () and {count.rule: count.asked for count in judged.counts}["E2"] >= 3

    def spoil(outs: dict[int, Any]) -> None:
        receiver = 1 if op == "gather" else 2
        values = outs[receiver]
        (values[1] if isinstance(values, list) else values)[4] += 1

    moved(job, op, spoil)
    (cause,) = causes(job)
    assert cause.first.ranks == (2,) if op in ("all_gather", "broadcast") else set(cause.first.candidates) >= {1}


def test_a_sender_is_named_if_all_receivers_got_something_else() -> None:
    job = NumbersJob({"ep": [0, 1, 2]})
    moved(job, "all_gather", lambda outs: [one[1].__setitem__(0, 7) for one in outs.values()])
    assert seen(job) == [("moved-wrong", {"E2"}, (1,))]


def test_sends_and_receives() -> None:
    job = NumbersJob({"pp": [0, 1]})
    for step, extra in ((0, 0), (1, 1)):
        job.step = step
        for k in range(3):
            own = cast(drawn(1, seed=k)[0], "f32")
            job.row(0, "p2p", "in0", own, op="send", group="pp", peer=1)
            job.row(1, "p2p", "out0", own + extra * (k == 1), op="recv", group="pp", peer=0)
    (cause,) = causes(job)
    assert (cause.variant, cause.first.candidates) == ("moved-wrong", (0, 1))


def test_a_stale_input_is_found_and_a_job_that_repeats_itself_is_not() -> None:
    for stale in (False, True):
        job = NumbersJob({"dp": [0, 1, 2]})
        for step in range(3):
            job.step = step
            for layer in range(2):
                ins = drawn(3, seed=7 * step + layer)
                if step == 2 and layer == 1 and stale:
                    ins[1] = drawn(3, seed=8)[1]
                job.all_reduce("dp", ins)
        assert seen(job) == ([("stale-input", {"S1"}, (1,))] if stale else [])
    job = NumbersJob({"dp": [0, 1, 2]})
    for job.step in range(3):
        job.all_reduce("dp", drawn(3))
    assert seen(job) == []


def test_the_same_data_on_two_ranks() -> None:
    job = NumbersJob({"dp": [0, 1, 2]})
    for layer in range(3):
        ins = drawn(3, seed=layer)
        job.all_reduce("dp", [ins[0], ins[1], ins[1]])
    (cause,) = causes(job)
    assert (cause.variant, cause.first.candidates) == ("same-input", (1, 2))


def parameters(job: NumbersJob, steps: int, change: Callable[[int, int, Any], None], **more: Any) -> list[NumberCause]:
    for step in range(steps):
        job.step = step
        for rank in range(job.world):
            for name in ("layer.0.weight", "norm.weight"):
                own = cast(drawn(1, seed=step)[0] if name != "norm.weight" else np.ones((40, 33)) + 0.1 * step, "f32")
                change(step, rank, own)
                job.row(rank, "parameter", "in0", own, name=name, **more)
    return causes(job)


def test_replicas_that_part_are_found() -> None:
    def change(step: int, rank: int, own: Any) -> None:
        own[0, 0] += step == 2 and rank == 3

    (cause,) = parameters(NumbersJob({"dp": [0, 1, 2, 3]}), 4, change)
    assert (cause.variant, cause.first.rule, cause.first.ranks, cause.times) == ("replicas-differ", "S3l", (3,), 2)
    (cause,) = parameters(NumbersJob({"dp": [0, 1, 2, 3]}), 4, change, placements="R", mesh="dp")
    assert (cause.variant, cause.first.rule, cause.first.ranks) == ("replicas-differ", "S3", (3,))


def test_replicas_that_never_were_are_none() -> None:
    def change(step: int, rank: int, own: Any) -> None:
        own += rank * 0.25

    assert parameters(NumbersJob({"dp": [0, 1]}), 3, change) == []


def test_a_replica_that_differs_from_the_first_step_on_is_named() -> None:
    def other_start(step: int, rank: int, own: Any) -> None:
        own[0, 0] += rank == 2 and own[1, 1] != 1 + 0.1 * step

    (cause,) = parameters(NumbersJob({"dp": [0, 1, 2]}), 3, other_start)
    assert (cause.variant, cause.first.rule, cause.first.ranks, cause.times) == ("replicas-differ", "S3l", (2,), 3)


def test_a_gradient_that_is_wrong_in_the_first_step_makes_no_suspects_of_the_others() -> None:
    def judged(wrong: Callable[[int], int]) -> list[NumberCause]:
        job = NumbersJob({"dp": [0, 1, 2]})
        for job.step in range(3):
            for rank in range(3):
                gradient, weight = (cast(own, "f32") for own in drawn(2, seed=job.step))
                gradient[0, 0] += rank == wrong(job.step)
                job.row(rank, "gradient", "out0", gradient, name="w")
                job.row(rank, "parameter", "in0", weight, name="w")
        return causes(job)

    assert [cause.first.ranks for cause in judged(lambda _: 2)] == [(2,)]
    # another one is wrong later: the third rank settles what would be a tie of two
    assert [(cause.first.ranks, cause.first.candidates) for cause in judged(lambda step: 2 - step)] == [((2,), ())]


def accumulated(wrong: int | None, seed_of: Callable[[int, int], int]) -> list[NumberCause]:
    """Three steps of two tensor groups; a rank has a wrong gradient from step 0 on, and brings it to its data group."""
    job = NumbersJob({"tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]})
    for job.step in range(3):
        for rank in range(4):
            weight = cast(drawn(1, seed=job.step)[0], "f32")
            gradient = cast(drawn(1, seed=seed_of(job.step, rank))[0], "f32")
            late = job.step > 0 and wrong is not None and rank % 2 == wrong % 2
            gradient[0, 0] += rank == wrong or late
            job.row(rank, "gradient", "in0", gradient, name="head")
            job.row(rank, "parameter", "in0", weight, name="head")
    return causes(job)


def test_a_wrong_gradient_of_the_first_step_makes_no_suspects_of_the_other_tensor_group() -> None:
    def by_data(step: int, rank: int) -> int:
        return 10 * step + rank // 2

    (cause,) = accumulated(1, by_data)
    assert (cause.first.rule, cause.first.ranks, cause.first.candidates) == ("S3l", (), (0, 1))
    assert cause.first.note.endswith("which one is wrong is unknown")
    assert accumulated(None, by_data) == [] == accumulated(None, lambda step, rank: 10 * step + rank)
    # with three ranks alike the odd one is named
    assert accumulated(1, lambda step, _: step)[0].first.ranks == (1,)


def test_parts_of_a_model_are_no_replicas_from_the_start() -> None:
    def sharded(step: int, rank: int, own: Any) -> None:
        own += (rank % 2) * 0.25 if own[1, 1] != np.float32(1 + 0.1 * step) else 0

    assert parameters(NumbersJob({"tp": [0, 1, 2, 3]}), 3, sharded) == []


def test_a_nan_is_followed_to_its_source() -> None:
    job = NumbersJob({"tp": [0, 1], "dp": [1, 2, 3]})
    job.all_reduce("tp", drawn(2))
    job.all_reduce("dp", drawn(3))
    job.step = 1
    ins = drawn(3, seed=4)
    ins[1][0, 0] = np.nan
    job.all_reduce("dp", ins)
    job.all_reduce("tp", [drawn(2, seed=5)[0], np.full((40, 33), np.nan)])
    (cause,) = causes(job)
    assert (cause.variant, cause.first.ranks, cause.is_loss_scaling) == ("non-finite", (2,), False)
    assert cause.path == (
        "rank 0 got it in all_reduce #2 of tp from rank 1",
        "ranks 1,3 got it in all_reduce #2 of dp from rank 2",
    )


def test_a_large_value_that_overflows_on_several_ranks_names_nobody() -> None:
    job = NumbersJob({"tp": [0, 1], "all": [0, 1, 2]})
    job.all_reduce("tp", [drawn(1)[0], np.full((40, 33), 1e30)])
    for rank in range(3):
        job.row(rank, "forward", "out0", cast(np.full((40, 33), np.nan if rank < 2 else 0.5), "f32"), name="norm")
    (cause,) = causes(job)
    assert (cause.variant, cause.first.ranks, cause.first.candidates) == ("non-finite", (), (0, 1))


def test_infinite_gradients_alone_may_be_a_loss_scaler() -> None:
    job = NumbersJob({"dp": [0, 1]})
    ins = drawn(2)
    ins[1][0, 0] = np.inf
    job.all_reduce("dp", ins, "f16")
    (cause,) = causes(job)
    assert cause.is_loss_scaling and cause.first.ranks == (1,)


def test_a_nan_out_of_finite_inputs() -> None:
    job = NumbersJob({"dp": [0, 1, 2]})
    job.all_reduce("dp", drawn(3), spoil=lambda outs, _: [one.__setitem__((0, 0), np.nan) for one in outs.values()])
    assert [(cause.variant, cause.first.rule) for cause in causes(job)] == [("non-finite", "R5")]


def test_what_follows_from_a_wrong_output_is_told_apart() -> None:
    job = NumbersJob({"dp": [0, 1, 2, 3]})

    def own(seed: int, rank: int) -> Any:
        return cast(drawn(1, seed=seed)[0] + (job.step > 1 and rank == 2), "f32")

    for job.step in range(3):
        job.all_reduce("dp", drawn(4, seed=job.step), **({"spoil": flip} if job.step == 1 else {}))  # type: ignore[arg-type]
        for rank in range(4):
            job.row(rank, "parameter", "in0", own(job.step, rank), name="layer.0.weight")
    first, second = causes(job)
    assert (first.variant, first.explained_by, second.variant, second.explained_by) == (
        "members-differ", None, "replicas-differ", 0,
    )  # fmt: skip


def later(fault: str) -> list[NumberCause]:
    """Five steps of two tensor groups of two ranks and their data groups, with a fault from the third step on."""
    job = NumbersJob({"tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]})
    for job.step in range(5):
        late = job.step > 1
        for rank in range(4):
            replica = rank // 2 if fault != "same data" or not late else 0
            job.row(rank, "batch", "in0", cast(drawn(1, seed=10 * job.step + replica)[0], "f32"), name="tokens")
        for layer in range(2):
            if fault == "left out" and late and layer == 1:
                continue
            for name in ("dp0", "dp1"):
                ins = drawn(2, seed=100 * job.step + layer)
                if fault == "noise" and late and name == "dp1" and layer == 1:
                    ins[0][0, 0] += 1
                job.all_reduce(name, ins)
    return causes(job)


def test_what_ranks_have_in_common_at_first_they_keep() -> None:
    assert later("") == []
    (cause,) = later("noise")
    assert (cause.variant, cause.first.rule, cause.first.candidates) == ("replicas-differ", "S3l", (0, 1))
    (cause,) = later("same data")
    assert (cause.variant, cause.first.rule, cause.first.candidates) == ("same-input", "S2", (0, 1, 2, 3))


def test_an_operation_that_later_steps_leave_out() -> None:
    (cause,) = later("left out")
    assert (cause.variant, cause.first.rule, cause.first.members) == ("schedule-changes", "S4", (0, 1, 2, 3))
    assert cause.first.ranks == ()


def test_a_weight_that_changes_between_steps_names_its_rank() -> None:
    for ranks, found in (((1,), [("weights-changed", "S5", (1,))]), ((0, 1), [])):
        job = NumbersJob({"dp": [0, 1]})
        for job.step in range(3):
            for rank in range(2):
                own = cast(drawn(1, seed=job.step)[0], "f32")
                own[2, 2] += 1 if job.step == 1 and rank in ranks else 0
                job.row(rank, "parameter", "in0", own, name="w")
                job.row(rank, "optimizer", "out0", cast(drawn(1, seed=job.step + 1)[0], "f32"), name="w")
        roots = [one for one in causes(job) if one.explained_by is None]
        assert [(one.variant, one.first.rule, one.first.ranks) for one in roots] == found
