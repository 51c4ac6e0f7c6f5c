"""What changed since the last look, where not everything is looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.watching.census import FileCensus, FileChanges


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("rank_0", "rank_1", "node/rank_2"):
        (tmp_path / "dumps" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dumps" / name).write_text(name)
    return tmp_path / "dumps"


@pytest.fixture
def census(folder: Path) -> FileCensus:
    census = FileCensus([folder])
    census.scan()
    return census


def test_what_is_deleted_is_told_at_once_and_what_takes_its_place_as_well(folder: Path, census: FileCensus) -> None:
    path = folder / "rank_0"
    path.unlink()
    changes, everything = census.look([str(path)])
    assert changes.gone == (str(path),) and everything, "a link to it may be left"
    assert census.look([str(path)]) == (type(changes)(), False)
    path.write_text("again")
    changes, everything = census.look([str(path)])
    assert [one.size for one in changes.changed] == [5] and not everything
    assert not census.scan()


def test_what_was_away_for_a_moment_is_there_again(folder: Path, census: FileCensus) -> None:
    path = folder / "rank_0"
    path.rename(folder.parent / "elsewhere")
    assert census.look([str(path)])[0].gone == (str(path),)
    (folder.parent / "elsewhere").rename(path)
    assert [one.path for one in census.scan().changed] == [str(path)]


@pytest.mark.parametrize("together", [True, False])
def test_a_new_name_is_no_new_file_whether_both_are_told_together_or_not(
    folder: Path, census: FileCensus, together: bool
) -> None:
    old, new = folder / "rank_0", folder / "rank_0.1"
    old.rename(new)
    if together:
        changes, everything = census.look([str(old), str(new)])
        assert not changes and everything
    else:
        assert census.look([str(old)])[0].gone == (str(old),)
        assert census.look([str(new)])[1]
    changes = census.scan()
    assert [(before, after.path) for before, after in changes.moved] == [(str(old), str(new))]
    assert not changes.changed and not changes.gone


def test_a_directory_that_left_with_its_files_asks_for_a_look_at_everything(folder: Path, census: FileCensus) -> None:
    (folder / "node").rename(folder.parent / "elsewhere")
    assert census.look([str(folder / "node")])[1]
    assert census.scan().gone == (str(folder / "node" / "rank_2"),)
    assert not census.look([str(folder / "node")])[1]


def test_a_file_that_is_rewritten_under_another_name_asks_for_none(folder: Path, census: FileCensus) -> None:
    draft = folder / ".rank_0.tmp"
    draft.write_text("longer than it was")
    draft.rename(folder / "rank_0")
    changes, everything = census.look([str(draft), str(folder / "rank_0")])
    assert [one.size for one in changes.changed] == [18] and not everything


def test_a_trigger_pipe_is_nothing(folder: Path, census: FileCensus) -> None:
    os.mkfifo(folder / "trace0.pipe")
    changes, everything = census.look([str(folder / "trace0.pipe")])
    assert not changes and not everything and not census.scan()


def test_what_the_capture_is_writing_is_nothing_until_it_is_old(folder: Path, census: FileCensus) -> None:
    part = folder / ".fr_trace_rank_0.part"
    part.write_text("half")
    assert census.look([str(part)]) == (FileChanges(), False)
    assert not census.scan()
    os.utime(part, (1.0, 1.0))
    assert [one.path for one in census.scan().changed] == [str(part)]
    part.rename(folder / "fr_trace_rank_0")
    assert census.look([str(part), str(folder / "fr_trace_rank_0")])[1]
    assert census.scan().moved


def test_a_link_that_leads_nowhere_is_not_gone(folder: Path, census: FileCensus) -> None:
    (folder / "dead").symlink_to("nothing")
    assert [one.problem for one in census.scan().changed] == ["a link that leads nowhere"]
    assert not census.look([str(folder / "dead")])[0]


@pytest.mark.parametrize(("target", "new"), [("../elsewhere", True), ("node", False), ("rank_0", False)])
def test_only_links_to_directories_elsewhere_lead_to_what_nobody_watches(
    folder: Path, census: FileCensus, target: str, new: bool
) -> None:
    (folder.parent / "elsewhere").mkdir()
    following = FileCensus([folder], follow_links=True)
    following.scan()
    (folder / "link").symlink_to(target)
    for each, expected in ((following, new), (census, False)):
        each.look([str(folder / "link")])
        assert each.has_new_links() == expected
        assert not each.has_new_links()
    census.scan()
    assert census.leads_out == new
