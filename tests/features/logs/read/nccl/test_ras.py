"""RAS and the Inspector: who has launched how much, who is missing, who is dead."""

from __future__ import annotations

import json

from tests.features.logs.read.lines import log, read

TEXT = """NCCL version 2.26.2 compiled with CUDA 12.4

Job summary
===========

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1        32         8       256       256   RUNNING      OK
    1         2      2-32         8        16       256  MISMATCH   INCOMPLETE

Errors
======

#1-0 (a1b2c3d4e5f60718) INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

Warnings
========

#1-1 (ff00) MISMATCH
  Communicator ranks have different AllReduce operation counts
  30 ranks have launched up to operation 640
  1 ranks have launched up to operation 639
  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124
  Rank 3 has launched up to operation 5 -- GPU 0 managed by process 77 on node node-9
"""
TOTALS = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
     32          8            1        256      256

"""
LOST = """  Rank 5 -- GPU 5 managed by process 91 on node node-3
  Rank 1057455228 -- GPU 4 managed by process 1 on node 0.0.0.0
  Process 3487984"""
QUERY = {
    "nccl_version": "2.28.7",
    "communicators_count": 1,
    "communicators": [
        {
            "hash": "0xfe12", "size": 4, "ranks_count": 2, "missing_ranks_count": 1,
            "ranks": [
                {
                    "rank": 0, "host": "node-1", "pid": 41, "cuda_dev": 3,
                    "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
                    "collective_counts": {"AllReduce": 640, "Broadcast": 2},
                },
                {"rank": 1, "status": {"async_error": 6}, "collective_counts": {"AllReduce": "x"}},
            ],
            "missing_ranks": [
                {"rank": 2, "host": "node-2", "status": {"considered_dead": True}},
                {"rank": 3, "status": {"unresponsive": True}}, {"rank": 4}, "hostile",
            ],
        },
        "hostile",
    ],
}  # fmt: skip


def test_the_text() -> None:
    rows = read(TEXT).ras
    assert [(r.comm, r.size, r.status) for r in rows[:4]] == [
        ("group 0", 256, "RUNNING OK"), ("group 1", 16, "MISMATCH INCOMPLETE"),
        ("#1-0 (a1b2c3d4e5f60718)", 16, "INCOMPLETE"), ("#1-1 (ff00)", 16, "MISMATCH"),
    ]  # fmt: skip
    assert [(r.present, r.counts) for r in rows[4:6]] == [(30, {"AllReduce": 640}), (1, {"AllReduce": 639})]
    assert [(r.comm, r.rank, r.host, r.pid, r.device, r.counts) for r in rows[6:]] == [
        ("#1-1 (ff00)", 12, "10.137.190.124", 323032, 4, {"AllReduce": 639}),
        ("#1-1 (ff00)", 3, "node-9", 77, 0, {"AllReduce": 5}),
    ]  # fmt: skip


def test_the_text_of_ranks_without_data() -> None:
    rows = read(TOTALS + TEXT.replace("1 job process", "2 ranks").replace("  Process 3487984", LOST)).ras
    assert rows[0].comm == "job" and rows[0].size == 256
    lost = [row for row in rows if row.status == "MISSING"]
    # the second is no rank of a communicator of 16
    assert [(row.comm, row.rank, row.pid) for row in lost] == [("#1-0 (a1b2c3d4e5f60718)", 5, 91)]


def test_the_json() -> None:
    for text in (json.dumps(QUERY), json.dumps(QUERY, indent=2)):
        comm, *ranks = read(text).ras
        assert (comm.comm, comm.size, comm.present, comm.missing, comm.status) == ("0xfe12", 4, 2, 1, "INCOMPLETE")
        assert [(r.rank, r.host, r.pid, r.device, r.status, r.counts) for r in ranks] == [
            (0, "node-1", 41, 3, "RUNNING", {"AllReduce": 640, "Broadcast": 2}), (1, "", None, None, "ERROR 6", {}),
            (2, "node-2", None, None, "DEAD", {}), (3, "", None, None, "UNRESPONSIVE", {}),
            (4, "", None, None, "MISSING", {}),
        ]  # fmt: skip


def test_torn_json() -> None:
    whole = read(json.dumps(QUERY))
    for cut in (20, 200):
        torn = read(json.dumps(QUERY)[:-cut])
        assert 1 < len(torn.ras) <= len(whole.ras) and torn.ras == whole.ras[: len(torn.ras)]
        assert "cut off" in str(torn.problem)
    assert read(json.dumps(QUERY)[:40]).ras == []


def test_events_of_the_monitor() -> None:
    peer = {"host": "node-7", "pid": 41, "cuda_devs": [3], "nvml_devs": [4]}
    (row,) = log(json.dumps({"timestamp": "x", "group": "trace", "event": "PEER_DEAD", "peer": peer})).ras
    assert (row.status, row.host, row.pid, row.device) == ("PEER_DEAD", "node-7", 41, 3)


def perf(seq: int, rank: int = 0, op: str = "AllReduce", us: float = 10.0) -> str:
    return json.dumps({
        "header": {"id": "0xfe12", "rank": rank, "n_ranks": 4, "nnodes": 1, "comm_name": "dp"},
        "metadata": {"dump_timestamp_us": 1000 + seq, "hostname": "node-1", "pid": 41},
        "coll_perf": {"coll": op, "coll_sn": seq, "coll_msg_size_bytes": 65536, "coll_exec_time_us": us},
    })  # fmt: skip


def test_the_inspector() -> None:
    p2p = {"header": {"id": "0xfe12", "rank": 0}, "metadata": {}, "p2p_perf": {"p2p": "Send", "p2p_sn": 9}}
    content = log(perf(7), perf(9, us=30.5), perf(8), perf(3, rank=1), json.dumps(p2p), '{"coll_perf": {}}')
    first, second, third = content.inspected
    assert (first.comm, first.name, first.rank, first.nranks, first.host, first.pid, first.op) == (
        "0xfe12", "dp", 0, 4, "node-1", 41, "AllReduce",
    )  # fmt: skip
    assert (first.rows, first.first_seq, first.last_seq, first.total_us, first.slowest_us) == (3, 7, 9, 50.5, 30.5)
    assert first.dumped_us == 1009
    assert (second.rank, second.last_seq, third.op, third.last_seq) == (1, 3, "Send", 9)


GONE = """Job summary
===========

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487 on node 10.0.0.13 managing GPU 5

#0-0 (cf26) INCOMPLETE
  Missing communicator data from 2 ranks
  The missing ranks: 20 21
"""


def test_numbers_of_ranks_that_are_missing_and_processes_that_are_dead() -> None:
    told = [(row.rank, row.pid, row.status) for row in read(GONE).ras if row.rank is not None or row.pid]
    assert told == [(None, 3487, "DEAD"), (20, None, "MISSING"), (21, None, "MISSING")]


def test_what_the_monitor_prints() -> None:
    text = "RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...\n\n"
    text += " [2026-12-19 13:07:07] PEER_DEAD: Process 15 on node node-7 managing GPU 1\n"
    (row,) = read(text).ras
    assert (row.status, row.host, row.pid, row.device) == ("PEER_DEAD", "node-7", 15, 1)


def test_json_in_which_nccl_forgot_a_comma() -> None:
    text = json.dumps(QUERY, indent=2)
    row = '"cuda_dev": 3,'
    assert row in text
    assert read(text.replace(row, row[:-1]).encode()).ras == read(text.encode()).ras
    assert read(text.replace(row, row[:-1] * 2).encode()).ras == []
