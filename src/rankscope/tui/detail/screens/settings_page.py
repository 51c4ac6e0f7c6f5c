"""Settings and versions: values, and the ranks with each."""

from __future__ import annotations

from functools import partial

from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.finding_kinds import SEVERITIES
from rankscope.report.settings_section import ReportedSetting, all_settings, mentioning_finding
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, plural, rank_ranges
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.finding_text import severity_role
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.screens.page import TablePage, Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line

_MOST = 40
"""Values of one setting that are listed."""


Row = tuple[ReportedSetting, Finding | None]
"""A setting, and the finding that names it."""


def _badge(row: Row) -> Span:
    finding = row[1]
    return Span(SEVERITIES[finding.severity].badge, severity_role(finding)) if finding is not None else Span("")


def _values(setting: ReportedSetting, cells: int) -> Line:
    """The values of a setting, each behind its ranks."""
    if setting.is_own and setting.told > 4:
        return line(Span(f"{setting.told:,} values, one for each rank", "dim"))
    room = max(cells // min(len(setting.values), 3), 16)
    parts: list[Span | str] = []
    for at, value in enumerate(setting.values[:6]):
        who = rank_ranges(value.ranks, room // 2) if value.ranks else ""
        who += ("," if who else "") + f"{value.unknown} unknown" if value.unknown else ""
        shown = clipped(plain(value.shown), max(room // 2 - 4, 10))
        separator = Span(" | ", "dim") if at else ""
        parts += [separator, Span(f"{who}: ", "dim"), Span(shown, "warn" if value.value is None else "text")]
    left = len(setting.values) - 6
    return line(*parts, Span(f" | {left:,} more", "dim") if left > 0 else "")


SETTING_COLUMNS = Columns[Row](
    Col(title="", cell=_badge, width=4),
    Col(
        title="name",
        cell=lambda row: Span(plain(row[0].name), "bold" if row[0].differs else "text"),
        width=lambda screen: max(screen // 3, 8),
        fits=True,
    ),
    Col(title="ranks: value", cell=lambda row: partial(_values, row[0])),
)


def setting_text(setting: ReportedSetting, finding: Finding | None, width: int) -> list[Line]:
    """A setting with all its values, and its finding."""
    lines = [line(Span(plain(setting.name), "head"), f"  {plural(setting.told, 'value')}")]
    if finding is not None:
        lines[:0] = [line(Span(f"{plain(finding.severity)}: ", severity_role(finding)), plain(finding.title))]
    for value in setting.values[:_MOST]:
        who = rank_ranges(value.ranks, max(width - 10, 20)) if value.ranks else ""
        unknown = f"{value.unknown} of unknown rank" if value.unknown else ""
        lines.append(line(Span(plain(value.shown), "bold"), f"  {', '.join(filter(None, (who, unknown)))}"))
    left = len(setting.values) - _MOST
    return [*lines, *([line(Span(f"({left:,} more values)", "dim"))] if left > 0 else [])]


class SettingsScreen(TablePage[Row]):
    """The settings that differ, or all; dismisses with a rank that has the rarest value."""

    WAYS = (Way("a", "everything", "all settings, or those that differ"),)
    VIEW = "settings"
    FIND_HINT = "part of a name or of a value; or a rank"
    ENTER = "go to rank"
    COLUMNS = SETTING_COLUMNS

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset = dataset
        named = [(setting, mentioning_finding(setting, analysis)) for setting in all_settings(dataset)]
        self.settings = sorted(named, key=lambda row: (row[1] is None, not row[0].differs))
        self.everything = False

    def heading(self) -> list[Line]:
        """The number of settings, of those that differ, and of ranks, and the columns."""
        if not self.settings:
            return [line(Span(" settings", "head"), "  none")]
        differ = sum(setting.differs for setting, _ in self.settings)
        known = self.dataset.settings["rank"].drop_nulls().n_unique()
        kept = "all" if self.everything else "only those that differ"
        what = f"  {plural(len(self.settings), 'setting')}, {differ} differ; known for {known:,} of "
        what += f"{plural(self.dataset.world_size, 'rank')}; {kept}"
        return [line(Span(" settings", "head"), what), self.titles()]

    def rows(self) -> list[Row]:
        """All settings, or those that differ or that a finding names."""
        return [row for row in self.settings if self.everything or row[0].differs or row[1] is not None]

    def has(self, row: Row, text: str) -> bool:
        """Whether a setting has `text` in its name or in a value, or is told of a rank."""
        setting = row[0]
        is_rank = text.isascii() and text.isdigit() and len(text) < 10
        if is_rank and any(int(text) in value.ranks for value in setting.values):
            return True
        return text in setting.name.lower() or any(text in value.shown.lower() for value in setting.values[:1000])

    def about(self, row: Row, width: int) -> list[Line]:
        """A setting with all its values."""
        return setting_text(*row, width)

    def nothing(self) -> list[Line]:
        """The text for an empty list: how to get settings, or that none differs."""
        if self.settings and not self.wanted:
            return [line("no setting differs between ranks; ", Span("g a", "bold"), " lists all")]
        return super().nothing()

    def choose(self, at: int) -> None:
        """Goes to the first rank with the rarest value."""
        values = [value for value in self.row(at)[0].values if value.ranks]
        if not values:
            self.note("its rank is not known")
            return
        rank = min(values, key=lambda value: len(value.ranks)).ranks[0]
        self.dismiss(index_of(self.dataset).last_operation(rank))

    def action_everything(self) -> None:
        """Lists all settings, or only those that differ."""
        self.everything = not self.everything
        self.fill()
        self.draw_bars()
