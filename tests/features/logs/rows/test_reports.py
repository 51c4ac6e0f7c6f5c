"""Lanes and frontiers from lines of c10d alone."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.schema import Dataset
from tests.features.logs.rows.job import MTIME_NS, dump, groups, job, lane, messages, source
from tests.parsers.dumps import Recorder

STAMP = "E1206 18:44:12.715298746"


def timeout(rank: int, seq: int, op: str = "ALLREDUCE", sizes: str = "NumelIn=6, NumelOut=6") -> str:
    return (
        f"[rank{rank}]:[{STAMP} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType={op}, {sizes}, Timeout(ms)=600000) ran for 600086 milliseconds before timing "
        "out."
    )


def status(rank: int, at: int, enqueued: int, completed: int, group: str = "0 PG GUID 0(default_pg)") -> str:
    return (
        f"[rank{rank}]:[{STAMP} ProcessGroupNCCL.cpp:2268] [PG ID {group} Rank {rank}]  failure detected by watchdog "
        f"at work sequence id: {at} PG status: last enqueued work: {enqueued}, last completed work: {completed}"
    )


def hang(absent: int = 2, ranks: int = 4) -> list[str]:
    """All but one wait in #8; that one finished #7 and its watchdog looks at another group."""
    lines = [line for r in range(ranks) if r != absent for line in (timeout(r, 8), status(r, 8, 9, 7))]
    return [*lines, status(absent, 7, 7, 7)]


def frontiers(dataset: Dataset, group: int = 0) -> dict[int, tuple[int | None, int | None]]:
    rows = dataset.frontiers.filter(group=group).select("rank", "last_enqueued", "last_completed")
    return {rank: (enqueued, completed) for rank, enqueued, completed in rows.iter_rows()}


def test_the_watchdog_alone_names_the_rank_that_did_not_come() -> None:
    dataset = job(source("train.log", hang()))
    assert groups(dataset) == {"0": (0, 1, 2, 3)}
    assert lane(dataset, 0, 0) == [(8, "all_reduce", "scheduled")]
    assert frontiers(dataset) == {0: (9, 7), 1: (9, 7), 2: (7, 7), 3: (9, 7)}
    first = analyse(dataset).findings[0]
    assert (first.kind, first.culprit_ranks, first.seq) == ("missing-rank", (2,), 8)


def test_a_rank_that_says_nothing_is_not_accused() -> None:
    dataset = job(source("train.log", hang()[:-1]), world=4)
    assert not analyse(dataset).culprits
    assert not [f for f in analyse(dataset).findings if f.kind == "missing-dump"]


def test_counters_that_were_never_set_are_unknown() -> None:
    lines = [line.replace("completed work: 7", "completed work: 76280750235782912") for line in hang()]
    assert frontiers(job(source("train.log", lines)))[0] == (9, None)


def test_minus_one_is_none_yet() -> None:
    assert frontiers(job(source("train.log", [status(0, 1, 1, -1), status(1, 1, 1, -1)])))[1] == (1, 0)


def test_the_group_of_a_timeout_is_that_of_the_counters_at_the_same_work() -> None:
    lines = [timeout(1, 8), status(1, 8, 9, 7, "1 PG GUID 45(TP)"), timeout(1, 3), status(1, 3, 3, 2)]
    dataset = job(source("train.log", lines))
    named = {g.name: lane(dataset, 1, g.id) for g in dataset.group_list}
    assert named == {"45": [(8, "all_reduce", "scheduled")], "0": [(3, "all_reduce", "scheduled")]}


def test_a_group_of_which_only_some_members_spoke_is_not_complete() -> None:
    lines = [line for r in (0, 1) for line in (timeout(r, 8), status(r, 8, 8, 7, "4 PG GUID 45(TP)"))]
    dataset = job(source("train.log", lines))
    assert dataset.groups["membership"].to_list() == ["inferred"]
    assert not [f for f in analyse(dataset).findings if f.kind == "stuck-in-collective"]


def test_a_gather_tells_how_many_members_there_are() -> None:
    sizes = "NumelIn=80, NumelOut=10"
    lines = [
        line
        for r in (0, 3)
        for line in (timeout(r, 8, "_REDUCE_SCATTER_BASE", sizes), status(r, 8, 8, 7, "1 PG GUID 1"))
    ]
    dataset = job(source("train.log", lines))
    assert groups(dataset) == {"1": tuple(range(8))}
    assert dataset.world_size == 8


def test_a_year_that_is_missing_is_that_of_the_file() -> None:
    created = job(source("train.log", hang())).ops.filter(rank=0)["created_ns"].item()
    # 6 December is after May: the December before
    assert (MTIME_NS - created) // 86_400_000_000_000 == 173


def test_beside_a_dump_the_watchdog_changes_nothing() -> None:
    made = [Recorder(rank, {"0": ("default_pg", [0, 1, 2, 3])}) for rank in range(4)]
    for recorder in made:
        for _ in range(3):
            recorder.collective()
    dumps = [dump(recorder) for recorder in made]
    plain, both = job(*dumps), job(*dumps, source("train.log", hang()))
    assert both.ops.equals(plain.ops)
    assert both.frontiers.equals(plain.frontiers)
    assert set(both.messages["kind"]) >= {"watchdog-timeout", "pg-status"}


def printed(rank: int, seq: int, op: str = "ALLREDUCE", shape: int = 4) -> str:
    return (
        f"[rank{rank}]:[I1120 19:13:12.{seq:03d}015644 ProcessGroupWrapper.cpp:710] [Rank {rank}] Running collective: "
        f"CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape=[{shape}], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default)))"
    )


def test_fingerprints_are_lanes() -> None:
    dataset = job(source("train.log", [printed(r, n) for n in range(3) for r in range(4)]))
    assert lane(dataset, 3, 0) == [(n, "all_reduce", "unknown") for n in range(3)]
    row = dataset.ops.row(0, named=True)
    assert (row["in_sizes"], row["in_dtypes"], row["library"], row["source"]) == (
        "[[4]]", '["Float"]', "gloo", "c10d-log",
    )  # fmt: skip
    assert analyse(dataset).status == "unknown"


def test_a_second_that_torch_read_too_early_is_put_right() -> None:
    lines = [
        printed(0, 0).replace("12.000015644", "12.948514110"),
        printed(0, 1).replace("12.001015644", "12.018419731"),
    ]
    dataset = job(source("train.log", lines))
    assert [op for _, op, _ in lane(dataset, 0, 0)] == ["all_reduce"] * 2
    assert dataset.ops["seq"].to_list() == [0, 1]
    assert dataset.ops["created_ns"].diff().to_list() == [None, 69_905_621]


@pytest.mark.parametrize("failed", [False, True])
def test_who_never_printed_is_held_against_it_only_once_the_job_failed(failed: bool) -> None:
    lines = [printed(r, n) for n in range(4) for r in range(4) if (r, n) != (3, 3)]
    if failed:
        lines += ["[rank0]: Traceback (most recent call last):", '[rank0]:   File "t.py", line 3, in <module>']
        lines += ["[rank0]: RuntimeError: Timed out waiting 20000ms for send operation to complete"]
    analysis = analyse(job(source("train.log", lines)))
    assert analysis.culprits == ((3,) if failed else ())


def test_fingerprints_of_several_groups_are_not_mixed() -> None:
    lines = [printed(r, n) for n in (0, 1, 0, 2) for r in range(4)]
    dataset = job(source("train.log", lines))
    assert groups(dataset) == {}
    assert dataset.ops.is_empty()


def test_torch_2_1_prints_ranks_without_a_prefix() -> None:
    text = timeout(3, 8).removeprefix(f"[rank3]:[{STAMP} ProcessGroupNCCL.cpp:632] ")
    dataset = job(source("train.log", [f"[E ProcessGroupNCCL.cpp:458] {text}"]))
    assert dataset.seen_ranks == (3,)
    assert dataset.ops["created_ns"].to_list() == [None]


def test_noise_is_counted_and_the_rest_is_kept_by_place() -> None:
    dataset = job(source("train.log", hang()))
    rows = dataset.messages
    assert rows["offset"].is_sorted()
    assert rows.filter(kind="pg-status").height == 4
    assert rows.filter(kind="watchdog-timeout")["rank"].to_list() == [0, 1, 3]
    assert rows.filter(kind="watchdog-timeout")["time_ns"].null_count() == 0
    assert messages(dataset, "fingerprint") == []


def test_a_work_that_no_line_names_the_group_of_is_put_to_none() -> None:
    dataset = job(source("train.log", [*hang(), timeout(0, 3), timeout(1, 3)]))
    assert groups(dataset) == {"0": (0, 1, 2, 3)}
    assert lane(dataset, 0, 0) == [(8, "all_reduce", "scheduled")]
    # their lines are there all the same
    assert sum("SeqNum=3" in text for text in messages(dataset, "watchdog-timeout")) == 2


def test_in_a_log_that_names_no_group_all_are_put_together() -> None:
    dataset = job(source("train.log", [timeout(0, 3), timeout(1, 3)]))
    assert groups(dataset) == {"": (0, 1)}


def test_what_is_cut_is_no_vote() -> None:
    """A line ends within the operation, or within the number of elements."""
    for end in ("UCE, NumelIn", "6, NumelOut", ", NumelOut"):
        lines = hang(absent=4)
        cut = lines[4]
        lines[4] = cut[: cut.index(end)]
        analysis = analyse(job(source("train.log", lines)))
        assert "mismatch" not in analysis.status and "unknown" not in analysis.verdict, analysis.verdict
        assert all("mismatch" not in f.kind for f in analysis.findings)
        assert "#8" in analysis.verdict


def coalesced(rank: int, sizes: str) -> list[str]:
    return [timeout(rank, 8, "COALESCED", sizes), status(rank, 8, 8, 7, "2 PG GUID 9(dp)")]


def test_works_of_several_collectives_are_compared_by_their_sizes() -> None:
    alike = [line for rank in (0, 1, 3) for line in coalesced(rank, "NumelIn=30, NumelOut=120")]
    analysis = analyse(job(source("train.log", [*alike, *coalesced(2, "NumelIn=20, NumelOut=80")])))
    assert (analysis.status, analysis.culprits) == ("mismatch", (2,))
    assert "20 elements and the others 30 elements" in analysis.verdict
    other = analyse(job(source("train.log", [*alike, *coalesced(2, "NumelIn=120, NumelOut=30")])))
    assert other.culprits == (2,) and "reduce_scatter" in other.verdict
    two = analyse(
        job(source("train.log", coalesced(0, "NumelIn=4, NumelOut=8") + coalesced(1, "NumelIn=5, NumelOut=10")))
    )
    assert (two.status, {r for f in two.findings for r in f.candidates}) == ("mismatch", {0, 1})
    same = analyse(job(source("train.log", [*alike, *coalesced(2, "NumelIn=30, NumelOut=120")])))
    assert same.status == "hang"
    sends = analyse(
        job(source("train.log", [*coalesced(0, "NumelIn=0, NumelOut=0"), *coalesced(1, "NumelIn=0, NumelOut=0")]))
    )
    assert sends.status == "hang"
