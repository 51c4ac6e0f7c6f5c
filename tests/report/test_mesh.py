"""The device mesh in the reports: in the head, and beside the accused."""

from __future__ import annotations

from dataclasses import replace

import orjson

from rankscope.analysis.model import Analysis, Dimension, Mesh
from rankscope.analysis.places import Places
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.redact import Redaction
from rankscope.report.text import render_text
from rankscope.report.words import on_mesh
from rankscope.schema import Dataset
from tests.builders import JobBuilder
from tests.report import samples

PLACES = {rank: (rank // 2, rank % 2) for rank in range(4)}
MESH = Mesh((Dimension("dp", 2, 2), Dimension("tp", 2, 1)), PLACES, 4, also=((Dimension("ep", 4, None), {3: 3}),))


def on_a_mesh(mesh: Mesh = MESH) -> tuple[Dataset, Analysis]:
    dataset, analysis = samples.hang()
    return dataset, replace(analysis, mesh=mesh)


def test_the_grid_stands_in_the_head_and_the_place_beside_the_accused() -> None:
    text = render_text(*on_a_mesh())
    assert "mesh: dp 2 x tp 2, tp innermost; also ep 4\n" in text
    assert "   mesh       rank 3 is dp 1, tp 1, ep 3\n" in text
    assert "mesh" not in render_text(*samples.healthy())


def test_markdown_says_the_same() -> None:
    text = render_markdown(*on_a_mesh())
    assert "| Mesh | dp 2 x tp 2, tp innermost; also ep 4 |" in text
    assert "| On the mesh | rank 3 is dp 1, tp 1, ep 3 |" in text


def test_json_has_the_grid_and_the_places_of_the_culprits() -> None:
    assert orjson.loads(render_json(*on_a_mesh()))["mesh"] == {
        "dimensions": [{"name": "dp", "size": 2, "stride": 2}, {"name": "tp", "size": 2, "stride": 1}],
        "also": [{"name": "ep", "size": 4, "stride": None}],
        "ranks": 4,
        "places": {"3": {"dp": 1, "tp": 1}},
    }
    assert orjson.loads(render_json(*samples.hang()))["mesh"] is None


def test_of_many_it_is_said_what_they_have_in_common() -> None:
    finding = samples.hang()[1].findings[0]
    mesh = Mesh((Dimension("pp", 2, 8), Dimension("tp", 8, 1)), {r: (r // 8, r % 8) for r in range(16)}, 16)
    assert on_mesh(replace(finding, culprit_ranks=tuple(range(8, 14))), mesh) == "all of them are pp 1"
    assert on_mesh(replace(finding, culprit_ranks=(7, 8, 9, 10, 11)), mesh) == ""
    assert on_mesh(replace(finding, culprit_ranks=(0, 9)), mesh) == "rank 0 is pp 0, tp 0; rank 9 is pp 1, tp 1"
    assert on_mesh(replace(finding, culprit_ranks=(99,)), mesh) == ""
    assert on_mesh(finding, None) == ""


def test_a_name_of_a_dimension_is_hostile_text() -> None:
    evil = replace(MESH, dimensions=(Dimension(samples.EVIL, 2, 2), MESH.dimensions[1]))
    assert all(line.isprintable() for line in render_text(*on_a_mesh(evil)).split("\n"))
    lines = render_markdown(*on_a_mesh(evil)).split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("# [x]") for line in lines)
    assert b"\x1b" not in render_json(*on_a_mesh(evil))


def test_a_rack_that_is_spoken_of_has_a_stand_in_and_is_still_one_rack() -> None:
    made = JobBuilder(8)
    made.collective()
    made.collective(ranks=[0, 1, 2, 3, 6, 7], state="scheduled")
    dataset = made.build()
    hosts = [f"rack0{7 + rank // 4}-node{rank}" for rank in range(8)]
    files = dataset.files.with_columns(host=dataset.files["rank"].replace_strict(list(range(8)), hosts))
    redacted = Redaction().dataset(replace(dataset, files=files))
    assert set(redacted.files["host"]) == {f"host-{rank + 1}.rack-{1 + rank // 4}" for rank in range(8)}
    plain, shown = Places(replace(dataset, files=files)), Places(redacted)
    assert [len(own) for own in plain._units.values()] == [len(own) for own in shown._units.values()]
