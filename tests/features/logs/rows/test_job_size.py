"""The number of ranks, and the year of a time: neither is invented."""

from __future__ import annotations

from pathlib import Path

import orjson

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.report.json import render_json
from rankscope.report.text import render_text

LINE = (
    "[rank{0}]:[E302 04:05:06.100200300 ProcessGroupNCCL.cpp:685] [Rank 3] Watchdog caught collective operation "
    "timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 "
    "milliseconds before "
    "timing out.\n"
)
STATUS = (
    "[rank{0}]:[E302 04:05:06.100200300 ProcessGroupNCCL.cpp:2251] [PG ID 6 PG GUID 12(EXPERT_MODEL_PARALLEL_GROUP) "
    "Rank 3]  failure detected by watchdog at work sequence id: 7 PG status: last enqueued work: 9, last completed "
    "work: 6\n"
)


def test_the_highest_rank_of_a_line_is_not_the_size_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(LINE.format(21) + STATUS.format(21))
    dataset = load([tmp_path / "job.log"])
    found = analyse(dataset)
    assert orjson.loads(render_json(dataset, found))["world_size"] is None
    text = render_text(dataset, found)
    assert "1 rank of an unknown number" in text.replace("\n", " ") and "22 ranks" not in text
    assert "#7 of EXPERT_MODEL_PARALLEL_GROUP" in found.verdict


def test_lines_of_all_ranks_below_the_highest_one_tell_the_size(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("".join(map(LINE.format, range(4))))
    dataset = load([tmp_path / "job.log"])
    assert orjson.loads(render_json(dataset, analyse(dataset)))["world_size"] == 4


def test_a_year_that_no_line_tells_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(LINE.format(1))
    dataset = load([tmp_path / "job.log"])
    text = render_text(dataset, analyse(dataset)).replace("\n", " ")
    assert "02 Mar 04:05:06 local time" in " ".join(text.split()) and "-03-02 04:05:06" not in text
    (tmp_path / "dated.log").write_text(
        f"[2025-03-02 04:05:06] {LINE.format(1).replace('E302 04:05:06.100200300', 'E')}"
    )
    dataset = load([tmp_path / "dated.log"])
    assert "2025-03-02 04:05:06" in " ".join(render_text(dataset, analyse(dataset)).split())
