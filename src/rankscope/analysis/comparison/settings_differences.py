"""Settings, versions and places of two runs, compared by meaning: unset counts as the default where that is known."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from rankscope.analysis.comparison.model import ComparedRun
from rankscope.analysis.logs.setting_rules import (
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
from rankscope.analysis.replay.summation_order import CARRIED
from rankscope.schema import Dataset
from rankscope.text.secrets import value_of
from rankscope.text.wording import plural, rank_ranges, ranks_text

Weight = Literal["repeatability", "behaviour", "speed", "place", "unknown"]
"""Possible effects of another value: results need not repeat; the job may behave differently or only be slower; it runs
in another place; nothing is known."""
WEIGHTS: tuple[Weight, ...] = ("repeatability", "behaviour", "speed", "place", "unknown")
COUNTED: tuple[Weight, ...] = WEIGHTS[:3]
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


Value = tuple[str, str]
"""A value by meaning, and as it is shown."""


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
    return " or ".join(mean for mean, _ in values), " or ".join(shown for _, shown in values)


def _by_rank(told: Sequence[ProcessSettings], name: str, rule: SettingRule | None) -> dict[int, set[Value]]:
    """The values of each rank; a rank that does not tell the setting is missing."""
    out: defaultdict[int, set[Value]] = defaultdict(set)
    default = canonical_value(name, rule.default) if rule is not None and rule.default else ""
    for process in told:
        rank = -1 if process.rank is None else process.rank
        if name in process.values:
            value = process.values[name]
            out[rank].add((canonical_value(name, value), value_of(name, value) or "(empty)"))
        elif _is_unset(process, name):
            out[rank].add((default, f"unset ({default})" if default else "unset"))
    return out


def _is_unset(process: ProcessSettings, name: str) -> bool:
    """Whether a name that a process does not tell is unset: NCCL prints all of its own variables that are set."""
    printed = (process.printed or process.alike) and name.startswith(("NCCL_", "RCCL_"))
    return bool(ENV_NAME.fullmatch(name) and (process.whole or printed))


def _change(name: str, pairs: Counter[tuple[Value, Value, int]]) -> SettingChange | None:
    """The change of a setting; None if each rank has the same value in both runs."""
    ranks: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for (one, other, rank), _ in sorted(pairs.items()):
        if one[0] != other[0]:
            ranks[one[1], other[1]].append(rank)
    if not ranks:
        return None
    rule = rule_of(name)
    ordered = sorted(ranks.items(), key=lambda item: -len(item[1]))
    changes = tuple((a, b, tuple(rank for rank in who if rank >= 0)) for (a, b), who in ordered)
    return SettingChange(name, _weight(name, rule), changes, rule.effect if rule is not None else "")


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
    rows = dataset.files.select("host", "rank").drop_nulls().unique().sort("host", "rank")
    out: defaultdict[str, list[int]] = defaultdict(list)
    for host, rank in rows.iter_rows():
        if host:
            out[host].append(rank)
    return dict(out)


def _shape_text(hosts: Sequence[Sequence[int]]) -> str:
    return " | ".join(rank_ranges(ranks, 20) for ranks in hosts[:4]) + (" | .." if len(hosts) > 4 else "")


# Options of trainers.

RESUMED = "resumed_step"
"""Name among the options: the step of the checkpoint from which a run goes on."""
PREFIX = "option "
"""Begins the names of options among the settings."""


class OptionRole(NamedTuple):
    """A group of options with one effect."""

    role: str
    """The cause that a change of such an option is: one of `hypotheses.CAUSES`, "" where it is none."""
    weight: Weight
    names: re.Pattern[str]
    effect: str


def _role(role: str, weight: Weight, effect: str, *names: str) -> OptionRole:
    return OptionRole(role, weight, re.compile(f"(?:.*[._])?(?:{'|'.join(names)})"), effect)


ROLES = (
    _role("data", "behaviour", "other batches, or other order of them",
          r"data_?(?:loader_?|sampler_?|shuffle_?)?seed|shuffle_?seed|sampler_?seed|shuffle\w*|data_?order|sampler\w*"),
    _role("seed", "behaviour", "other random numbers: initial values, order, dropout",
          r"(?:[a-z]+_)?seeds?|random_state"),
    _role("dropout", "behaviour", "other activations are left out, from the first step on",
          r"\w*dropout\w*|\w*drop_?path\w*|stochastic_depth\w*|[a-z]+_pdrop|\w*drop_prob"),
    _role("lr", "behaviour", "other sizes of updates",
          r"(?:\w+_)?lr(?:_\w+)?|(?:\w+_)?learning_?rate(?:_\w+)?|\w*warm_?up\w*|\w*scheduler\w*",
          r"decay_(?:iters|steps|type|ratio)"),
    _role("order", "repeatability", "sums are taken in another order, or over other parts",
          r"\w*bucket\w*|\w*(?:tensor|pipeline|context|expert|data|sequence)_(?:model_)?parallel\w*",
          r"\w*parallel(?:ism)?_(?:degree|size)|[tpcde]p(?:_size|_degree)?|fsdp\w*|zero_?stage|\w*shard\w*",
          r"gradient_accumulation\w*|grad_accum\w*|accumulate_grad\w*|micro_?batch_?size|\w*reduce_(?:dtype|scatter)\w*",
          r"\w*(?:num|nproc|nnodes)_?(?:nodes|gpus|devices)\w*|nproc_per_node|nnodes|devices"),
    _role("kernel", "repeatability", "other kernels, which round otherwise or do not repeat",
          r"\w*determinis\w*|\w*attn_?impl\w*|\w*attention_(?:impl\w*|backend|softmax\w*)|\w*flash\w*|sdpa\w*",
          r"\w*fused\w*|\w*fusion\w*|\w*compile\w*|\w*benchmark|\w*tf32\w*|\w*float32_matmul\w*"),
    _role("precision", "behaviour", "another precision",
          r"\w*(?:bf16|fp16|fp8)\w*|(?:\w*_)?amp(?:_\w+)?|\w*dtype\w*|\w*precision\w*|\w*loss_scale\w*"),
    _role("optimizer", "behaviour", "other updates from equal gradients",
          r"optim(?:izer)?(?:[._](?:name|type))?|(?:adam_?)?beta_?[12s]?|betas|\w*weight_decay|wd",
          r"(?:adam_?)?eps(?:ilon)?|\w*momentum|\w*clip\w*|\w*max_(?:grad_)?norm"),
    _role("initial-values", "behaviour", "other initial values",
          r"init(?:_\w+)?|\w*init_(?:std|method|range)\w*|\w*initializer\w*"),
    _role("optimizer-state", "behaviour", "a resumed run without its optimizer's state",
          r"no_load_(?:optim|rng)|reset_optim\w*|load_optim\w*|override_opt\w*|finetune",
          r"(?:no_)?(?:load|restore)_optimizer\w*"),
    _role("data", "behaviour", "other data",
          r"\w*data_?(?:path|set|dir|file|root|mix|blend)\w*|\w*train_(?:data|file|split)\w*|tokenizer\w*|\w*vocab\w*",
          r"split|data|dataset[._]\w+"),
    _role("batch", "behaviour", "batches of another size",
          r"\w*batch_?size\w*|\w*(?:seq|sequence|context|block|max)_?len(?:gth)?s?|block_size|max_position\w*",
          r"tokens_per_\w+"),
    _role("model", "behaviour", "another model",
          r"(?:num_|n_)?(?:layers?|heads?|embd|experts?)|hidden_size|ffn_\w+|\w*hidden_\w*|d_model|model(?:[._]\w+)?",
          r"model_name\w*|activation\w*|moe_\w+|n_kv_heads|\w*_dim"),
    _role("data-loader", "speed", "another speed of the data loader",
          r"\w*num_workers|\w*prefetch\w*|\w*pin_memory|\w*persistent_workers"),
)  # fmt: skip
"""The first that fits a name counts."""
_OF_ONE_RUN = re.compile(
    r"(?:.*[._])?(?:\w*(?:output|log|save|dump|run|trace|tensorboard|tb|wandb|ckpt|checkpoint|work|cache|exp\w*)_?"
    r"(?:dir|folder|path|name|id|file|root)\w*|save|resume(?:_from\w*)?|load|(?:exp|experiment|job|run)(?:_?(?:name|id|tag))?|"
    r"name|tag|uuid|(?:node_|local_|global_)?rank|\w*port|\w*host(?:name)?|master_\w+|rdzv_\w+|\w*time(?:stamp)?|date|pid|"
    r"device|local_process_index|\w*wandb\w*|hub_\w+|logging_\w+|\w*_?interval|\w*verbos\w*|\w*_?steps?_per_print)"
)
"""Options of one run, one process or one place: a rerun has other values."""


def option_role(name: str) -> OptionRole | None:
    """The role of an option, by its name without `PREFIX`; None where nothing is known of it."""
    return next((one for one in ROLES if one.names.fullmatch(name)), None)


def option_changes(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[SettingChange]:
    """Options that differ; nothing where one run tells none. A name that one run leaves out is "unset" there."""
    if not a or not b:
        return
    for name in sorted(a.keys() | b.keys()):
        one, other = (told.get(name) for told in (a, b))
        values = [None if told is None else option_value(name, told) for told in (one, other)]
        if values[0] == values[1] or not (one or other):
            continue
        role = option_role(name)
        if role is None and (_OF_ONE_RUN.fullmatch(name) or None in values):
            continue
        shown = [value_of(name, told) if told else "unset" for told in (one, other)]
        changes = ((shown[0], shown[1], ()),)
        yield SettingChange(
            PREFIX + name,
            role.weight if role is not None else "unknown",
            changes,
            role.effect if role is not None else "",
        )


def option_value(name: str, value: str) -> str:
    """The canonical spelling of a value of an option: 1e-3 is 0.001."""
    try:
        return repr(float(value))
    except ValueError:
        return canonical_value(name, value)


def with_options(found: SettingsComparison, a: Mapping[str, str], b: Mapping[str, str]) -> SettingsComparison:
    """Settings with the options of the trainer among them."""
    changes = sorted([*found.changes, *option_changes(a, b)], key=lambda one: WEIGHTS.index(one.weight))
    return found._replace(changes=tuple(changes), compared=found.compared + len(a.keys() & b.keys()))


def equal_roles(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, str]:
    """Roles whose options both runs tell with equal values: role, and one option with its value."""
    changed = {role.role for one in option_changes(a, b) if (role := option_role(one.name.removeprefix(PREFIX)))}
    found: dict[str, str] = {}
    for name in sorted(a.keys() & b.keys()):
        role = option_role(name)
        if role is not None and role.role not in changed:
            found.setdefault(role.role, f"{name} is {a[name] or 'empty'} in both")
    return found
