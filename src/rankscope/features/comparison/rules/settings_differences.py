"""Settings, versions and places of two runs, compared by meaning: unset counts as the default where that is known."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rankscope.analysis.places import file_hosts
from rankscope.analysis.setting_rules import (
    ENV_NAME,
    PROCESS_VARIABLES,
    ProcessSettings,
    SettingRule,
    canonical_value,
    names_of,
    pack_rules,
    process_settings,
    rule_of,
)
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.replay.summation_order import CARRIED
from rankscope.schema import Dataset
from rankscope.text.secrets import value_of
from rankscope.text.wording import plural, rank_ranges, ranks_text

Weight = Literal["repeatability", "behaviour", "speed", "option", "place", "unknown"]
"""Possible effects of another value: results need not repeat; the job may behave differently or only be slower; it is
an option of the trainer of which nothing else is known; it runs in another place; nothing is known."""
WEIGHTS: tuple[Weight, ...] = ("repeatability", "behaviour", "speed", "option", "place", "unknown")
COUNTED: tuple[Weight, ...] = WEIGHTS[:4]
"""Weights that make two runs different."""
_RUN_VARIABLES = re.compile(
    r"MASTER_(?:ADDR|PORT)|TORCHELASTIC_\w+|SLURM_\w*(?:JOB|STEP|NODELIST|TOPOLOGY|SUBMIT|LAUNCH|SRUN|PORTS)\w*"
    r"|(?:NCCL|TORCH|XCCL|HCCL)_\w*(?:FILE|DIR|PATH|COMM_ID)|LOCAL_ADDR|TMPDIR|SSH_\w+|XDG_\w+|\w*SESSION\w*|INVOCATION_ID"
    r"|JOURNAL_STREAM|HOME|USER|LOGNAME|SHLVL|_|LS_COLORS|TERM\w*|COLUMNS|LINES|WANDB_RUN_ID|OMPI_MCA_\w+|PMIX_\w+|HYDRA_\w+"
)
"""Variables of one run, one machine or one login: a rerun has other values."""
_REPEATABILITY = re.compile(
    r"CUBLAS\w*|CUDNN_DETERMINISTIC|NVTE_\w*|PYTHONHASHSEED|\w*DETERMINISTIC\w*|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32\w*"
    r"|OMP_NUM_THREADS|MKL_\w+|CUDA_DEVICE_MAX_CONNECTIONS|(?:NCCL|RCCL)_(?:TUNER_\w+|SHARP_\w+|MNNVL_ENABLE)|gpus|cpu-model"
)
MOST_CHANGES = 4
"""Most pairs of values of one setting in words."""


class SettingChange(NamedTuple):
    """One setting that differs between the runs."""

    name: str
    weight: Weight
    changes: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Value in A, value in B, and the ranks with this pair; without ranks for processes of unknown rank."""
    effect: str
    option: str = ""
    """The path of an option of the trainer: "optimizer.betas[1]"; empty for settings of the process."""
    only_in: str = ""
    """"A" or "B" if the other run does not have this option."""
    is_set_in_b: bool = True
    """Whether B sets it on the ranks of the first of the changes."""

    @property
    def counts(self) -> bool:
        """Whether it makes the runs different."""
        return self.weight in COUNTED

    @property
    def shown(self) -> str:
        """The change in words: "NCCL_ALGO Ring -> unset on ranks 0-15"."""
        shown = self.changes[:MOST_CHANGES]
        parts = [f"{a} -> {b}{f' on {ranks_text(ranks, 40)}' if ranks else ''}" for a, b, ranks in shown]
        left = len(self.changes) - MOST_CHANGES
        return f"{self.name}: {'; '.join(parts)}{f'; and {left} more' if left > 0 else ''}"


class SettingsComparison(NamedTuple):
    """Settings of two runs side by side."""

    changes: tuple[SettingChange, ...]
    """Those that decide whether results repeat first, unknown ones last."""
    compared: int
    """Number of names with a known value in both runs."""
    only_told: str = ""
    """"A" or "B" if only one run tells any setting."""
    left: tuple[str, ...] = ()
    """What was not compared, each with the reason."""
    notes: tuple[str, ...] = ()
    """How files were read, where that has a limit."""


def compare_settings(a: ComparedRun, b: ComparedRun) -> SettingsComparison:
    """The settings, versions, world size, hosts and mesh of two runs."""
    told_a, told_b = process_settings(a.dataset), process_settings(b.dataset)
    places = list(_places(a, b))
    if not told_a or not told_b:
        only = "A" if told_a else "B" if told_b else ""
        return SettingsComparison(tuple(places), 0, only)
    names = sorted(names_of(told_a) | names_of(told_b))
    pairs = {name: _pairs(told_a, told_b, name) for name in names if _is_compared(name)}
    found = _first_steps([change for name, pair in pairs.items() if (change := _change(name, pair)) is not None])
    compared = sum(bool(pair) for pair in pairs.values())
    ordered = sorted([*found, *places], key=lambda one: (WEIGHTS.index(one.weight), one.name))
    return SettingsComparison(tuple(ordered), compared)


_OF_STEP = re.compile(r"(.+) of step (\d+)")
"""Names of settings that each step has anew: hashes of batches and of random states."""


def _first_steps(found: Sequence[SettingChange]) -> list[SettingChange]:
    """The changes, of those of steps only the first of each kind: what differs once differs from then on."""
    kept, steps = list[SettingChange](), defaultdict[str, list[tuple[int, SettingChange]]](list)
    for one in found:
        of_step = _OF_STEP.fullmatch(one.name)
        if of_step is None:
            kept.append(one)
        else:
            steps[of_step[1]].append((int(of_step[2]), one))
    for told in steps.values():
        first = min(told, key=lambda pair: pair[0])[1]
        more = f" (the same differs in {plural(len(told) - 1, 'later step')})" if len(told) > 1 else ""
        kept.append(first._replace(effect=first.effect.rstrip(".") + more))
    return kept


def _is_compared(name: str) -> bool:
    """Whether ranks and runs do not have their own value of it by design."""
    rule = rule_of(name)
    own = rule is not None and rule.scope == "own"
    return not own and not PROCESS_VARIABLES.fullmatch(name) and not _RUN_VARIABLES.fullmatch(name)


class Value(NamedTuple):
    """A value by meaning, and as it is shown."""

    meaning: str
    shown: str
    is_set: bool = True


def _pairs(a: Sequence[ProcessSettings], b: Sequence[ProcessSettings], name: str) -> Counter[tuple[Value, Value, int]]:
    """How often each pair of values occurs; the last number is the rank, -1 if it is unknown."""
    rule = rule_of(name)
    ours, theirs = _by_rank(a, name, rule), _by_rank(b, name, rule)
    out: Counter[tuple[Value, Value, int]] = Counter()
    for rank in sorted(ours.keys() & theirs.keys()):
        out[_joined(sorted(ours[rank])), _joined(sorted(theirs[rank])), rank] += 1
    if not out and ours and theirs:
        # ranks are known in one run only: the sets of values are compared
        one, other = (sorted({value for values in told.values() for value in values}) for told in (ours, theirs))
        out[_joined(one), _joined(other), -1] += 1
    return out


def _joined(values: Sequence[Value]) -> Value:
    return Value(
        " or ".join(one.meaning for one in values), " or ".join(one.shown for one in values),
        any(one.is_set for one in values),
    )  # fmt: skip


def _by_rank(told: Sequence[ProcessSettings], name: str, rule: SettingRule | None) -> dict[int, set[Value]]:
    """The values of each rank; a rank that does not tell the setting is missing."""
    out: defaultdict[int, set[Value]] = defaultdict(set)
    default = canonical_value(name, rule.default) if rule is not None and rule.default else ""
    for process in told:
        rank = -1 if process.rank is None else process.rank
        if name in process.values:
            value = process.values[name]
            out[rank].add(Value(canonical_value(name, value), value_of(name, value) or "(empty)"))
        elif _is_unset(process, name):
            out[rank].add(Value(default, f"unset ({default})" if default else "unset", is_set=False))
    return out


def _is_unset(process: ProcessSettings, name: str) -> bool:
    """Whether a name that a process does not tell is unset: NCCL prints all of its own variables that are set."""
    printed = (process.printed or process.alike) and name.startswith(("NCCL_", "RCCL_"))
    return bool(ENV_NAME.fullmatch(name) and (process.whole or printed))


def _change(name: str, pairs: Counter[tuple[Value, Value, int]]) -> SettingChange | None:
    """The change of a setting; None if each rank has the same value in both runs."""
    ranks: defaultdict[tuple[Value, Value], list[int]] = defaultdict(list)
    for (one, other, rank), _ in sorted(pairs.items()):
        if one.meaning != other.meaning:
            ranks[one, other].append(rank)
    if not ranks:
        return None
    rule = rule_of(name)
    ordered = sorted(ranks.items(), key=lambda item: -len(item[1]))
    changes = tuple((a.shown, b.shown, tuple(rank for rank in who if rank >= 0)) for (a, b), who in ordered)
    effect = rule.effect if rule is not None else ""
    return SettingChange(name, _weight(name, rule), changes, effect, is_set_in_b=ordered[0][0][1].is_set)


def _weight(name: str, rule: SettingRule | None) -> Weight:
    if _decides_results(name, rule):
        return "repeatability"
    if name.startswith("version:"):
        return "repeatability"
    if rule is None or rule.harm == "evidence":
        return "unknown"
    if rule.scope == "node":
        return "place"
    return "speed" if rule.harm == "speed" else "behaviour"


def _decides_results(name: str, rule: SettingRule | None) -> bool:
    """Whether it is known to decide the order of sums or the choice of kernels."""
    packed = any(name == pack.name for pack in pack_rules())
    harmful = rule is not None and rule.harm == "result"
    return packed or harmful or bool(CARRIED.fullmatch(name) or _REPEATABILITY.fullmatch(name))


# World size, hosts and mesh.


def _places(a: ComparedRun, b: ComparedRun) -> Iterator[SettingChange]:
    """Differences in size and place of the runs."""
    sizes = a.dataset.world_size, b.dataset.world_size
    if all(sizes) and sizes[0] != sizes[1]:
        effect = "Other ranks, other groups and another batch: only training series can be compared."
        yield SettingChange("world size", "behaviour", ((str(sizes[0]), str(sizes[1]), ()),), effect)
    meshes = [str(one.analysis.mesh) if one.analysis.mesh is not None else "" for one in (a, b)]
    if all(meshes) and meshes[0] != meshes[1]:
        effect = "Another division of the work: sums have other members and another order."
        yield SettingChange("mesh", "behaviour", ((meshes[0], meshes[1], ()),), effect)
    hosts = _hosts(a.dataset), _hosts(b.dataset)
    if not all(hosts):
        return
    shapes = [sorted(map(tuple, one.values())) for one in hosts]
    if shapes[0] != shapes[1]:
        words = [_shape_text(one) for one in shapes]
        effect = "Ranks share hosts differently: rings and trees of sums are others."
        yield SettingChange("ranks of a host", "behaviour", ((words[0], words[1], ()),), effect)
    if hosts[0].keys() != hosts[1].keys():
        named = [", ".join(list(one)[:4]) + (", .." if len(one) > 4 else "") for one in hosts]
        effect = "On other hosts, sums of one setting may have another order; their speed differs, too."
        yield SettingChange("hosts", "place", ((named[0], named[1], ()),), effect)


def _hosts(dataset: Dataset) -> dict[str, list[int]]:
    """The ranks of each host, in order."""
    out: defaultdict[str, list[int]] = defaultdict(list)
    for host, rank in sorted((host, rank) for rank, host in file_hosts(dataset).items()):
        out[host].append(rank)
    return dict(out)


def _shape_text(hosts: Sequence[Sequence[int]]) -> str:
    return " | ".join(rank_ranges(ranks, 20) for ranks in hosts[:4]) + (" | .." if len(hosts) > 4 else "")
