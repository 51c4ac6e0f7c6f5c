"""Alignment of the clocks of all files, by the ends of collectives that no member can leave before the others.

The ends of a collective on devices agree within microseconds while the starts differ by milliseconds, so differences of
ends are those of clocks. This does not hold for rooted operations, for sends, on gloo, nor if devices take turns. There
ends differ by more than the clocks, and the clocks stay unchanged as long as cause and effect allow it. Ranks of one
host share its clock, whatever their ends say, but for the clocks of its devices: their times are converted to the
host's, and differ by tens of microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.features.traces.rules.matching import Matching, Pairing
from rankscope.features.traces.rules.window_offset import AGREEMENT_NS, AGREEMENT_SHARE, SHARP_SHARE
from rankscope.text.wording import duration, plural

FLOOR_NS = 10_000
"""A smaller clock difference is not corrected."""
SIGMAS = 4
"""Standard errors that a clock difference must exceed."""
END_QUANTILE = 0.95
"""Share of ends that are within the clock error of the median end."""
ERROR_FACTOR = 4
"""Clock error per distance of an end to the median end: twice for two ends, and twice for two arrivals."""
HOST_ERROR_FACTOR = 2
"""The same for devices of one host."""
DEVICE_NS = 200_000
"""Largest difference between clocks of devices of one host."""
MOST_NAMED = 3
"""Most files that are named if many have no clock."""
SIGMA_PER_MAD = 1.4826
"""Standard deviations per median absolute deviation."""


@dataclass(frozen=True)
class FileClocks:
    """Clock differences of files."""

    offsets: Mapping[int, int]
    """By file the nanoseconds to add to its times; missing if unknown."""
    residuals: Mapping[int, int]
    """By file the median distance of its ends to the median end of the same operations, after alignment."""
    error_ns: int
    """Smaller differences between two ranks may be due to the clocks."""
    doubts: tuple[str, ...]
    """Doubts about the clocks, for the user."""


def align_clocks(matching: Matching, traces: pl.DataFrame, paths: Mapping[int, str], on_host: bool) -> FileClocks:
    """The clocks of all files of `traces`, from `matching`; `on_host`: there is no device."""
    hosts = {file: host for file, host in traces.select("file", "host").iter_rows() if host}
    files = traces["file"].to_list()
    pairings = list(matching.pairings)
    ranks = dict(traces.select("file", "rank").iter_rows())
    devices = {} if on_host else _devices(pairings, hosts)
    found, loose = _walk(pairings, files, hosts, ranks, devices)
    offsets = _of_hosts(found, hosts, files, devices)
    unsteady = _unsteady(matching.rows, offsets)
    if unsteady:
        pairings = [
            replace(p, shift=replace(p.shift, agree=0.0)) if {p.file, p.reference} & unsteady else p for p in pairings
        ]
        devices = {} if on_host else _devices(pairings, hosts)
        found, loose = _walk(pairings, files, hosts, ranks, devices)
        offsets = _of_hosts(found, hosts, files, devices)
    left = [paths.get(file, "?") for file in traces["file"].to_list() if file not in offsets]
    more = f" and {plural(len(left) - MOST_NAMED, 'other file')}" if len(left) > MOST_NAMED else ""
    named = ", ".join(left[:MOST_NAMED])
    several = left and traces["rank"].n_unique() > 1
    doubts = [
        *_loose(loose, paths),
        *_moved_devices(devices, paths),
        *([f"no clock for {named}{more}: no operation of them was matched to another rank"] if several else []),
    ]
    one_host = len(hosts) == len(files) and len(set(hosts.values())) == 1
    resolution = int(traces.select(pl.col("resolution_ns").max()).item() or 0)
    factor = ERROR_FACTOR if not one_host else 0 if on_host else HOST_ERROR_FACTOR
    error = resolution + _error(matching.rows, offsets, factor)
    table = _ends(matching.rows, offsets).group_by("file").agg(pl.col("off").median().cast(pl.Int64)).sort("file")
    return FileClocks(offsets, dict(table.iter_rows()), error, tuple(doubts))


def _walk(
    pairings: Iterable[Pairing], files: list[int], hosts: Mapping[int, str], ranks: Mapping[int, int],
    devices: Mapping[int, int],
) -> tuple[dict[int, int], list[Pairing]]:  # fmt: skip
    """(offset of the host of each file that was matched to another, needed pairings whose ends do not agree).

    Follows the best pairings: within one host first, then by agreement of ends. Another window of a rank with an offset
    has the same offset; a file without any pairing to the rest keeps its own clock.
    """
    left = sorted(pairings, key=lambda p: (not _same(p, hosts), not p.shift.sharp, p.shift.spread_ns))
    out, used = ({files[0]: 0} if files else {}), list[Pairing]()
    while left:
        step = next((p for p in left if (p.reference in out) != (p.file in out)), None)
        if step is None:
            left = [p for p in left if p.reference not in out]
            out.update(_next_window(left, out, hosts, ranks))
            continue
        apart = 0
        if not _same(step, hosts):
            apart = _apart(step) + devices.get(step.reference, 0) - devices.get(step.file, 0)
        if step.reference in out:
            out[step.file] = out[step.reference] + apart
        else:
            out[step.reference] = out[step.file] - apart
        if not step.shift.sharp and not _same(step, hosts):
            used.append(step)
        left.remove(step)
    return out, used


def _devices(pairings: Iterable[Pairing], hosts: Mapping[int, str]) -> dict[int, int]:
    """By file what its device's clock lacks to those of most devices of its host; only files that differ.

    Only ends that agree sharply count.
    """
    beside: dict[int, dict[int, int]] = {}
    for pairing in pairings:
        if _same(pairing, hosts) and pairing.shift.sharp:
            apart = _apart(pairing)
            near = apart if abs(apart) <= DEVICE_NS else 0
            beside.setdefault(pairing.reference, {})[pairing.file] = near
    out: dict[int, int] = {}
    for reference, others in beside.items():
        clocks = {reference: 0, **others}
        usual = sorted(clocks.values())[(len(clocks) - 1) // 2]
        for file, clock in clocks.items():
            if abs(clock - usual) > FLOOR_NS:
                out.setdefault(file, clock - usual)
    return out


def _moved_devices(devices: Mapping[int, int], paths: Mapping[int, str]) -> list[str]:
    """The differences between devices that were taken out, for the user."""
    if not devices:
        return []
    files = sorted(paths.get(file, "?") for file in devices)
    more = f" and {plural(len(files) - MOST_NAMED, 'other file')}" if len(files) > MOST_NAMED else ""
    most = duration(max(map(abs, devices.values())))
    noun = "the clock of the device" if len(files) == 1 else "clocks of the devices"
    verb = "differs" if len(files) == 1 else "differ"
    return [
        f"{noun} of {', '.join(files[:MOST_NAMED])}{more} {verb} from others of the host by up to {most}: taken out"
    ]


def _next_window(
    left: list[Pairing], known: Mapping[int, int], hosts: Mapping[int, str], ranks: Mapping[int, int]
) -> dict[int, int]:
    """The offset of a file without a pairing to aligned files: that of another window of its rank, or none."""
    of_process = {(ranks[file], hosts.get(file)): offset for file, offset in known.items()}
    files = [file for p in left for file in (p.reference, p.file)]
    twin = next((file for file in files if (ranks[file], hosts.get(file)) in of_process), None)
    if twin is not None:
        return {twin: of_process[ranks[twin], hosts.get(twin)]}
    return {files[0]: 0} if files else {}


def _same(pairing: Pairing, hosts: Mapping[int, str]) -> bool:
    return pairing.reference in hosts and hosts[pairing.reference] == hosts.get(pairing.file)


def _apart(pairing: Pairing) -> int:
    """Nanoseconds to add to the clock of the file to match its reference; 0 if that is not sure."""
    shift = pairing.shift
    error = max(SIGMA_PER_MAD * shift.spread_ns / np.sqrt(max(shift.count, 1)), 1)
    sure = abs(shift.offset_ns) > max(FLOOR_NS, SIGMAS * error)
    if not sure or (not shift.sharp and shift.causal_as_is):
        return 0
    return shift.offset_ns


def _of_hosts(
    found: Mapping[int, int], hosts: Mapping[int, str], files: list[int], devices: Mapping[int, int]
) -> dict[int, int]:
    """The offsets with one clock for all files of a host, including files without matches, and that of each device."""
    clocks: dict[str, list[int]] = {}
    for file, offset in found.items():
        if file in hosts:
            clocks.setdefault(hosts[file], []).append(offset)
    medians = {host: int(np.median(values)) for host, values in clocks.items()}
    reference = medians.get(hosts[files[0]], 0) if files and files[0] in hosts else 0
    out = {file: found.get(file, 0) for file in files if file in found}
    out.update({file: medians[hosts[file]] for file in files if hosts.get(file) in medians})
    return {file: offset - reference + devices.get(file, 0) for file, offset in out.items()}


def _unsteady(rows: pl.DataFrame, offsets: Mapping[int, int]) -> set[int]:
    """Files whose ends do not agree with the others over all channels, whatever they do in one."""
    ends = _ends(rows, offsets).group_by("file").agg((pl.col("off") <= pl.col("allowed")).mean())
    return {file for file, share in ends.iter_rows() if share < SHARP_SHARE}


def _error(rows: pl.DataFrame, offsets: Mapping[int, int], factor: int) -> int:
    """The spread of ends that should agree, without the worst ones."""
    far = _ends(rows, offsets)["off"].quantile(END_QUANTILE)
    return int(factor * far) if far is not None else 0


def _ends(rows: pl.DataFrame, offsets: Mapping[int, int]) -> pl.DataFrame:
    """For each row of a blocking operation: file, distance of its end to the median end, and the allowed distance."""
    known = rows.filter(pl.col("blocking") & pl.col("file").is_in(list(offsets)))
    end = pl.col("ended_ns") + pl.col("file").replace_strict(dict(offsets), return_dtype=pl.Int64)
    match = ["channel", "window", "place"]
    length = (pl.col("ended_ns") - pl.col("arrived_ns")).min().over(match)
    return (
        known.with_columns(end=end).filter(pl.len().over(match) > 1)
        .select("file", off=(pl.col("end") - pl.col("end").median().over(match).cast(pl.Int64)).abs(),
                allowed=AGREEMENT_NS + AGREEMENT_SHARE * length)
    )  # fmt: skip


def _loose(used: list[Pairing], paths: Mapping[int, str]) -> list[str]:
    """Doubts about clocks that ends do not determine."""
    if not used:
        return []
    spread = max(p.shift.spread_ns for p in used)
    shifted = [p for p in used if _apart(p)]
    files = ", ".join(sorted({paths.get(p.file, "?") for p in shifted})[:MOST_NAMED])
    out = [
        f"ends of collectives do not agree (they vary by {duration(max(spread, AGREEMENT_NS))}): clocks of hosts "
        "are left as written where cause and effect allow it"
    ]
    return out + ([f"the clock of {files} is off, by an amount that is known only roughly"] if shifted else [])
