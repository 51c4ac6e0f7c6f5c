"""Texts about a watched job in the lines of the screen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from rankscope.analysis.live_state import LiveState, State
from rankscope.analysis.model import Analysis, Status
from rankscope.text.wording import SECOND_NS, clock, duration, plural, rank_ranges
from rankscope.watching.update import FollowProgress, JobUpdate

MOST_RATES = 4
"""Most groups that the verdict names."""
OLD_NS = 15_000_000_000
"""Age of the last news from which the screen tells it, in ns."""
WIDE = 110
"""Columns of a wide screen."""
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class StateMoment:
    """Time and room for the text of a job's state."""

    now_ns: int
    """Now, on the monotonic clock."""
    lag_s: float
    """Seconds from the discovery of the update to its display."""
    room: int
    """Columns; the least important pieces are left out if there are too few."""
    wide: bool
    """Whether the screen has room for the time of a freeze beside its duration."""
    ascii_only: bool


def state_text(update: JobUpdate, reading: FollowProgress, held: JobUpdate | None, moment: StateMoment) -> str:
    """The state of the job and its age: "WATCHING . progressing 12.3/s . 400 ms lag".

    A paused screen shows the update `held`, while `update` is still the newest: "PAUSED . now HANG, FROZEN for 34 s".
    """
    live = update.live
    # while the files cannot be seen, the age of the last news has no meaning
    news_ns = moment.now_ns - live.news_at_ns if live.news_at_ns is not None and reading.away is None else None
    job = _awaited_text(live, moment.now_ns) or _job_text(update.analysis, live, news_ns, wide=moment.wide)
    other = held is not None and _kind(held) != _kind(update)
    pieces = ["WATCHING" if held is None else "PAUSED", f"now {job}" if other else job]
    if reading.away is not None:
        pieces.append("AWAY")
    lag = f"{_seconds(moment.lag_s)} lag" if moment.lag_s >= 0.05 and held is None else ""
    old = news_ns is not None and news_ns >= OLD_NS and not live.is_stopped
    news = f"news {_coarse(news_ns)} old" if news_ns is not None and old else ""
    polled = f"every {_seconds(reading.polled_s)}" if reading.polled_s is not None and reading.away is None else ""
    return _joined(pieces, [lag, news, polled], moment)


def _joined(pieces: Sequence[str], more: Sequence[str], moment: StateMoment) -> str:
    """The pieces in one line, and as many of `more` as fit; the first of these is the most important."""
    dot = " - " if moment.ascii_only else " \u00b7 "
    room, told = moment.room - len(dot.join(pieces)), []
    for piece in more:
        if piece and len(dot) + len(piece) <= room:
            room -= len(dot) + len(piece)
            told.append(piece)
    return dot.join([*pieces, *reversed(told)])


def _kind(update: JobUpdate) -> tuple[State, Status | None]:
    """The state of a job, and its status if that is bad."""
    return update.live.state, update.analysis.status if _is_bad(update.analysis) else None


def _is_bad(analysis: Analysis) -> bool:
    return analysis.status in ("hang", "mismatch", "failed", "slow")


def _job_text(analysis: Analysis, live: LiveState, news_ns: int | None, *, wide: bool) -> str:
    """The state in a few words; `news_ns` is the time since the last news, None if it has no meaning."""
    if live.state == "progressing":
        text = f"progressing {live.per_s:.3g}/s" if live.rates else "progressing"
    elif live.state == "frozen":
        text = _frozen_text(live, news_ns, wide=wide)
    elif live.state == "silent" and news_ns is not None:
        text = f"silent for {_whole(news_ns)}"
    elif live.state == "still" and live.still_ns is not None:
        text = f"still {duration(live.still_ns)}"
    else:
        text = live.state
    return f"{analysis.status.upper()}, {text}" if _is_bad(analysis) else text


def _awaited_text(live: LiveState, now_ns: int) -> str:
    """The dumps that are there and the time until the job is judged without the others; "" if none are awaited."""
    if not live.so_far or live.judged_at_ns is None:
        return live.so_far
    return f"{live.so_far}, verdict in {_whole(live.judged_at_ns - now_ns)}"


def _frozen_text(live: LiveState, news_ns: int | None, *, wide: bool) -> str:
    since = f"since {clock(live.since_ns, digits=0)}" if live.since_ns is not None else ""
    if news_ns is None:
        return f"FROZEN {since}".rstrip()
    lasts = f"FROZEN for {_whole(news_ns + (live.still_ns or 0))}"
    return f"{lasts}, {since}" if wide and since else lasts


def _whole(ns: int) -> str:
    """A duration in whole seconds, at least one: a counter."""
    return duration(max(ns // SECOND_NS, 1) * SECOND_NS)


def _seconds(seconds: float) -> str:
    return duration(round(seconds * SECOND_NS))


def _coarse(ns: int) -> str:
    """A duration in its largest unit."""
    return " ".join(_whole(ns).split()[:2])


def with_rates(analysis: Analysis, live: LiveState) -> Analysis:
    """The analysis of a moving job; its verdict tells the speeds of its groups, the fastest first."""
    if analysis.status != "progressing" or live.state != "progressing" or not live.rates:
        return analysis
    told = ", ".join(f"{rate.description or rate.group} {rate.per_s:.3g}/s" for rate in live.rates[:MOST_RATES])
    left = len(live.rates) - MOST_RATES
    more = f", and {plural(left, 'more group')}" if left > 0 else ""
    return replace(analysis, verdict=f"{analysis.verdict}: {told}{more}")


def following_line(following: bool, paused: bool, waiting: int, writing: int, changed: Collection[int]) -> Text:
    """The text before the keys: following or not, waiting updates, and ranks that changed since the last key."""
    line = Text(" ")
    if paused:
        text = f"PAUSED, {plural(waiting, 'update')} waiting" if waiting else "PAUSED"
        line.append(f" {text} ", "reverse").append(" ").append("space", "key").append(" go on  ", "dim")
    elif following:
        line.append(" FOLLOWING ", "reverse").append(" ").append("space", "key").append(" pause  ", "dim")
    else:
        line.append("F", "key").append(" follow  ", "dim").append("space", "key").append(" pause  ", "dim")
    if writing:
        line.append(f"{plural(writing, 'file')} being written  ", "dim")
    if changed:
        line.append(f"* changed: {rank_ranges(sorted(changed), 14)}  ", "dim")
    return line
