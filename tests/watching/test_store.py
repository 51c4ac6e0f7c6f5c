"""Files that are told as gone, and then under another name or again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.watching.census import FileChanges
from rankscope.watching.file_store import GRACE_S, FileStore

ONE, OTHER = (FoundPath(name, name, problem="a socket: not opened", inode=7) for name in ("one", "other"))
"""Files that nobody has to read."""


@pytest.fixture
def store() -> Iterator[FileStore]:
    store = FileStore(1)
    store.note(FileChanges((ONE,)), 0.0)
    yield store
    store.close()


def test_a_file_is_gone_after_a_while_however_often_that_is_told(store: FileStore) -> None:
    store.note(FileChanges(gone=("one",)), 1.0)
    store.work(1.0 + GRACE_S / 2)
    assert set(store.entries) == {"one"}
    store.note(FileChanges(gone=("one",)), 1.0 + GRACE_S / 2)
    store.work(1.0 + GRACE_S)
    assert not store.entries


def test_what_was_told_as_gone_and_has_another_name_is_not(store: FileStore) -> None:
    store.note(FileChanges(gone=("one",)), 1.0)
    store.note(FileChanges(moved=(("one", OTHER),)), 1.1)
    store.work(1.0 + 2 * GRACE_S)
    assert set(store.entries) == {"other"}


def test_what_takes_the_name_of_one_that_is_gone_stays(store: FileStore) -> None:
    store.note(FileChanges((OTHER,)), 0.0)
    store.note(FileChanges(gone=("one",)), 1.0)
    store.note(FileChanges(moved=(("other", ONE),)), 1.1)
    store.work(1.0 + 2 * GRACE_S)
    assert set(store.entries) == {"one"}
