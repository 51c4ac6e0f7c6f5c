"""Choices of NCCL when it started: interfaces and network, and what looks wrong about them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.features.logs.rules.log_lines import LogEvidence
from rankscope.text.wording import plural

CHOICES = ("bootstrap", "sockets", "ib-devices", "network", "net-plugin")
_INTERFACE = re.compile(r"(?:\[\d{1,3}\] ?)?([A-Za-z][\w.@\-]{0,31}):([0-9A-Fa-f.:]{3,45})<\d{1,5}>")
_VIRTUAL = re.compile(r"docker\d|br-|virbr|veth|cni|flannel|cali|lxc")
"""Interfaces of containers and virtual machines, whose addresses other hosts cannot reach."""
_NO_DEVICE = "no device"
MOST_SHOWN = 4


def find_start(logs: LogEvidence) -> Iterator[Finding]:
    """The interface that other hosts cannot reach, if NCCL takes one first; else what it chose, of a log that tells no
    more."""
    settings = logs.dataset.settings.filter((pl.col("source") == "nccl") & pl.col("name").is_in(CHOICES))
    if settings.is_empty():
        return
    paths = dict(logs.dataset.files.select("file", "path").iter_rows())
    rows = [{**row, "path": paths.get(row["file"], "")} for row in settings.iter_rows(named=True)]
    wrong = [(row, *first) for row in rows if (first := _unreachable(row)) is not None]
    if wrong:
        yield _unreachable_first(wrong)
    elif logs.dataset.ops.is_empty() and logs.dataset.comms.is_empty() and not logs.roots:
        yield _chosen(rows)


def _unreachable(row: dict[str, Any]) -> tuple[str, str] | None:
    """The name of the first interface of a row, if other hosts cannot reach it, and that of the next that they may."""
    if row["name"] not in ("bootstrap", "sockets"):
        return None
    names = [(found[1], found[2]) for found in _INTERFACE.finditer(row["value"] or "")]
    if not names or not _is_local(*names[0]):
        return None
    better = next((name for name, address in names[1:] if not _is_local(name, address)), "")
    # a job of one host may well talk over its loopback, if it has nothing else
    return (names[0][0], better) if better else None


def _is_local(name: str, address: str) -> bool:
    return name == "lo" or address.startswith("127.") or address == "::1" or _VIRTUAL.match(name) is not None


def _unreachable_first(wrong: list[tuple[dict[str, Any], str, str]]) -> Finding:
    row, name, better = wrong[0]
    kind = "the loopback" if name == "lo" else "of a bridge or container"
    return Finding(
        kind="known-error",
        severity="warning",
        title=f"NCCL takes the interface {name} first ({row['path']}:{row['line']}), which is {kind}: other "
        f"hosts cannot "
        "reach its address",
        explanation=f"Printed by {plural(len(wrong), 'process')}. A job of several hosts hangs or fails at its first "
        "connection so, without any error of a rank.",
        confidence="medium",
        confidence_reasons=("the log does not show whether the job has several hosts",),
        evidence=tuple(_evidence(one) for one, _, _ in wrong[:MOST_SHOWN]),
        next_steps=(f"Set NCCL_SOCKET_IFNAME={better} on all hosts (GLOO_SOCKET_IFNAME={better} for gloo).",),
    )


def _chosen(rows: list[dict[str, Any]]) -> Finding:
    """Choices of NCCL, of a log that ends in its start."""
    values: dict[str, str] = {}
    for row in rows:
        values.setdefault(row["name"], row["value"] or "")
    sockets = [found[1] for found in _INTERFACE.finditer(values.get("sockets", "") or values.get("bootstrap", ""))]
    network = values.get("network") or ("Socket" if _NO_DEVICE in values.get("ib-devices", "").lower() else "")
    cards = "" if _NO_DEVICE in values.get("ib-devices", "").lower() else values.get("ib-devices", "")
    parts = [
        f"network {network}" if network else "",
        f"interface {', '.join(dict.fromkeys(sockets[:MOST_SHOWN]))}" if sockets else "",
        f"cards {cards[:80]}" if cards else "",
    ]
    first = rows[0]
    chosen = "; ".join(filter(None, parts)) or "how to connect"
    slow = "NCCL found no InfiniBand card and goes over sockets. " if network == "Socket" and not cards else ""
    return Finding(
        kind="known-error",
        severity="info",
        title=f"NCCL chose {chosen} ({first['path']}:{first['line']}); these logs end in its start",
        explanation=f"{slow}No line tells that a communicator was made: a process that did not come, or a "
        f"connection that "
        "cannot be made, looks like this.",
        evidence=tuple(map(_evidence, rows[:MOST_SHOWN])),
        next_steps=("Collect the logs of all ranks with NCCL_DEBUG=INFO, up to the line Init COMPLETE.",),
    )


def _evidence(row: dict[str, Any]) -> Evidence:
    return Evidence(f"{row['name']}: {row['value']}", file=row["path"], line=row["line"], rank=row["rank"])
