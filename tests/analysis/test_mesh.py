"""Which grid the groups of a job form, and which groups do not fit."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.mesh_recovery import LONGEST_NAME, dimension_name, find_misfits, recover_mesh
from rankscope.analysis.model import Mesh
from tests.analysis.meshes import CP, DP, DP_CP, EMB, EP, MP, PP, TP, Groups, grid, job_of, megatron
from tests.builders import JobBuilder

PAIRS = {f"{TP}:{i}": [2 * i, 2 * i + 1] for i in range(4)}
EIGHT: Groups = {**PAIRS, **grid({"dp": 4, "tp": 2}, {DP: ["dp"]})}
"""Eight ranks as dp 4 x tp 2."""


def mesh_of(world: int, groups: Groups, **more: object) -> Mesh:
    mesh = recover_mesh(job_of(world, groups, **more))  # type: ignore[arg-type]
    assert mesh is not None
    return mesh


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (TP, "tp"), (PP, "pp"), (DP, "dp"), (DP_CP, "dp_cp"), (CP, "cp"), (EP, "ep"), (MP, "mp"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "etp"), ("EXPERT_DATA_PARALLEL_GROUP", "edp"), ("tensor_parallel", "tp"),
        ("mesh_dp_shard", "dp_shard"), ("mesh_tp", "tp"), ("mesh_dim_0", "dim_0"), ("mesh_1", ""), ("undefined", ""),
        ("", ""), ("pipe parallel", "pp"), ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "tp_dp_cp"),
        ("mesh_" + "x" * 500, "x" * LONGEST_NAME), ("default_pg", "default"),
    ],
)  # fmt: skip
def test_descriptions_name_dimensions(description: str, name: str) -> None:
    assert dimension_name(description) == name


def test_megatron() -> None:
    mesh = mesh_of(*megatron(pp=2, dp=4, cp=2, tp=2))
    assert str(mesh) == "pp 2 x dp 4 x cp 2 x tp 2, tp innermost"
    assert [d.stride for d in mesh.dimensions] == [16, 4, 2, 1]
    assert mesh.place(21) == (1, 1, 0, 1)
    assert mesh.where(21) == "pp 1, dp 1, cp 0, tp 1"
    assert mesh.along("pp") == {rank: rank // 16 for rank in range(32)}
    assert mesh.along("sp") is None
    assert (mesh.place(32), mesh.where(32), mesh.misfits) == (None, "", ())


def test_data_parallel_is_told_from_its_product_with_context_parallel() -> None:
    groups = {
        name: ranks for name, ranks in megatron(pp=2, dp=4, cp=2, tp=2)[1].items() if not name.startswith(DP + ":")
    }
    assert str(mesh_of(32, groups)) == "pp 2 x dp 4 x cp 2 x tp 2, tp innermost"
    without_cp = grid({"pp": 2, "dp": 2, "tp": 2}, {TP: ["tp"], PP: ["pp"], DP_CP: ["dp"]})
    assert str(mesh_of(8, without_cp)) == "pp 2 x dp 2 x tp 2, tp innermost"


def test_device_mesh_with_flattened_dimensions() -> None:
    kinds = {f"mesh_{name}": [name] for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}
    kinds |= {"mesh_dp": ["dp_replicate", "dp_shard"], "mesh_dp_shard_cp": ["dp_shard", "cp"]}
    groups = grid({"pp": 2, "dp_replicate": 2, "dp_shard": 2, "cp": 2, "tp": 4}, kinds)
    assert str(mesh_of(64, groups)) == "pp 2 x dp_replicate 2 x dp_shard 2 x cp 2 x tp 4, tp innermost"


def test_any_order_of_dimensions() -> None:
    mesh = mesh_of(*megatron(tp=2, pp=4, dp=3))
    assert str(mesh) == "tp 2 x pp 4 x dp 3, dp innermost"
    assert mesh.place(13) == (1, 0, 1)


def test_groups_without_a_description() -> None:
    mesh = mesh_of(8, grid({"a": 2, "b": 4}, {"undefined": ["a"], "": ["b"]}))
    assert str(mesh) == "dim0 2 x dim1 4, dim1 innermost"
    assert recover_mesh(job_of(8, grid({"a": 2, "b": 4}, {"undefined": ["b"]}))) is None


def test_dimensions_with_numbers_for_names() -> None:
    mesh = mesh_of(8, grid({"a": 2, "b": 4}, {"mesh_dim_0": ["a"], "mesh_dim_1": ["b"]}))
    assert str(mesh) == "dim_0 2 x dim_1 4, dim_1 innermost"


def test_groups_with_a_description_each_and_a_dimension_that_no_group_names() -> None:
    groups = {f"TENSOR_PARALLEL_{i}": [4 * i + j for j in range(4)] for i in range(4)}
    assert str(mesh_of(16, groups)) == "replica 4 x tp 4, tp innermost"


def test_expert_groups_run_across_the_grid() -> None:
    _, groups = megatron(pp=2, dp=4, tp=2)
    groups |= {f"{EP}:{i}": list(range(4 * i, 4 * i + 4)) for i in range(4)}
    mesh = mesh_of(16, groups)
    assert str(mesh) == "pp 2 x dp 4 x tp 2, tp innermost; also ep 4"
    assert mesh.where(6) == "pp 0, dp 3, tp 0, ep 2"
    assert mesh.along("ep") == {rank: rank % 4 for rank in range(16)}


def test_a_second_grid_of_experts_does_not_replace_the_first() -> None:
    sizes = {"pp": 2, "edp": 2, "ep": 2, "etp": 2}
    experts = {
        "EXPERT_DATA_PARALLEL_GROUP": ["edp"], EP: ["ep"], "EXPERT_TENSOR_PARALLEL_GROUP": ["etp"],
    }  # fmt: skip
    world, groups = megatron(pp=2, dp=2, tp=4)
    mesh = mesh_of(world, groups | grid(sizes, experts))
    assert str(mesh).startswith("pp 2 x dp 2 x tp 4, tp innermost; also ")


def test_the_ends_of_a_pipeline_are_no_dimension() -> None:
    world, groups = megatron(pp=4, dp=2, tp=2)
    groups |= {f"{EMB}:{i}": [i, i + 12] for i in range(4)}
    groups |= {f"pp_pairs:{i}": [i, i + 4] for i in range(12)}
    mesh = mesh_of(world, groups)
    assert (str(mesh), mesh.misfits) == ("pp 4 x dp 2 x tp 2, tp innermost", ())


def test_a_placement_without_strides() -> None:
    shuffled = [3, 0, 7, 4, 1, 6, 2, 5]
    groups = {name: sorted(shuffled[r] for r in ranks) for name, ranks in EIGHT.items()}
    rows = {f"{TP}:{i}": [i, 7 - i] for i in range(4)} | {f"{DP}:0": [0, 1, 2, 3], f"{DP}:1": [7, 6, 5, 4]}
    mesh = recover_mesh(job_of(8, rows))
    assert mesh is not None
    assert [d.stride for d in mesh.dimensions if d.name == "tp"] == [None]
    assert recover_mesh(job_of(8, groups)) is None


def test_groups_that_nobody_left_are_filled_in() -> None:
    world, groups = megatron(pp=2, dp=2, tp=2)
    mesh = mesh_of(world, groups, no_dump=(2, 3))
    assert (str(mesh), mesh.misfits) == ("pp 2 x dp 2 x tp 2, tp innermost", ())


def test_members_inferred_from_entries_form_a_grid_even_where_one_never_came() -> None:
    groups = {**EIGHT, f"{TP}:3": [6]}
    mesh = mesh_of(8, groups, inferred=True)
    assert (str(mesh), mesh.misfits) == ("dp 4 x tp 2, tp innermost", ())


def test_a_grid_of_some_of_the_ranks() -> None:
    mesh = mesh_of(12, EIGHT)
    assert str(mesh) == "dp 4 x tp 2, tp innermost; 8 of 12 ranks are on it"


@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"a:0": [0, 1, 2], "a:1": [3, 4], "b:0": [0, 5], "b:1": [2, 7]},
        {f"pairs:{i}": [i, i + 1] for i in range(7)},
        {f"{TP}:0": [0, 1, 2, 3], f"{TP}:1": [4, 5], f"{TP}:2": [6, 7], f"{PP}:0": [0, 4]},
        {f"{EMB}:{i}": [i, i + 6] for i in range(2)},
        {f"{TP}:{i}": [i] for i in range(8)},
        {f"{TP}:0": [0, 1]},
    ],
    ids=["one group", "odd", "chain", "two sizes", "ends", "alone", "one pair"],
)
def test_no_grid_no_word(groups: Groups) -> None:
    dataset = job_of(8, groups)
    assert recover_mesh(dataset) is None
    assert find_misfits(dataset, None, {}) == []


# What does not fit


def misfits(groups: Groups, **more: object) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    mesh = recover_mesh(job_of(8, groups, **more))  # type: ignore[arg-type]
    return [(m.expected, m.duplicated, m.missing) for m in mesh.misfits] if mesh is not None else []


def test_a_rank_in_two_groups_and_one_in_none() -> None:
    dataset = job_of(8, {**EIGHT, f"{TP}:3": [5, 7]})
    mesh = recover_mesh(dataset)
    found = find_misfits(dataset, mesh, {5: "node00"})
    assert [(f.kind, f.severity, f.root_cause, f.culprit_ranks) for f in found] == [
        ("mesh-misfit", "warning", False, (5, 6))
    ]
    assert "rank 5 is in another one as well, rank 6 is in none" in found[0].title
    assert "Its members should then be 6,7; the dumps say 5,7" in found[0].explanation
    assert found[0].culprits[0].host == "node00"
    assert [(e.rank, e.text) for e in found[0].evidence] == [
        (5, f"in group {TP}:2 (4,5) and group {TP}:3 (5,7); its place is dp 2, tp 1"),
        (6, f"in no group of {TP}; its place is dp 3, tp 0"),
    ]


def test_a_group_with_a_member_too_few() -> None:
    sizes = {"dp": 2, "tp": 4}
    whole = grid(sizes, {TP: ["tp"], DP: ["dp"]})
    assert misfits({**whole, f"{TP}:1": [4, 5, 6]}) == [((4, 5, 6, 7), (), (7,))]
    assert misfits({**whole, f"{TP}:1": [4, 5, 6, 6]}) == [((4, 5, 6, 7), (6,), (7,))]


def test_what_a_missing_dump_may_explain_is_not_held_against_anybody() -> None:
    whole = grid({"dp": 2, "tp": 4}, {TP: ["tp"], DP: ["dp"]})
    assert misfits({**whole, f"{TP}:1": [4, 5, 6]}, no_dump=(7,)) == []


@pytest.mark.parametrize(
    "odd",
    [
        {f"{TP}:3": [6, 5], f"{TP}:2": [4, 7]},
        {f"{TP}:4": [1, 2]},
        {f"{TP}:4": [0, 1, 2, 3]},
        {f"{TP}:3": [1, 2]},
    ],
    ids=["swapped", "one more across two", "one more of another size", "a rank with a dump in none"],
)
def test_other_oddities_are_not_judged(odd: Groups) -> None:
    assert misfits({**EIGHT, **odd}) == []


def test_without_a_grid_of_the_others_nothing_is_a_misfit() -> None:
    assert misfits({**PAIRS, f"{TP}:3": [5, 7]}) == []
    assert misfits({**EIGHT, f"{TP}:3": [5, 7]}, inferred=True) == []


def test_only_a_job_that_hangs_is_told_of_misfits() -> None:
    job = JobBuilder(8, {**EIGHT, f"{TP}:3": [5, 7]})
    job.descriptions |= {name: name.partition(":")[0] for name in EIGHT}
    job.collective()
    assert "mesh-misfit" not in [f.kind for f in analyse(job.build()).findings]
    job.collective(ranks=[0, 1, 2, 3, 4, 5, 7], state="scheduled")
    analysis = analyse(job.build())
    assert [f.kind for f in analysis.findings if f.severity != "info"] == ["missing-rank", "mesh-misfit"]
    assert analysis.culprits == (6,)


def test_random_grids_are_recovered_whatever_dumps_are_missing() -> None:
    rng = random.Random(0)
    for _ in range(24):
        names = rng.sample(["tp", "pp", "dp", "cp"], rng.randint(2, 4))
        sizes = {name: rng.choice([2, 2, 3, 4]) for name in names}
        world, groups = megatron(**sizes)
        assert str(mesh_of(world, groups)).startswith(" x ".join(f"{n} {s}" for n, s in sizes.items()))
        lost = rng.sample(range(world), rng.randint(0, world - 1))
        mesh = recover_mesh(job_of(world, groups, no_dump=lost))
        assert mesh is None or not mesh.misfits
        if mesh is not None:
            assert prod(d.size for d in mesh.dimensions) == len(mesh.places)


def test_groups_that_are_gone_or_drawn_by_lot_accuse_nobody() -> None:
    rng = random.Random(1)
    for _ in range(60):
        world, groups = megatron(pp=2, dp=2, tp=2)
        for name in rng.sample(sorted(groups), rng.randint(1, 6)):
            del groups[name]
        for number in range(rng.randint(0, 6)):
            groups[f"{rng.choice(['odd', 'undefined', 'moe'])}:{number}"] = rng.sample(range(world), rng.randint(2, 5))
        mesh = recover_mesh(job_of(world, groups))
        assert mesh is None or not mesh.misfits


def test_hostile_groups_do_no_harm() -> None:
    dataset = job_of(4, {"\x1b[31m:0": [0, 0, 0], "x:0": [2**31 - 1, 1], "x:1": [3, 1, 2]})
    broken = replace(dataset, groups=dataset.groups.with_columns(description=pl.lit("\x1b[31mmesh_tp")))
    assert recover_mesh(dataset) is None
    assert recover_mesh(broken) is None
    assert recover_mesh(replace(dataset, world_size=0)) is None


def test_what_no_group_runs_along_is_a_replica_only_where_it_is_outermost() -> None:
    assert str(mesh_of(8, grid({"dp": 4, "tp": 2}, {DP: ["dp"]}))) == "dp 4 x rest 2, rest innermost"
