"""A widget whose lines have their own styles: those of CSS, which take most of the time of a frame, are left out."""

from __future__ import annotations

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Unstyled(Widget):
    """Shows what `render_line` gives as it is, unless CSS puts a border around it."""

    ALLOW_SELECT = False

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a part of the widget."""
        if any(self.gutter):
            return super().render_lines(crop)
        strips = [self.render_line(y).crop(crop.x, crop.right) for y in range(crop.y, crop.bottom)]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, self.background_colors[1]) for strip in strips]
        return strips
