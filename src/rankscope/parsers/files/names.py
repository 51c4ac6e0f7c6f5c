"""What the name of a file promises to be in it."""

from __future__ import annotations

import re

_WORDS = "stdout|stderr|dmesg|nohup|syslog|console"
_LOG = re.compile(
    rf"(?:\.(?:log|out|err|{_WORDS})|\.[oe]\d{{1,12}}|(?:^|[._\-])(?:{_WORDS})(?:\.txt)?)(?:\.\d{{1,9}})?"
    r"(?:\.(?:gz|bz2|xz|zst))?$",
    re.IGNORECASE,
)
"""Endings of what programs print, also of schedulers (`train.o4711`), turned over (`.log.1`) and packed."""


def is_named(path: str) -> bool:
    """Whether a file has a name under which people keep what a program printed."""
    return _LOG.search(re.split(r"[/\\!]", path)[-1]) is not None
