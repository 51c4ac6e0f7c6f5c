"""The bytes of each format are what people and programs rely on: a change must be seen in a diff.

`python -m tests.report.test_golden` writes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from rankscope.analysis.model import Analysis
from rankscope.report.html import render_html
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.report import samples

GOLDEN = Path(__file__).parent / "golden"
STYLE = files("rankscope.report").joinpath("page.css").read_text("utf-8")
POLICY = re.compile(r"style-src &#39;sha256-[\w+/=]+&#39;")


def without_style(page: str) -> str:
    """A page without its style and the hash of it, which stand once, in the package."""
    assert page.count(STYLE) == 1 and len(POLICY.findall(page)) == 1
    return POLICY.sub("style-src (its hash)", page.replace(STYLE, "/* report/page.css */"))


JOBS: dict[str, Callable[[], tuple[Dataset, Analysis]]] = {
    "hang": samples.hang,
    "logged": samples.logged,
    "healthy": samples.healthy,
    "traced": samples.traced,
    "hostile": samples.hostile,
}
FORMATS: dict[str, Callable[[Dataset, Analysis], bytes]] = {
    "txt": lambda dataset, analysis: render_text(dataset, analysis).encode(),
    "md": lambda dataset, analysis: render_markdown(dataset, analysis).encode(),
    "json": render_json,
    "html": lambda dataset, analysis: without_style(render_html(dataset, analysis)).encode(),
}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", JOBS)
def test_bytes_are_as_they_were(name: str, suffix: str) -> None:
    assert FORMATS[suffix](*JOBS[name]()) == (GOLDEN / f"{name}.{suffix}").read_bytes()


def write() -> None:
    """Writes every golden file anew."""
    for name, make in JOBS.items():
        for suffix, render in FORMATS.items():
            (GOLDEN / f"{name}.{suffix}").write_bytes(render(*make()))


if __name__ == "__main__":
    write()
