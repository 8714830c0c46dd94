"""TIFF files of microscopes, slide scanners and satellites become OME-Zarr with what they say of axes and channels."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tifffile

import gzarr
from gzarr import convert
from gzarr.errors import CopyError
from gzarr.images import open_image
from gzarr.storage import MemoryStore
from gzarr.virtual.ome_levels import factors
from gzarr.virtual.tiff_metadata import Description, describe


def data_of(*shape: int, dtype: str = "u2") -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, shape).astype(dtype)


def converted(path: Path, **options: Any) -> Any:
    dest = MemoryStore()
    convert.from_tiff(path, dest, ome=True, **options)
    report = gzarr.images.validate(dest)
    assert report.ok, str(report)
    return open_image(dest, "r") if "multiscales" in str(gzarr.open_group(dest).attrs.asdict()) else dest


def test_ome_tiff_keeps_channels_voxel_sizes_and_units(tmp_path: Path, zarr_format: int) -> None:
    data = data_of(3, 2, 4, 40, 50)
    metadata = {
        "axes": "TCZYX",
        "Name": "neuron",
        "PhysicalSizeX": 0.25,
        "PhysicalSizeXUnit": "µm",
        "PhysicalSizeY": 250.0,
        "PhysicalSizeYUnit": "nm",
        "PhysicalSizeZ": 2.0,
        "PhysicalSizeZUnit": "µm",
        "TimeIncrement": 0.5,
        "TimeIncrementUnit": "s",
        "Channel": {"Name": ["DAPI", "GFP"], "Color": [65535, -16776961]},
    }
    tifffile.imwrite(tmp_path / "a.ome.tif", data, metadata=metadata, tile=(16, 16), compression="zlib")
    image = converted(tmp_path / "a.ome.tif", zarr_format=zarr_format)
    assert (image.version, image.axes, image.name) == ({2: "0.4", 3: "0.5"}[zarr_format], tuple("tczyx"), "neuron")
    assert image.scale(0) == {"t": 0.5, "c": 1.0, "z": 2.0, "y": 250.0, "x": 0.25}
    assert image.units == {"t": "second", "c": None, "z": "micrometer", "y": "nanometer", "x": "micrometer"}
    assert [(channel.label, channel.color) for channel in image.channels] == [("DAPI", "0000FF"), ("GFP", "FF0000")]
    assert image[0].chunks == (1, 1, 1, 16, 16)
    np.testing.assert_array_equal(image[0][...], data)


def test_axes_are_transposed_to_those_of_ome_zarr(tmp_path: Path) -> None:
    data = data_of(2, 3, 4, 20, 30)
    tifffile.imwrite(tmp_path / "a.ome.tif", data, metadata={"axes": "CZTYX"})
    image = converted(tmp_path / "a.ome.tif")
    assert image.axes == tuple("tczyx")
    np.testing.assert_array_equal(image[0][...], data.transpose(2, 0, 1, 3, 4))


def test_samples_of_colours_are_channels(tmp_path: Path) -> None:
    data = data_of(60, 70, 3, dtype="u1")
    tifffile.imwrite(tmp_path / "a.tif", data, photometric="rgb", tile=(32, 32), compression="zlib")
    image = converted(tmp_path / "a.tif")
    assert (image.axes, image[0].chunks) == (("c", "y", "x"), (3, 32, 32))
    assert [(channel.label, channel.color) for channel in image.channels] == [
        ("red", "FF0000"),
        ("green", "00FF00"),
        ("blue", "0000FF"),
    ]
    np.testing.assert_array_equal(image[0][...], data.transpose(2, 0, 1))


def test_channels_and_samples_together_are_channels(tmp_path: Path) -> None:
    data = data_of(2, 20, 30, 3, dtype="u1")
    metadata = {"axes": "CYXS", "Channel": {"Name": ["before", "after"]}}
    tifffile.imwrite(tmp_path / "a.ome.tif", data, photometric="rgb", metadata=metadata)
    image = converted(tmp_path / "a.ome.tif", budget_nbytes=1000, chunks=(4, 8, 8))
    np.testing.assert_array_equal(image[0][...], data.transpose(0, 3, 1, 2).reshape(6, 20, 30))
    assert image.channels[4].label == "after green"


@pytest.mark.parametrize(
    ("photometric", "extra", "expected"),
    [
        ("rgb", ["unassalpha"], [("red", True), ("green", True), ("blue", True), ("alpha", False)]),
        ("rgb", ["unspecified"], [("red", True), ("green", True), ("blue", True), ("sample 3", True)]),
        ("separated", None, []),
    ],
)
def test_samples_that_are_no_colours(tmp_path: Path, photometric: str, extra: Any, expected: Any) -> None:
    tifffile.imwrite(tmp_path / "a.tif", data_of(20, 30, 4, dtype="u1"), photometric=photometric, extrasamples=extra)
    image = converted(tmp_path / "a.tif")
    assert [(channel.label, channel.active) for channel in image.channels] == expected


def test_colours_of_each_channel_are_named(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", data_of(2, 20, 30, 3, dtype="u1"), imagej=True, metadata={"axes": "CYXS"})
    labels = [channel.label for channel in converted(tmp_path / "a.tif").channels]
    assert labels == [f"Channel {n} {name}" for n in (0, 1) for name in ("red", "green", "blue")]


def test_imagej_tags(tmp_path: Path) -> None:
    data = data_of(2, 5, 2, 20, 30)
    tables = [np.outer(color, np.arange(256)).astype("u1") for color in ([1, 0, 0], [0, 1, 1])]
    metadata = {"axes": "TZCYX", "spacing": 1.5, "unit": "um", "finterval": 0.1}
    metadata |= {"Ranges": (0.0, 100.0, 5.0, 50.0), "LUTs": tables}
    tifffile.imwrite(tmp_path / "a.tif", data, imagej=True, resolution=(4, 2), metadata=metadata)
    image = converted(tmp_path / "a.tif")
    assert image.scale(0) == {"t": 0.1, "c": 1.0, "z": 1.5, "y": 0.5, "x": 0.25}
    assert set(image.units.values()) == {"second", "micrometer", None}
    assert [channel.color for channel in image.channels] == ["FF0000", "00FFFF"]
    assert (image.channels[1].window.start, image.channels[1].window.end) == (5, 50)
    np.testing.assert_array_equal(image[0][...], data.transpose(0, 2, 1, 3, 4))


def write_slide(path: Path, data: np.ndarray) -> list[np.ndarray]:
    """A pyramid as Aperio's scanners write it: level 0, a thumbnail, the other levels, the label and the macro."""
    levels = [data, data[::4, ::4], data[::16, ::16]]
    tiles: Any = {"tile": (32, 32), "photometric": "rgb", "compression": "zlib", "metadata": None}
    strips: Any = {"photometric": "rgb", "metadata": None}
    description = "Aperio Image Library v1.0\r\n640x480 |AppMag = 20|MPP = 0.4990"
    with tifffile.TiffWriter(path) as file:
        file.write(levels[0], description=description, **tiles)
        file.write(data[:50, :60], description=description, **strips)
        for level in levels[1:]:
            file.write(level, description=description, **tiles)
        file.write(data[:20, :30], description="Aperio label 30x20", subfiletype=1, **strips)
        file.write(data[:40, :30], description="Aperio macro 30x40", subfiletype=9, **strips)
    return levels


def test_levels_of_slides_stay_as_they_are(tmp_path: Path) -> None:
    levels = write_slide(tmp_path / "a.tif", data_of(250, 330, 3, dtype="u1"))
    store = converted(tmp_path / "a.tif")
    image = open_image(store, "r", series=0)
    assert [level.shape for level in image] == [(3, 250, 330), (3, 63, 83), (3, 16, 21)]
    for level, expected in zip(image, levels, strict=True):
        np.testing.assert_array_equal(level[...], expected.transpose(2, 0, 1))
    assert image.scale(1) == pytest.approx({"c": 1, "y": 4 * 0.499, "x": 4 * 0.499})
    assert image.translation(1)["y"] == pytest.approx(1.5 * 0.499)
    names = [(open_image(store, "r", series=n).name, open_image(store, "r", series=n).shape) for n in (1, 2, 3)]
    assert names == [("Thumbnail", (3, 50, 60)), ("Label", (3, 20, 30)), ("Macro", (3, 40, 30))]
    only = converted(tmp_path / "a.tif", series=0)
    assert len(only) == 3


def test_an_image_of_one_level_gets_a_pyramid(tmp_path: Path) -> None:
    data = data_of(600, 300)
    tifffile.imwrite(tmp_path / "a.tif", data, resolution=(5000, 5000), resolutionunit="CENTIMETER")
    image = converted(tmp_path / "a.tif", shards=(256, 256), chunks=(64, 64))
    assert [level.shape for level in image] == [(600, 300), (300, 150), (150, 75)]
    assert image[1].shards == (256, 256)
    assert (image.scale(1), image.units["x"]) == ({"y": 4.0, "x": 4.0}, "micrometer")
    again = convert.from_tiff(tmp_path / "a.tif", MemoryStore(), ome=True, dry_run=True)
    assert [one.path for one in again.arrays] == ["0"]


def geo_keys(*keys: tuple[int, int]) -> tuple[Any, ...]:
    values = (1, 1, 0, len(keys), *(n for key, value in keys for n in (key, 0, 1, value)))
    return (34735, "H", len(values), values, True)


def test_the_place_of_a_geotiff_becomes_attributes(tmp_path: Path) -> None:
    data = data_of(200, 100)
    scale = (33550, "d", 3, (10.0, 20.0, 0.0), True)
    tie = (33922, "d", 6, (0.0, 0.0, 0.0, 500000.0, 4600000.0, 0.0), True)
    for ome in (False, True):
        tifffile.imwrite(
            tmp_path / "a.tif",
            data,
            extratags=[scale, tie, geo_keys((1024, 1), (1025, 1), (3072, 32633))],
            metadata=None,
        )
        dest = MemoryStore()
        convert.from_tiff(tmp_path / "a.tif", dest, ome=ome)
        array = open_image(dest, "r")[0] if ome else gzarr.open_array(dest)
        attributes = array.attrs.asdict()
        assert attributes["proj:code"] == "EPSG:32633"
        assert attributes["spatial:transform"] == [10.0, 0.0, 500000.0, 0.0, -20.0, 4600000.0]
        assert attributes["spatial:dimensions"] == list(array.dimension_names)
        assert attributes["spatial:registration"] == "pixel"
        assert [convention["name"] for convention in attributes["zarr_conventions"]] == ["spatial", "proj"]


def test_levels_of_a_geotiff_have_transforms_of_their_own(tmp_path: Path) -> None:
    data = data_of(128, 128)
    matrix = (34264, "d", 16, (2.0, 0.0, 0.0, 10.0, 0.0, -2.0, 0.0, 90.0, *(0.0,) * 7, 1.0), True)
    for raster, corner in ((1, (10.0, 90.0)), (2, (11.0, 89.0))):
        with tifffile.TiffWriter(tmp_path / "a.tif") as file:
            extra = [matrix, geo_keys((1025, raster), (2048, 4326))]
            file.write(data, subifds=1, tile=(32, 32), extratags=extra, metadata=None)
            file.write(data[::2, ::2], subfiletype=1, tile=(32, 32), metadata=None)
        dest = MemoryStore()
        convert.from_tiff(tmp_path / "a.tif", dest)
        attributes = gzarr.open_array(dest, path="1").attrs.asdict()
        assert attributes["spatial:transform"] == [4.0, 0.0, corner[0], 0.0, -4.0, corner[1]]
        assert attributes["proj:code"] == "EPSG:4326"


def test_axes_without_a_place_are_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", data_of(2, 3, 2, 10, 10), metadata={"axes": "TZHYX"}, photometric="minisblack")
    with pytest.raises(CopyError, match=r"a\.tif, series 0: OME-Zarr has no place for axis 'H'"):
        convert.from_tiff(tmp_path / "a.tif", MemoryStore(), ome=True)
    tifffile.imwrite(tmp_path / "b.tif", data_of(3, 10, 10), metadata={"axes": "QYX"}, photometric="minisblack")
    assert converted(tmp_path / "b.tif").axes == ("z", "y", "x")


def test_factors_are_whole_where_rounding_gives_the_shape() -> None:
    assert factors((1001, 1000, 7), (250, 251, 7)) == (4.0, 1000 / 251, 1.0)


def described(text: str, name: str = "a", axes: str = "CYX") -> Description:
    """What some OME-XML says of the first series of a file."""
    file = SimpleNamespace(is_ome=True, is_imagej=False, ome_metadata=text)
    return describe(file, 0, SimpleNamespace(name=name, axes=axes, shape=(3,) * len(axes)))


def test_images_and_samples_that_a_file_lacks_are_passed_over() -> None:
    pixels = "<Pixels><Channel Name='c' Color='99999999999' SamplesPerPixel='9000000000'/></Pixels>"
    text = f"<OME><Image Name='other'/><Image Name='x'><Pixels/></Image><Image Name='a'>{pixels}</Image></OME>"
    assert described(text) == Description("a", channels=({"label": "c"},))
    assert described(text, "x") == Description("x")
    assert described(text, "none") == Description()
    assert described(text, axes="YXS") == Description("a", channels=({"label": "c"},) * 3)


@pytest.mark.parametrize(
    "text",
    ["<OME", "<OME/>", '<!DOCTYPE a [<!ENTITY b "c">]><OME/>', "<OME><Image Name='a'/></OME>",
     "<OME><Image Name='a'><Pixels PhysicalSizeX='wide' PhysicalSizeY='0' PhysicalSizeZ='nan'/></Image></OME>"],
)  # fmt: skip
def test_texts_that_say_nothing(text: str) -> None:
    assert described(text) in (Description(), Description("a"))
