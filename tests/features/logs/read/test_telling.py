"""Files with the name of a log, in which no line is unmistakably one of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.parsers.files.reader import read_file

TELLING = {
    "an error in the middle of a line": "step 4: giving up: No route to host",
    "a shared memory segment": "(Runner pid=41) Error while creating shared memory segment /dev/shm/nccl-aB1 (size 77)",
    "an end": "rank 2 of 4\n[1,2] *** Process received signal ***\n[node-1:77] Signal: Bus error (7)",
    "the end of a traceback": '  File "train.py", line 4, in step\n    assert ok\nAssertionError: not finite',
}
SILENT = {
    "nothing": "loss 1.0\n" * 5,
    "what means nothing": "Warning: this feature is deprecated and goes away",
    "zeros": "\0" * 90,
}


def kind(path: Path, text: str) -> str:
    path.write_text(text + "\n")
    (content,) = read_file(str(path), path.stat().st_size)
    return content.kind


@pytest.mark.parametrize("name", TELLING)
def test_a_name_and_a_word_are_enough(tmp_path: Path, name: str) -> None:
    assert kind(tmp_path / "job.log", "some output\n" + TELLING[name]) == "log"
    assert kind(tmp_path / "notes.txt", "some output\n" + TELLING[name]) == "unknown"


@pytest.mark.parametrize("name", SILENT)
def test_a_name_alone_is_not(tmp_path: Path, name: str) -> None:
    assert kind(tmp_path / "job.log", SILENT[name]) == "unknown"
