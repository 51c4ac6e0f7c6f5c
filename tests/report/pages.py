"""Pages of HTML as tests read them: their tags, attributes and texts."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

PLAIN_TAGS = frozenset(
    re.findall(
        r"\w+",
        """html head meta title style body main header footer p h1 h2 h3 h4 table thead tbody tr th td code strong span
        article ul ol li div pre dl dt dd figure figcaption svg desc text g rect circle line path""",
    )
)
"""Tags that a page may have."""


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self, name: str) -> list[str]:
        """The values of an attribute."""
        return [value for _, own, value in self.attributes if own == name]


def no_odd_numbers(read: Page) -> bool:
    """Whether all coordinates are numbers."""
    places = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "d", "width", "height", "viewbox"}
    return not any(re.search("nan|inf", value) for _, name, value in read.attributes if name in places)
