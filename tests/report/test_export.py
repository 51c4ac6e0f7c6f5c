"""Exports take a new name rather than another file's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.report.markdown import export_markdown
from rankscope.report.output_files import overwrite, write_new
from tests.report import samples


def test_an_export_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "findings.md").write_text("mine")
    paths = [export_markdown(*samples.hang(), tmp_path) for _ in range(2)]
    assert [p.name for p in paths] == ["findings-2.md", "findings-3.md"]
    assert (tmp_path / "findings.md").read_text() == "mine"
    assert paths[0].read_text().startswith("# Hang: ")


def test_write_new_refuses_what_is_there(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"1")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"1"


def test_overwrite_replaces_in_one_step_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    overwrite(tmp_path / "a", b"2")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"2"


def test_overwrite_cleans_up_when_it_fails(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError):
        overwrite(tmp_path / "a", b"2")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
