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


def numbers(text):
    return [float(n) for n in re.findall(r"-?[\d.]+", text)]


def lines(root):
    return sum(path.get("d").count("M") for path in root.iter(f"{SVG}path"))


@pytest.mark.parametrize(
    ("shape", "chunks", "faces", "n_lines"),
    [
        ((), (), 1, 0),
        ((10,), (3,), 1, 3),
        ((100, 60), (25, 20), 1, 3 + 2),
        ((40, 100, 60), (10, 25, 20), 3, (3 + 2) + (2 + 3) + (3 + 3)),
        ((7, 5, 40, 100, 60), (1, 1, 10, 25, 20), 3, (3 + 2) + (2 + 3) + (3 + 3)),
        ((0, 5), (1, 5), 1, 0),
        ((1, 1), (1, 1), 1, 0),
    ],
)
def test_faces_and_lines(shape, chunks, faces, n_lines):
    root = parsed(shape, [edges(n, c) for n, c in zip(shape, chunks, strict=True)])
    assert len(list(root.iter(f"{SVG}polygon"))) == faces
    assert lines(root) == n_lines


@pytest.mark.parametrize(
    "shape", [(5,), (3, 10**12), (10**9, 2), (40, 1, 60), (2, 3, 4, 5, 6, 7), (10**6, 10**6, 10**6)]
)
def test_nothing_leaves_the_frame(shape):
    root = parsed(shape, [edges(n, max(n // 3, 1)) for n in shape])
    width, height = float(root.get("width")), float(root.get("height"))
    assert 0 < width < 400
    assert 0 < height < 400
    for polygon in root.iter(f"{SVG}polygon"):
        found = numbers(polygon.get("points"))
        assert all(0 <= x <= width for x in found[::2])
        assert all(0 <= y <= height for y in found[1::2])
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x")) <= width
        assert 0 <= float(text.get("y")) <= height


def test_extents_are_written_beside_their_axes():
    def written(shape):
        return [text.text for text in parsed(shape, [(0, n) for n in shape]).iter(f"{SVG}text")]

    assert written((40, 100, 60)) == ["60", "100", "40"]
    assert written((10,)) == ["10"]
    assert written(()) == []
    assert written((7, 5, 40, 100, 60))[-1] == "7 \N{MULTIPLICATION SIGN} 5 \N{MULTIPLICATION SIGN} this"


def test_many_chunks_are_thinned():
    svg = draw_grid((10**9, 10**6), [range(10**9 + 1), range(0, 10**6 + 1, 10)])
    assert len(svg) < 5000


def test_shards_are_heavier_lines():
    root = parsed((100, 60), [edges(100, 10), edges(60, 10)], [edges(100, 50), edges(60, 30)])
    thin, thick = (path.get("d").count("M") for path in root.iter(f"{SVG}path"))
    assert (thin, thick) == (8 + 4, 1 + 1)


def test_varying_chunks_are_drawn_where_they_are():
    root = parsed((100, 100), [(0, 25, 100), (0, 100)])
    (path,) = root.iter(f"{SVG}path")
    polygon = numbers(next(root.iter(f"{SVG}polygon")).get("points"))
    top, bottom = min(polygon[1::2]), max(polygon[1::2])
    assert numbers(path.get("d"))[1] == pytest.approx(top + 0.25 * (bottom - top), abs=0.2)
