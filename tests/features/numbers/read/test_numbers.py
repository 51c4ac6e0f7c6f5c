"""Lines of tensor summaries: what is read of good, torn and hostile ones, and how they become the table."""

from __future__ import annotations

import base64
import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.assemble.load import LoadOptions, load
from rankscope.features.numbers.read import decode
from rankscope.features.numbers.read.decode import decode_numbers, looks_like_numbers, read_numbers
from rankscope.features.numbers.read.model import numbers_from
from rankscope.parsers.contents import NotThisKindError
from rankscope.schema.tables import TENSORS
from tests.builders import JobBuilder
from tests.numbers_writer import NumbersJob, cast

HEADER = {"rankscope_numbers": 1, "run": "ab", "rank": 3, "world_size": 4, "host": "node1", "pid": 7}
ROW: dict[str, Any] = {"step": 1, "order": 5, "site": "loss", "slot": "out0", "hash": "f0" * 8, "samples": [1, 2.5]}


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in (HEADER, *rows))


def test_a_row_has_what_the_line_says() -> None:
    content = decode_numbers(
        lines({**ROW, "sum": "NaN", "max": "-Infinity", "samples": ["NaN", 1, 2], "sample_at": [3, 5, 63]})
    )
    assert content.problem is None and content.rows == 1
    assert content.column("hash")[0] == np.uint64(0xF0F0F0F0F0F0F0F0).astype(np.int64)
    assert np.isnan(content.floats[0][0]) and content.floats[3][0] == -np.inf
    assert content.column("told").tolist() == [0b10011]
    assert content.column("held").view(np.uint64).tolist() == [1 << 3 | 1 << 5 | 1 << 63]
    assert np.frombuffer(content.samples, "<f4")[1:].tolist() == [1, 2]


def test_samples_are_packed_or_decimal_in_as_few_bytes_as_hold_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {**ROW, "samples": None}
    double, single = (base64.b64encode(struct.pack(kind, 0.5, -3.0)).decode() for kind in ("<2d", "<2f"))
    rows = [
        {**ROW, "samples": [0.1, 3, "NaN"]}, {**ROW, "samples": [0.5, 3], "sample_at": [7, 2]},
        {**told, "samples_f32": single}, {**told, "samples_f64": double, "sample_at": [0, 63]},
        {**told, "samples_f32": single, "sample_at": [1]}, {**ROW, "samples": []}, told,
    ]  # fmt: skip
    content = decode_numbers(lines(*rows))
    assert content.problem is None and content.is_consistent
    assert content.column("sampled").tolist() == [24, 8, 8, 16, 0, 0, 0]
    assert content.column("held").view(np.uint64).tolist() == [7, 1 << 2 | 1 << 7, 3, 1 | 1 << 63, 0, 0, 0]
    assert np.frombuffer(content.samples[24:40], "<f4").tolist() == [3, 0.5, 0.5, -3]
    spoiled = ({**told, "samples_f32": double * 30}, {**told, "samples_f32": "?"}, {**ROW, "sample_at": [64]})
    assert (decode_numbers(lines(*spoiled)).problem or "").startswith("3 lines that cannot be read")
    monkeypatch.setenv("RANKSCOPE_NUMBER_SAMPLES", "sums")
    summed = {**ROW, "site": "collective", "op": "all_reduce"}
    assert decode_numbers(lines(ROW, summed)).column("sampled").tolist() == [0, 8]


def test_it_crosses_processes() -> None:
    content = decode_numbers(
        lines({"group": "0", "ranks": [0, 1]}, {"stack": 2, "frames": [["f", "a.py", 3]]}, ROW, ROW)
    )
    body = memoryview(b"".join(content.body()))
    restored = numbers_from(json.loads(json.dumps(content.header())), body, content.rows)
    assert all((restored.columns[name] == own).all() for name, own in content.columns.items())
    assert np.frombuffer(restored.samples, "<f4").tolist() == [1, 2.5, 1, 2.5]
    with pytest.raises(ValueError, match="do not fit"):
        numbers_from(content.header(), body[:-4], content.rows)
    assert (restored.headers, restored.groups, restored.stacks) == (content.headers, content.groups, content.stacks)


@pytest.mark.parametrize(
    ("spoiled", "rows", "problem"),
    [
        (lines(ROW)[:-20], 0, "1 line cut off at the end of the file"),
        (lines(ROW)[:-1], 1, None),
        (lines(ROW) + b"\n\n" + lines(ROW), 2, None),
        (lines(ROW) + b"[1]\n{}\n" + b"{" * 200_000 + b"\n", 1, "2 lines that cannot be read"),
        (lines({**ROW, "samples": [0.5] * 65}, {**ROW, "step": 2**70}, {**ROW, "shape": "x"}), 0, "3 lines that"),
        (lines({**ROW, "sample_at": [1, 1]}, {**ROW, "hash": "zz" * 8}, {**ROW, "hash": "00 " * 5 + "0"}), 3, None),
        (lines(ROW) + b"x" * (decode.LONGEST_LINE * 6) + b"\n" + lines(ROW), 2, "1 line longer than 1 MiB"),
        (lines({"end": True, "dropped": 3}), 0, "the recorder dropped 3 tensors"),
        (lines({**HEADER, "rankscope_numbers": 9}), 0, "its format 9 is newer than 1"),
    ],
)
def test_bad_lines_are_counted_and_the_rest_is_read(spoiled: bytes, rows: int, problem: str | None) -> None:
    content = read_numbers(io.BytesIO(spoiled), len(spoiled), (0, 1))
    assert content.rows == rows
    assert (content.problem or "").startswith(problem or "") and (content.problem is None) == (problem is None)


def test_a_file_without_a_rank_is_none_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks_like_numbers(lines()) and not looks_like_numbers(b'{"rankscope_capture": 1}')
    with pytest.raises(NotThisKindError):
        decode_numbers(b'{"rankscope_numbers": 1}\n' + json.dumps(ROW).encode())
    monkeypatch.setattr(decode, "MOST_ROWS", 2)
    monkeypatch.setattr(decode, "BLOCK_BYTES", 256)
    content = decode_numbers(lines(*[ROW] * 40))
    assert 2 <= content.rows < 40 and "more than 2 tensors" in (content.problem or "")
    assert read_numbers(io.BytesIO(lines(ROW)), 1, (1, 2)).rows == 0


def test_files_become_one_table(tmp_path: Path) -> None:
    job = NumbersJob({"dp": [0, 1]})
    job.all_reduce("dp", [np.ones(3), np.arange(3)])
    job.row(1, "parameter", "in0", cast([[1.0, 2.0]], "f32"), name="w", offsets=[1, 0], whole=[3, 2])
    job.write(tmp_path)
    with (tmp_path / "numbers_rank_1.1.jsonl").open("w") as part:
        part.write(json.dumps({**HEADER, "rank": 1, "run": "a1", "time_ns": 1000}) + "\n" + json.dumps(ROW) + "\n")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "numbers_rank_1.jsonl").write_bytes(
        json.dumps({**HEADER, "rank": 1, "time_ns": 1}).encode() + b"\n"
    )
    dataset = load([tmp_path], LoadOptions(is_sampled=True))
    assert dict(dataset.tensors.schema) == dict(TENSORS)
    assert dataset.tensors["rank"].to_list() == [0, 0, 1, 1, 1, 1]
    assert (dataset.world_size, dataset.seen_ranks, dataset.missing_ranks) == (4, (0, 1), ())
    row = dataset.tensors.filter(name="w").row(0, named=True)
    assert (row["offsets"], row["global_shape"], row["dtype"], row["held"]) == ([1, 0], [3, 2], "f32", 0b1100)
    assert dataset.stack(row["stack_id"])[0].file == "train.py"
    assert dataset.files.select("host", "pid").row(0) == ("node0", 100)
    assert dataset.files.filter(~dataset.files["used"])["problem"].to_list() == [
        "of an earlier process of the rank: not used"
    ]


def test_groups_are_those_of_the_dumps() -> None:
    from rankscope.features.numbers.read.model import NumbersContent, NumbersGroup
    from rankscope.features.numbers.rows.tensor_tables import _GroupRows
    from rankscope.parsers.members import shared_members

    job = JobBuilder(world_size=2, groups={"7": [0, 1]})
    job.collective("7")
    dumped = job.build().groups
    rows = _GroupRows({"groups": dumped})
    own = [NumbersGroup("7", "tp", shared_members((0, 1))), NumbersGroup("9", "", shared_members((1, 0)))]
    places = rows.places(NumbersContent(groups=own))
    assert places["7"] == dumped.filter(name="7")["group"][0]
    assert places["9"] == dumped.height and rows.table().height == dumped.height + 1
