"""The data of the demo, and the places in it."""

import importlib.util
import lzma
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from examples.relief.relief import PLACES, column_of, load_relief, row_of, unpack_heights

RELIEF = load_relief()


def tool(name: str) -> ModuleType:
    """A script from ``tools/``, which is no package."""
    path = Path(__file__).parents[2] / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_relief_is_the_grid_that_was_packed() -> None:
    assert (RELIEF.heights.shape, RELIEF.heights.dtype) == ((540, 1080), np.int16)
    assert (RELIEF.heights.min(), RELIEF.heights.max()) == (-9027, 6229)
    assert zlib.crc32(RELIEF.heights.astype("<i2").tobytes()) == 692407013


def test_coordinates_are_cell_centres() -> None:
    assert (RELIEF.lat.shape, RELIEF.lon.shape) == ((540,), (1080,))
    np.testing.assert_allclose([RELIEF.lat[0], RELIEF.lat[-1]], [-90 + 1 / 6, 90 - 1 / 6])
    np.testing.assert_allclose([RELIEF.lon[0], RELIEF.lon[-1]], [-180 + 1 / 6, 180 - 1 / 6])


def test_land_covers_as_much_of_the_globe_as_it_should() -> None:
    land = ((RELIEF.heights >= 0) * np.cos(np.deg2rad(RELIEF.lat))[:, None]).sum() / 1080
    assert land / np.cos(np.deg2rad(RELIEF.lat)).sum() == pytest.approx(0.29, abs=0.02)


def test_places_lie_where_they_should() -> None:
    rows, columns = [row_of(lat) for _, lat, _ in PLACES], [column_of(lon) for _, _, lon in PLACES]
    assert max(abs(RELIEF.lat[row] - lat) for row, (_, lat, _) in zip(rows, PLACES, strict=True)) <= 1 / 6
    assert max(abs(RELIEF.lon[column] - lon) for column, (_, _, lon) in zip(columns, PLACES, strict=True)) <= 1 / 6
    heights = dict(zip((name for name, _, _ in PLACES), RELIEF.heights[rows, columns].tolist(), strict=True))
    assert heights["Mount Everest"] > 5000
    assert heights["Dead Sea"] < 0
    assert heights["Challenger Deep"] < -7000


def test_unpacking_undoes_packing_for_any_heights() -> None:
    heights = np.random.default_rng(3).integers(-32768, 32768, (540, 1080)).astype("i2")
    np.testing.assert_array_equal(unpack_heights(tool("pack_relief").pack(heights)), heights)


@pytest.mark.parametrize("packed", [b"", b"not an xz file", lzma.compress(bytes(9999))[:-9]])
def test_a_damaged_relief_file_is_an_error(packed: bytes) -> None:
    with pytest.raises(lzma.LZMAError):
        unpack_heights(packed)
