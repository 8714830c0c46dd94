"""What new levels are made with."""

from typing import Any

import pytest

from gzarr.images.new_levels import new_chunks
from gzarr.images.ome.axes import new_axes


@pytest.mark.parametrize(
    ("axes", "shape", "itemsize", "chunks"),
    [
        ("yx", (4096, 300), 1, (1024, 300)),
        ("tyx", (7, 4096, 4096), 2, (1, 512, 512)),
        ("tczyx", (7, 3, 500, 500, 500), 2, (1, 1, 64, 64, 64)),
        ("zyx", (0, 5, 5), 1, (1, 5, 5)),
    ],
)
def test_chunks_are_squares_and_cubes(axes: str, shape: Any, itemsize: int, chunks: Any) -> None:
    assert new_chunks(new_axes(axes, len(shape), None), shape, itemsize) == chunks
