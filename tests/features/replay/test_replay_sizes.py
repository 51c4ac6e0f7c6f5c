"""Sizes of tensors of a replay: as recorded, as far as memory goes."""

from __future__ import annotations

from rankscope.features.replay.replay_sizes import BASE, ReplaySizes, real_sizes, small_sizes
from rankscope.features.replay.schedule import Schedule, Step

MIB = 1 << 20
KEYS = {"all_reduce": (0, 1), "reduce_scatter": (0, 2), "all_gather": (0, 3), "all_to_all": (0, 4), "barrier": (0, 5)}


def schedule(elements: int = 8 * MIB, other: int | None = None) -> Schedule:
    """Two ranks with one operation of each kind; the first differs in size if `other` is given."""

    def steps(first: int, sent: int) -> tuple[Step, ...]:
        return (
            Step(KEYS["all_reduce"], "all_reduce", first, '["Float"]', pending=False),
            Step(KEYS["reduce_scatter"], "reduce_scatter", elements, '["Float"]', pending=False),
            Step(KEYS["all_gather"], "all_gather", elements, '["Half"]', pending=False),
            Step(KEYS["all_to_all"], "all_to_all", None, '["Long"]', pending=False, sent=sent),
            Step(KEYS["barrier"], "barrier", None, None, pending=False),
        )

    return Schedule({0: steps(elements, 10), 1: steps(other or elements, 30)}, {0: (0, 1)})


def played(sizes: ReplaySizes, of: Schedule, rank: int = 0) -> list[int]:
    return [sizes.of(step) for step in of.steps[rank]]


def test_recorded_sizes_are_played_and_scattered_ones_by_their_output() -> None:
    of = schedule()
    sizes = real_sizes(of, 1024 * MIB)
    assert played(sizes, of) == [8 * MIB, 4 * MIB, 8 * MIB, 30, BASE]
    assert sizes.remarks == ("sizes as recorded, in at most 1 GiB a rank",)
    assert played(small_sizes(of), of) == [BASE] * 5


def test_memory_caps_what_is_gathered_with_its_output_and_is_told() -> None:
    of = schedule()
    sizes = real_sizes(of, 16 * MIB)
    # a tensor of floats; three of floats, and of halves: in, and two times out
    assert played(sizes, of)[:3] == [4 * MIB, 16 * MIB // 12, 16 * MIB // 6]
    assert sizes.remarks[1:] == ("capped: 3 operations, the largest of 8,388,608 elements",)
    together = real_sizes(of, 16 * MIB, serial=False)
    assert played(together, of)[0] == 4 * MIB // 5


def test_sizes_that_differ_still_differ_when_they_are_capped() -> None:
    of = schedule(8 * MIB, 9 * MIB)
    sizes = real_sizes(of, MIB)
    assert played(sizes, of)[0] < played(sizes, of, 1)[0] <= MIB // 4


def test_unknown_sizes_are_told() -> None:
    step = Step((0, 1), "all_reduce", None, None, pending=False)
    sizes = real_sizes(Schedule({0: (step,), 1: (step,)}, {0: (0, 1)}))
    assert sizes.remarks == (f"1 operation of unknown size: {BASE} elements",)


def test_an_unknown_size_is_that_of_the_other_members() -> None:
    known, lost = (Step((0, 1), "all_reduce", size, None, pending=True) for size in (512, None))
    of = Schedule({0: (known,), 1: (lost,), 2: (Step((0, 2), "barrier", None, None, pending=True),)}, {0: (0, 1)})
    sizes = small_sizes(of)
    assert [sizes.of(known), sizes.of(lost), sizes.of(of.steps[2][0])] == [BASE, BASE, BASE]
    larger = Schedule({**of.steps, 3: (Step((0, 3), "all_reduce", 8, None, pending=True),)}, {0: (0, 1, 3)})
    assert small_sizes(larger).of(lost) == small_sizes(larger).of(known) == 2 * BASE
