"""Turns heights into the colours of a physical map: hypsometric tints, hillshade and coastlines, in NumPy alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: Height in metres -> colour. The jump at sea level makes the coast.
TINTS: tuple[tuple[float, str], ...] = (
    (-9000, "#0b2447"),
    (-6000, "#143d6b"),
    (-4500, "#1f588f"),
    (-3000, "#3a79ad"),
    (-1500, "#649fc8"),
    (-200, "#9cc9e0"),
    (-0.01, "#c4e2ec"),
    (0, "#6fa374"),
    (150, "#93b981"),
    (400, "#c5ce91"),
    (800, "#e6d79c"),
    (1400, "#dcb67c"),
    (2200, "#c0905f"),
    (3200, "#a87a5c"),
    (4200, "#b59684"),
    (5000, "#d3c4ba"),
    (6500, "#f7f3f0"),
)
#: Latitude in degrees north -> height in metres above which snow usually lasts. Rough on purpose: it whitens a map.
SNOW_LINE = (
    (-90, -700),
    (-64, -700),
    (-60, 300),
    (-45, 2200),
    (-28, 6000),
    (0, 5000),
    (28, 6000),
    (46, 3400),
    (60, 2100),
    (70, 1200),
    (82, 300),
    (90, 0),
)
SNOW = (244, 248, 251)
SNOW_BLEND_M = 700.0  # over this many metres the tint turns into snow
COAST = (38, 62, 78)

METRES_PER_DEGREE = 111_195.0  # a degree of latitude on a sphere of 6371 km
SUN_AZIMUTH_DEG, SUN_ALTITUDE_DEG = 315.0, 45.0  # from the north-west, as on printed maps
LAND_EXAGGERATION, SEA_EXAGGERATION = 16.0, 9.0  # slopes over 37 km cells are too gentle to see


def shaded_relief(
    heights: npt.NDArray[np.floating], lat: npt.NDArray[np.floating], step_deg: float, *, coast: float = 0.75
) -> npt.NDArray[np.uint8]:
    """Paint a grid of heights as a physical map.

    Parameters
    ----------
    heights : npt.NDArray[np.floating]
        Metres, (rows, cols), north at the top.
    lat : npt.NDArray[np.floating]
        Degrees north of the rows, (rows,).
    step_deg : float
        Spacing of rows and of columns in degrees.
    coast : float
        Darkness of the coastline, 0 (none) to 1.

    Returns
    -------
    npt.NDArray[np.uint8]
        RGB, (rows, cols, 3).
    """
    north, east = np.gradient(heights)
    light = hillshade(-north, east, heights, lat, step_deg)
    rgb = _whiten(tint(heights), heights, lat)
    # Light above 1 whitens, light below 1 multiplies: slopes in shadow keep their colour, sunlit ones do not burn out.
    rgb = np.where(
        light[..., None] > 1, 255 - (255 - rgb) * np.maximum(2 - light[..., None], 0.3), rgb * light[..., None]
    )
    if coast:
        alpha = coast * _coast(heights, np.hypot(north, east))[..., None]
        rgb = rgb * (1 - alpha) + np.array(COAST) * alpha
    pixels: npt.NDArray[np.uint8] = np.clip(np.rint(rgb), 0, 255).astype("u1")
    return pixels


def hillshade(
    north: npt.NDArray[np.floating],
    east: npt.NDArray[np.floating],
    heights: npt.NDArray[np.floating],
    lat: npt.NDArray[np.floating],
    step_deg: float,
) -> npt.NDArray[np.floating]:
    """Light on a surface under one distant sun, relative to flat ground.

    Parameters
    ----------
    north : npt.NDArray[np.floating]
        Rise in metres from one row to the next further north, (rows, cols).
    east : npt.NDArray[np.floating]
        Rise in metres from one column to the next further east, (rows, cols).
    heights : npt.NDArray[np.floating]
        Metres, (rows, cols); land and sea floor are exaggerated differently.
    lat : npt.NDArray[np.floating]
        Degrees north of the rows, (rows,).
    step_deg : float
        Spacing of rows and of columns in degrees.

    Returns
    -------
    npt.NDArray[np.floating]
        1 on flat ground, less in shadow (0 at the least), more on slopes that face the sun.
    """
    azimuth, altitude = np.deg2rad(SUN_AZIMUTH_DEG), np.deg2rad(SUN_ALTITUDE_DEG)
    exaggeration = np.where(heights >= 0, LAND_EXAGGERATION, SEA_EXAGGERATION)
    step_m = step_deg * METRES_PER_DEGREE
    # Meridians converge: a column is narrower in the north. Not below a third, or the poles drown in noise.
    squeeze = np.maximum(np.cos(np.deg2rad(lat)), 1 / 3)[:, None]
    slope_n = exaggeration * north / step_m
    slope_e = exaggeration * east / (step_m * squeeze)
    toward_sun = slope_n * np.cos(azimuth) + slope_e * np.sin(azimuth)
    light = (np.sin(altitude) - np.cos(altitude) * toward_sun) / np.sqrt(1 + slope_n**2 + slope_e**2)
    relative: npt.NDArray[np.floating] = np.maximum(light, 0) / np.sin(altitude)
    return relative


def tint(heights: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Colour of heights in metres, of any shape, interpolated in `TINTS`. Returns: RGB in 0...255, one axis more."""
    at = [height for height, _ in TINTS]
    colours = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for _, colour in TINTS], dtype="f8")
    return np.stack([np.interp(heights, at, channel) for channel in colours.T], axis=-1)


def _whiten(
    rgb: npt.NDArray[np.floating], heights: npt.NDArray[np.floating], lat: npt.NDArray[np.floating]
) -> npt.NDArray[np.floating]:
    at, line = np.array(SNOW_LINE, dtype="f8").T
    snow = np.clip((heights - np.interp(lat, at, line)[:, None]) / SNOW_BLEND_M, 0, 0.92) * (heights >= 0)
    whiter: npt.NDArray[np.floating] = rgb * (1 - snow[..., None]) + np.array(SNOW) * snow[..., None]
    return whiter


def _coast(heights: npt.NDArray[np.floating], rise: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """How much of each cell the coastline covers, 0...1: it lies where the surface crosses sea level.

    Height over rise is the distance to the crossing in cells. Flat ice at exactly 0 m is near no crossing: a cell
    counts only if land and sea meet within the 3 x 3 cells around it.
    """
    land = np.pad(heights >= 0, 1, mode="edge")
    rows, cols = heights.shape
    around = [land[i : i + rows, j : j + cols] for i in range(3) for j in range(3)]
    meets = np.logical_or.reduce(around) & ~np.logical_and.reduce(around)
    covered: npt.NDArray[np.floating] = np.clip(1 - np.abs(heights) / (rise + 4.0), 0, 1) * meets
    return covered
