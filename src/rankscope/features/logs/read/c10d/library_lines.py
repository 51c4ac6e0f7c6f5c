"""Lines of torch.compile and of libraries above c10d: Ray and servers whose workers died, DeepEP, Megatron-LM.

Source: raylet, vLLM's multiproc_executor, csrc/kernels of DeepEP. The parent of a dead worker knows neither the reason
nor whether the worker died first: a watchdog's abort looks the same.

    torch/_dynamo/guards.py:2590] [0/1] [__recompiles] Recompiling function f in net.py:3
    torch/_dynamo/guards.py:2590] [0/1] [__recompiles]     triggered by the following guard failure(s):
    torch/_dynamo/guards.py:2590] [0/1] [__recompiles]     - 0/0: tensor 'x' size mismatch at index 0. expected 4, ...
    torch/_dynamo/symbolic_convert.py:611] [1/0] [__graph_breaks] Graph break in user code at net.py:8
    torch/_dynamo/symbolic_convert.py:611] [1/0] [__graph_breaks] Graph Break Reason: Data dependent operator
    torch/_dynamo/convert_frame.py:906] [0/8] torch._dynamo hit config.recompile_limit (8)
    torch/_dynamo/symbolic_convert.py:5335] [0/1] Step 1: torchdynamo start tracing f /ws/net.py:3
    torch/_dynamo/convert_frame.py:1602] [1/0] Restarting analysis due to _dynamo/symbolic_convert.py:277 in ...

Source: torch/_dynamo/guards.py, convert_frame.py and symbolic_convert.py from 2.1 to 2.13. Before 2.3 a logger stands
in place of the tag (`torch._dynamo.guards.__recompiles: [DEBUG]`); up to 2.4 guards lack the id before the colon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rankscope.features.logs.read.c10d.pod_reports import OUT_OF_MEMORY
from rankscope.features.logs.read.log_record import Event, Record, message_event, shown_text

_COMPILE_WORDS = (
    "__recompiles", "__graph_breaks", "dynamo hit config.", " last reason: ", "   function: '", "   reasons:  [",
    "torchdynamo start tracing ", "Restarting analysis due to ",
)  # fmt: skip
LITERALS = (
    "A worker died or was killed while", "The actor is dead because its worker", " died unexpectedly",
    "The actor died unexpectedly", "DeepEP", "Failed core proc(s): ", "Ray killed this worker", "world_rank=",
    "Setting up process group for: ",
    "Hash not matching for", "Weight hashes match after", "rerun: unexpected result is ", "Possible transient error",
    "Possible persistent error", "Correct result (but possible", "Unexpected result ",
    *_COMPILE_WORDS,
)  # fmt: skip
ENTRIES = 12
_PID = re.compile(r"Worker PID: (\d{1,10})\b")
_HOST = re.compile(r"Worker IP address: \[?([0-9A-Fa-f.:]{2,45})\b")
_DEAD = "The actor is dead because its worker process has died"
"""The line below the entries of a dead actor; people paste it alone, too."""
_INTENDED_EXIT = re.compile(r"Worker exit type: INTENDED")
_EXIT_DETAIL = re.compile(r"Worker exit detail: .{0,200}?\bexit code:? (-?\d{1,5})\b")
_OUT_OF_MEMORY = re.compile(r"Worker exit type: NODE_OUT_OF_MEMORY\b")
_RAY_KILL = re.compile(
    r"\(IP: \[?([0-9A-Fa-f.:]{2,45})\]?, ID: \w{1,80}\) where the (?:task|actor) \((?:.{0,400}?, )?pid=(\d{1,10})\b"
)
"""Host and process of a worker that Ray ended because the memory of its node ran out."""
_TRAIN_WORKER = re.compile(
    r"\(node_id=\w{1,80}, ip=\[?([0-9A-Fa-f.:]{2,45})\]?, pid=(\d{1,10})\) world_rank=(\d{1,7})\b"
)
"""A row of Ray Train's list of its workers."""
_TRAIN_GROUP = re.compile(r"Setting up process group for: \S{1,200} \[rank=(\d{1,7}), world_size=\d{1,7}\]")
_CORES = re.compile(r"Failed core proc\(s\): \{(.{1,2000}?)\}")
_CORE = re.compile(r"'([\w.\-]{1,80})': (-?\d{1,5})")
_NAMED_WORKER = re.compile(r"(?:Worker|Engine core) proc (\S{1,80}) died unexpectedly")
_NUMBER = re.compile(r"(?:Vllm)?Worker-(\d{1,6})$")
_ACTOR = re.compile(r"\S*(?:ActorDiedError|RayActorError): The actor died unexpectedly before finishing this task")
_ENTRY = re.compile(r"^\s+(class_name|actor_id|pid|name|namespace|ip|repr): ?(\S.{0,200})$")


def events(record: Record) -> Iterator[Event]:
    """The events in a record. Values of a death: `pid`, `host`, `name` and `exitcode`, None if unknown; `how`, where a
    line tells that memory ran out; `framework` of those that Ray tells."""
    text = record.text
    if any(word in text for word in _COMPILE_WORDS):
        yield from _compile_events(record)
    yield from _check_events(record)
    if "DeepEP" in text:
        yield from _experts(record)
    died = "A worker died or was killed while" in text or _DEAD in text
    if died and not _INTENDED_EXIT.search(text):
        pid, host = _PID.search(text), _HOST.search(text)
        made = _died(record, int(pid[1]) if pid else None, host[1] if host else None, None)
        yield made._replace(values={**made.values, **_exit_values(text), "framework": "ray"})
    elif (killed := _RAY_KILL.search(text)) is not None and "Ray killed this worker" in text:
        made = _died(record, int(killed[2]), killed[1], None)
        yield made._replace(values={**made.values, "how": OUT_OF_MEMORY, "framework": "ray"})
    elif (seat := _TRAIN_WORKER.search(text)) is not None:
        made = message_event("worker-seat", record, pid=int(seat[2]), host=seat[1])
        yield made._replace(rank=int(seat[3]))
    elif (group := _TRAIN_GROUP.search(text)) is not None:
        yield message_event("worker-seat", record)._replace(rank=int(group[1]))
    elif (cores := _CORES.search(text)) is not None:
        ended = [(name, int(code)) for name, code in _CORE.findall(cores[1]) if int(code)]
        if ended:
            name, code = min(ended, key=lambda core: core[1])
            yield _of_engine(_died(record, None, None, name), name, code)
    elif (named := _NAMED_WORKER.search(text)) is not None:
        number = _NUMBER.search(named[1])
        made = _of_engine(_died(record, None, None, named[1]), named[1], None)
        # copies of an engine number their workers alike
        yield made._replace(rank=int(number[1])) if number and made.rank is None and "DP" not in record.label else made


def _died(record: Record, pid: int | None, host: str | None, name: str | None) -> Event:
    who = name or (f"process {pid}" if pid is not None else "a worker")
    where = f" on {host}" if host else ""
    text = f"{shown_text(who)}{where} died unexpectedly"
    return message_event("worker-died", record, text, pid=pid, host=host, name=name, exitcode=None)


def _of_engine(made: Event, name: str, code: int | None) -> Event:
    """The death of a process that an engine names: the process in front of the line is the one that tells of it."""
    values = {**made.values, "pid": None, "host": None, "label": shown_text(name), "exitcode": code}
    ended = made.text if code is None else f"{shown_text(name)} ended with exit code {code}"
    return made._replace(values=values, text=ended)


def _exit_values(text: str) -> dict[str, Any]:
    """Facts that Ray gives of an exit: its code, and whether memory ran out."""
    code = _EXIT_DETAIL.search(text)
    values: dict[str, Any] = {"exitcode": int(code[1])} if code else {}
    return values | ({"how": OUT_OF_MEMORY} if _OUT_OF_MEMORY.search(text) else {})


_EXPERTS = re.compile(r"DeepEP (?:error: )?[^,\n]{0,80}?timeout\b", re.IGNORECASE)
_PHASE = re.compile(r"\b(dispatch|combine|barrier)\b")
_EP_RANK = re.compile(r"\brank(?: =)? (\d{1,7})\b")
_EP_PEER = re.compile(r"\b(?:src|dst)_rank(?: =)? (\d{1,7})\b")
_CHECK = re.compile(r"timeout check failed: rank = \d{1,7}, thread = (\d{1,7}), value = (-?\d{1,9})")
"""A thread waits for the member of its number, and its value is 0 once that one has come."""
_LANES = re.compile(r"(?<!src )\bRDMA: (\d{1,5}), nvl: (\d{1,2})\b")
_FROM_LANES = re.compile(r"\bsrc RDMA(?: lane)?: (\d{1,5})(?:, src nvl: (\d{1,2}))?", re.IGNORECASE)
NODE_RANKS = 8
"""Ranks of one node in an exchange between nodes."""


def _experts(record: Record) -> Iterator[Event]:
    """The event of a line. Values: `ep_rank` of the printing rank and `peer`, the awaited one, in ranks of the group of
    experts, None if unknown; `phase`."""
    text = record.text
    if _EXPERTS.search(text) is None:
        return
    own, peer, phase = _EP_RANK.search(text), _EP_PEER.search(text), _PHASE.search(text)
    check, lanes = _CHECK.search(text), _LANES.search(text)
    within = int(own[1]) if own else int(lanes[1]) * NODE_RANKS + int(lanes[2]) if lanes else None
    awaited = int(peer[1]) if peer else int(check[1]) if check and int(check[2]) > 0 else None
    if lanes and (source := _FROM_LANES.search(text)) is not None:
        awaited = int(source[1]) * NODE_RANKS + int(source[2] or lanes[2])
    made = message_event("experts-timeout", record, ep_rank=within, peer=awaited, phase=phase[1] if phase else None)
    yield made._replace(rank=within) if made.rank is None and not made.values.get("pid") else made


class ActorDeath:
    """Collector of the entries that Ray prints for a dead actor."""

    patience = 1
    quotes = True
    named_rank = None

    def __init__(self, record: Record) -> None:
        self._record = record
        self._entries: dict[str, str] = {}
        self._detail = ""

    def consumes(self, record: Record) -> bool:
        """Whether a line is an entry; reads it if so."""
        if record.text.lstrip().startswith(_DEAD):
            self._detail = record.text
            return True
        entry = _ENTRY.match(record.text)
        if entry is None or len(self._entries) >= ENTRIES:
            return False
        self._entries[entry[1]] = entry[2].strip()
        return True

    def result(self) -> list[Event]:
        """The event, at the first line."""
        if _INTENDED_EXIT.search(self._detail):
            return []
        pid = self._entries.get("pid", "")
        made = _died(
            self._record,
            int(pid) if re.fullmatch(r"\d{1,10}", pid) else None,
            self._entries.get("ip"),
            self._entries.get("name"),
        )
        return [made._replace(values={**made.values, **_exit_values(self._detail)})]


def begins(record: Record) -> ActorDeath | None:
    """A list that begins with this record."""
    return ActorDeath(record) if _ACTOR.match(record.text) else None


NUMERIC_CHECK = "numeric-check"
WEIGHTS_MATCH = "weights-match"
_HASH = re.compile(r"\[Rank (\d{1,7})\] Hash not matching for (\S{1,512}) in model chunk ?(\d{1,6})")
_MATCH = re.compile(r"Weight hashes match after (\d{1,12}) iterations")
_PLACE = re.compile(r"Rank (\d{1,7}), node ([\w.\-]{1,255}), device (\d{1,4})(?:, iteration #?(\d{1,12}))?: ")
_REFUSED = re.compile(r"Rank \d{1,7}, node .{1,300}?: Unexpected result |invokation #\d{1,9} at iteration #\d")
_ITERATION = re.compile(r"iteration #?(\d{1,12})\b")
OUTCOMES = (
    ("persistent", "Possible persistent error"), ("transient", "Possible transient error"),
    ("correct", "Correct result (but possible"),
    ("elsewhere-other", "Second rerun: unexpected result is not reproducible"),
    ("elsewhere-same", "Second rerun: unexpected result is reproducible"),
    ("here-other", "First rerun: unexpected result is not reproducible"),
    ("here-same", "First rerun: unexpected result is reproducible"), ("refused", ": Unexpected result "),
    ("unexpected", "Unexpected result "),
)  # fmt: skip
"""Outcomes of a step that ran again, and the words of their lines: on the same device ("here") or another one.

"refused" is that of a job that runs no step again, and ends; "unexpected" comes before the first run again.
"""


def _check_events(record: Record) -> Iterator[Event]:
    """The event of a line about a check.

    Values of `numeric-check`: `check`, "weight-hash" or "rerun"; `name` and `chunk` of a parameter; `outcome`, one of
    `OUTCOMES`; `node`, `device` and `iteration` as printed, None if absent. `weights-match` has `iteration`.
    """
    text = record.text
    if (match := _MATCH.search(text)) is not None:
        yield message_event(WEIGHTS_MATCH, record, iteration=int(match[1]))
    elif (differing := _HASH.search(text)) is not None:
        yield message_event(
            NUMERIC_CHECK,
            record._replace(rank=int(differing[1])),
            check="weight-hash",
            name=differing[2],
            chunk=int(differing[3]),
        )
    elif (outcome := next((name for name, words in OUTCOMES if words in text), None)) is not None:
        if outcome in ("refused", "unexpected") and _REFUSED.search(text) is None:
            return
        place, step = _PLACE.search(text), _ITERATION.search(text)
        placed = record if place is None else record._replace(rank=int(place[1]))
        yield message_event(
            NUMERIC_CHECK,
            placed,
            check="rerun",
            outcome=outcome,
            node=None if place is None else place[2],
            device=None if place is None else int(place[3]),
            iteration=None if step is None else int(step[1]),
        )


KIND = "recompile"
BREAK_KIND = "graph-break"
_COMPILE_ID = re.compile(r"(?:^|\s)\[(\d{1,7}/\d{1,7})(?:_\d{1,5})?\]")
"""Number of the frame and of its compilation, with the number of a restart."""
_TAG = r"(?:\[__{0}\]|\.__{0}: \[DEBUG\])"
_RECOMPILES = _TAG.format("recompiles(?:_verbose)?")
_AGAIN = re.compile(_RECOMPILES + r" Recompiling function (\S{1,200}) in (\S.{0,400}?):(\d{1,9})\s*$")
_AGAIN_BY = re.compile(
    _RECOMPILES + r" \('Recompiling function (\S{1,200}) in ([^']{1,400}?)(?::(\d{1,9}))?', "
    r"[\"']triggered by the following guard failure: (.{1,300}?)[\"']\)"
)
"""The line of torch 2.0."""
_GUARD = re.compile(_RECOMPILES + r"\s{1,8}- (?!\d{1,7}/\d{1,7}:\s*$)(?:(\d{1,7}/\d{1,7}): )?(\S.{0,300})")
_LIMIT = re.compile(
    r"torch(?:\._)?dynamo hit config\.(?:accumulated_)?(?:recompile_limit|cache_size_limit) \((\d{1,9})\)"
)
_AT_LIMIT = re.compile(
    r"(?:torch[/\\]_dynamo[/\\]\S{1,80}\] \[\S{1,20}\] +|^ {3})(?:function: '(?P<name>[^']{1,200})' "
    r"\((?P<path>[^()]{1,400}):(?P<line>\d{1,9})\)|"
    r"last reason: (?!\d{1,7}/\d{1,7}:\s*$)(?:\d{1,7}/\d{1,7}: )?(?P<reason>\S.{0,300})"
    r"|reasons:  \[[\"'](?P<reasons>.{1,300}?)[\"'][,\]])"
)
"""Lines below that of the limit; torch 2.0 writes them without a head."""
_TRACED = re.compile(
    r"_dynamo[./\\]\S{1,80}\]? .{0,40}\bStep 1: torchdynamo start tracing (\S{1,200})(?: (\S.{0,400}?):(\d{1,9}))?\s*$"
)
_RESTARTED = re.compile(r"_dynamo[./\\]\S{1,80}\]? .{0,40}Restarting analysis due to ")
_BREAK = re.compile(
    _TAG.format("graph_breaks")
    + r" Graph break(?:(?: \([^()]{1,100}\))? in user code at (?P<path>\S.{0,400}?):(?P<line>\d{1,9})\s*$"
    r"|: (?P<reason>\S.{0,300}))"
)
_BREAK_REASON = re.compile(
    _TAG.format("graph_breaks") + r" (?:(?:Graph Break )?Reason|torch\._dynamo\.exc\.\w{1,80}): (\S.{0,300})"
)
_BREAK_FRAME = re.compile(_TAG.format("graph_breaks") + r'\s{1,8}File "([^"]{1,400})", line (\d{1,9}), in ')
_OF_DYNAMO = re.compile(r"[/\\]torch[/\\]_dynamo[/\\]")
_HEADING = "from user code at:"
"""End of a line whose frames follow; it is no reason."""
_ARTIFACT = re.compile(r"\] \[__[a-z_]{2,40}\]|\.__[a-z_]{2,40}: \[DEBUG\]")


def is_artifact(text: str) -> bool:
    """Whether a line is of an artifact of TORCH_LOGS: it quotes code, stacks and exceptions that ended nothing."""
    return "__" in text and _ARTIFACT.search(text) is not None


def _compile_events(record: Record) -> Iterator[Event]:
    """The event of a line. Values: `what`, "again", "limit", "break", "traced", "restart" or "reason", the last for a
    line that explains the one above, or "where" for a frame of it; `compile_id`, `function`, `path`, `code_line`,
    `reason` and `limit`, where the line has them."""
    text = record.text
    values = _compile_values(text)
    if not values:
        return
    found = _COMPILE_ID.search(text)
    kind = BREAK_KIND if "__graph_breaks" in text or values["what"] == "restart" else KIND
    yield message_event(kind, record, **values, compile_id=found[1] if found else "")


def _compile_values(text: str) -> dict[str, Any]:
    if (again := _AGAIN.search(text)) is not None:
        return {"what": "again", **_code_place(again[1], again[2], again[3])}
    if (by := _AGAIN_BY.search(text)) is not None:
        return {"what": "again", **_code_place(by[1], by[2], by[3] or "0"), "reason": shown_text(by[4])}
    if (guard := _GUARD.search(text)) is not None:
        return {"what": "reason", "reason": shown_text(guard[2]), "against": guard[1] or ""}
    if (traced := _TRACED.search(text)) is not None:
        return {"what": "traced", **_code_place(traced[1], traced[2] or "", traced[3] or "0")}
    if _RESTARTED.search(text) is not None:
        return {"what": "restart"}
    if (limit := _LIMIT.search(text)) is not None:
        return {"what": "limit", "limit": int(limit[1])}
    if (below := _AT_LIMIT.search(text)) is not None:
        if below["name"]:
            return {"what": "reason", **_code_place(below["name"], below["path"], below["line"])}
        return {"what": "reason", "reason": shown_text(below["reason"] or below["reasons"])}
    if (broken := _BREAK.search(text)) is not None:
        if broken["path"]:
            return {"what": "break", **_code_place("", broken["path"], broken["line"])}
        reason = broken["reason"].removesuffix(_HEADING).rstrip(" :")
        return {"what": "break", "reason": "" if reason == "skip" else shown_text(reason)}
    if (frame := _BREAK_FRAME.search(text)) is not None:
        place = _code_place("", frame[1], frame[2])
        return {} if _OF_DYNAMO.search(frame[1]) else {"what": "where", **place}
    why = _BREAK_REASON.search(text)
    return {"what": "reason", "reason": shown_text(why[1])} if why is not None else {}


def _code_place(function: str, path: str, line: str) -> dict[str, Any]:
    return {"function": shown_text(function), "path": shown_text(path), "code_line": int(line)}
