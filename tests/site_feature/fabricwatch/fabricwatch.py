"""A site's own feature: the log of its fabric watcher, a rule on links that flap, and a page of them.

The log has a heading, then a line for each change: "1772446504 node17 mlx5_3 down".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, Evidence, Finding
from rankscope.analysis.places import known_hosts
from rankscope.kinds.features import Feature
from rankscope.kinds.finding_kinds import FindingKind
from rankscope.kinds.input_kinds import InputKind
from rankscope.kinds.view_kinds import ViewKind
from rankscope.parsers.contents import NotThisKindError
from rankscope.report.blocks import Grid, Section
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

ROWS = (
    InputKind(
        name="fabricwatch",
        meaning="changes of links, from the site's fabric watcher",
        noun="fabric log",
        begins="fabricwatch:begins_like_log",
        decode="fabricwatch:decode_log",
        restore="fabricwatch:log_from",
        add_rows="fabricwatch:add_changes",
        is_ranked=False,
    ),
    FindingKind(
        name="link-flapped",
        worst="warning",
        meaning="a link of a host went down and came up again, while the job ran",
        find="fabricwatch:flapped_links",
        view="fabric",
    ),
    Feature(name="fabricwatch", tables=("fabric_links",), section="fabricwatch:section"),
    ViewKind(
        name="fabric",
        tab=7,
        meaning="links of hosts that went down",
        also="infiniband flaps switch",
        page="fabricwatch_page:FabricScreen",
        empty="no fabric log loaded",
        fill="give fabricwatch.log, too",
        table="fabric_links",
    ),
)
HEAD = b"# fabricwatch\n"
COLUMNS = {"time_s": pl.Int64, "host": pl.String, "link": pl.String, "up": pl.Boolean, "file": pl.UInt32}


@dataclass
class FabricLog:
    """The changes in one file: time in seconds since the epoch, host, link, whether it came up."""

    changes: list[tuple[int, str, str, bool]]
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of changes."""
        return len(self.changes)

    def header(self) -> dict[str, Any]:
        """All of it, as JSON values: a worker process sends it."""
        return {"changes": self.changes}

    def body(self) -> list[memoryview]:
        """No arrays."""
        return []


def begins_like_log(head: bytes) -> bool:
    """Whether a file with these first bytes is such a log."""
    return head.startswith(HEAD)


def decode_log(data: bytes) -> FabricLog:
    """The changes in `data`. Raises NotThisKindError without any."""
    changes = []
    for line in data[len(HEAD) :].decode("utf-8", "replace").splitlines():
        match line.split():
            case [time, host, link, ("up" | "down") as state] if time.isdecimal():
                changes.append((int(time), host, link, state == "up"))
    if not changes:
        raise NotThisKindError("a fabric log without a change")
    return FabricLog(changes)


def log_from(header: dict[str, Any], *_: object) -> FabricLog:
    """The log whose `header()` this is."""
    return FabricLog([(time, host, link, up) for time, host, link, up in header["changes"]])


def add_changes(tables: dict[str, pl.DataFrame], sources: Sequence[Any], _: object) -> int:
    """Adds the changes of all logs; they tell nothing of the number of ranks."""
    rows = []
    for place, source in enumerate(sources):
        if isinstance(source.content, FabricLog):
            source.used = True
            rows += [(*change, place) for change in source.content.changes]
    tables["fabric_links"] = pl.DataFrame(rows, COLUMNS, orient="row")
    return 0


def flaps(links: pl.DataFrame) -> pl.DataFrame:
    """How often each link went down, the worst first: host, link, downs."""
    downs = links.filter(~pl.col("up")).group_by("host", "link", maintain_order=True).agg(downs=pl.len())
    return downs.sort("downs", descending=True, maintain_order=True)


def flapped_links(facts: Facts, _: bool) -> Iterator[Finding]:
    """Hosts with a link that went down, and their ranks."""
    links = facts.dataset.table("fabric_links")
    if links.is_empty():
        return
    hosts = known_hosts(facts.dataset)
    for host, link, downs in flaps(links).iter_rows():
        ranks = tuple(sorted(rank for rank, own in hosts.items() if own == host))
        whose = f", the host of {ranks_text(ranks)}," if ranks else ""
        yield Finding(
            kind="link-flapped",
            severity="warning",
            title=f"link {link} of {host}{whose} went down {plural(downs, 'time')}",
            explanation="While a link is down, collectives over it wait, or take another way and are slow.",
            about=ranks,
            evidence=(Evidence(f"{link} went down {plural(downs, 'time')}", rank=ranks[0] if ranks else None),),
            next_steps=(f"Ask who watches the fabric for {link} of {host}.",),
        )


def section(dataset: Dataset, _: Analysis) -> Iterator[Section]:
    """The links that went down, in a report for people."""
    rows = [(host, link, str(downs)) for host, link, downs in flaps(dataset.table("fabric_links")).iter_rows()]
    if rows:
        yield Section("Links that went down", (Grid(head=("host", "link", "times"), rows=rows, numbers=(2,)),))
