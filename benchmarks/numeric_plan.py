"""Layouts of the small jobs, and the faults that can be planted in their numbers.

Faults of code and kinds of silent bugs of Megatron-LM that TTrace (arXiv 2506.09280) lists are planted by the same
names in all layouts where they can happen; faults of devices are flips of bits, wrong kernels and wires.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

BEGIN = 2
"""Step of the first wrong number, from 0: rules that learn see two right steps before."""
STEPS = 5
"""Steps of a job: laws of healthy steps take a fault for one in three steps."""
FAULTY_RANK = 1
DTYPES, LEVELS = ("f32", "bf16"), ("collectives", "modules")


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism, and who averages gradients."""

    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    sequence: bool = False
    wrap: str = "manual"
    tied: bool = False
    """Whether the head has the weights of the embedding."""
    recomputes: bool = False
    """Whether the last block is computed again in the backward pass."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.data * self.pipeline


LAYOUTS = {
    "one": Layout(), "one-tied": Layout(tied=True),
    "tp": Layout(2, 2), "sp": Layout(2, 2, sequence=True), "ddp": Layout(data=4, wrap="ddp", recomputes=True),
    "fsdp": Layout(data=4, wrap="fsdp"), "pp": Layout(data=2, pipeline=2, tied=True),
    "zero": Layout(data=4, wrap="zero", tied=True), "flips": Layout(data=4),
}  # fmt: skip
"""Layouts by name. Ranks are ordered pipeline, data, tensor."""


@dataclass(frozen=True)
class Fault:
    """A planted fault."""

    layouts: tuple[str, ...]
    """Layouts in which it is planted."""
    kind: str = "code"
    """Who makes it: "code", "data" or "device"."""


FAULTS = {
    # operations that are left out, or go elsewhere
    "missing-tp-sync": Fault(("tp",)),
    "wrong-group": Fault(("tp", "sp")),
    "unsynced-parameter": Fault(("tp", "sp", "pp")),
    "no-sync": Fault(("ddp",)),
    "norm-not-synced": Fault(("sp",)),
    "ends-not-synced": Fault(("pp",)),
    "untied": Fault(("zero",)),
    # values that are wrong where they are made
    "embedding-mask": Fault(("tp", "sp")),
    "causal-mask": Fault(("tp", "fsdp")),
    "attention-scale": Fault(("tp", "ddp")),
    "layer-twice": Fault(("pp",)),
    "bias-on-every-rank": Fault(("tp", "sp")),
    "dropout-seed": Fault(("tp", "sp")),
    "norm-scale": Fault(("tp", "sp")),
    "recompute": Fault(("ddp",)),
    "cast": Fault(("tp", "ddp")),
    "early-read": Fault(("tp",)),
    "stale-buffer": Fault(("tp", "sp", "pp")),
    # scales of gradients and losses, optimizer
    "no-averaging": Fault(("tp", "pp")),
    "loss-denominator": Fault(("tp", "ddp")),
    "loss-scaling": Fault(("sp", "fsdp")),
    "optimizer-lost": Fault(("tp", "ddp")),
    "decay-on-norm": Fault(("tp", "fsdp")),
    "master-cast": Fault(("zero",)),
    "update-lost": Fault(("zero",)),
    # data
    "same-data": Fault(("tp", "ddp", "fsdp"), "data"),
    "data-order": Fault(("tp", "ddp"), "data"),
    # devices and wires
    "weight-bit-flip": Fault(("tp", "ddp", "fsdp", "pp"), "device"),
    "output-bit-flip": Fault(("tp", "sp"), "device"),
    "wire-bit-flip": Fault(("tp",), "device"),
    "dropped-contribution": Fault(("tp", "sp"), "device"),
    "received-wrong": Fault(("pp",), "device"),
    "kernel-noise": Fault(("tp", "ddp"), "device"),
}  # fmt: skip
"""Faults by name. Rank 1 is the faulty one where one is; a job notes who does something wrongly, and when."""


@dataclass(frozen=True)
class NumericJob:
    """One job."""

    layout: str
    fault: str = ""
    dtype: str = "f32"
    level: str = "collectives"
    seed: int = 0
    data: int = 0
    """Degree of data parallelism; 0 for that of the layout."""
    begin: int = BEGIN
    steps: int = 4
    perturb: int = 0
    """Seed of a change of the embedding by half an epsilon; 0 for none."""
    declares: bool = False
    """Whether it says which tensors are parts of larger ones."""

    @property
    def shape(self) -> Layout:
        """The degrees of parallelism."""
        layout = LAYOUTS[self.layout]
        return replace(layout, data=self.data) if self.data else layout

    @property
    def name(self) -> str:
        """A name for its folder."""
        odd = [f"begin{self.begin}"] if self.begin != BEGIN and self.fault else []
        odd += [f"perturbed{self.perturb}"] if self.perturb else []
        odd += ["declared"] if self.declares else []
        size = f"{self.layout}{self.shape.ranks}"
        return "-".join([size, self.fault or "healthy", self.dtype, self.level, f"seed{self.seed}", *odd])

    @property
    def trusted(self) -> NumericJob:
        """The same job without its fault."""
        return replace(self, fault="", begin=BEGIN)


def planned(dtypes: Sequence[str], levels: Sequence[str], faults: Sequence[str], begin: int) -> Iterator[NumericJob]:
    """A job for each fault, layout, type and level."""
    for level in levels:
        for name in faults:
            for layout in FAULTS[name].layouts:
                yield from (NumericJob(layout, name, dtype, level, begin=begin, steps=STEPS) for dtype in dtypes)


SIZES = {"ddp": (2, 3, 4, 8), "fsdp": (2, 4, 8), "zero": (2, 4, 8), "tp": (1, 2, 4), "sp": (1, 2, 4), "pp": (1, 2, 4)}
"""Degrees of data parallelism of healthy jobs, which have 2 to 8 ranks."""


def healthy_jobs(count: int) -> list[NumericJob]:
    """Jobs without a fault, over layouts, sizes, types, levels and seeds."""
    shapes = [(layout, data) for layout, sizes in SIZES.items() for data in sizes]
    return [
        NumericJob(*_picked(shapes, n)[:1], "", DTYPES[n // len(shapes) % 2], LEVELS[n % 2], 1000 + n,
                   _picked(shapes, n)[1], steps=STEPS)
        for n in range(count)
    ]  # fmt: skip


def _picked(shapes: Sequence[tuple[str, int]], number: int) -> tuple[str, int]:
    return shapes[number % len(shapes)]
