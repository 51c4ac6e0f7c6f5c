"""The plain words a regular expression cannot match without."""

from __future__ import annotations

import re

SHORTEST = 4
_ESCAPES = "dDwWsSbBtnr"
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])|(?P<open>\((?:\?(?::|P?<\w+>))?)|(?P<close>\))"
    r"|(?P<either>\|)|(?P<some>\+\??)|(?P<repeat>[*?]\??|\{\d+(?:,\d*)?\}\??)|(?P<any>[.^$])|(?P<plain>.)",
    re.DOTALL,
)


def required(pattern: str) -> tuple[str, ...]:
    """One word for each alternative of a pattern: a text that holds none of them cannot match.

    Only what stands outside of brackets counts. Raises ValueError if an alternative has none of `SHORTEST` characters.
    """
    best = [""]
    run, depth = "", 0
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup, token[0]
        _refuse(kind, text, pattern[token.end() : token.end() + 1])
        char = text if kind == "plain" else text[1] if kind == "escape" and not text[1].isalnum() else ""
        if depth == 0 and char and not _optional(pattern, token.end()):
            run += char
            best[-1] = max(best[-1], run, key=len)
        else:
            run = ""
        depth += (kind == "open") - (kind == "close")
        if kind == "either" and depth == 0:
            best.append("")
    short = [word for word in best if len(word) < SHORTEST]
    if short:
        raise ValueError(f"every alternative needs {SHORTEST} plain characters in a row outside of brackets")
    return tuple(dict.fromkeys(best))


def _refuse(kind: str | None, text: str, following: str) -> None:
    """Raises ValueError for what would need a full parser to be told from plain characters."""
    if kind == "open" and text == "(" and following == "?":
        raise ValueError("flags and look-around are not supported: write [Ee]rror for either case")
    if kind == "escape" and text[1] not in _ESCAPES and (text[1].isalnum() or text[1] in "<>"):
        raise ValueError(f"escape {text} is not supported")
    if kind == "plain" and text == "{":
        raise ValueError("write \\{ for a brace")
    if kind == "set" and re.search(r"(?<!\\)\[(?!:)", text[1:]):
        raise ValueError("a set within a set is not supported")


def _optional(pattern: str, at: int) -> bool:
    """Whether what ends at `at` may be left out or repeats."""
    return pattern[at : at + 1] in ("*", "?", "{")
