"""What is found under a path, and what is not even opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rankscope.parsers.files.directory_walk import walk_paths


def shown(paths: list[Path]) -> dict[str, str | None]:
    return {found.shown: found.problem for found in walk_paths(paths)}


def test_files_at_any_depth_once_and_in_order(tmp_path: Path) -> None:
    for name in ("node1/rank_1", "node0/rank_0", "a/b/c/deep", ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert list(shown([tmp_path])) == [".hidden", "a/b/c/deep", "node0/rank_0", "node1/rank_1"]
    assert list(shown([tmp_path, tmp_path])) == list(shown([tmp_path / "."])) or len(shown([tmp_path, tmp_path])) == 4


def test_a_file_is_shown_by_its_name_and_several_paths_by_themselves(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("x")
    two.mkdir()
    (two / "x").write_text("x")
    assert list(shown([one])) == ["one"]
    assert list(shown([one, two])) == [str(one), f"{two}/x"]


def test_pipes_are_named_only_where_they_are_given(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace0.pipe")
    (tmp_path / "link").symlink_to("trace0.pipe")
    assert shown([tmp_path]) == {}
    assert shown([tmp_path / "trace0.pipe"]) == {"trace0.pipe": "a pipe: not opened"}


def test_sockets_devices_and_dead_links_are_named_not_opened(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "dead").symlink_to(tmp_path / "nothing")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        assert shown([tmp_path]) == {
            "dead": "a link that leads nowhere",
            "null": "a device: not opened",
            "sock": "a socket: not opened",
        }


def test_links_that_go_round_end(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rank_0").write_text("x")
    (tmp_path / "run" / "self").symlink_to(tmp_path)
    (tmp_path / "a_link").symlink_to(tmp_path / "run")
    (tmp_path / "z").symlink_to("z")
    assert shown([tmp_path]) == {"run/rank_0": None, "z": "a link that leads nowhere"}


def test_a_file_with_two_links_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_text("x")
    (tmp_path / "same").hardlink_to(tmp_path / "rank_0")
    (tmp_path / "0latest").symlink_to("rank_0")
    assert list(shown([tmp_path])) == ["rank_0"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0)
    assert shown([tmp_path]) == {"shut": "cannot be read: Permission denied"}


def test_names_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"rank_\xff")).write_text("x")
    assert list(shown([tmp_path])) == ["rank_\ufffd"]


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        walk_paths([tmp_path / "nothing"])


def test_a_file_is_asked_for_its_size_once_and_a_file_nobody_wants_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rank_0", "rank_1", "rank_2"):
        (tmp_path / name).write_bytes(b"x")
    asked: list[str] = []

    class Counted:
        """An entry of a directory that notes when it is asked for its size."""

        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.path = entry.name, entry.path
            self.is_symlink, self.is_file, self._stat = entry.is_symlink, entry.is_file, entry.stat

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            asked.append(self.name)
            return self._stat(follow_symlinks=follow_symlinks)

    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: map(Counted, scan(path)))
    found = walk_paths([tmp_path], lambda shown: shown != "rank_1")
    assert [one.shown for one in found] == ["rank_0", "rank_2"]
    assert sorted(asked) == ["rank_0", "rank_2"]


def test_a_given_file_that_nobody_wants_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rank_1").write_bytes(b"x")
    assert walk_paths([tmp_path / "rank_1"], lambda shown: shown != "rank_1") == []
