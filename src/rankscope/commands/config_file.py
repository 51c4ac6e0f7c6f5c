"""The user's configuration of the screen: `config.toml` in the user's configuration directory."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import click
from platformdirs import user_config_path

from rankscope.tui.options import Palette, ThemeName

_COMMENTS = {
    "theme": f"Colours of the screen: {', '.join(get_args(ThemeName))}.",
    "palette": f"Number of colours of the terminal: {', '.join(get_args(Palette))} (default: what the terminal says).",
    "ascii": "Draw with ASCII only, also where the locale can show more: true or false.",
    "mouse": "Use the mouse: true or false (default: true, except over SSH).",
    "keys": 'Keys of actions, as `next_finding = "n,right_square_bracket"`.',
}
"""The settings, in their order in the file."""
_DEFAULTS = {"theme": '"dark"', "palette": '"256"', "ascii": "false", "mouse": "true"}
_LARGEST = 1 << 20


@dataclass(frozen=True)
class ScreenConfig:
    """Settings of the file; None and no keys where it says nothing."""

    theme: ThemeName | None = None
    palette: Palette | None = None
    ascii: bool | None = None
    mouse: bool | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    """The keys of each action, with commas between them, by the name of the action."""


def config_path() -> Path:
    """The place of the file."""
    return user_config_path("rankscope") / "config.toml"


def screen_config() -> ScreenConfig:
    """The user's settings, none if there is no file; ClickException that names file and setting for a wrong one."""
    path = config_path()
    try:
        with path.open("rb") as stream:
            told = tomllib.loads(stream.read(_LARGEST).decode())
    except (FileNotFoundError, NotADirectoryError):
        return ScreenConfig()
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    for name, value in told.items():
        problem = _problem(name, value)
        if problem:
            raise click.ClickException(f"{path}: {name}: {problem}")
    return ScreenConfig(**told)


def _problem(name: str, value: Any) -> str:
    """The fault of a setting; "" without one."""
    if name in ("theme", "palette"):
        known = get_args(ThemeName if name == "theme" else Palette)
        return "" if value in known else f"{value!r} is none of {', '.join(known)}"
    if name in ("ascii", "mouse"):
        return "" if isinstance(value, bool) else f"{value!r} is neither true nor false"
    if name == "keys":
        right = isinstance(value, dict) and all(isinstance(keys, str) for keys in value.values())
        return "" if right else "a table of actions and their keys is needed, each key a text"
    return f"no such setting; there are {', '.join(_COMMENTS)}"


def run() -> int:
    """Prints the configuration as a file: each setting behind its comment, commented out where it is not set."""
    click.echo("\n".join(_lines(screen_config())))
    return 0


def _lines(config: ScreenConfig) -> Iterator[str]:
    path = config_path()
    yield f"# {path}{'' if path.exists() else ' (not there yet)'}"
    for name, comment in _COMMENTS.items():
        yield ""
        yield f"# {comment}"
        if name == "keys":
            yield "[keys]" if config.keys else "# [keys]"
            from rankscope.tui.actions import ACTIONS

            unset = (action for action in ACTIONS if action.id not in config.keys)
            yield from (f"# {action.id} = {_toml(','.join(action.keys))}  # {action.help}" for action in unset)
            yield from (f"{_toml(action)} = {_toml(keys)}" for action, keys in config.keys.items())
            continue
        value = getattr(config, name)
        yield f"# {name} = {_DEFAULTS[name]}" if value is None else f"{name} = {_toml(value)}"


def _toml(value: str | bool) -> str:
    """A value of TOML: strings of JSON are strings of TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value)
