"""How a dump was made, and what its numbers and states mean then."""

from __future__ import annotations

from typing import Any

from rankscope.schema import Dataset
from tests.parsers.dumps import Groups, Recorder, dataset_of, job, named
from tests.parsers.hooked_dumps import Hook, dumped, hooks

TWO: Groups = {"0": ("default_pg", [0, 1]), "1": ("pp", [0, 1])}


def recorders(dataset: Dataset) -> list[str | None]:
    return dataset.files.sort("path")["recorder"].to_list()


def frontier(dataset: Dataset, rank: int, group: int) -> tuple[Any, ...]:
    rows = dataset.frontiers.filter((dataset.frontiers["rank"] == rank) & (dataset.frontiers["group"] == group))
    return rows.select("last_enqueued", "last_started", "last_completed").row(0)


def exchanged(library: str = "nccl2", blind: bool = False) -> list[Hook]:
    made = hooks(2, TWO, library=library, blind=blind)
    for hook in made:
        hook.collective("0")
        hook.batch("1", [("send", 1 - hook.rank), ("recv", 1 - hook.rank)])
        hook.collective("0")
    return made


def test_a_recorder_counts_from_one_and_a_hook_from_nought() -> None:
    native = job(2, TWO)
    for recorder in native:
        recorder.collective("0")
        recorder.batch("1", [("send", 1 - recorder.rank)])
    assert recorders(dataset_of(named(native))) == ["native", "native"]
    # a vendor's library, told by its numbers alone
    assert recorders(dumped(exchanged(library="mccl"))) == ["hook", "hook"]
    assert recorders(dumped(exchanged(library="mpi", blind=True))) == ["blind-hook", "blind-hook"]


def test_gloo_is_no_hook() -> None:
    gloo = job(2, TWO, library="gloo")
    for recorder in gloo:
        recorder.collective("0", state="scheduled", retired=True)
    assert recorders(dataset_of(named(gloo))) == ["native", "native"]


def test_a_dump_without_operations_is_taken_for_what_the_others_are() -> None:
    made = hooks(2)
    made[0].collective("0", state="scheduled")
    assert recorders(dumped(made)) == ["hook", "hook"]
    assert recorders(dumped(hooks(2))) == [None, None]


def test_what_a_batch_became_is_not_known_and_a_hook_sees_no_start() -> None:
    ops = dumped(exchanged()).ops.filter(rank=0)
    assert ops["state"].to_list() == ["completed", "unknown", "unknown", "completed"]
    assert ops["started_ns"].null_count() == 4
    assert ops["completed_ns"].is_null().to_list() == [False, True, True, False]
    assert not dumped(exchanged()).files["has_timing"].any()


def test_a_single_receive_that_came_later_is_done() -> None:
    made = hooks(2)
    made[0].p2p("0", "recv", 1, time_discovered_completed_ns=made[0].clock + 500_000_000)
    assert dumped(made).ops["state"].to_list() == ["completed"]


def test_a_blind_hook_knows_no_state() -> None:
    dataset = dumped(exchanged("mpi", blind=True))
    assert dataset.ops["state"].unique().to_list() == ["unknown"]
    assert frontier(dataset, 0, 0) == (2, None, None)


def test_pg_status_of_a_hook_counts_operations_from_nought() -> None:
    made = hooks(2)
    for _ in range(5):
        made[0].collective("0")
    made[0].collective("0", state="scheduled")
    assert frontier(dumped(made), 0, 0) == (6, None, 5)
    # only the pending one is kept: all before it is done
    assert frontier(dumped(made, only_active=True), 0, 0) == (6, None, 5)


def test_a_rank_with_nothing_active_has_done_what_it_counts() -> None:
    made = hooks(2)
    for hook in made:
        for _ in range(5):
            hook.collective("0")
    made[0].collective("0", state="scheduled")
    assert frontier(dumped(made, only_active=True), 1, 0) == (5, None, 5)


def test_operations_that_are_captured_in_a_graph_have_no_number() -> None:
    made = hooks(2)
    for _ in range(3):
        made[0].collective("0")
    made[0].counters["0"][2] += 4  # four under capture: op_id goes on, the sequence number does not
    made[0].collective("0")
    assert frontier(dumped(made), 0, 0)[0] == 4


def test_a_receive_from_any_source_has_no_peer() -> None:
    made = hooks(2)
    made[0].from_any("0")
    made[1].batch("0", [("send", 0)])
    ops = dumped(made).ops
    assert ops.select("rank", "op", "is_p2p", "peer").rows() == [(0, "recv", True, None), (1, "send", True, 0)]


def test_a_file_that_is_younger_than_any_watchdog_allows_is_a_copy() -> None:
    made = hooks(2)
    for hook in made:
        hook.collective("0", state="scheduled", timeout_ms=60_000)
    assert dumped(made, after_s=61).written.height == 2
    assert dumped(made, after_s=61 + 121).written.is_empty()


def test_gloo_and_nccl2_of_one_process_are_one_rank_and_count_apart() -> None:
    beside: list[Recorder] = [Hook(0, TWO), Recorder(0, TWO, library="gloo")]
    beside[0].collective("0")
    beside[1].collective("0", state="scheduled", retired=True)
    dataset = dumped(beside)
    assert (dataset.seen_ranks, dataset.ops["group"].n_unique(), dataset.ops["seq"].to_list()) == ((0,), 2, [1, 1])
