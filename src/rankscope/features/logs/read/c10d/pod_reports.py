"""Ends of containers as kubectl prints them: descriptions of pods, lists of pods, and events.

    Name:             llama-worker-2
    Node:             gpu-node-07/10.0.3.17
    Containers:
      pytorch:
        State:          Terminated (alone in the line)
          Exit Code:    137
          Finished:     Tue, 03 Jun 2025 09:19:02 +0000

Source: kubectl describe, get pods and get events of Kubernetes 1.20 and later. A process in a pod has the pod's name as
the name of its host, unless it uses the network of the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from rankscope.features.logs.read.log_record import Event, Record, message_event, shown_text
from rankscope.parsers.line_prefixes import Stamp

KIND = "pod-exit"
OUT_OF_MEMORY = "Out Of Memory"
"""How a container ends that took more memory than its limit, in the word of srun."""
LOST = ("Evicted", "Preempted", "Preempting", "NodeNotReady", "NodeLost", "NodeShutdown", "TaintManagerEviction")
"""Reasons of Kubernetes to end a whole pod, whatever its processes did."""
LITERALS = ("Name: ", " Terminated", "OOMKilled", " Evicted", *(f"{word} " for word in LOST))
MOST_CONTAINERS = 64
_NAME = re.compile(r"Name: {2,40}([a-z0-9][a-z0-9.\-]{0,252})\s*$")
_ENDED = re.compile(r"\s*(Last State|State): +Terminated\s*$")
_SECTION = re.compile(r"[A-Z][\w ()\-]{0,40}:(?: |$)")
_ROW = re.compile(r"(\s*)([A-Z][A-Za-z ]{0,40}|RANK|WORLD_SIZE): +(\S.{0,400}?)\s*$")
_CONTAINER = re.compile(r"  ([a-z0-9][a-z0-9.\-]{0,62}):\s*$")
_LISTED = re.compile(
    rf"([a-z0-9][a-z0-9.\-]{{0,252}}) +\d{{1,3}}/\d{{1,3}} +(OOMKilled|{'|'.join(LOST)}) +(\d{{1,9}})\b"
)
_EVENT = re.compile(
    rf"\S{{1,20}}(?: \(x\d+ over \S+\))? +(?:Normal|Warning) +({'|'.join(LOST)})"
    r" +pod/([a-z0-9][a-z0-9.\-]{0,252}) +(\S.*)$"
)
_DESCRIBED_EVENT = re.compile(
    rf" {{1,4}}(?:Normal|Warning) +({'|'.join(LOST)}) +\S{{1,20}}(?: \(.{{1,40}}?\))? +\S{{1,60}} +(\S.*)$"
)


def events(record: Record) -> Iterator[Event]:
    """The end of a pod in a row of a list or of events."""
    if (listed := _LISTED.match(record.text)) is not None:
        how = OUT_OF_MEMORY if listed[2] == "OOMKilled" else listed[2]
        yield _ended(record, listed[1], how, reason=listed[2], restarts=int(listed[3]))
    elif (told := _EVENT.match(record.text)) is not None:
        yield _ended(record, told[2], told[1], reason=told[1], message=told[3])


def _ended(record: Record, pod: str, how: str, **values: Any) -> Event:
    """An event. Values: `pod`, also as `host`; `node`, `container`, `how` it ended, `exitcode`, the `reason` and the
    `message` of Kubernetes, `restarts` of the container, `env_rank` and `env_world`, RANK and WORLD_SIZE of the
    container. Unknown values are None."""
    blank = dict.fromkeys(
        ("node", "container", "exitcode", "reason", "message", "restarts", "env_rank", "env_world"), None
    )
    filled: dict[str, Any] = {**blank, **values}
    code, reason = filled["exitcode"], filled["reason"]
    who = f"container {filled['container']} of pod {pod}" if filled["container"] else f"pod {pod}"
    ended = f"ended with exit code {code}" if code is not None else "was ended"
    why = ": ".join(text for text in (reason, filled["message"]) if text)
    text = f"{who} {ended}" + (f" ({why})" if why else "")
    return message_event(KIND, record, shown_text(text), pod=pod, host=pod, how=how, **filled)


@dataclass
class _ContainerEnd:
    """The end of a container, as far as it is read."""

    record: Record
    container: str | None
    rows: dict[str, str] = field(default_factory=dict)


@dataclass
class PodReport:
    """Report on one pod: where it runs, how its containers ended, and why Kubernetes ended it."""

    head: Record
    pod: str = ""
    rows: dict[str, str] = field(default_factory=dict)
    patience = 0
    quotes = True
    named_rank = None
    _container: str | None = None
    _ends: list[_ContainerEnd] = field(default_factory=list)
    _open: _ContainerEnd | None = None
    _lost: list[tuple[Record, str, str]] = field(default_factory=list)
    _of_container: dict[tuple[str | None, str], str] = field(default_factory=dict)

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to the report; reads it if so."""
        text = record.text
        if text.strip() and text[0] != " " and (_NAME.match(text) or not _SECTION.match(text)):
            return False
        if (container := _CONTAINER.match(text)) is not None:
            self._container, self._open = container[1], None
        elif _ENDED.match(text) is not None and len(self._ends) < MOST_CONTAINERS:
            self._open = _ContainerEnd(record, self._container)
            self._ends.append(self._open)
        elif (lost := _DESCRIBED_EVENT.match(text)) is not None:
            self._lost.append((record, lost[1], lost[2]))
        elif (row := _ROW.match(text)) is not None:
            self._read(record, *row.groups())
        return True

    def _read(self, record: Record, indent: str, name: str, value: str) -> None:
        if not indent:
            self.rows.setdefault(name, value)
            if name == "Reason" and value in LOST:
                self._lost.append((record, value, ""))
        elif name in ("Reason", "Exit Code", "Finished") and self._open is not None:
            self._open.rows.setdefault(name, value)
        elif name in ("Restart Count", "RANK", "WORLD_SIZE"):
            self._open = None
            self._of_container.setdefault((self._container, name), value)

    def result(self) -> list[Event]:
        """An event for each container that ended, or for a pod that Kubernetes ended."""
        node = self.rows.get("Node", "").partition("/")[0] or None
        made = []
        for end in self._ends:
            code, reason = _number(end.rows.get("Exit Code")), end.rows.get("Reason")
            of_container = {name: self._of_container.get((end.container, name)) for name in _OF_CONTAINER}
            more = {key: _number(of_container[name]) for name, key in _OF_CONTAINER.items()}
            how = OUT_OF_MEMORY if reason == "OOMKilled" else f"exit code {code}"
            event = _ended(
                end.record, self.pod, how, node=node, container=end.container, exitcode=code, reason=reason, **more
            )
            made.append(event._replace(stamp=_stamp(end.rows.get("Finished", "")) or event.stamp))
        if self._lost:
            record, reason, message = self._lost[0]
            message = message or self.rows.get("Message", "")
            made.append(_ended(record, self.pod, reason, node=node, reason=reason, message=message))
        return made if self.pod else []


_OF_CONTAINER = {"Restart Count": "restarts", "RANK": "env_rank", "WORLD_SIZE": "env_world"}
"""Rows of a container's description, and their values."""


def begins(record: Record) -> PodReport | None:
    """The report that begins with a line: the name of a pod."""
    name = _NAME.match(record.text)
    return PodReport(record, name[1]) if name is not None else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text) else None


def _stamp(text: str) -> Stamp | None:
    """The time as Kubernetes describes it: "Tue, 03 Jun 2025 09:19:02 +0000"."""
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return Stamp(int(when.timestamp()) * 1_000_000_000, 1_000_000_000, True, True, when.tzinfo is not None)
