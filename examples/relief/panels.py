"""The panels beneath the map, one a window: a region, an overview, three profiles, a list of places."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from examples.relief.canvas import BLUE, FAINT, GOLD, INK, LINE, PARALLEL_COLOURS, RED, Box, Canvas
from examples.relief.relief import HIMALAYA, PARALLELS, PLACES, STEP, Heights, windows
from examples.relief.shading import shaded_relief, tint

PROFILE_RANGE = (-8500, 6500)


def draw_region(canvas: Canvas, box: Box, region: Heights) -> None:
    """The Himalaya, enlarged and shaded."""
    window = windows()[1]
    smooth = Image.fromarray(region[::-1].astype("f4")).resize((box.w, box.h), Image.Resampling.BICUBIC)
    south, north, west, east = HIMALAYA
    lat = np.linspace(north, south, box.h)
    rgb = shaded_relief(np.asarray(smooth), lat, (east - west) / box.w)
    canvas.image.paste(Image.fromarray(rgb), (box.x, box.y))
    canvas.frame(box, 1, window.name, window.call, RED)
    low, high = int(region.min()), int(region.max())
    caption = f"{region.shape[0]} x {region.shape[1]} cells, {low:,} m to {high:,} m"
    canvas.text((box.x, box.y + box.h + 14), caption, 21, FAINT)


def draw_overview(canvas: Canvas, box: Box, overview: Heights) -> None:
    """The whole Earth in coarse cells, each drawn as a block."""
    window = windows()[2]
    rows, cols = overview.shape
    lat = np.linspace(90, -90, rows)
    rgb = shaded_relief(overview[::-1].astype("f4"), lat, STEP / 3, coast=0)
    blocks = Image.fromarray(rgb).resize((box.w, box.h), Image.Resampling.NEAREST)
    canvas.image.paste(blocks, (box.x, box.y))
    canvas.frame(box, 2, window.name, window.call, BLUE)
    canvas.text((box.x, box.y + box.h + 14), f"{rows} x {cols} cells", 21, FAINT)


def draw_parallels(canvas: Canvas, box: Box, parallels: Heights) -> None:
    """Profiles from west to east, one above the other, filled with the colours of the map."""
    window = windows()[3]
    strip_h = box.h // len(parallels)
    for index, (lat, heights) in enumerate(zip(PARALLELS, parallels, strict=True)):
        strip = Box(box.x, box.y + index * strip_h, box.w, strip_h)
        canvas.image.paste(Image.fromarray(_profile(heights, strip.w, strip.h)), (strip.x, strip.y))
        if index:
            canvas.draw.line((strip.x, strip.y, strip.x + strip.w, strip.y), fill=INK, width=1)
        name = f"{abs(lat)}°{'N' if lat > 0 else 'S'}" if lat else "Equator"
        canvas.tag((strip.x + 6, strip.y + 6), name, 18, PARALLEL_COLOURS[index], "lt")
        peak = int(heights.argmax())
        x = strip.x + round((peak + 0.5) / heights.size * strip.w)
        anchor, x = ("rt", x - 12) if peak > heights.size / 2 else ("lt", x + 12)
        canvas.text((x, strip.y + 8), f"{int(heights.max()):,} m", 18, INK, anchor)
    canvas.frame(box, 3, window.name, window.call, PARALLEL_COLOURS[0])
    canvas.text((box.x, box.y + box.h + 14), "180°W", 21, FAINT)
    canvas.text((box.x + box.w // 2, box.y + box.h + 14), "0°", 21, FAINT, "mt")
    canvas.text((box.x + box.w, box.y + box.h + 14), "180°E", 21, FAINT, "rt")


def _profile(heights: Heights, width: int, height: int) -> npt.NDArray[np.uint8]:
    """Sky, land, water and rock along one row, as RGB pixels."""
    low, high = PROFILE_RANGE
    at = (np.arange(width) + 0.5) / width * heights.size - 0.5
    surface = np.interp(at, np.arange(heights.size), heights)[None, :]
    level = np.linspace(high, low, height)[:, None]
    colours: npt.NDArray[Any] = np.empty((height, width, 3))
    colours[:] = (250, 250, 247)
    water = (level < 0) & (level > surface)
    colours[water] = tint(np.broadcast_to(level, water.shape)[water])
    rock = level <= surface
    colours[rock] = np.where(level < 0, 0.62, 1.0).repeat(width, axis=1)[rock][:, None] * (168, 134, 106)
    land = rock & (level >= 0)
    colours[land] = tint(np.broadcast_to(level, land.shape)[land])
    pixels: npt.NDArray[np.uint8] = np.rint(colours).astype("u1")
    return pixels


def draw_places(canvas: Canvas, box: Box, places: Heights) -> None:
    """The places, highest first, with a bar from sea level to the height of each."""
    window = windows()[4]
    named = sorted(zip(PLACES, places.tolist(), strict=True), key=lambda pair: -pair[1])
    row_h = (box.h - 8) / len(named)
    zero, reach = box.x + box.w - 165, 150
    for index, ((place, _, _), metres) in enumerate(named):
        y = box.y + 4 + (index + 0.5) * row_h
        x0, x1 = sorted((zero, zero + round(metres / 8000 * reach)))
        colour = tuple(int(v) for v in np.rint(tint(np.array([metres * 0.75]))[0]))
        canvas.draw.rectangle((x0, y - 7, x1, y + 7), fill=colour, outline=INK)
        canvas.text((box.x + 10, y), place, 19, INK, "lm")
        label_at, anchor = (zero - 8, "rm") if metres >= 0 else (zero + 8, "lm")
        canvas.text((label_at, y), f"{metres:,}", 19, INK, anchor)
    canvas.draw.line((zero, box.y, zero, box.y + box.h), fill=LINE, width=2)
    canvas.frame(box, 4, window.name, window.call, GOLD)
    canvas.text((box.x, box.y + box.h + 14), "metres, means of cells 37 km wide", 21, FAINT)
