"""Floats of any bits through every filter and cast: the device's bits are the host's, wherever a step runs.

CuPy's own kernels would make zeros of subnormal numbers, and NaNs of their own.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr import codecs
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.spec import ArrayRepr
from gzarr.cpu.backend import CpuBackend
from gzarr.gpu.codecs import TABLE
from tests.gpu.codecs.encoding import copied_bytes_of, encode, read_back, steps_of
from tests.gpu.hardware.opening import cuda_backend, on_cuda
from tests.gpu.kernels.floats import floats

pytestmark = pytest.mark.gpu

#: Chunks of a batch, and elements of each.
N, LENGTH = 3, 70
SINGLE, DOUBLE = ("<f4", ">f4"), ("<f8", ">f8")
#: Python's numbers as they are, and what floats of 4 bytes round or make subnormal.
SCALES = [3, 0.1, 1e-40, 2.0**-140, -7.5e30]


def name(codec: str, **config: Any) -> NumcodecsCodec:
    return NumcodecsCodec(codec, config)


def scale_offset(dtype: str) -> st.SearchStrategy[Any]:
    safe = SCALES if dtype != "<f2" else SCALES[:2]
    return st.builds(codecs.ScaleOffsetCodec, offset=st.sampled_from(safe), scale=st.sampled_from(safe))


def fixed(dtype: str, astype: str) -> st.SearchStrategy[Any]:
    pair = st.tuples(st.sampled_from(SCALES), st.sampled_from(SCALES))
    return pair.map(lambda p: name("fixedscaleoffset", offset=p[0], scale=p[1], dtype=dtype, astype=astype))


def quantize(dtype: str, fewest: int, most: int) -> st.SearchStrategy[Any]:
    return st.integers(fewest, most).map(lambda digits: name("quantize", digits=digits, dtype=dtype))


def scalar_map(keys: list[Any], values: list[Any]) -> dict[str, Any]:
    pairs = [[key, value] for key, value in zip(keys, values, strict=True)]
    return {"encode": pairs, "decode": pairs}


_KEYS = ["NaN", 0.0, 1e-44]
_MAPPED = codecs.CastValueCodec("float32", scalar_map=scalar_map(_KEYS, ["0x7fa00001", 1e-40, "Infinity"]))

#: The dtype that is read, the filter, and which directions the device runs.
CASES: list[tuple[str, Any, str]] = [
    *((dtype, st.just(name("delta", dtype=dtype)), "both") for dtype in ("<f4", "<f8", "<c8", "<c16")),
    ("<f2", st.just(name("delta", dtype="<f2")), ""),
    *((dtype, scale_offset(dtype), "both") for dtype in (*SINGLE, *DOUBLE)),
    ("<f2", scale_offset("<f2"), ""),
    *((a, fixed(a, b), "both") for a, b in (("<f4", "<f4"), ("<f8", "<f8"), ("<f8", "<f4"), ("<f4", "<f8"))),
    ("<f4", quantize("<f4", 0, 38), "both"),
    ("<f4", quantize("<f4", 39, 40), "read"),  # its scale is no finite number of 4 bytes
    ("<f8", quantize("<f8", 0, 40), "both"),
    ("<f8", st.just(name("quantize", digits=2, dtype="<f8", astype="<f4")), "both"),
    ("<f4", st.just(name("quantize", digits=2, dtype="<f4", astype="<f2")), ""),
    *(
        (a, st.just(name("astype", decode_dtype=a, encode_dtype=b)), "both")
        for a, b in (("<f4", "<f8"), ("<f8", "<f4"), ("<c8", "<c16"), ("<c16", "<c8"))
    ),
    ("<f8", st.just(name("astype", decode_dtype="<f8", encode_dtype="<f2")), ""),
    *(
        (dtype, st.integers(1, 10).map(lambda k: name("bitround", keepbits=k)), "both")
        for dtype in ("<f2", "<f4", "<f8")
    ),
    ("<f8", st.just(codecs.CastValueCodec("float32")), "read"),
    ("<f8", st.just(codecs.CastValueCodec("float16")), "read"),
    ("<f4", st.just(_MAPPED), "both"),
    ("<f4", st.just(codecs.TransposeCodec((1, 0))), "both"),
]


def any_floats(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> np.ndarray:
    parts = 2 if dtype.kind == "c" else 1
    flat = floats(f"f{dtype.itemsize // parts}", parts * int(np.prod(shape)), seed).view(dtype.newbyteorder("="))
    return flat.reshape(shape).astype(dtype)


def bits(array: Any) -> bytes:
    host = array if isinstance(array, np.ndarray) else array.get()
    return np.ascontiguousarray(host).tobytes()


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: f"{i} {CASES[i][0]}")
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_filters_give_the_bits_of_the_host(cuda: Any, number: int, data: st.DataObject) -> None:
    dtype, specs, on_device = CASES[number]
    spec, seed = data.draw(specs), data.draw(st.integers(0, 2**32))
    shape = (N, 7, LENGTH // 7)
    steps = steps_of([spec], np.zeros(shape[1:], dtype))
    # Stored numbers of any bits, which no encoder may ever have made.
    stored = any_floats(np.dtype(steps[0].encoded.dtype), shape, seed)
    encoded = [bytes(chunk.tobytes()) for chunk in np.ascontiguousarray(stored, stored.dtype.newbyteorder("<"))]
    chunks = any_floats(np.dtype(dtype), shape, seed + 1)
    expected = read_back([spec], chunks, encoded, "cpu")
    found = read_back([spec], chunks, encoded, cuda_backend(cuda, strict=on_device != ""))
    assert bits(found) == bits(expected.astype(found.dtype, copy=False))
    if isinstance(TABLE[spec.name].encoder(steps[0], cuda.CudaDevice()), str):
        assert on_device != "both"
        return
    chain = CpuBackend().prepare(steps, ArrayRepr(chunks.dtype, shape[1:]))
    by_host = [bytes(memoryview(chunk)) for chunk in chain.encode(list(chunks))]
    assert encode(cuda.CudaDevice(), [spec], chunks, fetch=copied_bytes_of) == by_host


CASTS = [
    *[(a, b) for a in ("<f2", *SINGLE, *DOUBLE) for b in ("f2", "f4", "f8", "c8", "c16", "?") if a[1:] != b],
    *[(a, b) for a in ("<c8", ">c16") for b in ("c8", "c16", "?") if a[1:] != b],
    *[(a, b) for a in ("i1", "<u2", ">i4", "<i8", "<u8") for b in ("f2", "f4", "f8", "c8", "c16")],
]


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize(("stored", "wanted"), CASTS)
def test_casts_on_reading_give_the_bits_of_the_host(cuda: Any, stored: str, wanted: str) -> None:
    dtype = np.dtype(stored)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        native = dtype.newbyteorder("=")
        data = np.random.default_rng(0).integers(info.min, info.max, (29, 31), native, endpoint=True).astype(dtype)
    else:
        data = any_floats(dtype, (29, 31), 7)
    array = gzarr.create_array(data=data, chunks=(8, 9), device="cpu")
    expected = gzarr.open_array(array.store, mode="r", device="cpu").astype(wanted)
    found = on_cuda(array, cuda, strict=wanted != "f2").astype(wanted)
    for key in (np.s_[:], np.s_[3:20:2, ::-1]):
        assert bits(found[key]) == bits(expected[key])
    rows = np.array([1, 28, 3])
    assert bits(found.vindex[rows, rows]) == bits(expected.vindex[rows, rows])
