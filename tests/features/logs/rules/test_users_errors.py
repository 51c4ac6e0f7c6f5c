"""Rows of a user's own table of known errors: each cell that may be written has its effect, or is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from rankscope.cli import run as rankscope
from rankscope.features.logs.read.c10d.known_errors import named_ranks
from rankscope.kinds.error_traits import TRAITS

DOCS = Path(__file__).parents[4] / "docs"
NAMED = {"id": "late-shard", "role": "root", "accuses": "named", "pattern": "shards of (?P<ranks>[0-9, -]+) never came"}


def table(*rows: dict[str, str]) -> str:
    """A table of these rows, with the columns that any of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return "".join("\t".join(cells) + "\n" for cells in (columns, *([row.get(c, "") for c in columns] for row in rows)))


class Job:
    """A log, or two with a form feed between them, that `rankscope report` reads with a table of the user's own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys, self._runs = folder, capsys, 0

    def run(self, log: str, *rows: dict[str, str]) -> tuple[int, str]:
        """(exit code, JSON)."""
        self._runs += 1
        # a process reads a table once
        own = self._folder / f"own{self._runs}.tsv"
        own.write_text(table(*rows))
        files = [self._folder / name for name in ("job.log", "other.log")[: 1 + log.count("\f")]]
        for file, lines in zip(files, log.split("\f"), strict=True):
            file.write_text(lines)
        options = ["--errors", str(own), "--format", "json", "--no-cache"]
        code = rankscope(["report", *map(str, files), *options])
        return code, self._capsys.readouterr().out

    def report(self, log: str, *rows: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self.run(log, *rows)[1])
        return found


@pytest.fixture
def job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(tmp_path, capsys)


def root(found: dict[str, Any]) -> dict[str, Any]:
    return next(finding for finding in found["findings"] if finding["root_cause"])


def test_ranks_that_a_line_names_are_accused_whatever_the_id(job: Job) -> None:
    found = job.report("[rank0]: shards of 3-4, 6 never came\n", {**NAMED, "name": "no shard", "next": "Reload."})
    assert (found["status"], root(found)["culprit_ranks"]) == ("failed", [3, 4, 6])
    assert found["verdict"] == "ranks 3,4,6: no shard, as rank 0 reported (job.log:1)"
    assert root(found)["next_steps"] == ["Reload."]


def test_ranks_of_all_lines_are_accused_and_a_row_that_takes_the_place_of_ours_too(job: Job) -> None:
    log = "[rank0]: shards of 3 never came\n[rank1]: shards of 5 never came\n"
    assert root(job.report(log, {**NAMED, "id": "desync-not-joined"}))["culprit_ranks"] == [3, 5]


def test_a_failure_that_the_line_does_not_name_stays_accused_beside_it(job: Job) -> None:
    log = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    found = job.report(log + "[rank0]: shards of 3 never came\n", NAMED)
    assert root(found)["culprit_ranks"] == [2]
    assert any(finding["culprit_ranks"] == [3] for finding in found["findings"])


def test_the_group_rank_tells_who_prints_any_line(job: Job) -> None:
    row = {"id": "flux", "role": "victim", "pattern": "worker (?P<rank>[0-9]+) lost its flux"}
    (harm,) = (f for f in job.report("worker 7 lost its flux\n", row)["findings"] if f["severity"] == "critical")
    assert harm["waiting_ranks"] == [7]


FLUX = "[rank1]: lost its flux\n"
TOLD = {
    "name": ("no more flux", "no more flux"),
    "meaning": ("The flux is gone.", "The flux is gone."),
    "next": ("Refill it.", "Refill it."),
    "layer": ("engine", '"layer": "engine"'),
    "source": ("https://wiki.example/flux", "https://wiki.example/flux"),
}
"""By column a cell, and what the report then shows."""


def test_each_text_is_told(job: Job) -> None:
    row = {"id": "flux", "role": "root", "pattern": "lost its flux"}
    plain = job.run(FLUX, row)[1]
    full = job.run(FLUX, {**row, **{column: cell for column, (cell, _) in TOLD.items()}})[1]
    # a name takes the place of the id
    named = job.run(FLUX, {**row, "id": "flux-lost"})[1]
    shown = [*(where for _, where in TOLD.values()), "flux lost"]
    assert [where for where in shown if where in plain] == []
    assert [where for where in shown if where not in full] == ["flux lost"] and "flux lost" in named


WAITS = "[rank0]: lost its flux of 1, 2\n[rank3]: lost its flux of 2, 4\n"
LOGS = {
    "awaited": WAITS,
    "refused-call": "[rank1]: lost its flux\n[rank1]: OSError: host unreachable gate\n",
    "wraps": "[rank1]: lost its flux: host unreachable gate\n",
    "not-connected": "[rank0]: gloo/transport/tcp/pair.cc:1] Connection closed by peer\n\f[rank1]: lost its flux\n",
}


@pytest.mark.parametrize("trait", TRAITS)
def test_each_trait_changes_the_report(trait: str, job: Job) -> None:
    fits = TRAITS[trait]
    pattern = "lost its flux of (?P<ranks>[0-9, ]+)" if fits.accuses == "named" else "lost its flux"
    row = {"id": "flux", "role": fits.role, "accuses": fits.accuses, "pattern": pattern}
    gate = {"id": "gate", "role": "root", "accuses": "nobody", "pattern": "host unreachable gate"}
    log = LOGS.get(trait, FLUX)
    plain, marked = (job.report(log, {**row, "traits": word}, gate) for word in ("", trait))
    assert plain["findings"] != marked["findings"]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"role": "victim", "accuses": "self"}, "only a root accuses somebody, not a victim"),
        ({"role": "root", "accuses": "named"}, r"a group \(\?P<ranks>...\) in the pattern"),
        ({"role": "root", "pattern": "flux of (?P<node>[0-9]+)"}, "group 'node' is none of ranks, rank"),
        ({"role": "root", "traits": "odd"}, "trait 'odd' is none of gave-up, "),
        ({"role": "root", "traits": "gave-up"}, "trait 'gave-up' is for a victim that accuses nobody"),
        ({"role": "root", "traits": "unsure"}, "trait 'unsure' is for a root that accuses nobody"),
        ({"role": "root", "id": "no flux"}, "an id has no blanks"),
    ],
)
def test_a_row_without_effect_is_refused_with_its_line(row: dict[str, str], why: str, job: Job) -> None:
    code, error = job.run(FLUX, {"id": "flux", "pattern": "lost its flux", **row})
    assert code == 2
    assert re.search(f"own1.tsv:2: .*{why}", error)


@pytest.mark.parametrize(
    ("listed", "ranks"),
    [("1, 3", [1, 3]), ("[4-7]", [4, 5, 6, 7]), ("2..3 9", [2, 3, 9]), ("7-5", [7, 5]), ("", [])],
)
def test_lists_of_ranks(listed: str, ranks: list[int]) -> None:
    assert named_ranks(listed) == ranks


def test_a_range_longer_than_any_job_is_its_ends() -> None:
    assert named_ranks("0-9999999") == [0, 9999999]


def test_the_docs_tell_of_each_trait_what_its_row_says() -> None:
    told = (DOCS / "inputs.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| (.*) \|$", told, re.MULTILINE))
    assert {name: rows.get(name) for name in TRAITS} == {name: trait.meaning for name, trait in TRAITS.items()}
