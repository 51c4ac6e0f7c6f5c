"""Decoder of profiles of stacks: folded lines, and JSON of speedscope.

    process 26528:"python train.py";thread (26528): MainThread;<module> (train.py:12);step (train.py:10) 51

Source: py-spy's src/flamegraph.rs and src/speedscope.rs, files that py-spy 0.4.2 made, and speedscope's schema.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson

from rankscope.features.stacks.samples.model import StackCount, StackProfile
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.safe_values import TEXT_LIMIT, safe_integer, safe_text
from rankscope.text.secrets import clip
from rankscope.text.wording import plural

MOST_STACKS = 100_000
MOST_FRAMES = 256
"""Frames kept of one stack, the innermost."""
_FRAME = rb"[^;\n]{1,300} \([^;\n]{1,300}:\d{1,7}\)"
_FOLDED = re.compile(
    rb'(?:process \d{1,10}:"[^\n]{0,2000}?";)?(?:thread \([^;\n]{1,40}\)(?:: [^;\n]{0,200})?;)?'
    + _FRAME + rb"(?:;[^;\n]{1,600}){0,600} \d{1,12}\r?(?:\n|\Z)"
)  # fmt: skip
_SPEEDSCOPE = re.compile(
    rb'\s*\{(?s:.{0,300}?)(?:https://www\.speedscope\.app/file-format-schema|"exporter"\s*:\s*"(?:speedscope|py-spy))'
)
_LINE = re.compile(r"(?P<stack>.+) (?P<count>\d{1,12})\s*$")
_PROCESS = re.compile(r'process (\d{1,10}):".*?";')
_THREAD = re.compile(r"thread \((?:0x)?(\w{1,20})\)(?:: (.*))?$")
_PLACED = re.compile(r"(?P<name>.+) \((?P<file>.{1,1000}?)(?::(?P<line>\d{1,9}))?\)$")
_PROFILE = re.compile(r'(?:Process (?P<pid>\d{1,10}) )?(?:Thread (?P<thread>\w{1,20}))?(?: "(?P<name>.{0,200})")?')
Key = tuple[str, int | None, int | None, tuple[int, ...]]


def looks_like_profile(head: bytes) -> bool:
    """Whether the first bytes begin folded stacks with places, or a profile of speedscope."""
    return _FOLDED.match(head) is not None or _SPEEDSCOPE.match(head) is not None


def decode_profile(data: bytes) -> StackProfile:
    """The stacks in `data`. Raises NotThisKindError."""
    collector = _StackCollector()
    if data.lstrip()[:1] == b"{":
        _read_speedscope(data, collector)
    else:
        _read_folded(data.decode("utf-8", "replace").splitlines(), collector)
    if not collector.counts:
        raise NotThisKindError("a profile without a stack")
    return collector.result()


class _StackCollector:
    """Collector of stacks: equal ones are added up."""

    def __init__(self) -> None:
        self.frames: dict[StackFrame, int] = {}
        self.counts: Counter[Key] = Counter()
        self.lost = self.over = 0

    def frame(self, name: str, file: str, line: int) -> int:
        """The number of a frame."""
        cut = StackFrame(_text(name), _text(file), max(0, line))
        return self.frames.setdefault(cut, len(self.frames))

    def add(self, key: Key, count: int) -> None:
        """Adds a stack that was seen `count` times."""
        if key not in self.counts and len(self.counts) >= MOST_STACKS:
            self.over += 1
        elif count > 0:
            self.counts[key] += min(count, 1 << 40)

    def result(self) -> StackProfile:
        """The profile, with notes on what was left out."""
        notes = [f"{plural(self.lost, 'line')} not read" if self.lost else ""]
        notes.append(f"only the first {MOST_STACKS:,} stacks kept" if self.over else "")
        stacks = [StackCount(*key, count) for key, count in self.counts.items()]
        return StackProfile(list(self.frames), stacks, "; ".join(filter(None, notes)) or None)


def _text(value: str) -> str:
    return clip(value, TEXT_LIMIT).encode("utf-8", "replace").decode("utf-8")


def _read_folded(lines: Iterable[str], collector: _StackCollector) -> None:
    known: dict[str, int] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            collector.lost += bool(line.strip())
            continue
        stack, pid, thread, name = found["stack"], None, None, ""
        if (process := _PROCESS.match(stack)) is not None:
            pid, stack = int(process[1]), stack[process.end() :]
        parts = stack.split(";")
        if (told := _THREAD.match(parts[0])) is not None:
            thread, name, parts = _thread_id(told[1]), _text(told[2] or ""), parts[1:]
        for part in parts:
            if part not in known:
                known[part] = _frame_of(part, collector)
        own = tuple(known[part] for part in reversed(parts[-MOST_FRAMES:]))
        if own:
            collector.add((name, thread, pid, own), int(found["count"]))


def _thread_id(text: str) -> int | None:
    try:
        return safe_integer(int(text, 16 if re.search("[a-fA-F]", text) else 10))
    except ValueError:
        return None


def _frame_of(part: str, collector: _StackCollector) -> int:
    placed = _PLACED.match(part)
    if placed is None:
        return collector.frame(part, "", 0)
    return collector.frame(placed["name"], placed["file"], int(placed["line"] or 0))


# Speedscope: frames once, and profiles of sampled stacks, outermost frame first.


def _read_speedscope(data: bytes, collector: _StackCollector) -> None:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise NotThisKindError("a speedscope profile that is cut off or damaged") from None
    shared = document.get("shared") if isinstance(document, dict) else None
    frames = shared.get("frames") if isinstance(shared, dict) else None
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(frames, list) or not isinstance(profiles, list):
        raise NotThisKindError("a speedscope profile without frames")
    numbers = [_shared_frame(frame, collector) for frame in frames]
    for profile in profiles:
        if not isinstance(profile, dict) or profile.get("type") != "sampled":
            collector.lost += 1
            continue
        _read_samples(profile, numbers, collector)


def _shared_frame(frame: Any, collector: _StackCollector) -> int:
    told = frame if isinstance(frame, dict) else {}
    line = safe_integer(told.get("line")) or 0
    return collector.frame(safe_text(told.get("name")) or "?", safe_text(told.get("file")) or "", line)


def _read_samples(profile: dict[str, Any], numbers: list[int], collector: _StackCollector) -> None:
    about = _PROFILE.match(safe_text(profile.get("name")) or "")
    pid = int(about["pid"]) if about is not None and about["pid"] else None
    thread = _thread_id(about["thread"]) if about is not None and about["thread"] else None
    name = (about["name"] or "") if about is not None else ""
    samples, weights = profile.get("samples"), profile.get("weights")
    if not isinstance(samples, list) or not isinstance(weights, list):
        collector.lost += 1
        return
    # without equal weights, a sample counts as often as the lightest one fits into it
    known = [w for w in weights if isinstance(w, int | float) and 0 < w < 1e15]
    unit = min(known, default=1)
    for stack, weight in zip(samples, weights, strict=False):
        own = stack[-MOST_FRAMES:] if isinstance(stack, list) else []
        if not own or not all(type(i) is int and 0 <= i < len(numbers) for i in own):
            collector.lost += bool(own)
            continue
        times = round(weight / unit) if isinstance(weight, int | float) and 0 < weight < 1e15 else 0
        collector.add((name, thread, pid, tuple(numbers[i] for i in reversed(own))), min(times, 1 << 40))
