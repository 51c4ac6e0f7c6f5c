"""The script that replays a job: the runner of `capture.replay`, with the schedule of the job written into it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files

from rankscope.analysis.model import Analysis
from rankscope.analysis.replay.fitting import Fit
from rankscope.analysis.replay.schedule import Key, Schedule, Step
from rankscope.analysis.replay.simulator import fits
from rankscope.analysis.signatures import ROOTED_OPS
from rankscope.report.replay_sizes import ReplaySizes, small_sizes, type_name
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import plural, rank_ranges

_BEGIN, _END = "# job: begin\n", "# job: end\n"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]")
_LONGEST = 110
"""Characters of a line of the header."""


def repro_script(
    dataset: Dataset,
    analysis: Analysis,
    fit: Fit,
    schedule: Schedule,
    change: str = "",
    sizes: ReplaySizes | None = None,
) -> str:
    """The text of the script for a schedule: that of the fit, or a smaller one; `change` tells how it differs.

    Its tensors are small without `sizes`.
    """
    sizes = sizes or small_sizes(schedule)
    source = files("rankscope.capture").joinpath("replay.py").read_text("utf-8")
    head, rest = source.split(_BEGIN, 1)
    _, runner = rest.split(_END, 1)
    doc, imports = head.split('"""\n', 1)
    about = "\n".join(_comment(line) for line in _about(analysis, fit, schedule, change, sizes))
    job = "\n".join(_job(dataset, fit, schedule, sizes))
    return f'{about}\n{doc}"""\n{imports}{_BEGIN}{job}\n{_END}{runner}'


def _comment(line: str) -> str:
    return f"# {plain(line, _LONGEST)}".rstrip()


def _about(analysis: Analysis, fit: Fit, schedule: Schedule, change: str, sizes: ReplaySizes) -> Iterator[str]:
    """Where the script comes from, what to expect, and how to run it."""
    count = len(schedule.steps)
    agreement = f"without a change, {fit.agreement}" if change else fit.agreement
    yield f"rankscope repro: {hide(analysis.verdict)}"
    whole = len(fit.schedule.steps)
    yield f"{plural(count, 'rank')} of {whole:,}: {rank_ranges(schedule.steps)}; simulated, {agreement}"
    if change:
        yield f"changed: {change}"
    if fit.setting.holds & set(schedule.steps):
        yield f"played as stopped: ranks {rank_ranges(fit.setting.holds & set(schedule.steps))}"
    if schedule.silent:
        yield f"without {schedule.noun}, put in from what peers completed: ranks {rank_ranges(schedule.silent)}"
    yield from map(hide, (*schedule.remarks, *sizes.remarks))
    yield f"run it: python repro.py    or: torchrun --nproc-per-node {count} repro.py    or with BACKEND=nccl"


def _job(dataset: Dataset, fit: Fit, schedule: Schedule, sizes: ReplaySizes) -> Iterator[str]:
    yield f"RANKS: list[int] = {sorted(schedule.steps)}"
    yield "GROUPS: dict[str, tuple[str, list[int]]] = {"
    for group in sorted(schedule.groups):
        yield f"    {json.dumps(f'g{group}')}: ({json.dumps(_name(dataset, group))}, {list(schedule.groups[group])}),"
    yield "}"
    yield 'SCHEDULE = """'
    yield from _schedule_lines(fit, schedule, sizes)
    yield '"""'
    yield f"SERIAL = {fit.setting.order == 'serial'}"


def _name(dataset: Dataset, group: int) -> str:
    known = dataset.group_list[group]
    return hide(plain(known.description or known.name, 60))


def _schedule_lines(fit: Fit, schedule: Schedule, sizes: ReplaySizes) -> Iterator[str]:
    """The operations of all ranks; ranks with the same ones share them."""
    apart = _apart(fit, schedule)
    same: dict[tuple[str, ...], list[int]] = {}
    for rank in sorted(schedule.steps):
        lines = tuple(_rank_lines(fit, schedule, rank, sizes, apart))
        same.setdefault(lines, []).append(rank)
    for lines, ranks in same.items():
        yield f"ranks {' '.join(map(str, ranks))}"
        yield from lines


def _rank_lines(fit: Fit, schedule: Schedule, rank: int, sizes: ReplaySizes, apart: set[Key]) -> Iterator[str]:
    steps = schedule.steps[rank]
    head = fit.outcome.head(fit.schedule, rank)
    held = rank in fit.setting.holds
    waited, before = False, -1
    for step in steps:
        marks = []
        if not waited and head is not None and step.key == head.key:
            waited = True
            marks = ["waits", *(["stop"] if held or step.key in fit.setting.frozen else [])]
        marks += ["apart"] if step.key in apart else []
        together = "+ " if step.batch >= 0 and step.batch == before else "  "
        before = step.batch
        number = f"{step.key[1]}>{step.key[2]}:{step.key[3]}" if step.is_p2p else f"#{step.key[1]}"
        name = _UNSAFE.sub("", step.op)[:40] or "unknown"
        what = f"{name:<16} {sizes.of(step):>4} {type_name(step):<9}"
        yield f"  {together}g{step.group:<3} {number:<10} {what} {' '.join(marks)}".rstrip()


def _apart(fit: Fit, schedule: Schedule) -> set[Key]:
    """Operations that gloo does not wait in as NCCL does.

    Members agree on the name, but not on size or type: gloo fails. Or nobody ends a broadcast or the like: over gloo
    its root goes on.
    """
    found: dict[Key, list[Step]] = {}
    for steps in schedule.steps.values():
        for step in steps:
            found.setdefault(step.key, []).append(step)
    heads = (fit.outcome.head(fit.schedule, rank) for rank in schedule.steps)
    rooted = {head.key for head in heads if head is not None and head.op in ROOTED_OPS}
    return rooted | {key for key, steps in found.items() if not fits(steps) and len({step.op for step in steps}) == 1}
