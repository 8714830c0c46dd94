"""TIFF files in place: what tifffile reads, of tiles and strips, with and without gzarr's own codecs."""

import numpy as np
import pytest
import tifffile

import gzarr
from gzarr.images import open_image

RNG = np.random.default_rng(0)
RGB = {"photometric": "rgb"}
#: (shape, dtype, options of tifffile, whether gzarr decodes the segments itself)
FILES = [
    ((5, 100, 70), "u2", {}, True),
    ((5, 100, 70), "u2", {"compression": "deflate", "rowsperstrip": 16}, True),
    ((100, 70), "f4", {"compression": "zstd", "rowsperstrip": 16, "byteorder": ">"}, True),
    ((5, 100, 70), "f8", {"rowsperstrip": 16, "tile": (32, 16), "byteorder": ">"}, True),
    ((100, 70, 3), "u1", {"compression": "lzw", "rowsperstrip": 16, **RGB}, False),
    ((3, 100, 70), "u1", {"planarconfig": "separate", "compression": "deflate", "tile": (32, 32), **RGB}, True),
    ((2, 100, 70, 3), "u1", {"compression": "deflate", "tile": (32, 32), **RGB}, True),
    ((100, 70), "u2", {"compression": "deflate", "tile": (32, 32), "predictor": True}, False),
    ((100, 70), "f4", {"compression": "deflate", "tile": (32, 32), "predictor": 3, "byteorder": ">"}, False),
    ((112, 80, 3), "u1", {"compression": "jpeg", "tile": (16, 16), **RGB}, False),
    ((16, 64, 64), "u2", {"tile": (8, 16, 16), "volumetric": True, "compression": "deflate"}, True),
    ((50, 70), "?", {}, False),
]


@pytest.mark.parametrize(("shape", "dtype", "options", "is_own"), FILES, ids=range(len(FILES)))
def test_every_layout(tmp_path, shape, dtype, options, is_own):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, RNG.integers(0, 200, shape).astype(dtype), **options)
    expected = tifffile.imread(path)
    array = gzarr.open(path, mode="r")
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(array[..., 3:60:7, 2:50], expected[..., 3:60:7, 2:50])
    assert (len(array.metadata.codecs) > 1) == (is_own and "compression" in options)
    with tifffile.TiffFile(path) as file:
        stored = sum(sum(page.databytecounts) for page in file.pages)
    assert array.nbytes_stored == len(array.store["zarr.json"]) + stored
    if "tile" in options:
        assert set(options["tile"]) <= set(array.chunks)


def test_levels_and_series_are_groups_and_tags_are_attributes(tmp_path):
    data = RNG.integers(0, 200, (256, 256)).astype("u1")
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(data, tile=(64, 64), compression="deflate", subifds=1, description="hello", metadata=None)
        file.write(data[::2, ::2], tile=(64, 64), compression="deflate", subfiletype=1)
        file.write(data[:30, :40], metadata=None)
    root = gzarr.open(tmp_path / "a.tif", mode="r")
    assert [name for name, _ in root.members(None)] == ["series_0", "series_0/0", "series_0/1", "series_1"]
    np.testing.assert_array_equal(root["series_0/1"][...], data[::2, ::2])
    np.testing.assert_array_equal(root["series_1"][...], data[:30, :40])
    assert root["series_0"].attrs["ImageDescription"] == "hello"


def test_the_levels_of_a_pyramid_are_an_image(tmp_path):
    data = RNG.integers(0, 200, (3, 128, 256)).astype("u1")
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.5, "PhysicalSizeYUnit": "µm"}
    with tifffile.TiffWriter(tmp_path / "a.ome.tif") as file:
        file.write(data, tile=(64, 64), compression="deflate", subifds=1, metadata={"axes": "CYX", **sizes})
        file.write(data[:, ::2, ::2], tile=(64, 64), compression="deflate", subfiletype=1)
    image = open_image(tmp_path / "a.ome.tif", "r")
    assert (image.axes, len(image), image.scale(1)) == (("c", "y", "x"), 2, {"c": 1, "y": 1.0, "x": 1.0})
    assert image.units["x"] == "micrometer"
    np.testing.assert_array_equal(image[1][...], data[:, ::2, ::2])


@pytest.mark.parametrize("options", [{"tile": (32, 32), "compression": "deflate"}, {"compression": "lzw"}], ids=str)
@pytest.mark.parametrize("n_levels", [1, 2])
def test_samples_that_come_last_are_the_channels_of_an_image(tmp_path, options, n_levels):
    data = RNG.integers(0, 200, (100, 70, 3)).astype("u1")
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for at in range(n_levels):
            rest = {"subfiletype": 1} if at else {"subifds": n_levels - 1, "resolution": (4, 2), "resolutionunit": 3}
            file.write(data[:: 2**at, :: 2**at], **RGB, **options, **rest)
    image = open_image(tmp_path / "a.tif")
    assert (image.axes, len(image), image.scale(0)) == (("c", "y", "x"), n_levels, {"c": 1, "y": 5000.0, "x": 2500.0})
    for at in range(n_levels):
        np.testing.assert_array_equal(image[at][...], np.moveaxis(data[:: 2**at, :: 2**at], 2, 0))
        np.testing.assert_array_equal(
            image[at][1:, 3:40:5, 2:], np.moveaxis(data[:: 2**at, :: 2**at], 2, 0)[1:, 3:40:5, 2:]
        )


@pytest.mark.parametrize("shape", [(64, 1), (1, 64), (5, 64, 1)])
@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "rowsperstrip": 16}, {"tile": (16, 16)}], ids=range(3))
def test_images_of_one_pixel_are_read(tmp_path, shape, options):
    tifffile.imwrite(tmp_path / "a.tif", RNG.integers(0, 9, shape).astype("u1"), photometric="minisblack", **options)
    np.testing.assert_array_equal(gzarr.open(tmp_path / "a.tif", mode="r")[...], tifffile.imread(tmp_path / "a.tif"))


def test_missing_tiles_are_nodata(tmp_path):
    data = np.zeros((64, 64), "i2")
    tags = [(42113, "s", 0, "-7", True)]
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(32, 32), compression="zlib", extratags=tags)
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+b") as file:
        file.pages[0].tags["TileByteCounts"].overwrite([0, *file.pages[0].databytecounts[1:]])
    array = gzarr.open(tmp_path / "a.tif", mode="r")
    data[:32, :32] = -7
    np.testing.assert_array_equal(array[...], data)
    assert array.nchunks_initialized == 3
