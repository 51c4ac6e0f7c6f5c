"""One identity for each group, over ranks whose files number, describe and know it differently."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.assemble.frontiers import names_by_id
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.schema import Dataset
from tests.parsers.dumps import Groups, Recorder, dataset_of, job, named
from tests.parsers.torch_pickle import torch_pickle

MESH: Groups = {"0": ("default_pg", [0, 1, 2, 3]), "5": ("tp", [0, 1]), "6": ("tp", [2, 3]), "10": ("dp", [1, 3])}


def changed(recorder: Recorder, **changes: Any) -> bytes:
    return torch_pickle({**recorder.document(), **changes})


def groups(dataset: Dataset) -> list[tuple[str, str, tuple[int, ...], str]]:
    return [(g.name, g.description, g.ranks, g.membership) for g in dataset.group_list]


def made(world: int = 4, mesh: Groups | None = None) -> list[Recorder]:
    recorders = job(world, mesh or MESH)
    for recorder in recorders:
        for group in recorder.groups:
            recorder.collective(group)
    return recorders


def test_groups_are_joined_by_name_and_members_never_by_number() -> None:
    dataset = dataset_of(named(made()))
    assert groups(dataset) == [
        ("0", "default_pg", (0, 1, 2, 3), "config"),
        ("5", "tp", (0, 1), "config"),
        ("6", "tp", (2, 3), "config"),
        ("10", "dp", (1, 3), "config"),
    ]
    used = dataset.ops.group_by("group").agg("rank").sort("group")
    assert [sorted(ranks) for ranks in used["rank"].to_list()] == [[0, 1, 2, 3], [0, 1], [2, 3], [1, 3]]


def test_members_keep_their_order() -> None:
    assert groups(dataset_of(named(made(3, {"1": ("ring", [2, 0, 1])}))))[0][2] == (2, 0, 1)


def test_two_groups_of_one_name_stay_two() -> None:
    recorders = [Recorder(r, {"s": ("half", [0, 1] if r < 2 else [2, 3])}) for r in range(4)]
    for recorder in recorders:
        recorder.collective("s")
    dataset = dataset_of(named(recorders))
    assert [g[:3] for g in groups(dataset)] == [("s", "half", (0, 1)), ("s", "half", (2, 3))]
    assert dataset.ops["group"].to_list() == [0, 0, 1, 1]


def test_a_description_that_differs_on_one_rank_is_outvoted() -> None:
    recorders = [Recorder(r, {"1": ("undefined" if r == 0 else "mesh_tp", [0, 1, 2])}) for r in range(3)]
    for recorder in recorders:
        recorder.collective("1")
    assert groups(dataset_of(named(recorders))) == [("1", "mesh_tp", (0, 1, 2), "config")]


def gloo(recorder: Recorder, ranks: str = "[0, 1, 2, 3]") -> bytes:
    return changed(recorder, pg_config={"": {"name": "", "desc": "", "ranks": ranks}})


@pytest.mark.parametrize("ranks", ["[0, 1, 2, 3]", "[]"])
def test_gloo_says_nothing_of_its_groups(ranks: str) -> None:
    recorders = made()
    dataset = dataset_of({f"rank_{r.rank}": gloo(r, ranks) for r in recorders})
    assert groups(dataset) == [
        ("0", "default_pg", (0, 1, 2, 3), "inferred"),
        ("5", "tp", (0, 1), "inferred"),
        ("6", "tp", (2, 3), "inferred"),
        ("10", "dp", (1, 3), "inferred"),
    ]


def test_gloo_names_the_world_size_where_it_can() -> None:
    recorders = made()[:2]
    dataset = dataset_of({f"rank_{r.rank}": gloo(r) for r in recorders})
    assert (dataset.world_size, dataset.missing_ranks) == (4, (2, 3))
    assert dataset.group_list[0].ranks == (0, 1, 2, 3)


def test_another_file_says_who_is_in_a_group() -> None:
    recorders = made()
    files = named(recorders)
    files["nccl_trace_rank_3"] = changed(recorders[3], pg_config={})
    assert groups(dataset_of(files)) == groups(dataset_of(named(recorders)))


def test_a_group_that_was_never_used_is_there() -> None:
    recorders = job(2, {"0": ("default_pg", [0, 1]), "1": ("spare", [0, 1])})
    for recorder in recorders:
        recorder.collective("0")
    assert [g[0] for g in groups(dataset_of(named(recorders)))] == ["0", "1"]


def test_formats_without_names_go_by_members_and_their_order() -> None:
    """pg_id 1 is another group on rank 0 than on rank 1."""
    recorders = [
        Recorder(0, {"w": ("", [0, 1, 2]), "a": ("", [0, 2]), "b": ("", [0, 1]), "c": ("", [0, 1])}),
        Recorder(1, {"w": ("", [0, 1, 2]), "b": ("", [0, 1]), "c": ("", [0, 1])}),
        Recorder(2, {"w": ("", [0, 1, 2]), "a": ("", [0, 2])}),
    ]
    for recorder in recorders:
        for group in recorder.groups:
            recorder.collective(group)
            if group == "c":
                recorder.collective(group)
    dataset = dataset_of(named(recorders, version="1.4"))
    assert [g[2] for g in groups(dataset)] == [(0, 1), (0, 1), (0, 1, 2), (0, 2)]
    counts = dataset.ops.group_by("group", "rank").len().sort("group", "rank").rows()
    assert counts == [(0, 0, 1), (0, 1, 1), (1, 0, 2), (1, 1, 2), (2, 0, 1), (2, 1, 1), (2, 2, 1), (3, 0, 1), (3, 2, 1)]


@pytest.mark.parametrize("version", ["0", "1.0", "1.1"])
def test_formats_without_any_groups(version: str) -> None:
    dataset = dataset_of(named(made(2, {"0": ("", [0, 1])}), version=version))
    assert groups(dataset) == [("0", "", (0, 1), "inferred")]


def test_numbers_of_pg_status_are_mapped_to_names() -> None:
    recorder = made()[1]
    dump = decode_dump(recorder.pickle())
    assert names_by_id(dump) == {"0": "0", "1": "5", "2": "10"}
    # the names sort as numbers: "5" before "10"
    empty = decode_dump(changed(recorder, entries=[]))
    assert names_by_id(empty) == {"0": "0", "1": "5", "2": "10"}


def test_numbers_that_entries_contradict_are_not_guessed() -> None:
    recorder = made()[1]
    for entry in recorder.entries:
        entry["pg_id"] = {0: 2, 1: 1, 2: 0}[entry["pg_id"]]
    assert names_by_id(decode_dump(recorder.pickle())) == {"0": "10", "1": "5", "2": "0"}
    recorder.entries = recorder.entries[:1]
    assert names_by_id(decode_dump(recorder.pickle())) == {"2": "0"}


def test_numbers_of_some_of_the_groups() -> None:
    recorder = Recorder(0, {"0": ("default_pg", [0, 1]), "7": ("a", [0, 1]), "8": ("b", [0, 1])})
    recorder.collective("0")
    recorder.collective("8")
    assert names_by_id(decode_dump(changed(recorder, entries=[]))) == {"0": "0", "2": "8"}


def test_peers_are_global_ranks() -> None:
    recorders = job(16, {"52": ("pp", [2, 6, 10, 14])})
    recorders[14].p2p("52", "recv", 0)
    recorders[2].p2p("52", "send", 3)
    dataset = dataset_of(named([recorders[2], recorders[14]]))
    assert dataset.ops.select("rank", "op", "peer").rows() == [(2, "send", 14), (14, "recv", 2)]


def test_peers_that_cannot_be_told_are_null() -> None:
    recorders = job(4, {"7": ("pp", [1, 3])})
    recorders[1].p2p("7", "send", 1)
    recorders[1].p2p("7", "send", 9)
    dataset = dataset_of({"rank_1": changed(recorders[1], pg_config={})})
    assert dataset.ops["peer"].to_list() == [None, None]


def test_two_recorders_of_a_process_count_one_group_apart() -> None:
    both = []
    for library in ("nccl", "gloo"):
        recorders = job(2, library=library)
        for recorder in recorders:
            recorder.collective()
            recorder.collective()
        both.append({f"{library}_rank_{r.rank}": r.pickle() for r in recorders})
    dataset = dataset_of({**both[0], **both[1]})
    assert [g[:3] for g in groups(dataset)] == [("0", "default_pg", (0, 1))] * 2
    assert dataset.files["used"].all()
    assert dataset.ops.group_by("group", "library").len().height == 2
    assert dataset.ops["rank"].to_list() == [0] * 4 + [1] * 4
