"""Whose a trace is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import LoadOptions
from rankscope.features.traces.rows.trace_ranks import rank_in
from tests.features.traces.read.documents import BASE_NS, Event, about, all_reduce, comms, document, issued, loaded, x


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("iteration_10/rank7_trace.json", 7),
        ("r3-2024-05-01.17.pt.trace.json.gz", 3),
        ("worker3_step_12.1694128201557.pt.trace.json.gz", 3),
        ("trace-rank-0.json", 0),
        ("primus-mlp-rank[3].1700.pt.trace.json", 3),
        ("node1_4411.rank_0.1767225600000000000.pt.trace.json.gz", 0),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("1700-TP-2-DP-0-PP-0-EP-0.trace.json.gz", 2),
        ("1700-TP-1-DP-1-PP-0-EP-0.trace.json.gz", None),
        ("traces/rank_5/window.json", 5),
        ("gpu17_22431.1767225600000000000.pt.trace.json.gz", None),
        ("local_rank3.json", None),
        ("all.tar!run/rank2.json", 2),
    ],
)
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert rank_in(name) == rank


def step(ts: float = 0, pid: int = 493) -> list[Event]:
    return [x("cpu_op", "aten::mm", ts, 100, pid=pid, tid=pid)]


def told(folder: Path, files: dict[str, bytes], **options: str) -> list[tuple[int | None, str | None]]:
    dataset = loaded(folder, files, LoadOptions(jobs=1, **options))  # type: ignore[arg-type]
    return list(dataset.files.select("rank", "rank_source").rows())


def test_what_a_trace_says_goes_before_its_name(tmp_path: Path) -> None:
    default = issued(0, 1, comms("allreduce", Rank=3, ranks=range(4)))
    p2p = issued(0, 1, comms("send", Rank=2, ranks=range(4)))
    files = {
        "a-rank9.json": document(step(), about(5)),
        "b-rank9.json": document([default], about(None)),
        "c-rank1.json": document([p2p], about(None)),
        "d.json": document(step(), about(None)),
    }
    assert told(tmp_path, files) == [(5, "content"), (3, "content"), (1, "name"), (None, None)]
    dataset = loaded(tmp_path, {})
    assert dataset.seen_ranks == (1, 3, 5) and 3 not in dataset.traces["file"]
    assert "has no rank" in dataset.files["problem"][3] and not dataset.files["used"][3]


def test_a_lone_one_without_a_rank_gets_none(tmp_path: Path) -> None:
    assert told(tmp_path, {"a.json": document(step(), about(None))}) == [(None, None)]
    dataset = loaded(tmp_path, {})
    assert dataset.seen_ranks == () and dataset.traces.height == 1
    analysis = analyse(dataset)
    assert "without a rank" in analysis.verdict and analysis.status == "unknown"


def test_a_lone_one_without_a_rank_that_waits_for_others_is_not_healthy(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, {"a.json": document(all_reduce(0, 1, ranks=range(4)), about(None))})
    assert dataset.seen_ranks == () and dataset.missing_ranks == ()
    assert analyse(dataset).status == "unknown"


def test_the_user_goes_before_all(tmp_path: Path) -> None:
    assert told(tmp_path, {"x41.json": document(step(), about(5))}, rank_from=r"x4(\d)") == [(1, "option")]


def test_nameless_ones_are_numbered_by_host_and_process(tmp_path: Path) -> None:
    files = {
        f"{host}_{pid}.176722560000000000{i}.pt.trace.json": document(step(pid=pid), {"baseTimeNanoseconds": BASE_NS})
        for i, (host, pid) in enumerate([("b", 7), ("a", 1000), ("a", 900)])
    }
    assert told(tmp_path, files) == [(1, "guess"), (0, "guess"), (2, "guess")]
    assert all("has no rank" in problem for problem in loaded(tmp_path, {}).files["problem"])


def test_names_that_each_node_counts_anew_are_numbered(tmp_path: Path) -> None:
    files = {
        f"{node}/rank{i}.json": document(step(ts=k, pid=10 + i), about(None))
        for k, node in enumerate("ab")
        for i in range(2)
    }
    assert told(tmp_path, files) == [(0, "guess"), (1, "guess"), (2, "guess"), (3, "guess")]


def test_several_windows_of_one_rank_stay_apart(tmp_path: Path) -> None:
    files = {f"rank1.{i}.json": document(step(ts=i * 1_000_000), about(None)) for i in range(3)}
    dataset = loaded(tmp_path, files)
    assert dataset.traces["rank"].to_list() == [1, 1, 1] and dataset.traces["file"].to_list() == [0, 1, 2]
    assert dataset.traces["start_ns"].is_sorted() and dataset.traces["start_ns"].n_unique() == 3
    assert dataset.tracks["file"].to_list() == [0, 1, 2]


def test_the_world_is_what_groups_say(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, {"a.json": document(step(), about(0, groups=[("0", range(16)), ("1", [0, 4])]))})
    assert dataset.world_size == 16 and dataset.has_traces


def test_a_copy_is_set_aside(tmp_path: Path) -> None:
    data = document(step(), about(1))
    dataset = loaded(tmp_path, {"a.json": data, "a.json.gz": gzip.compress(data), "b.json": document(step(), about(0))})
    assert dataset.files["kind"].to_list() == ["torch-profiler", "duplicate", "torch-profiler"]
    assert dataset.traces["file"].to_list() == [0, 2] and "a copy of a.json" in dataset.files["problem"][1]


def test_traces_that_all_say_the_same_rank_are_told_by_their_names(tmp_path: Path) -> None:
    files = {f"rank{rank}.json": document(step(rank), about(0)) for rank in range(3)}
    assert told(tmp_path, files) == [(rank, "name") for rank in range(3)]


def test_windows_of_one_rank_are_no_contradiction(tmp_path: Path) -> None:
    files = {f"rank{at}.json": document(step(10_000 * at), about(0)) for at in range(3)}
    assert told(tmp_path, files) == [(0, "content")] * 3
