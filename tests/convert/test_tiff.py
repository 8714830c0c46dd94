"""TIFF files of every layout into Zarr; pyramids and series become groups; damage is named."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest
import tifffile

import gzarr
import gzarr.images
from gzarr import convert
from gzarr.cli.main import main
from gzarr.convert import tiff
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore

TIFFS = [
    ((100, 90), {}),
    ((100, 90), {"tile": (32, 48), "compression": "zlib"}),
    ((100, 90), {"rowsperstrip": 7, "compression": "lzw", "predictor": True}),
    ((100, 90, 3), {"photometric": "rgb", "tile": (16, 32)}),
    ((3, 100, 90), {"photometric": "rgb", "planarconfig": "separate", "rowsperstrip": 16, "compression": "deflate"}),
    ((4, 60, 50), {"photometric": "minisblack", "metadata": {"axes": "TYX"}}),
    ((4, 60, 50, 3), {"tile": (32, 16), "photometric": "rgb", "metadata": {"axes": "ZYXS"}, "compression": "lzma"}),
    ((2, 3, 40, 50), {"photometric": "minisblack", "metadata": {"axes": "TCYX"}, "compression": "zstd"}),
    ((6, 33, 40), {"tile": (4, 16, 16), "volumetric": True, "compression": "zlib"}),
    ((1, 5), {"compression": "zlib"}),
]


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">f4"])
@pytest.mark.parametrize(("shape", "options"), TIFFS, ids=range(len(TIFFS)))
def test_tiffs_of_every_layout(tmp_path, shape, options, dtype):
    if dtype == ">f4" and options.get("predictor"):
        options = {**options, "predictor": False}
    data = np.random.default_rng(0).integers(0, 255, shape).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", data, byteorder=">" if dtype[0] == ">" else "<", **options)
    dest = MemoryStore()
    convert.from_tiff(tmp_path / "a.tif", dest, budget_nbytes=20_000)
    z = gzarr.open(dest, mode="r")
    expected = tifffile.imread(tmp_path / "a.tif")
    assert z.shape == expected.shape
    assert np.array_equal(z[...], expected)
    convert.from_tiff(tmp_path / "a.tif", dest, chunks=9, budget_nbytes=5_000, if_exists="replace")
    assert np.array_equal(gzarr.open(dest, mode="r")[...], expected)


def test_axes_resolution_and_description_are_kept(tmp_path):
    data = np.zeros((3, 20, 30), "u2")
    tifffile.imwrite(
        tmp_path / "a.ome.tif", data, metadata={"axes": "CYX"}, resolution=(100, 50), resolutionunit="CENTIMETER"
    )
    dest = MemoryStore()
    convert.from_tiff(tmp_path / "a.ome.tif", dest, zarr_format=2)
    attributes = dict(gzarr.open(dest, mode="r").attrs)
    assert (attributes["_ARRAY_DIMENSIONS"], attributes["axes"]) == (["c", "y", "x"], "CYX")
    assert (attributes["XResolution"], attributes["YResolution"], attributes["ResolutionUnit"]) == (100.0, 50.0, 3)
    assert "<OME" in attributes["ImageDescription"]


def test_pyramids_become_groups_of_levels(tmp_path):
    data = np.random.default_rng(0).integers(0, 255, (128, 160, 3)).astype("u1")
    with tifffile.TiffWriter(tmp_path / "a.ome.tif") as file:
        file.write(data, subifds=2, tile=(32, 32), photometric="rgb", compression="jpeg", metadata={"axes": "YXS"})
        for step in (2, 4):
            file.write(data[::step, ::step], subfiletype=1, tile=(32, 32), photometric="rgb", compression="zlib")
    dest = MemoryStore()
    convert.from_tiff(tmp_path / "a.ome.tif", dest)
    root = gzarr.open(dest, mode="r")
    assert sorted(root) == ["0", "1", "2"]
    assert [root[n].shape for n in "012"] == [(128, 160, 3), (64, 80, 3), (32, 40, 3)]
    with tifffile.TiffFile(tmp_path / "a.ome.tif") as file:
        for number, level in enumerate(file.series[0].levels):
            assert np.array_equal(root[str(number)][...], level.asarray())
    assert (root["0"].chunks, root.attrs["axes"]) == ((32, 32, 3), "YXS")


def test_several_series_are_converted_or_one_is_chosen(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(np.full((10, 20), 1, "u1"), metadata=None)
        file.write(np.full((30, 20), 2, "u2"), metadata=None, compression="zlib")
    dest = MemoryStore()
    convert.from_tiff(tmp_path / "a.tif", dest)
    root = gzarr.open(dest, mode="r")
    assert {name: (z.shape, int(z[0, 0])) for name, z in root.items()} == {
        "series_0": ((10, 20), 1),
        "series_1": ((30, 20), 2),
    }
    convert.from_tiff(tmp_path / "a.tif", dest, series=1, if_exists="replace")
    assert gzarr.open(dest, mode="r").shape == (30, 20)
    with pytest.raises(CopyError, match="no number 2"):
        convert.from_tiff(tmp_path / "a.tif", dest, series=2, path="x")


def test_a_truncated_tiff_is_reported_with_page_and_segment(tmp_path):
    data = np.random.default_rng(0).integers(0, 255, (200, 200)).astype("u1")
    tifffile.imwrite(tmp_path / "a.tif", data, tile=(64, 64), compression="zlib")
    content = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        offset = file.pages[0].dataoffsets[5]
    content[offset : offset + 20] = b"\xff" * 20
    (tmp_path / "a.tif").write_bytes(content)
    with pytest.raises(CopyError, match=r"a\.tif:image.*chunk \(1, 1\)"):
        convert.from_tiff(tmp_path / "a.tif", MemoryStore())


@pytest.mark.parametrize("ome", [False, True])
def test_a_tiff_whose_last_segments_are_missing_leaves_nothing(tmp_path, ome):
    """Directories before the data, as in files for the web, are whole in a file that is cut off."""
    data = np.random.default_rng(0).integers(0, 255, (4, 64, 64)).astype("u1")
    tifffile.imwrite(tmp_path / "whole.tif", data, tile=(32, 32), compression="zlib", photometric="minisblack")
    content = (tmp_path / "whole.tif").read_bytes()
    with tifffile.TiffFile(tmp_path / "whole.tif") as file:
        page = file.pages[1]
        tag = page.tags["TileOffsets"]
        where = tag.valueoffset + 3 * 4
    cut = bytearray(content)
    cut[where : where + 4] = (len(content) - 5).to_bytes(4, "little")
    (tmp_path / "a.tif").write_bytes(cut)
    with pytest.raises(CopyError, match=r"page 1, segment 3 is cut off; get the whole file"):
        convert.from_tiff(tmp_path / "a.tif", tmp_path / "a.zarr", ome=ome)
    assert not (tmp_path / "a.zarr").exists()


def in_two_files(folder, nplanes, compression):
    """An OME-TIFF of two channels, each in a file of its own, the second at a higher page than the first."""
    planes = np.random.default_rng(0).integers(0, 60000, (2, nplanes, 32, 48), dtype="u2")
    uuids = [f"urn:uuid:00000000-0000-0000-0000-00000000000{c}" for c in range(2)]
    places = "".join(
        f'<TiffData FirstC="{c}" IFD="{c % nplanes}" PlaneCount="1">'
        f'<UUID FileName="{c}.ome.tif">{uuids[c]}</UUID></TiffData>'
        for c in range(2)
    )
    for c in range(2):
        xml = (
            f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="{uuids[c]}"><Image ID="Image:0">'
            '<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="48" SizeY="32" SizeZ="1" SizeC="2"'
            f' SizeT="1">{places}</Pixels></Image></OME>'
        )
        tifffile.imwrite(folder / f"{c}.ome.tif", planes[c], description=xml, metadata=None, compression=compression)
    return np.stack([planes[c, c % nplanes] for c in range(2)])


@pytest.mark.parametrize("nplanes", [1, 2])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_an_image_in_several_files(tmp_path, nplanes, compression):
    expected = in_two_files(tmp_path, nplanes, compression)
    convert.from_tiff(tmp_path / "0.ome.tif", dest := MemoryStore())
    assert np.array_equal(gzarr.open(dest, mode="r")[:], expected)


@pytest.mark.parametrize("options", [{}, {"tile": (16, 16)}, {"compression": "zlib"}, {"metadata": None}])
@pytest.mark.parametrize("part", [0.3, 0.75, 0.97])
def test_a_tiff_that_is_cut_off_is_not_taken_for_a_shorter_one(tmp_path, options, part):
    tifffile.imwrite(
        tmp_path / "a.tif", np.random.default_rng(0).integers(0, 60000, (6, 64, 80), dtype="u2"), **options
    )
    whole = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "a.tif").write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(CopyError, match=r"cut off|cannot open|cannot be decoded|damaged"):
        convert.from_tiff(tmp_path / "a.tif", MemoryStore())


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u1", "i2", ">u4", "f4", "f8", "c8", "?"])
@pytest.mark.parametrize("compression", ["zlib", None])
def test_elements_are_kept(tmp_path, dtype, compression):
    data = np.random.default_rng(0).integers(0, 200, (3, 50, 70)).astype(dtype)
    convert.to_tiff(gzarr.array(data, chunks=(2, 32, 16)), tmp_path / "a.tif", compression=compression)
    assert np.array_equal(tifffile.imread(tmp_path / "a.tif"), data)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert (file.pages[0].tilelength, file.pages[0].tilewidth) == (32, 16)


@pytest.mark.parametrize(
    ("shape", "names", "axes"),
    [
        ((40, 50), ("y", "x"), "YX"),
        ((2, 3, 4, 40, 50), ("t", "c", "z", "y", "x"), "TCZYX"),
        ((4, 40, 50), ("time", "lat", "lon"), "TYX"),
        ((40, 50, 3), ("y", "x", "c"), "YXS"),
        ((2, 40, 50, 4), None, "QYXS"),
        ((5, 40, 50), ("batch", "y", "x"), "QYX"),
        ((1, 1), ("y", "x"), "YX"),
    ],
)
def test_axes_are_named_and_come_back(tmp_path, shape, names, axes):
    data = np.random.default_rng(0).integers(0, 200, shape).astype("u1")
    z = gzarr.array(data, chunks=True, dimension_names=names)
    convert.to_tiff(z, tmp_path / "a.tif", tile=(16, 32))
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert file.series[0].axes == axes
        assert file.pages[0].photometric.name == ("RGB" if axes[-1] == "S" else "MINISBLACK")
    convert.from_tiff(tmp_path / "a.tif", dest := MemoryStore())
    assert np.array_equal(gzarr.open(dest)[...], data)


@pytest.mark.parametrize("unit", ["nanometer", "degree", None])
def test_images_become_pyramids_of_ome_tiff_and_come_back(tmp_path, unit):
    data = np.random.default_rng(0).integers(0, 60000, (2, 3, 200, 150)).astype("u2")
    scale, factors = {"z": 2000, "y": 500, "x": 250}, [{"y": 2, "x": 2}, {"y": 2, "x": 2}, {"z": 3}]
    channels = [{"label": "DAPI", "color": "0000FF"}, {"label": "actin", "color": "00FF00"}]
    image = gzarr.images.create_image(
        tmp_path / "a.zarr", data, axes="czyx", chunks=(1, 1, 64, 64), scale=scale, units=unit, channels=channels
    )
    gzarr.images.build_pyramid(image, factors=factors, overwrite=True)
    image.write_label("cells", np.zeros((3, 200, 150), "u1"))
    with pytest.warns(UserWarning, match="has no place for level 3, label 'cells'"):
        assert main(["convert", str(tmp_path / "a.zarr"), str(tmp_path / "a.ome.tif")]) == 0
    with tifffile.TiffFile(tmp_path / "a.ome.tif") as file:
        (series,), pixels = file.series, ET.fromstring(file.ome_metadata).find(".//{*}Pixels")
        assert (series.kind, series.axes, file.pages[0].tile) == ("ome", "CZYX", (64, 64))
        assert len(file.pages[0].subifds) == 2  # not the level that is smaller along z
        for level, expected in zip(series.levels, gzarr.images.open_image(tmp_path / "a.zarr").levels[:3], strict=True):
            np.testing.assert_array_equal(level.asarray(), expected[...])
        factor, symbol = (1e-3, "µm") if unit == "nanometer" else (1, "pixel")
        for name, size in scale.items():
            assert float(pixels.get(f"PhysicalSize{name.upper()}")) == pytest.approx(size * factor)
            assert pixels.get(f"PhysicalSize{name.upper()}Unit") == symbol
        found = [(c.get("Name"), int(c.get("Color")) & 0xFFFFFFFF) for c in pixels.findall("{*}Channel")]
        assert found == [("DAPI", 0x0000FFFF), ("actin", 0x00FF00FF)]
    convert.from_tiff(tmp_path / "a.ome.tif", tmp_path / "b.zarr", ome=True)
    again = gzarr.images.open_image(tmp_path / "b.zarr")
    assert [level.shape for level in again] == [(2, 3, 200, 150), (2, 3, 100, 75), (2, 3, 50, 38)]
    assert [channel.label for channel in again.channels] == ["DAPI", "actin"]
    np.testing.assert_array_equal(again[0][...], data)
    if unit == "nanometer":
        assert again.scale(1) == pytest.approx({"c": 1, "z": 2, "y": 1, "x": 0.5})


def test_pages_larger_than_the_budget_are_read_in_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tiff, "BUDGET_NBYTES", 2000)
    data = np.arange(3 * 50 * 60, dtype="u1").reshape(3, 50, 60)
    convert.to_tiff(gzarr.array(data, chunks=(2, 20, 60)), tmp_path / "a.tif", tile=(16, 16))
    assert np.array_equal(tifffile.imread(tmp_path / "a.tif"), data)


def test_what_tiff_cannot_hold_is_refused(tmp_path):
    root = gzarr.group()
    root["a"] = np.zeros((4, 5))
    places = gzarr.images.create_image(shape=(4, 4), dtype="i8")
    for source, match in (
        (root, "is a group"),
        (places, "numbers of up to 32 bits"),
        (places[0].store, "OME-TIFF has t, c, z, y, x"),
        (gzarr.zeros(5), "at least two axes"),
        (gzarr.zeros((0, 5)), "none of them empty"),
        (gzarr.zeros((4, 5), dtype="M8[s]"), "holds numbers"),
    ):
        with pytest.raises(CopyError, match=match):
            convert.to_tiff(source, tmp_path / "a.tif")
    with pytest.raises(CopyError, match="no file was made"):
        convert.to_tiff(root["a"], tmp_path / "a.tif", tile=(15, 15))
    (tmp_path / "a.tif").write_bytes(b"precious")
    with pytest.raises(CopyError, match="exists"):
        convert.to_tiff(root["a"], tmp_path / "a.tif")
