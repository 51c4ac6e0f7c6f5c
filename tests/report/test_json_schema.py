"""The published schemas: strict, as the code makes them, and true of every report that the tests know."""

from __future__ import annotations

import importlib
import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from rankscope.analysis import analyse
from rankscope.analysis.explanations import explain_rank
from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Analysis, BrokenLimit
from rankscope.assemble.load import load
from rankscope.kinds.features import FEATURES
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.report.json import CoreReport, dump_json, render_error, render_json
from rankscope.report.report_objects import JobReport, report_schema, watch_schema
from rankscope.report.watch_lines import WatchLine, render_line_json
from rankscope.schema import Dataset
from tests.jobs.scenarios import SAMPLE_JOBS
from tests.memory_writer import MIB, sampled_job
from tests.model_writer import described_job, transformer
from tests.report import samples
from tests.simulator.options import MODES
from tests.simulator.scenario import ALL_FAULTS, make
from tests.tui.detail.number_jobs import flipped, referenced

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
SAMPLES = [ROOT / "sample_data" / name for name in SAMPLE_JOBS]
REPORT = Draft202012Validator(report_schema())


def problems(report: Any, validator: Draft202012Validator = REPORT) -> list[str]:
    """Each place that the schema refuses, with the innermost reason."""
    return [
        f"{error.json_path}: {error.message}" for found in validator.iter_errors(report) for error in _leaves(found)
    ]


def _leaves(error: Any) -> list[Any]:
    return [leaf for one in error.context for leaf in _leaves(one)] if error.context else [error]


def report_of(job: tuple[Dataset, Analysis]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(render_json(*job))
    return report


def object_problems(report: dict[str, Any]) -> list[str]:
    """Only those of the report, not why it is no error."""
    whole = {**report_schema(), "oneOf": [{"$ref": "#/$defs/JobReport"}]}
    return problems(report, Draft202012Validator(whole))


@pytest.mark.parametrize("schema", [report_schema(), watch_schema()])
def test_schemas_are_schemas_of_the_draft(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    objects = [part for part in schema["$defs"].values() if part.get("type") == "object"]
    assert len(objects) > 10 and all(part["additionalProperties"] is False for part in objects)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_reports_fit(path: Path) -> None:
    assert object_problems(json.loads(path.read_bytes())) == []
    assert REPORT.is_valid(json.loads(path.read_bytes()))
    assert msgspec.json.decode(path.read_bytes(), type=JobReport).schema == 1


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda path: path.name)
def test_reports_on_the_sample_data_fit(folder: Path) -> None:
    dataset = load([folder])
    analysis = analyse(dataset)
    whys = tuple(explain_rank(dataset, analysis, rank) for rank in dataset.every_rank)
    assert object_problems(report_of((dataset, replace(analysis, whys=whys)))) == []


@pytest.mark.parametrize("fault", ALL_FAULTS)
def test_reports_on_simulated_faults_fit(fault: str, tmp_path: Path) -> None:
    make(fault, 1).write(tmp_path, MODES["full"])
    dataset = load([tmp_path])
    assert object_problems(report_of((dataset, analyse(dataset)))) == []


def test_reports_on_numbers_memory_and_models_fit() -> None:
    memory = sampled_job(lambda rank, step: 1000 * MIB + (step * 50 * MIB if rank == 2 else 0))
    model = described_job(lambda rank: transformer(4, whole=True) if rank == 3 else transformer(4))
    jobs = {
        "numbers": [flipped(), referenced()],
        "memory": [(memory, analyse(memory))],
        "model": [(model, analyse(model))],
    }
    for key, made in jobs.items():
        for report in map(report_of, made):
            assert report[key] and object_problems(report) == []
            report[key]["more"] = 1
            assert object_problems(report)
    held = report_of(jobs["memory"][0])["memory"]["ranks"][2]
    assert list(held) == [
        "rank", "device", "samples", "peak", "last", "reserved", "capacity", "last_ns", "growth",
    ]  # fmt: skip
    assert list(held["growth"]) == ["slope", "low", "high", "unit", "first", "last", "samples"]
    assert list(report_of(jobs["model"][0])["model"]["ranks"][0]) == [
        "rank", "parameters", "bytes", "gradient_bytes", "state_bytes", "sharded", "whole", "total", "replicated",
        "ignored", "unwrapped", "partial", "buffer_bytes", "differs",
    ]  # fmt: skip
    assert list(report_of(jobs["numbers"][0])["numbers"]["rules"][0]) == [
        "rule", "limit", "asked", "broken", "statement",
    ]  # fmt: skip
    assert any(finding.limits for finding in jobs["numbers"][0][1].findings)


def test_keys_that_every_report_has_are_required_and_stand_in_the_rows_of_features() -> None:
    always = {key: value for feature in FEATURES for key, value in feature.absent.items()}
    core = [field.name for field in msgspec.structs.fields(CoreReport)]
    whole = msgspec.structs.fields(JobReport)
    assert [field.name for field in whole if field.required] == [*core, *always]
    assert [field.name for field in whole][: len(core)] == core
    dataset, analysis = samples.healthy()
    assert {key: report_of((dataset, analysis))[key] for key in always} == always


def test_every_object_of_a_report_is_written_from_its_type() -> None:
    for job in (samples.logged(), samples.traced(), samples.hang()):
        raw = render_json(*job)
        read = msgspec.json.decode(raw, type=JobReport)
        assert dump_json(read) == raw


def test_errors_fit_and_nothing_else_does() -> None:
    assert REPORT.is_valid(json.loads(render_error("no such file")))
    assert not REPORT.is_valid({"schema": 1})
    assert not REPORT.is_valid({"schema": 2, "error": "no such file"})


def test_an_infinite_limit_fits() -> None:
    dataset, analysis = samples.hang()
    limits = (BrokenLimit("sum", "proof", float("inf"), 1.0),)
    findings = (replace(analysis.findings[0], kind="numeric-divergence", limits=limits), *analysis.findings[1:])
    assert object_problems(report_of((dataset, replace(analysis, findings=findings)))) == []


@pytest.mark.parametrize("kind", FINDINGS)
def test_kinds_of_findings_fit(kind: str) -> None:
    dataset, analysis = samples.hang()
    findings = tuple(replace(finding, kind=kind) for finding in analysis.findings)
    assert object_problems(report_of((dataset, replace(analysis, findings=findings)))) == []


def test_a_new_kind_or_key_is_refused() -> None:
    report = report_of(samples.logged())
    for change, place in _changes(report):
        assert [said for said in object_problems(change) if said.startswith(place)], place
        assert not REPORT.is_valid(change)


def _changes(report: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The report with something in it that the schema does not know, or without a key, and where."""
    kind, key, input_kind, event, gone, more = (deepcopy(report) for _ in range(6))
    kind["findings"][0]["kind"] = "no-such-kind"
    key["findings"][0]["evidence"][0]["offset"] = 12
    input_kind["inputs"][0]["kind"] = "no-such-kind"
    event["messages"][0]["kind"] = "no-such-kind"
    del gone["findings"][0]["chain"]
    more["more"] = 1
    return [
        (kind, "$.findings[0].kind"), (key, "$.findings[0].evidence[0]"), (input_kind, "$.inputs[0].kind"),
        (event, "$.messages[0].kind"), (gone, "$.findings[0]"), (more, "$"),
    ]  # fmt: skip


def test_rows_of_traces_are_closed() -> None:
    report = report_of(samples.traced())
    for table in ("steps", "kernels", "last", "critical_path", "critical_names", "causes", "clocks"):
        changed = deepcopy(report)
        changed["traces"][table][0]["more"] = 1
        assert object_problems(changed), table


def test_lines_of_watch_fit() -> None:
    dataset, analysis = samples.hang()
    line = render_line_json(dataset, analysis, LiveState("frozen", "nothing moves", 60 * 10**9), 1)
    assert problems(json.loads(line), Draft202012Validator(watch_schema())) == []
    assert msgspec.json.decode(line, type=WatchLine).state == "frozen"
    assert not Draft202012Validator(watch_schema()).is_valid({**json.loads(line), "state": "gone"})


def test_published_files_are_those_of_the_code() -> None:
    generator = importlib.import_module("docs.schemas")
    stale = [name for name, content in generator.pages().items() if (ROOT / "docs" / name).read_bytes() != content]
    assert stale == [], "python -m docs.schemas writes them anew"
