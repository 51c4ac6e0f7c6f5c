"""Man pages of all commands, written from their help by click-man: `make man`, and at each build of the wheel."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from rankscope import __version__  # noqa: E402 - the sources need not be installed
from rankscope.cli import rankscope  # noqa: E402
from rankscope.command_line.group import DefaultGroup  # noqa: E402

AS_IT_STANDS = "\b\n"
"""Mark of click for a paragraph whose lines stay as they are."""


def pages() -> Iterator[tuple[str, str]]:
    """The pages by file name: one of the program, and one of each command that is not hidden."""
    yield from _pages(click.Context(rankscope, info_name="rankscope"))


def _pages(context: click.Context) -> Iterator[tuple[str, str]]:
    """The page of a command, and those of its commands."""
    command, parameters = context.command, context.command.params
    synopsis = " ".join(command.collect_usage_pieces(context))
    if isinstance(command, DefaultGroup):
        parameters = [*command.commands[command.default].params, *parameters]
        synopsis = "[OPTIONS] PATH..."
    yield f"{context.command_path.replace(' ', '-')}.1", _page(context, parameters, synopsis)
    for name, below in sorted(getattr(command, "commands", {}).items()):
        if not below.hidden:
            yield from _pages(click.Context(below, info_name=name, parent=context))


def _page(context: click.Context, parameters: list[click.Parameter], synopsis: str) -> str:
    # it comes with the extra `release`
    from click_man.man import ManPage

    text = cleandoc(context.command.help or "")
    page = ManPage(context.command_path)
    page.version, page.synopsis, page.short_help = __version__, synopsis, text.partition("\n")[0].rstrip(".")
    page.description = "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", text)))
    records = (one.get_help_record(context) for one in parameters if isinstance(one, click.Option))
    page.options = [(names, _escaped(words)) for names, words in filter(None, records)]
    commands = getattr(context.command, "commands", {})
    page.commands = [(name, one.get_short_help_str(80)) for name, one in commands.items() if not one.hidden]
    return f"{page}\n"


def _paragraph(text: str) -> str:
    """A paragraph for roff: filled, or with its own lines where the help has the mark for that."""
    if not text.startswith(AS_IT_STANDS):
        return _escaped(text)
    return f".nf\n{_escaped(text.removeprefix(AS_IT_STANDS))}\n.fi"


def _escaped(text: str) -> str:
    """Text whose backslashes, hyphens and first characters of lines mean nothing to roff."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", plain, flags=re.MULTILINE)


def write(folder: Path) -> list[Path]:
    """Writes all pages into a folder, and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, text in pages():
        (folder / name).write_text(text, "utf-8")
        found.append(folder / name)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes all pages, and prints their paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for path in write(parser.parse_args(arguments).folder):
        print(path)


if __name__ == "__main__":
    main()
