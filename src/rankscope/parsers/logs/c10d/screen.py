"""Tells which lines hold any of many words, before anything slower looks at them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

FEW = 32
"""Texts for which an automaton over all words is not worth building."""


class Screen:
    """Finds any of its literals in texts."""

    def __init__(self, literals: Iterable[str]) -> None:
        words = sorted(set(literals), key=lambda word: (len(word), word))
        self.literals: list[str] = []
        for word in words:
            # who holds a shorter one is found by it
            if not any(shorter in word for shorter in self.literals):
                self.literals.append(word)

    def many(self, texts: Sequence[str]) -> list[bool]:
        """For each text whether it holds any."""
        if not self.literals:
            return [False] * len(texts)
        if len(texts) < FEW:
            return [any(literal in text for literal in self.literals) for text in texts]
        # an automaton over all words at once, which is dear to build and quick to run
        return pl.Series(texts, dtype=pl.String).str.contains_any(self.literals).to_list()
