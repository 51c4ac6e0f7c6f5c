"""The simulator's dumps by FlightRecorderHook are what torch 2.15 writes."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.parsers.torch_pickle import torch_pickle
from tests.simulator.instructions import ANY_SOURCE, P2P, Collective, Host, Instruction, Sync
from tests.simulator.job import Outcome, Plan, plan, run
from tests.simulator.options import HOOK_MODES, DumpOptions, Moment
from tests.simulator.programs import Style
from tests.simulator.scenario import make
from tests.simulator.test_dump import ENTRY_KEYS
from tests.simulator.topology import WORLD, Layout, build

HOOK = HOOK_MODES["hook"]
REDUCE = Collective(WORLD, "all_reduce", ((8,),), ((8,),))
Dumps = dict[str, Any]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """A healthy job with every kind of operation."""
    job = plan(Layout(tp=2, dp=2, pp=2), Style(batched=True), steps=2, past=1)
    return run(job, seed=5, kind="hook")


def load(outcome: Outcome, folder: Path, options: DumpOptions, moment: Moment = "ended") -> Dumps:
    """All dumps by file name."""
    raw = {p.name: p.read_bytes() for p in outcome.write(folder, moment, options)}
    return {n: json.loads(data) if options.json else pickle.loads(data) for n, data in raw.items()}


def job(*programs: list[Instruction]) -> Outcome:
    """A job of one group on nccl2 whose ranks run these programs once."""
    steps = {rank: [program] for rank, program in enumerate(programs)}
    return run(Plan(build(Layout(dp=len(programs))), steps), seed=1, kind="hook")


def entries_of(outcome: Outcome, folder: Path, rank: int, options: DumpOptions = HOOK) -> list[Any]:
    """The entries of a rank's dump at the first time-out."""
    moment: Moment = "timeout" if outcome.engine.hung else "ended"
    entries: list[Any] = load(outcome, folder, options, moment)[f"{options.prefix}{rank}{options.suffix}"]["entries"]
    return entries


def test_keys_and_opcodes_are_those_of_the_recorder(outcome: Outcome, tmp_path: Path) -> None:
    (path, *_) = outcome.write(tmp_path, "ended", HOOK)
    dump = pickle.loads(path.read_bytes())
    assert path.read_bytes() == torch_pickle(dump)
    assert list(dump) == ["version", "pg_config", "comm_lib_version", "pg_status", "entries"]
    assert (dump["version"], dump["comm_lib_version"]) == ("2.10", "")
    assert list(dump["entries"][0]) == [k for k in ENTRY_KEYS if k != "duration_ms"]


def test_every_group_of_the_process_is_named_and_numbered(outcome: Outcome, tmp_path: Path) -> None:
    dump = load(outcome, tmp_path, HOOK)["comm_lib_trace_rank_3"]
    own = {n: str(list(r)) for n, r in outcome.topology.groups.items() if 3 in r}
    assert {n: c["ranks"] for n, c in dump["pg_config"].items()} == own
    numbers = {e["process_group"][0]: e["pg_id"] for e in dump["entries"]}
    assert [numbers[n] for n in sorted(numbers, key=int)] == sorted(numbers.values())
    assert set(dump["pg_status"]) == {str(i) for i in numbers.values()}


def test_op_id_counts_both_kinds_from_0(outcome: Outcome, tmp_path: Path) -> None:
    for dump in load(outcome, tmp_path, HOOK).values():
        by_group: dict[int, list[Any]] = defaultdict(list)
        for entry in dump["entries"]:
            by_group[entry["pg_id"]].append(entry)
        for group, entries in by_group.items():
            assert [e["op_id"] for e in entries] == list(range(len(entries)))
            assert all(e["op_id"] == e["collective_seq_id"] + e["p2p_seq_id"] - 1 for e in entries)
            status = dump["pg_status"][str(group)]
            assert (status["last_enqueued_collective"], status["last_started_collective"]) == (len(entries) - 1, -1)
            assert status["last_completed_collective"] in range(len(entries))


def test_a_send_gives_nothing_and_a_receive_takes_nothing(outcome: Outcome, tmp_path: Path) -> None:
    pairs = [e for e in entries_of(outcome, tmp_path, 3) if e["is_p2p"]]
    sends = {e["profiling_name"].startswith("nccl2:send"): (e["input_dtypes"], e["output_dtypes"]) for e in pairs}
    assert sends == {True: (["BFloat16"], []), False: ([], ["BFloat16"])}
    assert all(bool(e["input_sizes"]) != bool(e["output_sizes"]) for e in pairs)


def test_started_is_completed_and_retired_or_nothing(outcome: Outcome, tmp_path: Path) -> None:
    for dump in load(outcome, tmp_path, HOOK, "live").values():
        for e in dump["entries"]:
            assert e["time_discovered_started_ns"] == e["time_discovered_completed_ns"]
            done = e["time_discovered_completed_ns"] is not None
            assert (e["state"], e["retired"]) == (("completed", True) if done else ("scheduled", False))


def test_a_batch_reads_completed_even_where_it_hangs(tmp_path: Path) -> None:
    outcome = make("lost-batch", 3, job="hook").outcome
    entries = [e for d in load(outcome, tmp_path, HOOK, "timeout").values() for e in d["entries"]]
    took = [e["time_discovered_completed_ns"] - e["time_created_ns"] for e in entries if e["is_p2p"]]
    assert 0 < min(took) <= max(took) < 20_000
    assert not any("coalesced" in e["profiling_name"] for e in entries)
    assert any(e["state"] == "scheduled" for e in entries)


def test_a_send_that_nobody_receives_stays_scheduled(tmp_path: Path) -> None:
    outcome = job([P2P(WORLD, "send", 1, (4,)), REDUCE, Sync()], [REDUCE, Sync()])
    assert [e["state"] for e in entries_of(outcome, tmp_path, 0)] == ["scheduled", "scheduled"]


def test_names_and_sizes_are_those_of_the_calls(tmp_path: Path) -> None:
    def of(op: str, sizes: int = 1) -> Collective:
        return Collective(WORLD, op, ((8,),) * sizes, ((8,),) * sizes)

    gather = Collective(WORLD, "coalesced", (), (), "Float", inner=(of("_all_gather_base"), of("_all_gather_base")))
    program: list[Instruction] = [of("all_reduce_barrier"), of("all_to_all"), of("all_to_all", 2), gather, Sync()]
    entries = entries_of(job(program, program), tmp_path, 1)
    assert [(e["profiling_name"].removeprefix("nccl2:"), len(e["input_sizes"])) for e in entries] == [
        ("barrier", 0), ("all_to_all_single", 1), ("all_to_all", 2), ("all_gather_into_tensor_coalesced", 2)
    ]  # fmt: skip
    assert [e["collective_seq_id"] for e in entries] == [1, 2, 3, 4]


def test_an_asynchronous_operation_does_not_wait_for_one_on_the_current_stream() -> None:
    later = replace(REDUCE, wait=False)
    hooked = run(Plan(build(Layout(dp=2)), {0: [[REDUCE, later]], 1: [[REDUCE, later]]}), 1, kind="hook")
    assert [r.sync for r in hooked.records[0]] == [True, False]
    stuck = job([later, Host(1), REDUCE, Sync()], [P2P(WORLD, "recv", 0, (4,), wait=False), later, REDUCE, Sync()])
    assert stuck.records[1][1].arrived is None, "it shares the stream of the receive"
    assert stuck.records[1][2].arrived is not None, "the current stream is another"


def test_a_dead_device_keeps_nothing_from_being_noticed_that_ended_before() -> None:
    outcome = make("device-dead", 5, job="hook").outcome
    assert {w.blind_from for w in outcome.watchdogs.values()} == {None}


def test_the_ring_keeps_the_newest_and_counts_on(outcome: Outcome, tmp_path: Path) -> None:
    everything = entries_of(outcome, tmp_path, 3)
    assert entries_of(outcome, tmp_path, 3, replace(HOOK, ring=20)) == everything[-20:]


def test_only_active_has_what_is_not_completed(tmp_path: Path) -> None:
    outcome = job([REDUCE, REDUCE, Sync()], [REDUCE, Sync(), Host(None)])
    options = HOOK_MODES["hook only-active"]
    there = load(outcome, tmp_path, options, "timeout")
    waiting, stuck = there["comm_lib_trace_rank_0.json"], there["comm_lib_trace_rank_1.json"]
    assert [(e["op_id"], e["state"], e["time_discovered_completed_ns"]) for e in waiting["entries"]] == [
        (1, "scheduled", 0)
    ]
    assert "frames" not in waiting["entries"][0]
    assert "entries" not in stuck
    assert stuck["pg_status"]["0"]["last_completed_collective"] == "0"


def test_without_completion_hook_everything_is_scheduled_and_retired(outcome: Outcome, tmp_path: Path) -> None:
    dump = load(outcome, tmp_path, HOOK_MODES["hook fallback"], "live")["comm_lib_trace_rank_3"]
    states = {(e["state"], e["retired"], e["time_discovered_completed_ns"]) for e in dump["entries"]}
    assert states == {("scheduled", True, None)}
    assert {s["last_completed_collective"] for s in dump["pg_status"].values()} == {-1}
    assert {e["profiling_name"].partition(":")[0] for e in dump["entries"]} == {"mpi"}


def test_by_default_a_rank_with_nothing_pending_writes_nothing(tmp_path: Path) -> None:
    outcome = job([REDUCE, REDUCE, Sync()], [REDUCE, Sync(), Host(None)])
    assert set(load(outcome, tmp_path, HOOK_MODES["hook default"], "timeout")) == {"comm_lib_trace_rank_0"}


def test_ranks_of_a_mixed_job_have_each_their_recorder(tmp_path: Path) -> None:
    outcome = make("healthy", 2, job="mixed").outcome
    dumps = load(outcome, tmp_path, HOOK_MODES["mixed"])
    first = {n: d["entries"][0] for n, d in dumps.items()}
    assert {e["profiling_name"].partition(":")[0] for n, e in first.items() if int(n[-1]) % 2} == {"nccl2"}
    assert {e["op_id"] for n, e in first.items() if int(n[-1]) % 2} == {0}
    assert {e["op_id"] for n, e in first.items() if not int(n[-1]) % 2} == {1}
    assert dumps["comm_lib_trace_rank_0"]["nccl_comm_state"] == {}


def test_two_backends_count_each_for_itself(tmp_path: Path) -> None:
    outcome = make("healthy", 2, job="two").outcome
    dumps = load(outcome, tmp_path, HOOK_MODES["two backends"])
    gloo, hook = dumps["gloo_rank_1"], dumps["nccl2_rank_1"]
    assert len(dumps) == 2 * len(outcome.records)
    assert [e["op_id"] for e in gloo["entries"]] == list(range(1, len(gloo["entries"]) + 1))
    assert {(e["profiling_name"], e["state"], e["retired"], e["process_group"][0]) for e in gloo["entries"]} == {
        ("gloo:all_reduce", "scheduled", True, "0")
    }
    assert not any("gloo" in e["profiling_name"] for e in hook["entries"])
    assert next(e["collective_seq_id"] for e in hook["entries"] if e["process_group"][0] == "0") == 1


def test_what_a_host_runs_itself_stops_it_and_no_device() -> None:
    flag = replace(REDUCE, on_host=True)
    outcome = job([flag, REDUCE, Sync()], [Host(None)])
    assert [(r.on_host, r.done) for r in outcome.records[0]] == [(True, None)]


def test_a_receive_from_anybody_takes_the_first_that_comes(tmp_path: Path) -> None:
    send: list[Instruction] = [P2P(WORLD, "send", 0, (4,))]
    anybody = P2P(WORLD, "recv", ANY_SOURCE, (4,))
    outcome = job([anybody, anybody, REDUCE, Sync()], send, [*send, REDUCE, Sync()])
    assert [r.done is not None for r in outcome.records[0]] == [True, True, False]
    assert entries_of(outcome, tmp_path, 0)[0]["profiling_name"] == "nccl2:recv 0<-?"
    lost = job([anybody, anybody, REDUCE], send, [REDUCE])
    assert [r.done is not None for r in lost.records[0]] == [True, False], "its host waits for the second"


def test_lists_of_tensors_must_fit_pair_by_pair() -> None:
    def exchange(inputs: tuple[int, int], outputs: tuple[int, int]) -> list[Instruction]:
        return [Collective(WORLD, "all_to_all", tuple((n,) for n in inputs), tuple((n,) for n in outputs)), Sync()]

    assert not job(exchange((1, 2), (1, 3)), exchange((3, 4), (2, 4))).engine.hung
    assert job(exchange((1, 2), (1, 3)), exchange((3, 4), (5, 4))).engine.hung


def test_a_copy_has_lost_the_time_of_the_dump(outcome: Outcome, tmp_path: Path) -> None:
    paths = outcome.write(tmp_path, "live-apart", HOOK_MODES["hook copied"])
    (when,) = {p.stat().st_mtime_ns for p in paths}
    assert when - outcome.engine.now > 3600 * 10**9
