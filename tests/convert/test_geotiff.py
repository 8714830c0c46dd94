"""GeoTIFF files keep their nodata value, the size of their pixels and the names of their bands."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

import gzarr
from gzarr import convert
from gzarr.cli.main import main
from gzarr.images import open_image
from gzarr.metadata.conventions import nodata_of
from gzarr.storage import MemoryStore

METRE, FOOT, SURVEY_FOOT = 9001, 9002, 9003
PROJECTED, GEOGRAPHIC = 1, 2
HEIGHTS = np.arange(1.0, 301 * 290 + 1, dtype="f4").reshape(301, 290)
BANDS = (
    "<GDALMetadata>"
    '<Item name="DESCRIPTION" sample="0" role="description">near infrared</Item>'
    '<Item name="DESCRIPTION" sample="1" role="description">elevation</Item>'
    '<Item name="STATISTICS_MEAN" sample="1">5</Item>'
    "</GDALMetadata>"
)


def geotiff(path: Path, data: np.ndarray, nodata: str | None = None, **keys: Any) -> Path:
    """Write a file. keys: model and unit, size of a pixel (x, y), names of bands."""
    model, unit, size = keys.get("model", PROJECTED), keys.get("unit", METRE), keys.get("size", (30.0, 24.0))
    unit_key = {PROJECTED: 3076, GEOGRAPHIC: 2054}[model]
    directory = (1, 1, 0, 3, 1024, 0, 1, model, 1025, 0, 1, 1, unit_key, 0, 1, unit)
    tags: list[Any] = [
        (33550, "d", 3, (*size, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 500000.0, 4600000.0, 0.0), True),
        (34735, "H", len(directory), directory, True),
    ]
    tags += [(42113, "s", 0, nodata, True)] if nodata is not None else []
    tags += [(42112, "s", 0, keys["bands"], True)] if "bands" in keys else []
    options = {"photometric": "minisblack", "planarconfig": "separate"} if data.ndim == 3 else {}
    tifffile.imwrite(path, data, extratags=tags, tile=(64, 64), metadata=None, **{**options, **keys.get("write", {})})
    return path


def with_hole(nodata: float) -> np.ndarray:
    data = HEIGHTS.copy()
    data[:101, :101] = nodata
    return data


@pytest.mark.parametrize("nodata", ["-9999", "nan", "-3.40282346638529e+38"])
def test_levels_leave_nodata_out(tmp_path: Path, nodata: str, zarr_format: int) -> None:
    value = np.float32(nodata)
    data = with_hole(value)
    dest = str(tmp_path / "a.zarr")
    source = geotiff(tmp_path / "a.tif", data, nodata)
    assert main(["convert", str(source), dest, "--ome", "--zarr-format", str(zarr_format)]) == 0
    image = open_image(dest, "r")
    hole = np.isnan(data) if nodata == "nan" else data == value
    padded = np.pad(np.where(hole, np.nan, data.astype("f8")), ((0, 1), (0, 0)), constant_values=np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a window of nothing
        wanted = np.nanmean(padded.reshape(151, 2, 145, 2), axis=(1, 3))
    level = image[1][...]
    gone = np.isnan(wanted)
    np.testing.assert_array_equal(level[gone], value)
    np.testing.assert_allclose(level[~gone], wanted[~gone], rtol=1e-6)
    for array in image:
        np.testing.assert_array_equal(array.fill_value, value)
        np.testing.assert_array_equal(nodata_of(array.metadata), value)
    assert image[0].stats().n_missing == (0 if nodata == "nan" else hole.sum())
    assert image[0].stats().min == data[~hole].min()


def test_xarray_reads_what_is_missing(tmp_path: Path, zarr_format: int) -> None:
    xarray = pytest.importorskip("xarray")
    source = geotiff(tmp_path / "a.tif", with_hole(-9999), "-9999", bands=BANDS)
    convert.from_tiff(source, str(tmp_path / "a.zarr"), zarr_format=zarr_format)
    array = gzarr.open_array(str(tmp_path / "a.zarr"))
    assert array.fill_value == -9999
    assert (array.attrs["GDAL_NODATA"], array.attrs["band_names"]) == ("-9999", ["near infrared", "elevation"])
    group = gzarr.open_group(str(tmp_path / "g.zarr"), "w", zarr_format=zarr_format)
    gzarr.copy(array, group, name="heights")
    read = xarray.open_dataset(str(tmp_path / "g.zarr"), engine="gzarr", consolidated=False)["heights"]
    np.testing.assert_array_equal(np.isnan(read.values), array[...] == -9999)


@pytest.mark.parametrize(("dtype", "nodata"), [("u1", "-9999"), ("i2", "nan"), ("i2", "0.5"), ("f4", "1e300")])
def test_nodata_that_no_element_can_be_is_an_attribute_alone(tmp_path: Path, dtype: str, nodata: str) -> None:
    data = (HEIGHTS % 200).astype(dtype)
    source = geotiff(tmp_path / "a.tif", data, nodata)
    for ome in (False, True):
        dest = MemoryStore()
        with pytest.warns(UserWarning, match=f"nodata is '{nodata}', which no element of type .* is"):
            convert.from_tiff(source, dest, ome=ome)
        array = open_image(dest, "r")[0] if ome else gzarr.open_array(dest)
        assert (array.fill_value, nodata_of(array.metadata)) == (0, None)
        assert gzarr.open(dest).attrs["GDAL_NODATA"] == nodata


@pytest.mark.parametrize(("dtype", "nodata"), [("f4", "nan"), ("f4", "-9999.9"), ("i2", "-32768")])
def test_there_and_back(tmp_path: Path, dtype: str, nodata: str) -> None:
    data = with_hole(np.dtype(dtype).type(float(nodata))).astype(dtype)
    convert.from_tiff(geotiff(tmp_path / "a.tif", data, nodata), tmp_path / "a.zarr")
    with pytest.warns(UserWarning, match="to_geotiff"):
        convert.to_tiff(tmp_path / "a.zarr", tmp_path / "b.tif")
    convert.from_tiff(tmp_path / "b.tif", tmp_path / "b.zarr")
    one, two = (gzarr.open_array(tmp_path / name) for name in ("a.zarr", "b.zarr"))
    np.testing.assert_array_equal(two.fill_value, np.dtype(dtype).type(float(nodata)))
    assert (one.attrs["nodata"], one.attrs["_FillValue"]) == (two.attrs["nodata"], two.attrs["_FillValue"])


def test_nodata_of_integers_is_exact(tmp_path: Path) -> None:
    data = np.full((70, 70), 2**64 - 1, "u8")
    data[3, 3] = 7
    dest = MemoryStore()
    convert.from_tiff(geotiff(tmp_path / "a.tif", data, str(2**64 - 1)), dest)
    assert gzarr.open_array(dest).stats().max == 7


def test_tiles_that_a_sparse_file_leaves_out_hold_nodata(tmp_path: Path) -> None:
    source = geotiff(tmp_path / "a.tif", HEIGHTS, "-9999.0", write={"compression": "zlib"})
    with tifffile.TiffFile(source, mode="r+") as file:
        counts = file.pages.first.tags["TileByteCounts"]
        counts.overwrite((0, *counts.value[1:]))
    dest = MemoryStore()
    convert.from_tiff(source, dest)
    read = gzarr.open_array(dest)[...]
    assert (read[:64, :64] == -9999).all()
    np.testing.assert_array_equal(read[64:], HEIGHTS[64:])


@pytest.mark.parametrize(
    ("model", "unit", "name", "factor"),
    [
        (PROJECTED, METRE, "meter", 1.0),
        (PROJECTED, FOOT, "foot", 1.0),
        (PROJECTED, SURVEY_FOOT, "meter", 1200 / 3937),
        (GEOGRAPHIC, 9102, "degree", 1.0),
        (PROJECTED, 32767, None, 1.0),
    ],
)
def test_the_size_of_a_pixel_is_the_scale(tmp_path: Path, model: int, unit: int, name: Any, factor: float) -> None:
    dest = MemoryStore()
    source = geotiff(tmp_path / "a.tif", HEIGHTS, model=model, unit=unit, write={"resolution": (300, 300)})
    convert.from_tiff(source, dest, ome=True)
    image = open_image(dest, "r")
    assert image.scale(0) == {"y": 24.0 * factor, "x": 30.0 * factor}
    assert image.scale(1) == {"y": 48.0 * factor, "x": 60.0 * factor}
    assert image.units == {"y": name, "x": name}
    assert gzarr.images.validate(dest).ok


def test_the_size_of_a_pixel_of_a_turned_image(tmp_path: Path) -> None:
    tags = [
        (34264, "d", 16, (3.0, -4.0, 0.0, 0.0, 4.0, 3.0, 0.0, 0.0, *(0.0,) * 7, 1.0), True),
        (34735, "H", 8, (1, 1, 0, 1, 1025, 0, 1, 1), True),
    ]
    tifffile.imwrite(tmp_path / "a.tif", HEIGHTS, extratags=tags, metadata=None)
    dest = MemoryStore()
    convert.from_tiff(tmp_path / "a.tif", dest, ome=True)
    assert open_image(dest, "r").scale(0) == {"y": 5.0, "x": 5.0}


def test_bands_are_channels_with_their_names(tmp_path: Path) -> None:
    data = np.stack([with_hole(-1), HEIGHTS, HEIGHTS])
    dest = MemoryStore()
    convert.from_tiff(geotiff(tmp_path / "a.tif", data, "-1", bands=BANDS), dest, ome=True)
    image = open_image(dest, "r")
    assert (image.axes, [channel.label for channel in image.channels]) == (
        ("c", "y", "x"),
        ["near infrared", "elevation", "Channel 2"],
    )
    assert image.channels[0].window.start > 0  # not that of nodata
    rgb = geotiff(
        tmp_path / "b.tif",
        (data % 255).astype("u1"),
        bands=BANDS,
        write={"photometric": "rgb", "planarconfig": "separate"},
    )
    convert.from_tiff(rgb, dest, ome=True, path="b")
    channels = open_image(dest, "r", path="b").channels
    assert [(channel.label, channel.color) for channel in channels] == [
        ("near infrared", "FF0000"),
        ("elevation", "00FF00"),
        ("blue", "0000FF"),
    ]


@pytest.mark.parametrize("text", ["<!DOCTYPE a []><GDALMetadata/>", "<GDALMetadata>", "<GDALMetadata/>"])
def test_descriptions_of_nothing(tmp_path: Path, text: str) -> None:
    dest = MemoryStore()
    convert.from_tiff(geotiff(tmp_path / "a.tif", HEIGHTS, bands=text), dest, ome=True)
    assert open_image(dest, "r").channels == ()


def test_packed_elements_keep_their_meaning(tmp_path: Path) -> None:
    """Where all bands have the same; no attribute says it of each."""

    def bands(*scales: str) -> str:
        items = (
            f'<Item name="SCALE" sample="{n}" role="scale">{scale}</Item>'
            f'<Item name="UNITTYPE" sample="{n}" role="unittype">K</Item>'
            for n, scale in enumerate(scales)
        )
        return f"<GDALMetadata>{''.join(items)}</GDALMetadata>"

    data = np.arange(8, dtype="u1").reshape(2, 2, 2)
    convert.from_tiff(geotiff(tmp_path / "a.tif", data, bands=bands("0.5", "0.5")), tmp_path / "a.zarr")
    array = gzarr.open_array(tmp_path / "a.zarr")
    assert (array.attrs["scale_factor"], array.attrs["units"], array[-1, 1, 1]) == (0.5, "K", 7)
    source = geotiff(tmp_path / "b.tif", data, bands=bands("0.5", "2"))
    with pytest.warns(UserWarning, match="b.tif: scale_factor differs by band"):
        convert.from_tiff(source, tmp_path / "b.zarr")
    assert "scale_factor" not in gzarr.open_array(tmp_path / "b.zarr").attrs
    odd = bands("2").replace('sample="0"', 'sample="7"')
    assert gzarr.open_array(geotiff(tmp_path / "c.tif", data[0], bands=odd)).attrs["scale_factor"] == 2
