"""The JSON report for programs: its objects as types, and how they are written.

A contract: keys, their order and their meaning change only with `SCHEMA`; docs/report.md explains them. The published
schema is made from the same types. Features add keys of their own: the `record` of their rows in `kinds.features`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
import orjson
import polars as pl
from msgspec import UNSET, Meta, Struct, UnsetType

from rankscope import __version__
from rankscope.analysis.model import Analysis, Confidence, Finding, Mesh, RankExplanation
from rankscope.kinds.features import FEATURES
from rankscope.kinds.finding_kinds import Severity, Standing, Status
from rankscope.kinds.functions import function
from rankscope.report.headlines import short_verdict
from rankscope.schema import Dataset
from rankscope.schema.tables import RECORDERS
from rankscope.text.secrets import hide

SCHEMA: Literal[1] = 1
"""Version of the form; it increases with every change that breaks a reading program."""

_NOT_ASCII = re.compile(r"[^\x20-\x7e\n]")
Json = dict[str, Any]


def one_of(names: Iterable[str | None]) -> Meta:
    """The words that a text may be, for the schema."""
    return Meta(extra_json_schema={"enum": list(names)})


Rank = Annotated[int, Meta(ge=0, description="a global rank")]
Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[int, Meta(description="nanoseconds since the epoch")]
FindingId = Annotated[str, Meta(pattern=r"^[a-z]+\d+$", description="the id of a finding")]


class ReportPart(Struct, forbid_unknown_fields=True):
    """An object without other keys."""

    @classmethod
    def of(cls, record: object, **others: Any) -> Self:
        """The object that has, but for `others`, the attributes of a record that are named as its keys."""
        names = [name for name in cls.__struct_fields__ if name not in others]
        return cls(**{name: getattr(record, name) for name in names}, **others)

    @classmethod
    def of_rows(cls, table: pl.DataFrame) -> list[Self]:
        """An object for each row of a table, which has a column for each key."""
        return [cls(*row) for row in table.select(cls.__struct_fields__).iter_rows()]


class ToolObject(ReportPart):
    """The program that wrote the report."""

    name: Literal["rankscope"]
    version: str


TOOL = ToolObject("rankscope", __version__)


class RanksObject(ReportPart):
    """Ranks with a readable dump or trace, and the others."""

    seen: Sequence[Rank]
    missing: Sequence[Rank]


class InputObject(ReportPart):
    """A file."""

    path: str
    kind: str
    rank: Rank | None
    rows: Count | None
    problem: str | None
    recorder: Annotated[str, one_of(RECORDERS)] | None


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
    ranks: Sequence[Rank]


class FrameObject(ReportPart):
    """A frame of a stack."""

    function: str
    file: str
    line: int


class EvidenceObject(ReportPart):
    """A place in a file; its text is without secrets."""

    file: str | None
    rank: Rank | None
    record_id: int | None
    line: int | None
    time_ns: Moment | None
    text: str

    def __post_init__(self) -> None:
        self.text = hide(self.text)


class LimitObject(ReportPart):
    """A rule about numbers that does not hold; infinite numbers are null."""

    rule: str
    standing: Standing
    value: float | None
    limit: float | None


class FindingObject(ReportPart):
    """A finding."""

    id: FindingId
    kind: str
    severity: Severity
    root_cause: bool
    caused_by: FindingId | None
    title: str
    explanation: str
    culprit_ranks: Sequence[Rank]
    culprits: Sequence[CulpritObject]
    candidates: Sequence[Rank]
    waiting_ranks: Sequence[Rank]
    blast_radius: Count
    confidence: Confidence
    confidence_reasons: Sequence[str]
    chain: Sequence[ChainObject]
    group: GroupObject | None
    seq: int | None
    op: str | None
    peer: Rank | None
    stack: Sequence[FrameObject]
    evidence: Sequence[EvidenceObject]
    counter_evidence: Sequence[EvidenceObject]
    next_steps: Sequence[str]
    limits: Sequence[LimitObject] | UnsetType = UNSET


def finding_object(finding: Finding) -> FindingObject:
    """A finding, in the form that it has in the report."""
    return FindingObject.of(
        finding,
        culprit_ranks=sorted(finding.culprit_ranks),
        culprits=list(map(CulpritObject.of, finding.culprits)),
        chain=[ChainObject.of(step, waits_in=OperationObject.of(step.waits_in)) for step in finding.chain],
        group=None if finding.group is None else GroupObject.of(finding.group),
        stack=list(map(FrameObject.of, finding.stack)),
        evidence=list(map(EvidenceObject.of, finding.evidence)),
        counter_evidence=list(map(EvidenceObject.of, finding.counter_evidence)),
        limits=list(map(LimitObject.of, finding.limits)) or UNSET,
    )


class DimensionObject(ReportPart):
    """A dimension of the mesh; the stride is null where it varies."""

    name: str
    size: Count
    stride: int | None


class MeshObject(ReportPart):
    """The grid of the process groups; `places` has the coordinates of culprits, by rank and dimension."""

    dimensions: Sequence[DimensionObject]
    also: Sequence[DimensionObject]
    ranks: Count
    places: dict[str, dict[str, int]]


def _mesh_object(mesh: Mesh | None, culprits: set[int]) -> MeshObject | None:
    if mesh is None:
        return None
    names = [dimension.name for dimension in mesh.dimensions]
    places = {rank: mesh.place(rank) for rank in sorted(culprits)}
    return MeshObject(
        dimensions=list(map(DimensionObject.of, mesh.dimensions)),
        also=[DimensionObject.of(dimension) for dimension, _ in mesh.also],
        ranks=len(mesh.places),
        places={str(rank): dict(zip(names, at, strict=True)) for rank, at in places.items() if at is not None},
    )


class ReasonObject(ReportPart):
    """A line of an answer, with the keys of its evidence."""

    about: Literal["rule", "evidence", "against", "clears", "also", "waits", "root", "state", "unlike", "close"]
    file: str | None
    rank: Rank | None
    record_id: int | None
    line: int | None
    time_ns: Moment | None
    text: str


class AnswerObject(ReportPart):
    """The reasons why a rank is accused, or is not."""

    rank: Rank
    accused: bool
    finding: FindingId | None
    title: str
    lines: Sequence[ReasonObject]


def answer_object(answer: RankExplanation) -> AnswerObject:
    """The answer for one rank, in the form that it has in the report."""
    lines = [ReasonObject.of(EvidenceObject.of(line.evidence), about=line.about) for line in answer.lines]
    return AnswerObject.of(answer, lines=lines)


class CoreReport(ReportPart):
    """The keys of a report that are of no feature."""

    schema: Literal[1]
    tool: ToolObject
    verdict: str
    headline: str
    """The verdict in at most 70 characters, without names of files."""
    status: Status
    world_size: Count | None
    ranks: RanksObject
    inputs: Sequence[InputObject]
    findings: Sequence[FindingObject]
    mesh: MeshObject | None
    why: Sequence[AnswerObject]


class ReportError(ReportPart):
    """The object that replaces the report after an error."""

    schema: Literal[1]
    error: str


def render_json(dataset: Dataset, analysis: Analysis, ascii_only: bool = False) -> bytes:
    """The report as one JSON object, indented by two, with a newline at its end."""
    core = CoreReport(
        schema=SCHEMA,
        tool=TOOL,
        verdict=analysis.verdict,
        headline=short_verdict(analysis),
        status=analysis.status,
        world_size=dataset.world_size if dataset.is_sized else None,
        ranks=RanksObject(dataset.seen_ranks, dataset.unseen_ranks),
        inputs=InputObject.of_rows(dataset.files),
        findings=list(map(finding_object, analysis.findings)),
        mesh=_mesh_object(analysis.mesh, {rank for finding in analysis.findings for rank in finding.culprit_ranks}),
        why=list(map(answer_object, analysis.whys)),
    )
    keys = keys_of(core)
    for feature in FEATURES.values():
        keys |= feature.absent
        if feature.record and dataset.has_any(feature.tables):
            keys |= keys_of(function(feature.record)(dataset, analysis))
    raw = dump_json(keys)
    return escaped_json(raw) if ascii_only else raw


def render_error(message: str) -> bytes:
    """The JSON object that replaces the report after an error."""
    return dump_json(ReportError(SCHEMA, message))


def escaped_json(raw: bytes) -> bytes:
    """JSON in ASCII."""
    return _NOT_ASCII.sub(_unicode_escape, raw.decode()).encode()


def dump_json(report: Struct | Json, *, indented: bool = True) -> bytes:
    """Complete JSON that is safe in a terminal: invisible characters are escaped. Infinite numbers become null."""
    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indented else 0)
    try:
        raw = orjson.dumps(report, keys_of, options)
    except orjson.JSONEncodeError:
        raw = orjson.dumps(_without_surrogates(msgspec.to_builtins(report)), option=options)
    if raw.isascii() and b"\x7f" not in raw:
        return raw
    return _NOT_ASCII.sub(_escape, raw.decode()).encode()


def keys_of(part: Struct) -> Json:
    """The keys of an object with their values, but for those that are unset. Raises TypeError for anything else."""
    return {name: value for name, value in msgspec.structs.asdict(part).items() if value is not UNSET}


def _escape(match: re.Match[str]) -> str:
    """One character, as it is if it is visible, else as JSON escape."""
    return match.group() if match.group().isprintable() else _unicode_escape(match)


def _unicode_escape(match: re.Match[str]) -> str:
    """The JSON escape of one character, a surrogate pair where it needs two units."""
    units = match.group().encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _without_surrogates(value: Any) -> Any:
    """The value with lone surrogates written out: file names may hold them, JSON may not."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {k: _without_surrogates(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(v) for v in value]
    return value
