"""Answers to agents: pages of bounded size, whatever files say and however large the job is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from rankscope.report import agent_answers
from rankscope.report.agent_answers import AnswerRows, QuestionError
from rankscope.report.answer_pages import (
    LONGEST_TEXT,
    MOST_BYTES,
    MOST_ITEMS,
    MOST_ROWS,
    CursorError,
    PageRequest,
    bounded,
    page_of,
)
from tests.report import samples

LONGEST_ANSWER = 100_000
FIRST = PageRequest(MOST_ROWS, None, ("job",))


def page(rows: AnswerRows, request: PageRequest = FIRST) -> dict[str, Any]:
    return page_of(request, rows.total, rows.rows_at, rows.first)


def test_answers_about_a_large_job_are_short() -> None:
    dataset, analysis = samples.many_ranks()
    answers = [
        agent_answers.verdict_answer(dataset, analysis),
        page(agent_answers.finding_rows(analysis, None)),
        page(agent_answers.operation_rows(dataset, 0, None, None, 10)),
        page(agent_answers.stack_rows(dataset, 0)),
    ]
    assert max(len(orjson.dumps(answer)) for answer in answers) < LONGEST_ANSWER
    row = answers[1]["rows"][0]
    assert row["waiting_ranks_total"] == 1_023 and len(row["waiting_ranks"]) == MOST_ITEMS
    assert answers[0]["more_problems"] > 0


def test_a_page_ends_at_its_size_and_the_next_one_goes_on() -> None:
    rows = [{"number": number, "text": "x" * 400} for number in range(300)]
    first = page_of(FIRST, 300, lambda begin, end: rows[begin:end])
    assert 100 < len(first["rows"]) < 200 and len(orjson.dumps(first["rows"])) < MOST_BYTES
    request = replace(FIRST, cursor=first["next_cursor"])
    assert page_of(request, 300, lambda begin, end: rows[begin:end])["rows"][0]["number"] == len(first["rows"])
    large = [{"text": ["y" * LONGEST_TEXT] * 200, "texts": {str(n): "z" * LONGEST_TEXT for n in range(200)}}]
    assert len(page_of(FIRST, 1, lambda begin, end: large[begin:end])["rows"]) == 1, "one row is always there"


@pytest.mark.parametrize("cursor", ["", "x", "5", "5.", "5.000000000000", "-1.0", "9" * 40, "\u0665.x"])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(CursorError, match="ask again without a cursor"):
        replace(FIRST, cursor=cursor).first_row()


def test_a_cursor_belongs_to_its_question() -> None:
    assert replace(FIRST, cursor=FIRST.cursor_at(7)).first_row() == 7
    with pytest.raises(CursorError):
        replace(FIRST, cursor=FIRST.cursor_at(7), about=("changed job",)).first_row()


def test_hostile_text_is_harmless() -> None:
    dataset, analysis = samples.hostile()
    answers = [
        agent_answers.verdict_answer(dataset, analysis),
        page(agent_answers.finding_rows(analysis, None)),
        page(agent_answers.operation_rows(dataset, 2, None, None, 10)),
        page(agent_answers.stack_rows(dataset, 2)),
        page(agent_answers.log_rows(dataset, None, None, None)),
        page(agent_answers.setting_rows(dataset, None, False)),
    ]
    text = orjson.dumps(answers).decode()
    assert text.isprintable() and "\\u00" not in text and "\\n" not in text.replace("\\\\n", "")
    assert text.count("img src=x") > 5
    assert bounded({"a\x1b": ["\u202e"]}) == {"a\\x1b": ["\\u202e"]}


def test_secrets_are_not_found_by_searching() -> None:
    dataset = samples.logged()[0]
    assert page(agent_answers.log_rows(dataset, 3, None, "api_key=abc"))["rows"] == []
    (line,) = page(agent_answers.log_rows(dataset, 3, "root", "out of memory"))["rows"]
    assert line["text"].endswith("api_key=(hidden)")
    settings = page(agent_answers.setting_rows(dataset, "wandb", False))["rows"]
    assert settings[0]["values"][0]["value"] == "(hidden)"


def test_settings_that_differ_come_with_their_ranks() -> None:
    rows = page(agent_answers.setting_rows(samples.logged()[0], "nccl", True))["rows"]
    assert rows[0] == {
        "name": "NCCL_ALGO",
        "differs": True,
        "values": [{"value": "Ring", "ranks": "0,1,3"}, {"value": "Tree", "ranks": "2"}],
    }


def test_lines_come_by_time_and_by_rank() -> None:
    dataset = samples.logged()[0]
    lines = page(agent_answers.log_rows(dataset, None, None, None))["rows"]
    assert [line["rank"] for line in lines][:3] == [0, 3, 3]
    assert {line["rank"] for line in page(agent_answers.log_rows(dataset, 3, None, None))["rows"]} == {3}


def test_a_page_around_a_collective_begins_before_it() -> None:
    dataset = samples.traced()[0]
    rows = agent_answers.operation_rows(dataset, 1, None, None, 10)
    assert rows.total > 0, "operations of traces, where there are no dumps"
    with pytest.raises(QuestionError, match="around_seq needs a group"):
        agent_answers.operation_rows(dataset, 1, None, 3, 10)
