"""The Markdown report as the page it becomes: its parts, and nothing that a file put there."""

from __future__ import annotations

from collections import Counter

from markdown_it import MarkdownIt

from rankscope.report.markdown import render_markdown
from tests.report import samples

PAGE = MarkdownIt("gfm-like", {"linkify": True, "html": True})


def _kinds(source: str) -> Counter[str]:
    tokens = PAGE.parse(source)
    return Counter([t.type for t in tokens] + [c.type for t in tokens for c in t.children or []])


def _headings(source: str) -> list[str]:
    tokens = PAGE.parse(source)
    return [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]


def test_the_parts_come_in_order() -> None:
    assert _headings(render_markdown(*samples.hang())) == [
        "Hang: rank 3 never issued `mesh_tp all_reduce #1`; 3 ranks wait for it",
        "1. Critical, root cause: rank 3 never issued `all_reduce #1` of `mesh_tp`",
        "Good to know",
        "Files not read, or only in part",
        "Next steps",
    ]


def test_hostile_text_leaves_the_page_as_it_is() -> None:
    kind = _kinds(render_markdown(*samples.hostile("harmless")))
    hostile = _kinds(render_markdown(*samples.hostile()))
    assert not {"html_block", "html_inline", "link_open", "image", "s_open", "hr"} & set(hostile)
    assert hostile["heading_open"] == kind["heading_open"]
    assert hostile["table_open"] == kind["table_open"]
    assert hostile["fence"] == kind["fence"]


def test_every_row_of_a_table_has_its_cells() -> None:
    tokens = PAGE.parse(render_markdown(*samples.hostile()))
    widths: list[list[int]] = []
    for token in tokens:
        if token.type == "table_open":
            widths.append([])
        elif token.type == "tr_open":
            widths[-1].append(0)
        elif token.type in ("td_open", "th_open"):
            widths[-1][-1] += 1
    assert len(widths) == 6
    assert all(len(set(rows)) == 1 for rows in widths)


def test_a_thousand_ranks_stay_readable() -> None:
    page = render_markdown(*samples.many_ranks())
    assert len(page) < 8_000
    assert "1,023 ranks (0-2,4-1023)" in page
    assert "1,016 more in the JSON report" in page


def test_a_healthy_job_is_told_in_a_few_lines() -> None:
    assert len(render_markdown(*samples.healthy()).splitlines()) < 10
