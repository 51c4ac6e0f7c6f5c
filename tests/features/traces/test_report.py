"""What reports say of traces: short, harmless, and the same numbers in every format."""

from __future__ import annotations

import json
import re
from pathlib import Path

import orjson
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.features.traces import trace_section
from rankscope.features.traces.rules.model import PATH_KINDS, TRACE_RESULTS
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.redact import Redaction
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.features.traces.read.documents import about, document, kernel, launch, loaded, x
from tests.report.samples import EVIL, traced
from tests.traces import MS, training


def hostile() -> tuple[Dataset, Analysis]:
    """Traces in which spans and groups have hostile names."""
    job = training(4, 6, slow_host={2: 30 * MS})
    job.descriptions["0"] = EVIL
    for span in job.spans:
        if not span["name"].startswith(("ProfilerStep", "nccl")):
            span["name"] = EVIL + span["name"]
    dataset = job.build()
    return dataset, analyse(dataset)


def test_hostile_names_do_nothing() -> None:
    dataset, analysis = hostile()
    assert analysis.culprits == (2,)
    text, markdown, raw = (
        render_text(dataset, analysis),
        render_markdown(dataset, analysis),
        render_json(dataset, analysis),
    )
    for said in (text, markdown, raw.decode()):
        assert "\x1b" not in said
        assert "\u202e" not in said
    outside = "".join(markdown.replace("``", "`").split("`")[::2])
    assert "<img" not in outside


def test_lines_fit_the_terminal() -> None:
    lines = render_text(*traced()).splitlines()
    assert max(map(len, lines)) <= 80


def test_ranks_that_look_alike_share_a_row() -> None:
    dataset = training(32, 5, slow_host={9: 20 * MS}).build()
    analysis = analyse(dataset)
    assert TRACE_RESULTS.find(analysis) is not None
    rows = trace_section.breakdown(TRACE_RESULTS.of(analysis))
    assert [row[0] for row in rows] == ["9", "0-8,10-31"]


def test_many_rows_are_cut_and_counted() -> None:
    dataset = training(40, 5, slow_host={rank: (4 + 4 * rank) * MS for rank in range(20)}).build()
    analysis = analyse(dataset)
    rows = trace_section.breakdown(TRACE_RESULTS.of(analysis))
    assert len(rows) > trace_section.MOST_ROWS
    left = len(rows) - trace_section.MOST_ROWS
    assert f"and {left} more ranks" in render_text(dataset, analysis)


def test_json_holds_the_tables() -> None:
    report = orjson.loads(render_json(*traced()))["traces"]
    assert list(report) == [
        "clocks", "clock_error_ns", "refused", "matched", "recorded", "causes", "steps", "idle", "queues",
        "launches", "bandwidth", "last", "kernels", "critical_path", "critical_names", "critical_waits",
        "patterns", "counters", "step_launches", "copies", "ranges",
    ]  # fmt: skip
    assert [clock["file"] for clock in report["clocks"]] == [f"rank{r}_trace.json.gz" for r in range(4)]
    assert report["matched"] == 18
    assert report["causes"][0]["what"] == "<built-in function sleep>"
    assert len(report["steps"]) == 24
    assert {row["group"] for row in report["bandwidth"]} == {"0"}
    slept = next(row for row in report["critical_names"] if row["name"] == "<built-in function sleep>")
    assert (slept["rank"], slept["kind"], slept["count"]) == (2, "host", 6)
    assert {(row["for_rank"], row["group"]) for row in report["critical_waits"]} >= {(2, "0")}
    assert {row["kind"] for row in report["critical_path"]} <= set(PATH_KINDS)
    assert sum(row["share"] for row in report["critical_path"]) == pytest.approx(6)


def test_the_path_is_told() -> None:
    text = render_text(*traced())
    assert "The critical path of 6 steps" in text
    assert "host: built-in function sleep, rank 2: 30 ms a step" in text
    assert "wait for rank 2 in all_reduce of default_pg in" in text


def test_hosts_and_paths_are_taken_out() -> None:
    dataset = Redaction().dataset(traced()[0])
    analysis = analyse(dataset)
    for said in (render_text(dataset, analysis), render_json(dataset, analysis).decode()):
        assert "node0" not in said


def lone(text: bytes, tmp_path: Path) -> tuple[Dataset, Analysis]:
    """A trace alone in a folder."""
    dataset = loaded(tmp_path, {"trace.json": text})
    return dataset, analyse(dataset)


def test_a_process_without_a_rank_gets_none(tmp_path: Path) -> None:
    one = [x("user_annotation", "ProfilerStep#2", 0, 100), launch(10, 5), kernel("gemm", 20, 30, 5)]
    dataset, analysis = lone(json.dumps({"traceEvents": one}).encode(), tmp_path)
    text, report = render_text(dataset, analysis), orjson.loads(render_json(dataset, analysis))
    assert "rank 0" not in text and "1 rank" not in text and "no clock" not in text and "latest first" not in text
    assert [line.split()[0] for line in text.splitlines() if re.match(r" +\S+ .*\d %.*\d %", line)] == ["-"] * 2
    tables = [report["traces"][name] for name in ("steps", "kernels", "critical_path", "critical_names")]
    assert [row["rank"] for table in tables for row in table] == [None] * sum(map(len, tables))


def test_time_of_one_step_is_not_told_of_each(tmp_path: Path) -> None:
    steps = [x("user_annotation", f"ProfilerStep#{n}", 1000 * n, 1000) for n in range(3)]
    once = [x("cpu_op", "aten::save", 1100, 600), launch(10, 5), kernel("gemm", 20, 3, 5)]
    text = " ".join(render_text(*lone(document([*steps, *once], about(0)), tmp_path)).split())
    assert "host: aten::save, rank 0: 600 us in 1 of 3 steps (20 %)" in text
