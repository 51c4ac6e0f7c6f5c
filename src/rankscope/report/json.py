"""The JSON report for programs. A contract: keys, their order and their meaning change only with `SCHEMA`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from rankscope import __version__
from rankscope.analysis.model import (
    Analysis,
    BrokenLimit,
    ChainStep,
    Culprit,
    Dimension,
    Evidence,
    Finding,
    GroupRef,
    Mesh,
    RankExplanation,
)
from rankscope.kinds.features import FEATURES
from rankscope.kinds.functions import function
from rankscope.schema import Dataset, Frame
from rankscope.text.secrets import hide

SCHEMA = 1
"""Version of the form; it increases with every change that breaks a reading program."""

_NOT_ASCII = re.compile(r"[^\x20-\x7e\n]")
Json = dict[str, Any]


def render_json(dataset: Dataset, analysis: Analysis, ascii_only: bool = False) -> bytes:
    """The report as one JSON object, indented by two, with a newline at its end."""
    raw = dump_json(
        {
            "schema": SCHEMA,
            "tool": {"name": "rankscope", "version": __version__},
            "verdict": analysis.verdict,
            "status": analysis.status,
            "world_size": dataset.world_size,
            "ranks": {"seen": dataset.seen_ranks, "missing": dataset.unseen_ranks},
            "inputs": dataset.files.select("path", "kind", "rank", "rows", "problem", "recorder").to_dicts(),
            "findings": [finding_json(f) for f in analysis.findings],
            "mesh": _mesh(analysis.mesh, {rank for f in analysis.findings for rank in f.culprit_ranks}),
            "why": [answer_json(w) for w in analysis.whys],
            **_features(dataset, analysis),
        }
    )
    return escaped_json(raw) if ascii_only else raw


def escaped_json(raw: bytes) -> bytes:
    """JSON in ASCII."""
    return _NOT_ASCII.sub(_unicode_escape, raw.decode()).encode()


def render_error(message: str) -> bytes:
    """The JSON object that replaces the report after an error."""
    return dump_json({"schema": SCHEMA, "error": message})


def finding_json(f: Finding) -> Json:
    """One finding, in the form it has in the report."""
    return {
        "id": f.id,
        "kind": f.kind,
        "severity": f.severity,
        "root_cause": f.root_cause,
        "caused_by": f.caused_by,
        "title": f.title,
        "explanation": f.explanation,
        "culprit_ranks": sorted(f.culprit_ranks),
        "culprits": [_culprit(c) for c in f.culprits],
        "candidates": f.candidates,
        "waiting_ranks": f.waiting_ranks,
        "blast_radius": f.blast_radius,
        "confidence": f.confidence,
        "confidence_reasons": f.confidence_reasons,
        "chain": [_step(s) for s in f.chain],
        "group": _group(f.group),
        "seq": f.seq,
        "op": f.op,
        "peer": f.peer,
        "stack": _stack(f.stack),
        "evidence": [_evidence(e) for e in f.evidence],
        "counter_evidence": [_evidence(e) for e in f.counter_evidence],
        "next_steps": f.next_steps,
        **({"limits": [_limit(one) for one in f.limits]} if f.limits else {}),
    }


def _limit(one: BrokenLimit) -> Json:
    """A rule about numbers that does not hold; JSON has no infinite numbers."""
    value, limit = (number if math.isfinite(number) else None for number in (one.value, one.limit))
    return {"rule": one.rule, "standing": one.standing, "value": value, "limit": limit}


def answer_json(w: RankExplanation) -> Json:
    """The answer for one rank, in the form it has in the report."""
    lines = [{"about": r.about, **_evidence(r.evidence)} for r in w.lines]
    return {"rank": w.rank, "accused": w.accused, "finding": w.finding, "title": w.title, "lines": lines}


def _culprit(c: Culprit) -> Json:
    return {"rank": c.rank, "host": c.host, "pid": c.pid, "device": c.device}


def _step(s: ChainStep) -> Json:
    wait = {"group": s.waits_in.group, "seq": s.waits_in.seq, "op": s.waits_in.op}
    return {"rank": s.rank, "waits_in": wait, "for_rank": s.for_rank}


def _group(g: GroupRef | None) -> Json | None:
    return None if g is None else {"id": g.id, "description": g.description, "ranks": g.ranks}


def _stack(frames: Sequence[Frame]) -> list[Json]:
    return [{"function": f.function, "file": f.file, "line": f.line} for f in frames]


def _evidence(e: Evidence) -> Json:
    return {
        "file": e.file,
        "rank": e.rank,
        "record_id": e.record_id,
        "line": e.line,
        "time_ns": e.time_ns,
        "text": hide(e.text),
    }


def _features(dataset: Dataset, analysis: Analysis) -> Json:
    """The keys of all features, in their order."""
    keys: Json = {}
    for feature in FEATURES.values():
        keys |= feature.absent
        if feature.record and dataset.has_any(feature.tables):
            keys |= function(feature.record)(dataset, analysis)
    return keys


def _mesh(mesh: Mesh | None, ranks: Iterable[int]) -> Json | None:
    """The grid, and the places of `ranks` on it."""
    if mesh is None:
        return None
    names = [d.name for d in mesh.dimensions]
    places = {rank: mesh.place(rank) for rank in sorted(ranks)}
    return {
        "dimensions": [_dimension(d) for d in mesh.dimensions],
        "also": [_dimension(d) for d, _ in mesh.also],
        "ranks": len(mesh.places),
        "places": {str(rank): dict(zip(names, at, strict=True)) for rank, at in places.items() if at is not None},
    }


def _dimension(d: Dimension) -> Json:
    return {"name": d.name, "size": d.size, "stride": d.stride}


def dump_json(report: Json, *, indented: bool = True) -> bytes:
    """Complete JSON that is safe in a terminal: invisible characters are escaped."""
    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indented else 0)
    try:
        raw = orjson.dumps(report, option=options)
    except orjson.JSONEncodeError:
        raw = orjson.dumps(_without_surrogates(report), option=options)
    if raw.isascii() and b"\x7f" not in raw:
        return raw
    return _NOT_ASCII.sub(_escape, raw.decode()).encode()


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
