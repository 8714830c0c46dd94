"""Draws a result of benchmarks.gpu as a roofline: the speed that gzarr reaches, and its limits.

The left panel shows reads of local files over the compression ratio, below the rates of raw reads and of a copy within
the device. The right panel shows decoding in device memory over the number of streams in a call, beside nvCOMP's call
alone. All scales are logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from benchmarks.gpu.goals import CPU_PEERS, RAW_READS, cases_of, size

WIDTH, HEIGHT, PANEL_WIDTH, PANEL_HEIGHT = 980, 470, 360, 330
COLOURS = {
    "blosc-lz4": "#1f77b4",
    "zstd": "#d62728",
    "blosc-zstd": "#9467bd",
    "none": "#7f7f7f",
    "gzip": "#2ca02c",
    "lz4": "#ff7f0e",
}


class Point(NamedTuple):
    """A measurement: its place, its codec, whether it is gzarr's, and its tooltip."""

    x: float
    y: float
    codec: str
    own: bool
    title: str


class Panel(NamedTuple):
    """Axes: the upper left corner in pixels, and the ranges in powers of ten."""

    left: float
    top: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point, moved to the edge if it is outside."""
        along = (_clamp(math.log10(x), self.x) - self.x[0]) / (self.x[1] - self.x[0])
        up = (_clamp(math.log10(y), self.y) - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + along * PANEL_WIDTH, self.top + (1 - up) * PANEL_HEIGHT


def plot(result: dict[str, Any]) -> str:
    """The plot as an SVG document."""
    files, streams = file_points(result), stream_points(result)
    copy = result["ceilings"].get("device copy GB_per_s")
    raw = max((r["GB_per_s_encoded"] for r in result["rows"] if r["contender"] in RAW_READS), default=None)
    x, x_right = (_range([1, 10, *(point.x for point in points)]) for points in (files, streams))
    ends = [copy, raw, raw and raw * 10 ** x[1]]
    y = _range([*(point.y for point in (*files, *streams)), *(rate for rate in ends if rate)])
    left, right = Panel(70, 60, x, y), Panel(70 + PANEL_WIDTH + 90, 60, x_right, y)
    machine = result["machine"]["gpu"] or f"{result['device']}: no GPU, speeds mean nothing"
    body = [_text(WIDTH / 2, 24, f"gzarr on {machine}", anchor="middle", big=True)]
    body += _axes(left, "reads of local files", "bytes decoded for each byte stored")
    body += _axes(right, "decoding in device memory", "streams decoded in one call")
    for panel in (left, right):
        if copy:
            body += _roof(panel, lambda x: copy, "device copy")
    if raw:
        body += _roof(left, lambda x: raw * x, "raw read")
    body += [_dot(left, point) for point in files] + [_dot(right, point) for point in streams]
    body += _legend({point.codec for point in (*files, *streams)})
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *body, "</svg>", ""])


def file_points(result: dict[str, Any]) -> list[Point]:
    """Whole reads of files, by gzarr and by the best decoder of the host."""
    points = []
    for case in cases_of(result, "file"):
        own = case.rows.get("gzarr")
        if case.selection != "whole" or own is None:
            continue
        x, codec = own["decoded_nbytes"] / own["encoded_nbytes"], case.key[0]
        points.append(Point(x, own["GB_per_s"], codec, True, f"gzarr: {case.name}"))
        peers = [(case.rows[name]["GB_per_s"], name) for name in CPU_PEERS if name in case.rows]
        if peers:
            points.append(Point(x, max(peers)[0], codec, False, f"{max(peers)[1]}: {case.name}"))
    return points


def stream_points(result: dict[str, Any]) -> list[Point]:
    """Stages on the device and nvCOMP alone, for codecs that have streams."""
    points = []
    for row in result["rows"]:
        if row["table"] not in ("streams", "resident") or not row["streams"]:
            continue
        what = f"{row['nchunks']} chunks" if row["table"] == "streams" else size(row["chunk_nbytes"])
        title = f"{row['codec']}, {what}"
        points.append(Point(row["streams"], row["GB_per_s"], row["codec"], True, f"gzarr: {title}"))
        if row["bare_nvcomp_GB_per_s"]:
            point = Point(row["streams"], row["bare_nvcomp_GB_per_s"], row["codec"], False, f"bare nvCOMP: {title}")
            points.append(point)
    return points


def _range(values: Iterable[float]) -> tuple[float, float]:
    """Whole powers of ten around values."""
    logs = [math.log10(value) for value in values]
    low, high = math.floor(min(logs, default=0)), math.ceil(max(logs, default=1))
    return low, max(high, low + 1)


def _clamp(value: float, limits: Sequence[float]) -> float:
    return min(max(value, limits[0]), limits[1])


def _axes(panel: Panel, title: str, label: str) -> list[str]:
    right, bottom = panel.left + PANEL_WIDTH, panel.top + PANEL_HEIGHT
    frame = f'<rect x="{panel.left}" y="{panel.top}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}"'
    drawn = [f'{frame} fill="none" stroke="black"/>', _text(panel.left, panel.top - 10, title)]
    drawn.append(_text((panel.left + right) / 2, bottom + 36, label, anchor="middle"))
    middle = (panel.top + bottom) / 2
    turned = f'transform="rotate(-90 {panel.left - 45} {middle})"'
    drawn.append(_text(panel.left - 45, middle, "GB/s decoded", anchor="middle", extra=turned))
    for power in range(int(panel.x[0]), int(panel.x[1]) + 1):
        x, _ = panel.at(10.0**power, 1)
        drawn += [_line(x, bottom, x, bottom + 5), _text(x, bottom + 19, f"{10.0**power:g}", anchor="middle")]
    for power in range(int(panel.y[0]), int(panel.y[1]) + 1):
        _, y = panel.at(1, 10.0**power)
        drawn += [
            _line(panel.left - 5, y, panel.left, y),
            _text(panel.left - 8, y + 4, f"{10.0**power:g}", anchor="end"),
        ]
    return drawn


def _roof(panel: Panel, rate: Any, name: str) -> list[str]:
    """A ceiling: a line of slope zero or one."""
    ends = [panel.at(10.0**power, rate(10.0**power)) for power in panel.x]
    (x, y), (x2, y2) = ends
    return [_line(x, y, x2, y2, dashed=True), _text(x + 8, y + 15, name)]


def _dot(panel: Panel, point: Point) -> str:
    x, y = panel.at(point.x, point.y)
    colour = COLOURS.get(point.codec, "black")
    fill = colour if point.own else "white"
    title = escape(f"{point.title}: {point.y:.3g} GB/s")
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"><title>{title}</title></circle>'


def _legend(codecs: set[str]) -> list[str]:
    y, drawn = HEIGHT - 16, []
    for number, codec in enumerate(name for name in COLOURS if name in codecs):
        x = 70 + 95 * number
        drawn += [f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{COLOURS[codec]}"/>', _text(x + 8, y, codec)]
    return [*drawn, _text(WIDTH - 20, y, "filled: gzarr; hollow: best of the host, bare nvCOMP", anchor="end")]


def _line(x: float, y: float, x2: float, y2: float, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="black"{dash}/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", big: bool = False, extra: str = "") -> str:
    font = 16 if big else 12
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{font}" text-anchor="{anchor}"'
    return f"<text {place} {extra}>{escape(text)}</text>"
