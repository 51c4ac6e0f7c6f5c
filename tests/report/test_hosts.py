"""Stacks of hosts in the reports."""

from __future__ import annotations

import re

import orjson
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.redact import Redaction
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.analysis.hosts import ITEM, LOOP, REDUCE, SAVE, TAKE_GIL, missing_one, still
from tests.builders import JobBuilder
from tests.report.samples import EVIL
from tests.report.test_markdown import PAGE


def job(own: object = SAVE) -> tuple[Dataset, Analysis]:
    made = missing_one()
    for rank in range(8):
        made.thread(rank, own if rank == 3 else REDUCE)  # type: ignore[arg-type]
    made.thread(3, LOOP, name="logger", gil=True)
    dataset = still(made)
    return dataset, analyse(dataset)


def test_the_text_has_the_stack_of_the_culprit_and_of_who_holds_the_gil() -> None:
    text = render_text(*job(TAKE_GIL))
    section = text[text.index("host stack of rank 3") : text.index("evidence")]
    assert re.sub(r"\s+", " ", section).split(" host stack ") == [
        "host stack of rank 3, MainThread, by py-spy pthread_cond_timedwait libc.so.6 (native) take_gil python3.11 "
        "(native) preprocess data/clean.py:12 main train.py:40 <module> train.py:60",
        "of rank 3, logger, which holds the GIL, by py-spy preprocess data/clean.py:12 main train.py:40 "
        "<module> train.py:60 ",
    ]
    assert "sure       high: py-spy saw rank 3 outside of any collective" in text


def test_markdown_has_it_in_a_block() -> None:
    text = render_markdown(*job(ITEM))
    assert "**Host stack of rank 3, MainThread, by py-spy** (innermost first)" in text
    assert "\ncudaStreamSynchronize  libcudart.so.12 (native)\n" in text


def test_json_has_it_as_evidence() -> None:
    found = orjson.loads(render_json(*job()))["findings"][0]
    assert found["evidence"][0] == {
        "file": "py-spy_rank_3.txt", "rank": 3, "record_id": None, "line": None, "time_ns": None,
        "text": "py-spy: rank 3 in torch.save, at W.write train/ckpt.py:7 < save_checkpoint train/ckpt.py:77; "
        "the GIL is held by logger, running, at preprocess data/clean.py:12 < main train.py:40",
    }  # fmt: skip
    assert found["culprits"][0]["pid"] == 4003


def test_what_a_hostile_process_is_called_is_made_harmless() -> None:
    dataset, analysis = job(((EVIL, EVIL, 3), (EVIL, "a.so", 0)))
    for text in (render_text(dataset, analysis), render_markdown(dataset, analysis)):
        assert "host stack of rank 3" in text.lower()
        assert not set("\x1b\x07\u202e") & set(text)
    tokens = PAGE.parse(render_markdown(dataset, analysis))
    kinds = {t.type for t in tokens} | {c.type for t in tokens for c in t.children or []}
    assert not {"html_block", "html_inline", "link_open", "image", "s_open", "hr"} & kinds


@pytest.mark.parametrize("render", [render_text, render_markdown])
def test_names_can_be_left_out(render: object) -> None:
    made = missing_one()
    made.thread(3, (("save", "/home/alice/run/ckpt.py", 3), *SAVE[1:]), name="alice-saver", is_main=True)
    dataset = still(made)
    dataset = Redaction(users=["alice"]).dataset(dataset)
    text = render(dataset, analyse(dataset))  # type: ignore[operator]
    assert "alice" not in text
    assert "torch.save" in text


def test_many_places_and_deep_stacks_are_cut() -> None:
    made = JobBuilder(64)
    made.collective()
    made.collective(ranks=range(40), state="scheduled")
    for rank in range(40, 64):
        made.thread(rank, [(f"f{i}", "a.py", rank * 100 + i) for i in range(90)])
    dataset = still(made)
    text = render_text(dataset, analyse(dataset))
    assert text.count("host stack") == 2
    assert "(76 frames left out)" in text
    assert len(text.splitlines()) < 200
