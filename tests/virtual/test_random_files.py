"""Random files of every format: gzarr gives what the formats' own libraries give."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import tifffile

import gzarr

Rng = np.random.Generator


def values(rng: Rng, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Numbers that compress."""
    return (rng.integers(-50, 50, shape) * rng.integers(0, 2, shape)).astype(dtype)


def one_of(rng: Rng, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def random_shape(rng: Rng, most: int = 4) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, one_of(rng, 3, 20, 60), rng.integers(1, most + 1)))


def hdf5(rng: Rng, path: Path) -> tuple[str, Any]:
    shape = random_shape(rng)
    dtype = np.dtype(one_of(rng, "u1", "<i2", ">i4", "<f4", ">f8", "<i8", "bool"))
    chunks = one_of(rng, None, tuple(int(rng.integers(1, n + 1)) for n in shape))
    options: dict[str, Any] = {"fillvalue": one_of(rng, None, 1)}
    if chunks:
        options |= one_of(rng, {}, {"compression": "gzip", "compression_opts": 1}, {"compression": "lzf"})
        options |= {"shuffle": one_of(rng, True, False), "fletcher32": one_of(rng, True, False)}
        options["maxshape"] = one_of(rng, None, tuple(one_of(rng, None, n, 2 * n) for n in shape))
    with h5py.File(path, "w", libver=one_of(rng, "earliest", "latest")) as file:
        dataset = file.create_dataset("g/x", shape, dtype, chunks=chunks, **options)
        if rng.random() < 0.8:
            box = (
                tuple(slice(*sorted(rng.integers(0, n + 1, 2).tolist())) for n in shape) if rng.random() < 0.4 else ...
            )
            dataset[box] = values(rng, dataset[box].shape, dtype)
    with h5py.File(path) as file:
        return "g/x", file["g/x"][...]


def netcdf(rng: Rng, path: Path) -> tuple[str, Any]:
    form = one_of(rng, "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4")
    shape = random_shape(rng, 3)
    with netCDF4.Dataset(path, "w", format=form) as file:
        unlimited = one_of(rng, True, False)
        for axis, n in enumerate(shape):
            file.createDimension(f"d{axis}", None if unlimited and not axis else n)
        options = {"zlib": True, "complevel": 1, "shuffle": one_of(rng, True, False)} if form == "NETCDF4" else {}
        for name in ("x", "y")[: rng.integers(1, 3)]:
            dtype = one_of(rng, "i1", "i2", "i4", "f4", "f8")
            variable = file.createVariable(name, dtype, tuple(f"d{axis}" for axis in range(len(shape))), **options)
            variable[:] = values(rng, shape, dtype)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return "x", np.asarray(file["x"][...])


def tiff(rng: Rng, path: Path) -> tuple[str, Any]:
    shape = random_shape(rng, 3)
    shape = (*shape, *(int(rng.integers(1, 60)) for _ in range(2 - len(shape))))
    dtype = one_of(rng, "u1", "u2", "i4", "f4", "f8")
    options: dict[str, Any] = {"photometric": "minisblack", "byteorder": one_of(rng, "<", ">")}
    options |= one_of(rng, {}, {"compression": "zlib"}, {"compression": "lzw"}, {"compression": "zstd"})
    options |= one_of(rng, {"tile": (16, 32)}, {"rowsperstrip": int(rng.integers(1, 30))}, {})
    if "compression" in options and dtype != "f8":
        options["predictor"] = one_of(rng, False, True)
    tifffile.imwrite(path, values(rng, shape, dtype), bigtiff=one_of(rng, True, False), **options)
    return "", tifffile.imread(path)


def npy(rng: Rng, path: Path) -> tuple[str, Any]:
    data = values(rng, random_shape(rng), one_of(rng, "u1", ">i2", "<f4", ">c16"))
    with path.open("wb") as file:
        np.save(file, np.asfortranarray(data) if rng.random() < 0.4 else data)
    return "", np.load(path)


FORMATS: dict[str, Callable[[Rng, Path], tuple[str, Any]]] = {"hdf5": hdf5, "netcdf": netcdf, "tiff": tiff, "npy": npy}


def on_host(data: Any) -> Any:
    return data.get() if hasattr(data, "get") else data


def check(name: str, seed: int, path: Path) -> None:
    """Make a file, and compare whole reads, slices, lists and elements on both devices."""
    rng = np.random.default_rng([seed, *name.encode()])
    inner, expected = FORMATS[name](rng, path)
    for device in ("cpu", "emulated") if seed % 4 == 0 else ("cpu",):
        array = gzarr.open(path, mode="r", device=device)
        array = array[inner] if inner else array
        np.testing.assert_array_equal(on_host(array[...]), expected)
        box = tuple(slice(int(rng.integers(n)), None, int(rng.integers(1, 4))) for n in expected.shape)
        np.testing.assert_array_equal(on_host(array[box]), expected[box])
        rows = np.sort(rng.integers(0, expected.shape[0], 5))
        np.testing.assert_array_equal(on_host(array.oindex[rows]), expected[rows])
        at = tuple(int(rng.integers(n)) for n in expected.shape)
        assert on_host(array[at]) == expected[at]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(8))
def test_random_files(tmp_path: Path, name: str, seed: int) -> None:
    check(name, seed, tmp_path / "a.file")
