"""The JSON report: a contract over keys, their order and their types, and safe to print."""

from __future__ import annotations

from dataclasses import replace

import orjson
import polars as pl

from rankscope.report.json import render_error, render_json
from tests.report import samples

FINDING_KEYS = [
    "id", "kind", "severity", "root_cause", "caused_by", "title", "explanation", "culprit_ranks", "culprits",
    "candidates", "waiting_ranks", "blast_radius", "confidence", "confidence_reasons", "chain", "group", "seq", "op",
    "peer", "stack", "evidence", "counter_evidence", "next_steps",
]  # fmt: skip


def test_keys_stand_in_their_order() -> None:
    report = orjson.loads(render_json(*samples.hang()))
    assert list(report) == [
        "schema", "tool", "verdict", "headline", "status", "world_size", "ranks", "inputs", "findings", "mesh", "why",
        "messages", "more_messages", "settings", "traces",
    ]  # fmt: skip
    assert report["why"] == []
    assert [list(f) for f in report["findings"]] == [FINDING_KEYS] * 3
    assert list(report["inputs"][0]) == ["path", "kind", "rank", "rows", "problem", "recorder"]
    assert list(report["findings"][0]["chain"][0]) == ["rank", "waits_in", "for_rank"]


def test_culprits_are_sorted() -> None:
    dataset, analysis = samples.hang()
    found = replace(analysis.findings[0], culprit_ranks=(3, 1))
    report = orjson.loads(render_json(dataset, replace(analysis, findings=(found,))))
    assert report["findings"][0]["culprit_ranks"] == [1, 3]


def test_text_arrives_as_it_was_and_nothing_invisible_is_printed() -> None:
    dataset, analysis = samples.hang()
    text = "\x1b\x9b\u202e\u200b\u00a0\U000e0041 größe 模型"
    raw = render_json(dataset, replace(analysis, verdict=text))
    assert all(line.isprintable() for line in raw.decode().split("\n"))
    assert orjson.loads(raw)["verdict"] == text


def test_ascii_json_is_still_json() -> None:
    dataset, analysis = samples.hang()
    raw = render_json(dataset, replace(analysis, verdict="größe \U0001f600"), ascii_only=True)
    assert raw.isascii()
    assert orjson.loads(raw)["verdict"] == "größe \U0001f600"


def test_lone_surrogates_are_written_out() -> None:
    dataset, analysis = samples.hang()
    report = orjson.loads(render_json(dataset, replace(analysis, verdict="a\udc80b")))
    assert report["verdict"] == "a\\udc80b"


def test_missing_ranks_and_problems_are_listed() -> None:
    dataset, analysis = samples.hang()
    files = dataset.files.filter(pl.col("rank") != 2)
    report = orjson.loads(render_json(replace(dataset, files=files), analysis))
    assert report["ranks"] == {"seen": [0, 1, 3], "missing": [2]}
    assert report["inputs"][1]["problem"] == "cut short: the last entry is not whole"


def test_an_error_has_its_own_form() -> None:
    assert orjson.loads(render_error("no such directory: 'x'")) == {"schema": 1, "error": "no such directory: 'x'"}
