"""`rankscope tool schema`: the form of what programs read, as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankscope.commands.output import write_report


def run(name: str) -> int:
    """Prints a schema."""
    write_report(schema_text(name), None, force=False)
    return 0


def schema_text(name: str) -> bytes:
    """A schema by its name as indented JSON."""
    from rankscope.report.json import dump_json

    return dump_json(_makers()[name]())


def _makers() -> dict[str, Callable[[], dict[str, Any]]]:
    from rankscope.report.frame_schema import frame_schema
    from rankscope.report.report_objects import report_schema, watch_schema

    return {"report": report_schema, "watch": watch_schema, "frame": frame_schema}
