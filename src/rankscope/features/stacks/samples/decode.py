"""Decoder of profiles of stacks: folded lines, of py-spy and of austin, JSON of speedscope, and flame graphs.

    process 26528:"python train.py";thread (26528): MainThread;<module> (train.py:12);step (train.py:10) 51
    P26528;T0:26528;/ws/train.py:<module>:12;/ws/train.py:step:10 10073

With `--subprocesses` a line begins with all processes above its own. austin tells microseconds, and its interval in a
line `# interval: 10000`.
Source: py-spy's src/flamegraph.rs and src/speedscope.rs, files that py-spy 0.4.2 made, and speedscope's schema.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson

from rankscope.features.stacks.samples.flame_graphs import flame_stacks, looks_like_flame_graph
from rankscope.features.stacks.samples.model import StackCount, StackProfile
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.safe_values import TEXT_LIMIT, safe_integer, safe_text
from rankscope.text.secrets import clip
from rankscope.text.wording import plural

MOST_STACKS = 100_000
MOST_PROCESSES = 1 << 16
MOST_FRAMES = 256
"""Frames kept of one stack, the innermost."""
_FRAME = rb"[^;\n]{1,300} \([^;\n]{1,300}:\d{1,7}\)"
_FOLDED = re.compile(
    rb'(?:process \d{1,10}:"[^\n]{0,2000}?";){0,8}(?:thread \([^;\n]{1,40}\)(?:: [^;\n]{0,200})?;)?'
    + _FRAME + rb"(?:;[^;\n]{1,600}){0,600} \d{1,12}\r?(?:\n|\Z)"
)  # fmt: skip
_AUSTIN = re.compile(
    rb"(?:# [a-z_]{1,40}: [^\n]{0,500}\r?\n|\r?\n){0,40}"
    rb"P\d{1,10};T(?:\d{1,4}:)?[0-9a-fA-Fx]{1,18}(?:;[^\n]{0,8000})?(?: \d{1,15}\r?(?:\n|\Z)|\Z)"
)
_SPEEDSCOPE = re.compile(
    rb'\s*\{(?s:.{0,300}?)(?:https://www\.speedscope\.app/file-format-schema|"exporter"\s*:\s*"(?:speedscope|py-spy))'
)
_LINE = re.compile(r"(?P<stack>.+) (?P<count>\d{1,12})\s*$")
_PROCESS = re.compile(r'process (\d{1,10}):"(.*?)";')
_THREAD = re.compile(r"thread \((?:0x)?(\w{1,20})\)(?:: (.*))?$")
_PLACED = re.compile(r"(?P<name>.+) \((?P<file>.{1,1000}?)(?::(?P<line>\d{1,9}))?\)$")
_PROFILE = re.compile(r'(?:Process (?P<pid>\d{1,10}) )?(?:Thread (?P<thread>\w{1,20}))?(?: "(?P<name>.{0,200})")?')
Key = tuple[str, int | None, int | None, tuple[int, ...]]


def looks_like_profile(head: bytes) -> bool:
    """Whether the first bytes begin folded stacks with places, or a profile of speedscope."""
    return any(form.match(head) is not None for form in (_FOLDED, _SPEEDSCOPE, _AUSTIN)) or looks_like_flame_graph(head)


def decode_profile(data: bytes) -> StackProfile:
    """The stacks in `data`. Raises NotThisKindError."""
    collector = _StackCollector()
    if data.lstrip()[:1] == b"{":
        _read_speedscope(data, collector)
    elif looks_like_flame_graph(data):
        for stack, count in flame_stacks(data):
            _add_folded(";".join(stack), count, collector)
    elif _AUSTIN.match(data) is not None:
        _read_austin(data.decode("utf-8", "replace").splitlines(), collector)
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
        self.commands: dict[int, str] = {}
        self.lost = self.over = 0
        self._folded: dict[str, int] = {}

    def folded(self, part: str) -> int:
        """The number of a frame as "step (train.py:10)"."""
        if part not in self._folded:
            placed = _PLACED.match(part)
            told = (part, "", 0) if placed is None else (placed["name"], placed["file"], int(placed["line"] or 0))
            self._folded[part] = self.frame(*told)
        return self._folded[part]

    def command(self, pid: int | None, command: str) -> None:
        """Notes the command line, or the title, of a process."""
        if pid is not None and command and len(self.commands) < MOST_PROCESSES:
            self.commands.setdefault(pid, command)

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
        problem = "; ".join(filter(None, notes)) or None
        return StackProfile(list(self.frames), stacks, problem, self.commands)


def _text(value: str) -> str:
    return clip(value, TEXT_LIMIT).encode("utf-8", "replace").decode("utf-8")


def _read_folded(lines: Iterable[str], collector: _StackCollector) -> None:
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            collector.lost += bool(line.strip())
        else:
            _add_folded(found["stack"], int(found["count"]), collector)


def _add_folded(stack: str, count: int, collector: _StackCollector) -> None:
    """Adds a stack of py-spy; of the processes in front of it, the last is its own."""
    pid, command, thread, name = None, "", None, ""
    while (process := _PROCESS.match(stack)) is not None:
        pid, command, stack = int(process[1]), _text(process[2]), stack[process.end() :]
    parts = stack.split(";")
    if (told := _THREAD.match(parts[0])) is not None:
        thread, name, parts = _thread_id(told[1]), _text(told[2] or ""), parts[1:]
    own = tuple(collector.folded(part) for part in reversed(parts[-MOST_FRAMES:]) if part)
    if own:
        collector.command(pid, command)
        collector.add((name, thread, pid, own), count)


_AUSTIN_INTERVAL = re.compile(r"# interval: (\d{1,12})\s*$")
_AUSTIN_LINE = re.compile(r"P(\d{1,10});T(?:\d{1,4}:)?([0-9a-fA-Fx]{1,18})((?:;.*)?) (\d{1,15})(?:,\d+,-?\d+)?\s*$")
_AUSTIN_FRAME = re.compile(r"(.{1,1000}):([^:]{1,600}):(\d{1,9})$")


def _read_austin(lines: Iterable[str], collector: _StackCollector) -> None:
    interval, times = 100, Counter[Key]()
    for line in lines:
        if (told := _AUSTIN_INTERVAL.match(line)) is not None:
            interval = max(1, int(told[1]))
        elif (found := _AUSTIN_LINE.match(line)) is not None:
            parts = [_AUSTIN_FRAME.match(part) for part in found[3].split(";")[1:]]
            own = tuple(collector.frame(p[2], p[1], int(p[3])) for p in reversed(parts[-MOST_FRAMES:]) if p is not None)
            thread = _thread_id(found[2].removeprefix("0x"))
            if own:
                times["", thread, int(found[1]), own] += int(found[4])
        else:
            collector.lost += bool(line.strip()) and not line.startswith("#")
    for key, spent in times.items():
        collector.add(key, max(1, round(spent / interval)))


def _thread_id(text: str) -> int | None:
    try:
        return safe_integer(int(text, 16 if re.search("[a-fA-F]", text) else 10))
    except ValueError:
        return None


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
