"""Draws how an array is cut into chunks, as a small SVG: a bar, a rectangle or a box, with lines between chunks.

If there are more than three axes, the last three are drawn. Lines have the colour of the page's text, for dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import NamedTuple, TypeAlias

#: Length in pixels of the longest axis, the shortest that an axis may have, and the thickness of a bar.
_LONGEST, _SHORTEST, _BAR = 160.0, 14.0, 30.0
#: Lines closer than this would run together: with many chunks, only every second, third, ... boundary is drawn.
_MIN_GAP = 5.0
#: How far an axis that leads into the page goes right and up, for each pixel of its length.
_SLANT = (0.42, -0.36)
_MARGIN = 4.0

Point: TypeAlias = tuple[float, float]


class _DrawnAxis(NamedTuple):
    """Positions of the lines of one axis, in pixels from its start; its extent is the last."""

    lines: list[float]
    heavy: frozenset[float]
    extent: int

    @property
    def length(self) -> float:
        return self.lines[-1]


class _Face(NamedTuple):
    """One side of a box: a corner, its two axes, and for each their direction per pixel of length."""

    corner: Point
    across: Point
    down: Point
    x: _DrawnAxis
    y: _DrawnAxis
    shade: float


def draw_grid(shape: Sequence[int], chunks: Sequence[Sequence[int]], objects: Sequence[Sequence[int]] = ()) -> str:
    """Draw an array's chunk grid as an ``<svg>`` element.

    Parameters
    ----------
    shape : sequence of int
        Extents.
    chunks : sequence of sequences of int
        For every axis the boundaries of chunks, from 0 to the extent or past it.
    objects : sequence of sequences of int
        Those of shards, which are drawn as heavier lines; empty if there are none.

    Returns
    -------
    str
        The element.
    """
    drawn = slice(max(len(shape) - 3, 0), None)
    extents = shape[drawn]
    longest = max((*extents, 1))
    heavy = list(objects[drawn]) or [()] * len(extents)
    axes = [_axis(n, edges, strong, longest) for n, edges, strong in zip(extents, chunks[drawn], heavy, strict=True)]
    if not axes:
        axes = [_axis(1, (0, 1), (), 8)]
    depth = axes[-3] if len(axes) > 2 else None
    rows = axes[-2] if len(axes) > 1 else _DrawnAxis([0.0, _BAR], frozenset(), -1)
    columns = axes[-1]
    faces = _faces(depth, rows, columns)
    body = "".join(_face_svg(face) for face in faces)
    labels, (width, height) = _labels(shape, depth, rows, columns)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}" role="img" aria-label="chunk grid" '
        f'style="color:inherit;font:11px sans-serif">{body}{labels}</svg>'
    )


def _axis(extent: int, edges: Sequence[int], heavy: Sequence[int], longest: int) -> _DrawnAxis:
    """Lay out one axis. Long and short axes come closer together, so that all of them can be seen."""
    length = max(_LONGEST * sqrt(extent / longest), _SHORTEST)
    scale = length / extent if extent else 0.0
    strong = frozenset(round(edge * scale, 2) for edge in _thinned(heavy, extent, length))
    lines = {round(edge * scale, 2) for edge in _thinned(edges, extent, length)} | strong
    return _DrawnAxis([*sorted(lines | {0.0}), round(length, 2)], strong, extent)


def _thinned(edges: Sequence[int], extent: int, length: float) -> list[int]:
    """Return boundaries inside an axis, few enough to be drawn over a length in pixels."""
    step = ceil(len(edges) * _MIN_GAP / length) or 1
    return [edges[i] for i in range(0, len(edges), step) if 0 < edges[i] < extent]


def _faces(depth: _DrawnAxis | None, rows: _DrawnAxis, columns: _DrawnAxis) -> list[_Face]:
    if depth is None:
        return [_Face((_MARGIN, _MARGIN), (1, 0), (0, 1), columns, rows, 0.16)]
    lead = (depth.length * _SLANT[0], depth.length * _SLANT[1])
    front = (_MARGIN, _MARGIN - lead[1])
    top_right = (front[0] + columns.length, front[1])
    return [
        _Face(front, (1, 0), (0, 1), columns, rows, 0.16),
        _Face(front, (1, 0), _SLANT, columns, depth, 0.08),
        _Face(top_right, _SLANT, (0, 1), depth, rows, 0.24),
    ]


def _face_svg(face: _Face) -> str:
    def at(x: float, y: float) -> str:
        return (
            f"{face.corner[0] + x * face.across[0] + y * face.down[0]:.1f},"
            f"{face.corner[1] + x * face.across[1] + y * face.down[1]:.1f}"
        )

    width, height = face.x.length, face.y.length
    corners = f"{at(0, 0)} {at(width, 0)} {at(width, height)} {at(0, height)}"
    lines = [(at(x, 0), at(x, height), x in face.x.heavy) for x in face.x.lines[1:-1]]
    lines += [(at(0, y), at(width, y), y in face.y.heavy) for y in face.y.lines[1:-1]]
    thin = "".join(f"M{a}L{b}" for a, b, heavy in lines if not heavy)
    thick = "".join(f"M{a}L{b}" for a, b, heavy in lines if heavy)
    return (
        f'<polygon points="{corners}" fill="#3b82c4" fill-opacity="{face.shade + 0.1:.2f}" '
        f'stroke="currentColor" stroke-width="1.5"/>'
        + (f'<path d="{thin}" stroke="currentColor" stroke-opacity="0.45" stroke-width="0.7"/>' if thin else "")
        + (f'<path d="{thick}" stroke="currentColor" stroke-width="1.4"/>' if thick else "")
    )


def _labels(shape: Sequence[int], depth: _DrawnAxis | None, rows: _DrawnAxis, columns: _DrawnAxis) -> tuple[str, Point]:
    """Return the extents beside the drawing, and the size of the whole picture."""
    lead = (0.0, 0.0) if depth is None else (depth.length * _SLANT[0], depth.length * _SLANT[1])
    left, top = _MARGIN, _MARGIN - lead[1]
    right, bottom = left + columns.length, top + rows.length
    texts = []
    if shape:
        texts.append(_text(left + columns.length / 2, bottom + 14, str(columns.extent), "middle"))
    if rows.extent >= 0 and len(shape) > 1:
        texts.append(_text(right + lead[0] + 5, (top + bottom) / 2 + lead[1] + 4, str(rows.extent), "start"))
    if depth is not None:
        texts.append(_text(right + lead[0] / 2 + 6, bottom + lead[1] / 2 + 11, str(depth.extent), "start"))
    height = bottom + 20
    if len(shape) > 3:
        height += 15
        leading = " \N{MULTIPLICATION SIGN} ".join(map(str, shape[:-3]))
        texts.append(_text(left, height - 6, f"{leading} \N{MULTIPLICATION SIGN} this", "start"))
    longest = max(len(str(n)) for n in (*shape, 0))
    width = max(right + lead[0] + 10 + 7 * longest, 60 + 7 * len(shape[:-3]) * longest)
    return "".join(texts), (width, height)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">{text}</text>'
