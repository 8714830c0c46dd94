"""Draws a few rows of a result as bars: gzarr beside the fastest other Zarr library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from benchmarks.cpu.libraries import PLUGIN, REFERENCES
from benchmarks.cpu.measure import mean_ratio, ratio
from benchmarks.cpu.report import digits

#: Row of the result -> what a reader sees. Rows that gzarr loses belong to a fair choice.
ROWS = {
    "read all, lz4 i4": "Read everything, large chunks",
    "read all, lz4 i4, 6,400 chunks": "Read everything, 6,400 chunks",
    "one row, large chunks": "Read one row across large chunks",
    "oindex, 64 random images": "Read 64 random images",
    "100 inner chunks of shards, one call each": "Read 100 chunks out of shards",
    "open a group, its 1,000 arrays": "Open a group of 1,000 arrays",
    "open and read a row of 80 chunks, 20 ms away": "Read 80 chunks, server 20 ms away",
    "write all, lz4 i4, 6,400 chunks": "Write everything, 6,400 chunks",
    "write all, zstd f4": "Write everything, Zstandard",
}
NAMES = {
    "zarr": "zarr-python 3",
    "zarr fused": "zarr-python 3, fused",
    "zarrs": "zarrs-python",
    "tensorstore": "TensorStore",
    "zarr 2": "zarr 2",
}
WIDTH, LEFT, BAR_WIDTH, TOP, ROW_HEIGHT, BAR_HEIGHT = 820, 290, 300, 66, 46, 15
#: Both are legible on white and on black, as the page behind the figure may be either.
INK, OWN, OTHER = "#6e7781", "#1f883d", "#9aa4ae"


def plot(result: Mapping[str, Any]) -> str:
    """The figure as an SVG document."""
    raced = {name: each["results"] for name, each in result["workloads"].items() if ratio(each["results"])}
    rows = [(label, times(raced[name])) for name, label in ROWS.items() if name in raced]
    mean = mean_ratio(result)
    words = f"Geometric mean over all {len(raced)} workloads: {mean:.2f} times as fast as the fastest other library"
    title = "Time of gzarr and of the fastest other Zarr library; shorter is better"
    return figure(title, words if mean else "", rows, about(result))


def figure(title: str, words: str, rows: Sequence[tuple[str, Mapping[str, float]]], foot: str, unit: str = "ms") -> str:
    """Bars as an SVG document. rows: labels, and times by what took them, of which the first is gzarr's."""
    heights = [ROW_HEIGHT + (len(times_) - 2) * (BAR_HEIGHT + 2) for _, times_ in rows]
    height = TOP + 34 + sum(heights)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
    body = [text(0, 22, title, size=17, bold=True)]
    if words:
        body.append(text(0, 44, words))
    for number, (label, times_) in enumerate(rows):
        body += bars(TOP + sum(heights[:number]), label, times_, unit)
    body.append(text(0, height - 6, foot, size=12))
    return "\n".join([f'{head}font-size="14" fill="{INK}">', *body, "</svg>", ""])


def times(replies: Mapping[str, Any]) -> dict[str, float]:
    """Library -> milliseconds: gzarr, then the fastest peer."""
    measured = {
        name: r["median_s"] * 1e3
        for name, r in replies.items()
        if "median_s" in r and name not in {PLUGIN, *REFERENCES}
    }
    own = measured.pop("gzarr")
    best = min(measured, key=measured.__getitem__)
    return {"gzarr": own, NAMES[best]: measured[best]}


def bars(top: float, label: str, times_: Mapping[str, float], unit: str) -> list[str]:
    """One row: its label and two bars, the longer of which has the full width."""
    longest = max(times_.values())
    parts = [text(LEFT - 14, top + BAR_HEIGHT + 5, label, anchor="end")]
    for number, (name, value) in enumerate(times_.items()):
        y, width = top + number * (BAR_HEIGHT + 2), BAR_WIDTH * value / longest
        colour = OTHER if number else OWN
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.0f}" height="{BAR_HEIGHT}" rx="2" fill="{colour}"/>')
        parts.append(text(LEFT + width + 8, y + 12, f"{digits(value)} {unit}  {name}", size=13, bold=not number))
    return parts


def about(result: Mapping[str, Any]) -> str:
    """Where it was measured."""
    machine = result["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores; medians of {result['rounds']} rounds; {machine['date']}"


def text(x: float, y: float, words: str, *, size: int = 14, anchor: str = "start", bold: bool = False) -> str:
    """A line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
