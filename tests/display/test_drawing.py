"""The drawing of a chunk grid: well-formed, inside its frame, with a line for each boundary that there is room for."""

import re
from xml.etree import ElementTree as ET

import pytest

from gzarr.display.drawing import draw_grid

SVG = "{http://www.w3.org/2000/svg}"


def edges(extent, length):
    return range(0, -(-extent // length) * length + 1, length)


def parsed(*args):
    return ET.fromstring(draw_grid(*args))


def lines(root):
    return [path.get("d").count("M") for path in root.iter(f"{SVG}path")]


@pytest.mark.parametrize(
    ("shape", "chunks", "n_lines"),
    [
        ((), (), []),
        ((10,), (3,), [3]),
        ((100, 60), (25, 20), [3 + 2]),
        ((7, 40, 100, 60), (1, 10, 25, 20), [3 + 2]),
        ((0, 5), (1, 5), []),
        ((1, 1), (1, 1), []),
    ],
)
def test_lines_and_extents(shape, chunks, n_lines):
    root = parsed(shape, [edges(n, c) for n, c in zip(shape, chunks, strict=True)])
    assert lines(root) == n_lines
    assert [text.text for text in root.iter(f"{SVG}text")] == ([" × ".join(map(str, shape))] if shape else [])  # noqa: RUF001


@pytest.mark.parametrize("shape", [(5,), (3, 10**12), (10**9, 2), (40, 1, 60), (2, 3, 4, 5, 6, 7), (10**6, 10**6)])
def test_nothing_leaves_the_frame(shape):
    root = parsed(shape, [edges(n, max(n // 3, 1)) for n in shape])
    width, height = float(root.get("width")), float(root.get("height"))
    assert 0 < width < 400
    assert 0 < height < 400
    (rect,) = root.iter(f"{SVG}rect")
    x, y, w, h = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
    assert x + w <= width
    assert y + h <= height
    for path in root.iter(f"{SVG}path"):
        for to_x, to_y in re.findall(r"M([\d.]+) ([\d.]+)", path.get("d")):
            assert x <= float(to_x) <= x + w
            assert y <= float(to_y) <= y + h


def test_many_chunks_are_thinned():
    svg = draw_grid((10**9, 10**6), [range(10**9 + 1), range(0, 10**6 + 1, 10)])
    assert len(svg) < 5000


def test_shards_are_heavier_lines():
    root = parsed((100, 60), [edges(100, 10), edges(60, 10)], [edges(100, 50), edges(60, 30)])
    assert lines(root) == [8 + 4, 1 + 1]


def test_varying_chunks_are_drawn_where_they_are():
    root = parsed((100, 100), [(0, 25, 100), (0, 100)])
    (path,), (rect,) = root.iter(f"{SVG}path"), root.iter(f"{SVG}rect")
    place = float(re.match(r"M[\d.]+ ([\d.]+)h", path.get("d"))[1])
    assert place == pytest.approx(float(rect.get("y")) + 0.25 * float(rect.get("height")), abs=0.2)
