"""Settings and versions, each with its values and the ranks that have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.report.blocks import Records, Section
from rankscope.report.json import Rank, ReportPart
from rankscope.schema import Dataset
from rankscope.schema.tables import ENVIRONMENTS
from rankscope.text.secrets import value_of
from rankscope.text.wording import plural, ranks_text

MOST_VALUES = 6
"""Most values of one setting in a report for people."""
MOST_SHOWN = 20
"""Most settings in a report for people."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")


class SettingValue(NamedTuple):
    """A value and the ranks that have it."""

    value: str | None
    """Without secrets; None for ranks that have other settings of this source, but not this one."""
    ranks: tuple[int, ...]
    unknown: int = 0
    """Number of processes without a known rank."""
    unset: bool = False
    """Whether it is surely unset on these ranks: their environment is known completely."""

    @property
    def shown(self) -> str:
        """The value in words."""
        missing = "(unset)" if self.unset else "(no value)"
        return missing if self.value is None else self.value or "(empty)"


class ReportedSetting(NamedTuple):
    """A setting with its values."""

    name: str
    values: tuple[SettingValue, ...]
    """Values by number of ranks, the largest first; missing ones last."""

    @property
    def told(self) -> int:
        """The number of distinct values."""
        return sum(value.value is not None for value in self.values)

    @property
    def is_own(self) -> bool:
        """Whether it is meant to differ, or has a distinct value on each of many ranks."""
        # most directories hold no settings, and reading these rules takes time
        from rankscope.analysis.settings_comparison import OF_RANK, PROCESS_VARIABLES, rule_of

        single = all(len(value.ranks) + value.unknown <= 1 for value in self.values if value.value is not None)
        rule = rule_of(self.name)
        known = PROCESS_VARIABLES.fullmatch(self.name) is not None or (rule is not None and rule.scope in OF_RANK)
        return known or (self.told > 2 and single)

    @property
    def differs(self) -> bool:
        """Whether ranks have different values, or only some have set a variable."""
        unset = _VARIABLE.fullmatch(self.name) is not None and self.told < len(self.values)
        return not self.is_own and (self.told > 1 or unset)


def all_settings(dataset: Dataset) -> list[ReportedSetting]:
    """All settings: those with different values first, then those missing on some ranks; each by name.

    It takes a second for thousands of ranks, so the result is cached for one job.
    """
    if dataset.settings.is_empty():
        return []
    if not _cached_settings or not (
        _cached_settings[0][0] is dataset.settings or _cached_settings[0][0].equals(dataset.settings)
    ):
        _cached_settings[:] = [(dataset.settings, _folded(dataset))]
    return _cached_settings[0][1]


_cached_settings: list[tuple[pl.DataFrame, list[ReportedSetting]]] = []


def _folded(dataset: Dataset) -> list[ReportedSetting]:
    texts = pl.col("name", "value", "source").cast(pl.Categorical)
    rows = dataset.settings.select(texts, "rank", "host", "pid", "file")
    by_name: dict[str, list[SettingValue]] = {}
    for name, value, ranks, unknown in _values(rows).iter_rows():
        by_name.setdefault(name, []).append(SettingValue(value_of(name, value or ""), tuple(ranks), unknown))
    for name, unset, ranks in _silent(rows).iter_rows():
        by_name[name].append(SettingValue(None, tuple(ranks), unset=unset))
    found = [ReportedSetting(name, tuple(values)) for name, values in by_name.items()]
    return sorted(found, key=lambda one: (not one.differs, one.is_own, one.told < 2, one.name))


def differing_settings(dataset: Dataset) -> list[ReportedSetting]:
    """The settings that differ between ranks."""
    return [one for one in all_settings(dataset) if one.differs]


def _values(rows: pl.DataFrame) -> pl.DataFrame:
    """name, value, ranks, processes without a rank; several values of one process are joined."""
    process = pl.format("{} {}", pl.col("host").fill_null(""), pl.col("pid").fill_null(-1))
    process = pl.when(pl.col("pid").is_null()).then(pl.format("{} in {}", process, "file")).otherwise(process)
    alone = pl.when(pl.col("rank").is_null()).then(process)
    each = rows.select("name", "value", "rank", alone.alias("alone")).unique()
    twice = each.select(pl.struct("name", "rank", "alone").is_duplicated()).to_series()
    text = pl.col("value").cast(pl.String)
    many = each.filter(twice).group_by("name", "rank", "alone").agg(text.sort().str.join(" and "))
    one = pl.concat([each.filter(~twice).select(many.columns).with_columns(text), many]) if many.height else each
    return (
        one.group_by("name", "value")
        .agg(pl.col("rank").drop_nulls().sort().alias("ranks"), pl.col("rank").null_count().alias("unknown"))
        .with_columns(pl.col("name", "value").cast(pl.String))
        .sort("name", pl.col("ranks").list.len() + pl.col("unknown"), "value", descending=[False, True, False])
        .select("name", "value", "ranks", "unknown")
    )


def _silent(rows: pl.DataFrame) -> pl.DataFrame:
    """name, unset, ranks: ranks with other settings of the same source, but not this one."""
    whole = pl.col("source").cast(pl.String).is_in(ENVIRONMENTS)
    source = pl.when(whole).then(pl.lit(ENVIRONMENTS[0])).otherwise(pl.col("source").cast(pl.String))
    told = rows.filter(pl.col("rank").is_not_null()).select("name", source.alias("source"), "rank").unique()
    speakers = told.select("source", "rank").unique()
    most = speakers.group_by("source").len("speakers")
    some = told.group_by("name", "source").len().join(most, on="source").filter(pl.col("len") < pl.col("speakers"))
    silent = some.select("name", "source").join(speakers, on="source").join(told, on=["name", "rank"], how="anti")
    unset = (pl.col("source") == ENVIRONMENTS[0]).any().alias("unset")
    each = silent.group_by("name", "rank").agg(unset)
    return each.group_by("name", "unset").agg(pl.col("rank").sort()).sort("name", "unset")


def value_phrase(value: SettingValue) -> str:
    """A value with its ranks: "Tree on rank 15"."""
    who = [ranks_text(value.ranks)] if value.ranks else []
    who += [f"{plural(value.unknown, 'process')} of unknown rank"] if value.unknown else []
    return f"{value.shown} on {' and '.join(who)}"


def section(dataset: Dataset, _: Analysis) -> Iterator[Section]:
    """The settings that differ, in a report for people."""
    settings = differing_settings(dataset)
    rows = [(setting.name, "; ".join(value_phrases(setting))) for setting in settings[:MOST_SHOWN]]
    left = len(settings) - MOST_SHOWN
    more = f"{plural(left, 'setting')} more in the JSON report" if left > 0 else ""
    if rows:
        yield Section(
            "Settings that differ between ranks", (Records(head=("setting", "values"), rows=rows, more=more),)
        )


def value_phrases(one: ReportedSetting) -> list[str]:
    """The first few values of a setting with their ranks."""
    shown = [value_phrase(value) for value in one.values[:MOST_VALUES]]
    left = len(one.values) - MOST_VALUES
    return [*shown, f"{left:,} more values"] if left > 0 else shown


def mentioning_finding(one: ReportedSetting, analysis: Analysis) -> Finding | None:
    """The first finding about settings or versions that mentions this one."""
    name = re.compile(rf"(?<![A-Za-z0-9_:]){re.escape(one.name)}(?![A-Za-z0-9_])")
    about = (f for f in analysis.findings if (kind := FINDINGS.get(f.kind)) is not None and kind.of_settings)
    return next((f for f in about if any(map(name.search, (f.title, f.explanation, *_texts(f))))), None)


def _texts(finding: Finding) -> list[str]:
    return [evidence.text for evidence in finding.evidence]


class ValueObject(ReportPart):
    """A value of a setting, and the ranks that have it."""

    value: str | None
    ranks: Sequence[Rank]


class SettingObject(ReportPart):
    """A setting that differs between ranks."""

    name: str
    values: Sequence[ValueObject]


class SettingKeys(ReportPart):
    """The key of settings in the JSON report."""

    settings: Sequence[SettingObject]


def json_keys(dataset: Dataset, _: Analysis) -> SettingKeys:
    """The settings that differ."""
    settings = differing_settings(dataset)
    return SettingKeys([SettingObject(one.name, list(map(ValueObject.of, one.values))) for one in settings])
