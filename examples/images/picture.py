"""Draws masses of land in colours under their light, with their names and sizes below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image as Picture
from PIL import ImageDraw

from examples.images.land import Land
from examples.relief.canvas import FAINT, PAPER, Canvas
from examples.relief.shading import tint

#: One for each mass of land, the largest first.
COLORS = (
    *("#d9a441", "#5f9e57", "#e4ebf0", "#cf6f3c", "#b58fd0", "#a85f7a"),
    *("#d8c24a", "#c14f45", "#2f8f83", "#d8638f", "#7a5ba6", "#8db54a"),
)
OTHERS = "#b9b2a3"  # islands without a name
COLUMNS, ROW, MARGIN = 4, 30, 24


def colour(code: str) -> list[int]:
    """Red, green and blue, 0 to 255."""
    return list(bytes.fromhex(code[1:]))


def paint(
    heights: npt.NDArray[np.integer],
    light: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.integer],
    masses: Sequence[Land],
) -> Picture.Image:
    """Return the map: seas in their depth, masses of land in their colours, both shaded. All arrays have its shape."""
    colors = np.full((labels.max() + 1, 3), colour(OTHERS), "f4")
    for mass, code in zip(masses, COLORS, strict=True):
        colors[mass.number] = colour(code)
    ground = np.where((labels > 0)[..., None], colors[labels], tint(np.minimum(heights, -1)))
    bright = light[..., None].astype("f4") / 128
    # Light above 1 whitens, light below 1 darkens.
    shaded = np.where(bright > 1, 255 - (255 - ground) * np.maximum(2 - bright, 0.3), ground * bright)
    return Picture.fromarray(np.clip(np.rint(shaded), 0, 255).astype("u1"))


def draw(map_: Picture.Image, masses: Sequence[Land], subtitle: str) -> Picture.Image:
    """Return the map with a legend."""
    rows = -(-len(masses) // COLUMNS)
    page = Picture.new("RGB", (map_.width, map_.height + rows * ROW + 3 * MARGIN), PAPER)
    page.paste(map_, (0, 0))
    canvas = Canvas(page, ImageDraw.Draw(page))
    for number, (mass, code) in enumerate(zip(masses, COLORS, strict=True)):
        column, row = divmod(number, rows)
        x, y = MARGIN + column * (page.width - MARGIN) // COLUMNS, map_.height + MARGIN + row * ROW
        canvas.draw.rectangle((x, y, x + 16, y + 16), fill=code, outline=FAINT)
        canvas.text((x + 26, y + 8), f"{mass.name}  {mass.area_km2 / 1e6:.2f}", 16, anchor="lm")
    canvas.text((MARGIN, page.height - MARGIN), f"Millions of square kilometres. {subtitle}", 14, FAINT, "lb")
    return page
