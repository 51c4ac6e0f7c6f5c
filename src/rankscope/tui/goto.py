"""Reads what is typed after `:`: a rank, a sequence number, a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

_RANK = re.compile(r"(?:r|rank)?\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_SEQ = re.compile(r"(?:#|s|seq)\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_STEP = re.compile(r"(?:@|step)\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)
_SPAN = re.compile(r"([+-])\s*(\d{1,18}(?:\.\d+)?)\s*(ns|us|ms|s|min|m|h)?", re.IGNORECASE | re.ASCII)
_UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "m": 60e9, "h": 3600e9}

HINT = "12 rank   #1121 sequence number   @40 step   14:02:11 or -3s time"
"""What can be typed, for the prompt."""


@dataclass(frozen=True)
class Target:
    """Where to go; only one of these is set."""

    rank: int | None = None
    seq: int | None = None
    step: int | None = None
    time_ns: int | None = None
    span_ns: int | None = None
    """Relative to where the cursor is."""


def parse(text: str, day_ns: int, zone: tzinfo | None = None) -> Target:
    """The target of `text`. A time of day is taken on the day of `day_ns`, in `zone` (None: the local one).

    ValueError says what can be typed.
    """
    text = text.strip()
    if match := _RANK.fullmatch(text):
        return Target(rank=int(match[1]))
    if match := _SEQ.fullmatch(text):
        return Target(seq=int(match[1]))
    if match := _STEP.fullmatch(text):
        return Target(step=int(match[1]))
    if match := _CLOCK.fullmatch(text):
        return Target(time_ns=_clock(match, day_ns, zone))
    if match := _SPAN.fullmatch(text):
        size = float(match[2]) * _UNITS[(match[3] or "s").lower()]
        return Target(span_ns=round(size if match[1] == "+" else -size))
    raise ValueError(f"type {HINT}")


def _clock(match: re.Match[str], day_ns: int, zone: tzinfo | None) -> int:
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"no time of day: {match[0]}")
    try:
        moment = datetime.fromtimestamp(day_ns // 1_000_000_000, zone)
    except (OverflowError, OSError) as error:
        raise ValueError("the times of this run are no dates") from error
    wanted = moment.replace(hour=hour, minute=minute, second=second, microsecond=0)
    # A run may cross midnight: take the day on which the time is nearest.
    nearest = min(
        (wanted + timedelta(days=shift) for shift in (-1, 0, 1)), key=lambda t: abs((t - moment).total_seconds())
    )
    return round(nearest.timestamp()) * 1_000_000_000 + int((match[4] or "").ljust(9, "0"))
