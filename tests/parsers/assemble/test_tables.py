"""The tables that come of dumps alone."""

from __future__ import annotations

from rankscope.parsers.assemble.tables import Memory, _anew, dump_tables


def test_no_dump_gives_tables_of_the_same_columns_as_dumps_do() -> None:
    tables, worked_out = dump_tables([], [], 4, Memory()), _anew([], [], 4).tables
    assert list(tables) == ["ops", "groups", "frontiers", "stacks"] and tables.keys() == worked_out.keys()
    for name, table in tables.items():
        assert dict(table.schema) == dict(worked_out[name].schema) and table.height == worked_out[name].height == 0
