"""What is found under a path, and what is not even opened."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.parsers.files.directory_walk import FoundPath, walk_paths
from rankscope.parsers.files.reader import follow_log, read_file


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
            self.is_symlink, self.is_file, self.is_dir = entry.is_symlink, entry.is_file, entry.is_dir
            self._stat = entry.stat

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


ERRORS = (errno.EACCES, errno.ESTALE, errno.EIO, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT)


def break_disk(monkeypatch: pytest.MonkeyPatch, broken: str, number: int) -> None:
    """Lets every call that asks for the path `broken` fail with an error number; directories still tell kinds."""

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def ask(path: Any, *args: Any, **how: Any) -> Any:
            if isinstance(path, str | os.PathLike) and os.fspath(path) == broken:
                raise OSError(number, os.strerror(number), broken)
            return call(path, *args, **how)

        return ask

    class Entry:
        """An entry of a directory, of which only the name is sure."""

        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.path = entry.name, entry.path
            self.is_symlink, self.is_file, self.is_dir = entry.is_symlink, entry.is_file, entry.is_dir
            self._entry = entry

        def stat(self, **how: bool) -> os.stat_result:
            ask = failing(lambda _: self._entry.stat(**how))
            return ask(self.path)  # type: ignore[no-any-return]

    scan = os.scandir

    def scandir(path: str) -> Iterator[Entry]:
        return map(Entry, scan(path))

    monkeypatch.setattr(os, "scandir", failing(scandir))
    for name in ("open", "stat", "lstat", "readlink"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))


@pytest.mark.parametrize("number", ERRORS)
@pytest.mark.parametrize("place", ["node1", "rank_0", "link"])
def test_an_entry_that_cannot_be_looked_at_costs_one_row(
    place: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node1").mkdir()
    for name in ("node1/rank_1", "rank_0", "rank_2"):
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("node1/rank_1")
    whole = {name: None for name in ("node1/rank_1", "rank_0", "rank_2") if not name.startswith(place)}
    whole |= {"link": None} if place == "node1" else {}
    break_disk(monkeypatch, str(tmp_path / place), number)
    found = shown([tmp_path])
    nowhere = place == "link" and number in (errno.ENOENT, errno.ELOOP)
    told = "a link that leads nowhere" if nowhere else f"cannot be read: {os.strerror(number)}"
    assert found == {**whole, place: told}


@pytest.mark.parametrize("number", ERRORS)
def test_a_directory_that_cannot_be_listed_is_told_by_its_kind(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node1").mkdir()
    scan = os.scandir

    def refused(path: str) -> Any:
        if path.endswith("node1"):
            raise OSError(number, os.strerror(number))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    for given, name in ((tmp_path, "node1"), (tmp_path / "node1", str(tmp_path / "node1"))):
        (row,), told = walk_paths([given]), f"cannot be read: {os.strerror(number)}"
        assert (row.shown, row.kind, row.problem) == (name, "unread-directory", told)


@pytest.mark.parametrize("number", ERRORS)
def test_a_file_that_cannot_be_opened_is_a_content(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.log"
    path.write_text("x")
    break_disk(monkeypatch, str(path), number)
    for contents in (read_file(str(path), 1), follow_log(str(path), 0, "", True)):
        assert [(c.kind, c.problem) for c in contents] == [("unreadable", f"cannot be read: {os.strerror(number)}")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A job with links in it and out of it, beside files of somebody else."""
    job, other = tmp_path / "job", tmp_path / "other"
    for name in ("job/run_1/rank_0", "job/run_2/rank_0", "other/rank_7", "other/deep/rank_8"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name, target in (
        ("latest", "run_2"), ("by_alias", "../alias/job/run_1"), ("up", ".."), ("here", "."), ("loop", "loop"),
        ("round", "../job/round_back"), ("round_back", "round"), ("dead", other / "none"), ("out", other),
        ("rank_7", other / "rank_7"), ("dotted", "run_1/../../other/deep"), ("environ", "/proc/self/environ"),
        ("cwd", "/proc/self/cwd"), ("run_1/rank_1", "../run_2/rank_0"),
    ):  # fmt: skip
        (job / name).symlink_to(target)
    (tmp_path / "alias").symlink_to(tmp_path)
    return job


def test_links_lead_only_to_what_was_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree.parent / "other")
    other, out = tree.parent / "other", "a link out, to {}: not followed"
    nowhere = "a link that leads nowhere"
    assert shown([tree]) == {
        "run_1/rank_0": None, "run_2/rank_0": None, "loop": nowhere, "round": nowhere, "round_back": nowhere,
        "dead": nowhere, "out": out.format(other), "rank_7": out.format(other / "rank_7"),
        "dotted": out.format(other / "deep"), "up": out.format(tree.parent), "cwd": out.format(other),
        "environ": out.format("/proc/self/environ"),
    }  # fmt: skip
    kinds = {found.shown: found.kind for found in walk_paths([tree]) if "link-out" in found.kind}
    files = {name for name, kind in kinds.items() if kind == "file-link-out"}
    assert files == {"rank_7", "environ"} and set(kinds) - files == {"out", "dotted", "up", "cwd"}


def test_a_path_that_is_a_link_itself_is_followed(tree: Path) -> None:
    for given in (tree / "out", tree / "dotted" / "..", tree.parent / "alias" / "other"):
        assert set(shown([given])) == {"rank_7", "deep/rank_8"}
    assert shown([tree / "rank_7"]) == {"rank_7": None}


def test_links_into_another_given_directory_count_no_file_twice(tree: Path) -> None:
    both = shown([tree, tree.parent / "other"])
    read = [name for name, problem in both.items() if problem is None]
    other = tree.parent / "other"
    assert read == [f"{tree}/run_1/rank_0", f"{tree}/run_2/rank_0", f"{other}/deep/rank_8", f"{other}/rank_7"]


def test_links_lead_anywhere_if_asked_for(tree: Path) -> None:
    for name in ("up", "cwd", "dotted"):
        (tree / name).unlink()
    found = walk_paths([tree], follow_links=True)
    assert {one.shown for one in found if one.problem is None} >= {"out/rank_7", "out/deep/rank_8", "environ"}
    assert not any("link-out" in one.kind for one in found)


def moved_away(found: FoundPath, secret: Path) -> None:
    """Puts a link in the place of a file."""
    path = Path(found.path)
    path.unlink()
    path.symlink_to(secret)


def directory_moved_away(found: FoundPath, secret: Path) -> None:
    """Puts a link in the place of the directory of a file."""
    above = Path(found.path).parent
    above.rename(above.with_name("before"))
    above.symlink_to(secret.parent)


@pytest.mark.parametrize("swap", [moved_away, directory_moved_away])
def test_a_link_that_took_the_place_of_a_file_is_not_read(swap: Callable[[FoundPath, Path], None], tree: Path) -> None:
    secret = tree.parent / "secret" / "rank_0"
    secret.parent.mkdir()
    secret.write_text("[rank0]: RuntimeError: of somebody else\n")
    (found,) = [one for one in walk_paths([tree]) if one.shown == "run_1/rank_0"]
    swap(found, secret)
    for contents in (
        read_file(found.path, found.size, given=True, within=found.within),
        follow_log(found.path, 0, "", True, True, found.within),
    ):
        assert [(c.kind, c.problem, c.decoded) for c in contents] == [
            ("file-link-out", f"a link out, to {secret}: not followed", None)
        ]
    assert [c.kind for c in read_file(found.path, found.size, given=True)] == ["log"], "without a bound it is read"
