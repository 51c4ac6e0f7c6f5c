"""The script that replays a job: the runner of `capture.replay`, with the schedule of the job written into it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

from rankscope.analysis.model import Analysis
from rankscope.analysis.signatures import ROOTED_OPS
from rankscope.features.replay.parting_notes import parting_notes
from rankscope.features.replay.replay_sizes import ReplaySizes, small_sizes, type_name
from rankscope.features.replay.schedule import Key, Schedule, Step
from rankscope.features.replay.schedule_fit import PLAIN, Fit, ReplayConditions
from rankscope.features.replay.simulator import first_pending, fits
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import plural, rank_ranges

_RECORD, _BEGIN, _END = "# record: begin\n", "# job: begin\n", "# job: end\n"
_PLAYER = "class Player:"
"""The place of the record in the script: behind the constants, before the code that uses it."""
_QUOTES = re.compile(r"[\\\"']")
_LEGEND = re.compile(r'^SCHEDULE = ""\n(""".*?""")$', re.MULTILINE | re.DOTALL)
"""The text on the lines of a schedule."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]")
_LONGEST = 110
"""Characters of a line of the header."""


@dataclass(frozen=True)
class ReplayJob:
    """All that the runner is told of a job: the values of its `job` block, which has their meaning."""

    ranks: tuple[int, ...]
    groups: Mapping[str, tuple[str, list[int]]]
    schedule: str
    serial: bool
    silent: tuple[int, ...]
    starts: bool
    conditions: ReplayConditions = PLAIN

    def lines(self) -> Iterator[str]:
        """The text of the block."""
        yield f"RANKS: list[int] = {list(self.ranks)}"
        yield "GROUPS = {"
        for key, (name, members) in self.groups.items():
            yield f"    {json.dumps(key)}: ({json.dumps(name)}, {members}),"
        yield "}"
        yield f'SCHEDULE = """\n{self.schedule}\n"""'
        yield _LEGEND.findall(_source("replay.py"))[0]
        yield f"SERIAL = {self.serial}"
        yield f"SILENT: list[int] = {list(self.silent)}"
        yield f"STARTS = {self.starts}"
        delays = [
            (one.rank, f"g{one.key[0]}" if one.key else "", key_number(one.key), one.seconds)
            for one in self.conditions.delays
        ]
        yield f"SETTINGS: dict[str, str] = {json.dumps(dict(self.conditions.settings))}"
        yield f"DELAYS: list[tuple[int, str, str, float]] = {delays}"
        yield f"TIMEOUT_S = {float(self.conditions.timeout or 0)}"


def key_number(key: Key) -> str:
    """The number of an operation in a schedule: `#12`, or `4>5:2`; empty without one."""
    return f"{key[1]}>{key[2]}:{key[3]}" if len(key) == 4 else f"#{key[1]}" if key else ""


def replay_job(
    dataset: Dataset,
    fit: Fit,
    schedule: Schedule,
    sizes: ReplaySizes | None = None,
    conditions: ReplayConditions = PLAIN,
) -> ReplayJob:
    """The job of a schedule: that of the fit, or a smaller one; with small tensors, without `sizes`."""
    sizes = sizes or small_sizes(schedule)
    groups = {f"g{key}": (_name(dataset, key), list(members)) for key, members in sorted(schedule.groups.items())}
    return ReplayJob(
        tuple(sorted(schedule.steps)),
        groups,
        "\n".join(_schedule_lines(fit, schedule, sizes)),
        fit.setting.order == "serial",
        tuple(sorted(schedule.silent)),
        bool(dataset.ops["started_ns"].is_not_null().any()),
        conditions,
    )


def repro_script(
    dataset: Dataset,
    analysis: Analysis,
    fit: Fit,
    schedule: Schedule,
    change: str = "",
    sizes: ReplaySizes | None = None,
    conditions: ReplayConditions = PLAIN,
) -> str:
    """The text of the script for a schedule: that of the fit, or a smaller one; `change` tells how it differs.

    Its tensors are small without `sizes`.
    """
    set_so = (f"run so: {text}" for text in conditions.sentences(dataset))
    remarks = (*schedule.remarks, *(sizes.remarks if sizes else ()), *set_so)
    head, rest = _source("replay.py").split(_RECORD, 1)
    _, rest = rest.split(_BEGIN, 1)
    _, runner = rest.split(_END, 1)
    _, record = _source("replay_record.py").split(_RECORD, 1)
    runner = runner.replace(_PLAYER, f"{record}\n\n{_PLAYER}", 1)
    doc, imports = head.split('"""\n', 1)
    about = "\n".join(
        f"# {plain(line, _LONGEST)}".rstrip() for line in _about(analysis, fit, schedule, change, remarks)
    )
    job = "\n".join(replay_job(dataset, fit, schedule, sizes, conditions).lines())
    return f'{about}\n{doc}"""\n{imports}{_BEGIN}{job}\n{_END}{runner}'


def _source(name: str) -> str:
    return files("rankscope.capture").joinpath(name).read_text("utf-8")


def _about(analysis: Analysis, fit: Fit, schedule: Schedule, change: str, remarks: Iterable[str]) -> Iterator[str]:
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
    yield from map(hide, remarks)
    if any(fit.outcome.pending.values()):
        yield "where ranks part: the notes behind # in SCHEDULE"
    yield f"run it: python repro.py    or: torchrun --nproc-per-node {count} repro.py    or with BACKEND=nccl"


def _name(dataset: Dataset, group: int) -> str:
    known = dataset.group_list[group]
    return plain(hide(known.description or known.name), 60)


def _schedule_lines(fit: Fit, schedule: Schedule, sizes: ReplaySizes) -> Iterator[str]:
    """The operations of all ranks; ranks with the same ones share them."""
    schedule = _typed(schedule)
    unlike, notes = _unlike(fit, schedule), parting_notes(fit, schedule)
    same: dict[tuple[str, ...], list[int]] = {}
    for rank in sorted(schedule.steps):
        lines = tuple(_rank_lines(fit, schedule, rank, sizes, unlike, notes.get(rank, "")))
        same.setdefault(lines, []).append(rank)
    for lines, ranks in same.items():
        yield f"ranks {' '.join(map(str, ranks))}"
        yield from lines


def _typed(schedule: Schedule) -> Schedule:
    """The schedule in which an unknown type is that of most other members: another one would be a difference."""
    types: dict[Key, Counter[str]] = {}
    for step in (step for steps_of_rank in schedule.steps.values() for step in steps_of_rank if step.dtype is not None):
        types.setdefault(step.key, Counter())[step.dtype or ""] += 1
    usual = {key: counts.most_common(1)[0][0] for key, counts in types.items()}
    steps = {
        rank: tuple(replace(step, dtype=usual.get(step.key)) if step.dtype is None else step for step in steps_of_rank)
        for rank, steps_of_rank in schedule.steps.items()
    }
    return replace(schedule, steps=steps)


def _rank_lines(
    fit: Fit, schedule: Schedule, rank: int, sizes: ReplaySizes, unlike: Mapping[Key, str], note: str
) -> Iterator[str]:
    steps = schedule.steps[rank]
    head = fit.outcome.head(fit.schedule, rank)
    stops = _stops(fit, schedule, rank)
    waited, before = False, None
    for step in steps:
        marks: list[str] = []
        if not waited and head is not None and step.key == head.key:
            waited = True
            marks = ["waits"]
        marks += stops.get(step.key, [])
        marks += [unlike[step.key]] if step.key in unlike else []
        marks += ["open"] if step.is_p2p and step.pending else []
        same = before is not None and step.together is not None and step.together == before.together
        if step.batch >= 0:
            marks += ["with" if before is not None and same and step.batch == before.batch else "batch"]
        before = step
        number = key_number(step.key)
        size = "/".join(",".join(map(str, side)) for side in step.splits) if step.splits else sizes.of(step)
        name = _UNSAFE.sub("", step.op)[:40] or "unknown"
        what = f"{name:<16} {size:>4} {type_name(step):<9}"
        yield f"  {'+ ' if same else '  '}g{step.group:<3} {number:<10} {what} {' '.join(marks)}".rstrip()
        if "waits" in marks and note:
            yield _note(note)
    if head is None and note:
        yield _note(note)


def _note(text: str) -> str:
    """A line that the script passes over; names of operations in it are from files."""
    return f"    # {plain(_QUOTES.sub('', text), _LONGEST)}"


def _stops(fit: Fit, schedule: Schedule, rank: int) -> dict[Key, list[str]]:
    """How a rank is stopped that does not only wait for others, by the operations where."""
    steps = schedule.steps[rank]
    found = {step.key: ["never"] for step in steps if step.key in fit.setting.frozen}
    first = first_pending(steps) if rank in fit.setting.holds else None
    if first is not None:
        until = next((step.key for step in steps[first:] if step.key not in schedule.over), None)
        found[steps[first].key] = ["deaf"]
        if until is not None:
            found[until] = ["stop"]
    return found


def _unlike(fit: Fit, schedule: Schedule) -> dict[Key, str]:
    """Operations whose members do not agree: `unlike` where all have come out of them all the same.

    `apart` where somebody waits: gloo fails of sizes and types where NCCL waits, and it makes an all_reduce of other
    operations, which may then meet. Over gloo a root comes out of a broadcast or the like alone: where nobody else
    does, these are apart, too.
    """
    members_at: dict[Key, dict[int, Step]] = {}
    for rank, issued in schedule.steps.items():
        for step in issued:
            members_at.setdefault(step.key, {})[rank] = step
    each = {key: [came[rank] for rank in schedule.members[key] if rank in came] for key, came in members_at.items()}
    odd = {key: steps for key, steps in each.items() if not fits(steps)}
    ended = {key: "unlike" for key, steps in odd.items() if not any(step.pending for step in steps)}
    heads = (fit.outcome.head(fit.schedule, rank) for rank in schedule.steps)
    rooted = {head.key for head in heads if head is not None and head.op in ROOTED_OPS}
    return dict.fromkeys(odd.keys() | rooted, "apart") | ended
