"""Whether a file is a log of a job: by what stands in it, wherever in its beginning.

Anything may be printed before, and source code, notes and traces quote lines of logs: a head must stand where a
line begins, behind prefixes alone.
"""

from __future__ import annotations

import re
from typing import IO

from rankscope.parsers.logs import prefixes
from rankscope.parsers.logs.c10d.event_builder import MARK
from rankscope.parsers.logs.nccl import ras
from rankscope.parsers.logs.records import COLOUR, NCCL_HEAD, unwrapped

HEAD_BYTES = 1 << 16
"""Looked at in the beginning of a file, and at each sample."""
SAMPLES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Places where a large file is looked at too."""
_SIGNS = re.compile(
    rb"NCCL|RCCL|\[rank\d|ProcessGroup|torch[./]distributed|Traceback \(most|_perf\"|\[[IWEF]\d{3,4} |Job summary"
    rb"|\[[IWEF] |PyTorch version: |opCount|Communicators\.\.\.|\"event\"|srun: error"
    rb"|slurmstepd: |Error: |Exception: |Error\): |\(raylet|ray\.exceptions|\[launch\.py|died unexpectedly"
    rb"|died, exit code|  exitcode  : |Root Cause \(first"
    rb"|store based barrier|NVRM: |oom-kill|Killed process|what\(\): |terminate called|missing ranks|Watchdog timeout"
    rb"|hit an exception|RAS Monitor Mode|\bE[A-Z]\d{4}: |noticed that process|RankID:"
    rb"|most recent call (?:first|last)\):|Fatal Python error: |/handler/(?:dump_traceback|pyspy_dump)"
)
_STAMP = r"[IWEF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9} "
_LINES = re.compile(
    rf"{NCCL_HEAD}|(?:NCCL|RCCL) version\s*:? \d"
    rf"|\[(?:{_STAMP}|[IWEF] )(?:\d{{1,10}} )?[\w./\-]{{1,200}}\.(?:cpp|hpp|h|cu|py):\d{{1,6}}\]"
    rf"|{_STAMP}\d{{1,10}} [\w./\-]{{1,200}}\.(?:cpp|hpp|h|cu|py):\d{{1,6}}\]"
    r"|torch\.distributed\.\S{1,100}: \[(?:ERROR|WARNING|INFO)\]"
    r"|PyTorch version: \d\S{0,60}\s*$"
    r"|Traceback \(most recent call last\):\s*$|srun: error: |torch\.distributed\.\S{0,100}Error: "
    r"|\w{1,64}: opCount [0-9a-f]{1,16} sendbuff "
)
_ENDS = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}\w{0,60}(?:Error|Exception)(?:\(\w{1,60}\))?: .{0,300}?"
    r"(?:CUDA|NCCL|nccl|HCCL|gloo|[Rr]anks? \d|\[\d{1,6}\] is setting up|DataLoader worker|process group"
    r"|store based barrier|CollectiveFingerPrint|ray::|torch_npu|terminated with (?:signal|exit code))"
    r"|(?:ERROR|WARNING|INFO):torch\.distributed\.|\(raylet(?:, ip=\S{2,45})?\) |ray\.exceptions\.\w"
    r"|\[(?:INFO|WARNING|ERROR)\] \[launch\.py:\d{1,6}:|slurmstepd: error: |NVRM: (?:Xid|The NVIDIA GPU) "
    r"|E[IJ]\d{4}: |mpirun\S{0,20} noticed that process rank \d"
    r"|(?:Unhandled exception: \S{1,80} |\s{0,8})what\(\): "
    r"|(?:oom-kill:|Out of memory: |Memory cgroup out of memory: )|terminate called after throwing an instance of "
    r"|Worker (?:proc )?\S{1,80} (?:pid \d{1,10} )?died(?: unexpectedly|, exit code)|Watchdog timeout \(self\."
    r"|(?:Waiting|Timed out initializing process group) in store based barrier |\w{1,40} hit an exception: Traceback "
    r"| {2}exitcode {2}: -?\d{1,5} +\(pid: \d{1,10}\)|Root Cause \(first observed failure\):"
    r"|(?:(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16}(?: \[.{0,64}\])?|Stack) \(most recent call first\):\s*$"
    r"|Traceback for thread \d{1,10}(?: \(.{0,64}\))? \[.{0,100}\] \(most recent call last\):\s*$"
    r"|Fatal Python error: |=== Rank \d{1,7}: \S{0,1000}/handler/(?:dump_traceback|pyspy_dump)\S{0,1000} ===\s*$"
    r"|(?:Stalled ops:)?.{1,300}\[missing ranks: \d|One or more tensors were submitted to be reduced"
)
"""How launchers, schedulers, Ray and servers begin to tell of an end, and exceptions that name parts of such a job."""
_BARE = re.compile(
    r"(?:\[\d{1,4}\] )?NCCL WARN |(?:\[\d{1,4}\] )?\S{1,200}\.(?:cc|h|c|cu):\d{1,6} (?:\(\w{1,100}\) )?NCCL WARN "
)
_BAR = re.compile(r"\d(?:it|s|B|ex)/(?:it|s)\]")
"""The end of a bar of progress, behind which another may have gone on in the same line."""
_RANKED = re.compile(r"\[rank\d{1,7}\]:|\[rank=\d{1,7}\] \|\||\(PID:\d{1,10}, Device:-?\d{1,6}, RankID:")
_INSPECTOR = re.compile(r'\{.{0,2000}"(?:coll|p2p)_perf": ?\{')
_EVENT = re.compile(r'\{.{0,2000}"event": ?"[A-Z_]{3,40}".{0,2000}"peer": ?\{')
_RAS = re.compile(r"Job summary\s*$|Communicators\.\.\.|RAS Monitor Mode ")
_MARKDOWN = re.compile(rb"\s*#{1,6} \S(?s:.*)\n```")
_NEVER = (b"\x80", b"PK", b"\x7fELF", b"\x89PNG", b"%PDF")


def looks_like_log(text: bytes) -> bool:
    """Whether a line of a log stands in a piece of a file. Its first and last line may be cut."""
    if text.startswith(_NEVER) or _MARKDOWN.match(text) or text.count(b"\0") > len(text) // 16:
        return False
    if ras.looks_like_document(text):
        return True
    if not _SIGNS.search(text):
        return False
    return any(_is_line(line) for line in re.split(rb"[\r\n]", text) if _SIGNS.search(line))


def sampled(stream: IO[bytes], size: int) -> bool:
    """Whether a line of a log stands at any of some places in a large file, or at its end; the stream is moved."""
    # a job may print nothing but its losses until it fails
    for place in (*(int(size * share) for share in SAMPLES), max(0, size - HEAD_BYTES)):
        stream.seek(place)
        if looks_like_log(stream.read(HEAD_BYTES)):
            return True
    return False


def _is_line(line: bytes) -> bool:
    text = COLOUR.sub(b"", line[:4096]).decode("utf-8", "replace")
    if (inner := unwrapped(line)) is not None:
        text = COLOUR.sub(b"", inner[0]).decode("utf-8", "replace")
    front = prefixes.strip(text)
    if text.startswith(MARK, front.end):
        front, text = prefixes.Prefix(0, None, "", None), text[front.end + len(MARK) :].lstrip()
    patterns = (_LINES, _ENDS, _BARE, _INSPECTOR, _EVENT, _RAS)
    bar = _BAR.search(text)
    if bar is not None and _LINES.search(text, bar.end()):
        return True
    return bool(_RANKED.search(front.label)) or any(pattern.match(text, front.end) for pattern in patterns)
