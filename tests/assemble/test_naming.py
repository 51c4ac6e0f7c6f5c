"""Ranks, hosts and attempts in the names of files, as they are met in the wild."""

from __future__ import annotations

import re

import pytest

from rankscope.assemble.file_names import attempt_of, host_of, rank_by, rank_of


@pytest.mark.parametrize(
    ("path", "rank", "host"),
    [
        ("nccl_trace_rank_0", 0, None),
        ("comm_lib_trace_rank_1023", 1023, None),
        ("nccl_trace_rank_container-node07_40", 40, "container-node07"),
        ("worker3.pci3_rank_5", 5, "worker3"),
        ("gpu-17.cluster.local.pci0_rank_12", 12, "gpu-17.cluster.local"),
        ("_dump_7", 7, None),
        ("rank_3.json", 3, None),
        ("global_rank=3.txt", 3, None),
        ("rank3.json", 3, None),
        ("comm_lib_trace_rank_12.pkl", 12, None),
        ("fr_trace_0.json", 0, None),
        ("trace_rank_5.host0", 5, "host0"),
        ("x_rank_3_20260101_120000.json", 3, None),
        ("fr_trace_4_20260101_120000.json.gz", 4, None),
        ("rank_6.pkl.zst", 6, None),
        ("global_rank_9_local_rank_1", 9, None),
        ("Rank-11.bin", 11, None),
        ("node03/nccl_trace_rank_2", 2, "node03"),
        ("run_1/node-12/rank_2", 2, "node-12"),
        ("sent.tar.gz!dumps/host4/rank_7", 7, "host4"),
        ("rank_8/trace.pkl", 8, None),
        ("dumps/rank_8/fr/trace", 8, None),
        ("17", 17, None),
        ("trace", None, None),
        ("rank_999999", None, None),
        ("train.log", None, None),
        ("20260101_120000.json", None, None),
        ("attempt_1/trace", None, None),
        ("frankfurt", None, None),
        *(
            (f"{host}/rank_1", 1, host)
            for host in (
                "ip-10-0-3-17",
                "dgx-h100-03",
                "gpu-node-12",
                "nid001234",
                "cn0012",
                "worker_3",
                "compute-st-p5-3",
                "nodeA7",
                "trainer-worker-0",
                "node07.cluster2",
            )
        ),
        *(
            (f"{name}/rank_1", 1, None)
            for name in (
                "multi_node_2",
                "multi-node-2",
                "2-node-8",
                "node_count_4",
                "cnn_model_v2",
                "ipex_run3",
                "hosts_of_job8",
                "compute_bench_3",
                "my_worker_pool_2",
                "podman-test",
                "nodes",
            )
        ),
    ],
)
def test_names(path: str, rank: int | None, host: str | None) -> None:
    assert (rank_of(path), host_of(path)) == (rank, host)


@pytest.mark.parametrize(
    ("pattern", "path", "rank"),
    [
        (r"gpu(\d+)", "node1/gpu3.bin", 3),
        (r"\d+", "job17_x", 17),
        (r"(\w+)", "abc", None),
        (r"z(\d+)", "job17", None),
        (r"(\d+)", "9" * 40, None),
        (r"(x)?y", "y", None),
    ],
)
def test_a_pattern_of_the_user(pattern: str, path: str, rank: int | None) -> None:
    assert rank_by(re.compile(pattern), path) == rank


def test_attempts_are_named_by_directories() -> None:
    assert attempt_of("attempt_1/node0/rank_0") == "attempt_1"
    assert attempt_of("x.tar!restart-2/rank_0") == "restart-2"
    assert attempt_of("job1234/rank_0") == "job1234"
    assert attempt_of("node0/rank_0") is None
    assert attempt_of("running/rank_0") is None
