"""Objects of the JSON report and of the lines of `rankscope watch`, as types.

The JSON Schema is made from them, and a program in Python reads a report into them:
`msgspec.json.decode(raw, type=JobReport)`. Keys that are not here are refused. docs/report.md explains the keys.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from rankscope.analysis.live_state import State
from rankscope.analysis.model import Confidence
from rankscope.kinds.event_kinds import EVENTS
from rankscope.kinds.finding_kinds import FINDINGS, Severity, Standing, Status
from rankscope.kinds.input_kinds import INPUTS
from rankscope.schema.tables import RECORDERS

_Words = dict[str, Any]


def _one_of(*names: str | None) -> _Words:
    return {"enum": list(names)}


Rank = Annotated[int, Meta(ge=0, description="a global rank")]
Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[int, Meta(description="nanoseconds since the epoch")]
FindingId = Annotated[str, Meta(pattern=r"^[a-z]+\d+$", description="the id of a finding")]
FindingName = Annotated[str, Meta(extra_json_schema=_one_of(*FINDINGS))]
InputName = Annotated[str, Meta(extra_json_schema=_one_of(*INPUTS))]
EventName = Annotated[str, Meta(extra_json_schema=_one_of(*EVENTS))]
RecorderName = Annotated[str, Meta(extra_json_schema=_one_of(*RECORDERS))]
Subject = Literal["rule", "evidence", "against", "clears", "also", "waits", "root", "state", "unlike", "close"]


class ReportPart(Struct, forbid_unknown_fields=True):
    """An object without other keys."""


class ToolObject(ReportPart):
    """The program that wrote the report."""

    name: Literal["rankscope"]
    version: str


class RanksObject(ReportPart):
    """Ranks with a readable dump or trace, and the others."""

    seen: list[Rank]
    missing: list[Rank]


class InputObject(ReportPart):
    """A file."""

    path: str
    kind: InputName
    rank: Rank | None
    rows: Count | None
    problem: str | None
    recorder: RecorderName | None


class CulpritObject(ReportPart):
    """An accused rank; one known by its host, process or device only has a null rank."""

    rank: Rank | None
    host: str | None
    pid: int | None
    device: str | None


class OperationObject(ReportPart):
    """An operation in which a rank waits."""

    group: str
    seq: int | None
    op: str


class ChainObject(ReportPart):
    """A rank and the rank that it waits for."""

    rank: Rank
    waits_in: OperationObject
    for_rank: Rank


class GroupObject(ReportPart):
    """A process group; `ranks` are in its order."""

    id: str
    description: str
    ranks: list[Rank]


class FrameObject(ReportPart):
    """A frame of a stack."""

    function: str
    file: str
    line: int


class EvidenceObject(ReportPart):
    """A place in a file."""

    file: str | None
    rank: Rank | None
    record_id: int | None
    line: int | None
    time_ns: Moment | None
    text: str


class LimitObject(ReportPart):
    """A rule about numbers that does not hold; infinite numbers are null."""

    rule: str
    standing: Standing
    value: float | None
    limit: float | None


class FindingObject(ReportPart):
    """A finding."""

    id: FindingId
    kind: FindingName
    severity: Severity
    root_cause: bool
    caused_by: FindingId | None
    title: str
    explanation: str
    culprit_ranks: list[Rank]
    culprits: list[CulpritObject]
    candidates: list[Rank]
    waiting_ranks: list[Rank]
    blast_radius: Count
    confidence: Confidence
    confidence_reasons: list[str]
    chain: list[ChainObject]
    group: GroupObject | None
    seq: int | None
    op: str | None
    peer: Rank | None
    stack: list[FrameObject]
    evidence: list[EvidenceObject]
    counter_evidence: list[EvidenceObject]
    next_steps: list[str]
    limits: list[LimitObject] | UnsetType = UNSET


class DimensionObject(ReportPart):
    """A dimension of the mesh; the stride is null where it varies."""

    name: str
    size: Count
    stride: int | None


class MeshObject(ReportPart):
    """The grid of the process groups; `places` has the coordinates of culprits, by rank and dimension."""

    dimensions: list[DimensionObject]
    also: list[DimensionObject]
    ranks: Count
    places: dict[str, dict[str, int]]


class ReasonObject(EvidenceObject, kw_only=True):
    """A line of an answer."""

    about: Subject


class AnswerObject(ReportPart):
    """The reasons why a rank is accused, or is not."""

    rank: Rank
    accused: bool
    finding: FindingId | None
    title: str
    lines: list[ReasonObject]


class MessageObject(ReportPart):
    """A line of a log that is a cause, or of a victim."""

    time_ns: Moment | None
    rank: Rank | None
    host: str | None
    file: str | None
    line: int | None
    role: Literal["root", "victim"]
    pattern: str | None
    kind: EventName
    text: str
    layer: str | None
    source: str | None


class ValueObject(ReportPart):
    """A value of a setting, and the ranks that have it."""

    value: str | None
    ranks: list[Rank]


class SettingObject(ReportPart):
    """A setting that differs between ranks."""

    name: str
    values: list[ValueObject]


class RuleObject(ReportPart):
    """A rule about numbers, and how often it was asked and broken."""

    rule: str
    limit: Standing
    asked: Count
    broken: Count
    statement: str


class NumbersObject(ReportPart):
    """The rules about numbers."""

    rules: list[RuleObject]
    notes: list[str]


class GrowthObject(ReportPart):
    """Growth of memory, in bytes a unit, with its interval at 95 %."""

    slope: float
    low: float | None
    high: float | None
    unit: Literal["step", "second"]
    first: int
    last: int
    samples: Count


class HeldMemoryObject(ReportPart):
    """Memory that a rank held on a device, in bytes."""

    rank: Rank | None
    device: str
    samples: Count
    peak: int | None
    last: int | None
    reserved: int | None
    capacity: int | None
    last_ns: Moment | None
    growth: GrowthObject | None


class MemoryObject(ReportPart):
    """Memory of ranks."""

    ranks: list[HeldMemoryObject]


class HeldModelObject(ReportPart):
    """Parameters that a rank holds, in bytes."""

    rank: Rank
    parameters: Count
    bytes: Count
    gradient_bytes: Count
    state_bytes: Count
    sharded: Count
    whole: Count
    replicated: Count
    ignored: Count
    unwrapped: Count
    partial: Count
    buffer_bytes: Count
    total: Count
    differs: bool


class ModelObject(ReportPart):
    """Models of ranks."""

    ranks: list[HeldModelObject]


class JobReport(ReportPart):
    """The report on a job."""

    schema: Literal[1]
    tool: ToolObject
    verdict: str
    status: Status
    world_size: Count
    ranks: RanksObject
    inputs: list[InputObject]
    findings: list[FindingObject]
    mesh: MeshObject | None
    why: list[AnswerObject]
    messages: list[MessageObject]
    more_messages: Count
    settings: list[SettingObject]
    traces: dict[str, Any] | None
    numbers: NumbersObject | UnsetType = UNSET
    memory: MemoryObject | UnsetType = UNSET
    model: ModelObject | UnsetType = UNSET


class ReportError(ReportPart):
    """The object that replaces the report after an error."""

    schema: Literal[1]
    error: str


class SeenObject(ReportPart):
    """Number of ranks that were seen, and the missing ones."""

    seen: Count
    missing: list[Rank]


class RateObject(ReportPart):
    """Collectives a second in a group."""

    group: str
    description: str
    per_s: float


class WatchLine(ReportPart):
    """A line of `rankscope watch --format json`."""

    schema: Literal[1]
    time_ns: Moment
    state: State
    status: Status
    verdict: str
    reason: str
    still_s: float | None
    freeze_after_s: float
    per_s: float
    rates: list[RateObject]
    culprit_ranks: list[Rank]
    ranks: SeenObject
    findings: list[FindingObject]
