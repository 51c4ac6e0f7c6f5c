"""`rankscope schema`: the form of what programs read, as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rankscope.commands.output import write_report


def run(name: str) -> int:
    """Prints a schema; ClickException if the package has no source."""
    write_report(schema_text(name), None, force=False)
    return 0


def schema_text(name: str) -> bytes:
    """A schema by its name as indented JSON; ClickException if the package has no source."""
    from rankscope.report.frame_schema import NoSourceError
    from rankscope.report.json import dump_json

    try:
        return dump_json(_makers()[name]())
    except NoSourceError as error:
        raise click.ClickException(str(error)) from error


def _makers() -> dict[str, Callable[[], dict[str, Any]]]:
    from rankscope.report.frame_schema import frame_schema
    from rankscope.report.report_objects import report_schema, watch_schema

    return {"report": report_schema, "watch": watch_schema, "frame": frame_schema}
