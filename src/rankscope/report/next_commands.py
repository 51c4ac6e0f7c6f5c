"""Block of commands for a shell that collects what a verdict lacks: now, while the job hangs, and in the next run."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

import polars as pl

from rankscope.analysis.model import Analysis, Culprit, Finding
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.report.collection_settings import (
    DIRECTORY,
    RING,
    backends_of,
    settings_for,
    torch_version,
)
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.given_input import GivenInput, quoted
from rankscope.text.step_commands import first_command
from rankscope.text.wording import byte_count, ranks_text

UNKNOWN_INPUT = GivenInput()
MOST_PROCESSES = 8
"""Most processes with a line of their own."""
MOST_NODES = 8
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
    if not first.culprit_ranks and not first.culprits and not FINDINGS[first.kind].of_settings:
        return ("no rank is named", *first.confidence_reasons)
    if first.confidence != "high":
        return (f"{first.confidence} confidence", *first.confidence_reasons)
    return ()


def offered_commands(dataset: Dataset, analysis: Analysis, finding: Finding, given: GivenInput = UNKNOWN_INPUT) -> str:
    """The block, if the finding leads and is not proven; else the command of its next step; "" for none."""
    leads = finding is (analysis.cause or next(iter(analysis.findings), None))
    block = command_block(dataset, analysis, given) if leads else ""
    step = first_command(finding.next_steps)
    return block or (f"{step}\n" if step else "")


def command_block(dataset: Dataset, analysis: Analysis, given: GivenInput = UNKNOWN_INPUT) -> str:
    """The block, which a shell takes as it is: comments, variables and commands; "" if nothing is missing.

    What is collected of the job that still hangs is read together with the `given` input: without that, the verdict
    would be lost.
    """
    why = missing_evidence(analysis)
    if not why:
        return ""
    finding = analysis.cause or next(iter(analysis.findings), None)
    goes = "hangs" if analysis.status == "hang" else "runs"
    lines = [
        *_comment(f"rankscope: {analysis.verdict}"),
        *_comment(f"It is not proven: {'; '.join(why)}. The lines below collect what is missing."),
        "",
        f"# 1. While the job still {goes}: stacks of the ranks in question, then of all others.",
        *_now(dataset, finding, given),
        "",
        *_next_run(dataset),
        "",
        *_group(finding),
        *_comment(_size(dataset)),
    ]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    """Lines of a comment; text of files cannot leave it."""
    shown = plain(text, 2000)
    return textwrap.wrap(shown, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False) or ["#"]


# The job that still hangs: stacks of the ranks in question, on their hosts.


def _now(dataset: Dataset, finding: Finding | None, given: GivenInput) -> Iterator[str]:
    directory = given.directory or DIRECTORY
    into = quoted([directory])
    if not given.directory:
        yield f"mkdir -p {into}"
    ranks = _suspects(finding)
    known = _processes(dataset, finding)
    for rank in ranks[:MOST_PROCESSES]:
        host, pid = known.get(rank, (None, None))
        if pid is None:
            yield from _comment(f"rank {rank}{f' on {host}' if host else ''}: its process id is not known")
            continue
        dump = f"py-spy dump --native --pid {pid}"
        file = quoted([f"{directory.rstrip('/')}/pyspy_rank_{rank}.txt"])
        yield f"ssh {host} {dump} > {file}" if host else f"{dump} > {file}  # on the host of rank {rank}"
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
        yield f"# rankscope report FILES_OF_THE_JOB {into}  # instead of {given.words()}: a session is opened alone"
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


def _next_run(dataset: Dataset) -> Iterator[str]:
    backends, version = backends_of(dataset), torch_version(dataset)
    of = f"torch {version[0]}.{version[1]}" if version is not None else "any version of torch"
    yield f"# 2. In the next run, on every host ({' and '.join(backends)}, {of})."
    rows = settings_for(backends, version)
    width = max(len(row.name) + len(row.value) for row in rows) + 1
    for row in rows:
        yield f"export {f'{row.name}={row.value}':<{width}}  # {row.why}"
    if _compiles(dataset):
        yield f'export TORCH_TRACE="$PWD/{DIRECTORY}/compile"  # who compiles, when, and how long'
    yield f"LAUNCH='--nproc-per-node {_ranks_per_host(dataset)}'  # your options of torchrun"
    yield "SCRIPT='train.py'  # your script with its arguments"
    yield f"torchrun $LAUNCH -m rankscope.capture -o {DIRECTORY} --interval 10 $SCRIPT"


def _compiles(dataset: Dataset) -> bool:
    """Whether the job uses torch.compile, as far as lines, stacks or compiler logs tell."""
    if dataset.compilations.height:
        return True
    return bool(dataset.stacks["file"].str.contains("torch/_(?:dynamo|inductor)/").any())


def _ranks_per_host(dataset: Dataset) -> int:
    hosts = dataset.files["host"].drop_nulls().n_unique() or 1
    return max(1, -(-dataset.world_size // hosts))


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
