"""Who wrote which dump, where names are ambiguous, wrong, or say nothing."""

from __future__ import annotations

import re

from rankscope.schema import Dataset
from tests.parsers.dumps import Groups, Recorder, dataset_of, job

PAIRS: Groups = {
    "0": ("default_pg", [0, 1, 2, 3]), "1": ("tp", [0, 1]), "2": ("tp", [2, 3]),
    "3": ("dp", [0, 2]), "4": ("dp", [1, 3]),
}  # fmt: skip


def used(made: list[Recorder]) -> list[Recorder]:
    for recorder in made:
        for group in recorder.groups:
            recorder.collective(group)
    return made


def ranks(dataset: Dataset) -> list[tuple[int | None, str | None]]:
    return list(dataset.files.select("rank", "rank_source").iter_rows())


def test_the_name_is_believed() -> None:
    files = {f"nccl_trace_rank_{r.rank}": r.pickle() for r in used(job(4))}
    assert ranks(dataset_of(files)) == [(0, "name"), (1, "name"), (2, "name"), (3, "name")]


def test_without_a_name_the_groups_tell() -> None:
    files = {f"dump{'dcba'[r.rank]}": r.pickle() for r in used(job(4, PAIRS))}
    assert ranks(dataset_of(files)) == [(3, "content"), (2, "content"), (1, "content"), (0, "content")]


def test_without_a_name_the_place_in_a_send_tells() -> None:
    made = job(3)
    for r in made:
        r.p2p("0", "send" if r.rank < 2 else "recv", (r.rank + 1) % 3)
    files = {name: r.pickle() for name, r in zip("xyz", made[::-1], strict=True)}
    assert ranks(dataset_of(files)) == [(2, "content"), (1, "content"), (0, "content")]


def test_where_nothing_tells_they_are_numbered_and_marked() -> None:
    made = used(job(3))
    for i, recorder in enumerate(made):
        recorder.thread = str(i)
    files = {name: r.pickle() for name, r in zip("abc", made, strict=True)}
    assert ranks(dataset_of(files)) == [(0, "guess"), (1, "guess"), (2, "guess")]


def test_local_ranks_in_the_names_of_two_nodes() -> None:
    files = {f"node{r.rank // 2}/trace_rank_{r.rank % 2}": r.pickle() for r in used(job(4, PAIRS))}
    dataset = dataset_of(files)
    assert [rank for rank, _ in ranks(dataset)] == [0, 1, 2, 3]
    assert dataset.attempts.height == 1
    assert dataset.files["host"].to_list() == ["node0", "node0", "node1", "node1"]


def test_local_ranks_that_the_groups_do_not_tell_apart() -> None:
    made = used(job(4))
    for recorder in made:
        recorder.thread = str(recorder.rank)
        recorder.entries[0]["time_created_ns"] += recorder.rank
    files = {f"node{r.rank // 2}/trace_rank_{r.rank % 2}": r.pickle() for r in made}
    dataset = dataset_of(files)
    assert ranks(dataset) == [(0, "guess"), (1, "guess"), (2, "guess"), (3, "guess")]
    assert dataset.ops.height == 4


def test_global_ranks_in_the_names_of_two_nodes() -> None:
    files = {f"node{r.rank // 2}/trace_rank_{r.rank}": r.pickle() for r in used(job(4, PAIRS))}
    assert ranks(dataset_of(files)) == [(0, "name"), (1, "name"), (2, "name"), (3, "name")]


def test_a_name_that_its_own_groups_rule_out() -> None:
    made = used(job(4, PAIRS))
    files = {"rank_0": made[0].pickle(), "rank_1": made[2].pickle()}
    assert ranks(dataset_of(files)) == [(0, "name"), (2, "content")]


def test_names_beyond_all_groups_are_believed() -> None:
    """Replicas whose groups count their own ranks only."""
    files = {f"rank_{r.rank + 4 * i}": r.pickle() for i in range(2) for r in used(job(4))}
    dataset = dataset_of(files)
    assert [rank for rank, _ in ranks(dataset)] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_process_id_in_a_name_is_no_rank() -> None:
    for options in ({}, {"version": "2.0"}, {"version": "0"}):
        files = {f"trace_{4711 + r.rank}": r.pickle(**options) for r in used(job(3))}
        assert [rank for rank, _ in ranks(dataset_of(files))] == [0, 1, 2]
        assert dataset_of(files).world_size == 3


def test_a_number_too_large_for_any_job_makes_no_job_of_that_size() -> None:
    made = used(job(2))
    files = {f"rank_{9_000_000 + r.rank}": r.pickle(version="0") for r in made}
    assert dataset_of(files).world_size == 2


def test_the_user_settles_it() -> None:
    files = {f"{5 - r.rank}x": r.pickle() for r in used(job(4))}
    dataset = dataset_of(files, pattern=re.compile(r"(\d)x"))
    assert ranks(dataset) == [(2, "option"), (3, "option"), (4, "option"), (5, "option")]


def test_of_two_dumps_that_the_user_gives_one_rank_the_newest_is_used() -> None:
    older, newer = Recorder(0, {"0": ("default_pg", [0])}), Recorder(0, {"0": ("default_pg", [0])}, thread="7")
    older.collective()
    newer.clock += 5
    newer.collective()
    dataset = dataset_of({"a0": older.pickle(), "b0": newer.pickle()}, pattern=re.compile(r"(\d)"))
    assert dataset.files["used"].to_list() == [False, True]
    assert "b0" in str(dataset.files["problem"][0])


def test_the_world_is_as_large_as_anything_says() -> None:
    made = used(job(4, PAIRS))
    assert dataset_of({"rank_1": made[1].pickle()}).missing_ranks == (0, 2, 3)
    assert dataset_of({"rank_1": made[1].pickle()}, world_size=6).missing_ranks == (0, 2, 3, 4, 5)
    bare = {"rank_5": made[1].pickle(version="0")}
    assert dataset_of(bare).world_size == 6
