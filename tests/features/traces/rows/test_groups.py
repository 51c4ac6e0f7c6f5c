"""The groups that traces speak of, and what they have in common with those of dumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.features.traces.read.event_columns import _call, _key
from rankscope.features.traces.read.event_names import CommArgs
from rankscope.features.traces.rows.device_operations import written_members
from tests.features.traces.read.documents import about, all_reduce, document, loaded
from tests.parsers.dumps import Recorder


@pytest.mark.parametrize(
    ("members", "size", "start", "stride", "ranks"),
    [
        ("[0, 1, 2]", 3, 0, 1, (0, 1, 2)),
        ("[4, 0]", 2, None, None, (4, 0)),
        ("[0, 1, ..., 28, ..., 63]", 64, 0, 1, tuple(range(64))),
        ("[1, 9, ..., 505]", 64, 1, 8, tuple(range(1, 512, 8))),
        ("[0, 1, ..., 63]", 64, None, None, ()),
        ("[0, 1, ..., 63]", 64, 0, -1, ()),
        ("[0, 1]", 3, None, None, ()),
        ("[0, 1, ..., 63]", 1 << 40, 0, 1, ()),
        (None, 8, 0, 1, tuple(range(8))),
        ("nonsense", None, None, None, ()),
    ],
)
def test_members_that_operations_write(
    members: str | None, size: int | None, start: int | None, stride: int | None, ranks: tuple[int, ...]
) -> None:
    call = _call(_key(CommArgs(members=members, group_size=size, start=start, stride=stride)))
    assert written_members(call) == ranks


def test_groups_are_one_over_ranks_and_with_those_of_dumps(tmp_path: Path) -> None:
    files = {}
    for rank in range(4):
        tp = ("1", [0, 1]) if rank < 2 else ("2", [2, 3])
        recorder = Recorder(rank, {"0": ("default_pg", range(4)), tp[0]: ("TP", tp[1])})
        recorder.collective("0")
        recorder.collective(tp[0])
        files[f"dump_{rank}"] = recorder.pickle()
        events = [*all_reduce(0, 1, group="0", ranks=range(4)), *all_reduce(500, 2, group=tp[0], ranks=tp[1])]
        files[f"trace_{rank}.json"] = document(events, about(rank, groups=[("0", range(4)), tp]))
    dataset = loaded(tmp_path, files)
    assert dataset.groups.select("name", "ranks").rows() == [("0", [0, 1, 2, 3]), ("1", [0, 1]), ("2", [2, 3])]
    assert dataset.traced.select("rank", "group").rows() == dataset.ops.select("rank", "group").rows()


def test_the_only_group_is_meant_where_none_is_named(tmp_path: Path) -> None:
    events = all_reduce(0, 1)
    for event in events:
        for key in ("Process Group Name", "Process Group Description", "Process Group Ranks"):
            event["args"].pop(key, None)
    dataset = loaded(tmp_path, {"a.json": document(events)})
    assert dataset.groups["name"].to_list() == ["0"] and dataset.traced["group"].to_list() == [0]


def test_a_group_that_nobody_describes_has_all_ranks(tmp_path: Path) -> None:
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 1, "world_size": 4}, "baseTimeNanoseconds": 5}
    events = all_reduce(0, 1)
    for event in events:
        event["args"] = {k: v for k, v in event["args"].items() if not k.startswith(("Process", "Group"))}
    dataset = loaded(tmp_path, {"a.json": document(events, head)})
    (group,) = dataset.group_list
    assert (group.name, group.ranks, group.membership) == ("", (0, 1, 2, 3), "inferred")


def test_the_old_name_of_a_group(tmp_path: Path) -> None:
    events = all_reduce(0, 1)
    for event in events:
        if "Process Group Name" in event["args"]:
            event["args"]["Process Group ID"] = event["args"].pop("Process Group Name")
    dataset = loaded(tmp_path, {"a.json": document(events)})
    assert dataset.traced["group"].to_list() == [0] and dataset.groups["name"].to_list() == ["0"]
