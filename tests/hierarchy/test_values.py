"""Values of every kind are written as NumPy writes them, or refused before anything is written; on every path."""

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gzarr
from gzarr.errors import ChunkError
from gzarr.storage import LocalStore
from tests.support.processes import run_python
from tests.support.values import check_as_numpy

PATHS = {"compiled loop": {}, "reference path": {"cpu.native": False}, "emulated device": {"device": "emulated"}}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(encountered in|masked element|discards the imaginary|the matrix subclass)"
)


@pytest.fixture(params=PATHS, autouse=True)
def _path(request: pytest.FixtureRequest) -> Iterator[None]:
    with gzarr.config.set(PATHS[request.param]):
        yield


def made(tmp_path: Path, shape: Any, dtype: Any, zarr_format: Any = 3) -> gzarr.Array:
    chunks = tuple(max(n // 8, 1) for n in shape)
    store = LocalStore(tmp_path / "a.zarr")
    return gzarr.create_array(
        store, shape=shape, dtype=dtype, chunks=chunks, zarr_format=zarr_format, fill_value=0, overwrite=True
    )


@pytest.mark.parametrize("dtype", ["u1", "<u4", ">i8"])
def test_floats_out_of_range_are_cast_together(dtype: str, tmp_path: Path) -> None:
    """Not chunk by chunk: what NumPy makes of them depends on the elements beside them."""
    value = np.random.default_rng(0).normal(size=(41, 53)) * 10.0 ** np.arange(53)
    array = made(tmp_path, (41, 53), dtype)
    array[...] = value
    np.testing.assert_array_equal(np.asarray(array), value.astype(dtype))


@pytest.mark.parametrize("value", [300, -1, 2**33, np.nan, np.inf, 1e30, 2.7, 1j, True, "7", b"7"])
@pytest.mark.parametrize("dtype", ["u1", "<i4", "f4", "?"])
def test_arrays_without_axes_as_values(value: Any, dtype: str, tmp_path: Path) -> None:
    for shape in ((), (4, 3)):
        check_as_numpy(made(tmp_path, shape, dtype), ..., np.array(value))


#: Scalars of Python and of NumPy: out of range, not a number, of another kind.
SCALARS = (
    *(300, -1, 2**70, 1.5, math.nan, 1e30, 1j, True, "12", "x", b"12", None),
    *(np.int64(300), np.int64(-1), np.uint8(200), np.uint64(2**63), np.bool_(True), np.str_("12"), np.str_("x")),
    *(np.float16("nan"), np.float32("nan"), np.float64("nan"), np.float64("inf"), np.float64(1e30), np.float64(1.5)),
    *(np.longdouble("nan"), np.complex64(1j), np.complex128(2), np.bytes_(b"12"), np.timedelta64(5)),
    *(np.datetime64("2020-01-01"), np.datetime64("2020-01-01", "ns"), np.datetime64("NaT"), np.timedelta64(5, "s")),
)


def written(write: Callable[[Any], Any], value: Any) -> str:
    """What a write makes of a value, or raises."""
    try:
        return repr(np.asarray(write(value)).tolist())
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def ways_to_write(dtype: str) -> dict[str, Callable[[Any], Any]]:
    """What writes a value and returns what is stored then."""
    array = gzarr.zeros((6,), chunks=3, dtype=dtype, zarr_format=2)
    single = gzarr.zeros((), dtype=dtype, zarr_format=2)

    def assign(into: Any, key: Any) -> Callable[[Any], Any]:
        return lambda value: (into.__setitem__(key, value), np.asarray(array)[0])[1]

    return {
        "a chunk": assign(array, slice(0, 3)),
        "an element": assign(array, 0),
        "a list": assign(array, [0, 1]),
        "a mask": assign(array, np.arange(6) < 2),
        "oindex": assign(array.oindex, ([0, 5],)),
        "vindex": assign(array.vindex, ([0, 5],)),
        "blocks": assign(array.blocks, 0),
        "several": lambda value: (gzarr.write_many([(array, slice(0, 4), value)]), array[0])[1],
        "no axes": lambda value: (single.__setitem__(..., value), single[...])[1],
    }


def test_scalars_are_taken_or_refused_as_numpy_does(request: Any) -> None:
    """On each way to write: NumPy's scalars raise where Python's do, but for unsigned integers."""
    every = "compiled" in request.node.name
    for dtype in ("i1", ">i2", "i8", "u1", "f4", "c8", "?", "m8[s]", "S3") if every else ("i1",):
        ways = ways_to_write(dtype)
        for value in SCALARS:
            model = np.zeros(6, dtype)
            want = written(lambda value, model=model: (model.__setitem__(slice(0, 3), value), model[0])[1], value)
            assert {way: written(write, value) for way, write in ways.items()} == dict.fromkeys(ways, want), value


def test_numpy_scalars_that_an_array_cannot_hold_in_fields_and_fill_values() -> None:
    array = gzarr.zeros(4, chunks=2, dtype=[("a", "i1"), ("b", "f4")])
    with pytest.raises(OverflowError, match="300 out of bounds for int8"):
        array["a"] = np.int64(300)
    for value in (np.int64(300), np.float64("nan"), np.datetime64("2020-01-01")):
        with pytest.raises((OverflowError, ValueError, TypeError)):
            asyncio.run(gzarr.zeros(4, dtype="i1").awrite(0, value))
        with pytest.raises(gzarr.MetadataError, match="a value that int8 can represent"):
            gzarr.full(3, value, dtype="i1")
        with pytest.raises((OverflowError, ValueError, TypeError)):
            gzarr.array(value, dtype="i1")


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 3)])
def test_matrices_tables_and_other_classes_of_arrays(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = made(tmp_path, shape, "f8")
    check_as_numpy(array, ..., np.matrix([[1, 2, 3]]))
    check_as_numpy(array, (*(0,) * (len(shape) - 1), slice(None)), np.matrix([[4, 5, 6]]))
    check_as_numpy(array, ..., np.ma.masked_array([1, 2, 3], [True, False, True]))
    check_as_numpy(array, (0,) * len(shape), np.ma.masked)
    check_as_numpy(array, ..., pd.Series([7, 8, 9], index=[0.5, 0.25, 0.1]))
    check_as_numpy(array, ..., pd.DataFrame({"a": [1], "b": [2.5], "c": [3]}))
    check_as_numpy(array, ..., memoryview(b"abc"))
    with pytest.raises(ValueError, match="cannot write a value of shape"):
        array[...] = np.matrix([[1, 2], [3, 4]])


def test_records(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "<i4"), ("b", "<f4", (2,))])
    check_as_numpy(made(tmp_path, (2,), dtype), ..., np.array([(1, (2, 3)), (4, (5, 6))], dtype).view(np.recarray))


def test_texts_and_bytes_of_variable_length(zarr_format: int) -> None:
    array = gzarr.create_array(shape=(5,), chunks=2, dtype=str, zarr_format=zarr_format)
    array[:] = np.str_("a")
    array[1] = np.str_("ß")
    array[2] = np.array("c")
    array[3:4] = np.array("d")
    array[4:] = [np.str_("e")]
    assert array[:].tolist() == ["a", "ß", "c", "d", "e"]
    array = gzarr.create_array(shape=(5,), chunks=2, dtype=bytes, zarr_format=zarr_format)
    array[:] = bytearray(b"ab")
    array[1] = np.bytes_(b"b")
    array[2] = memoryview(b"cd")
    array[3] = np.array(b"d")
    array[4:] = bytearray(b"")
    assert array[:].tolist() == [b"ab", b"b", b"cd", b"d", b""]
    for dtype, value in (
        (str, np.str_("a")),
        (str, np.array("a")),
        (bytes, bytearray(b"ab")),
        (bytes, np.array(b"ab")),
    ):
        array = gzarr.create_array(shape=(), dtype=dtype, zarr_format=zarr_format)
        array[...] = value
        assert array[()] == (value.item() if isinstance(value, np.ndarray) else value)


@pytest.mark.parametrize("value", ["\ud800", ["a", "\udfff"], np.array("\ud800"), np.str_("\ud800")])
def test_lone_surrogates_are_damage_to_a_chunk(value: Any, zarr_format: int) -> None:
    array = gzarr.create_array(shape=(2,), chunks=2, dtype=str, zarr_format=zarr_format, path="x")
    with pytest.raises(ChunkError, match=r"array .*/x.*surrogates not allowed"):
        array[:] = value
    assert array[:].tolist() == ["", ""]


@pytest.mark.parametrize("step", [2**31, 2**62, 2**63 - 1, 2**63, 2**64])
def test_steps_of_any_length(step: int, tmp_path: Path) -> None:
    array = made(tmp_path, (40, 50), "i4")
    array[...] = model = np.arange(2000).reshape(40, 50)
    for key in ((slice(3, None, step), slice(None)), (slice(None), slice(4, None, -step)), (slice(None, None, step),)):
        np.testing.assert_array_equal(np.asarray(array[key]), model[key])
        check_as_numpy(made(tmp_path / "b", (40, 50), "i4"), key, model[key] + 1)


def test_writing_imports_no_masked_arrays() -> None:
    """A thread that imports a module would stop a child that another thread forks meanwhile."""
    code = (
        "import sys, gzarr; z = gzarr.zeros((4, 4), chunks=2); z[0] = 1; z[:] = z[:]; print('numpy.ma' in sys.modules)"
    )
    assert run_python(code) == "False\n"
