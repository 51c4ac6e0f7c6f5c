"""Writes docs/*.schema.json, docs/schema.md and the lists of kinds in docs/report.md: `python -m docs.schemas`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rankscope.command_line.acting import SCHEMAS
from rankscope.commands.schemas import schema_text
from rankscope.kinds.event_kinds import EVENTS, EventKind
from rankscope.kinds.finding_kinds import FINDINGS, FindingKind
from rankscope.kinds.input_kinds import INPUTS, InputKind
from rankscope.report.frame_schema import frame_schema

ROOT = Path(__file__).parent
HEAD = """\
# Schemas

```sh
rankscope tool schema report                     # JSON Schema, draft 2020-12, of `report` with `--format json`
rankscope tool schema watch                      # of a line of `rankscope watch --format json`
rankscope tool schema frame                      # tables, columns, dtypes, units and enums of all that is read
rankscope report dumps/ --format json > job.json
rankscope tool schema > report.schema.json && check-jsonschema --schemafile report.schema.json job.json
```

The same lie here as files: [report.schema.json](report.schema.json), [watch.schema.json](watch.schema.json) and
[frame.schema.json](frame.schema.json). [The report](report.md) explains the keys.

## Versions

Each report has `schema`: 1, which increases with a change that breaks a reader, and `tool.version`, the release that
wrote it. Releases may add keys and kinds under the same number. The schemas are strict: they refuse keys and kinds that
their release does not know. So hold a report against the schema of its own release, or skip `additionalProperties` and
the enums of kinds.

In Python a report becomes typed objects, without a schema:

```python
import msgspec
from rankscope.report.report_objects import JobReport

report = msgspec.json.decode(open("job.json", "rb").read(), type=JobReport)
print([finding.culprit_ranks for finding in report.findings if finding.root_cause])
```

## The frame

All inputs become these tables of [polars](https://docs.pola.rs). Times are integer nanoseconds since the epoch, ranks
are global ranks. Tables are joined by `file`, `group`, `stack_id`, `track` and `rank`.
"""


def pages() -> dict[str, bytes]:
    """Content of each generated file, by its name."""
    schemas = {f"{name}.schema.json": schema_text(name) for name in SCHEMAS}
    frame = "".join(_tables(frame_schema()))
    return {**schemas, "schema.md": (HEAD + frame).encode(), "report.md": _report().encode()}


def _report() -> str:
    """The page of the report, with its lists of kinds anew."""
    text = (ROOT / "report.md").read_text("utf-8")
    for heading, kinds in (("Kinds", FINDINGS), ("Kinds of files", INPUTS), ("Kinds of lines", EVENTS)):
        rows = "".join(_kinds(kinds.values()))
        pattern = rf"(^## {heading}\n.*?^\| kind \| meaning \|\n\| --- \| --- \|\n)(?:\|[^\n]*\n)*"
        table = re.search(pattern, text, re.M | re.S)
        assert table is not None, heading
        text = text[: table.end(1)] + rows + text[table.end() :]
    return text


def _kinds(kinds: Iterable[FindingKind | InputKind | EventKind]) -> Iterator[str]:
    """A row for each meaning; kinds that share one stand in the row of the first."""
    named: dict[str, list[str]] = {}
    for kind in kinds:
        named.setdefault(kind.meaning, []).append(f"`{kind.name}`")
    yield from (f"| {', '.join(names)} | {meaning} |\n" for meaning, names in named.items())


def _tables(frame: dict[str, Any]) -> Iterator[str]:
    for name, table in frame["tables"].items():
        yield f"\n### {name}\n\n{table['description']}\n\n"
        yield "| column | dtype | unit | |\n| --- | --- | --- | --- |\n"
        for column in table["columns"]:
            values = ", ".join(f"`{value}`" for value in column.get("enum", ()) if value)
            about = "; ".join(filter(None, (column.get("description", "").replace("|", "\\|"), values)))
            yield f"| `{column['name']}` | {column['dtype']} | {column.get('unit', '')} | {about} |\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes every file anew."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT, help="the folder to write to (default: docs)")
    given = parser.parse_args(arguments)
    for name, content in pages().items():
        (given.out / name).write_bytes(content)


if __name__ == "__main__":
    main()
