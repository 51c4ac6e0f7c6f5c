"""Several dumps of a rank: of runs one after the other, of one recorder again and again, of several recorders."""

from __future__ import annotations

from rankscope.assemble.attempts import SAME_RUN_NS
from rankscope.schema import Dataset
from tests.parsers.dumps import START_NS, Groups, Recorder, dataset_of, job

HOUR_NS = 3600 * 1_000_000_000


def run(number: int, world: int = 2, rows: int = 4, groups: Groups | None = None) -> list[Recorder]:
    """The dumps of one run; each starts an hour after the one before."""
    made = job(world, groups, start_ns=START_NS + number * HOUR_NS, thread=str(1000 + number))
    for recorder in made:
        for _ in range(rows + number):
            recorder.collective()
    return made


def used(dataset: Dataset) -> list[str]:
    return dataset.files.filter(dataset.files["used"])["path"].to_list()


def test_the_newest_of_several_runs_is_used_and_all_are_listed() -> None:
    files = {f"attempt_{a}/rank_{r.rank}": r.pickle() for a in range(3) for r in run(a)}
    dataset = dataset_of(files)
    assert used(dataset) == ["attempt_2/rank_0", "attempt_2/rank_1"]
    assert dataset.attempt == 2
    assert dataset.attempts.select("attempt", "label", "dumps").rows() == [
        (0, "attempt_0", 2), (1, "attempt_1", 2), (2, "attempt_2", 2),
    ]  # fmt: skip
    assert dataset.files["attempt"].to_list() == [0, 0, 1, 1, 2, 2]
    assert dataset.files["problem"].null_count() == 6


def test_another_run_on_demand() -> None:
    files = {f"attempt_{a}/rank_{r.rank}": r.pickle() for a in range(3) for r in run(a)}
    dataset = dataset_of(files, attempt=0)
    assert used(dataset) == ["attempt_0/rank_0", "attempt_0/rank_1"]
    assert (dataset.attempt, dataset.ops.height) == (0, 8)


def test_runs_are_told_apart_by_time_whatever_their_directories_are_called() -> None:
    names = {0: "zebra", 1: "apple"}
    files = {f"{names[a]}/rank_{r.rank}": r.pickle() for a in range(2) for r in run(a)}
    dataset = dataset_of(files)
    assert used(dataset) == ["apple/rank_0", "apple/rank_1"]
    assert dataset.attempts["label"].to_list() == ["zebra", "apple"]


def test_runs_in_one_directory() -> None:
    files = {f"rank_{r.rank}.{a}.pkl": r.pickle() for a in range(2) for r in run(a)}
    assert used(dataset_of(files)) == ["rank_0.1.pkl", "rank_1.1.pkl"]


def test_a_run_of_which_other_ranks_dumped_is_still_another_run() -> None:
    first, second = run(0), run(1)
    files = {"attempt_0/rank_0": first[0].pickle(), "attempt_1/rank_1": second[1].pickle()}
    dataset = dataset_of(files)
    assert (dataset.attempts.height, used(dataset)) == (2, ["attempt_1/rank_1"])


def test_ranks_that_stopped_at_different_times_are_of_one_run() -> None:
    made = run(0)
    for _ in range(3):
        made[1].clock += HOUR_NS
        made[1].collective()
    assert dataset_of({f"rank_{r.rank}": r.pickle() for r in made}).attempts.height == 1
    apart = [r.pickle() for r in (run(0)[0], run(1)[1])]
    assert dataset_of({"node0/rank_0": apart[0], "node1/rank_1": apart[1]}).attempts.height == 1


def test_nodes_with_local_names_are_one_run_if_they_stopped_together() -> None:
    world: Groups = {"0": ("default_pg", [0, 1, 2, 3])}
    for gap, attempts in ((SAME_RUN_NS // 2, 1), (SAME_RUN_NS * 3, 2)):
        made = job(4, world)
        for recorder in made:
            recorder.clock += gap * (recorder.rank // 2)
            recorder.thread = str(recorder.rank)
            recorder.collective()
        files = {f"node{r.rank // 2}/rank_{r.rank % 2}": r.pickle() for r in made}
        assert dataset_of(files).attempts.height == attempts


def test_a_dump_without_events_belongs_to_its_directory() -> None:
    files = {f"attempt_{a}/rank_{r.rank}": r.pickle() for a in range(2) for r in run(a, world=3)}
    files["attempt_0/rank_2"] = Recorder(2, {"0": ("default_pg", [0, 1, 2])}).pickle()
    dataset = dataset_of(files, attempt=0)
    assert dataset.seen_ranks == (0, 1, 2)
    assert dataset_of(files).seen_ranks == (0, 1, 2)


def test_only_dumps_without_events() -> None:
    made = job(2)
    dataset = dataset_of({f"rank_{r.rank}": r.pickle() for r in made})
    assert (dataset.seen_ranks, dataset.attempts["label"].to_list()) == ((0, 1), ["no events"])


def test_one_recorder_dumped_as_pickle_and_as_json() -> None:
    made = run(0)
    files = {f"pickle/rank_{r.rank}": r.pickle() for r in made} | {f"json/rank_{r.rank}.json": r.json() for r in made}
    dataset = dataset_of(files)
    assert used(dataset) == ["pickle/rank_0", "pickle/rank_1"]
    assert dataset.attempts["dumps"].to_list() == [2]
    assert dataset.files["problem"][0] == "another dump of the same recorder: pickle/rank_0 is used"
    assert dataset.files["kind"].to_list() == ["duplicate"] * 2 + ["flight-recorder"] * 2


def test_one_recorder_dumped_again_later() -> None:
    made = run(0)[0]
    early = made.pickle()
    made.collective()
    dataset = dataset_of({"rank_0.late": made.pickle(), "rank_0.early": early})
    assert (used(dataset), dataset.ops.height) == (["rank_0.late"], 5)


def test_one_recorder_whose_ring_went_round_in_between() -> None:
    made = run(0)[0]
    early = made.pickle()
    for _ in range(50):
        made.collective()
    dataset = dataset_of({"late/rank_0": made.pickle(ring=10), "early/rank_0": early})
    assert (used(dataset), dataset.attempts.height) == (["late/rank_0"], 1)


def test_two_recorders_of_a_process_are_both_used() -> None:
    nccl, gloo = run(0)[0], Recorder(0, {"7": ("cpu", [0, 1])}, library="gloo", thread="1000")
    gloo.collective("7", state="scheduled", retired=True)
    dataset = dataset_of({"nccl_trace_rank_0": nccl.pickle(), "fr_trace_rank_0": gloo.pickle()})
    assert (len(used(dataset)), dataset.attempts.height) == (2, 1)
    assert dataset.ops["library"].to_list() == ["gloo", "nccl", "nccl", "nccl", "nccl"]
    assert dataset.ops["created_ns"].is_sorted()


def test_the_empty_dump_of_the_other_recorder_hides_nothing() -> None:
    nccl = run(0)[0]
    other = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []}
    from tests.parsers.torch_pickle import torch_pickle

    dataset = dataset_of({"nccl_trace_rank_0": nccl.pickle(), "fr_trace_rank_0": torch_pickle(other)})
    assert dataset.ops.height == 4
    assert dataset.frontiers["last_enqueued"].to_list() == [4]
