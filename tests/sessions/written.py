"""Sessions of test jobs, and the report by which two readings are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.analysis import analyse
from rankscope.assemble.load import LoadOptions, load, read_sources, walk, with_other_files
from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.report.json import render_json
from rankscope.schema import Dataset
from rankscope.sessions.manifest import FORMAT, Manifest, write_manifest
from rankscope.sessions.opening import asked_of
from rankscope.sessions.session_files import write_session
from rankscope.sessions.shard_parts import ShardPart, part_head, write_part
from rankscope.sessions.shares import Share

SAMPLES = Path(__file__).parents[2] / "sample_data"
ALL = LoadOptions(is_sampled=True)


def report_of(dataset: Dataset) -> bytes:
    """The JSON report."""
    return render_json(dataset, analyse(dataset), False)


def session_of(job: Path, directory: Path) -> Path:
    """A session of tables of a job's files."""
    write_session(load([job], ALL), directory, asked_of(ALL))
    return directory


def parts_of(
    job: Path, directory: Path, count: int, place: Callable[[FoundPath], int], options: LoadOptions = ALL
) -> Path:
    """A session of `count` parts; `place` is the number of a file's part."""
    directory.mkdir()
    write_manifest(Manifest(format=FORMAT, parts=count, asked=asked_of(options)), directory)
    found = walk([job], options)
    for index in range(count):
        own = [one for one in found if place(one) == index]
        write_part(directory / Share(index, count).file_name, _part(job, own, found, options))
    return directory


def _part(job: Path, own: Sequence[FoundPath], found: Sequence[FoundPath], options: LoadOptions) -> ShardPart:
    sources = read_sources(own, options, None)
    others = [] if any(s.tells for s in sources) else with_other_files(sources, own, options)
    return ShardPart(part_head(str(job), found, own), sources, [one for one in others if one not in sources])
