"""Files of numbers: parts, their limit, a full disk, a slow disk, and those of an earlier process."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rankscope.capture.numbers import part_writer
from rankscope.capture.numbers.part_writer import PARTS, PartWriter, StepRows
from rankscope.capture.numbers.session import TensorRow
from tests.capture.numbers.recorded import lines, samples_of

pytestmark = pytest.mark.torch

HEADER = {"run": "1", "level": "collectives"}


@pytest.fixture(autouse=True)
def of_rank_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")


def step(number: int, count: int = 1, heads: int = 0) -> StepRows:
    """A step with rows of one size, and new stacks before them."""
    rows = [(TensorRow({"step": number, "site": "collective", "pad": "x" * 200}), None) for _ in range(count)]
    told = [{"stack": number * 10 + head, "frames": []} for head in range(heads)]
    return StepRows(told, list(rows), {"end_of_step": number}, 0, 0)


def written(folder: Path, *steps: StepRows, limit: int = 1 << 20) -> PartWriter:
    """The writer, closed, after these steps."""
    writer = PartWriter(str(folder), limit, HEADER)
    writer.locate()
    writer.start()
    for one in steps:
        writer._queue.put(one)
    writer.close()
    return writer


def test_a_file_has_a_header_rows_and_an_end(tmp_path: Path) -> None:
    summary = (-1, [1.5, float("inf"), float("nan"), 2.0, 3.0, -0.5, 4.0, 5.0, *[0.25] * 64])
    row = TensorRow({"step": 0, "site": "loss"}, samples=(0, 9), is_part=True)
    single = TensorRow({"dtype": "bf16"}, samples=(0,))
    written(tmp_path, StepRows([], [(row, summary), (single, summary)], {"end_of_step": 0}, 2, 1))
    header, loss, other, end, last = lines(tmp_path, 3)
    assert (header["rankscope_numbers"], header["rank"], header["world_size"], header["run"]) == (1, 3, 8, "1")
    assert loss == {
        "step": 0, "site": "loss", "hash": "f" * 16, "sum": 1.5, "l2": "Infinity", "min": "NaN", "max": 2.0, "zeros": 3,
        "projection": -0.5, "nan": 4, "inf": 5, "samples_f64": "AAAAAAAA0D8AAAAAAADQPw==", "sample_at": [0, 9],
    }  # fmt: skip
    assert (other["samples_f32"], samples_of(other), samples_of(loss)) == ("AACAPg==", [0.25], [0.25, 0.25])
    assert (end, last) == ({"end_of_step": 0}, {"end": True, "dropped": 2, "unwaited": 1})


def test_parts_stay_below_the_limit_and_the_first_one_stays(tmp_path: Path) -> None:
    limit = PARTS << 16
    count = 100
    written(tmp_path, *(step(number, 50, heads=1) for number in range(count)), limit=limit)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == PARTS
    assert sum(sizes) <= limit + PARTS * 100
    found = lines(tmp_path, 3)
    steps = [line["end_of_step"] for line in found if "end_of_step" in line]
    assert steps[0] == 0
    assert steps[-1] == count - 1
    assert found[-1]["dropped"] == 50 * (count - len(steps))
    parts = [line["part"] for line in found if "part" in line]
    assert parts == [0, *range(parts[-1] - PARTS + 2, parts[-1] + 1)]
    newest = [json.loads(line) for line in (tmp_path / "numbers_rank_3.jsonl").read_text().splitlines()]
    assert [line["stack"] for line in newest if "stack" in line] == [10 * number for number in range(count)]


def test_a_full_disk_takes_whole_steps_and_the_rest_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = [3000]

    def write(file: int, data: bytes) -> int:
        taken = data[: room[0]]
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= len(taken)
        return os.write(file, taken)

    monkeypatch.setattr(part_writer, "os", _Replaced(os, write=write))
    writer = PartWriter(str(tmp_path), 1 << 20, HEADER)
    writer.locate()
    for number in range(3):
        room[0] += 20 * (number == 2) << 10
        try:
            writer._write_step(step(number, 8, heads=1))
        except OSError:
            writer._dropped += 8
    room[0] += 1 << 20
    writer._end_part()
    found = lines(tmp_path, 3)
    assert [line.get("end_of_step", line.get("stack")) for line in found if "site" not in line][1:-1] == [
        0,
        0,
        10,
        20,
        2,
    ]
    assert found[-1] == {"end": True, "dropped": 8, "unwaited": 0}


class _Replaced:
    """A module with another function."""

    def __init__(self, module: Any, **functions: Any) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def test_no_directory_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    writer = written(tmp_path / "file", step(0), step(1))
    assert writer._dropped == 2
    assert [record.message for record in caplog.records] == [
        f"rankscope.capture.numbers: {tmp_path}/file: cannot write: File exists"
    ]


def test_steps_that_a_slow_disk_cannot_take_are_counted_and_their_stacks_kept(tmp_path: Path) -> None:
    writer = PartWriter(str(tmp_path), 1 << 20, HEADER)
    for number in range(6):
        writer.put(step(number, 2, heads=1))
    while not writer._queue.empty():
        writer._write_step(writer._queue.get() or step(0))
    writer.put(step(6, 2))
    writer.start()
    writer.close()
    found = lines(tmp_path, 3)
    assert [line["end_of_step"] for line in found if "end_of_step" in line] == [0, 1, 2, 3, 6]
    assert {line["stack"] for line in found if "stack" in line} == {0, 10, 20, 30, 40, 50}
    assert found[-1]["dropped"] == 4


def test_files_of_an_earlier_process_are_set_aside(tmp_path: Path) -> None:
    for number in range(3):
        written(tmp_path, step(number))
    (tmp_path / "numbers_rank_3.0.jsonl").write_text("{}\n")
    written(tmp_path, step(3))
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.jsonl")) == [
        "earlier_1/numbers_rank_3.0.jsonl", "earlier_1/numbers_rank_3.jsonl", "numbers_rank_3.jsonl",
    ]  # fmt: skip
    assert [line["end_of_step"] for line in lines(tmp_path, 3) if "end_of_step" in line] == [3]
    assert [line["end_of_step"] for line in lines(tmp_path / "earlier_1", 3) if "end_of_step" in line] == [2]
