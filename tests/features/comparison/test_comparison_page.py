"""The page of a comparison: whole, harmless whatever the files say, and readable without its pictures."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankscope.features.comparison.report.comparison_charts import ratios_picture, series_picture
from rankscope.features.comparison.report.comparison_page import comparison_page
from rankscope.features.comparison.report.sides_section import LEAST
from rankscope.features.comparison.rules.model import ComparedPart, RunComparison, RunLine, SeriesPicture
from rankscope.features.comparison.rules.run_comparison import compare_runs
from rankscope.features.comparison.rules.run_sides import compare_sides
from rankscope.features.comparison.rules.run_statistics import gate_checks, parse_budget
from rankscope.features.comparison.rules.time_comparison import TimeRatio
from rankscope.report.svg_marks import figure, scale_of
from tests.features.comparison.rules.test_picture_data import job
from tests.features.comparison.rules.test_run_sides import reruns
from tests.features.comparison.rules.test_series import NAN, series
from tests.features.comparison.rules.test_settings import run_with
from tests.report.pages import PLAIN_TAGS, Page, no_odd_numbers

HOSTILE = (
    "</style></title><script>alert(1)</script>\"' onload=x \x1b[2J\u202e\u2066\x00&amp; token=hf_abcdefghijklmnopqrst"
)
FIXED = frozenset({"kind", "label", "weight"})


@cache
def compared() -> RunComparison:
    """A comparison in which all parts differ, with all pictures."""
    tuned = [run_with(*[{"NCCL_ALGO": value, "WANDB_API_KEY": value}] * 4) for value in ("Ring", "Tree")]
    values = [series([1.0, 2.0, 3.0]), series([1.0, 2.1, NAN])]
    jobs = (job(), job(extra=(1,), late=2))
    runs = [
        replace(one, dataset=replace(jobs[number], settings=one.dataset.settings), series=table)
        for number, (one, table) in enumerate(zip(tuned, map(with_source, values), strict=True))
    ]
    found = compare_runs(runs[0], runs[1], is_drawn=True)
    times = (TimeRatio("step", 1.0, 1.2, 60, 60, 1.1, 1.3), TimeRatio("all_reduce", 1.0, 0.0, 9, 9, None, None))
    return replace(found, pictures=replace(found.pictures, times=times))


def with_source(table: pl.DataFrame) -> pl.DataFrame:
    """A table of series with the columns that tell its origin."""
    return table.with_columns(
        pl.lit("tensorboard").alias("source"), pl.col("name").alias("raw_name"), pl.lit(0).alias("attempt"),
        pl.lit("events").alias("file"), pl.lit(None, pl.Int64).alias("time_ns"),
    )  # fmt: skip


def poisoned(value: Any, name: str = "") -> Any:
    """The value with hostile text in all places of text."""
    if isinstance(value, str):
        return value if name in FIXED else HOSTILE
    if isinstance(value, tuple):
        parts = [poisoned(part, name) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        kept = {"name"} if isinstance(value, ComparedPart) else set()
        own = [field.name for field in fields(value) if field.name not in kept]
        return replace(value, **{field: poisoned(getattr(value, field), field) for field in own})
    return value


def test_text_of_files_is_only_text() -> None:
    page = comparison_page(poisoned(compared()))
    read = Page(page)
    assert read.tags.keys() <= PLAIN_TAGS
    assert not any(name.startswith("on") or name in ("style", "href", "src") for _, name, _ in read.attributes)
    assert all(char.isprintable() or char == "\n" for char in page)
    shown = "".join(read.texts)
    assert "</style></title><script>alert(1)</script>" in shown and "\\x1b[2J\\u202e" in shown
    assert "hf_" not in page and "token=(hidden)" in shown


def test_the_page_allows_itself_its_own_style_and_nothing_else() -> None:
    page = comparison_page(compared())
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    policy = next(value for value in Page(page).values("content") if "default-src" in value)
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert len(style) == 1 and not re.search(r"url\(|@import|https?:", page)
    assert page.count("<style") == 1 and "prefers-color-scheme: dark" in style[0] and "@media print" in style[0]


def test_every_picture_has_words_of_its_own() -> None:
    read = Page(comparison_page(compared()))
    assert read.tags["svg"] == read.tags["figure"] == 6
    names = [name for value in read.values("aria-labelledby") for name in value.split()]
    assert len(names) == len(set(names)) == 2 * read.tags["svg"] and set(names) <= set(read.values("id"))
    assert no_odd_numbers(read)


def test_the_answer_the_evidence_and_the_next_step_stand_on_the_page() -> None:
    found = compared()
    shown = " ".join(" ".join(Page(comparison_page(found)).texts).split())
    assert found.headline in shown and f"To decide: {found.hypotheses[0].experiment}" in shown
    assert "Stack in A" in shown and "train (train.py:10)" in shown and "NCCL_ALGO Ring Tree 0-3 repeatability" in shown
    assert "WANDB_API_KEY (hidden) (hidden)" in shown and "--redact replaces them" in shown
    assert "stand-ins such as host-1" in comparison_page(found, is_redacted=True)


def test_an_equal_pair_says_so_and_names_the_pictures_that_it_lacks() -> None:
    run = run_with({"NCCL_ALGO": "Ring"})
    page = comparison_page(compare_runs(run, run, is_drawn=True))
    assert "no difference between A and B" in page and "A picture of series by step: no training series" in page


def test_several_runs_and_a_gate_stand_on_the_page() -> None:
    found = compare_sides(reruns(0, 4), reruns(10, 4, slower=1.2))
    found = replace(found, gate=gate_checks([parse_budget("step=5%"), parse_budget("schedule")], found))
    shown = " ".join(" ".join(Page(comparison_page(found)).texts).split())
    assert "gate failed: 1 of 2 budgets is exceeded" in shown and "schedule unmeasured not compared" in shown
    assert found.groups is not None and found.groups.power in shown and LEAST in shown
    assert "metric A B change 95 % interval" in shown
    metrics = tuple(replace(poisoned(one), verdict=one.verdict) for one in found.metrics)
    hostile = Page(comparison_page(replace(poisoned(replace(found, metrics=())), metrics=metrics)))
    assert hostile.tags.keys() <= PLAIN_TAGS and "hf_" not in "".join(hostile.texts)


NUMBERS = st.floats() | st.none()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=9))
@example([(1.7e308, -1.7e308)])
@example([(5e-324, 5e-324), (0.0, 5e-324)])
@example([(1e17, 1e17 + 16)])
def test_any_values_can_be_drawn(values: list[tuple[float | None, float | None]]) -> None:
    a, b = zip(*values, strict=True)
    same = tuple(one != other and None not in (one, other) for one, other in values)
    sizes = tuple(float("inf") if differs else 0.0 for differs in same)
    first = same.index(True) if True in same else None
    lines = (RunLine("A", a), RunLine("B", b))
    drawn = SeriesPicture("loss", 0, tuple(range(len(a))), lines, sizes, same, first, len(a))
    assert no_odd_numbers(Page(str(figure(series_picture(drawn), 1))))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_ticks_are_few_and_on_the_scale(values: list[float]) -> None:
    scale = scale_of(values, 0, 100)
    assert all(0 <= scale.at(value) <= 100 for value in values)
    assert 0 < len(scale.ticks()) <= 12


@pytest.mark.parametrize(("low", "high"), [(None, None), (0.2, 9.0)])
def test_ratios_outside_of_the_scale_lie_on_its_edge(low: float | None, high: float | None) -> None:
    drawn = ratios_picture([TimeRatio("step", 1.0, 50.0, 60, 60, low, high)])
    assert drawn is not None and 'cx="640"' in str(figure(drawn, 1))
