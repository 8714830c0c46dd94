"""Data types to exchange with other implementations, with values and fill values of them. Imports no gzarr."""

import importlib
from typing import Any

import numpy as np

PLAIN = ("b1", "i1", "u1")
WIDE = ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
NUMBERS = (*(f"|{code}" for code in PLAIN), *(order + code for code in WIDE for order in "<>"))
TIMES = ("<M8[ns]", ">M8[s]", "<M8[D]", "<M8[10ms]", "<m8[10us]", ">m8[h]", "<m8[Y]")
FIXED = ("|S6", "<U5", ">U5", "|V7")
STRUCTS = (
    (("a", "<i4"), ("b", "<f8"), ("c", "|S3")),
    (("p", (("x", "<u2"), ("y", "<f4"))), ("q", "|b1"), ("t", "<M8[s]"), ("z", "<c8")),
)
BIG_STRUCT = (("a", ">i4"), ("b", "<f8"), ("c", ">U2"))  # v2 only: v3 structs have one byte order
VARIABLE = ("string", "bytes")
#: Names of ml_dtypes types that TensorStore knows too; sizes in bits of those that do not fill their byte.
ML = (
    *("bfloat16", "float8_e3m4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2"),
    *("float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int4", "int2"),
)
_BITS = {"float4_e2m1fn": 4, "int4": 4, "int2": 2}

DTYPES_V3 = (*NUMBERS, *TIMES, *FIXED, *STRUCTS, *VARIABLE)
DTYPES_V2 = (*DTYPES_V3[: -len(VARIABLE)], BIG_STRUCT, *VARIABLE)

#: What a data type is called in a case: a NumPy type string, fields, or "string" and "bytes" for variable lengths.
Dtype = Any


def as_dtype(dtype: Dtype) -> np.dtype[Any]:
    """The NumPy dtype in memory: object for variable lengths."""
    if dtype in VARIABLE:
        return np.dtype(object)
    if dtype in ML:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), dtype))
    if isinstance(dtype, tuple):
        return np.dtype([(name, as_dtype(item)) for name, item in dtype])
    return np.dtype(dtype)


def values_of(dtype: Dtype, shape: tuple[int, ...], seed: int, *, smooth: bool = False) -> np.ndarray[Any, Any]:
    """Values of a dtype: every bit pattern that it has, or small numbers (``smooth``) for codecs that compute."""
    rng = np.random.default_rng(seed)
    found = as_dtype(dtype)
    if dtype in VARIABLE:
        return _variable(dtype, shape, rng)
    if found.names is not None:
        made = np.zeros(shape, found)
        fields = dtype if isinstance(dtype, tuple) else ()
        for number, (name, item) in enumerate(fields):
            made[name] = values_of(item, shape, seed + number, smooth=smooth)
        return made
    if dtype in _BITS:
        numbers = rng.integers(0, 2 ** _BITS[dtype], shape, "u1")
        low = 2 ** (_BITS[dtype] - 1) if "int" in dtype else 0
        return np.asarray((numbers.astype("i1") - low).astype(found) if low else numbers.view(found))
    if found.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), found)
    if found.kind == "U":
        letters = np.array(["", "a", "bé", "çß", "日本語", "\U0001d4b3yz", "abcde"], found)
        return np.asarray(letters[rng.integers(0, len(letters), shape)], found)
    if found.kind == "S":
        words = np.array([b"", b"a", b"a\0b", b"\xff\xfe", b"abcdef"], found)
        return np.asarray(words[rng.integers(0, len(words), shape)], found)
    if smooth and found.kind in "iuf":
        return np.asarray(rng.integers(0, 100, shape), found)
    raw = rng.integers(0, 256, (*shape, found.itemsize), dtype="u1")
    made = np.ascontiguousarray(raw).view(found).reshape(shape)
    if found.kind in "mM" and made.size:  # years of the calendar, so that whoever prints them can; and NaT
        made = np.asarray(rng.integers(-10000, 10000, shape).astype("i8"), "i8").astype(found)
        made[(0,) * made.ndim] = np.array("NaT", found)
    return np.asarray(made)


def _variable(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    words: list[Any] = ["", "a", "bé", "日本語", "\U0001d4b3yz", "long " * 20, "nul\0inside"]
    if dtype == "bytes":
        words = [word.encode() for word in words] + [b"\xff\0\x80"]
    made = np.empty(shape, object)
    for index in np.ndindex(*shape):
        made[index] = words[int(rng.integers(0, len(words)))]
    return made


def fill_of(dtype: Dtype) -> Any:
    """A fill value that is not the default."""
    if dtype == "string":
        return "fillé"
    if dtype == "bytes":
        return b"fill\xff"
    if dtype in ML:
        return values_of(dtype, (40,), 1234)[3]
    return values_of(dtype, (40,), 1234, smooth=as_dtype(dtype).kind in "iuf")[7]


def fills(dtype: Dtype) -> list[Any]:
    """Fill values of a dtype, its limits and odd values among them."""
    found = as_dtype(dtype)
    if dtype in VARIABLE:
        return ["", "x", "日本語\0"] if dtype == "string" else [b"", b"\xff\0"]
    if found.names is not None or found.kind in "SUV":
        return [np.zeros((), found)[()], fill_of(dtype)]
    if found.kind == "b":
        return [False, True]
    if found.kind in "iu":
        info = np.iinfo(found)
        return [0, 1, info.min, info.max]
    if found.kind in "mM":
        return [np.array(n, "i8").astype(found)[()] for n in (0, -1, 10**9)] + [np.array("NaT", found)[()]]
    numbers = [0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, float(np.finfo(found.newbyteorder("=")).max), 1 / 3]
    if found.kind == "c":
        return [complex(a, b) for a, b in zip(numbers[:5], reversed(numbers[2:7]), strict=True)]
    return numbers
