"""Answers for single ranks in every format: whole, harmless, without names where that is wanted."""

from __future__ import annotations

from dataclasses import replace

import orjson
import polars as pl
import pytest
from markdown_it import MarkdownIt

from rankscope.analysis import analyse
from rankscope.analysis.explanations import explain_rank
from rankscope.analysis.model import Analysis, Evidence, RankExplanation, Reason
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.redact import Redaction
from rankscope.report.text import WIDTH, render_text
from rankscope.report.words import WHY_LABELS, why_sections
from rankscope.schema import Dataset
from tests.report import samples

PAGE = MarkdownIt("gfm-like")
EVIDENCE_KEYS = ["file", "rank", "record_id", "line", "time_ns", "text"]


def answered(*ranks: int) -> tuple[Dataset, Analysis]:
    dataset, analysis = samples.hang()
    return dataset, replace(analysis, whys=tuple(explain_rank(dataset, analysis, rank) for rank in ranks))


def test_json_has_an_object_for_each_rank() -> None:
    dataset, analysis = answered(3, 0)
    whys = orjson.loads(render_json(dataset, analysis))["why"]
    assert [(w["rank"], w["accused"], w["finding"]) for w in whys] == [(3, True, "f1"), (0, False, "f1")]
    assert all(list(w) == ["rank", "accused", "finding", "title", "lines"] for w in whys)
    lines = [line for w in whys for line in w["lines"]]
    assert all(list(line) == ["about", *EVIDENCE_KEYS] for line in lines)
    assert {line["about"] for line in lines} <= set(WHY_LABELS)


def test_text_puts_the_answers_before_the_findings() -> None:
    text = render_text(*answered(3, 0))
    accused, other, finding = (text.index(s) for s in ("Why? Rank 3 is acc", "Why? Rank 0 is not acc", "1. CRITICAL"))
    assert accused < other < finding
    assert "   clears it  a dump just as new" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_markdown_is_a_table_for_each_rank() -> None:
    text = render_markdown(*answered(3))
    assert "## Why? Rank 3 is accused: " in text
    assert text.index("| clears it | a dump just as new") < text.index("## 1. Critical")


def test_every_line_is_shown_under_a_label() -> None:
    why = RankExplanation(
        0, False, None, "t", tuple(Reason(about, Evidence(f"line {about}", "f", 0, 7)) for about in WHY_LABELS)
    )
    shown = [line for _, lines in why_sections(why) for line in lines]
    assert shown == [f"f, record 7: line {about}" for about in WHY_LABELS]


@pytest.mark.parametrize("about", WHY_LABELS)
def test_what_files_say_stays_harmless(about: str) -> None:
    dataset, analysis = samples.hang()
    why = RankExplanation(0, True, "f1", samples.EVIL, (Reason(about, Evidence(samples.EVIL, samples.EVIL, 0, 1)),))
    analysis = replace(analysis, whys=(why,))
    for text in (render_text(dataset, analysis), render_markdown(dataset, analysis)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    kinds = {token.type for token in PAGE.parse(render_markdown(dataset, analysis))}
    kinds |= {child.type for token in PAGE.parse(render_markdown(dataset, analysis)) for child in token.children or ()}
    assert not {"html_block", "html_inline", "link_open", "image"} & kinds
    assert b"\x1b" not in render_json(dataset, analysis)


def test_names_are_replaced_in_answers_too() -> None:
    dataset, _ = samples.hang()
    files = dataset.files.with_columns(host=pl.lit("node07"))
    dataset = Redaction(users=["alice"]).dataset(replace(dataset, files=files))
    analysis = analyse(dataset)
    analysis = replace(analysis, whys=(explain_rank(dataset, analysis, 3),))
    for text in (
        render_text(dataset, analysis),
        render_markdown(dataset, analysis),
        render_json(dataset, analysis).decode(),
    ):
        assert "host-1" in text
        assert "node07" not in text
        assert "alice" not in text
