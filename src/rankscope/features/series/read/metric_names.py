"""Names of quantities in logs and event files, and the names that they share here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

NAMES = (
    "loss", "grad_norm", "lr", "params_norm", "num_zeros", "loss_scale", "step_s", "samples", "tokens", "skipped",
    "nans", "batch_hash", "data_s",
)  # fmt: skip
"""Names that series of different programs share."""
COUNTS = ("num_zeros", "samples", "tokens", "skipped", "nans", "batch_hash")
"""Quantities that are whole numbers: without a decimal point they are exact."""
_KNOWN = {
    "loss": (
        "reduced train loss", "loss", "lm loss", "total loss", "train loss", "training loss", "loss train",
        "train/loss", "loss/train",
        "train/lm loss", "loss_metrics/global_avg_loss", "actor/pg_loss", "policy loss",
        "train/CrossEntropyLoss", "train/CE loss", "cross entropy loss", "train/total_loss", "pg_loss", "mlm loss",
        "Train/Samples/train_loss", "train_loss_step", "train/loss_step", "loss_train", "ce loss", "ce_loss",
        "language loss", "avg loss", "lm loss value", "step loss", "loss/total", "Train loss/train/total",
        "loss/train/total",
    ),
    "grad_norm": (
        "grad norm", "gradient norm", "gnorm", "norm", "total norm", "global grad norm", "train/grad_norm",
        "actor/grad_norm", "optim/total_grad_norm", "total_grad_norm", "grad_norm/total", "global norm", "gradnorm",
        "gradients norm", "grad l2 norm", "actor_grad_norm", "clip/grad_norm", "grdn",
    ),
    "lr": (
        "lr", "learning rate", "train/lr", "actor/lr", "actor lr", "train/learning_rate", "lr-AdamW", "optim/lr",
        "Train/Samples/lr", "lr/group_0", "optim/learning_rate_group0", "learning_rate/default",
    ),
    "params_norm": ("params norm", "param norm", "parameter norm", "weight norm"),
    "num_zeros": ("num zeros", "number of zeros"),
    "loss_scale": ("loss scale", "Train/Samples/loss_scale", "grad scale"),
    "step_s": (
        "elapsed time per iteration", "train step timing", "train_step_timing in s", "step time", "iter time", "dt",
        "time", "seconds", "iteration time", "timing_s/step", "perf/time_per_step", "time per step", "sec/step",
        "updt_s", "total step time", "time/iter", "time per iteration", "batch time", "time_metrics/end_to_end",
    ),
    "data_s": (
        "data time", "data_time", "time_metrics/data_loading", "data loading time", "dataloader time", "dataload_time",
        "data wait", "data wait time", "batch-generator", "train/data_time", "perf/data_time", "time/data",
    ),
    "batch_hash": (
        "batch hash", "batch crc", "batch checksum", "batch id", "data hash", "data checksum", "input hash",
        "input ids hash", "train/batch_hash",
    ),
    "samples": ("consumed samples", "consumed train samples", "train/consumed_samples", "samples seen"),
    "tokens": (
        "consumed tokens", "num tokens", "tokens seen", "total tokens", "throughput/total_tokens",
        "num input tokens seen",
    ),
    "skipped": ("skipped", "number of skipped iterations", "skipped iterations", "skipped steps"),
    "nans": ("nans", "number of nan iterations", "nan iterations"),
}  # fmt: skip
_STEPS = (
    "global step/max steps", "global step", "global steps", "trainer/global_step", "num updates", "current steps",
    "step", "steps", "train step", "training step", "optimizer step", "completed step", "update", "updates",
    "iteration", "iterations", "iter", "iter num", "it", "global iter", "iter(train)", "training/global_step",
    "train/global_step", "n_iter", "batch", "i",
)  # fmt: skip
"""Names of the step, the best first: where a line has a step and an iteration, only the step counts updates."""
_UNIT = re.compile(r"[ _]*(?:\((ms|s|sec|secs|seconds)\)|(?<=[ _])(?:in )?(ms|s|seconds))$")
_BARE = re.compile(r"[^a-z/@]+")
_MILLISECONDS = "ms"


EPOCH = "epoch"
SUMMARY = "train_runtime"
"""A value in the last print of HF Trainer, whose loss is the mean of the whole run."""


class Quantity(NamedTuple):
    """The quantity of a series."""

    name: str
    raw_name: str
    factor: float = 1.0
    """Milliseconds are read as seconds."""

    @property
    def is_count(self) -> bool:
        """Whether its values are whole numbers; `25.2G` is rounded."""
        return self.name in COUNTS and self.factor == 1.0


def _bare(name: str) -> str:
    return _BARE.sub("", name.lower())


_NAMES = {_bare(alias): (name, place) for name, known in _KNOWN.items() for place, alias in enumerate(known)}
_STEP_PLACES = {_bare(alias): place for place, alias in reversed([*enumerate(_STEPS)])}
WORTH = re.compile(r"loss|acc|ppl|perplexity|reward|norm|persec|throughput|bpb|entropy")
"""Names of a line that has values of a training step."""
SKIPPED = re.compile(
    r"(?:^|.* )(?:eta|epoch|epochs|rank|pid|v_num|dp|pp|tp|cp|ep|line)$"
    r"|.*[ _]vs[ _](?:samples|steps|tokens)$|.*\.(?:py|cc|cpp|h)$",
    re.IGNORECASE,
)
"""Names that are no series."""


@lru_cache(1 << 14)
def step_place(name: str) -> int | None:
    """How good a name is as the one of a step, 0 for the best; None for others."""
    return _STEP_PLACES.get(_bare(name))


_COUNTS_OF_STEPS = frozenset({"steps", "iterations", "updates"})
"""Names of a step that are the length of the job, too: `steps: 30` in its configuration."""
_OF_LENGTH = frozenset({
    "max", "maximum", "total", "num", "per", "warmup", "accumulation", "eval", "save", "decay", "optimization",
    "remaining",
})  # fmt: skip
"""Words before the name of a step that make it a length or an interval."""
_MEASURED = re.compile(r"loss|acc|ppl|perplexity|reward|persec|throughput|bpb|entropy|gradnorm|gnorm")
_CHOSEN = re.compile(r"scale|weight|coef|type|smooth|clip|max|min|fn|func|alpha|beta|lambda|threshold|target")


def is_length(name: str, before: str = "") -> bool:
    """Whether a name of a step may be the length of the job; the word before it tells that, too."""
    return _bare(name) in _COUNTS_OF_STEPS or before.lower() in _OF_LENGTH


def is_measured(raw_name: str) -> bool:
    """Whether a quantity comes out of a step of training, and is no option: a loss, and not its scale."""
    name = _bare(raw_name)
    return _MEASURED.search(name) is not None and _CHOSEN.search(name) is None


@lru_cache(1 << 14)
def quantity_of(raw_name: str, unit: str = "") -> Quantity:
    """The quantity with a raw name, and with the unit that stands behind its value."""
    found = _UNIT.search(raw_name)
    told = (found[1] or found[2]) if found else unit
    short = raw_name[: found.start()] if found else raw_name
    known = _NAMES.get(_bare(raw_name)) or _NAMES.get(_bare(short))
    if known is None:
        return Quantity(raw_name, raw_name)
    return Quantity(known[0], raw_name, 0.001 if known[0] in ("step_s", "data_s") and told == _MILLISECONDS else 1.0)


def is_known(raw_name: str) -> bool:
    """Whether a raw name is one of a shared name."""
    return quantity_of(raw_name).name in NAMES


def distinct(quantities: Sequence[Quantity]) -> list[Quantity]:
    """The quantities of one print: of several with one name, the plainest keeps it, and the others have raw names."""
    best: dict[str, int] = {}
    for at, quantity in enumerate(quantities):
        other = best.get(quantity.name)
        if other is None or _place(quantity) < _place(quantities[other]):
            best[quantity.name] = at
    seen: Counter[str] = Counter()
    found = []
    for at, one in enumerate(quantities):
        seen[one.raw_name] += 1
        # `loss[loss=0.47], tot_loss[loss=0.51]`
        raw = one.raw_name if seen[one.raw_name] == 1 else f"{one.raw_name} #{seen[one.raw_name]}"
        keeps = one.name in NAMES and best[one.name] == at
        found.append(one._replace(name=one.name if keeps else raw, raw_name=raw))
    return found


def _place(quantity: Quantity) -> int:
    known = _NAMES.get(_bare(quantity.raw_name))
    return known[1] if known is not None else 99
