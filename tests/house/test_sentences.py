"""Sentences only tell: no code asks what one of them says."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.sources import modules

SENTENCES = frozenset({
    "summary", "title", "verdict", "explanation", "sentence", "experiment", "cause", "headline", "answer", "shown", "reason",  # noqa: E501
    "why", "detail", "power", "effect", "note", "problem",
})  # fmt: skip
"""Attributes that hold a sentence of our own."""
ASKED = frozenset(
    {"startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count", "partition", "replace"}
)
"""Methods that ask or change what a text says."""


def is_sentence(node: ast.expr) -> bool:
    """Whether an expression is such an attribute."""
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def has_words(node: ast.expr) -> bool:
    """Whether a constant, or one of a tuple or an f-string, has words with a blank: it is a part of a sentence."""
    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any(" " in text and any(map(str.isalpha, text)) for text in texts)


def asked(tree: ast.AST) -> Iterator[int]:
    """Lines that ask what a sentence says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKED:
            if is_sentence(node.func.value) and any(map(has_words, node.args)):
                yield node.lineno
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(is_sentence, sides)) and any(has_words(side) for side in sides if not is_sentence(side)):
                yield node.lineno


def test_no_code_asks_what_a_sentence_says() -> None:
    assert {name: lines for name, tree in modules().items() if (lines := [*asked(tree)])} == {}


@pytest.mark.parametrize(
    "code",
    [
        "part.summary.startswith('not compared')", "'rankscope repro' in cause.experiment",
        "cause.cause.startswith(f'{name} differs')", "run.verdict == 'no failure found'",
        "part.summary.removeprefix('not compared: ')", "found.replace('A and B', x) or one.headline.replace('A and B', x)",  # noqa: E501
    ],
)  # fmt: skip
def test_a_question_to_a_sentence_is_found(code: str) -> None:
    assert [*asked(ast.parse(code))] == [1]


def test_names_and_states_may_be_asked() -> None:
    code = "part.state is PartState.EQUAL or one.name.startswith('version:') or run.verdict == other.verdict or 'x y' in z.text"  # noqa: E501
    assert [*asked(ast.parse(code))] == []
