"""Draws how an array is cut into chunks, as a small SVG: the last two axes, with lines between chunks.

Lines have the colour of the page's text, for dark pages.
"""

from collections.abc import Sequence
from math import ceil, sqrt

#: Length in pixels of the longest axis, the shortest that an axis may have, and the thickness of a bar.
_LONGEST, _SHORTEST, _BAR = 160.0, 14.0, 30.0
#: Lines closer than this would run together: with many chunks, only every second, third, ... boundary is drawn.
_MIN_GAP = 5.0
_MARGIN = 4.0
#: Room for the text below and beside the drawing, and for a letter.
_BELOW, _LETTER = 20.0, 7.0


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
    extents = [*shape[-2:]]
    lengths = [max(_LONGEST * sqrt(n / max((*extents, 1))), _SHORTEST) for n in extents]  # long and short ones are seen
    edges, heavy = [*chunks[-2:]], [*objects[-2:]]
    while len(lengths) < 2:  # a bar, or a square
        lengths, edges, heavy, extents = [_BAR, *lengths], [(), *edges], [(), *heavy], [1, *extents]
    height, width = lengths
    thin = _lines(edges, extents, lengths)
    thick = _lines(heavy if objects else [(), ()], extents, lengths)
    texts = [" \N{MULTIPLICATION SIGN} ".join(map(str, shape))] if shape else []
    whole_width = max(width, _LETTER * sum(map(len, texts))) + 2 * _MARGIN
    whole_height = height + 2 * _MARGIN + _BELOW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole_width:.0f}" height="{whole_height:.0f}" '
        f'role="img" aria-label="chunk grid" style="color:inherit;font:11px sans-serif">'
        f'<rect x="{_MARGIN}" y="{_MARGIN}" width="{width:.1f}" height="{height:.1f}" fill="#3b82c4" '
        f'fill-opacity="0.26" stroke="currentColor" stroke-width="1.5"/>'
        + _path([line for line in thin if line not in thick], 'stroke-opacity="0.45" stroke-width="0.7"')
        + _path(thick, 'stroke-width="1.4"')
        + "".join(f'<text x="{_MARGIN}" y="{whole_height - 8:.1f}" fill="currentColor">{text}</text>' for text in texts)
        + "</svg>"
    )


def _lines(edges: Sequence[Sequence[int]], extents: Sequence[int], lengths: Sequence[float]) -> list[str]:
    """The boundaries inside both axes, few enough to be drawn, as moves of a path."""
    rows, columns = (_places(*axis) for axis in zip(edges, extents, lengths, strict=True))
    height, width = lengths
    return [f"M{_MARGIN} {y:.1f}h{width:.1f}" for y in rows] + [f"M{x:.1f} {_MARGIN}v{height:.1f}" for x in columns]


def _places(edges: Sequence[int], extent: int, length: float) -> list[float]:
    step = ceil(len(edges) * _MIN_GAP / length) or 1
    inside = (edges[at] for at in range(0, len(edges), step))
    return [_MARGIN + edge * length / extent for edge in inside if 0 < edge < extent]


def _path(moves: Sequence[str], style: str) -> str:
    return f'<path d="{"".join(moves)}" stroke="currentColor" {style}/>' if moves else ""
