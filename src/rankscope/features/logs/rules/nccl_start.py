"""Choices of NCCL when it started: interfaces and network, and what looks wrong about them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.features.logs.rules.log_lines import LogEvidence
from rankscope.text.wording import plural

CHOICES = ("bootstrap", "sockets", "ib-devices", "network", "net-plugin", "transport", "gpu-direct", "channels")
_INTERFACE = re.compile(r"(?:\[\d{1,3}\] ?)?([A-Za-z][\w.@\-]{0,31}):([0-9A-Fa-f.:]{3,45})<\d{1,5}>")
_VIRTUAL = re.compile(r"docker\d|br-|virbr|veth|cni|flannel|cali|lxc")
"""Interfaces of containers and virtual machines, whose addresses other hosts cannot reach."""
_NO_DEVICE = "no device"
MOST_SHOWN = 4
_SLOW = (
    ("NCCL_P2P_DISABLE", ("1",), "NCCL_P2P_DISABLE=1 keeps GPUs of one host from reading each other's memory"),
    ("NCCL_SHM_DISABLE", ("1",), "NCCL_SHM_DISABLE=1 sends what stays in one host over the network"),
    ("NCCL_IB_DISABLE", ("1",), "NCCL_IB_DISABLE=1 keeps NCCL from InfiniBand and RoCE"),
    ("NCCL_ALGO", ("Ring", "ring", "RING"), "NCCL_ALGO=Ring keeps NCCL from trees and NVLink SHARP"),
    ("NCCL_MAX_NCHANNELS", ("1", "2"), "NCCL_MAX_NCHANNELS leaves it few channels"),
)
"""Settings that make NCCL slow, with the values that do."""


def find_start(logs: LogEvidence) -> Iterator[Finding]:
    """The interface that other hosts cannot reach, if NCCL takes one first; else what it chose, of a log that tells no
    more."""
    settings = logs.dataset.settings.filter(pl.col("source") == "nccl")
    chosen = settings.filter(pl.col("name").is_in(CHOICES))
    if chosen.is_empty():
        return
    paths = dict(logs.dataset.files.select("file", "path").iter_rows())
    rows, all_rows = (
        [{**row, "path": paths.get(row["file"], "")} for row in frame.iter_rows(named=True)]
        for frame in (chosen, settings)
    )
    wrong = [(row, *first) for row in rows if (first := _unreachable(row)) is not None]
    if wrong:
        yield _unreachable_first(wrong)
    elif logs.dataset.ops.is_empty() and not logs.roots:
        states = logs.dataset.comms["state"].to_list()
        # a communicator that is not ready is told by the rule of setups
        if all(state != "start" for state in states):
            yield _chosen(rows, all_rows, is_ready=bool(states))


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


def _chosen(rows: list[dict[str, Any]], all_rows: list[dict[str, Any]], *, is_ready: bool) -> Finding:
    """Choices of NCCL, of a log that ends in its start or, if `is_ready`, behind it."""
    values: dict[str, str] = {}
    for row in all_rows:
        values.setdefault(row["name"], row["value"] or "")
    transports = list(dict.fromkeys(row["value"] or "" for row in rows if row["name"] == "transport"))
    sockets = [found[1] for found in _INTERFACE.finditer(values.get("sockets", "") or values.get("bootstrap", ""))]
    no_card = _NO_DEVICE in values.get("ib-devices", "").lower()
    network = values.get("network") or ("Socket" if no_card else "")
    cards = "" if no_card else values.get("ib-devices", "").partition(";")[0]
    parts = [
        f"network {network}" if network else "",
        f"interface {', '.join(dict.fromkeys(sockets[:MOST_SHOWN]))}" if sockets else "",
        f"cards {cards[:80]}" if cards else "",
        f"transports {', '.join(transports[:MOST_SHOWN])}" if transports else "",
        values["channels"].split(", ")[0] if "channels" in values else "",
    ]
    first = rows[0]
    chosen = "; ".join(filter(None, parts)) or "how to connect"
    slow = [sentence for name, wrong, sentence in _SLOW if values.get(name) in wrong]
    over_sockets = network == "Socket" or any(name.startswith("NET/Socket") for name in transports)
    if over_sockets and "NCCL_IB_DISABLE" not in values and not cards:
        slow.append(
            "NCCL found no InfiniBand card and goes over sockets" if no_card or network else "it goes over sockets"
        )
    if any(name.startswith("SHM") for name in transports) and values.get("NCCL_P2P_DISABLE") != "1":
        slow.append("some GPUs of one host exchange through its memory (SHM): they have no way to read each other")
    if "Disabled" in values.get("gpu-direct", "") and cards:
        slow.append(f"GPU Direct RDMA is {values['gpu-direct'][:60].strip()}: data goes through the memory of hosts")
    looks = f"{'; '.join(slow)[0].upper()}{'; '.join(slow)[1:]}. " if slow else ""
    end = "these logs end behind its start" if is_ready else "these logs end in its start"
    connected = is_ready or bool(transports)
    why = (
        "Ranks connect; no line tells of an operation or an error."
        if connected
        else "No line tells that a communicator was made: a process that did not come, or a connection that cannot be "
        "made, looks like this."
    )
    step = (
        "If it hangs behind this, take stacks of all ranks: py-spy dump --native; else there is nothing wrong here."
        if connected
        else "Collect the logs of all ranks with NCCL_DEBUG=INFO, up to the line Init COMPLETE."
    )
    return Finding(
        kind="known-error",
        severity="info",
        title=f"NCCL chose {chosen} ({first['path']}:{first['line']}); {end}",
        explanation=looks + why,
        evidence=tuple(map(_evidence, rows[: 2 * MOST_SHOWN])),
        next_steps=(step,),
    )


def _evidence(row: dict[str, Any]) -> Evidence:
    return Evidence(f"{row['name']}: {row['value']}", file=row["path"], line=row["line"], rank=row["rank"])
