"""`rankscope doctor`: whether rankscope runs well here, and what would be better."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import orjson

from rankscope import __version__
from rankscope.commands.machine_checks import MachineCheck, all_checks
from rankscope.commands.machine_facts import gathered
from rankscope.commands.output import encoded, write_report
from rankscope.text.escaping import plain

if TYPE_CHECKING:
    from rankscope.report.redact import Redaction

MARKS = {"good": "ok", "advice": "!", "bad": "X"}
_SUMMARY = (("bad", "broken (X)"), ("advice", "with advice (!)"), ("good", "good"))
_NAME_WIDTH = 26
_WIDTH = 79


def run(path: str, *, form: Literal["text", "json"], ascii_only: bool, redaction: Redaction | None = None) -> int:
    """Writes the checks; returns 1 if something does not work. ClickException if there is no such path."""
    try:
        Path(path).stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise click.ClickException(f"{path}: {reason}") from error
    checks = all_checks(gathered(Path(path)))
    if redaction is not None:
        checks = [
            replace(check, value=redaction.text(check.value), better=redaction.text(check.better)) for check in checks
        ]
    content = as_json(checks) if form == "json" else encoded("\n".join(as_lines(checks)) + "\n", ascii_only)
    write_report(content, None, False)
    return int(any(check.state == "bad" for check in checks))


def as_lines(checks: Sequence[MachineCheck]) -> Iterator[str]:
    """The checks by topic; below one that is not good stands what would be better."""
    for topic, own in groupby(checks, key=lambda check: check.topic):
        yield topic
        for check in own:
            yield from _wrapped(f"  {MARKS[check.state]:<3}{check.name:<{_NAME_WIDTH}}", plain(check.value))
            if check.better:
                yield from _wrapped("     better: ", plain(check.better))
    counts = [f"{sum(check.state == state for check in checks)} {word}" for state, word in _SUMMARY]
    yield ""
    yield f"{len(checks)} checks: {', '.join(counts)}"


def _wrapped(head: str, text: str) -> list[str]:
    """A text behind its head, further lines below its first word; words stay whole, because they may be pasted."""
    wrapper = textwrap.TextWrapper(
        _WIDTH, head, " " * len(head), break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
    return wrapper.wrap(text) or [head.rstrip()]


def as_json(checks: Sequence[MachineCheck]) -> bytes:
    """The checks as a JSON object: `rankscope`, `works`, and `checks` with topic, name, value, state and better."""
    rows = [
        {"topic": check.topic, "name": check.name, "value": plain(check.value), "state": check.state,
         "better": plain(check.better) or None}
        for check in checks
    ]  # fmt: skip
    works = all(check.state != "bad" for check in checks)
    return orjson.dumps({"rankscope": __version__, "works": works, "checks": rows}, option=orjson.OPT_INDENT_2) + b"\n"
