"""From the numbers of groups in pg_status to their names: per process, where nothing speaks against it."""

from __future__ import annotations

from rankscope.assemble.groups import name_of
from rankscope.parsers.flight_recorder.model import Dump


def names_by_id(dump: Dump) -> dict[str, str]:
    """The name of the group behind each id of pg_status, as far as the dump tells."""
    if dump.status is None:
        return {}
    from_entries = {str(c.pg_id): name_of(c) for c in dump.calls if c.pg_id is not None}
    ids = sorted((s.pg_id for s in dump.status), key=_numeric)
    named = sorted((g.name for g in dump.config if g.name or g.description), key=_numeric)
    candidates = [dict(zip(ids, named, strict=True))] if len(ids) == len(named) else []
    # ids count the groups that this process made, in the order in which names were given
    candidates.append({i: named[int(i)] for i in ids if i.isdigit() and int(i) < len(named)})
    candidates.append({i: i for i in ids if i in named})
    for guess in candidates:
        merged = {**guess, **from_entries}
        agree = all(guess.get(i, name) == name for i, name in from_entries.items())
        if agree and len(set(merged.values())) == len(merged):
            return {i: name for i, name in merged.items() if i in ids}
    return {i: name for i, name in from_entries.items() if i in ids}


def _numeric(name: str) -> tuple[bool, int, str]:
    number = name.isascii() and name.isdigit() and len(name) < 18
    return (not number, int(name) if number else 0, name)
