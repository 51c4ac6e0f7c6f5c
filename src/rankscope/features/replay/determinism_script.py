"""The script that repeats the reductions of a job: the runner of `capture.determinism` with the job written into it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files

from rankscope.features.replay.summation_order import MOST, OrderSettings, Reduction, Reductions
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import plural

_JOB, _JOB_END = "# job: begin\n", "# job: end\n"
_COMPARISON = "# comparison: begin\n"
_MAIN = "class Repetition("
"""The place behind the constants of the runner, before its code."""
_LONGEST = 118
"""Characters of a line of the header."""
_MOST_NAMES = 12
"""Settings that the header names."""


def determinism_script(dataset: Dataset, found: Reductions, settings: OrderSettings, times: int) -> str:
    """The text of the script."""
    _, comparison = _source("bit_comparison.py").split(_COMPARISON, 1)
    imports, rest = _source("determinism.py").split(_COMPARISON, 1)
    _, rest = rest.split(_JOB, 1)
    _, runner = rest.split(_JOB_END, 1)
    about = "".join(f"# {plain(line, _LONGEST)}".rstrip() + "\n" for line in _about(found, settings))
    job = "\n".join(_job(dataset, found, settings, times))
    runner = runner.replace(_MAIN, f"{comparison}\n\n{_MAIN}", 1)
    return f"{about}{imports}{_JOB}{job}\n{_JOB_END}{runner}"


def _source(name: str) -> str:
    return files("rankscope.capture").joinpath(name).read_text("utf-8")


def left_out(found: Reductions) -> str:
    """A sentence on reductions that the script does not repeat; "" if it repeats all."""
    parts = [f"{plural(found.fewer, 'smaller one')} beyond {MOST}"] if found.fewer else []
    parts += [f"{found.exact} of integers or other types, which add up exactly or are unknown"] if found.exact else []
    return f"not repeated: {' and '.join(parts)}" if parts else ""


def _about(found: Reductions, settings: OrderSettings) -> Iterator[str]:
    """Where the script comes from, and how to run it."""
    yield f"rankscope repro --determinism: {plural(len(found.chosen), 'distinct reduction')}, over {found.library}"
    if found.fewer or found.exact:
        yield left_out(found)
    if settings.left:
        more = f" and {len(settings.left) - _MOST_NAMES} more" if len(settings.left) > _MOST_NAMES else ""
        yield f"recorded and not taken over, set them yourself: {', '.join(settings.left[:_MOST_NAMES])}{more}"
    yield "run it: python determinism.py    or BACKEND=nccl python determinism.py    or with torchrun"


def _job(dataset: Dataset, reductions: Reductions, settings: OrderSettings, times: int) -> Iterator[str]:
    yield f"LIBRARY = {json.dumps(plain(reductions.library, 20))}"
    yield "REDUCTIONS: list[tuple[str, str, int, list[int], str, int]] = ["
    yield from (f"    {_reduction(dataset, reduction)}," for reduction in reductions.chosen)
    yield "]"
    yield "SETTINGS: dict[str, str] = {"
    yield from (f"    {json.dumps(name)}: {json.dumps(value)}," for name, value in settings.carried.items())
    yield "}"
    yield f"TIMES = {times}"


def _reduction(dataset: Dataset, one: Reduction) -> str:
    """The row of a reduction, as Python; names are JSON texts, which are Python's, too."""
    known = dataset.group_list[one.group]
    name = json.dumps(plain(hide(known.description or known.name), 40))
    return f'("{one.op}", "{one.dtype}", {one.elements}, {_ranks(one.members)}, {name}, {one.calls})'


def _ranks(members: Sequence[int]) -> str:
    """A list of ranks as Python, in short if they have equal distances."""
    step = members[1] - members[0]
    if len(members) > 8 and step > 0 and list(members) == list(range(members[0], members[-1] + 1, step)):
        return f"list(range({members[0]}, {members[-1] + 1}, {step}))"
    return str(list(members))
