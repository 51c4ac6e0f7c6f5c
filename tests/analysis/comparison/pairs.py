"""Pairs of simulated runs of one job: equal but for clocks, names and lengths of rings, or with one change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rankscope.analysis import analyse
from rankscope.analysis.comparison.model import ComparedRun
from rankscope.assemble.load import load
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
