"""Trigger pipes: found, written to, and never waited for."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.triggers import pipes
from rankscope.triggers.pipes import TriggerPipe, ask_pipes, find_pipes


def test_pipes_are_found_by_their_names_and_told_from_what_is_none(tmp_path: Path) -> None:
    for name in ("trigger_10.pipe", "trigger_2.pipe", "other.pipe", "trigger_3"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "trigger_4.pipe").write_text("a file")
    (tmp_path / "trigger_5.pipe").symlink_to(tmp_path / "trigger_2.pipe")
    (tmp_path / "below").mkdir()
    os.mkfifo(tmp_path / "below" / "trigger_6.pipe")
    found = find_pipes([tmp_path, tmp_path / "absent"])
    assert [(pipe.rank, pipe.path.name) for pipe in found] == [(2, "trigger_2.pipe"), (10, "trigger_10.pipe")]


def test_a_rank_that_reads_its_pipe_is_asked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trigger_3.pipe")
    reader = os.open(tmp_path / "trigger_3.pipe", os.O_RDONLY | os.O_NONBLOCK)
    (asked,) = ask_pipes(find_pipes([tmp_path]))
    assert (asked.pipe.rank, asked.problem) == (3, None)
    assert os.read(reader, 8) == b"1"
    os.close(reader)


def test_a_pipe_that_nobody_reads_is_said_to_be_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trigger_3.pipe")
    assert [asked.problem for asked in ask_pipes(find_pipes([tmp_path]))] == ["nobody reads it: the process has ended"]


def test_a_pipe_that_is_full_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trigger_3.pipe")
    reader = os.open(tmp_path / "trigger_3.pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "trigger_3.pipe", os.O_WRONLY | os.O_NONBLOCK)
    full = False
    while not full:
        try:
            os.write(writer, bytes(4096))
        except BlockingIOError:
            full = True
    assert [asked.problem for asked in ask_pipes(find_pipes([tmp_path]))] == [
        "it is full: the process does not read it"
    ]
    os.close(reader)
    os.close(writer)


def test_what_is_no_pipe_any_more_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "trigger_3.pipe"
    path.write_text("dump")
    link = tmp_path / "trigger_4.pipe"
    link.symlink_to(path)
    problems = [
        asked.problem
        for asked in ask_pipes([TriggerPipe(path, 3), TriggerPipe(link, 4), TriggerPipe(tmp_path / "absent", 5)])
    ]
    assert problems == ["not a pipe", "Too many levels of symbolic links", "No such file or directory"]
    assert path.read_text() == "dump"


def test_names_are_matched_to_their_end() -> None:
    assert pipes._NAME.search("trigger_3.pipe.bak") is None
