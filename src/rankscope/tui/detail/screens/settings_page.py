"""Settings and versions: values, and the ranks with each."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.finding_kinds import SEVERITIES
from rankscope.report.settings_section import ReportedSetting, SettingValue, all_settings, mentioning_finding
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, plural, rank_ranges
from rankscope.tui.detail.finding_text import severity_role
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Role, Span, line, wrapped

_MOST = 40
"""Values of one setting that are listed."""


def setting_line(one: ReportedSetting, about: Finding | None, width: int, names: int) -> Line:
    """A setting in a line: its finding, name, and values with their ranks."""
    word = Span(f"{SEVERITIES[about.severity].badge:<4} ", severity_role(about)) if about else Span("     ")
    parts: list[Span | str] = [word, Span(f"{clipped(plain(one.name), names):<{names}} ", _look(one))]
    if one.is_own and one.told > 4:
        return line(*parts, Span(f"{one.told:,} values, one for each rank", "dim"))
    room = max((width - names - 6) // min(len(one.values), 3), 16)
    for at, value in enumerate(one.values[:6]):
        parts += [Span(" | ", "dim") if at else "", *_value(value, room // 2, max(room // 2 - 4, 8))]
    left = len(one.values) - 6
    return line(*parts, Span(f" | {left:,} more", "dim") if left > 0 else "")


def _look(one: ReportedSetting) -> Role:
    return "bold" if one.differs else "text"


def _value(value: SettingValue, ranks: int, width: int) -> list[Span]:
    who = rank_ranges(value.ranks, ranks) if value.ranks else ""
    who += ("," if who else "") + f"{value.unknown} unknown" if value.unknown else ""
    look: Role = "warn" if value.value is None else "text"
    return [Span(f"{who}: ", "dim"), Span(clipped(plain(value.shown), max(width, 10)), look)]


def setting_text(one: ReportedSetting, about: Finding | None, width: int) -> list[Line]:
    """A setting with all its values in whole lines, and its finding."""
    lines = [line(Span(plain(one.name), "head"), f"  {plural(one.told, 'value')}")]
    if about is not None:
        lines[:0] = [line(Span(f"{plain(about.severity)}: ", severity_role(about)), plain(about.title))]
    for value in one.values[:_MOST]:
        who = rank_ranges(value.ranks, max(width - 10, 20)) if value.ranks else ""
        unknown = f"{value.unknown} of unknown rank" if value.unknown else ""
        lines.append(line(Span(plain(value.shown), "bold"), f"  {', '.join(filter(None, (who, unknown)))}"))
    left = len(one.values) - _MOST
    return wrapped([*lines, *([line(Span(f"({left:,} more values)", "dim"))] if left > 0 else [])], width, 2)


class SettingsScreen(ListPage):
    """The settings that differ, or all; dismisses with a rank that has the rarest value."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("a", "everything", "all")]
    VIEW = "settings"
    FIND_HINT = "part of a name or of a value; or a rank"
    ENTER = "go to rank"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset = dataset
        about = [(one, mentioning_finding(one, analysis)) for one in all_settings(dataset)]
        self.settings = sorted(about, key=lambda pair: (pair[1] is None, not pair[0].differs))
        self.everything = False
        self._shown = self.settings
        self._names = 8

    def heading(self) -> list[Line]:
        """The number of settings, of those that differ, and of ranks, and the columns."""
        if not self.settings:
            return [line(Span(" settings", "head"), "  none")]
        differ = sum(one.differs for one, _ in self.settings)
        told = self.dataset.settings["rank"].drop_nulls().n_unique()
        kept = "all" if self.everything else "only those that differ"
        what = f"  {plural(len(self.settings), 'setting')}, {differ} differ; known for {told:,} of "
        what += f"{plural(self.dataset.world_size, 'rank')}; {kept}"
        return [
            line(Span(" settings", "head"), what),
            line(Span(f"       {'name':<{self._names}} ranks: value", "dim")),
        ]

    def search(self, text: str) -> int:
        """Lists the settings with `text` in them, or of a rank."""
        listed = [pair for pair in self.settings if self.everything or pair[0].differs or pair[1] is not None]
        self._shown = [pair for pair in listed if not text or _has(pair[0], text)]
        longest = max((len(plain(one.name)) for one, _ in self._shown), default=8)
        self._names = max(8, min(longest, max(self.size.width // 3, 8)))
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A setting of the list."""
        one, about = self._shown[at]
        return setting_line(one, about, width - 1, self._names)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """A setting with all its values."""
        return setting_text(*self._shown[at], width)

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether no setting was read."""
        del analysis
        return dataset.settings.is_empty()

    def nothing(self) -> list[Line]:
        """The text for an empty list: how to get settings, or that none differs."""
        if self.settings and not self.wanted:
            return [line("no setting differs between ranks; ", Span("a", "bold"), " lists all")]
        return super().nothing()

    def choose(self, at: int) -> None:
        """Goes to the first rank with the rarest value."""
        values = [value for value in self._shown[at][0].values if value.ranks]
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


def _has(one: ReportedSetting, wanted: str) -> bool:
    if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 and any(int(wanted) in v.ranks for v in one.values):
        return True
    return wanted in one.name.lower() or any(wanted in value.shown.lower() for value in one.values[:1000])
