"""`rankscope config` and the file that it prints: what it says reaches the screen, and what is wrong is named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rankscope.cli import run
from rankscope.commands.config_file import ScreenConfig, config_path, screen_config
from rankscope.commands.view import options_of_terminal

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the file, in an empty configuration directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("NO_COLOR", "RANKSCOPE_THEME"):
        monkeypatch.delenv(name, raising=False)
    config_path().parent.mkdir()
    return config_path()


def test_without_a_file_each_setting_stands_commented_out(config: Path, capsys: Captured) -> None:
    assert run(["config"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"# {config} (not there yet)\n")
    assert all(f"# {line}" in told for line in ('theme = "dark"', "mouse = true", "[keys]"))
    assert tomllib.loads(told) == {}


def test_what_is_set_is_printed_as_a_file_that_says_the_same(config: Path, capsys: Captured) -> None:
    config.write_text('theme = "light"\nascii = true\n[keys]\n"next finding" = "n,\\""\n')
    wanted = ScreenConfig(theme="light", ascii=True, keys={"next finding": 'n,"'})
    assert screen_config() == wanted
    assert run(["config"]) == 0
    config.write_text(capsys.readouterr().out)
    assert screen_config() == wanted


def test_the_screen_takes_it_unless_the_user_says_otherwise(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('theme = "light"\npalette = "16"\nascii = true\nmouse = false\n')
    options = options_of_terminal()
    assert (options.theme.name, options.palette, options.ascii_only, options.mouse) == ("light", "16", True, False)
    assert options_of_terminal(theme="contrast", palette="8", mouse=True).mouse
    assert options_of_terminal(theme="contrast", palette="8").look == ("contrast", "8")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("RANKSCOPE_THEME", "ansi")
    assert options_of_terminal().look == ("ansi", "none")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('theme = "pink"', "theme: 'pink' is none of dark, light"),
        ("mouse = 1", "mouse: 1 is neither true nor false"),
        ("keys = 3", "keys: a table of actions"),
        ('colour = "x"', "colour: no such setting; there are theme, palette"),
        ("theme =", "Invalid value"),
    ],
)
def test_a_wrong_file_is_named_with_the_setting(text: str, reason: str, config: Path, capsys: Captured) -> None:
    config.write_text(text)
    assert run(["config"]) == 2
    told = capsys.readouterr().err
    assert f"{config}: " in told and reason in told
