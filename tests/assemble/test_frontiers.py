"""How far each rank got, and the ways to be absent: overwritten, filtered, never issued, in no dump."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.schema import Dataset
from tests.parsers.dumps import Groups, Recorder, dataset_of, job, named
from tests.parsers.torch_pickle import torch_pickle

TWO: Groups = {"0": ("default_pg", [0, 1]), "1": ("tp", [0, 1])}
COLUMNS = ("last_enqueued", "last_started", "last_completed", "first_kept", "last_kept", "wrapped", "filtered")


def frontier(dataset: Dataset, rank: int = 0, group: int = 0) -> tuple[Any, ...]:
    rows = dataset.frontiers.filter((dataset.frontiers["rank"] == rank) & (dataset.frontiers["group"] == group))
    return rows.select(COLUMNS).row(0)


def recorder(done: int = 5, pending: int = 1, library: str = "nccl") -> Recorder:
    made = Recorder(0, TWO, library=library)
    for i in range(done + pending):
        state = "completed" if i < done else "scheduled"
        if library == "gloo":
            made.collective(state="scheduled", retired=i < done, time_discovered_completed_ns=None)
        else:
            made.collective(state=state)
    return made


def of(made: Recorder, **options: Any) -> Dataset:
    return dataset_of({"rank_0": made.pickle(**options)})


@pytest.mark.parametrize("version", ["1.4", "2.2", "2.3", "2.10"])
def test_a_whole_dump(version: str) -> None:
    dataset = of(recorder(), version=version)
    assert frontier(dataset) == (6, 5, 5, 1, 6, False, "none")


def test_a_group_that_was_never_used_stands_at_nought() -> None:
    for version in ("2.2", "2.10"):
        assert frontier(of(recorder(), version=version), group=1) == (0, None, 0, None, None, False, "none")


def test_overwritten() -> None:
    dataset = of(recorder(), ring=3)
    assert frontier(dataset) == (6, 5, 5, 4, 6, True, "none")
    assert dataset.files["wrapped"].to_list() == [True]


def test_a_group_of_which_all_is_overwritten() -> None:
    made = Recorder(0, TWO)
    made.collective("1")
    for _ in range(5):
        made.collective("0")
    assert frontier(of(made, ring=3), group=1) == (1, 1, 1, None, None, True, "none")
    assert frontier(of(made, ring=3, version="2.2"), group=1) == (None, None, None, None, None, None, "none")


def test_filtered() -> None:
    dataset = of(recorder(pending=2), only_active=True)
    assert frontier(dataset)[:1] == (7,)
    assert frontier(dataset)[2:] == (5, 6, 7, None, "only-active")
    assert dataset.files.select("wrapped", "filtered").row(0) == (None, "only-active")


def test_filtered_down_to_nothing() -> None:
    assert frontier(of(recorder(pending=0), only_active=True)) == (5, 5, 5, None, None, None, "only-active")


def test_entries_left_out_on_demand_are_not_taken_for_filtered() -> None:
    document = {**recorder().document(), "entries": []}
    dataset = dataset_of({"rank_0": torch_pickle(document)})
    assert frontier(dataset) == (6, 5, 5, None, None, None, "unknown")


def test_gaps_between_records_tell_of_a_filter() -> None:
    made = Recorder(0, TWO)
    for group, state in (("0", "scheduled"), ("1", "completed"), ("0", "scheduled")):
        made.collective(group, state=state)
    dataset = of(made, only_active=True, version="2.2")
    assert dataset.files["filtered"].to_list() == ["only-active"]
    # what is pending stands in order, so nothing of the group can be behind it
    assert frontier(dataset)[:3] == (2, None, 0)
    assert frontier(dataset, group=1)[:3] == (None, None, None)


def test_a_watchdog_that_never_saw_anything_complete_is_no_filter() -> None:
    assert frontier(of(recorder(done=0, pending=3))) == (3, None, 0, 1, 3, False, "none")


@pytest.mark.parametrize("ring", [2000, 3])
def test_gloo_counts_other_things_in_its_status(ring: int) -> None:
    made = recorder(library="gloo")
    made.status["0"] = [90, -1, 80]
    dataset = of(made, ring=ring)
    assert frontier(dataset)[:3] == (6, None, 5)
    assert dataset.frontiers.select("status_enqueued", "status_completed").row(0) == (90, 80)


def test_gloo_completes_in_any_order() -> None:
    made = recorder(library="gloo")
    made.entries[2]["retired"] = False
    assert frontier(of(made))[:3] == (6, None, 2)


def test_gloo_of_which_nothing_is_kept_tells_nothing() -> None:
    made = Recorder(0, TWO, library="gloo")
    made.collective("1", state="scheduled", retired=True)
    for _ in range(5):
        made.collective("0", state="scheduled", retired=True)
    assert frontier(of(made, ring=3), group=1) == (None, None, None, None, None, True, "none")


def pipeline(only_active: bool, last: str) -> Dataset:
    """Rank 0 of a pipeline: two collectives, sends, and then something that does not complete."""
    made = Recorder(0, TWO)
    made.collective("1")
    made.collective("1")
    for _ in range(4):
        made.p2p("1", "send", 1)
    if last == "send":
        made.p2p("1", "send", 1, state="scheduled")
    elif last == "collective":
        made.collective("1", state="scheduled")
    return of(made, only_active=only_active)


def test_sends_carry_the_counter_of_collectives() -> None:
    assert frontier(pipeline(False, "send"), group=1)[:3] == (2, 2, 2)
    assert frontier(pipeline(False, "collective"), group=1)[:3] == (3, 2, 2)


def test_the_last_operation_that_pg_status_counts_is_the_newest_entry() -> None:
    """Then nothing is behind it that the filter left out."""
    assert frontier(pipeline(True, "send"), group=1)[:3] == (2, None, 2)
    assert frontier(pipeline(True, "collective"), group=1)[:3] == (3, None, 2)


def test_where_pg_status_ends_with_another_operation_nothing_can_be_told() -> None:
    made = Recorder(0, TWO)
    made.collective("1")
    made.p2p("1", "send", 1, state="scheduled")
    made.collective("1")
    made.p2p("1", "send", 1)
    dataset = of(made, only_active=True)
    assert frontier(dataset, group=1)[:3] == (None, None, None)


def test_a_group_with_sends_and_no_entries_tells_nothing() -> None:
    made = job(2, TWO)
    for recorder in made:
        recorder.p2p("1", "send" if recorder.rank == 0 else "recv", 1 - recorder.rank)
        recorder.collective("0", state="scheduled")
    made[1].p2p("1", "recv", 0, state="scheduled")
    dataset = dataset_of(named(made, only_active=True))
    assert frontier(dataset, 0, 1)[:3] == (None, None, None)
    assert frontier(dataset, 0, 0)[:1] == (1,)


def test_a_group_of_the_same_kind_as_one_with_sends_is_not_trusted_either() -> None:
    mesh: Groups = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("pp", [0, 1]), "2": ("pp", [2, 3])}
    made = job(4, mesh)
    for recorder in made:
        recorder.p2p(
            "1" if recorder.rank < 2 else "2", "send", 1, state="scheduled" if recorder.rank < 2 else "completed"
        )
    dataset = dataset_of(named(made, only_active=True))
    assert [group.has_p2p for group in dataset.group_list] == [False, True, True]
    assert frontier(dataset, 2, 2)[:3] == (None, None, None)


def test_torn_dumps_only_tell_what_their_status_does() -> None:
    whole = recorder(done=20).pickle()
    torn = whole[: len(whole) // 2]
    assert frontier(dataset_of({"rank_0": torn}))[:1] == (21,)
    old = recorder(done=20).pickle(version="2.2")
    assert frontier(dataset_of({"rank_0": old[: len(old) // 2]}))[:3] == (None, 8, None)


def test_a_recorder_that_was_reset_does_not_know_its_past() -> None:
    """Record numbers start anew, sequence numbers do not."""
    made = recorder(done=9)
    made.entries = [{**e, "record_id": i} for i, e in enumerate(made.entries[6:])]
    assert frontier(of(made)) == (10, 9, 9, 7, 10, True, "none")


def test_start_events_only_where_timing_was_on() -> None:
    made = recorder()
    for entry in made.entries:
        entry["time_discovered_started_ns"] = None
    made.status["0"][1] = -1
    dataset = of(made)
    assert frontier(dataset)[1] is None
    assert dataset.files["has_timing"].to_list() == [False]


def test_a_status_that_counts_what_has_no_entry_is_not_believed() -> None:
    """The group had sends whose entries are all overwritten."""
    made = recorder()
    made.status["0"] = [77, 77, 76]
    assert frontier(of(made))[:3] == (6, 5, 5)


def test_a_rank_that_never_issued_anything() -> None:
    dataset = dataset_of({"rank_0": Recorder(0, TWO).pickle(), "rank_1": recorder().pickle()})
    assert frontier(dataset, 0, 0) == (0, None, 0, None, None, False, "none")


def test_a_rank_without_a_dump_has_no_frontier() -> None:
    assert set(of(recorder()).frontiers["rank"]) == {0}
    assert of(recorder()).missing_ranks == (1,)


def test_json_tells_the_same() -> None:
    made = recorder()
    assert frontier(dataset_of({"rank_0": made.json()})) == frontier(of(made))
