"""Kinds of findings, and their severities and statuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankscope.kinds.functions import KindTable

Severity = Literal["critical", "warning", "info"]
Status = Literal["healthy", "progressing", "hang", "mismatch", "slow", "failed", "unknown", "suspect", "numbers-ok"]
Standing = Literal["proof", "model", "heuristic"]
"""Ground of a limit: it holds for every order of additions; for independent roundings; or in practice."""
Absent = Literal["nobody", "culprits", "candidates"]


@dataclass(frozen=True, slots=True)
class BadgeStyle:
    """Style of a severity or a status on the screen."""

    face: Literal["critical", "warning", "info", "fine"]
    """The look of its badge in the themes of the screen."""
    badge: str
    """Four letters for lists, or the status in capitals."""
    role: Literal["text", "bad", "warn", "dim"] = "text"
    """Style of its text on a page."""


SEVERITIES: dict[Severity, BadgeStyle] = {
    "critical": BadgeStyle("critical", "CRIT", "bad"),
    "warning": BadgeStyle("warning", "WARN", "warn"),
    "info": BadgeStyle("info", "INFO", "dim"),
}
"""Severities, the worst first."""
STATUSES: dict[Status, BadgeStyle] = {
    "healthy": BadgeStyle("fine", "HEALTHY"),
    "progressing": BadgeStyle("fine", "PROGRESSING"),
    "hang": BadgeStyle("critical", "HANG"),
    "mismatch": BadgeStyle("critical", "MISMATCH"),
    "failed": BadgeStyle("critical", "FAILED"),
    "slow": BadgeStyle("warning", "SLOW"),
    "suspect": BadgeStyle("warning", "SUSPECT"),
    "numbers-ok": BadgeStyle("fine", "NUMBERS OK"),
    "unknown": BadgeStyle("warning", "UNKNOWN"),
}
"""Statuses of a whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingKind:
    """A kind of finding."""

    name: str
    meaning: str
    """Text of its row in docs/report.md."""
    worst: Severity
    """The highest severity of its findings."""
    short: str = ""
    """A title of at most 70 characters, for those that are longer; `{who}` are the accused, `{what}` the operation. ""
    for the name of the kind."""
    find: str = ""
    """Function (facts, whether a hang was found) -> findings beside the causes, as "module:function" below `rankscope`;
    "" for findings of the analysis rules. Called in the order of the table."""
    find_in: str = ""
    """Table without which there is nothing to find."""
    status: Status = "hang"
    """Status of a verdict with such a finding first."""
    status_alone: Status = "hang"
    """Status of a verdict with such a finding first, if no rank waits for it."""
    view: str = ""
    """Name of the view of its records; "" for findings of the lanes, logs and stacks."""
    needs_stillness: bool = False
    """In a watched job that moves, it proves nothing and is only a suspicion."""
    absent: Absent = "nobody"
    """Ranks that did not come to an operation: the culprits of the finding, or its candidates."""
    differs: bool = False
    """It means that members of a group issued things that do not fit together."""
    said_alone: bool = False
    """The verdict of logs without a failure says it, though it is no warning."""
    ended: bool = False
    """It means that a process ended: waiting processes may have been killed, and its stack is in its log."""
    stands_alone: bool = False
    """It is reported even if only its culprits are held up."""
    drains_node: bool = False
    """A broken node may cause it: a host with all culprits is to be drained."""
    of_settings: bool = False
    """It is reported beside the settings in question."""
    blames_nobody: bool = False
    """It accuses no rank, however sure it is."""
    failure: str = ""
    """Kind of failure in the table of advice, whatever lines show it; "" where its lines tell."""
    rule: str = ""
    """The rule that accuses somebody, for `--why`; "" where the explanation has it."""
    clears: str = "a newer dump in which it has moved on"
    """Evidence that would clear the accused; `{subject}` is the operation."""


_MISFIT = "members issued operations that do not fit together"
_MISFIT_RULE = (
    "if members issued different operations at one place, the minority is accused; in a tie the replicas of the "
    "group decide, and without replicas all are accused"
)
_MISFIT_CLEARS = "its program: if it took the branch that is meant at {subject}, the others are wrong"
_GAP = "missing evidence"
_LESS = "a limit of the evidence, with settings for the next run"

FINDINGS: KindTable[FindingKind] = KindTable(
    FindingKind(
        name="missing-rank", short="{who} never issued {what}",
        worst="critical", meaning="a member never issued the collective the others wait in",
        needs_stillness=True, absent="culprits", drains_node=True,
        clears="a dump just as new, in which it issued {subject} or waits in another operation",
    ),
    FindingKind(
        name="gpu-stuck", short="{who}: the device did not finish {what}",
        worst="critical",
        meaning="a rank issued it, but its device never started or finished it, while others' did",
        needs_stillness=True, drains_node=True,
        rule="it issued what its peers issued, and only its device did not start or finish it",
        clears="a later dump in which {subject} has finished on it, or the kernel in front of it turns out to wait "
        "for another rank",
    ),
    FindingKind(
        name="collective-mismatch", short="{who} issued another operation than the others",
        worst="critical", status="mismatch", status_alone="mismatch", meaning=_MISFIT,
        differs=True, rule=_MISFIT_RULE, clears=_MISFIT_CLEARS,
    ),
    FindingKind(
        name="size-mismatch", short="{who} passed another size to {what}",
        worst="critical", status="mismatch", status_alone="mismatch", meaning=_MISFIT,
        differs=True, rule=_MISFIT_RULE, clears=_MISFIT_CLEARS,
    ),
    FindingKind(
        name="dtype-mismatch", short="{who} passed another type to {what}",
        worst="critical", status="mismatch", status_alone="mismatch", meaning=_MISFIT,
        differs=True, rule=_MISFIT_RULE, clears=_MISFIT_CLEARS,
    ),
    FindingKind(
        name="extra-collective", short="calls too many or too few at {what}",
        worst="critical", status="mismatch", status_alone="mismatch",
        meaning="a few issued a collective that most of the group never did",
        absent="candidates", stands_alone=True,
        rule="a few members issued a call that the rest did not: the rest waits for nothing and never comes to it, or "
        "the lines that issue later calls show that the few are that call ahead",
        clears="py-spy of the others: if they are all stuck at one place that has nothing to do with {subject}, they "
        "are the cause; or a program in which all are meant to issue it",
    ),
    FindingKind(
        name="order-deadlock", short="{who} entered groups in another order",
        worst="critical", meaning="groups were entered in different orders", stands_alone=True,
        rule="if ranks wait for each other in a circle, the minority by order is accused, and without a majority "
             "all are accused",
        clears="its program: if it entered the groups in the order that is meant, the others are wrong",
    ),
    FindingKind(
        name="p2p-unmatched", short="{who}: a send or receive has no partner",
        worst="critical", meaning="a send without its receive, or the other way round",
        needs_stillness=True, absent="culprits", drains_node=True,
        rule="one side of a send and receive was posted, and the other side, which waits for nothing, was not",
        clears="a dump of it, as new as that of its peer, in which it posted its side; or a schedule in which its "
        "peer should not wait for {subject}",
    ),
    FindingKind(
        name="stuck-in-collective", short="all joined {what}, and nobody finishes it",
        worst="critical", meaning="everybody joined, nobody finishes",
        needs_stillness=True, stands_alone=True,
    ),
    FindingKind(
        name="rank-failed", short="{who} failed of itself",
        worst="critical", status="failed", status_alone="failed",
        meaning="a process failed of itself, by an error, a signal or its exit code",
        ended=True, drains_node=True,
    ),
    FindingKind(
        name="init-hang", short="members never came while a group was set up",
        worst="critical", meaning="members of a group never came while it was set up",
        needs_stillness=True, drains_node=True,
    ),
    FindingKind(
        name="known-error", short="logs hold an error that is known: {who}",
        worst="critical", status_alone="failed",
        meaning="logs hold an error whose meaning is known; accused are the ranks that its line names, if any",
    ),
    FindingKind(
        name="numeric-divergence", short="{who}: wrong values at {what}",
        worst="critical", status="mismatch", status_alone="mismatch", drains_node=True,
        meaning="values are not what the inputs and the format of numbers allow", stands_alone=True,
        clears="a record of the same step in which {subject} keeps the rule",
    ),
    FindingKind(
        name="loss-not-finite", short="the loss or gradient norm is not finite any more",
        worst="critical", failure="not-finite",
        status="failed", status_alone="failed", blames_nobody=True,
        meaning="a loss or gradient norm that a trainer printed is not finite any more, up to the end of its log",
    ),
    FindingKind(
        name="steps-skipped", short="steps count for nothing up to the end of the log",
        worst="warning", failure="not-finite",
        status="unknown", status_alone="unknown", blames_nobody=True,
        meaning="a trainer prints, up to the end of its log, that steps are skipped or that iterations are nan",
    ),
    FindingKind(
        name="loss-jump", short="the loss jumps and does not come back",
        worst="warning", failure="not-finite",
        status="unknown", status_alone="unknown", blames_nobody=True,
        meaning="a loss that a trainer printed jumps and does not come back",
    ),
    FindingKind(
        name="steps-slower", short="steps take longer from one step on",
        worst="warning", failure="slower", status="slow", status_alone="slow", blames_nobody=True,
        meaning="the steps of a job take longer from one step on, by what its trainer printed",
    ),
    FindingKind(
        name="values-not-finite", short="a value was not finite for a time",
        worst="warning", failure="not-finite",
        status="unknown", status_alone="unknown", blames_nobody=True,
        meaning="a value that a trainer printed was not finite for a time",
    ),
    FindingKind(
        name="straggler", short="{who} came late again and again",
        worst="warning", status="slow", status_alone="slow",
        meaning="a rank is late again and again; that makes a job slow, and never makes it hang or fail",
        drains_node=True,
        rule="it comes last in most collectives of a group, by a margin that chance does not explain",
        clears="a profile in which it is not late, or clocks of the hosts that are apart",
    ),
    FindingKind(
        name="memory-request-failed", short="{who} ran out of device memory",
        worst="critical", status="failed", status_alone="failed", view="snapshots",
        meaning="a request for memory of a device found none, by the history of a memory snapshot",
        find="features.memory.rules.snapshot_failures:failed_in_snapshots", find_in="snapshots",
        clears="a later part of the history, in which the program goes on",
    ),
    FindingKind(
        name="memory-leak", short="memory of {who} grows with every step",
        worst="warning", meaning="the memory of a rank grows with every step",
        clears="samples of more steps in which its memory grows no more",
    ),
    FindingKind(
        name="memory-uneven", short="memory of {who} is much fuller than of its peers",
        worst="warning", meaning="a rank holds much more memory than its peers",
        clears="a design in which this rank is meant to hold more",
    ),
    FindingKind(
        name="memory-fragmented", short="reserved memory lay in pieces that were too small",
        worst="warning", failure="device-memory",
        meaning="an allocator had reserved enough memory for a request that failed, in pieces that were too small",
    ),
    FindingKind(
        name="memory-summary", short="a memory summary counts no failed request",
        worst="warning", status="unknown", status_alone="unknown",
        meaning="what a memory summary of torch says of a device, where it counts no failed request",
    ),
    FindingKind(
        name="model-mismatch", short="the model of {who} differs from its peers",
        view="model", worst="warning",
        meaning="ranks hold another model than their peers: names, shapes, types, frozen or not, wrapper, placement",
        rule="ranks that share a mesh or a wrapper hold the same parameters: the few that differ are accused",
        clears="a design in which these ranks hold a part of their own",
    ),
    FindingKind(
        name="partial-tensor", short="a summand of a DTensor was never reduced",
        view="model", worst="warning",
        meaning="a parameter or gradient is a summand of a DTensor that nobody reduced",
    ),
    FindingKind(
        name="unsharded-parameter", short="each rank holds a large parameter whole",
        view="model", worst="warning",
        meaning="each rank holds a large parameter whole, though nearly all others of its size are sharded",
    ),
    FindingKind(
        name="unwrapped-parameter", short="a wrapper left out a trained parameter",
        view="model", worst="warning",
        meaning="a wrapper took most parameters, and a trained one was left out",
    ),
    FindingKind(
        name="uneven-shards", short="shards of {who} are far larger than of its peers",
        view="model", worst="warning",
        meaning="the shards of a rank are far larger than those of its peers",
        clears="a dimension that these ranks do not divide",
    ),
    FindingKind(
        name="lone-compilation", short="torch.compile compiles far more often on {who}",
        worst="warning", failure="recompiles", status="slow", status_alone="slow",
        meaning="torch.compile compiles again and again, or without its cache, on a few ranks only",
        rule="it compiles one function three times or more, four times as often as any other rank",
        clears="a record of the same steps in which the others compile as often",
    ),
    FindingKind(
        name="recompilation", short="torch.compile compiles a function again and again",
        worst="warning", status="slow", status_alone="slow",
        meaning="torch.compile compiles a function again and again; nobody is accused",
    ),
    FindingKind(
        name="few-recompilations", short="few functions are compiled again", worst="info", said_alone=True,
        meaning="torch.compile compiles functions again once or twice; nobody is accused",
    ),
    FindingKind(
        name="compilation-failed", short="an exception ended a compilation",
        worst="warning",
        meaning="an exception ended a compilation of torch.compile",
    ),
    FindingKind(
        name="graph-breaks", short="torch.compile splits functions into several graphs",
        worst="info", said_alone=True,
        meaning="torch.compile splits functions into several graphs: where, how often, why; nobody is accused",
    ),
    FindingKind(
        name="stack-shares-differ", short="shares of time in a call differ between ranks",
        worst="info", said_alone=True,
        meaning="by stacks over time, ranks spend different shares of their time in a call; nobody is accused",
    ),
    FindingKind(
        name="slow-link", short="some links take longer than all others",
        worst="warning",
        meaning="a few groups or pairs take longer than all others of their kind, whatever they run", drains_node=True,
    ),
    FindingKind(
        name="allocator-flush", short="the allocator frees its cache within steps",
        worst="warning",
        meaning="the allocator frees its cache and takes memory again within steps, and the device waits for it",
    ),
    FindingKind(
        name="host-bound", short="the devices idle for most of each step",
        worst="warning",
        meaning="the devices idle for most of each step, as their hosts hand over no work",
    ),
    FindingKind(
        name="uneven-work", short="uneven work makes steps longer; no rank is to blame",
        worst="warning", status="slow", status_alone="slow",
        meaning="stages or sequences of unequal length, a slow link, or time between operations make steps longer: "
        "no rank is to blame",
    ),
    FindingKind(
        name="mesh-misfit", short="a group does not fit the grid of the others",
        worst="warning",
        meaning="a group is not what the grid of the others makes of it: the ranks that are in two groups of a kind, "
        "or in none",
    ),
    FindingKind(
        name="settings-mismatch", short="a setting differs between ranks",
        worst="warning", meaning="a setting that should agree differs between ranks",
        of_settings=True,
    ),
    FindingKind(
        name="version-mismatch", short="a version differs between ranks",
        worst="warning", meaning="a version that should agree differs between ranks",
        of_settings=True,
    ),
    FindingKind(
        name="hardware-fault", short="hardware is reported broken or lost",
        worst="warning", drains_node=True,
        meaning="a kernel, a driver or a tool reports broken or lost hardware that is no proven cause",
    ),
    FindingKind(
        name="unreadable-file", short="some files could not be read",
        worst="warning", meaning=_GAP, find="analysis.data_gaps:unreadable_files",
    ),
    FindingKind(
        name="links-not-followed", short="links lead out of what was read",
        worst="warning", meaning="links lead out of what was read, and were not followed",
        find="analysis.data_gaps:links_not_followed",
    ),
    FindingKind(
        name="truncated-file", short="some files are cut",
        worst="warning", meaning=_GAP, find="analysis.data_gaps:truncated_files",
    ),
    FindingKind(
        name="missing-dump", short="dumps of some ranks are missing",
        worst="warning", meaning=_GAP, find="analysis.data_gaps:missing_dumps",
    ),
    FindingKind(
        name="nothing-recorded", short="ranks left dumps without any operation",
        worst="warning", status="unknown", status_alone="unknown",
        meaning="ranks left dumps that hold no operation", find="analysis.data_gaps:nothing_recorded",
    ),
    FindingKind(
        name="unrecorded-operations", short="dumps hold fewer operations than were counted",
        worst="info",
        meaning="members of a group count more operations than their dumps hold",
        find="analysis.data_gaps:unrecorded_operations",
    ),
    FindingKind(
        name="ring-wrapped", short="rings hold only the newest operations",
        worst="info", meaning=_LESS, find="analysis.data_gaps:wrapped_rings",
    ),
    FindingKind(
        name="memory-snapshot", short="memory snapshots were read",
        worst="info", meaning="memory snapshots of torch, and which of them holds most",
        find="analysis.data_gaps:memory_snapshots",
    ),
    FindingKind(
        name="earlier-attempt", short="earlier attempts of the job ended",
        worst="info", status="unknown", status_alone="unknown",
        meaning="why earlier attempts of the job ended; the newest is judged alone",
    ),
    FindingKind(
        name="timing-off", short="durations were not recorded",
        worst="info", meaning=_LESS, find="analysis.data_gaps:timing_off",
    ),
    FindingKind(
        name="broken-package", short="an installed package is left out",
        worst="info", find="analysis.data_gaps:broken_packages",
        meaning="an installed package that adds to rankscope is left out, or a function of it failed",
    ),
    FindingKind(
        name="not-frozen", short="it is not known whether the job had stopped",
        worst="info", status="unknown", status_alone="unknown", meaning=_LESS,
    ),
)  # fmt: skip
"""Every kind of finding, by name."""
