"""Where the source of a frame lies, and what opens it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.schema import Frame
from rankscope.tui.detail.source_editor import Source, editor_command, locate

FRAME = Frame("forward", "/workspace/model/attention.py", 211)


def test_paths_are_mapped_by_the_longest_prefix() -> None:
    maps = [("/workspace", "/home/me/src"), ("/workspace/model/", "/models/"), ("/work", "/wrong")]
    assert locate(FRAME, maps).local == Path("/models/attention.py")
    assert locate(FRAME, maps[2:]).local == Path(FRAME.file)
    assert locate(Frame("f", "/workspace", 1), maps).local == Path("/home/me/src")


def test_an_empty_or_root_prefix_maps_everything_that_is_absolute() -> None:
    assert locate(FRAME, [("/", "/mnt/image")]).local == Path("/mnt/image/workspace/model/attention.py")


def test_a_source_that_is_not_here_says_where_it_should_be(tmp_path: Path) -> None:
    away = locate(FRAME)
    assert not away.exists
    assert away.missing.startswith("not here: /workspace/model/attention.py:211")
    assert "--path-map" in away.missing
    mapped = locate(FRAME, [("/workspace", str(tmp_path))])
    assert f"mapped to {tmp_path}/model/attention.py" in mapped.missing


def test_only_regular_files_exist(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.py").write_text("x = 1\n")
    assert Source("a.py", tmp_path / "a.py", 1).exists
    assert not Source("pipe", tmp_path / "pipe", 1).exists
    assert not Source("dir", tmp_path, 1).exists
    assert not Source("nul", Path("a\0b"), 1).exists


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({"EDITOR": "vim"}, ["vim", "+7", "/s/a.py"]),
        ({"EDITOR": "nano", "VISUAL": "emacs -nw"}, ["emacs", "-nw", "+7", "/s/a.py"]),
        ({"EDITOR": "/usr/bin/code --wait"}, ["/usr/bin/code", "--wait", "-g", "/s/a.py:7"]),
        ({"EDITOR": "hx"}, ["hx", "/s/a.py:7"]),
    ],
)
def test_editors_are_told_the_line_in_their_own_way(environ: dict[str, str], command: list[str]) -> None:
    assert editor_command(Source("a.py", Path("/s/a.py"), 7), environ) == command


def test_a_file_name_is_never_an_option_and_a_line_never_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    command = editor_command(Source("x", Path("-c!reboot"), -5), {"EDITOR": "vim"})
    assert command[1] == "+1"
    assert command[2].startswith("/")


def test_without_an_editor_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.tui.detail.source_editor.shutil.which", lambda _name: None)
    with pytest.raises(ValueError, match="EDITOR"):
        editor_command(Source("a", Path("/a"), 1), {})
    with pytest.raises(ValueError, match="quotation"):
        editor_command(Source("a", Path("/a"), 1), {"EDITOR": "vim '"})
