"""What the kernel tells is told by the paths as they were given, and that another directory is in the place of one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope.watching.observer import ChangeNotices
from tests.watching.hand_clock import PATIENCE_S


class Listener:
    """A notice, and what it has told."""

    def __init__(self, *given: Path) -> None:
        self._woken = threading.Event()
        self.notice = ChangeNotices(self._woken.set, given)
        self.paths: set[str] = set()

    def until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            assert self._woken.wait(PATIENCE_S), self.paths
            self._woken.clear()
            self.paths |= self.notice.take()


@contextmanager
def watching(given: Path, watched: Path, *, recursive: bool = True) -> Iterator[Listener]:
    listener = Listener(given)
    listener.notice.watch([watched], recursive=recursive)
    listener.until(listener.notice.has_begun)
    try:
        yield listener
    finally:
        listener.notice.close()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("dumps", "dumps/node/rank_0"),
        ("./dumps/", "dumps/node/rank_0"),
        ("../{name}/dumps", "../{name}/dumps/node/rank_0"),
        (".", "./dumps/node/rank_0"),
        ("{here}/dumps", "{here}/dumps/node/rank_0"),
    ],
)
def test_paths_begin_as_the_directory_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, told: str
) -> None:
    (tmp_path / "dumps" / "node").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    path = Path(given.format(name=tmp_path.name, here=tmp_path))
    with watching(path, path) as listener:
        (tmp_path / "dumps" / "node" / "rank_0").write_text("x")
        listener.until(lambda: told.format(name=tmp_path.name, here=tmp_path) in listener.paths)


def test_a_file_is_told_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with watching(Path("job.log"), Path(), recursive=False) as listener:
        (tmp_path / "job.log").write_text("x")
        listener.until(lambda: "job.log" in listener.paths)


def test_one_that_is_made_anew_is_another_whatever_its_inode(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    with watching(dumps, dumps) as listener:
        assert listener.notice.works and not listener.notice.lost
        dumps.rmdir()
        dumps.mkdir()
        listener.until(lambda: listener.notice.lost)
        assert not listener.notice.works
