"""Text, lines and boxes on a Pillow image, with the colours of the whole picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

PAPER, INK, FAINT, LINE = "#faf8f3", "#1f2d38", "#66727c", "#c9ced2"
RED, BLUE, GOLD = "#c8102e", "#2b4c9b", "#8a4b00"
PARALLEL_COLOURS = ("#00695f", "#6d2c91", "#3c3c3c")

#: Where a text's anchor lies: l, m, r across; t, m, b down.
Anchor = str
Point = tuple[float, float]


class Box(NamedTuple):
    """A rectangle in pixels: left, top, width, height."""

    x: int
    y: int
    w: int
    h: int


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font: no font file to find."""
    return ImageFont.load_default(size)


def text_size(text: str, size: int) -> tuple[int, int]:
    """Width and height of a line of text in pixels."""
    left, top, right, bottom = _font(size).getbbox(text)
    return round(right - left), round(bottom - top)


@dataclass(frozen=True, slots=True)
class Canvas:
    """An RGB image and the pen that draws on it.

    Attributes
    ----------
    image : Image.Image
        What is drawn on.
    draw : ImageDraw.ImageDraw
        Pillow's drawing of it.
    """

    image: Image.Image
    draw: ImageDraw.ImageDraw

    def text(self, at: Point, text: str, size: int, colour: str = INK, anchor: Anchor = "lt") -> None:
        """Write a line of text."""
        self.draw.text(at, text, colour, _font(size), anchor)

    def halo(self, at: Point, text: str, size: int, colour: str = INK, anchor: Anchor = "lm") -> None:
        """Write a line of text with a light rim, to be read on any ground."""
        self.draw.text(at, text, colour, _font(size), anchor, stroke_width=3, stroke_fill="#ffffff")

    def tag(self, at: Point, text: str, size: int, colour: str, anchor: Anchor) -> None:
        """Write a line of text in white on a filled box whose edge or corner lies at the point."""
        width, _ = text_size(text, size)
        width, height = width + size // 2 + 6, size + 12
        x = at[0] - {"l": 0, "m": width / 2, "r": width}[anchor[0]]
        y = at[1] - {"t": 0, "m": height / 2, "b": height}[anchor[1]]
        self.draw.rounded_rectangle((x, y, x + width, y + height), radius=6, fill=colour)
        self.draw.text((x + width / 2, y + height / 2), text, "white", _font(size), "mm")

    def veil(self, corners: tuple[int, int, int, int], colour: str, opacity: int) -> None:
        """Lay a translucent colour (opacity 0...255) over a rectangle, its corners included."""
        left, top, right, bottom = corners
        size = (right - left + 1, bottom - top + 1)
        self.image.paste(Image.new("RGB", size, colour), (left, top), Image.new("L", size, opacity))

    def frame(self, box: Box, number: int, title: str, call: str, colour: str) -> None:
        """Head a panel with its number, its title and the call that read it, and draw its border."""
        self.tag((box.x, box.y - 70), str(number), 26, colour, "lm")
        self.text((box.x + 44, box.y - 70), title, 28, INK, "lm")
        self.text((box.x, box.y - 26), call, 23, colour, "lm")
        self.draw.rectangle((box.x - 1, box.y - 1, box.x + box.w, box.y + box.h), outline=colour, width=2)
