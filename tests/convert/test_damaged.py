"""Damaged files of every format: a conversion succeeds or raises an error of gzarr that names the file, never another.

HDF5's library itself crashes on some damaged metadata, so its files are damaged where their chunks are, and cut off.
"""

import random

import h5py
import netCDF4
import numpy as np
import pytest
import tifffile

import gzarr
from gzarr import convert
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore

DATA = np.random.default_rng(0).integers(0, 50, (40, 30)).astype("u2")


def netcdf(path):
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None)
        file.createDimension("x", 30)
        variable = file.createVariable("v", "i2", ("t", "x"))
        variable[:] = DATA
        variable.units = "m"


FILES = {
    "a.npy": lambda path: np.save(path, DATA),
    "a.nc": netcdf,
    "a.tif": lambda path: tifffile.imwrite(path, DATA, tile=(16, 16), compression="zlib"),
    "a.ome.tif": lambda path: tifffile.imwrite(path, DATA[None], metadata={"axes": "CYX"}),
}


def spoil(whole, rng):
    """The bytes of a file cut off, or with a bit, a byte of its header or several bytes changed."""
    data, at = bytearray(whole), rng.randrange(len(whole))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[at % 400] = rng.randrange(256)
    else:
        data[at : at + 20] = rng.randbytes(len(data[at : at + 20]))
    return data


@pytest.mark.parametrize("name", FILES)
def test_damage_of_any_kind_is_an_error_that_names_the_file(tmp_path, name):
    path, rng = tmp_path / name, random.Random(7)
    FILES[name](path)
    whole, messages = path.read_bytes(), []
    format = {".nc": "netcdf", ".tif": "tiff", ".npy": "npy"}[path.suffix]
    for _ in range(60):
        path.write_bytes(spoil(whole, rng))
        dest = MemoryStore()
        try:
            convert.from_file(path, dest, format=format)
        except CopyError as error:
            messages.append(str(error))
            assert "zarr.json" not in dest
    assert len(messages) >= 10
    assert all(name in message for message in messages)


def flipped(path, where):
    data = bytearray(path.read_bytes())
    data[where] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"fletcher32": True}])
def test_damaged_chunks_of_hdf5_and_netcdf_are_named(tmp_path, options):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("g/x", data=DATA, chunks=(20, 30), **options)
        where = data.id.get_chunk_info(1).byte_offset
        file.flush()
    flipped(tmp_path / "a.h5", where + 3)
    (tmp_path / "a.nc").write_bytes((tmp_path / "a.h5").read_bytes())
    dest = MemoryStore()
    with pytest.raises(CopyError, match=r"a\.h5:/g/x.*damaged.*whole copy"):
        convert.from_hdf5(tmp_path / "a.h5", dest)
    assert not [key for key in dest if key.endswith("zarr.json")]
    with pytest.raises(CopyError, match=r"a\.nc/g/x', key 'g/x/c/1/0', chunk"):
        convert.from_netcdf(tmp_path / "a.nc", MemoryStore())
    with h5py.File(tmp_path / "a.h5") as file, pytest.raises(CopyError, match=r"a\.h5:/g/x.*whole copy"):
        gzarr.copy(file["g"], gzarr.group(), "copy")


def test_hdf5_whose_groups_are_damaged_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="earliest") as file:
        file["g/x"] = DATA
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content.replace(b"TREE", b"TRXE"))
    with pytest.raises(CopyError, match=r"a\.h5.*damaged.*whole copy"):
        convert.from_hdf5(tmp_path / "a.h5", MemoryStore())
    with h5py.File(tmp_path / "a.h5") as file, pytest.raises(CopyError, match=r"a\.h5.*whole copy"):
        gzarr.copy_all(file, gzarr.group())
