"""Two processes that wrote into one file: the profiler of each rank was given the same name.

Both write from their own place in the file on, so that pieces of one stand between pieces of the other, or twice. A
trace is always of one process: a second one among its operators gives such a file away.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from rankscope.parsers.columnar import NULL
from rankscope.parsers.torch_profiler import names
from rankscope.parsers.torch_profiler.model import CALL_NUMBERS, TraceContent

_OWN = frozenset({"cpu_op", "python_function"})
MOST_SHOWN = 4
FEWEST = 2


def settle(content: TraceContent) -> str | None:
    """Drops what stands twice in a whole trace, counts its processes, and says what is wrong; None if nothing is."""
    repeated = _drop_repeated(content) if content.lost or _called_twice(content) else 0
    pids = _processes(content)
    content.writers = max(1, len(pids))
    if len(pids) > 1:
        shown = ", ".join(map(str, pids[:MOST_SHOWN])) + (", ..." if len(pids) > MOST_SHOWN else "")
        return f"interleaved: {len(pids)} processes wrote into it ({shown}), and whose an operation is cannot be told"
    if repeated:
        return f"interleaved: two writers in one file, {repeated} events stood in it twice"
    return None


def _processes(content: TraceContent) -> list[int]:
    """The processes that ran operators, the busiest first."""
    own = [i for i, lane in enumerate(content.lanes) if names.today(lane.category, "") in _OWN and lane.pid is not None]
    counts = np.bincount(content.code("lane"), minlength=len(content.lanes))
    spans: Counter[int] = Counter()
    for i in own:
        spans[content.lanes[i].pid or 0] += int(counts[i])
    return [pid for pid, _ in spans.most_common()]


def _called_twice(content: TraceContent) -> bool:
    """Whether an operation of the host stands in it twice: its external id and time are its own."""
    span, external = (content.call_numbers[CALL_NUMBERS.index(name)] for name in ("span", "external"))
    own = np.stack([external, content.column("start_ns")[span]])[:, external != NULL]
    ordered = own[:, np.lexsort(own)]
    return bool((ordered[:, 1:] == ordered[:, :-1]).all(axis=0).any())


def _drop_repeated(content: TraceContent) -> int:
    """Drops events that are the same in everything; returns how many."""
    columns = [*content.numbers, *content.codes]
    order = np.lexsort(columns)
    same = np.zeros(content.rows, np.bool_)
    if content.rows > 1:
        same[order[1:]] = np.logical_and.reduce([column[order[1:]] == column[order[:-1]] for column in columns])
    # what begins in the same microsecond may be alike; calls of the runtime have numbers of their own
    if (same & (content.column("correlation") != NULL)).sum() < FEWEST:
        return 0
    place = np.cumsum(~same) - 1
    kept = _kept(content, same)
    content.numbers, content.codes = content.numbers[:, ~same], content.codes[:, ~same]
    content.call_numbers, content.call_codes = content.call_numbers[:, kept], content.call_codes[:, kept]
    content.call_numbers[CALL_NUMBERS.index("span")] = place[content.call_numbers[CALL_NUMBERS.index("span")]]
    return int(same.sum())


def _kept(content: TraceContent, same: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    spans = content.call_numbers[CALL_NUMBERS.index("span")]
    kept: npt.NDArray[np.bool_] = ~same[spans] if len(spans) else np.empty(0, np.bool_)
    return kept
