"""Sentences that rankscope shows are plain English: subject, verb, object."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

import pytest
from click import Command, Group
from click.testing import CliRunner

from rankscope.cli import rankscope
from tests.house.sources import ROOT, walked

RIDDLES = {
    "a sentence that begins with its object": r"(?:^|[.;:] )(?:What|Of|Whose|That)\b(?![^.]*\?)",
    "a sentence about whoever does something": r"(?:^|[.;:] )Who\b(?![^.]*\?)",
    "a comparison without its other half": r"\bso (?:many|much|often|long|few)\b",
    "a verb without its object": r"\b(?:tells?|says) nothing\b|\bnothing (?:in \w+ \w+ )?(?:tells|says)\b",
    "a verb at the end": r"\b(?:who|whom|what|why|which)\b[^.;:]*, (?:these|the) \w+ do(?:es)? not (?:tell|say|show)\b",
    "a passive without its actor": r"\bcan(?:not| ?'t) be told\b|\bis not told\b",
    "a default in words of its own": r"\bWithout it:",
    "a word that nobody says": r"\b(?:anew|nonsense|in consequence|all the same|for whom|is there already)\b",
    "a phrase that has a shorter one": r"\bcould hold it up|\bare held up\b|but only harm|"
    r"at the same place by dependency|gives up waiting is a victim|\bcannot prove a standstill|\bBroken as well\b|"
    r"\bit leaves them out",
    "a plural of one": r"\b1 (?:files|ranks|groups|lines|lanes|dumps)\b",
}
"""Forbidden patterns in text for users, by what is wrong with it."""


def texts(nodes: Collection[ast.AST]) -> Iterator[tuple[int, str]]:
    """Lines and texts of string literals with a space in them, without docstrings; fields of f-strings as `{}`."""
    left_out = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    left_out |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def riddles(text: str) -> list[str]:
    """Names of the forbidden patterns in a text."""
    return [name for name, pattern in RIDDLES.items() if " " in text.strip() and re.search(pattern, text)]


def test_text_of_the_package_is_plain() -> None:
    found = [
        f"{name}:{line}: {text[:100]} ({', '.join(wrong)})"
        for name, nodes in walked().items()
        for line, text in texts(nodes)
        if (wrong := riddles(text))
    ]
    assert found == []


def test_meanings_in_tables_are_plain() -> None:
    rows = [
        (path.name, row.split("\t")[-1]) for path in ROOT.rglob("*.tsv") for row in path.read_text("utf-8").splitlines()
    ]
    assert rows
    assert [f"{name}: {text}" for name, text in rows if not text.startswith("#") and riddles(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "What it did in between is not in the dump.",
        "{} gave up. Whose lines these are is a guess.",
        "Of the lines, two are lost.",
        "Who gives up waiting is a victim: find the rank that did not come.",
        "Look so often.",
        "file times tell nothing",
        "{} ended; why, these logs do not tell",
        "which came first cannot be told",
        "Seconds. Without it: 60.",
        "12 groups wait in consequence",
        "no dump among 1 files",
    ],
)
def test_a_riddle_is_found(text: str) -> None:
    source = tuple(ast.walk(ast.parse(f"say({text!r})")))
    assert [riddles(found) != [] for _, found in texts(source)] == [True]


def test_plain_text_docstrings_and_questions_pass() -> None:
    tree = ast.parse('"""What a module is."""\nsay("Who sent that signal? The scheduler.", f"{x} waits so far")')
    source = tuple(ast.walk(tree))
    assert [found for _, found in texts(source) if riddles(found)] == []
    assert len(list(texts(source))) == 2


def commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all commands, from the program on."""
    yield path
    for name, sub in command.commands.items() if isinstance(command, Group) else ():
        yield from commands(sub, (*path, name))


@pytest.mark.parametrize("path", list(commands(rankscope)), ids=lambda path: " ".join(("rankscope", *path)))
def test_help_gives_defaults_in_one_form(path: tuple[str, ...]) -> None:
    text = " ".join(CliRunner().invoke(rankscope, [*path, "--help"]).output.split())
    assert "Options:" in text and "Without it" not in text
    assert re.findall(r"\((?!default: )[^()]*\bdefault\b[^()]*\)", text, re.IGNORECASE) == []
