"""Block of commands for a shell that collects what a verdict lacks: now, while the job hangs, and in the next run."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

import polars as pl

from rankscope.analysis.advice_table import CAPTURED, COLLECTED, MEASURED, SCRIPT, SERVE, SERVERS, STARTS, Advice
from rankscope.analysis.collection_settings import DIRECTORY, RING, settings_for, torch_version
from rankscope.analysis.failure_advice import Situation
from rankscope.analysis.model import Analysis, Culprit, Finding
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.given_input import GivenInput, quoted
from rankscope.text.step_commands import first_command
from rankscope.text.wording import byte_count, ranks_text

UNKNOWN_INPUT = GivenInput()
MOST_PROCESSES = 8
"""Most processes with a line of their own."""
MOST_NODES = 8
MOST_OF_HOST = 16
"""Most devices of one host."""
WIDTH = 100
OP_BYTES = 250
"""Bytes of an operation in a dump with stacks, where no dump tells."""
KEPT_DUMPS = 5
"""Most dumps that the capture keeps of a rank: the newest, and two earlier ones of two runs."""
STACK_BYTES, LOG_BYTES, TRACE_BYTES = 20_000, 60_000, 2_000_000
"""Of a rank: a dump of py-spy; the log of its communicators in a group; thirty compilations in TORCH_TRACE."""
_NAME = re.compile(r"[\w.\-]{1,255}")
_CARRIED = ("healthy", "progressing")


def missing_evidence(analysis: Analysis) -> tuple[str, ...]:
    """The reasons why the evidence does not carry the verdict; empty if it does."""
    if analysis.status in _CARRIED:
        return ()
    first = analysis.cause or next((f for f in analysis.findings if f.severity != "info"), None)
    if first is None:
        return (f"the status is {analysis.status}",)
    kind = FINDINGS[first.kind]
    if not first.culprit_ranks and not first.culprits and not kind.of_settings and not kind.blames_nobody:
        return ("no rank is named", *first.confidence_reasons)
    if first.confidence != "high":
        return (f"sure: {first.confidence}", *first.confidence_reasons)
    return ()


def offered_commands(dataset: Dataset, analysis: Analysis, finding: Finding, given: GivenInput = UNKNOWN_INPUT) -> str:
    """The block, if the finding leads and something helps; else the command of its next step; "" for none."""
    leads = finding is (analysis.cause or next(iter(analysis.findings), None))
    block = command_block(dataset, analysis, given) if leads else ""
    step = first_command(finding.next_steps)
    return block or (f"{step}\n" if step else "")


def command_block(dataset: Dataset, analysis: Analysis, given: GivenInput = UNKNOWN_INPUT) -> str:
    """The block, which a shell takes as it is: comments, variables and commands; "" if nothing is missing.

    It fits the kind of failure, the backend and what starts the processes (`advice_table`). What is collected of the
    job that still hangs is read together with the `given` input: without that, the verdict would be lost.
    """
    why = missing_evidence(analysis)
    finding = analysis.cause or next(iter(analysis.findings), None)
    situation = Situation(dataset, finding)
    told = [row for row in situation.rows() if row.command] if analysis.status not in _CARRIED else []
    if not why and not told:
        return ""
    lines = _comment(f"rankscope: {analysis.verdict}")
    if why:
        lines += _comment(f"It is not proven: {'; '.join(why)}. The lines below collect what is missing.")
    # of steps in which nothing is wrong there is no wait that dumps would explain
    is_quiet = finding is None and dataset.training.height > 0
    is_killed = situation.failure == "died" and situation.facts["killed"]
    collects = situation.failure in COLLECTED and bool(why) and not is_quiet and not is_killed
    goes = "hangs" if analysis.status == "hang" else "runs"
    into = quoted([(given.directory or DIRECTORY).rstrip("/")])
    now = _commands(situation, told, "now", into)
    parts: list[tuple[str, list[str]]] = []
    needs_host = any("{on}" in row.command for row in told if row.when == "now")
    if needs_host and situation.host_finder:
        now = [situation.host_finder, *now]
    if collects:
        title = f"While the job still {goes}: stacks of the ranks in question, then of all others."
        parts.append((title, list(_now(dataset, finding, given, now))))
    elif now:
        parts.append(("On the hosts in question.", now))
    parts.append(("Settings to change.", _commands(situation, told, "change", into)))
    parts.append(_next_run(dataset, situation, _commands(situation, told, "next", into), collects=collects))
    for number, (title, body) in enumerate(((title, body) for title, body in parts if body), 1):
        lines += ["", f"# {number}. {title}", *body]
    lines += (
        ["", *_group(finding), *(_comment(_size(dataset)) if dataset.is_sized and dataset.world_size else [])]
        if collects
        else []
    )
    return "\n".join(lines) + "\n"


def _commands(situation: Situation, rows: Sequence[Advice], when: str, into: str) -> list[str]:
    """The lines of the rows of one time, each once; `into` is the directory of what they collect, for a shell."""
    lines = [line for row in rows if row.when == when for line in situation.filled(row.command, into=into).split("\n")]
    return list(dict.fromkeys(lines))


def _comment(text: str) -> list[str]:
    """Lines of a comment; text of files cannot leave it."""
    shown = plain(text, 2000)
    return textwrap.wrap(shown, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False) or ["#"]


# The job that still hangs: stacks of the ranks in question, on their hosts.


def _now(dataset: Dataset, finding: Finding | None, given: GivenInput, more: Sequence[str]) -> Iterator[str]:
    directory = given.directory or DIRECTORY
    into = quoted([directory])
    if not given.directory:
        yield f"mkdir -p {into}"
    yield from more
    # of a process that ended there is no stack
    ranks = () if finding is not None and FINDINGS[finding.kind].ended else _suspects(finding)
    known = _processes(dataset, finding)
    for rank in ranks[:MOST_PROCESSES]:
        host, pid = known.get(rank, (None, None))
        file = quoted([f"{directory.rstrip('/')}/pyspy_rank_{rank}.txt"])
        if pid is None:
            find = f'grep -lz "^RANK={rank}$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | head -1'
            if host:
                yield f"ssh {host} 'for p in $({find}); do py-spy dump --native --pid $p; done' > {file}"
            else:
                yield f"for p in $({find}); do py-spy dump --native --pid $p > {file}; done  # acts where it runs"
            continue
        dump = f"py-spy dump --native --pid {pid}"
        yield f"ssh {host} {dump} > {file}" if host else f"{dump} > {file}"
    hosts = sorted({host for host, _ in known.values() if host})
    for host in hosts[:MOST_NODES] if len(hosts) <= MOST_NODES else []:
        # a quoted name is quoted once more for the shell of the other host
        yield (
            f'ssh {host} "cd $PWD && rankscope stacks -o {into}"'
            if into == directory
            else (f'ssh {host} "cd $PWD && rankscope stacks -o "{quoted([into])}')
        )
    if not 0 < len(hosts) <= MOST_NODES:
        yield f"rankscope stacks -o {into}  # on each host"
    if given.is_session:
        yield f"# then give rankscope report the files of the job and {into}: a session is opened alone"
    elif given.stands_alone:
        yield f"# the same input again | rankscope report {given.words(directory)}"
    else:
        yield f"rankscope report {given.words(directory)}"


def _suspects(finding: Finding | None) -> tuple[int, ...]:
    """The ranks in question: the accused, else the candidates, else the first members of the group."""
    if finding is None:
        return ()
    members = finding.group.ranks if finding.group is not None else ()
    return finding.culprit_ranks or finding.candidates or finding.about or members


def _processes(dataset: Dataset, finding: Finding | None) -> dict[int, tuple[str | None, int | None]]:
    """Host and process id of ranks, from sidecars, stacks, logs and the finding; no name that harms a shell."""
    found: dict[int, tuple[str | None, int | None]] = {}
    tables = (
        dataset.messages.select("rank", "host", "pid"),
        dataset.comms.select("rank", "host", "pid"),
        dataset.threads.filter(pl.col("is_main") & pl.col("parent_pid").is_null()).select(
            "rank", pl.lit(None, pl.String).alias("host"), "pid"
        ),
        dataset.files.filter(pl.col("used")).select("rank", "host", "pid"),
    )
    rows = [row for table in tables for row in table.drop_nulls("rank").unique(maintain_order=True).iter_rows()]
    culprits: Sequence[Culprit] = finding.culprits if finding is not None else ()
    rows += [(one.rank, one.host, one.pid) for one in culprits if one.rank is not None]
    for rank, host, pid in rows:
        before = found.get(rank, (None, None))
        name = host if host and _NAME.fullmatch(host) and not host.startswith("-") else before[0]
        found[rank] = name, pid if pid is not None and 0 < pid < 1 << 31 else before[1]
    return found


# The next run: variables for its backends, and a start through the capture.


def _next_run(dataset: Dataset, situation: Situation, lines: Sequence[str], *, collects: bool) -> tuple[str, list[str]]:
    """Title and lines of the next run: `lines` of the table, settings of recorders if it `collects`, and the start."""
    body: list[str] = []
    title = "In the next run, on every host."
    if collects:
        backends, version = situation.backends, torch_version(dataset)
        of = f"torch {version[0]}.{version[1]}" if version is not None else "any version of torch"
        title = f"In the next run, on every host ({' and '.join(backends)}, {of})."
        rows = settings_for(backends, version)
        if situation.launcher in SERVERS:
            rows = [row for row in rows if row.name != "TORCH_DISTRIBUTED_DEBUG"]
        width = max(len(row.name) + len(row.value) for row in rows) + 1
        body += [f"export {f'{row.name}={row.value}':<{width}}  # {row.why}" for row in rows]
        if _compiles(dataset):
            body.append(f'export TORCH_TRACE="$PWD/{DIRECTORY}/compile"  # who compiles, when, and how long')
    body += lines
    if situation.launcher not in SERVERS and situation.failure in CAPTURED and situation.script:
        body.append(f"SCRIPT={quoted([situation.script])}  # and its arguments")
    options = MEASURED
    if situation.facts["step"]:
        options += situation.filled(" --numbers steps={first}-{step}")
    if situation.failure not in CAPTURED:
        return title, body
    world = max(1, dataset.world_size)
    each = _ranks_per_host(dataset)
    values = {
        "each": each,
        "world": world,
        "directory": DIRECTORY,
        "options": options,
        "script": SCRIPT,
        "serve": SERVE,
    }
    start = [line.format(**values) for line in STARTS[situation.launcher]]
    made = [f"mkdir -p {DIRECTORY}"] if any(f"{DIRECTORY}/" in line for line in start) else []
    return title, [*body, *made, *start]


def _compiles(dataset: Dataset) -> bool:
    """Whether the job uses torch.compile, as far as lines, stacks or compiler logs tell."""
    if dataset.compilations.height:
        return True
    return bool(dataset.stacks["file"].str.contains("torch/_(?:dynamo|inductor)/").any())


def _ranks_per_host(dataset: Dataset) -> int | str:
    """The ranks of a host; where no host is known, and they are more than one has, what torchrun finds itself."""
    if not dataset.is_sized or not dataset.world_size:
        return "auto"
    hosts = dataset.files["host"].drop_nulls().n_unique()
    if not hosts and dataset.world_size > MOST_OF_HOST:
        return "auto"
    return max(1, -(-dataset.world_size // (hosts or 1)))


def _group(finding: Finding | None) -> list[str]:
    """A line for the program that prints the members of the group in question, and those that are recorded."""
    if finding is None or finding.group is None:
        return []
    what = f"{finding.op or 'the operation'}{f' #{finding.seq}' if finding.seq is not None else ''}"
    name = finding.group.description or finding.group.id
    return [
        *_comment(f"3. In the program, in front of {what} of {name}; its members as recorded: "
                  f"{ranks_text(finding.group.ranks)}."),
        "#   print(dist.get_rank(), dist.get_process_group_ranks(group), flush=True)",
        "",
    ]  # fmt: skip


def _size(dataset: Dataset) -> str:
    """How much all of it writes, for all ranks together."""
    ranks = max(1, dataset.world_size)
    dumps = dataset.dumps.filter((pl.col("rows") > 0) & ~pl.col("path").str.contains(r"\.(?:gz|zst|xz|bz2|tar|zip)|!"))
    told = (dumps["size"] / dumps["rows"]).median() if dumps.height else None
    each = told if isinstance(told, float) and told > 0 else OP_BYTES
    parts = {
        "dumps": ranks * KEPT_DUMPS * RING * each,
        "stacks": ranks * STACK_BYTES,
        "logs": ranks * LOG_BYTES * max(1, min(dataset.groups.height, 16)),
    }
    if _compiles(dataset):
        parts["compiler logs"] = ranks * TRACE_BYTES
    listed = ", ".join(f"{name} {byte_count(round(size))}" for name, size in parts.items())
    return f"It writes about {byte_count(round(sum(parts.values())))} for {ranks:,} ranks at most: {listed}."
