"""Models that differ between peers, or are not sharded, wrapped or reduced; and healthy ones that accuse nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from rankscope.features.model.model import MODEL_RESULTS
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.model_writer import Row, buffer, described_job, parameter, transformer

PAIRS = (range(2), range(2, 4))
KINDS = ("model-mismatch", "partial-tensor", "unsharded-parameter", "unwrapped-parameter", "uneven-shards")


def model_findings(job: Dataset) -> list[Finding]:
    return [finding for finding in analyse(job).findings if finding.kind in KINDS]


def changed(rank: int, place: int, of: int = 2, **values: Any) -> list[Row]:
    """The model with another value in one parameter of rank `of`."""
    rows = transformer(4)
    rows[place] |= values if rank == of else {}
    return rows


@pytest.mark.parametrize(
    ("values", "words"),
    [({"requires_grad": False}, "0.up: frozen on rank 2, trained on ranks 0,1,3"),
     ({"shape": [512, 256]}, "0.up: shape [512,256] on rank 2, [1024,256] on ranks 0,1,3"),
     ({"dtype": "bfloat16"}, "0.up: dtype bfloat16 on rank 2"), ({"device": "cpu"}, "0.up: device cpu on rank 2"),
     ({"name": "0.upp"}, "rank 2 lacks 0.up")],
)  # fmt: skip
def test_a_rank_that_differs_is_named_with_the_parameter(values: Row, words: str) -> None:
    job = described_job(lambda rank: changed(rank, 2, **values))
    (found,) = model_findings(job)
    assert (found.kind, found.culprit_ranks, found.severity) == ("model-mismatch", (2,), "warning")
    assert words in found.title and words in analyse(job).verdict


def test_of_two_peers_nobody_is_accused() -> None:
    (found,) = model_findings(described_job(lambda rank: changed(rank, 2, requires_grad=False), PAIRS))
    assert (found.culprit_ranks, found.candidates) == ((), (2, 3))


def test_without_a_mesh_one_frozen_parameter_is_named_and_a_frozen_stage_is_not_accused() -> None:
    (found,) = model_findings(described_job(lambda rank: changed(rank, 2, requires_grad=False), ()))
    assert (found.culprit_ranks, found.confidence) == ((2,), "medium")
    (stage,) = model_findings(described_job(lambda rank: transformer(1, requires_grad=rank > 0), ()))
    assert (stage.culprit_ranks, stage.candidates, stage.severity, stage.confidence) == ((), (), "info", "low")


def whole_embedding(_: int) -> list[Row]:
    return [parameter("embed", (2048, 256)), *transformer(4)[1:]]


def test_an_embedding_that_no_wrapper_took_is_named_once() -> None:
    (found,) = model_findings(described_job(whole_embedding))
    assert (found.kind, found.severity, found.culprit_ranks) == ("unsharded-parameter", "warning", ())
    assert "embed is not sharded: each of ranks 0-3 holds all 2 MiB" in found.title
    assert "does not reduce its gradient" in found.explanation


def test_a_trained_parameter_outside_of_ddp_is_named() -> None:
    def rows(_: int) -> list[Row]:
        return [*transformer(1, wrapper="ddp", group=0), parameter("head", (8, 256))]

    (found,) = model_findings(described_job(rows))
    assert (found.kind, found.severity) == ("unwrapped-parameter", "warning") and "head" in found.title


@pytest.mark.parametrize(
    ("values", "severity"),
    [({"placements": ["P(sum)"], "local": [1024, 256]}, "warning"),
     ({"gradient_placements": ["P(sum)"], "state_bytes": 0}, "info"),
     ({"gradient_placements": ["P(sum)"], "state_placements": ["P(sum)"]}, "warning")],
)  # fmt: skip
def test_a_partial_tensor_is_named_with_its_rank(values: Row, severity: str) -> None:
    (found,) = model_findings(described_job(lambda rank: changed(rank, 2, **values)))
    assert (found.kind, found.severity, found.about) == ("partial-tensor", severity, (2,)) and "0.up" in found.title


def test_a_rank_with_larger_shards_is_named_with_the_parameter() -> None:
    (found,) = model_findings(described_job(lambda rank: changed(rank, 0, bytes=1 << 30)))
    assert (found.kind, found.culprit_ranks) == ("uneven-shards", (2,)) and "embed" in found.explanation


def sequence_parallel(_: int) -> list[Row]:
    """A plan that leaves norms whole, with Partial gradients that the optimizer has reduced (torch 2.13)."""
    norm: Row = {
        "wrapper": "tp",
        "mesh": 0,
        "placements": ["R"],
        "gradient_placements": ["P(sum)"],
        "state_placements": ["R"],
    }
    rows = transformer(4, wrapper="tp")
    return [*rows[:-1], parameter("norm", (256,), **norm)]


def experts(rank: int) -> list[Row]:
    """Each rank has experts of its own beside shared parameters."""
    return [*transformer(4), parameter(f"experts.{rank}", (64, 256), wrapper="ignored")]


HEALTHY: dict[str, tuple[Callable[[int], list[Row]], Sequence[Sequence[int]]]] = {
    "fsdp2": (lambda _: transformer(4), (range(4),)),
    "ddp": (lambda _: transformer(1, wrapper="ddp", group=0), (range(4),)),
    "plan": (sequence_parallel, (range(4),)),
    "pipeline": (lambda rank: transformer(2)[: 4 if rank < 2 else 9][0 if rank < 2 else 3 :], PAIRS),
    "experts": (experts, (range(4),)),
    "no wrapper": (lambda _: transformer(1), ()),
    "lora": (lambda _: [*transformer(4, requires_grad=False), parameter("lora", (8, 256), 4)], (range(4),)),
}


@pytest.mark.parametrize("shape", HEALTHY)
def test_a_healthy_model_is_silent(shape: str) -> None:
    job = described_job(*HEALTHY[shape])
    assert model_findings(job) == []
    assert analyse(job).verdict == "records of the models of 4 ranks: no rank holds another model than its peers"


def test_reports_list_what_each_rank_holds_with_outliers_first() -> None:
    job = described_job(lambda rank: changed(rank, 0, bytes=1 << 30))
    found = analyse(job)
    lines = render_text(job, found).splitlines()
    head = next(at for at, line in enumerate(lines) if line.split()[:2] == ["rank", "tensors"])
    assert lines[head + 1].split()[:2] == ["2*", "8"] and lines[head + 2].split()[0] == "0"
    assert max(map(len, lines[head : head + 6])) <= 80
    assert "| `2*` | 8 |" in render_markdown(job, found)
    assert b'"model":{"ranks":[{"rank":0,"parameters":8,"bytes":' in render_json(job, found).replace(b" ", b"").replace(
        b"\n", b""
    )


def test_coverage_adds_up_and_buffers_are_counted_and_not_compared() -> None:
    def rows(rank: int) -> list[Row]:
        kept = [*transformer(4), parameter("head", (8, 256), wrapper="ignored"), parameter("loose", (8, 256))]
        return [*kept, parameter("twin", (4, 256), wrapper="ddp"), buffer("rope", (64 * (1 + rank), 4))]

    analysis = analyse(described_job(rows))
    assert MODEL_RESULTS.find(analysis) is not None and not MODEL_RESULTS.of(analysis).differences
    (first, *_) = MODEL_RESULTS.of(analysis).held.rows(named=True)
    parts = [first[name] for name in ("sharded", "replicated", "ignored", "unwrapped", "partial")]
    assert parts[1:] == [4096, 8192, 8192, 0] and sum(parts) == first["bytes"]
    assert MODEL_RESULTS.of(analysis).held["buffer_bytes"].to_list() == [1024 * (1 + rank) for rank in range(4)]
