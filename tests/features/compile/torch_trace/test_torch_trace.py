"""Structured logs of torch.compile: files of TORCH_TRACE, and tlparse's raw.jsonl."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.assemble.load import load
from rankscope.features.compile.torch_trace.decode import decode_torch_trace, looks_like_torch_trace
from tests.builders import START_NS
from tests.compiler_logs import GUARD, CompilerLog


def two_compilations() -> CompilerLog:
    """A log of rank 3 with a compilation, a recompilation and the beginning of one more."""
    log = CompilerLog(3)
    log.compile("0/0", inductor_config=json.dumps({"fx_graph_cache": True, "other": 1}), pytorch_version="2.13.0")
    log.compile("0/1", seconds=1.5, inductor_fx_local_cache_hit_count=1, aotautograd_local_cache_miss_count=2)
    log.begin("1/0", START_NS + 5_000_000_000)
    return log


def test_compilations_of_a_file() -> None:
    content = decode_torch_trace(two_compilations().text())
    assert (content.rank, content.pid, content.problem) == (3, 103, None)
    assert content.settings == {"inductor.fx_graph_cache": "true", "version:torch": "2.13.0"}
    first, again, begun = content.compilations
    assert (first.what, first.function, first.path, first.code_line) == ("compile", "block", "/ws/net.py", 6)
    assert (first.reason, first.hits, first.duration_ns) == ("", None, 250_000_000)
    assert (again.what, again.compile_id, again.reason) == ("recompile", "0/1", GUARD.format(4, 5))
    assert (again.duration_ns, again.hits, again.misses) == (1_500_000_000, 1, 2)
    assert (begun.compile_id, begun.duration_ns, begun.start_ns) == ("1/0", None, START_NS + 5_000_000_000)


def test_a_backward_graph_and_a_break() -> None:
    log = CompilerLog(0)
    log.record(
        {"artifact": {"name": "dynamo_graph_break_reason"}}, "2/0",
        "Graph break in user code at /ws/net.py:88\nGraph Break Reason: Data dependent operator\nUser code:\n",
    )  # fmt: skip
    log.record({"bwd_compilation_metrics": {"backend_compile_time_s": 2}}, "2/0")
    split, backward = decode_torch_trace(log.text()).compilations
    assert (split.what, split.path, split.code_line, split.reason) == (
        "graph-break", "/ws/net.py", 88, "Data dependent operator",
    )  # fmt: skip
    assert (backward.what, backward.compile_id, backward.duration_ns) == ("backward", "2/0", 2_000_000_000)


def test_the_raw_file_of_tlparse() -> None:
    metrics = {"co_name": "block", "start_time": 5.0, "duration_us": 7, "recompile_reason": "0/0: L['n'] == 4"}
    rows = [
        {"string_table": ["a.py", "/ws/net.py"]},
        {"dynamo_start": {"stack": [{"filename": 1, "line": 6, "name": "block"}]}, "frame_compile_id": 1,
         "frame_id": 0, "rank": 1, "thread": 18241, "timestamp": "1970-01-01T00:00:04Z"},
    ]  # fmt: skip
    begun = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
    (row,) = decode_torch_trace(begun).compilations
    assert (row.path, row.start_ns, row.duration_ns) == ("/ws/net.py", 4_000_000_000, None)
    whole = begun + json.dumps({"compilation_metrics": metrics, "frame_compile_id": 1, "frame_id": 0}).encode()
    assert looks_like_torch_trace(whole)
    (row,) = decode_torch_trace(whole).compilations
    assert (row.compile_id, row.reason, row.duration_ns) == ("0/1", "L['n'] == 4", 7000)


HEAD = b'V1126 17:50:33.852000 5 torch/_dynamo/utils.py:2009] {"'


@pytest.mark.parametrize(
    "line",
    [
        b'compilation_metrics": {',
        b'compilation_metrics": {"start_time": 1e300, "co_firstlineno": [], "compile_id": {}, "duration_us": -1}}',
        b'dynamo_start": {"stack": [{"filename": {}, "line": "x", "name": null}]}, "rank": 99999999999}',
        b'dynamo_start": {"stack": [[]]}, "frame_id": {"a": 1}, "rank": -1}',
        b'str": [{}, 1]}',
        b'artifact": {"name": "recompile_reasons"}}\n\t"\\ud800',
        b'compilation_metrics": {"inductor_config": "[[[[", "recompile_reason": "\\u001b[2J"}}',
    ],
)
def test_hostile_lines_do_no_harm(line: bytes) -> None:
    data = HEAD + line + b"\n\t}" + two_compilations().text()
    content = decode_torch_trace(b"\n".join([data, HEAD + b"\xff\xfe", b"\t" * 9]))
    assert content.rank == 3 and [row.compile_id for row in content.compilations][-2:] == ["0/1", "1/0"]


def test_the_id_of_a_compilation_holds_no_words_of_a_file() -> None:
    # it is shown as it is, with names and secrets
    begun = b'{"dynamo_start": {"stack": []}, "frame_id": "of alice, password=hunter2", "frame_compile_id": 0}\n'
    (row,) = decode_torch_trace(begun).compilations
    assert (row.compile_id, row.what) == ("", "recompile")


def test_files_become_rows_with_ranks(tmp_path: Path) -> None:
    new, other = CompilerLog(3), CompilerLog(0)
    new.compile("4/0", at_ns=START_NS + 9_000_000_000)
    other.compile()
    for name, log in {"rank_3_a": two_compilations(), "rank_3_b": new, "rank_0_c": other}.items():
        (tmp_path / f"dedicated_log_torch_trace_{name}.log").write_bytes(log.text())
    dataset = load([tmp_path])
    assert dataset.world_size == 4
    rows = dataset.compilations.select("rank", "compile_id", "is_open").rows()
    assert rows == [(0, "0/0", False), (3, "4/0", False)]
    notes = dict(dataset.files.select("path", "problem").iter_rows())
    assert notes["dedicated_log_torch_trace_rank_3_a.log"] == "of an earlier process of the rank: not used"
