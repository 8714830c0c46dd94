"""Checks filters in both directions: what the device reads and writes is what the CPU does, bit for bit."""

from typing import Any

import numpy as np

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from tests.gpu.codecs.encoding import stays_on_host

INTEGERS = ("i1", "u1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u4", "<i8", ">u8")
FLOATS = ("<f2", "<f4", ">f4", "<f8", ">f8")
COMPLEX = ("<c8", ">c16")
SHAPE, CHUNKS = (23, 17), (6, 5)


def numbers(dtype: Any, *, special: bool = False) -> np.ndarray:
    """Of integers the whole range. special: of floats also zeros, infinities, subnormal and large numbers."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(6)
    if dtype.kind == "b":
        return rng.integers(0, 2, SHAPE).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, SHAPE, dtype.newbyteorder("="), endpoint=True).astype(dtype)
    values = rng.normal(0, 100, SHAPE)
    if dtype.kind == "c":
        values = values + 1j * rng.normal(0, 100, SHAPE)
    values = values.astype(dtype)
    if special:
        with np.errstate(over="ignore"):
            values[1, :9] = np.array([0, -0.0, np.inf, -np.inf, 5e-324, 1e-310, 1e300, 2.5, 3.5])
    return values


def check(
    data: np.ndarray, filters: list[Any], *, decoded: str = "emulated", encoded: str = "emulated", **keywords: Any
) -> None:
    """Read and write an array on the CPU and on the device, where every codec must run.

    decoded, encoded: "host" for a direction in which the device leaves the filters to the host.
    """
    keywords = {"chunks": CHUNKS, "zarr_format": 2, "filters": filters, "write_empty_chunks": True, **keywords}
    bare = {"compressor": None} if keywords["zarr_format"] == 2 else {"compressors": None}
    for compressed in ({}, bare):
        stored = gzarr.array(data, store={}, device="cpu", **keywords, **compressed)
        _check_reading(stored, decoded)
    if encoded == "host":
        _check_encoded_on_host(stored)
        return
    written = gzarr.create_array({}, shape=data.shape, dtype=data.dtype, device=_strict(decoded), **keywords, **bare)
    written[...] = data
    assert written.store.keys() == stored.store.keys()
    for key in stored.store:
        assert bytes(written.store[key]) == bytes(stored.store[key]), key


def _strict(decoded: str) -> GpuBackend:
    return GpuBackend(EmulatedDevice(), strict=decoded == "emulated")


def _check_reading(stored: gzarr.Array, decoded: str) -> None:
    z = stored.to(_strict(decoded))
    places = {row.where for row in z.placement}
    assert places == {"emulated"} if decoded == "emulated" else "host" in places, z.placement
    for selection in (np.s_[:], np.s_[::-3, 2:9], np.s_[4, 5]):
        found, expected = np.asarray(z[selection]), np.asarray(stored[selection])
        assert found.dtype == expected.dtype.newbyteorder("=")
        native = np.ascontiguousarray(expected, found.dtype)
        assert np.ascontiguousarray(found).tobytes() == native.tobytes()


def _check_encoded_on_host(stored: gzarr.Array) -> None:
    chunk = np.zeros(stored.chunks, stored.dtype)
    assert any(stays_on_host(spec, chunk) for spec in stored.codecs if spec.kind == "array_array")
