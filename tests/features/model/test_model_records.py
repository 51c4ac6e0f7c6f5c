"""Records of models, whole and hostile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.assemble.load import LoadOptions, load
from rankscope.features.model.model_records import decode_model, layout_of, record_from
from rankscope.parsers.contents import NotThisKindError
from tests.model_writer import model_file, parameter


def test_a_record_comes_back_from_a_worker() -> None:
    read = decode_model(model_file(3, [parameter("a", (8, 4), 4)], range(4)))
    back = record_from(read.header(), memoryview(b"".join(read.body())), read.rows)
    assert back == read and back.rows == 1 and back.problem is None


@pytest.mark.parametrize(
    "line",
    [b'{"name": "a", "shape": [-1], "local": [], "dtype": "f"}', b"[" * 5000, b"\xff", b'{"name": "a", "sha',
     b'{"name": "a", "shape": [4294967295, 4294967295, 9], "local": [], "dtype": "f"}',
     json.dumps({"name": "a", "shape": [1] * 99, "local": [], "dtype": "f"}).encode()],
)  # fmt: skip
def test_a_hostile_line_is_left_out_and_counted(line: bytes) -> None:
    read = decode_model(model_file(0, [parameter("a", (8,))]) + line)
    assert read.rows == 1 and read.problem == "1 line that cannot be read"


def test_a_file_without_a_rank_is_no_record() -> None:
    with pytest.raises(NotThisKindError):
        decode_model(b'{"rankscope_model": 1, "rank": -4}')


def test_the_newest_record_of_a_rank_counts(tmp_path: Path) -> None:
    """A mesh of billions of ranks is passed over."""
    data = model_file(1, [parameter("a", (8,))], range(2)).replace(b"[1, 1, 1]", b"[1, 200000, 262144]")
    (tmp_path / "old").write_bytes(data)
    (tmp_path / "new").write_bytes(data.replace(b'"rank": 1,', b'"rank": 1, "time_ns": 5,'))
    job = load([tmp_path], LoadOptions())
    assert job.parameters["name"].to_list() == ["a"] and job.seen_ranks == (1,)
    assert job.files.filter("used")["path"].to_list() == ["new"]


@pytest.mark.parametrize(
    ("placements", "sizes", "layout"),
    [(["S(0)"], [2], "sharded"), (["S(0)"], [1], "whole"), (["R", "_S(0, 2)"], [2, 2], "sharded"),
     (["S(0)", "P(sum)"], [2, 2], "partial"), (None, [], "whole")],
)  # fmt: skip
def test_placements_tell_the_layout(placements: list[str] | None, sizes: list[int], layout: str) -> None:
    assert layout_of(placements, sizes) == layout
