"""The report as a page: whole, harmless whatever the files say, and readable without its pictures."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.report.html import render_html
from rankscope.report.lane_pictures import MOST_COLUMNS, lane_pictures
from rankscope.schema import Dataset
from tests.builders import JobBuilder
from tests.report import samples
from tests.report.pages import PLAIN_TAGS, Page, no_odd_numbers

Job = tuple[Dataset, Analysis]


def judged(job: JobBuilder) -> Job:
    dataset = job.build()
    return dataset, analyse(dataset)


def shown(page: str) -> str:
    return " ".join(" ".join(Page(page).texts).split())


def test_the_parts_come_in_order() -> None:
    page = render_html(*samples.logged())
    assert re.findall("<h2>(.*?)</h2>", page) == [
        "Lanes", "Findings", "Lines of logs", "Settings that differ between ranks", "Good to know",
        "Files not read, or only in part", "Next steps", "Not on this page",
    ]  # fmt: skip
    assert page.index("<h1") < page.index("<dl>") < page.index("<svg") < page.index("<article")


def test_evidence_stacks_chain_and_steps_stand_on_the_page() -> None:
    dataset, analysis = samples.hang()
    text = shown(render_html(dataset, analysis))
    finding = analysis.findings[0]
    assert f"1. {finding.title} Critical, root cause {finding.explanation} Kind missing-rank" in text
    assert "nccl_trace_rank_2, record 1 2 rank 2 issued mesh_tp all_reduce #1, pending" in text
    assert "forward /home/alice/run/model/attention.py:211" in text and "innermost first" in text
    assert "rank 0 waits in default_pg all_reduce #2 for rank 2" in text
    assert all(step in text for step in finding.next_steps)


@pytest.mark.parametrize("make", [samples.hostile, samples.many_ranks, samples.traced, samples.logged])
def test_text_of_files_is_only_text(make: Callable[[], Job]) -> None:
    page = render_html(*make())
    read = Page(page)
    assert read.tags.keys() <= PLAIN_TAGS
    assert not any(name.startswith("on") or name in ("style", "href", "src") for _, name, _ in read.attributes)
    assert all(char.isprintable() or char == "\n" for char in page)
    assert no_odd_numbers(read)


def test_hostile_text_changes_no_element() -> None:
    kind, hostile = (Page(render_html(*samples.hostile(*text))).tags for text in (("harmless",), ()))
    assert kind == hostile


def test_the_page_allows_itself_its_own_style_and_nothing_else() -> None:
    page = render_html(*samples.hang())
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = [value for value in Page(page).values("content") if value.startswith("default-src")]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.search(r"url\(|@import|https?:|<script|<link|<img", page)
    assert "prefers-color-scheme: dark" in style and "@media print" in style


def test_every_picture_has_words_of_its_own() -> None:
    read = Page(render_html(*samples.hang()))
    names = [name for value in read.values("aria-labelledby") for name in value.split()]
    assert read.tags["svg"] == 1 and len(set(names)) == 2 and set(names) <= set(read.values("id"))


# The lanes.


def hang() -> JobBuilder:
    job = JobBuilder(6, {"41": [2, 3]})
    for _ in range(9):
        job.collective()
    job.collective("41", ranks=[2], state="scheduled")
    job.collective(ranks=[0, 1, 4, 5], state="started")
    return job


def test_lanes_tell_who_came_who_waits_and_who_never_came() -> None:
    (picture,) = lane_pictures(*judged(hang()))
    assert picture.title == "Lanes around default_pg all_reduce #10"
    assert picture.caption.startswith(
        "Rank 3 (culprit): default_pg all_reduce #9 completed; default_pg all_reduce #10 never issued. Rank 0 (waits): "
        "default_pg all_reduce #10 started, not finished."
    )
    assert "Rank 2 (waits): mesh_41 all_reduce #1 pending." in picture.caption
    assert picture.caption.endswith("Not drawn: 1 rank waiting.")
    drawn = "".join(map(str, picture.marks))
    kinds = re.findall(r'class="op (\w+)"', drawn)
    # one of each is in the legend
    assert (kinds.count("never"), kinds.count("pending"), kinds.count("started")) == (2, 2, 4)
    assert len(set(re.findall(r'class="(sign-\w+)"', drawn))) == 4
    for word in ("culprit", "waits", "completed", "never issued", "pending", "started, not finished"):
        assert f">{word}<" in drawn


def test_an_operation_that_differs_is_marked() -> None:
    job = JobBuilder(4)
    for _ in range(3):
        job.collective()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    job.collective(ranks=[2], seq=4, op="broadcast", state="scheduled")
    (picture,) = lane_pictures(*judged(job))
    drawn = "".join(map(str, picture.marks))
    assert drawn.count('class="op differs"') == 2 and "\u2260 broadcast #4" in drawn
    assert "Rank 2 (culprit): default_pg broadcast #4 pending" in picture.caption


def test_a_rank_without_a_dump_has_a_lane_that_says_so() -> None:
    job = JobBuilder(4)
    job.collective()
    job.collective(ranks=[0, 1, 2], state="scheduled")
    dataset, analysis = judged(job)
    files = dataset.files.filter(dataset.files["rank"] != 3)
    ops = dataset.ops.filter(dataset.ops["rank"] != 3)
    frontiers = dataset.frontiers.filter(dataset.frontiers["rank"] != 3)
    (picture,) = lane_pictures(replace(dataset, files=files, ops=ops, frontiers=frontiers), analysis)
    assert "Rank 3 (culprit): default_pg all_reduce #2 no dump" in picture.caption


def test_of_many_ranks_a_few_are_drawn_and_the_others_counted() -> None:
    job = JobBuilder(64)
    for _ in range(20):
        job.collective()
    job.collective(ranks=[rank for rank in range(64) if rank != 9], state="scheduled")
    (picture,) = lane_pictures(*judged(job))
    drawn = "".join(map(str, picture.marks))
    assert len(set(re.findall(r">rank (\d+)<", drawn))) == 5
    assert "Not drawn: 59 ranks waiting." in picture.caption
    # and the boxes of the legend
    assert drawn.count('class="op completed"') == 5 * (MOST_COLUMNS - 1) + 1


def test_a_healthy_job_has_no_lanes() -> None:
    assert list(lane_pictures(*samples.healthy())) == []


def test_a_page_of_many_ranks_stays_small() -> None:
    assert len(render_html(*samples.many_ranks())) < 60_000


def test_a_job_on_disk_is_drawn_like_one_in_memory() -> None:
    from rankscope.assemble.load import load

    dataset = load([Path(__file__).parents[2] / "sample_data" / "straggler"])
    (picture,) = lane_pictures(dataset, analyse(dataset))
    assert picture.title == "The last operations of each rank" and re.search(
        r">\+\d+ ms<", "".join(map(str, picture.marks))
    )
    assert "how long after the first" in picture.caption
