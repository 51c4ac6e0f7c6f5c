"""Pairs of simulated runs of one job: equal but for clocks, names and lengths of rings, or with one change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from rankscope.analysis import analyse
from rankscope.assemble.assembly import assemble
from rankscope.assemble.load import load
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.schema.tables import SCALARS
from tests.simulator.instructions import P2P, Batch, Collective, Instruction
from tests.simulator.job import Plan, plan, run
from tests.simulator.options import DumpOptions, Moment
from tests.simulator.programs import Style
from tests.simulator.topology import WORLD, Layout, Topology

Edit = Callable[[Collective], Sequence[Collective]]
SKEW_NS = 40_000_000


def one_run(
    job: Plan, seed: int, *, ring: int = 2000, moment: Moment = "ended", title: str = "run", timing: bool = True
) -> ComparedRun:
    """The run of a plan, written as dumps and read again; clocks and speeds are drawn from the seed."""
    with TemporaryDirectory() as folder:
        run(job, seed, SKEW_NS).write(Path(folder), moment, DumpOptions(ring=ring, timing=timing))
        dataset = load([Path(folder)])
    return ComparedRun(title, dataset, analyse(dataset))


def job_of(layout: Layout, style: Style, steps: int = 4, past: int = 0) -> Plan:
    """A plan without faults."""
    return plan(layout, style, steps, past)


def edited(
    job: Plan, group: str, number: int, edit: Edit, steps: Sequence[int] = (), ranks: Sequence[int] = ()
) -> Plan:
    """The plan in which members issue something else in place of the `number`-th collective of a group.

    It holds in the given steps and on the given ranks; without any, in all steps and on all members.
    """
    changed = dict(job.steps)
    for rank in ranks or job.topology.groups[group]:
        programs = list(job.steps[rank])
        for step in steps or range(len(programs)):
            programs[step] = _edited(programs[step], group, number, edit)
        changed[rank] = programs
    return replace(job, steps=changed)


def _edited(program: Sequence[Instruction], group: str, number: int, edit: Edit) -> list[Instruction]:
    places = [i for i, one in enumerate(program) if isinstance(one, Collective) and one.group == group]
    at = places[number]
    one = program[at]
    assert isinstance(one, Collective)
    return [*program[:at], *edit(one), *program[at + 1 :]]


def larger(one: Collective) -> Sequence[Collective]:
    """The call with one more element in the first tensor."""
    grown = tuple((shape[0] + 1, *shape[1:]) for shape in one.inputs)
    return (replace(one, inputs=grown, outputs=grown if one.op == "all_reduce" else one.outputs),)


def twice(one: Collective) -> Sequence[Collective]:
    """The call, and behind it a barrier-like one of a single element."""
    return (one, replace(one, op="all_reduce", inputs=((3,),), outputs=((3,),)))


def left_out(one: Collective) -> Sequence[Collective]:
    """Nothing."""
    return ()


def halved(one: Collective) -> Sequence[Collective]:
    """The call with another type."""
    return (replace(one, dtype="Half"),)


def renamed(job: Plan) -> Plan:
    """The plan with other names of groups, as another count of them in the process gives."""
    names = {name: name if name == WORLD else str(100 - int(name)) for name in job.topology.groups}
    known = job.topology
    topology = Topology(
        known.layout, {names[name]: ranks for name, ranks in known.groups.items()},
        {names[name]: text for name, text in known.descriptions.items()},
        {rank: {kind: names[name] for kind, name in own.items()} for rank, own in known.of.items()},
    )  # fmt: skip
    steps = {rank: [[_renamed(one, names) for one in step] for step in own] for rank, own in job.steps.items()}
    return replace(job, topology=topology, steps=steps)


def _renamed(one: Instruction, names: dict[str, str]) -> Instruction:
    if isinstance(one, Collective):
        inner = tuple(replace(part, group=names[part.group]) for part in one.inner)
        return replace(one, group=names[one.group], inner=inner)
    if isinstance(one, Batch):
        return replace(one, group=names[one.group], inner=tuple(replace(p, group=names[p.group]) for p in one.inner))
    return replace(one, group=names[one.group]) if isinstance(one, P2P) else one


def swapped(job: Plan, step: int) -> Plan:
    """The plan in which all ranks issue the last two collectives of a step the other way round."""
    changed = {}
    for rank, steps in job.steps.items():
        program = list(steps[step])
        one, other = [i for i, call in enumerate(program) if isinstance(call, Collective)][-2:]
        program[one], program[other] = program[other], program[one]
        changed[rank] = [*steps[:step], program, *steps[step + 1 :]]
    return replace(job, steps=changed)


# Training series of reruns.

NOISES = ("same", "rounding", "seeds")
"""Losses of reruns: equal; parting slowly from a rounding error on; apart from the first step on."""
LOGGED = 120
"""Logged steps of a run."""


def trained_run(seed: int, noise: str = "seeds", slower: float = 1.0, loss: float = 0.0) -> ComparedRun:
    """A run that left nothing but training series."""
    dataset = assemble([], f"run-{seed}", None, None, None)
    return ComparedRun(f"run-{seed}", dataset, analyse(dataset), training(seed, noise, slower, loss=loss))


def training(seed: int, noise: str, slower: float = 1.0, offset: float = 0.01, loss: float = 0.0) -> pl.DataFrame:
    """Series of one run: losses, gradient norms and times of steps; `loss` is added from a third of the steps on."""
    rng = np.random.default_rng(seed)
    steps = np.arange(1, LOGGED + 1)
    walk = np.cumsum(rng.normal(0, 1e-3, LOGGED))
    apart = {"same": 0.0 * walk, "rounding": 1e-7 * rng.normal() * np.exp(steps / 12), "seeds": walk}[noise]
    losses = 2 + 3 * np.exp(-steps / 30) + apart + np.where(steps > LOGGED // 3, loss, 0)
    times = slower * np.exp(rng.normal(0, offset) + rng.normal(0, 0.03, LOGGED))
    named = {"loss": losses, "grad_norm": 1.4 + 10 * apart, "step_s": times}
    return pl.concat([_rows(name, values) for name, values in named.items()])


def _rows(name: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pl.DataFrame:
    told = {"attempt": 0, "segment": 0, "name": name, "raw_name": name, "resolution": 0.0}
    told |= {"source": "wandb", "file": "run.wandb"}
    columns = {"step": range(1, len(values) + 1), "value": values, "line": range(len(values))}
    table = pl.DataFrame({**columns, **{column: [value] * len(values) for column, value in told.items()}})
    empty = [pl.lit(None, dtype).alias(column) for column, dtype in SCALARS.items() if column not in table.columns]
    return table.with_columns(empty).select(list(SCALARS)).cast(SCALARS)  # type: ignore[arg-type]
