"""Features: what rankscope does beyond dumps, lanes, live jobs and reports, each with all that the core asks of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rankscope.kinds.functions import KindTable


class HasTables(Protocol):
    """A Dataset, as the rows see it."""

    def has_any(self, tables: Iterable[str]) -> bool:
        """Whether one of these tables has a row, or one of these columns ("ops.completed_ns") a value."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One thing that rankscope can do, as the core calls it.

    Functions are named as "module:function", with the module below `rankscope`: the first job that needs one imports
    its module. They are called in the order of `FEATURES`, and only for a job with a row in one of the `tables`;
    "ops.completed_ns" stands for a value in that column.
    """

    name: str
    """Its result stands under this name in `Analysis.parts`."""
    tables: tuple[str, ...]
    """Tables of Dataset that it is about, or columns that have a value: "ops.duration_ns"."""
    settle: str = ""
    """Function (standstill, facts) -> standstill: corrects what the times of files say."""
    join: str = ""
    """Function (findings, scene) -> findings: with evidence for and against them, and with findings of its own."""
    find: str = ""
    """Function (facts, analysis) -> analysis: with its result, and its findings behind those of others."""
    derive: str = ""
    """Function (tables): adds rows to its table that the table `derived_from` implies, before the job is judged."""
    derived_from: str = ""
    explain: str = ""
    """Function (dataset, analysis, rank) -> explanation, for a job with nothing but its `tables`."""
    section: str = ""
    """Function (dataset, analysis) -> the section of a report for people: blocks; none without anything to show."""
    place: int = 0
    """Position of that section among those of others."""
    record: str = ""
    """Function (dataset, analysis) -> the struct with its keys of the JSON report; the schema is made from its type."""
    absent: Mapping[str, Any] = field(default_factory=dict)
    """Those keys in the report of a job without it."""


FEATURES: KindTable[Feature] = KindTable(
    Feature(name="stacks", tables=("threads",), join="features.stacks.host_evidence:with_host_stacks"),
    Feature(
        name="logs",
        tables=("messages", "settings", "comms", "ras", "compilations"),
        settle="features.logs.rules.log_findings:stopped_by_log",
        join="features.logs.rules.log_findings:with_logs",
        section="report.log_excerpts:section",
        place=5,
        record="report.log_excerpts:json_keys",
        absent={"messages": [], "more_messages": 0},
    ),
    Feature(
        name="settings",
        tables=("settings",),
        section="report.settings_section:section",
        place=6,
        record="report.settings_section:json_keys",
        absent={"settings": []},
    ),
    Feature(
        name="compile",
        tables=("compilations",),
        derive="features.compile.compilations:add_logged_compilations",
        derived_from="messages",
        join="features.compile.lone_compilations:with_compilations",
    ),
    Feature(name="shares", tables=("samples",), join="features.stacks.stack_shares:with_shares"),
    Feature(
        name="traces",
        tables=("traces",),
        find="features.traces.rules.trace_verdict:with_traces",
        explain="features.traces.rules.trace_stragglers:explain_traced",
        section="features.traces.trace_section:section",
        place=4,
        record="features.traces.trace_json:json_keys",
        absent={"traces": None},
    ),
    # behind traces, which tell more of collectives than dumps
    Feature(
        name="collectives",
        tables=("traced", "ops.duration_ns"),
        find="features.traces.rules.recorded_collectives:with_collectives",
        section="features.traces.collectives_section:section",
        place=4,
        record="features.traces.collectives_section:json_keys",
    ),
    # behind traces: it asks of what they matched
    Feature(
        name="what-if",
        tables=("step_ops", "traced", "ops.completed_ns", "ops.duration_ns"),
        find="features.whatif.whatif_findings:with_what_if",
        section="features.whatif.whatif_section:section",
        place=4,
        record="features.whatif.whatif_section:json_keys",
    ),
    # before numbers that were measured: a log tells of checks that a framework made of its own
    Feature(name="checks", tables=("messages",), find="features.numbers.rules.logged_checks:with_logged_checks"),
    Feature(
        name="numbers",
        tables=("tensors",),
        find="features.numbers.rules.number_findings:with_numbers",
        section="features.numbers.numbers_section:section",
        place=1,
        record="features.numbers.numbers_section:json_keys",
    ),
    Feature(
        name="memory",
        tables=("memory",),
        derive="features.memory.memory_rows:add_message_rows",
        derived_from="messages",
        find="features.memory.rules.memory_findings:with_memory",
        section="features.memory.memory_section:section",
        place=2,
        record="features.memory.memory_section:json_keys",
    ),
    Feature(
        name="model",
        tables=("parameters",),
        find="features.model.sharding_findings:with_models",
        section="features.model.model_section:section",
        place=3,
        record="features.model.model_section:json_keys",
    ),
    # last: what others find leads the verdict
    Feature(
        name="training",
        tables=("training",),
        find="features.series.rules.training_findings:with_training",
        section="features.series.training_section:section",
        place=2,
        record="features.series.training_section:json_keys",
    ),
)
"""Every feature that takes part in the analysis or the report of a job, in the order of its calls."""


def called(dataset: HasTables, call: str) -> Iterator[str]:
    """The functions that one field of the rows names, as "find", of the features that the job has something for."""
    return (getattr(row, call) for row in FEATURES.values() if getattr(row, call) and dataset.has_any(row.tables))
