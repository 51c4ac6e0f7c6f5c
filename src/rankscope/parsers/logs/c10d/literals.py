"""The plain words a regular expression cannot match without."""

from __future__ import annotations

import re

SHORTEST = 4
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])|(?P<open>\((?:\?(?::|P?<\w+>))?)|(?P<close>\))"
    r"|(?P<either>\|)|(?P<some>\+\??)|(?P<repeat>[*?]\??|\{\d+(?:,\d*)?\}\??)|(?P<any>[.^$])|(?P<plain>.)",
    re.DOTALL,
)


def required(pattern: str) -> tuple[str, ...]:
    """One word for each alternative of a pattern: a text that holds none of them cannot match.

    Only what stands outside of brackets counts. Raises ValueError if an alternative has none of `SHORTEST` characters.
    """
    if re.search(r"(?<!\\)\(\?(?!:|P?<\w+>)", pattern):
        raise ValueError("flags and look-around are not supported: write [Ee]rror for either case")
    best = [""]
    run, depth = "", 0
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup, token[0]
        char = text if kind == "plain" else text[1] if kind == "escape" and not text[1].isalnum() else ""
        if depth == 0 and kind == "repeat":
            best[-1], run = max(best[-1], run[:-1], key=len), ""
        elif depth == 0 and char:
            run += char
            continue_run = max(best[-1], run, key=len)
            best[-1] = continue_run if not _optional(pattern, token.end()) else best[-1]
        else:
            run = ""
        depth += (kind == "open") - (kind == "close")
        if kind == "either" and depth == 0:
            best.append("")
    short = [word for word in best if len(word) < SHORTEST]
    if short:
        raise ValueError(f"every alternative needs {SHORTEST} plain characters in a row outside of brackets")
    return tuple(dict.fromkeys(best))


def _optional(pattern: str, at: int) -> bool:
    """Whether what ends at `at` may be left out or repeats."""
    return pattern[at : at + 1] in ("*", "?", "{")
