"""`numeric-divergence` from logs: a framework found weights that differ, or ran a step again with another result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rankscope.analysis.logs.log_lines import LogLine, ranks_of, read_lines
from rankscope.analysis.model import Confidence, Culprit, Finding, Severity
from rankscope.kinds.event_kinds import NUMERIC_CHECKS
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

KIND = "numeric-divergence"
MOST_EVIDENCE = 6
LONGEST_RANKS = 40
_MEMORY = "Run the memory test and the stress test of that device before it gets another job."
_REPLAY = "Run the step again on other hardware, with deterministic kernels (--deterministic-mode)."


def numeric_reports(dataset: Dataset) -> list[Finding]:
    """A finding for the weights that differ, and one for each rank of which a step was run again."""
    lines = [line for line in read_lines(dataset) if line.kind in NUMERIC_CHECKS]
    hashes = [line for line in lines if line.values.get("check") == "weight-hash"]
    reruns: defaultdict[tuple[int | None, str], list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.values.get("check") == "rerun":
            reruns[line.rank, "" if line.rank is not None else str(line.who)].append(line)
    found = [_rerun_finding(own) for own in reruns.values()]
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


def _rerun_finding(lines: Sequence[LogLine]) -> Finding:
    """The result of a step that a rank ran again: on the same device, and then on another one."""
    by = {str(line.values.get("outcome")): line for line in lines}
    if "persistent" in by or "elsewhere-other" in by:
        # the line of the second run names the device that gave the other result, not the wrong one
        return _finding(lines, by.get("here-same"), "critical", "high", "gave a wrong result again and again, which "
                        "another device does not give", _MEMORY)  # fmt: skip
    if "transient" in by or "here-other" in by:
        line = by.get("transient") or by["here-other"]
        return _finding(lines, line, "warning", "medium", "gave an unexpected result that it did not give again",
                        f"{_MEMORY} A kernel that is not deterministic does the same. {_REPLAY}")  # fmt: skip
    if "correct" in by or "elsewhere-same" in by:
        return _finding(lines, None, "warning", "medium", "got an unexpected result that another device gives as well: "
                        "look at the data and the code, not at the hardware",
                        "Look at the batch of this step, the learning rate and the scale of the loss.")  # fmt: skip
    if "here-same" not in by:
        return _finding(lines, None, "warning", "medium", "got a result that a check refused, and ended",
                        _REPLAY)  # fmt: skip
    return _finding(
        lines, None, "warning", "medium", "got the same unexpected result twice on its device",
        "Resume from the checkpoint on another device: that tells a broken device from broken data.",
    )  # fmt: skip


def _finding(
    lines: Sequence[LogLine], accused: LogLine | None, severity: Severity, confidence: Confidence, what: str, then: str
) -> Finding:
    first = lines[0]
    told = accused or first
    node, device, step = (next((line.values.get(key) for line in (told, *lines) if line.values.get(key) is not None),
                               None) for key in ("node", "device", "iteration"))  # fmt: skip
    place = ""
    if accused is not None:
        node, device = accused.values.get("node"), accused.values.get("device")
        place = f" (device {device} of {node})" if node is not None else ""
    elif node is not None:
        place = f" (device {device} of {node})"
    rank = first.rank
    who = "a rank" if rank is None else f"rank {rank}"
    when = f", in iteration {step}" if step is not None else ""
    culprit = Culprit(rank, node, None, None if device is None else f"device {device}")
    own = accused is not None and rank is not None
    return Finding(
        kind=KIND, severity=severity, title=f"{who}{place} {what}{when}", root_cause=True,
        explanation="Megatron checks results, and can run a step with an unexpected one again, on the same device and "
        "on another one." + ("" if accused is not None or severity != "critical" else
           " The line of the first run, which names the wrong device, is not in these logs."),
        culprit_ranks=(rank,) if own and rank is not None else (), culprits=(culprit,) if accused is not None else (),
        candidates=() if own or rank is None else (rank,), confidence=confidence,
        confidence_reasons=("two devices gave different results",) if severity == "critical" else (
            "a check alone does not tell a broken device from wrong data",),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]), next_steps=(then,),
        about=() if rank is None else (rank,),
    )  # fmt: skip
