"""The tables that come of dumps alone."""

from __future__ import annotations

from rankscope.assemble.assembly import dump_tables
from rankscope.schema.tables import FRONTIERS, GROUPS, OPS, STACKS


def test_no_dump_gives_tables_of_the_same_columns_as_dumps_do() -> None:
    tables = dump_tables([], [], 4)
    expected = {"ops": OPS, "groups": GROUPS, "frontiers": FRONTIERS, "stacks": STACKS}
    assert list(tables) == list(expected)
    for name, table in tables.items():
        assert dict(table.schema) == dict(expected[name]) and table.height == 0
