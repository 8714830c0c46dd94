"""The picture: the map that was read back with the windows marked on it, and a panel for each window beneath.

Needs Pillow (the extra ``pillow``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from examples.relief.canvas import BLUE, FAINT, GOLD, INK, LINE, PAPER, PARALLEL_COLOURS, RED, Box, Canvas, text_size
from examples.relief.panels import draw_overview, draw_parallels, draw_places, draw_region
from examples.relief.relief import HIMALAYA, PARALLELS, PLACES, Heights
from examples.relief.shading import shaded_relief, tint

PIXELS_PER_DEGREE = 6
MAP = Box(96, 176, 360 * PIXELS_PER_DEGREE, 180 * PIXELS_PER_DEGREE)
PANEL_TOP, PANEL_H, PANEL_GAP = 1440, 270, 48
PANEL_W = (MAP.w - 3 * PANEL_GAP) // 4
WIDTH, HEIGHT = MAP.w + 2 * MAP.x, PANEL_TOP + PANEL_H + 76
LEGEND = Box(MAP.x + MAP.w - 720, 96, 720, 22)
LEGEND_RANGE = (-8000, 6000)
#: Where the label of a place goes, in steps of 15 pixels to the right (negative: to the left) and of 20 downwards.
LABELS = {
    "Mount Everest": (1, 2),
    "Lhasa": (6, -1),
    "Aconcagua": (-1, 0),
    "South Pole": (1, -1),
    "Denali": (1, -1),
    "Mont Blanc": (-1, -1),
    "Denver": (1, -1),
    "Puerto Rico Trench": (1, -1),
    "Challenger Deep": (-1, 0),
}


def draw_picture(answers: Sequence[Heights], subtitle: str) -> Image.Image:
    """Draw the map, its legend and the four windows.

    Parameters
    ----------
    answers : sequence of Heights
        The windows that were read, in host memory, in the order of `examples.relief.relief.windows`.
    subtitle : str
        One line under the title.

    Returns
    -------
    Image.Image
        An RGB image, 2352 x 1786 pixels.
    """
    whole, *panels = answers
    image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    canvas = Canvas(image, ImageDraw.Draw(image))
    canvas.text((MAP.x, 44), "The relief of the Earth, read back from Zarr", 50)
    canvas.text((MAP.x, 110), subtitle, 25, FAINT)
    _draw_legend(canvas)
    _draw_map(canvas, whole)
    _draw_marks(canvas, panels[-1])
    draws = (draw_region, draw_overview, draw_parallels, draw_places)
    for index, (draw, values) in enumerate(zip(draws, panels, strict=True)):
        draw(canvas, Box(MAP.x + index * (PANEL_W + PANEL_GAP), PANEL_TOP, PANEL_W, PANEL_H), values)
    return image


def enlarge(heights: npt.NDArray[np.int16], factor: int) -> npt.NDArray[np.floating]:
    """Interpolate a grid that spans all longitudes, so that the seam at 180 degrees does not show.

    Returns: float32, ``factor`` times as many rows and columns.
    """
    pad = 4
    wide = np.pad(heights.astype("f4"), ((0, 0), (pad, pad)), mode="wrap")
    rows, cols = wide.shape
    smooth = Image.fromarray(wide).resize((cols * factor, rows * factor), Image.Resampling.BICUBIC)
    return np.asarray(smooth)[:, pad * factor : -pad * factor]


def _draw_map(canvas: Canvas, whole: npt.NDArray[np.int16]) -> None:
    heights = enlarge(whole[::-1], MAP.h // whole.shape[0])
    step = 1 / PIXELS_PER_DEGREE
    lat = 90 - (np.arange(MAP.h) + 0.5) * step
    canvas.image.paste(Image.fromarray(shaded_relief(heights, lat, step)), (MAP.x, MAP.y))
    for lon in range(-150, 180, 30):
        x, _ = _pixel(0, lon)
        canvas.veil((x, MAP.y, x, MAP.y + MAP.h - 1), "white", 46)
        canvas.text((x, MAP.y + MAP.h + 10), _degrees(lon, "EW"), 20, FAINT, "mt")
    for parallel in range(-60, 90, 30):
        _, y = _pixel(parallel, 0)
        canvas.veil((MAP.x, y, MAP.x + MAP.w - 1, y), "white", 46)
        canvas.text((MAP.x - 12, y), _degrees(parallel, "NS"), 20, FAINT, "rm")
    canvas.draw.rectangle((MAP.x - 1, MAP.y - 1, MAP.x + MAP.w, MAP.y + MAP.h), outline=INK, width=2)


def _draw_marks(canvas: Canvas, places: npt.NDArray[np.int16]) -> None:
    """The windows on the map: dashed parallels, the outlined region, a dot and its height for every place."""
    for parallel, colour in zip(PARALLELS, PARALLEL_COLOURS, strict=True):
        _, y = _pixel(parallel, 0)
        for x in range(MAP.x, MAP.x + MAP.w, 18):
            canvas.draw.line((x, y, x + 9, y), fill=colour, width=3)
        canvas.tag((MAP.x + MAP.w - 8, y), _degrees(parallel, "NS"), 22, colour, "rm")
    south, north, west, east = HIMALAYA
    (x0, y0), (x1, y1) = _pixel(north, west), _pixel(south, east)
    canvas.draw.rectangle((x0 - 2, y0 - 2, x1 + 2, y1 + 2), outline="white", width=7)
    canvas.draw.rectangle((x0, y0, x1, y1), outline=RED, width=4)
    canvas.tag((x0, y0 - 8), "1", 26, RED, "lb")
    canvas.tag((MAP.x + 10, MAP.y + 10), "2  all of it, every 8th cell", 26, BLUE, "lt")
    _, y = _pixel(PARALLELS[1], 0)
    canvas.tag((MAP.x + 10, y), "3", 26, PARALLEL_COLOURS[1], "lm")
    canvas.tag((MAP.x + 10, MAP.y + MAP.h - 10), "4  the dots", 26, GOLD, "lb")
    for (name, lat, lon), height in zip(PLACES, places, strict=True):
        _draw_place(canvas, name, _pixel(lat, lon), int(height))


def _draw_place(canvas: Canvas, name: str, at: tuple[int, int], height: int) -> None:
    x, y = at
    y = min(y, MAP.y + MAP.h - 12)
    canvas.draw.ellipse((x - 8, y - 8, x + 8, y + 8), fill="white")
    canvas.draw.ellipse((x - 5, y - 5, x + 5, y + 5), fill=GOLD)
    label = f"{name}  {height:,} m"
    width, _ = text_size(label, 22)
    side, rise = LABELS.get(name, (1, 0))
    left = x + 15 * side - (width if side < 0 else 0)
    canvas.halo((left, y + 20 * rise), label, 22, INK, "lm")


def _draw_legend(canvas: Canvas) -> None:
    low, high = LEGEND_RANGE
    bar = tint(np.linspace(low, high, LEGEND.w))
    pixels = np.broadcast_to(np.rint(bar).astype("u1"), (LEGEND.h, LEGEND.w, 3))
    canvas.image.paste(Image.fromarray(np.ascontiguousarray(pixels)), (LEGEND.x, LEGEND.y))
    canvas.draw.rectangle((LEGEND.x, LEGEND.y, LEGEND.x + LEGEND.w - 1, LEGEND.y + LEGEND.h), outline=INK)
    canvas.text(
        (LEGEND.x, LEGEND.y - 34), "Height above sea level in metres, white above the usual snow line", 22, FAINT
    )
    for height in range(low, high + 1, 2000):
        x = LEGEND.x + round((height - low) / (high - low) * (LEGEND.w - 1))
        canvas.draw.line((x, LEGEND.y + LEGEND.h, x, LEGEND.y + LEGEND.h + 6), fill=LINE, width=2)
        canvas.text((x, LEGEND.y + LEGEND.h + 10), f"{height:,}", 19, FAINT, "mt")


def _pixel(lat: float, lon: float) -> tuple[int, int]:
    """Where a point lies in the picture."""
    return MAP.x + round((lon + 180) * PIXELS_PER_DEGREE), MAP.y + round((90 - lat) * PIXELS_PER_DEGREE)


def _degrees(angle: int, names: str) -> str:
    """``30, "NS"`` -> ``30°N``."""
    return f"{abs(angle)}°" + (names[0] if angle > 0 else names[1] if angle < 0 else "")
