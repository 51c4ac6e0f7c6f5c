"""Words for processes: by rank, or by host and process where the log tells no rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.analysis.logs.lines import Line
from rankscope.analysis.model import Culprit
from rankscope.analysis.wording import ranks_text

SHOWN = 4
HOST = 24
NOBODY = "a process"


def culprits_of(lines: Sequence[Line], place: Callable[[int], Culprit]) -> tuple[Culprit, ...]:
    """Each process once, ranks first; `place` says where a rank runs."""
    ranks = sorted({line.rank for line in lines if line.rank is not None})
    known = [_placed(place(rank), next(line for line in lines if line.rank == rank)) for rank in ranks]
    unknown = {line.who: line for line in lines if line.rank is None}
    return (*known, *(Culprit(None, line.host, line.pid, _device(line)) for line in unknown.values()))


def who_text(lines: Sequence[Line]) -> str:
    """ "rank 3", "ranks 3,5", "process 4711 on node07 (GPU 3)", "a process"."""
    ranks = sorted({line.rank for line in lines if line.rank is not None})
    rest = list({line.who: _process(line) for line in lines if line.rank is None}.values())
    named = [name for name in rest if name != NOBODY]
    named = sorted(named) if all(name.startswith("[Rank ") for name in named) else named
    rest = named if named or ranks else rest[:1]
    more = [f"{len(rest) - SHOWN} more"] if len(rest) > SHOWN else []
    parts = [*([ranks_text(ranks)] if ranks else []), *rest[:SHOWN], *more]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _placed(culprit: Culprit, line: Line) -> Culprit:
    return Culprit(culprit.rank, culprit.host or line.host, line.pid, culprit.device or _device(line))


def _device(line: Line) -> str | None:
    return None if line.device is None else f"GPU {line.device}"


def _process(line: Line) -> str:
    label = str(line.values.get("label") or "").strip(" :")
    local = line.values.get("local_rank")
    beside = f" (local rank {local})" if local is not None else f" ({line.in_group})" if line.in_group else ""
    told = line.in_group or (f"the process of local rank {local}" if beside else NOBODY)
    name = f"process {line.pid}{beside}" if line.pid is not None else f"the process behind {label}" if label else told
    short = line.host if line.host is None or len(line.host) <= HOST else f"{line.host[: HOST - 1]}…"
    host = f" on {short}" if short else ""
    return f"{name}{host}" + (f" (GPU {line.device})" if line.device is not None else "")
