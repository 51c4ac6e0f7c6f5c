"""Takes secrets out of a Dataset before anything looks at it: no finding, screen or session can hold them then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import polars as pl

from rankscope.schema import Dataset
from rankscope.schema.table import Table
from rankscope.text.secrets import HIDDEN, MAY_HOLD, hide, is_secret, value_of


def without_secrets(dataset: Dataset) -> Dataset:
    """The Dataset without the secrets in any of its texts.

    Processes with different values of one secret setting keep different stand-ins: (hidden), (hidden 2).
    """
    before = dataset.all_tables
    tables = {table.name: _hidden(table, frame) for table, frame in before}
    tables["settings"] = _hidden_settings(tables["settings"])
    changed = {table.name: tables[table.name] for table, frame in before if tables[table.name] is not frame}
    root = hide(dataset.root)
    return replace(dataset.with_tables(changed), root=root) if changed or root != dataset.root else dataset


def _hidden(declared: Table, table: pl.DataFrame) -> pl.DataFrame:
    columns = {} if table.is_empty() else declared.texts(table)
    if not columns:
        return table
    # all columns at once, for those of operations have millions of rows
    distinct = table.select(pl.col(columns).unique().implode())
    changed = []
    for column, holds in columns.items():
        texts = distinct[column].explode().cast(pl.String)
        change = _hide_in_json if holds == "json" else hide
        new = {text: shown for text in texts.filter(texts.str.contains(MAY_HOLD)) if (shown := change(text)) != text}
        if new:
            old = table[column]
            changed.append(old.cast(pl.String).replace(new).cast(old.dtype))
    return table.with_columns(changed) if changed else table


def _hide_in_json(text: str) -> str:
    try:
        return orjson.dumps(hidden_value(orjson.loads(text)), option=orjson.OPT_NON_STR_KEYS).decode()
    except orjson.JSONDecodeError:
        return hide(text)


def hidden_value(value: Any) -> Any:
    """A JSON value without the secrets in its texts."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list | tuple):
        return [hidden_value(one) for one in value]
    return {key: hidden_value(one) for key, one in value.items()} if isinstance(value, dict) else value


def hidden_header(header: dict[str, Any]) -> dict[str, Any]:
    """The header of a decoded file without the secrets in its texts, and in the settings of a log."""
    hidden: dict[str, Any] = hidden_value(header)
    told = header.get("settings")
    if isinstance(told, dict):
        return {**hidden, "settings": {name: value_of(name, value) for name, value in told.items()}}
    if told:
        rows = [(process, name, value_of(name, value), *rest) for process, name, value, *rest in told]
        return {**hidden, "settings": rows}
    return hidden


def _hidden_settings(settings: pl.DataFrame) -> pl.DataFrame:
    """The settings with stand-ins for the values of those that hold a secret by their names."""
    names = [name for name in settings["name"].drop_nulls().unique() if is_secret(name)]
    secret = pl.col("name").is_in(names) & (pl.col("value") != "") & ~pl.col("value").str.starts_with("(hidden")
    if not names:
        return settings
    number = pl.col("value").rank("dense").over("name")
    shown = pl.when(number == 1).then(pl.lit(HIDDEN)).otherwise(pl.format("(hidden {})", number))
    return settings.with_columns(value=pl.when(secret).then(shown).otherwise(pl.col("value")))
