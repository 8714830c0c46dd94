"""Files of any format: recognized by what is in them, read within a budget of memory, refused with one clear error."""

import os
import struct
import subprocess
import sys
import textwrap
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
    with pytest.raises(CopyError, match=r"unknown \(it begins with b'hello'\)"):
        convert.from_file(tmp_path / "text", MemoryStore())
    with pytest.raises(CopyError, match="unknown format 'csv'"):
        convert.from_file(tmp_path / "text", MemoryStore(), format="csv")
    with pytest.raises(FileNotFoundError):
        convert.from_file(tmp_path / "nothing", MemoryStore())


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
    z = gzarr.open(dest, mode="r")["deep/x"]
    assert (z.chunks, z.shards, z.compressors) == ((5, 5), (10, 10), ())
    assert np.array_equal(z[:], np.arange(200.0).reshape(20, 10))
    assert seen[-1][0] == report.nbytes == 1600
    with pytest.raises(CopyError, match="already stored"):
        convert.from_file(tmp_path / "a.npy", dest, path="deep/x")
    assert convert.from_file(tmp_path / "a.npy", dest, path="y", dry_run=True).dry_run
    assert "y" not in gzarr.open(dest, mode="r")


@pytest.mark.parametrize("preamble", [bytes(128), b"II*\0T\x18\x08\0".ljust(128, b"\0")])
def test_dicom_files_are_named_with_what_reads_them(tmp_path, preamble):
    """Some writers begin them like TIFF files."""
    path = tmp_path / "a.dcm"
    path.write_bytes(preamble + b"DICM" + bytes(1000))
    with pytest.raises(CopyError, match=r"a\.dcm' is a DICOM file.*pydicom"):
        convert.from_file(path, MemoryStore())


def test_a_tiff_file_that_is_also_dicom_is_converted(tmp_path):
    """The directories of a slide that is both lie behind the DICOM part."""
    data = np.arange(600, dtype="<u2").reshape(20, 30)
    values = {256: 30, 257: 20, 258: 16, 259: 1, 262: 1, 273: 300, 277: 1, 278: 20, 279: data.nbytes}
    tags = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    begin = struct.pack("<2sHI", b"II", 42, 140).ljust(128, b"\0") + b"DICM".ljust(12, b"\0")
    directory = struct.pack("<H", len(values)) + tags + bytes(4)
    (tmp_path / "a.dcm").write_bytes((begin + directory).ljust(300, b"\0") + data.tobytes())
    convert.from_file(tmp_path / "a.dcm", dest := MemoryStore())
    assert np.array_equal(gzarr.open(dest)[:], data)


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
    found = gzarr.open(tmp_path / "z", mode="r")
    z = found["data"] if format in ("hdf5", "netcdf") else found
    assert z.chunks == (250, 250)
    assert z.nbytes > 20 * (4 << 20)
    assert np.array_equal(z[::100, 1234], np.arange(0.0, 4000, 100))
