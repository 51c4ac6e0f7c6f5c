"""Settings, places and options of two runs, compared by meaning: unset counts as the default where that is known.

Options of the trainer come from configuration files by path, and from logs by name."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from pathlib import PurePosixPath
from typing import NamedTuple

import polars as pl

from rankscope.analysis.places import known_hosts
from rankscope.analysis.settings_comparison import (
    ENV_NAME,
    ORDER_NAME,
    PROCESS_VARIABLES,
    ProcessSettings,
    SettingRule,
    canonical_value,
    names_of,
    pack_rules,
    process_settings,
    rule_of,
)
from rankscope.features.comparison.option_roles import Weight, option_role, plain_name
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.series.read.run_options import command_options
from rankscope.parsers.sidecar import COMMAND
from rankscope.schema import Dataset
from rankscope.schema.option_sources import OptionSource, OptionTree, RunOptions
from rankscope.text.secrets import HIDDEN, hide, is_secret, value_of
from rankscope.text.wording import plural, rank_ranges, ranks_text

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
    settings_a, settings_b = process_settings(a.dataset), process_settings(b.dataset)
    changes = list(_places(a, b))
    if not settings_a or not settings_b:
        only = "A" if settings_a else "B" if settings_b else ""
        return SettingsComparison(tuple(changes), 0, only)
    compared, differing = 0, []
    for name in sorted(names_of(settings_a) | names_of(settings_b)):
        rule = rule_of(name)
        if (rule is not None and rule.scope == "own") or PROCESS_VARIABLES.fullmatch(name):
            continue  # ranks have their own value of it by design
        if _RUN_VARIABLES.fullmatch(name):
            continue
        ours, theirs = _values_by_rank(settings_a, name, rule), _values_by_rank(settings_b, name, rule)
        pairs = {rank: (Value.of(ours[rank]), Value.of(theirs[rank])) for rank in sorted(ours.keys() & theirs.keys())}
        if not pairs and ours and theirs:
            # ranks are known in one run only: the sets of values are compared
            pairs = {-1: (Value.of(set().union(*ours.values())), Value.of(set().union(*theirs.values())))}
        compared += bool(pairs)
        change = _change(name, rule, pairs)
        differing += [change] if change is not None else []
    changes = sorted([*_first_steps(differing), *changes], key=lambda one: (WEIGHTS.index(one.weight), one.name))
    return SettingsComparison(tuple(changes), compared)


CODE = "code "
"""Begins the names of settings that tell the code of a process: its commit, its own files."""
_OF_STEP = re.compile(r"(.+) of step (\d+)")
"""Names of settings that each step has anew: hashes of batches and of random states."""


def _first_steps(changes: Sequence[SettingChange]) -> list[SettingChange]:
    """The changes, of those of steps only the first of each kind: what differs once differs from then on."""
    kept, steps = list[SettingChange](), defaultdict[str, list[tuple[int, SettingChange]]](list)
    for change in changes:
        of_step = _OF_STEP.fullmatch(change.name)
        if of_step is None:
            kept.append(change)
        else:
            steps[of_step[1]].append((int(of_step[2]), change))
    for pairs in steps.values():
        first = min(pairs, key=lambda pair: pair[0])[1]
        more = f" (the same differs in {plural(len(pairs) - 1, 'later step')})" if len(pairs) > 1 else ""
        kept.append(first._replace(effect=first.effect.rstrip(".") + more))
    return kept


class Value(NamedTuple):
    """A value by meaning, and as it is shown."""

    meaning: str
    shown: str
    is_set: bool = True

    @classmethod
    def of(cls, values: Collection[Value]) -> Value:
        """Several values of one setting as one."""
        ordered = sorted(values)
        meaning, shown = " or ".join(one.meaning for one in ordered), " or ".join(one.shown for one in ordered)
        return cls(meaning, shown, any(one.is_set for one in ordered))


def _values_by_rank(processes: Sequence[ProcessSettings], name: str, rule: SettingRule | None) -> dict[int, set[Value]]:
    """The values of each rank, -1 if it is unknown; a rank that does not tell the setting is missing."""
    out: defaultdict[int, set[Value]] = defaultdict(set)
    default = canonical_value(name, rule.default) if rule is not None and rule.default else ""
    for process in processes:
        rank = -1 if process.rank is None else process.rank
        # NCCL prints all of its own variables that are set
        printed = (process.printed or process.alike) and name.startswith(("NCCL_", "RCCL_"))
        if name in process.values:
            value = process.values[name]
            out[rank].add(Value(canonical_value(name, value), value_of(name, value) or "(empty)"))
        elif ENV_NAME.fullmatch(name) and (process.whole or printed):
            out[rank].add(Value(default, f"unset ({default})" if default else "unset", is_set=False))
    return out


def _change(name: str, rule: SettingRule | None, pairs: Mapping[int, tuple[Value, Value]]) -> SettingChange | None:
    """The change of a setting; None if each rank has the same value in both runs."""
    ranks: defaultdict[tuple[Value, Value], list[int]] = defaultdict(list)
    for rank, (a, b) in sorted(pairs.items(), key=lambda item: (item[1], item[0])):
        if a.meaning != b.meaning:
            ranks[a, b].append(rank)
    if not ranks:
        return None
    ordered = sorted(ranks.items(), key=lambda item: -len(item[1]))
    changes = tuple((a.shown, b.shown, tuple(rank for rank in who if rank >= 0)) for (a, b), who in ordered)
    # these are known to decide the order of sums or the choice of kernels
    packed = any(name == pack.name for pack in pack_rules())
    harmful = rule is not None and rule.harm == "result"
    named = ORDER_NAME.fullmatch(name) or _REPEATABILITY.fullmatch(name) or name.startswith(("version:", CODE))
    if packed or harmful or named:
        weight: Weight = "repeatability"
    elif rule is None or rule.harm == "evidence":
        weight = "unknown"
    elif rule.scope == "node":
        weight = "place"
    else:
        weight = "speed" if rule.harm == "speed" else "behaviour"
    effect = rule.effect if rule is not None else ""
    return SettingChange(name, weight, changes, effect, is_set_in_b=ordered[0][0][1].is_set)


def _places(a: ComparedRun, b: ComparedRun) -> Iterator[SettingChange]:
    """Differences in size and place of the runs."""
    sizes = a.dataset.world_size, b.dataset.world_size
    if all(sizes) and sizes[0] != sizes[1]:
        effect = "Other ranks, other groups and another batch: only training series can be compared."
        yield SettingChange("world size", "behaviour", ((str(sizes[0]), str(sizes[1]), ()),), effect)
    meshes = [str(run.analysis.mesh) if run.analysis.mesh is not None else "" for run in (a, b)]
    if all(meshes) and meshes[0] != meshes[1]:
        effect = "Another division of the work: sums have other members and another order."
        yield SettingChange("mesh", "behaviour", ((meshes[0], meshes[1], ()),), effect)
    hosts = _hosts(a.dataset), _hosts(b.dataset)
    if not all(hosts):
        return
    shapes = [sorted(map(tuple, ranks_of.values())) for ranks_of in hosts]
    if shapes[0] != shapes[1] and sizes[0] == sizes[1]:
        words = [
            " | ".join(rank_ranges(ranks, 20) for ranks in shape[:4]) + (" | .." if len(shape) > 4 else "")
            for shape in shapes
        ]
        effect = "Ranks share hosts differently: rings and trees of sums are others."
        yield SettingChange("ranks of a host", "behaviour", ((words[0], words[1], ()),), effect)
    if hosts[0].keys() != hosts[1].keys():
        named = [", ".join(list(names)[:4]) + (", .." if len(names) > 4 else "") for names in hosts]
        effect = "On other hosts, sums of one setting may have another order; their speed differs, too."
        yield SettingChange("hosts", "place", ((named[0], named[1], ()),), effect)


def _hosts(dataset: Dataset) -> dict[str, list[int]]:
    """The ranks of each host, in order."""
    out: defaultdict[str, list[int]] = defaultdict(list)
    for host, rank in sorted((host, rank) for rank, host in known_hosts(dataset).items()):
        out[host].append(rank)
    return dict(out)


PREFIX = "option "
"""Begins the names of options among the settings."""
LONGEST_SHOWN = 100
"""Most characters of a value that are shown; a hash stands for the rest."""
_TRUTHS: Mapping[str, bool] = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NAME_KEYS = ("name", "_target_")
"""Keys that name the mappings of a list."""
_MOST_NAMED = 8
_INDEX = re.compile(r"\[[^\]]*\]")


class Absent(Enum):
    """The place of a value where a run has none."""

    ABSENT = "absent"


class OptionPair(NamedTuple):
    """An option in both runs."""

    path: str
    a: OptionTree | Absent
    b: OptionTree | Absent
    certain: bool = True
    """Whether a value that is absent is not set; a log may leave it out."""

    @property
    def differs(self) -> bool:
        """Whether the values differ in meaning, or one is absent."""
        return self.a is Absent.ABSENT or self.b is Absent.ABSENT or not same_value(self.a, self.b)


class OptionComparison(NamedTuple):
    """The options of two runs side by side."""

    pairs: tuple[OptionPair, ...]
    left: tuple[str, ...]
    """What was not compared, each with the reason."""


def same_value(a: OptionTree, b: OptionTree) -> bool:
    """Whether two values mean the same: 1e-3 and "0.001", `on` and true, a date and its text."""
    if isinstance(a, dict) or isinstance(b, dict) or isinstance(a, list) or isinstance(b, list):
        same_kind = type(a) is type(b)
        return same_kind and (not (a or b) or all(not pair.differs for pair in tree_pairs(a, b)))
    if isinstance(a, str) == isinstance(b, str):
        both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
        return both_nan or a == b
    text, value = (str(a).strip(), b) if isinstance(a, str) else (str(b).strip(), a)
    try:
        if isinstance(value, bool):
            return _TRUTHS.get(text.lower()) == value
        if isinstance(value, int | float):
            return float(text) == value or (math.isnan(float(text)) and math.isnan(value))
        return isinstance(value, datetime | date) and type(value).fromisoformat(text) == value
    except ValueError:
        return False


def tree_pairs(a: OptionTree, b: OptionTree, path: str = "") -> Iterator[OptionPair]:
    """All values of two trees by path. What only one of them has stands as a whole under the path where it begins."""
    if isinstance(a, dict) and isinstance(b, dict) and (a or b):
        for key in dict.fromkeys((*a, *b)):
            yield from _pair(a.get(key, Absent.ABSENT), b.get(key, Absent.ABSENT), _below(path, key))
    elif isinstance(a, list) and isinstance(b, list) and (a or b):
        names = _common_names(a, b)
        yield from _named_pairs(a, b, names, path) if names else _listed_pairs(a, b, path)
    else:
        yield OptionPair(path, a, b)


def _pair(a: OptionTree | Absent, b: OptionTree | Absent, path: str) -> Iterator[OptionPair]:
    if isinstance(a, Absent) or isinstance(b, Absent):
        yield OptionPair(path, a, b)
    else:
        yield from tree_pairs(a, b, path)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def _common_names(a: Sequence[OptionTree], b: Sequence[OptionTree]) -> str:
    """The key that names the mappings in both lists, each by another text; "" if there is none."""
    for key in _NAME_KEYS:
        names = [[element.get(key) if isinstance(element, dict) else None for element in items] for items in (a, b)]
        texts = [[name for name in items if isinstance(name, str)] for items in names]
        are_told = all(len(items) == len(known) == len({*known}) for items, known in zip(names, texts, strict=True))
        if are_told and {*texts[0]} & {*texts[1]}:
            return key
    return ""


def _named_pairs(a: Sequence[OptionTree], b: Sequence[OptionTree], key: str, path: str) -> Iterator[OptionPair]:
    """The mappings of two lists by name; those of other names stand side by side if there are as many of them."""
    ours, other = ({str(item[key]): item for item in items if isinstance(item, dict)} for items in (a, b))
    common = [name for name in ours if name in other]
    for name in common:
        yield from tree_pairs(ours[name], other[name], f"{path}[{name}]")
    rest_a, rest_b = [n for n in ours if n not in other], [n for n in other if n not in ours]
    if len(rest_a) == len(rest_b):
        for name, other_name in zip(rest_a, rest_b, strict=True):
            yield from tree_pairs(ours[name], other[other_name], f"{path}[{name}]")
    else:
        yield from (OptionPair(f"{path}[{name}]", ours[name], Absent.ABSENT) for name in rest_a)
        yield from (OptionPair(f"{path}[{name}]", Absent.ABSENT, other[name]) for name in rest_b)
    orders = [[name for name in items if name in common] for items in (ours, other)]
    if orders[0] != orders[1]:
        yield OptionPair(f"{path} (order)", ", ".join(orders[0]), ", ".join(orders[1]))


def _listed_pairs(a: Sequence[OptionTree], b: Sequence[OptionTree], path: str) -> Iterator[OptionPair]:
    """The values of two lists by index; of lists of other lengths equal values at both ends are laid together first."""
    if len(a) == len(b):
        for at, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from tree_pairs(one, other, f"{path}[{at}]")
        return
    short = min(len(a), len(b))
    begin = next((at for at in range(short) if not same_value(a[at], b[at])), short)
    end = next((at for at in range(short - begin) if not same_value(a[-1 - at], b[-1 - at])), short - begin)
    for at in (*range(begin), *range(len(a) - end, len(a))):
        yield from tree_pairs(a[at], b[at if at < begin else at - len(a) + len(b)], f"{path}[{at}]")
    middle_a, middle_b = a[begin : len(a) - end], b[begin : len(b) - end]
    for at in range(max(len(middle_a), len(middle_b))):
        yield from _pair(_at(middle_a, at), _at(middle_b, at), f"{path}[{begin + at}]")


def _at(values: Sequence[OptionTree], at: int) -> OptionTree | Absent:
    return values[at] if at < len(values) else Absent.ABSENT


def compare_options(a: RunOptions, b: RunOptions) -> OptionComparison:
    """The options of two runs: file by file and form by form, and what is left by name with all of the other run."""
    rest_a, rest_b = list(a.sources), list(b.sources)
    pairs: list[OptionPair] = []
    # sources of one path; else of one name of file; else the only files
    keys: tuple[Callable[[OptionSource], str], ...] = (
        lambda source: source.name,
        lambda source: PurePosixPath(source.name).name if source.is_file else source.name,
        lambda source: "a file" if source.is_file else source.name,
    )
    for key in keys:
        counts = [Counter(map(key, rest)) for rest in (rest_a, rest_b)]
        for source in list(rest_a):
            if counts[0][key(source)] == counts[1][key(source)] == 1:
                other = next(one for one in rest_b if key(one) == key(source))
                # a command line holds all that is not the default
                certain = (source.is_file and other.is_file) or source.name == COMMAND
                pairs += (pair._replace(certain=certain) for pair in tree_pairs(source.tree, other.tree))
                rest_a.remove(source)
                rest_b.remove(other)
    known = {plain_name(pair.path) for pair in pairs}
    left: list[str] = []
    for label, rest, others in (("A", rest_a, b.sources), ("B", rest_b, a.sources)):
        values = {name: value for other in others for name, value in _flat(other).items()}
        for source in rest:
            flat = _flat(source)
            for name in [name for name in flat if name in values and name not in known]:
                known.add(name)
                x, y = (flat[name], values[name]) if label == "A" else (values[name], flat[name])
                pairs.append(OptionPair(flat[name][0], x[1], y[1]))
            alone = [path for name, (path, _) in flat.items() if name not in values]
            if alone:
                named = ", ".join(alone[:_MOST_NAMED]) + (", .." if len(alone) > _MOST_NAMED else "")
                left.append(f"{source.name} is only in {label}: {plural(len(alone), 'option')} ({named})")
    left += [f"{label}: {path}" for label, run in (("A", a), ("B", b)) for path in run.unread]
    return OptionComparison(tuple(pairs), tuple(left))


def _flat(source: OptionSource) -> dict[str, tuple[str, OptionTree]]:
    """Paths and values of a source by plain name."""
    found = ((pair.path, pair.a) for pair in tree_pairs(source.tree, source.tree))
    return {plain_name(path): (path, value) for path, value in found if not isinstance(value, Absent)}


def shown_value(path: str, value: OptionTree | Absent) -> str:
    """A value as it may be shown: without secrets, and of long ones the beginning with a hash of the whole."""
    if isinstance(value, Absent):
        return "unset"
    text = _text(path, value)
    if len(text) <= LONGEST_SHOWN:
        return text
    digest = hashlib.blake2s(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{text[: LONGEST_SHOWN - 40]}.. ({len(text):,} characters, hash {digest})"


def _text(path: str, value: OptionTree) -> str:
    if is_secret(path) and value not in (None, "", [], {}):
        return HIDDEN
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_text(_below(path, key), own)}' for key, own in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_text(path, one) for one in value)}]"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, bytes):
        return f"{len(value):,} bytes, {hashlib.blake2s(value, digest_size=4).hexdigest()}"
    text = hide(str(value))
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and _is_ambiguous(value) else text


def _is_ambiguous(text: str) -> bool:
    """Whether a text without quotes would be read as a value of another type, or as several lines."""
    stripped = text.strip()
    if stripped != text or not text or stripped.lower() in (*_TRUTHS, "null", "none", "~") or "\n" in text:
        return True
    try:
        float(stripped)
    except ValueError:
        return stripped[:1] in "[{" or stripped == "unset"
    return True


_OF_ONE_RUN = re.compile(
    r"(?:.*[._])?(?:(?:\w*_)?(?:output|log|logging|save|dump|run|trace|tensorboard|tb|wandb|ckpt|checkpoint|work|cache|exp|experiment)_?"
    r"(?:dir|directory|folder|path|name|id|file|root)|save|(?:exp|experiment|job|run)(?:_?(?:name|id|uuid|tag))?|uuid|"
    r"(?:\w*_)?port|(?:\w*_)?host(?:name)?|master_\w+|rdzv_\w+|(?:\w*_)?time(?:stamp)?|date|pid|artifact_uri|device|"
    r"local_process_index|(?:\w*_)?wandb(?:_\w+)?|hub_\w+|logging_\w+|(?:log|logging|print|save|eval|checkpoint)_interval|"
    r"(?:\w*_)?verbos\w*|steps?_per_print)|(?:(?:.*[._])?(?:run|exp|experiment|job|wandb|logger|logging|project)[._])?"
    r"(?:name|tag|group|notes)|(?:node_|local_|global_|machine_)?rank"
)
"""Options of one run, one process or one place: a rerun has other values."""


def option_changes(pairs: Sequence[OptionPair]) -> Iterator[SettingChange]:
    """The options that differ, one change for each path. An option that one run does not have is "unset" there."""
    for pair in pairs:
        if not pair.differs:
            continue
        role = option_role(pair.path)
        only = "B" if pair.a is Absent.ABSENT else "A" if pair.b is Absent.ABSENT else ""
        if role is not None:
            weight = role.weight
        elif _OF_ONE_RUN.fullmatch(plain_name(_INDEX.sub("", pair.path))):
            weight = "place"
        else:
            weight = "unknown" if only and not pair.certain else "option"
        values = (shown_value(pair.path, pair.a), shown_value(pair.path, pair.b), ())
        name = pair.path or "(the whole)"
        yield SettingChange(PREFIX + name, weight, (values,), role.effect if role is not None else "", name, only)


def with_command(options: RunOptions, dataset: Dataset) -> RunOptions:
    """The options of a run with those of the command line of its lowest rank, as its process told it."""
    told = dataset.settings.filter(pl.col("name") == COMMAND).sort("rank", nulls_last=True)
    if told.is_empty():
        return options
    command = told["value"][0]
    tree: dict[str, OptionTree] = {} if command.startswith("-") else {"script": PurePosixPath(_program(command)).name}
    tree |= {plain_name(name.strip("-")): value for name, value in command_options(command)}
    return options._replace(sources=(*options.sources, OptionSource(COMMAND, tree, is_file=False)))


def _program(command: str) -> str:
    """The first word of a command line."""
    try:
        return (shlex.split(command) or [""])[0]
    except ValueError:
        return command.split(" ", maxsplit=1)[0]


def with_options(
    settings: SettingsComparison, options: OptionComparison, notes: Sequence[str] = ()
) -> SettingsComparison:
    """Settings with the options of the trainer among them."""
    changes = sorted(
        [*settings.changes, *_told_once(option_changes(options.pairs))], key=lambda change: WEIGHTS.index(change.weight)
    )
    both = sum(Absent.ABSENT not in (pair.a, pair.b) for pair in options.pairs)
    return settings._replace(
        changes=tuple(changes),
        compared=settings.compared + both,
        left=(*settings.left, *options.left),
        notes=tuple(notes),
    )


def _told_once(changes: Iterator[SettingChange]) -> Iterator[SettingChange]:
    """The changes without those that a second source of the run tells of the same option: a log and a command line."""
    known = set[tuple[object, ...]]()
    for change in changes:
        key = plain_name(change.option.rpartition(".")[2]), change.changes
        if key not in known or "." in change.option:
            yield change
        known.add(key)


def equal_roles(pairs: Sequence[OptionPair]) -> dict[str, str]:
    """Roles whose options both runs tell with equal values: role, and one option with its value."""
    roles = [(pair, option_role(pair.path)) for pair in pairs]
    changed = {role.role for pair, role in roles if role is not None and pair.differs}
    equal: dict[str, str] = {}
    for pair, role in sorted(roles, key=lambda match: match[0].path):
        if role is not None and role.role not in changed:
            equal.setdefault(role.role, f"{pair.path} is {shown_value(pair.path, pair.a)} in both")
    return equal
