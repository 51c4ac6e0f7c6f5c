"""Next steps of findings, chosen from the table of advice: by kind of failure, backend, launcher, and what is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from rankscope.analysis.advice_table import (
    ADVICE,
    HOST_FINDERS,
    HOST_MARKS,
    MARKS,
    PATTERNS,
    Advice,
)
from rankscope.analysis.collection_settings import DIRECTORY, backends_of, torch_version
from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.event_kinds import EVENTS
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Dataset
from rankscope.text.wording import byte_count

NAMED_ALLOC = (2, 10)
"""Since then PYTORCH_ALLOC_CONF is read whole; 2.9 warns of the older name, and ignores segments under the new one."""
MOST_HOSTS = 4
"""Most hosts that a command names."""
_ALLOC_NAME = re.compile(r"try setting (PYTORCH_\w{0,8}ALLOC_CONF)=")
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]{1,12}) ([KMGT]?)i?B")
_UNUSED = re.compile(r"([\d.]{1,12}) ([KMGT]?)i?B is reserved by PyTorch but unallocated")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIGNAL = re.compile(
    r"Segmentation fault|[Ss]egfault|Bus error|exit ?code:? *-?(?:6|7|8|11|134|135|139)\b"
    r"|SIGSEGV|SIGABRT|SIGBUS|signal (?:6|7|11)\b"
)
_KILLED = re.compile(r"exit ?code:? *-?(?:9|137)\b|SIGKILL|signal 9\b")
_NO_PY_SPY = re.compile(r"py-spy: (?:command )?not found")
_ADDRESS = re.compile(
    r"(?:connect to|address of|listen on|bind to|to|of) (?:any network address of )?[\[(]?"
    r"((?:[A-Za-z0-9][A-Za-z0-9.\-]{0,253})?)(?:::)?\]?(?:, |:)(\d{1,5})\b"
)
"""Host and port in messages of sockets: `(10.0.0.1, 29500)`, `node-1:29500`, `[::]:29500`."""
_MODULE_FRAME = re.compile(r'"<module>","([^"]{1,253}\.py)"')
_SCRIPT = re.compile(r"[\w./][\w./\-]{0,250}\.py")
_LIBRARY = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|bin|lib/python[\d.]*|torch|ray|vllm|sglang|deepspeed|accelerate)/|^<"
)
"""Paths of programs that start scripts of others."""
_HOST = re.compile(r"[\w.\-]{1,255}")


@dataclass(frozen=True)
class Situation:
    """Facts of a failure: they decide which rows of the table are told, and fill their fields."""

    dataset: Dataset
    finding: Finding | None
    launchers: list[str] = field(default_factory=list)
    """What started the processes, once it is known: the findings of a job share it."""

    @cached_property
    def lines(self) -> pl.DataFrame:
        """The rows of `messages` that the finding has as evidence, in its order."""
        places = [(e.file, e.line) for e in self.finding.evidence if e.line is not None] if self.finding else []
        if not places or self.dataset.messages.is_empty():
            return self.dataset.messages.head(0)
        wanted = pl.DataFrame(places, schema={"path": pl.String, "line": pl.Int64}, orient="row").unique(
            maintain_order=True
        )
        files = self.dataset.files.select("file", "path").unique("file", keep="first")
        places_of_files = wanted.join(files, on="path", how="inner", maintain_order="left").drop("path")
        lines = places_of_files.join(self.dataset.messages, on=["file", "line"], how="inner", maintain_order="left")
        # an exception is evidence at its first line, and its known error stands in its last
        raised = lines.filter(pl.col("kind") == "traceback").select("file", pl.col("line").alias("begin"), "text")
        errors = self.dataset.messages.filter(pl.col("kind") == "known-error")
        inside = errors.join(raised, on=["file", "text"], how="inner").filter(pl.col("line") >= pl.col("begin"))
        return pl.concat([lines, inside.select(lines.columns)]).unique(["file", "offset", "kind"], maintain_order=True)

    @cached_property
    def text(self) -> str:
        """The words of the finding's own lines."""
        return "\n".join(self.lines["text"].drop_nulls().to_list())

    @cached_property
    def failure(self) -> str:
        """The kind of failure."""
        if self.finding is None:
            return ""
        if FINDINGS[self.finding.kind].failure:
            return FINDINGS[self.finding.kind].failure
        for pattern, kind in self.lines.select("pattern", "kind").iter_rows():
            failure = next((name for name, ids in PATTERNS.items() if pattern in ids), EVENTS[kind].failure)
            if failure:
                return failure
        return ""

    @cached_property
    def backends(self) -> tuple[str, ...]:
        """The backends of the job."""
        return backends_of(self.dataset)

    @cached_property
    def launcher(self) -> str:
        """The launcher of the processes: a key of `advice_table.STARTS`."""
        if not self.launchers:
            self.launchers.append(launcher_of(self.dataset))
        return self.launchers[0]

    @cached_property
    def facts(self) -> dict[str, bool]:
        """Facts that rows may need, by their names."""
        unused, asked = _bytes(_UNUSED, self.text), _bytes(_ASKED, self.text)
        gap = unused is not None and asked is not None and unused >= asked
        explained = self.finding is not None and self.finding.kind == "memory-fragmented"
        return {
            "gap": gap, "no-gap": not gap and not explained,
            "step": self.finding is not None and self.finding.step is not None,
            "no-py-spy": bool(self.dataset.messages["text"].str.contains(_NO_PY_SPY.pattern).any()),
            "host": bool(self._place()[0]), "pid": self._place()[1] is not None,
            "no-pid": self._place()[1] is None, "address": self._address() is not None,
            "no-address": self._address() is None,
            "signal": _SIGNAL.search(self.text) is not None, "killed": _KILLED.search(self.text) is not None,
        }  # fmt: skip

    @cached_property
    def fields(self) -> dict[str, str]:
        """The fields of texts."""
        step = (self.finding.step if self.finding is not None else None) or 0
        hosts, pid = self._place()
        unused = _bytes(_UNUSED, self.text)
        address = self._address() or ("$MASTER_ADDR", "$MASTER_PORT")
        return {
            "alloc": self._allocator(), "step": str(step), "first": str(max(0, step - 3)),
            "size": byte_count(unused), "pid": str(pid) if pid is not None else "$PID",
            "on": f"  # on {', '.join(hosts)}" if hosts else "", "at": f" on {', '.join(hosts)}" if hosts else "",
            "there": f"  # on {address[0]}", "into": DIRECTORY,
            "address": address[0], "port": address[1],
        }  # fmt: skip

    def rows(self) -> Iterator[Advice]:
        """The rows that fit, in the order of the table."""
        for row in ADVICE:
            fits = self.failure in row.failures and (not row.needs or self.facts[row.needs])
            if fits and _is_for(row.backends, self.backends) and _is_for(row.launchers, (self.launcher,)):
                yield row

    def filled(self, text: str, **fields: str) -> str:
        """A text of a row with its fields; `fields` stand for those of the situation."""
        return text.format(**{**self.fields, **fields})

    @cached_property
    def host_finder(self) -> str:
        """A command that finds the hosts, by what placed the processes on them; "" where a source tells the host."""
        if self.facts["host"]:
            return ""
        messages = self.dataset.messages
        values = messages["values"].str.replace_all(_WORDS_OF_OURS, "")
        kind = next(
            (
                name
                for name, words in HOST_MARKS
                if any(bool(t.str.contains(words).any()) for t in (messages["text"], values))
            ),
            "torchrun",
        )
        return HOST_FINDERS[kind]

    @cached_property
    def script(self) -> str:
        """The script of the job, as the outermost frames of stacks and tracebacks name it; "" if unknown."""
        frames = self.dataset.stacks.filter(pl.col("function") == "<module>")["file"].drop_nulls()
        raised = self.dataset.messages["values"].str.extract(_MODULE_FRAME.pattern).drop_nulls()
        names = [n for n in (*frames, *raised) if _SCRIPT.fullmatch(n) and not _LIBRARY.search(n)]
        return max(names, key=names.count) if names else ""

    def _place(self) -> tuple[list[str], int | None]:
        """Hosts and process id of the finding, as its culprits or its lines tell; no host that harms a shell."""
        culprits = [(one.host, one.pid) for one in self.finding.culprits] if self.finding is not None else []
        named = culprits + list(self.lines.select("host", "pid").iter_rows())
        hosts = dict.fromkeys(h for h, _ in named if h and _HOST.fullmatch(h) and not h.startswith("-"))
        return [*hosts][:MOST_HOSTS], next((p for _, p in named if p is not None and 0 < p < 1 << 31), None)

    def _address(self) -> tuple[str, str] | None:
        """Host and port that a line names of the rendezvous; None unless both are plain."""
        found = _ADDRESS.search(self.text)
        return (found[1] or "$MASTER_ADDR", found[2]) if found is not None else None

    def _allocator(self) -> str:
        """The variable of the allocator, as the message of torch calls it, else by its version."""
        told = _ALLOC_NAME.search(self.text)
        version = torch_version(self.dataset)
        if "hccl" in self.backends:
            return "PYTORCH_NPU_ALLOC_CONF"
        if "rccl" in self.backends and told is None and not (version is not None and version >= NAMED_ALLOC):
            return "PYTORCH_HIP_ALLOC_CONF"
        if told is not None and not (version is not None and version < NAMED_ALLOC):
            return told[1]
        return "PYTORCH_ALLOC_CONF" if version is not None and version >= NAMED_ALLOC else "PYTORCH_CUDA_ALLOC_CONF"


def with_next_steps(dataset: Dataset, analysis: Analysis) -> Analysis:
    """The analysis whose findings have the steps of the table, before their own."""
    launchers: list[str] = []
    findings = tuple(
        _advised(Situation(dataset, finding, launchers), finding)
        if finding.severity != "info" and not finding.caused_by
        else finding
        for finding in analysis.findings
    )
    return replace(analysis, findings=findings)


def launcher_of(dataset: Dataset) -> str:
    """The launcher of the processes, by words of their lines and stacks: a key of `advice_table.STARTS`."""
    messages = dataset.messages
    if messages["kind"].is_in(["torchrun-failure"]).any():
        return "torchrun"
    # the prefixes of lines, and the frames of their stacks, are among their values
    values = messages["values"].str.replace_all(_WORDS_OF_OURS, "")
    texts = (messages["text"], values, dataset.stacks["file"])
    return next(
        (name for name, words in MARKS if any(bool(text.str.contains(words).any()) for text in texts)), "torchrun"
    )


_WORDS_OF_OURS = r'"(?:source|meaning|next|title)":"[^"]*"'


def _advised(situation: Situation, finding: Finding) -> Finding:
    # the rows say more than the table of known errors
    known = set(situation.lines["values"].str.json_path_match("$.next").drop_nulls())
    # what the memory or the compiler of this job needs is said by its own rules
    own = [step for step in finding.next_steps if step not in known]
    explained = own if situation.failure in ("device-memory", "recompiles") else []
    rows = [row for row in situation.rows() if row.says and not (explained and row.needs in ("gap", "no-gap"))]
    steps = [situation.filled(row.says) for row in rows]
    if not steps:
        return finding
    kept = [step for step in _without_settings(finding.next_steps, situation) if step not in known]
    return replace(finding, next_steps=tuple(dict.fromkeys((*explained, *steps, *kept))))


_FOREIGN: dict[tuple[str, ...], frozenset[str]] = {
    ("hccl",): frozenset({"TORCH_NCCL_", "TORCH_FR_", "NCCL_"}),
    ("xccl",): frozenset({"TORCH_NCCL_", "NCCL_"}),
}
"""Beginnings of the names of settings that a job with these backends alone does not read."""


def _without_settings(steps: tuple[str, ...], situation: Situation) -> list[str]:
    """The own steps of a finding, without settings that its backend does not read, and without those told again."""
    told = {"expandable_segments"} if situation.failure == "device-memory" else set()
    foreign = _FOREIGN.get(situation.backends, frozenset())
    return [step for step in steps if not any(word in step for word in told | foreign)]


def _is_for(wanted: str, known: tuple[str, ...]) -> bool:
    """Whether a column of a row ("*", "hccl xccl", "-hccl -xccl") holds for what is known."""
    names = wanted.split()
    if names == ["*"]:
        return True
    if names[0].startswith("-"):
        return not {name[1:] for name in names} & set(known)
    return bool(set(names) & set(known))


def _bytes(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    try:
        return round(float(found[1]) * _UNITS[found[2]]) if found is not None else None
    except ValueError:
        return None
