"""Files of other formats into Zarr: values, names, attributes, chunks; bounded memory; what is refused."""

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
from PIL import Image

import gzarr
from gzarr import convert
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore

ROOT = Path(__file__).parents[2]


def read(dest):
    return gzarr.open(dest, mode="r")


# -- any file ----------------------------------------------------------------------------------------------------


def test_formats_are_recognized_by_what_is_in_the_file(tmp_path):
    with h5py.File(tmp_path / "a.dat", "w") as file:
        file["x"] = [1]
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["x"] = [1]
    with h5py.File(tmp_path / "block.dat", "w", userblock_size=1024) as file:
        file["x"] = [1]
    np.save(tmp_path / "b.npy", np.arange(3))
    np.savez(tmp_path / "b.npz", x=np.arange(3))
    Image.new("L", (3, 2)).save(tmp_path / "c.png")
    tifffile.imwrite(tmp_path / "d.dat", np.zeros((4, 5), "u1"))
    tifffile.imwrite(tmp_path / "e.dat", np.zeros((4, 5), "u1"), bigtiff=True, byteorder=">")
    names = {p.name: convert.recognize(p) for p in tmp_path.iterdir()}
    assert names == {
        "a.dat": "hdf5",
        "a.nc": "netcdf",
        "block.dat": "hdf5",
        "b.npy": "npy",
        "b.npz": "npy",
        "c.png": "image",
        "d.dat": "tiff",
        "e.dat": "tiff",
    }
    for path in list(tmp_path.iterdir()):
        convert.from_file(path, tmp_path / "out" / f"{path.name}.zarr")
    (tmp_path / "text").write_bytes(b"hello")
    with pytest.raises(CopyError, match=r"not known \(it begins with b'hello'\)"):
        convert.from_file(tmp_path / "text", MemoryStore())
    with pytest.raises(CopyError, match="no format 'csv'"):
        convert.from_file(tmp_path / "text", MemoryStore(), format="csv")
    with pytest.raises(FileNotFoundError):
        convert.from_file(tmp_path / "nothing", MemoryStore())


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.tif", "a.npy", "a.npz", "a.png"])
@pytest.mark.parametrize(
    "content", [b"", b"\x89HDF\r\n\x1a\nxx", b"CDF\x01xx", b"II*\0\xff", b"\x93NUMPYx", b"\x89PNGx"]
)
def test_damaged_files_give_one_clear_error(tmp_path, name, content):
    path, dest = tmp_path / name, MemoryStore()
    path.write_bytes(content)
    format = {"h5": "hdf5", "nc": "netcdf", "tif": "tiff", "png": "image"}.get(path.suffix[1:], "npy")
    with pytest.raises(CopyError, match=name):
        convert.from_file(path, dest, format=format)
    assert dict(dest) == {}


def test_options_of_transfer_reach_the_array(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(200.0).reshape(20, 10))
    seen, dest = [], MemoryStore()
    report = convert.from_file(
        tmp_path / "a.npy",
        dest,
        path="deep/x",
        chunks=(5, 5),
        shards=(10, 10),
        compressors=None,
        progress=lambda *args: seen.append(args),
        budget_nbytes=1000,
    )
    z = read(dest)["deep/x"]
    assert (z.chunks, z.shards, z.compressors) == ((5, 5), (10, 10), ())
    assert np.array_equal(z[:], np.arange(200.0).reshape(20, 10))
    assert seen[-1][0] == report.nbytes == 1600
    with pytest.raises(CopyError, match="already stored"):
        convert.from_file(tmp_path / "a.npy", dest, path="deep/x")
    assert convert.from_file(tmp_path / "a.npy", dest, path="y", dry_run=True).dry_run
    assert "y" not in read(dest)


LARGE = {
    "npy": """
        data = np.lib.format.open_memmap(path, "w+", "f8", (4000, 3000))
        for row in range(0, 4000, 100): data[row : row + 100] = row
    """,
    "hdf5": """
        import h5py
        with h5py.File(path, "w") as file:
            data = file.create_dataset("data", (4000, 3000), "f8", chunks=(100, 300))
            for row in range(0, 4000, 100): data[row : row + 100] = row
    """,
    "netcdf": """
        import netCDF4
        with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
            file.createDimension("y", 4000), file.createDimension("x", 3000)
            data = file.createVariable("data", "f8", ("y", "x"))
            for row in range(0, 4000, 100): data[row : row + 100] = row
    """,
    "tiff": """
        import tifffile
        data = np.repeat(np.arange(0.0, 4000, 100), 100)[:, None] * np.ones(3000)
        tifffile.imwrite(path, data, rowsperstrip=100, compression="zlib")
    """,
}


@pytest.mark.parametrize("format", LARGE)
def test_a_file_larger_than_the_budget_is_streamed(tmp_path, format):
    """96 MB through 4 MiB: the peak of the process, beyond what a small conversion of the same kind takes."""
    script = f"""
        import resource, sys
        import numpy as np
        path = sys.argv[1]
        {textwrap.indent(textwrap.dedent(LARGE[format]), " " * 8).strip()}
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "a.dat")], check=True, timeout=60)
    convert_script = """
        import sys, threading, gzarr
        from gzarr import convert
        def anonymous():
            lines = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
            return int(lines["RssAnon"].split()[0]) / 1024
        path, dest, format = sys.argv[1:]
        gzarr.array([1.0]), convert.from_file(path, gzarr.storage.MemoryStore(), format=format, dry_run=True)
        before, peak, stop = anonymous(), [0.0], threading.Event()
        def watch():
            while not stop.wait(0.002): peak[0] = max(peak[0], anonymous())
        watcher = threading.Thread(target=watch); watcher.start()
        convert.from_file(path, dest, format=format, chunks=(250, 250), budget_nbytes=4 << 20)
        stop.set(); watcher.join()
        print(peak[0] - before)
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("the memory of a process is read from /proc")
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(convert_script),
        str(tmp_path / "a.dat"),
        str(tmp_path / "z"),
        format,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GZARR_THREADING__MAX_WORKERS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 40, "MiB"
    found = read(tmp_path / "z")
    z = found["data"] if format in ("hdf5", "netcdf") else found
    assert z.chunks == (250, 250)
    assert z.nbytes > 20 * (4 << 20)
    assert np.array_equal(z[::100, 1234], np.arange(0.0, 4000, 100))


# -- NumPy files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", ">i4", "f2", "c16", "S4", "U3", "M8[D]", [("a", "i4"), ("b", "f8")]])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, dtype, order):
    data = np.zeros((7, 5), dtype, order)
    data[2:5] = np.ones((), "i8").astype(dtype) if not isinstance(dtype, list) else (1, 2.5)
    np.save(tmp_path / "a.npy", data)
    dest = MemoryStore()
    convert.from_npy(tmp_path / "a.npy", dest, chunks=(3, 2))
    assert np.array_equal(read(dest)[:].astype(data.dtype), data)


def test_npz(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(1000), y=np.float32(3), z=np.zeros((2, 0)))
    dest = MemoryStore()
    convert.from_npy(tmp_path / "a.npz", dest)
    root = read(dest)
    assert sorted(root) == ["x", "y", "z"]
    assert np.array_equal(root["x"][:], np.arange(1000))
    assert root["y"][()] == 3
    assert root["z"].shape == (2, 0)


def test_pickles_and_hostile_archives_are_refused(tmp_path):
    dest = MemoryStore()
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(CopyError, match="Python objects in dtype"):
        convert.from_npy(tmp_path / "a.npy", dest)
    for name in ("../x.npy", "/x.npy", "zarr.json.npy", "..npy"):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.write(tmp_path / "a.npy", name)
        with pytest.raises(CopyError, match=r"a\.npz"):
            convert.from_npy(tmp_path / "a.npz", dest)
    assert dict(dest) == {}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "a.npz"]


# -- images ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA", "I;16", "I", "F", "CMYK"])
def test_images_keep_their_pixels(tmp_path, mode):
    rng = np.random.default_rng(0)
    suffix = {"F": "tif", "CMYK": "tif", "I": "tif"}.get(mode, "png")
    dtype = {"I;16": "u2", "I": "i4", "F": "f4"}.get(mode, "u1")
    bands = {"LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}.get(mode)
    pixels = rng.integers(0, 200, (6, 9, bands) if bands else (6, 9)).astype(dtype)
    image = Image.fromarray(pixels > 100) if mode == "1" else Image.fromarray(pixels)
    if mode == "CMYK":
        image = Image.frombytes("CMYK", (9, 6), pixels.tobytes())
    assert image.mode == mode
    image.save(tmp_path / f"a.{suffix}")
    dest = MemoryStore()
    convert.from_image(tmp_path / f"a.{suffix}", dest)
    z = read(dest)
    assert np.array_equal(z[:], pixels > 100 if mode == "1" else pixels)
    assert z.attrs["mode"] == mode
    assert z.dimension_names == ("y", "x", "c")[: z.ndim]


def test_a_palette_becomes_colours(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "a.png")
    dest = MemoryStore()
    convert.from_image(tmp_path / "a.png", dest)
    assert read(dest)[:].tolist() == [[[10, 20, 30], [40, 50, 60]]]


def test_several_images_and_frames_become_one_array(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        Image.new("RGB", (5, 3), (i, 0, 0)).save(path)
    dest = MemoryStore()
    convert.from_image(paths, dest)
    z = read(dest)
    assert (z.shape, z.chunks, z.dimension_names) == ((4, 3, 5, 3), (1, 3, 5, 3), ("t", "y", "x", "c"))
    assert z[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    frames = [Image.new("L", (4, 4), i * 10) for i in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    convert.from_image(tmp_path / "a.gif", dest, if_exists="replace")
    assert read(dest).shape[0] == 3
    Image.new("RGB", (6, 3)).save(paths[2])
    with pytest.raises(CopyError, match=r"2\.png, frame 0, is \(3, 6, 3\)"):
        convert.from_image(paths, MemoryStore())


# -- TIFF --------------------------------------------------------------------------------------------------------

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
    z = read(dest)
    expected = tifffile.imread(tmp_path / "a.tif")
    assert z.shape == expected.shape
    assert np.array_equal(z[...], expected)
    convert.from_tiff(tmp_path / "a.tif", dest, chunks=9, budget_nbytes=5_000, if_exists="replace")
    assert np.array_equal(read(dest)[...], expected)


def test_axes_resolution_and_description_are_kept(tmp_path):
    data = np.zeros((3, 20, 30), "u2")
    tifffile.imwrite(
        tmp_path / "a.ome.tif", data, metadata={"axes": "CYX"}, resolution=(100, 50), resolutionunit="CENTIMETER"
    )
    dest = MemoryStore()
    convert.from_tiff(tmp_path / "a.ome.tif", dest, zarr_format=2)
    attributes = dict(read(dest).attrs)
    assert attributes["_ARRAY_DIMENSIONS"] == ["c", "y", "x"]
    assert attributes["axes"] == "CYX"
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
    root = read(dest)
    assert sorted(root) == ["0", "1", "2"]
    assert [root[n].shape for n in "012"] == [(128, 160, 3), (64, 80, 3), (32, 40, 3)]
    with tifffile.TiffFile(tmp_path / "a.ome.tif") as file:
        for number, level in enumerate(file.series[0].levels):
            assert np.array_equal(root[str(number)][...], level.asarray())
    assert root["0"].chunks == (32, 32, 3)
    assert root.attrs["axes"] == "YXS"


def test_several_series_are_converted_or_one_is_chosen(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(np.full((10, 20), 1, "u1"), metadata=None)
        file.write(np.full((30, 20), 2, "u2"), metadata=None, compression="zlib")
    dest = MemoryStore()
    convert.from_tiff(tmp_path / "a.tif", dest)
    root = read(dest)
    assert {name: (z.shape, int(z[0, 0])) for name, z in root.items()} == {
        "series_0": ((10, 20), 1),
        "series_1": ((30, 20), 2),
    }
    convert.from_tiff(tmp_path / "a.tif", dest, series=1, if_exists="replace")
    assert read(dest).shape == (30, 20)
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
    with pytest.raises(CopyError, match=r"a\.tif: page 0, segment 5"):
        convert.from_tiff(tmp_path / "a.tif", MemoryStore())


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
    assert np.array_equal(read(dest)[:], expected)


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


def test_a_npz_file_that_is_cut_off(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(1000))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:4000])
    with pytest.raises(CopyError, match="cannot read"):
        convert.from_file(tmp_path / "a.npz", MemoryStore())
