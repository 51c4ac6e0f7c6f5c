"""Hosts that traces do not tell."""

from __future__ import annotations

import polars as pl

from rankscope.features.traces.rows.trace_dataset import with_hosts
from rankscope.schema.tables import COMMS, OPS, TRACES


def traces(*hosts: str) -> pl.DataFrame:
    rows = [{"file": rank, "rank": rank, "host": host} for rank, host in enumerate(hosts)]
    return pl.DataFrame(rows, schema={n: TRACES[n] for n in ("file", "rank", "host")})


def told(name: str, *rows: tuple[int, str | None]) -> dict[str, pl.DataFrame]:
    columns = {"ops": OPS, "comms": COMMS}[name]
    return {name: pl.DataFrame(rows, schema={n: columns[n] for n in ("rank", "host")}, orient="row")}


def test_the_host_is_that_of_the_rank_s_dump_or_log() -> None:
    tables = {**told("ops", (0, "node-1"), (0, "node-1"), (1, None)), **told("comms", (1, "node-2"))}
    assert with_hosts(traces("", "", ""), tables)["host"].to_list() == ["node-1", "node-2", ""]


def test_what_a_trace_says_itself_stands() -> None:
    assert with_hosts(traces("own"), told("ops", (0, "node-1")))["host"].to_list() == ["own"]


def test_two_hosts_of_one_rank_are_none() -> None:
    tables = {**told("ops", (0, "node-1")), **told("comms", (0, "node-1.cluster"))}
    assert with_hosts(traces(""), tables)["host"].to_list() == [""]


def test_nothing_else_tells_nothing() -> None:
    assert with_hosts(traces(""), {})["host"].to_list() == [""]
