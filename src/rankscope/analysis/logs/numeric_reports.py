"""`numeric-divergence` from logs: a framework found weights that differ, or ran a step again with another result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from rankscope.analysis.logs.log_lines import LogLine, ranks_of, read_lines
from rankscope.analysis.model import Culprit, Finding, Severity
from rankscope.kinds.event_kinds import NUMERIC_CHECKS
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

KIND = "numeric-divergence"
MOST_EVIDENCE = 6
LONGEST_RANKS = 40
_MEMORY = "Run the memory test and the stress test of that device before it gets another job."
_REPLAY = "Run the step again on other hardware, with deterministic kernels (--deterministic-mode)."


def numeric_reports(dataset: Dataset) -> list[Finding]:
    """A finding for the weights that differ, and one for each verdict on ranks whose step was run again."""
    lines = [line for line in read_lines(dataset) if line.kind in NUMERIC_CHECKS]
    hashes = [line for line in lines if line.values.get("check") == "weight-hash"]
    reruns: defaultdict[tuple[int | None, str], list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.values.get("check") == "rerun":
            reruns[line.rank, "" if line.rank is not None else str(line.who)].append(line)
    verdicts: defaultdict[RerunVerdict, list[list[LogLine]]] = defaultdict(list)
    for own in reruns.values():
        verdicts[_verdict(own)].append(own)
    if len(verdicts) > 1:
        # lines without a rank are of those that other lines name
        verdicts[VERDICTS[-1]] = [own for own in verdicts[VERDICTS[-1]] if own[0].rank is not None]
    found = [_rerun_finding(one, verdicts[one]) for one in VERDICTS if verdicts[one]]
    matches = [line for line in lines if line.kind == "weights-match"]
    return ([_weight_finding(dataset, hashes, matches)] if hashes else []) + found


def _weight_finding(dataset: Dataset, lines: Sequence[LogLine], matches: Sequence[LogLine]) -> Finding:
    """Weights of data-parallel replicas that differ from those of the first replica."""
    ranks = ranks_of(lines)
    names = list(dict.fromkeys(str(line.values.get("name")) for line in lines))
    wrong, members = _odd_replicas(dataset, ranks)
    last = max((int(line.values["iteration"]) for line in matches), default=None)
    more = f" and {plural(len(names) - 1, 'more parameter')}" if len(names) > 1 else ""
    who = ranks_text(wrong or ranks, LONGEST_RANKS)
    differs = "differ" if more else "differs"
    title = f"{names[0]}{more} on {who} {differs} from the other data-parallel replicas"
    if not wrong:
        title = f"{names[0]}{more} on {who} {differs} from the first data-parallel replica"
    told = f" The last check without a difference was after {plural(last, 'iteration')}." if last is not None else ""
    return Finding(
        kind=KIND, severity="critical", title=title, root_cause=True,
        explanation=f"Megatron compares SHA-1 hashes of weights with those of the first replica.{told}"
        + ("" if wrong else " Two replicas do not tell which of them is wrong, and the first one may be."),
        culprit_ranks=wrong, culprits=tuple(Culprit(rank) for rank in wrong), candidates=() if wrong else members,
        confidence="high" if wrong else "medium",
        confidence_reasons=("equal weights have equal hashes",),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]), about=tuple(sorted({*ranks, *members})),
        next_steps=(
            "Record gradients and parameters with rankscope.capture, to see which step first parts them.",
            "Run the memory test of the devices of these ranks.",
        ),
    )  # fmt: skip


def _odd_replicas(dataset: Dataset, ranks: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks that are wrong, by majority in their data-parallel groups, and all candidates; none are wrong if the
    groups are not known or have no majority."""
    groups = [
        tuple(members)
        for text, members in dataset.groups.select("description", "ranks").iter_rows()
        if "DATA_PARALLEL" in text.upper() and set(members) & set(ranks)
    ]
    groups = [min(own, key=len) for rank in ranks if (own := [one for one in groups if rank in one])]
    wrong: set[int] = set()
    everybody = set(ranks)
    for members in dict.fromkeys(groups):
        odd = {rank for rank in members if rank in ranks}
        everybody |= set(members)
        rest = set(members) - odd
        wrong |= odd if len(odd) < len(rest) else rest if len(rest) == 1 < len(odd) else set()
    known = {rank for members in groups for rank in members}
    return (tuple(sorted(wrong)) if set(ranks) <= known else ()), tuple(sorted(everybody))


class RerunVerdict(NamedTuple):
    """Meaning of the lines of a rank whose step was run again; the first of `VERDICTS` that fits."""

    outcomes: tuple[str, ...]
    severity: Severity
    what: str
    next_step: str


VERDICTS = (
    # the line of the second run names the device that gave the other result, not the wrong one
    RerunVerdict(("persistent", "elsewhere-other"), "critical",
                 "gave a wrong result again and again, which another device does not give", _MEMORY),
    RerunVerdict(("transient", "here-other"), "warning", "gave an unexpected result, and not again in a second run",
                 f"{_MEMORY} A kernel that is not deterministic does the same. {_REPLAY}"),
    RerunVerdict(("correct", "elsewhere-same"), "warning",
                 "got an unexpected result that another device gives as well: look at the data and the code",
                 "Look at the batch of this step, the learning rate and the scale of the loss."),
    RerunVerdict(("here-same",), "warning", "got the same unexpected result twice",
                 "Resume from the checkpoint on another device: that tells a broken device from broken data."),
    RerunVerdict(("refused", "unexpected"), "warning", "got a result that a check refused", _REPLAY),
)  # fmt: skip
_PERSISTENT, _TRANSIENT = VERDICTS[:2]
_EXPLAINED = (
    "Megatron checks results, and can run a step with an unexpected one again, on the same device and on another one."
)


def _verdict(lines: Sequence[LogLine]) -> RerunVerdict:
    told = {line.values.get("outcome") for line in lines}
    return next((one for one in VERDICTS if told & set(one.outcomes)), VERDICTS[-1])


def _accused(verdict: RerunVerdict, lines: Sequence[LogLine]) -> LogLine | None:
    """The line that names the device with the wrong result; None if no device is accused, or it is not named."""
    wanted = {_PERSISTENT: ("here-same",), _TRANSIENT: _TRANSIENT.outcomes}.get(verdict, ())
    own = [line for line in lines if line.values.get("outcome") in wanted]
    return next((line for line in own if line.values.get("node") is not None), own[0] if own else None)


def _rerun_finding(verdict: RerunVerdict, ranks: Sequence[Sequence[LogLine]]) -> Finding:
    """The finding on ranks with the same verdict; `ranks` has the lines of each."""
    accused = [line for lines in ranks if (line := _accused(verdict, lines)) is not None]
    all_ranks = ranks_of([line for lines in ranks for line in lines])
    wrong = ranks_of(accused)
    shown = [line for lines in ranks for line in lines][:MOST_EVIDENCE]
    steps = sorted({line.values["iteration"] for line in shown if line.values.get("iteration") is not None})
    who = ranks_text(all_ranks, LONGEST_RANKS) if all_ranks else "a rank"
    place = f" ({_device(accused[0])} of {accused[0].values['node']})" if len(ranks) == 1 and _named(accused) else ""
    unnamed = verdict is _PERSISTENT and not accused
    return Finding(
        kind=KIND, severity=verdict.severity, root_cause=True,
        title=f"{who}{place} {verdict.what}{f', in iteration {steps[0]}' if steps else ''}",
        explanation=_EXPLAINED
        + (" The line of the first run, which names the wrong device, is not in these logs." if unnamed else ""),
        culprit_ranks=wrong,
        culprits=tuple(Culprit(line.rank, line.values.get("node"), None, _device(line)) for line in accused),
        candidates=tuple(rank for rank in all_ranks if rank not in wrong),
        confidence="high" if verdict is _PERSISTENT else "medium",
        confidence_reasons=(
            "two devices gave different results" if verdict is _PERSISTENT
            else "a check alone does not tell a broken device from wrong data",
        ),
        evidence=tuple(line.evidence() for line in shown), next_steps=(verdict.next_step,), about=all_ranks,
    )  # fmt: skip


def _named(accused: Sequence[LogLine]) -> bool:
    return bool(accused) and accused[0].values.get("node") is not None


def _device(line: LogLine) -> str | None:
    device = line.values.get("device")
    return None if device is None else f"device {device}"
