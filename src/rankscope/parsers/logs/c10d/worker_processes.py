"""Deaths of workers of Ray and of servers, as reported by their parents. Source: raylet and vLLM's multiproc_executor.

The parent knows neither the reason nor whether the worker died first: a watchdog's abort looks the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs.c10d.event_builder import message_event, shown_text
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = ("A worker died or was killed while", " died unexpectedly", "The actor died unexpectedly")
ENTRIES = 12
_PID = re.compile(r"Worker PID: (\d{1,10})\b")
_HOST = re.compile(r"Worker IP address: ([0-9A-Fa-f.:]{2,45})\b")
_INTENDED_EXIT = re.compile(r"Worker exit type: INTENDED")
_NAMED_WORKER = re.compile(r"Worker proc (\S{1,80}) died unexpectedly")
_NUMBER = re.compile(r"(?:Vllm)?Worker-(\d{1,6})$")
_ACTOR = re.compile(r"\S*(?:ActorDiedError|RayActorError): The actor died unexpectedly before finishing this task")
_ENTRY = re.compile(r"^\s+(class_name|actor_id|pid|name|namespace|ip|repr): ?(\S.{0,200})$")


def events(record: Record) -> Iterator[Event]:
    """The events in a record. Values: `pid`, `host` and `name`, None if unknown."""
    text = record.text
    if "A worker died or was killed while" in text and not _INTENDED_EXIT.search(text):
        pid, host = _PID.search(text), _HOST.search(text)
        yield _died(record, int(pid[1]) if pid else None, host[1] if host else None, None)
    elif (named := _NAMED_WORKER.search(text)) is not None:
        number = _NUMBER.search(named[1])
        made = _died(record, None, None, named[1])
        # copies of an engine number their workers alike
        yield made._replace(rank=int(number[1])) if number and made.rank is None and "DP" not in record.label else made


def _died(record: Record, pid: int | None, host: str | None, name: str | None) -> Event:
    who = name or (f"process {pid}" if pid is not None else "a worker")
    where = f" on {host}" if host else ""
    return message_event(
        "worker-died", record, f"{shown_text(who)}{where} died unexpectedly", pid=pid, host=host, name=name
    )


class ActorDeath:
    """Collector of the entries that Ray prints for a dead actor."""

    patience = 1
    quotes = True
    told_rank = None

    def __init__(self, record: Record) -> None:
        self._record = record
        self._entries: dict[str, str] = {}

    def consumes(self, record: Record) -> bool:
        """Whether a line is an entry; reads it if so."""
        entry = _ENTRY.match(record.text)
        if entry is None or len(self._entries) >= ENTRIES:
            return False
        self._entries[entry[1]] = entry[2].strip()
        return True

    def result(self) -> list[Event]:
        """The event, at the first line."""
        pid = self._entries.get("pid", "")
        return [
            _died(
                self._record, int(pid) if re.fullmatch(r"\d{1,10}", pid) else None, self._entries.get("ip"),
                self._entries.get("name"),
            )
        ]  # fmt: skip


def begins(record: Record) -> ActorDeath | None:
    """A list that begins with this record."""
    return ActorDeath(record) if _ACTOR.match(record.text) else None
