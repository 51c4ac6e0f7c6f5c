"""Schedules in the forms of others' replayers, read back by the rules of these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from rankscope.cli import rankscope
from rankscope.features.replay.chakra_trace import chakra_traces
from rankscope.features.replay.execution_trace import execution_traces
from rankscope.features.replay.replay_sizes import real_sizes
from rankscope.features.replay.schedule import Schedule, Step
from rankscope.schema import Dataset
from tests.tui.jobs import hang

SAMPLES = Path(__file__).parents[3] / "sample_data"


def exchange() -> tuple[Dataset, Schedule]:
    """Ranks 4 and 6 of a job: a broadcast, a reduce_scatter, then a batch of a send and a receive."""
    dataset, _ = hang(8, 3)

    def steps(rank: int, peer: int) -> tuple[Step, ...]:
        return (
            Step((0, 7), "broadcast", 5, '["Half"]', pending=False),
            Step((0, 8), "reduce_scatter", 300, '["Float"]', pending=False),
            Step((0, rank, peer, 0), "send", 9, '["Long"]', pending=True, batch=1),
            Step((0, peer, rank, 0), "recv", 9, '["Long"]', pending=True, batch=1),
            Step((0, 9), "barrier", None, None, pending=True),
        )

    return dataset, Schedule({4: steps(4, 6), 6: steps(6, 4)}, {0: (4, 6)})


def told(trace: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What comm_replay reads: name, ranks of the group, number, elements in and out, type, the recorded rank."""
    nodes = {node["id"]: node for node in trace["nodes"]}
    assert {node["ctrl_deps"] for node in nodes.values()} <= set(nodes)
    (groups,) = (node for node in nodes.values() if "process_group:init" in node["name"])
    members = {
        one["pg_name"]: one["ranks"] or list(range(one["group_size"]))
        for one in json.loads(groups["inputs"]["values"][0])
    }
    out = []
    for node in nodes.values():
        if node["name"] != "record_param_comms":
            continue
        inputs = node["inputs"]
        assert len({len(inputs[name]) for name in ("values", "shapes", "types", "strides")}) == 1
        has = {one["name"]: one["value"] for one in node["attrs"]}
        at = 0 if isinstance(inputs["values"][0][-1], bool) else 1
        number, place = inputs["values"][at], inputs["values"][at + 2]
        ranks = members[has["pg_name"]]
        sizes = has["in_msg_nelems"], has["out_msg_nelems"]
        out.append((has["collective_name"], ranks, number, *sizes, has["dtype"], ranks[place]))
    return out


def test_an_execution_trace_reads_as_the_schedule() -> None:
    dataset, schedule = exchange()
    files = dict(execution_traces(dataset, schedule, real_sizes(schedule)))
    assert set(files) == {"rank-0.json", "rank-1.json"}
    trace = json.loads(files["rank-1.json"])
    assert trace["schema"] == "1.1.1-chakra.0.0.4"
    calls = told(trace)
    assert [call for call in calls if call[0] != "wait"] == [
        ("broadcast", [0, 1], [7, False], 5, 5, "Half", 0),
        ("_reduce_scatter_base", [0, 1], [8, False], 300, 150, "Float", 1),
        ("send", [0, 1], [3, True], 9, 9, "Long", 0),
        ("recv", [0, 1], [4, True], 9, 9, "Long", 0),
        ("barrier", [0, 1], [9, False], 0, 0, "Byte", 1),
    ]
    # what is issued together is waited for together
    assert [call[0] for call in calls][4:8] == ["send", "recv", "wait", "wait"]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value
        else:
            yield key >> 3, value


def messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        yield data[at : at + length]
        at += length


def node(data: bytes) -> tuple[int, int, list[int], dict[str, Any]]:
    """Id, type, control dependencies and attributes of a node of et_def.proto."""
    found = list(fields(data))
    one: dict[int, Any] = dict(found)
    attributes = {}
    for number, value in found:
        if number == 10 and isinstance(value, bytes):
            (_, name), (kind, content) = fields(value)
            assert isinstance(name, bytes)
            attributes[name.decode()] = (kind, content)
    return one.get(1, 0), one[3], list(one.get(4, b"")), attributes


def test_a_chakra_trace_reads_as_the_schedule() -> None:
    dataset, schedule = exchange()
    files = dict(chakra_traces(dataset, schedule, real_sizes(schedule)))
    assert json.loads(files["comm_group.json"]) == {"1": [0, 1]}
    meta, *rest = messages(files["repro.1.et"])
    assert list(fields(meta)) == [(1, b"0.0.4")]
    broadcast, scatter, send, recv, barrier = map(node, rest)
    whole = {"is_cpu_op": (27, 0), "pg_name": (29, b"1")}
    assert broadcast == (0, 7, [], {**whole, "comm_type": (9, 5), "comm_size": (9, 10)})
    assert scatter == (1, 7, [0], {**whole, "comm_type": (9, 7), "comm_size": (9, 1200)})
    pair = {**whole, "comm_src": (7, 1), "comm_dst": (7, 0), "comm_tag": (7, 0), "comm_size": (9, 72)}
    assert send == (2, 5, [1], pair)
    assert recv == (3, 6, [1], {**pair, "comm_src": (7, 0), "comm_dst": (7, 1)})
    assert barrier[:3] == (4, 7, [2, 3])


def test_the_command_fills_a_directory_and_only_an_empty_one(tmp_path: Path) -> None:
    out = tmp_path / "traces"
    asked = ["repro", str(SAMPLES / "early_return"), "--format", "param", "-o", str(out)]
    assert CliRunner().invoke(rankscope, asked).exit_code == 0
    assert len(list(out.iterdir())) == 4
    again = CliRunner().invoke(rankscope, asked)
    assert again.exit_code != 0
    assert "not empty; --force" in again.output
    assert CliRunner().invoke(rankscope, [*asked, "--force"]).exit_code == 0
