"""The simulator's dumps are what a recorder writes."""

from __future__ import annotations

import json
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.job import Outcome, plan, run
from tests.simulator.options import MODES, DumpOptions
from tests.simulator.programs import Style
from tests.simulator.scenario import make
from tests.simulator.topology import Layout

ENTRY_KEYS = [
    "frames", "record_id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id", "p2p_seq_id",
    "op_id", "profiling_name", "time_created_ns", "duration_ms", "input_sizes", "input_dtypes", "output_sizes",
    "output_dtypes", "state", "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "timeout_ms",
    "is_p2p",
]  # fmt: skip
GENUINE = {
    "PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "BINUNICODE", "BININT", "BININT1", "BININT2",
    "LONG1", "BINFLOAT", "SETITEM", "APPEND", "NEWTRUE", "NEWFALSE", "NONE", "TUPLE2", "BINPUT", "LONG_BINPUT",
    "BINGET", "LONG_BINGET", "STOP",
}  # fmt: skip


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """A healthy job with every kind of operation."""
    return run(plan(Layout(tp=2, dp=2, pp=2), Style(batched=True), steps=2, past=1), seed=5)


def load(outcome: Outcome, folder: Path, options: DumpOptions) -> dict[str, Any]:
    """The dump of rank 3."""
    paths = {p.name: p for p in outcome.write(folder, "ended", options)}
    raw = paths[f"{options.prefix}3"].read_bytes()
    loaded: dict[str, Any] = json.loads(raw) if options.json else pickle.loads(raw)
    return loaded


def test_a_pickle_holds_only_what_the_recorder_writes(outcome: Outcome, tmp_path: Path) -> None:
    (path, *_) = outcome.write(tmp_path, "ended", DumpOptions())
    assert {op.name for op, _, _ in pickletools.genops(path.read_bytes())} <= GENUINE


def test_keys_of_an_entry(outcome: Outcome, tmp_path: Path) -> None:
    dump = load(outcome, tmp_path, DumpOptions())
    assert list(dump) == ["version", "pg_config", "comm_lib_version", "pg_status", "entries"]
    assert list(dump["entries"][0]) == ENTRY_KEYS


def test_frames_are_shared_objects_after_loading(outcome: Outcome, tmp_path: Path) -> None:
    stacks = [e["frames"] for e in load(outcome, tmp_path, DumpOptions())["entries"]]
    assert len({id(f) for s in stacks for f in s}) < 200
    assert all(10 <= len(s) <= 20 for s in stacks)


def test_inner_operations_stay_scheduled_and_their_closer_is_done(outcome: Outcome, tmp_path: Path) -> None:
    entries = load(outcome, tmp_path, DumpOptions())["entries"]
    inner = [e for e in entries if e["is_p2p"]]
    closers = [e for e in entries if e["profiling_name"] == "nccl:coalesced"]
    assert {(e["state"], e["retired"]) for e in inner} == {("scheduled", False)}
    assert {(e["state"], e["retired"]) for e in closers} == {("completed", True)}
    assert {e["p2p_seq_id"] for e in inner} == {e["p2p_seq_id"] for e in closers}
    assert not any(e["is_p2p"] for e in closers)


def test_peers_are_ranks_of_the_group(outcome: Outcome, tmp_path: Path) -> None:
    names = {e["profiling_name"] for e in load(outcome, tmp_path, DumpOptions())["entries"] if e["is_p2p"]}
    assert names == {"nccl:recv 0<-1", "nccl:send 0->1"}


def test_the_ring_keeps_the_newest(outcome: Outcome, tmp_path: Path) -> None:
    everything = load(outcome, tmp_path, DumpOptions())["entries"]
    kept = load(outcome, tmp_path, DumpOptions(ring=20))["entries"]
    assert kept == everything[-20:]


def test_only_active_drops_what_is_done_but_not_inner_operations(outcome: Outcome, tmp_path: Path) -> None:
    entries = load(outcome, tmp_path, DumpOptions(only_active=True))["entries"]
    assert entries
    assert all(e["is_p2p"] and e["state"] == "scheduled" for e in entries)


def test_without_timing_nothing_is_seen_to_start(outcome: Outcome, tmp_path: Path) -> None:
    dump = load(outcome, tmp_path, DumpOptions(timing=False))
    assert {e["time_discovered_started_ns"] for e in dump["entries"]} == {None}
    assert all("duration_ms" not in e for e in dump["entries"])
    assert {row["last_started_collective"] for row in dump["pg_status"].values()} == {-1}


def test_json_differs_as_the_recorder_makes_it_differ(outcome: Outcome, tmp_path: Path) -> None:
    dump = load(outcome, tmp_path, MODES["json"])
    assert dump["nccl_comm_state"] == {}
    assert "frames" not in dump["entries"][0]
    assert dump["entries"][0]["time_discovered_started_ns"] == 0
    assert all(isinstance(v, str) for row in dump["pg_status"].values() for v in row.values())


@pytest.mark.parametrize(
    ("version", "there", "absent"),
    [
        ("2.2", {"entries"}, {"pg_status", "nccl_version", "comm_lib_version"}),
        ("2.4", {"pg_status"}, {"nccl_version", "comm_lib_version"}),
        ("2.9", {"nccl_version"}, {"comm_lib_version"}),
        ("2.10", {"comm_lib_version"}, {"nccl_version"}),
    ],
)
def test_each_version_has_its_keys(
    outcome: Outcome, tmp_path: Path, version: str, there: set[str], absent: set[str]
) -> None:
    keys = set(load(outcome, tmp_path, DumpOptions(version=version)))
    assert there <= keys
    assert not absent & keys


def test_status_counts_the_last_work_of_a_group(outcome: Outcome, tmp_path: Path) -> None:
    dump = load(outcome, tmp_path, DumpOptions())
    last = {e["pg_id"]: e for e in dump["entries"]}
    for pg_id, entry in last.items():
        pairs = entry["is_p2p"] or entry["profiling_name"] == "nccl:coalesced"
        counter = entry["p2p_seq_id"] if pairs else entry["collective_seq_id"]
        assert dump["pg_status"][str(pg_id)]["last_enqueued_collective"] == counter


def test_the_file_is_as_old_as_the_dump(outcome: Outcome, tmp_path: Path) -> None:
    options = DumpOptions()
    for path in outcome.write(tmp_path, "ended", options):
        entries = pickle.loads(path.read_bytes())["entries"]
        newest = max(e["time_discovered_completed_ns"] or 0 for e in entries)
        assert 0 < path.stat().st_mtime_ns - newest < 3_000_000_000


def test_a_seed_makes_the_same_bytes_again(tmp_path: Path) -> None:
    contents: list[dict[str, tuple[bytes, int]]] = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        make("lost-send", seed=3).write(folder, DumpOptions(), shuffle=len(contents))
        contents.append({p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()})
    assert contents[0] == contents[1]


@pytest.mark.torch
def test_torchs_own_loader_reads_a_folder(outcome: Outcome, tmp_path: Path) -> None:
    loader = pytest.importorskip("torch.distributed.flight_recorder.components.loader")
    outcome.write(tmp_path, "ended", DumpOptions())
    dumps = [loader.read_dump("nccl_trace_rank_", str(path)) for path in tmp_path.iterdir()]
    assert sorted(len(d["entries"]) for d in dumps)[0] > 50
