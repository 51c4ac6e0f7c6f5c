"""Look and behaviour of the screen, set once at the start from options and environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, get_args

from rankscope.text.given_input import GivenInput

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.schema import Dataset

FULL_FRAMES = "RANKSCOPE_FULL_FRAMES"
"""Environment variable that makes the driver send whole frames, for terminals that lose track."""
ThemeName = Literal["dark", "light", "contrast", "ansi"]
"""Themes: bright on dark, dark on light, black and white with strong hues, and the terminal's own colours."""
THEME = "RANKSCOPE_THEME"
"""Environment variable with the theme that a user wants."""
Palette = Literal["none", "8", "16", "256", "true"]
"""Number of colours of the terminal; "none" leaves only letters, bold and reverse."""


class Look(NamedTuple):
    """A theme on a terminal."""

    theme: ThemeName
    palette: Palette


class ThemeChoice:
    """The theme on the screen: the one option that changes while the app runs."""

    def __init__(self, name: ThemeName = "dark") -> None:
        self.name: ThemeName = name


class ProgressLike(Protocol):
    """The progress of loading."""

    @property
    def done(self) -> int:
        """Finished steps (files)."""
        ...

    @property
    def total(self) -> int:
        """All steps; 0 while the number is not known."""
        ...

    @property
    def what(self) -> str:
        """The present step in a word or two: "reading dumps"."""
        ...


@dataclass(frozen=True)
class Progress:
    """The progress of loading, for loaders without a type of their own."""

    done: int
    total: int
    what: str = "reading"


Load: TypeAlias = "Callable[[Callable[[ProgressLike], None]], tuple[Dataset, Analysis]]"
"""Reads and analyses everything, and reports its progress; runs in a thread."""


class Pipes(Protocol):
    """Asks a running job for dumps."""

    def ranks(self) -> list[int]:
        """Ranks that can be asked."""
        ...

    def ask(self) -> str:
        """Asks all of them; returns a text about the result."""
        ...


Export: TypeAlias = "Callable[[Dataset, Analysis, Path], Path]"
"""Writes the findings below a directory and returns the new file; overwrites nothing."""


@dataclass(frozen=True)
class ViewOptions:
    """Options of the screen from the command line and the environment."""

    ascii_only: bool = False
    palette: Palette = "256"
    theme: ThemeChoice = field(default_factory=ThemeChoice, compare=False)
    path_map: tuple[tuple[str, str], ...] = ()
    """Prefixes of source paths in the job, and their places on this machine."""
    mouse: bool = True
    slow_link: bool = False
    """Over SSH: fewer frames a second."""
    export_dir: Path = field(default_factory=Path)
    """Where exports and copies are written."""
    exports: Mapping[str, Export] = field(default_factory=dict)
    """What writes the report, by the name of its form: "Markdown", "HTML", "JSON"."""
    export_traces: Export | None = None
    """Writes the traces of all ranks as one; None disables the key."""
    export_repro: Export | None = None
    """Writes the script that replays the job; ValueError if there is nothing to replay. None disables the key."""
    step: Callable[[], str] | None = None
    """Lets each rank of a replay begin its next operation, and tells the outcome; None if no replay is shown."""
    changed_cells: bool = True
    """Send only the cells that changed to the terminal."""
    pipes: Pipes | None = None
    """Pipes that ask the job for dumps."""
    given: GivenInput = field(default_factory=GivenInput)
    """The input in the user's words, for commands that are shown or copied."""
    view: str = ""
    """Name of the view to open at the start; "" for the lanes."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The user's own keys, by the id of their action; several with commas between them."""
    bell: bool = True
    """Whether to ring when a watched job freezes."""
    editor_environment: Mapping[str, str] | None = None
    """The environment of the user's editor; None stands for the environment of this process."""

    @property
    def look(self) -> Look:
        """The present theme on this terminal."""
        return Look(self.theme.name, self.palette)


def palette_of(environ: Mapping[str, str]) -> Palette:
    """The palette for a terminal, from NO_COLOR, TERM, COLORTERM and SSH_CONNECTION.

    Over SSH COLORTERM is rarely forwarded, and 256 indices are a third of the bytes of true colour.
    """
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term in ("", "dumb", "unknown") or term.startswith("vt"):
        return "none"
    if "SSH_CONNECTION" not in environ and environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "true"
    if "256" in term or environ.get("COLORTERM"):
        return "256"
    return "16" if term.startswith(("xterm", "screen", "tmux", "rxvt")) else "8"


def theme_of(environ: Mapping[str, str]) -> ThemeName:
    """The theme that the environment asks for; a name that is none of them counts as no wish."""
    wish = environ.get(THEME, "").lower()
    return next((name for name in get_args(ThemeName) if name == wish), "dark")


def unicode_of(environ: Mapping[str, str]) -> bool:
    """Whether the locale can show more than ASCII."""
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    return "utf-8" in locale.lower() or "utf8" in locale.lower()


def from_environment(
    environ: Mapping[str, str],
    *,
    ascii_only: bool = False,
    palette: Palette | None = None,
    theme: ThemeName | None = None,
    mouse: bool | None = None,
    path_map: tuple[tuple[str, str], ...] = (),
    export_dir: Path | None = None,
    exports: Mapping[str, Export] | None = None,
    export_traces: Export | None = None,
    changed_cells: bool = True,
    bell: bool = True,
    pipes: Pipes | None = None,
    given: GivenInput | None = None,
    view: str = "",
    keys: Mapping[str, str] | None = None,
) -> ViewOptions:
    """The options for a terminal: given options win over the environment."""
    remote = bool(environ.get("SSH_CONNECTION"))
    return ViewOptions(
        ascii_only=ascii_only or not unicode_of(environ),
        palette=palette or palette_of(environ),
        theme=ThemeChoice(theme or theme_of(environ)),
        path_map=path_map,
        mouse=not remote if mouse is None else mouse,
        slow_link=remote,
        export_dir=export_dir or Path.cwd(),
        exports=exports or {},
        export_traces=export_traces,
        changed_cells=changed_cells and not environ.get(FULL_FRAMES),
        bell=bell,
        pipes=pipes,
        given=given or GivenInput(),
        view=view,
        keys=keys or {},
    )
