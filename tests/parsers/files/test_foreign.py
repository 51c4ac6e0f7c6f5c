"""Files of other tools: named, with what to collect instead; never taken for a kind that is read."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from rankscope.assemble.load import InputError, load
from rankscope.parsers.files.foreign_files import foreign_name
from rankscope.parsers.files.reader import read_file
from tests.features.logs.read.test_word_wrapped import TIMEOUT
from tests.features.stacks.py_spy.dumps import document, process
from tests.parsers.dumps import job

CORE = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 4, 62, 1) + bytes(200)
PROGRAM = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 3, 62, 1) + bytes(200)
FOREIGN: dict[str, tuple[bytes, str]] = {
    "pytorch_et_3.json": (b'{\n  "schema": "1.0.4", "pid": 5, "start_ts": 3, "nodes": []}', "execution trace"),
    "x.json": (b'{"schema":"1.1.2-chakra.0.0.4","pid":1,"nodes":[{"id":2}]}', "execution trace"),
    "chakra.0.et": (b"\x0a\x05\x08\x01", "execution trace"),
    "rank0_memory_timeline.html": (b"<html>\n<head><meta charset='utf-8'/><title>t</title></head>", "memory timeline"),
    "r.json": (b'{ "rocprofiler-sdk-tool": []}', "rocprofv3"),
    "3_kernel_trace.csv": (b'"Kind","Agent_Id","Queue_Id"\n', "rocprofv3"),
    "vm.xplane.pb": (b"\x0a\x10\x12", "XPlane"),
    "host.pb": (b"\x0a\x40\x12\x0e/host:metadata" + bytes(40), "XPlane"),
    "core.4711": (CORE, "core dump"),
    "job.nsys-rep": (b"\x00\x01binary", "Nsight Systems"),
    "rep.sqlite": (b"SQLite format 3\x00" + bytes(80), "database"),
    "perf.data": (b"PERFILE2" + bytes(80), "samples of perf"),
    "dumps.lz4": (b"\x04\x22\x4d\x18" + bytes(40), "packed by lz4: unpack it with lz4 -d"),
    "dumps.7z": (b"7z\xbc\xaf\x27\x1c" + bytes(40), "7-Zip"),
    "train.log.Z": (b"\x1f\x9d\x90" + bytes(40), "packed by compress"),
    "flame.svg": (b'<?xml version="1.0"?><!DOCTYPE svg PUBLIC "x">', "flame graph"),
    "events.out.tfevents.176404.n1.1.0": (b"\x18\x00", "TensorBoard"),
    "attribution.json": (b'{"analysis_text": "t", "hanging_ranks": "hanging ranks: [4]"}', "attribution by NVRx"),
    "straggler.log": (b"^^^^ [10:22:31] iter 9 | MnRtt/Rnk: 411.2ms/12 | MxRtt/Rnk: 8.2ms/7\n", "Megatron's straggler"),
    "times.csv": (b"rank,host,forward_ms,backward_ms\n0,n1,100.2,203.1\n", "table of times by rank"),
    "all_reduce.txt": (
        b"# nThread 1 nGpus 8 minBytes 8\n#\n#       size         count      type   redop    root\n", "nccl-tests",
    ),
    "ibstat.txt": (b"CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Down\n", "output of ibstat"),
    "dcgm.txt": (b"Successfully ran diagnostic for group.\n+----+\n| Diagnostic      | Result    |\n", "by DCGM"),
    "dmon.txt": (b"#Entity   GPUTL  MCUTL\nID\nGPU 0     99     45\n", "measurements by DCGM"),
    "db": (b"\x80\x02ctorch.distributed.flight_recorder.components.types\nDatabase\n", "torchfrtrace"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_it_is_named_with_what_to_collect(tmp_path: Path, name: str, packed: bool, given: bool) -> None:
    data, what = FOREIGN[name]
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    (found,) = read_file(str(path), path.stat().st_size, given=given)
    assert found.kind == "unknown" and found.decoded is None
    assert what in str(found.problem)
    assert ": " in str(found.problem)


def test_the_refusal_and_the_notes_tell_it(tmp_path: Path) -> None:
    for at in range(8):
        (tmp_path / f"a{at}.bin").write_bytes(bytes(range(200)) * 3)
    (tmp_path / "perf.data").write_bytes(FOREIGN["perf.data"][0])
    with pytest.raises(InputError, match=r"in 9 files \(perf\.data: samples of perf"):
        load([tmp_path])
    for recorder in job(2):
        (tmp_path / f"dump_{recorder.rank}").write_bytes(recorder.pickle())
    problems = load([tmp_path]).files["problem"].drop_nulls().to_list()
    assert any(problem.startswith("samples of perf") for problem in problems)


def test_files_that_are_read_are_never_foreign() -> None:
    (recorder,) = job(1)
    read = [recorder.pickle(), document(), process().encode(), TIMEOUT.encode(), b"", b"{}", b"[]", PROGRAM]
    read += [
        b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}',
        b'{"traceEvents": [{"name": "nodes"}]}',
    ]
    assert [foreign_name(data[:512], "rank_0") for data in read] == [None] * len(read)


def test_the_output_of_nccl_tests_with_lines_of_nccl_is_a_log() -> None:
    head = b"# nThread 1 nGpus 8 minBytes 8\n#\n#       size         count      type\n"
    assert foreign_name(head, "a.log") is not None
    assert foreign_name(head + b"n1:77:77 [0] NCCL INFO NET/Socket : Using eth0\n", "a.log") is None
