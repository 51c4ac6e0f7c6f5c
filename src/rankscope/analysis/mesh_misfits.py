"""Findings about groups that do not fit into the device mesh which the others form."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.analysis.mesh import Mesh, Misfit
from rankscope.analysis.model import Culprit, Evidence, Finding, GroupRef
from rankscope.analysis.wording import fold, ranks_text
from rankscope.schema import Dataset, Group


def find_misfits(dataset: Dataset, mesh: Mesh | None, hosts: Mapping[int, str]) -> list[Finding]:
    """A warning for each group that is not what the grid makes of it."""
    groups = dataset.group_list
    return [_finding(groups, misfit, mesh, hosts) for misfit in mesh.misfits] if mesh is not None else []


def _finding(groups: tuple[Group, ...], misfit: Misfit, mesh: Mesh, hosts: Mapping[int, str]) -> Finding:
    group = groups[misfit.group]
    name = f"group {group.name} of {group.description}" if group.name else f"a group of {group.description}"
    listed = ",".join(map(str, group.ranks)) if len(group.ranks) <= 16 else fold(group.ranks)
    return Finding(
        kind="mesh-misfit",
        severity="warning",
        title=f"{name} does not fit into the mesh: {_what(misfit)}",
        explanation=(
            f"The groups form {mesh}. By that its members would be {fold(misfit.expected)}; the dumps say {listed}. "
            "Ranks that disagree about who is in a group wait for others than those that wait for them."
        ),
        culprit_ranks=misfit.ranks,
        culprits=tuple(Culprit(rank, hosts.get(rank)) for rank in misfit.ranks),
        confidence="medium",
        confidence_reasons=("the grid is recovered from the other groups, no dump states it",),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=tuple(_evidence(groups, group, misfit, mesh)),
        next_steps=(
            f"Print the device mesh of {ranks_text(misfit.ranks)} at the start: the ranks it is made of, and RANK, "
            "WORLD_SIZE and the sizes of its dimensions.",
        ),
    )


def _what(misfit: Misfit) -> str:
    twice = [rank for rank in misfit.duplicated if rank in misfit.expected]
    foreign = [rank for rank in misfit.duplicated if rank not in misfit.expected]
    parts = [
        f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} {what}"
        for ranks, what in ((foreign, "in another one, too"), (twice, "listed twice"), (misfit.missing, "in none"))
        if ranks
    ]
    return ", ".join(parts)


def _evidence(groups: tuple[Group, ...], group: Group, misfit: Misfit, mesh: Mesh) -> list[Evidence]:
    """Of each rank that is out of place the groups of this kind it is in, and its place on the grid."""
    out = []
    for rank in misfit.ranks:
        of = [g for g in groups if g.description == group.description and rank in g.ranks]
        said = " and ".join(f"group {g.name} ({fold(g.ranks)})" for g in of) or f"no group of {group.description}"
        out.append(Evidence(f"in {said}; its place is {mesh.where(rank)}", rank=rank))
    return out
