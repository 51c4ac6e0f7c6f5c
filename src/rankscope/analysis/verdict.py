"""The verdict: one sentence and one status for the whole job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.freeze import Freeze, snapshot_state
from rankscope.analysis.model import Analysis, Finding, Status
from rankscope.analysis.places import Places
from rankscope.analysis.reliability import Reliability
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.input_kinds import TORCH_TRACE
from rankscope.schema import Dataset
from rankscope.schema.tables import AT_STANDSTILL, CODE_SOURCE
from rankscope.text.wording import plural, ranks_text

MOST_ENDS = 4
"""Most ways of ending that are told; a sidecar may say anything."""


@dataclass(frozen=True)
class Scene:
    """The job as the rules about its dumps leave it: what the verdict and features that join need beside findings."""

    facts: Facts
    places: Places
    freeze: Freeze
    reliability: Reliability
    hang_since_ns: int | None
    """When the first operation that is not finished was issued; None if none is known to be unfinished."""

    @property
    def still(self) -> bool:
        """Whether the job is known to have stopped, and all dumps are of that time."""
        return self.freeze.stopped is True and not self.reliability.outdated

    @property
    def moves(self) -> bool:
        """Whether it is watched and goes on: missing lines may still come."""
        return self.freeze.watched and self.freeze.stopped is False


def verdict(scene: Scene, findings: Sequence[Finding]) -> tuple[Status, str]:
    """(status, sentence) of the whole job: of its causes, else of its slow ranks, else of a job without either."""
    dataset = scene.facts.dataset
    critical = [f for f in findings if f.severity == "critical"]
    causes = [f for f in critical if f.root_cause]
    if (not dataset.seen_ranks or dataset.from_samples) and not dataset.told_by_logs:
        # stacks of one moment prove no hang, unless the ranks took them for standing still
        stands = bool(causes) and bool(dataset.threads["tool"].eq_missing(AT_STANDSTILL).all())
        status: Status = _of_causes(causes, scene.places)[0] if stands else "suspect" if causes else "unknown"
        return status, _of_snapshots(findings) or _without_dumps(scene, findings)
    if causes:
        return _of_causes(causes, scene.places)
    if critical:
        return ("failed" if FINDINGS[critical[0].kind].ended else "hang"), critical[0].title
    slow = [f for f in findings if FINDINGS[f.kind].status == "slow" and f.culprit_ranks]
    if slow:
        return "slow", slow[0].title + _shared(slow, scene.places)
    if dataset.dumps.is_empty() and scene.hang_since_ns is None:
        return _of_logs(dataset, findings)
    ranks = plural(len(dataset.seen_ranks), "rank")
    healthy = f"{ranks}, no divergence: every collective was issued and finished by all of its members"
    return _in_motion(scene, findings, ranks) or _at_rest(scene, findings, ranks) or ("healthy", healthy)


def _of_causes(causes: Sequence[Finding], places: Places) -> tuple[Status, str]:
    """The verdict of the first root cause, with the number of ranks that it holds up."""
    first, kind = causes[0], FINDINGS[causes[0].kind]
    text = "; ".join(filter(None, (first.title, waiting_ranks(first))))
    if len(causes) > 1:
        text += f" (and {plural(len(causes) - 1, 'more root cause')})"
    return kind.status if first.waiting_ranks else kind.status_alone, text + _shared(causes, places)


def waiting_ranks(finding: Finding) -> str:
    """The ranks that a finding blocks: "3 ranks wait", or "3 ranks wait or were killed" where a process ended."""
    if not finding.blast_radius:
        return ""
    one = finding.blast_radius == 1
    killed = (" or was killed" if one else " or were killed") if FINDINGS[finding.kind].ended else ""
    return f"{plural(finding.blast_radius, 'rank')} {'waits' if one else 'wait'}{killed}"


def _shared(findings: Sequence[Finding], places: Places) -> str:
    """A place that all culprits share, as the end of the sentence."""
    shared = places.shared(findings)
    return f"; {shared.short}" if shared else ""


def with_records(facts: Facts, analysis: Analysis, told: Sequence[Finding], alone: str, quiet: str) -> Analysis:
    """The analysis with findings from records that ranks wrote beside their operations, behind causes and what is
    critical.

    Where nothing is critical, the first warning stands behind the verdict. If nothing else was read, that is `alone`
    ("samples of memory"), or with `quiet` behind it where nothing warns.
    """
    leading = [f for f in analysis.findings if f.root_cause or f.severity == "critical"]
    rest = [f for f in analysis.findings if f not in leading]
    known = replace(analysis, findings=(*leading, *told, *rest))
    if any(f.severity == "critical" for f in analysis.findings):
        return known
    warned = next((f for f in told if f.severity == "warning"), None)
    verdict = analysis.verdict
    if alone:
        what = f"{alone} of {plural(len(facts.dataset.seen_ranks), 'rank')}"
        verdict = f"{what}: {quiet}" if warned is None else f"{what}; they do not show whether the job went on"
    if warned is not None:
        verdict += f"; but {warned.title}" if verdict else warned.title
    return replace(known, verdict=verdict)


def _of_snapshots(findings: Sequence[Finding]) -> str:
    """The first failed request of memory snapshots; "" without one."""
    return next((f.title for f in findings if f.kind == "memory-request-failed"), "")


def _without_dumps(scene: Scene, findings: Sequence[Finding]) -> str:
    """The verdict if only stacks were read, or nothing at all."""
    dataset = scene.facts.dataset
    looked = dataset.threads.height > 0
    telling = [f for f in findings if f.kind != "broken-package"]
    if telling and (looked or dataset.site):
        return telling[0].title
    if scene.freeze.watched:
        return "no dump can be read yet"
    if dataset.samples.height:
        noted = _noted(findings)
        shown = "rankscope stacks PATH shows what each rank does" if noted is None else noted.title
        return f"only stacks over time were found: {shown}"
    if dataset.snapshots.height:
        return "only memory snapshots were found: rankscope report --only memory PATH shows what each rank holds"
    if not looked and not (logs := _compiler_logs(dataset)).is_empty():
        return _of_compiler_logs(dataset, logs, [])
    return "only stacks were found, and their ranks are not known" if looked else "no dump could be read"


def _of_logs(dataset: Dataset, findings: Sequence[Finding]) -> tuple[Status, str]:
    """The verdict of logs alone: they do not show that a job ends without an error, or goes on."""
    warnings = [f for f in findings if f.severity == "warning"]
    if not dataset.has_logs:
        return "unknown", _without_logs(dataset, findings, warnings)
    ended = _ended(dataset)
    if warnings and (_stacks_alone(dataset) or _analysers_alone(dataset)):
        return "unknown", warnings[0].title
    if warnings:
        return "healthy" if ended else "unknown", f"no failure in these logs, but: {warnings[0].title}"
    if ended:
        ranks = plural(dataset.world_size, "rank")
        return "healthy", f"logs of {ranks}: no failure, and each took down all of its communicators at the end"
    if (noted := _noted(findings)) is not None:
        return "unknown", f"no failure in these logs; {noted.title}"
    return "unknown", f"no failure in these logs; they do not show whether the job went on{_spoken(dataset)}"


def _noted(findings: Sequence[Finding]) -> Finding | None:
    """The first finding that is no warning, and that the verdict says where nothing is worse."""
    return next((f for f in findings if f.kind in FINDINGS and FINDINGS[f.kind].said_alone), None)


def _without_logs(dataset: Dataset, findings: Sequence[Finding], warnings: Sequence[Finding]) -> str:
    """The verdict of sidecars, compiler logs or settings alone."""
    ends = _ends(dataset)
    if ends and (dataset.settings["source"] == CODE_SOURCE).all():
        return f"only sidecars were found: {ends}"
    if not (logs := _compiler_logs(dataset)).is_empty():
        noted = _noted(findings)
        return _of_compiler_logs(dataset, logs, warnings or ([] if noted is None else [noted]))
    return f"only settings were found{f': {warnings[0].title}' if warnings else ', and they agree'}"


def _compiler_logs(dataset: Dataset) -> pl.DataFrame:
    return dataset.files.filter(pl.col("used") & (pl.col("kind") == TORCH_TRACE.name))


def _of_compiler_logs(dataset: Dataset, logs: pl.DataFrame, warnings: Sequence[Finding]) -> str:
    """The verdict of compiler logs; `logs` are their rows of `files`."""
    known, nameless = logs["rank"].drop_nulls().unique().to_list(), logs["rank"].null_count()
    parts = [plural(len(known), "rank") if len(known) > 1 else ranks_text(known)] if known else []
    parts += [f"{plural(nameless, 'process')} without a known rank"] if nameless else []
    whose = f"compiler {'log' if logs.height == 1 else 'logs'} of {' and '.join(parts)}"
    if dataset.compilations.is_empty():
        return f"{whose}: without a compilation"
    if warnings:
        nobody = len(known) > 1 and not (warnings[0].culprit_ranks or warnings[0].candidates)
        return f"{whose}: {'nobody compiles alone, but ' if nobody else ''}{warnings[0].title}"
    if logs.height == 1:
        return f"{whose}: nothing is compiled again and again; it does not show whether the job went on"
    return f"{whose}: nobody compiles alone; they do not show whether the job went on"


def _stacks_alone(dataset: Dataset) -> bool:
    """Whether the logs hold only stacks, and notes on ranks that sent none."""
    told = dataset.messages["kind"] == "no-answer"
    return dataset.threads.height > 0 and bool(told.all()) and dataset.settings.is_empty() and dataset.comms.is_empty()


def _analysers_alone(dataset: Dataset) -> bool:
    """Whether the logs hold only what other analysers printed."""
    own = (pl.col("kind") == "analyser-report") | pl.col("text").str.contains(
        "Missing dump files from ranks {", literal=True
    )
    return not dataset.messages.is_empty() and dataset.messages.select(own.all()).item()


def _ends(dataset: Dataset) -> str:
    """The ways in which processes ended, by their sidecars, each once, without the errors."""
    ends = dataset.messages.filter(pl.col("kind") == "process-end").sort("rank")
    ways = ends.group_by(pl.col("text").str.split(": ").list.first(), maintain_order=True).agg("rank")
    told = [f"{way} ({ranks_text(ranks)})" for way, ranks in ways.iter_rows()]
    more = [f"{len(told) - MOST_ENDS} more ways"] if len(told) > MOST_ENDS else []
    return ", ".join([*told[:MOST_ENDS], *more])


def _spoken(dataset: Dataset) -> str:
    """The ranks of the lines, unless they are all ranks, and their place if all are at one."""
    started = dataset.messages.filter(pl.col("kind") == "log-processes")["text"]
    if started.len():
        return f": {started[0]}"
    known = dataset.comms.drop_nulls(["host", "pid"]).select("host", "pid").unique().height
    size = dataset.comms["size"].drop_nulls().max()
    if not isinstance(size, int) or not 0 < known < size:
        return ""
    ops = dataset.ops.filter((pl.col("source") == "nccl-log") & pl.col("seq").is_not_null())
    last = ops.group_by("rank").agg(pl.struct("group", "op", "seq").sort_by("seq").last())
    places = last["group"].unique().to_list() if last.height == known > 1 else []
    at = f", all of which issued {places[0]['op']} #{places[0]['seq']} last" if len(places) == 1 else ""
    return f"; they hold lines of {known:,} of {size:,} ranks{at}"


def _ended(dataset: Dataset) -> bool:
    """Whether every rank has destroyed every communicator, as a program does at its end."""
    comms = dataset.comms
    told = comms.height > 0 and not comms["rank"].has_nulls() and bool((comms["state"] == "destroyed").all())
    return told and set(comms["rank"]) == set(range(dataset.world_size))


def _in_motion(scene: Scene, findings: Sequence[Finding], ranks: str) -> tuple[Status, str] | None:
    """The verdict of a job that was, or may have been, caught while moving; None for any other."""
    freeze, moving = scene.freeze, next((f for f in findings if f.kind == "not-frozen"), None)
    unfinished = moving is not None or scene.hang_since_ns is not None or bool(scene.facts.blind_files)
    if unfinished and freeze.ends and not freeze.stopped:
        how = _ends(scene.facts.dataset)
        return "unknown", f"{ranks}: every process has ended ({how}), and operations were pending before"
    if moving is not None and freeze.stopped is None:
        return FINDINGS[moving.kind].status, moving.title
    if unfinished and freeze.stopped is False:
        state, reason = snapshot_state(freeze)
        if freeze.watched:
            # the watcher knows better, and replaces this
            return "progressing", f"{ranks}: {reason}"
        if state == "progressing":
            return "progressing", f"{ranks}: the job was still moving when the dumps were written"
        return "unknown", f"{ranks}: {reason}"
    if scene.reliability.outdated:
        old = ranks_text(sorted(scene.reliability.outdated))
        return "progressing", f"the dumps were taken at different moments ({old} earlier); nothing is proven to hang"
    return None


def _at_rest(scene: Scene, findings: Sequence[Finding], ranks: str) -> tuple[Status, str] | None:
    """The verdict of dumps without a divergence that cannot show a healthy job; None if they can."""
    nothing = next((f for f in findings if f.kind == "nothing-recorded"), None)
    if nothing is not None:
        return FINDINGS[nothing.kind].status, nothing.title
    if scene.facts.dataset.unopened:
        how = ": open the directory" if scene.facts.dataset.beside.directory else ""
        return "unknown", f"{ranks}: {scene.facts.dataset.unopened}{how}"
    if scene.hang_since_ns is not None:
        unnoticed = "; completions are noticed up to a second late: dump again" if scene.facts.hook_groups else ""
        return "unknown", f"{ranks}: operations are pending, and these dumps do not show why{unnoticed}"
    behind = _behind(scene.facts)
    if behind:
        return "unknown" if scene.freeze.stopped else "progressing", behind
    untold = _untold(scene.facts)
    return ("unknown", f"{ranks}, no divergence, but {untold}") if untold else None


def _untold(facts: Facts) -> str | None:
    """Facts that dumps without a divergence lack to call the job healthy; None if they lack none."""
    dataset = facts.dataset
    if facts.nothing_recorded:
        return "nothing was recorded in their dumps"
    if dataset.missing_ranks:
        ranks = ranks_text(dataset.missing_ranks)
        return f"no dump of {ranks} was read" if dataset.unread_directories else f"{ranks} left no dump"
    if dataset.unread_directories and dataset.dumps.is_empty():
        return f"{dataset.unread_directories[0][0]} was not read"
    if len(dataset.seen_ranks) == 1 and any(group.membership == "inferred" for group in dataset.group_list):
        return "its dump does not tell who else is in its groups, and nothing was compared: collect those of all ranks"
    collectives = dataset.ops.filter(~pl.col("is_p2p"))
    if facts.blind_files and collectives["state"].eq("unknown").any():
        return "their backend does not record whether operations finish"
    last = dataset.ops.group_by("rank").last()
    batched = last.filter((pl.col("state") == "unknown") & pl.col("is_p2p"))["rank"].sort().to_list()
    if batched and facts.hook_groups:
        return f"{ranks_text(batched)} last issued sends or receives, whose ends the hook does not record"
    return None


def _behind(facts: Facts) -> str | None:
    """Operations that gloo ended on some ranks and others never issued: failed, or those dumps are a moment older."""
    for group in sorted(facts.gloo_groups):
        behind = (pl.col("group") == group) & (pl.col("enqueued") < facts.reached.get(group, -1))
        late = sorted(facts.presence.frontiers.table.filter(behind)["rank"].to_list())
        if late:
            have, dumps = ("has", "its dump is") if len(late) == 1 else ("have", "their dumps are")
            what = f"#{facts.reached[group]} of {facts.label(group)}"
            return f"{ranks_text(late)} {have} not issued {what}, which others finished: it failed, or {dumps} older"
    return None
