"""Fingerprints of several groups on lanes of each: their lines name none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankscope.analysis import analyse
from rankscope.schema import Dataset
from tests.features.logs.rows.job import groups, job, lane, messages, source

ALL = (0, 1, 2, 3)
PAIRS = ((0, 1), (2, 3))
MESH = (*PAIRS, (0, 2), (1, 3))
BARRIER = "failed to pass monitoredBarrier in 8000 ms"
Call = tuple[tuple[int, ...], int, str]
"""Members of the group, sequence number, operation."""


def printed(rank: int, call: Call, size: int = 4) -> str:
    members, seq, op = call
    return (
        f"[rank{rank}]:[I1120 19:13:12.000015644 ProcessGroupWrapper.cpp:710] [Rank {members.index(rank)}] Running "
        f"collective: CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape=[{size}], "
        "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided))"
    )


def seats(*teams: Sequence[int]) -> list[str]:
    """What the store prints when groups 0, 1, … are made."""
    return [
        "[I1120 19:13:11.000015644 TCPStoreLibUvBackend.cpp:887] [c10d - trace] set key:/default_pg/0//cpu//"
        f"pg_wrapper:{name}/0/{place} address:[::ffff:127.0.0.1]:{40000 + rank}"
        for name, members in enumerate(teams) for place, rank in enumerate(members)
    ]  # fmt: skip


def steps(count: int, *teams: tuple[int, ...], op: str = "ALLREDUCE") -> list[Call]:
    return [(members, seq, op) for seq in range(count) for members in teams]


def told(calls: Iterable[Call]) -> list[str]:
    return [printed(rank, call) for call in calls for rank in call[0]]


def run(lines: Sequence[str]) -> Dataset:
    return job(source("train.log", lines))


def lanes(dataset: Dataset, rank: int) -> dict[tuple[int, ...], list[tuple[int, str]]]:
    """Number and operation of a rank's collectives by members of their group."""
    return {
        group.ranks: [(seq, op) for seq, op, _ in lane(dataset, rank, group.id)]
        for group in dataset.group_list if lane(dataset, rank, group.id)
    }  # fmt: skip


def test_the_store_tells_the_members_and_the_lines_the_rest() -> None:
    calls = [call for seq in range(3) for call in (*steps(1, *MESH), (ALL, 0, "BROADCAST"))]
    calls = [(members, at // 5, op) for at, (members, _, op) in enumerate(calls)]
    dataset = run([*seats(ALL, *MESH), *told(calls)])
    assert groups(dataset) == {str(at): own for at, own in enumerate((ALL, *MESH))}
    assert set(dataset.groups["membership"]) == {"config"}
    assert dataset.ops.height == 36
    assert lanes(dataset, 0) == {
        ALL: [(n, "broadcast") for n in range(3)], (0, 1): [(n, "all_reduce") for n in range(3)],
        (0, 2): [(n, "all_reduce") for n in range(3)],
    }  # fmt: skip
    assert not analyse(dataset).culprits


def test_without_the_store_nobody_is_put_anywhere() -> None:
    dataset = run(told(steps(3, *PAIRS, ALL)))
    assert dataset.ops.is_empty() and not groups(dataset)
    assert messages(dataset, "log-unplaced") == [
        "24 operations: fingerprints that fit several groups; their group is not known"
    ]
    assert not analyse(dataset).culprits


def test_groups_of_the_same_ranks_are_told_apart_only_if_it_makes_no_difference() -> None:
    own = ((ALL, "ALLREDUCE"), (ALL, "ALLGATHER"), ((0, 1), "X"))
    calls = [(members, seq, op) for seq in range(2) for members, op in own]
    dataset = run([*seats(ALL, ALL, (0, 1)), *told(calls)])
    assert lanes(dataset, 0) == {(0, 1): [(0, "x"), (1, "x")]}
    assert lanes(dataset, 3) == {}
    alike = run([*seats(ALL, ALL), *told(steps(2, ALL, ALL))])
    assert groups(alike) == {"0 or 1 (1)": ALL, "0 or 1 (2)": ALL}
    assert [len(lane(alike, 3, at)) for at in (0, 1)] == [2, 2]


def test_who_left_a_pair_is_the_one_that_is_missed_there() -> None:
    lines = [*seats(ALL, *PAIRS), *told(steps(3, *PAIRS, ALL)), *told([((0, 1), 3, "ALLREDUCE")])]
    lines += [printed(2, ((2, 3), 3, "ALLREDUCE")), *(printed(rank, (ALL, 3, "BROADCAST")) for rank in (0, 1))]
    lines += [f"[rank2]:[E1120 19:13:20.000015644 ProcessGroupGloo.cpp:67] [Rank 0]: Ranks 1 {BARRIER}"]
    lines += ["[rank2]: Traceback (most recent call last):", f"[rank2]: RuntimeError: [Rank 0]: Ranks 1 {BARRIER}"]
    dataset = run(lines)
    first = analyse(dataset).findings[0]
    assert (first.kind, first.culprit_ranks) == ("missing-rank", (3,))
    assert lanes(dataset, 0)[ALL][-1] == (3, "broadcast")


def test_of_which_group_the_last_line_is_a_barrier_that_failed_may_tell() -> None:
    done = told(steps(2, *PAIRS, ALL))
    last = [printed(rank, (ALL, 2, "ALLREDUCE")) for rank in (0, 1, 2)]
    failed = ["[rank0]: Traceback (most recent call last):", f"[rank0]: RuntimeError: [Rank 0]: Ranks 3 {BARRIER}"]
    dataset = run([*seats(ALL, *PAIRS), *done, *told([((2, 3), 2, "ALLREDUCE")]), *last, *failed])
    # rank 1 has the same place in its pair, but only the group of all has one of number 3
    assert lanes(dataset, 1)[ALL][-1] == (2, "all_reduce")
    assert len(lanes(dataset, 1)[0, 1]) == 2
    assert analyse(dataset).culprits == (3,)


def test_if_it_is_not_told_no_last_line_is_put_anywhere_and_nobody_is_accused() -> None:
    done = told(steps(2, *PAIRS, ALL))
    last = [printed(rank, (ALL, 2, "ALLREDUCE")) for rank in (0, 1, 2)]
    failed = ["[rank3]: Traceback (most recent call last):", "[rank3]: RuntimeError: Connection closed by peer"]
    dataset = run([*seats(ALL, *PAIRS), *done, *told([((2, 3), 2, "ALLREDUCE")]), *last, *failed])
    assert {len(own) for own in lanes(dataset, 1).values()} == {2}
    assert messages(dataset, "log-unplaced")[0].startswith("3 operations")
    assert not [f for f in analyse(dataset).findings if f.kind == "missing-rank"]


def test_a_mismatch_in_a_pair_is_of_that_pair() -> None:
    def differs(rank: int, own: str, other: str) -> list[str]:
        prints = [printed(2, ((2, 3), 2, op)).split("collective: ")[1] for op in (own, other)]
        places = (rank - 2, 3 - rank)
        calls = [f"Rank {place} is running collective: {call}" for place, call in zip(places, prints, strict=True)]
        text = f"{calls[0]}, but {calls[1]}."
        found = f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. {text}"
        return [f"[rank{rank}]: Traceback (most recent call last):", found]

    lines = [*told(steps(2, *PAIRS, ALL)), printed(2, ((2, 3), 2, "ALLREDUCE"))]
    lines += [printed(3, ((2, 3), 2, "BROADCAST")), *differs(2, "ALLREDUCE", "BROADCAST")]
    dataset = run([*seats(ALL, *PAIRS), *lines, *differs(3, "BROADCAST", "ALLREDUCE")])
    assert lane(dataset, 3, 2)[-1] == (2, "broadcast", "scheduled")
    assert dataset.messages.filter(kind="fingerprint-mismatch")["group"].to_list() == [2, 2]
    first = analyse(dataset).findings[0]
    assert (first.kind, first.candidates or first.culprit_ranks) == ("collective-mismatch", (2, 3))


def test_sends_and_receives_count_too() -> None:
    calls = [(members, seq, "ALLREDUCE") for seq in (0, 2, 5) for members in (*PAIRS, ALL)]
    dataset = run([*seats(ALL, *PAIRS), *told(calls)])
    assert [seq for seq, _ in lanes(dataset, 2)[2, 3]] == [0, 2, 5]


def test_each_rank_may_have_a_log_of_its_own() -> None:
    lines = told(steps(3, *PAIRS, ALL))
    files = [source(f"rank_{r}.log", [line for line in lines if line.startswith(f"[rank{r}]")]) for r in ALL]
    dataset = job(source("store.log", seats(ALL, *PAIRS)), *files)
    assert groups(dataset) == {"0": ALL, "1": (0, 1), "2": (2, 3)}
    assert dataset.ops.height == 24
