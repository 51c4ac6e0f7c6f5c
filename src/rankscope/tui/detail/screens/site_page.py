"""Pages of installed packages: a failure of one is a line on it, and the screen goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, TypeVar

from rankscope.analysis.model import Analysis
from rankscope.kinds.functions import PackageError, log_failure, reason_of
from rankscope.schema import Dataset
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.styled_text import Line, Span, line, wrapped

T = TypeVar("T")


@cache
def guarded_page(page: Any, package: str, place: str, view: str) -> type[ListPage]:
    """The class of a page of a package, for the view of that name. Raises PackageError if it is no page with a list."""
    if not (isinstance(page, type) and issubclass(page, ListPage)):
        raise PackageError(package, place, "no page with a list")
    return type(page.__name__, (_GuardedPage, page), {"VIEW": view, "PACKAGE": package, "PLACE": place})


class _GuardedPage(ListPage):
    """All that the list asks of a page, each with something to show where the page fails."""

    PACKAGE: ClassVar[str]
    PLACE: ClassVar[str]
    failure = ""
    """The first failure; "" while there is none."""

    def __init__(self, *given: Any) -> None:
        try:
            super().__init__(*given)
        except Exception as error:
            raise self._failed(error) from error

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether an input holds nothing for this page. Raises PackageError."""
        try:
            return super().lacks_data(dataset, analysis)
        except Exception as error:
            raise cls._failed(error) from error

    @classmethod
    def _failed(cls, error: Exception) -> PackageError:
        log_failure(error)
        return PackageError(cls.PACKAGE, cls.PLACE, reason_of(error, cls.PLACE.partition(":")[0]))

    def _asked(self, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - their page may raise anything
            self.failure = self.failure or str(self._failed(error))
            return otherwise

    def _told(self) -> Line:
        return line(Span(self.failure, "bad"))

    def heading(self) -> list[Line]:
        """The lines at the top, or the failure."""
        return self._asked(super().heading, []) or [self._told()]

    def search(self, text: str) -> int:
        """Lists the entries with `text`; none if that fails."""
        ask = super().search
        return self._asked(lambda: ask(text), 0)

    def entry_line(self, at: int, width: int) -> Line:
        """An entry of the list, or the failure."""
        ask = super().entry_line
        return self._asked(lambda: ask(at, width), None) or self._told()

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The text of an entry, or the failure."""
        ask = super().entry_text
        return self._asked(lambda: ask(at, width), []) or wrapped([self._told()], width)

    def nothing(self) -> list[Line]:
        """The text for an empty list, or the failure."""
        return wrapped([self._told()], self.size.width - 1) if self.failure else super().nothing()

    def choose(self, at: int) -> None:
        """Does the action of enter on an entry; if that fails, says so."""
        ask = super().choose
        self._asked(lambda: ask(at), None)
        if self.failure:
            self.note(self.failure)
