"""Hypothesis strategies for everything that metadata can say: arrays and groups, Zarr v2 and v3."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from gzarr.codecs import parse_codec
from gzarr.codecs.chain import complete
from gzarr.codecs.spec import ArrayRepr
from gzarr.dtypes import DataType, parse_dtype
from gzarr.indexing.grid import Axis, RegularAxis, VaryingAxis
from gzarr.indexing.keys import KeyEncoding
from gzarr.metadata.model import ArrayMeta, GroupMeta
from gzarr.metadata.v2 import chain as v2_chain

NUMBERS = (
    *("|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"),
    *("<M8[ns]", "<M8[D]", "<M8[25s]", "<m8[us]", "<M8", "<m8"),
    *("|S1", "|S7", "<U1", "<U5", "|V1", "|V9"),
)
BIG = (">i4", ">u2", ">f8", ">c8", ">M8[s]", ">U3")
STRUCTS: tuple[Any, ...] = (
    [("a", "<i4"), ("b", "<f8")],
    [("é", "|S3"), ("nested", [("x", "<u2"), ("y", "<M8[s]")]), ("flag", "|b1")],
    [("grid", "<f4", (2, 3)), ("v", "|V2")],
)
ML = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint2", "float4_e2m1fn", "float8_e8m0fnu", "complex_float16")

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
#: JSON values; without NaN, which is not equal to itself.
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
attributes = st.dictionaries(names, json_values, max_size=4)
unknown_fields = st.dictionaries(
    st.sampled_from(["future", "extension.example", "proj:x"]),
    st.dictionaries(names, json_values, max_size=2).map(lambda d: {**d, "must_understand": False}),
    max_size=2,
)

COMPRESSORS: tuple[Any, ...] = (
    {"name": "gzip", "configuration": {"level": 5}},
    {"name": "zstd", "configuration": {"level": -3, "checksum": True}},
    {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 1, "shuffle": "bitshuffle", "blocksize": 64}},
    {"name": "blosc", "configuration": {}},
    "crc32c",
    {"name": "numcodecs.bz2", "configuration": {"level": 3}},
    {"name": "numcodecs.lzma", "configuration": {"filters": None, "preset": 1}},
    {"name": "numcodecs.shuffle", "configuration": {"elementsize": 2}},
    {"name": "numcodecs.not_installed", "configuration": {"z": 1, "a": [1, {"b": None}]}},
)
COMPRESSORS_V2: tuple[Any, ...] = (
    {"id": "zlib", "level": 1},
    {"id": "zstd", "level": 0},
    {"id": "zstd", "level": 2, "checksum": True},
    {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": -1, "blocksize": 0},
    {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    {"id": "gzip", "level": 9},
    {
        "id": "lzma",
        "format": 1,
        "check": -1,
        "preset": None,
        "filters": [{"id": 3, "dist": 4}, {"id": 33, "preset": 1}],
    },
    {"id": "lz4", "acceleration": 1},
    {"id": "not_installed", "z": 1, "a": [1, {"b": None}]},
)
FILTERS_V2: tuple[Any, ...] = (
    {"id": "shuffle", "elementsize": 4},
    {"id": "fletcher32"},
    {"id": "crc32", "location": "start"},
    {"id": "also_not_installed"},
)


@st.composite
def fill_values(draw: st.DrawFn, data_type: DataType, zarr_format: int) -> Any:
    """A fill value: any bit pattern that the type has, or None in v2."""
    if zarr_format == 2 and draw(st.booleans()):
        return None
    if data_type.variable == "string":
        return draw(names)
    if data_type.variable == "bytes":
        return draw(st.binary(max_size=5))
    if data_type.variable:
        return draw(json_values)
    dtype = data_type.dtype
    return _patterns(draw, dtype, zarr_format)


def _patterns(draw: st.DrawFn, dtype: np.dtype[Any], zarr_format: int) -> Any:
    if dtype.names is not None:
        made = np.zeros((), dtype)
        for name in dtype.names:
            field = dtype[name]
            made[name] = _patterns(draw, field.base, 3) if not field.shape else np.ones(field.shape, field.base)
        return made[()]
    if dtype.kind == "U":
        return np.array(draw(st.text(st.characters(exclude_categories=("Cs",)), max_size=dtype.itemsize // 4)), dtype)[
            ()
        ]
    if dtype.kind == "b":
        return np.bool_(draw(st.booleans()))
    raw = draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    if dtype.type.__name__ in ("int4", "uint2", "float4_e2m1fn"):
        bits = 2 if dtype.type.__name__ == "uint2" else 4
        number = raw[0] % 2**bits
        if dtype.type.__name__ == "int4":
            return dtype.type(number - 8)
        return np.frombuffer(bytes([number]), dtype)[0]
    if str(dtype) in ("datetime64", "timedelta64", ">M8", ">m8"):
        return np.array("NaT", dtype)[()]  # without a unit there is nothing else
    value = np.frombuffer(raw, dtype)[0]
    # Zarr v2 has one NaN; no other comes back
    if zarr_format == 2 and np.asarray(value != value).any():
        return np.zeros((), dtype)[()]
    return value


@st.composite
def axes(draw: st.DrawFn, zarr_format: int) -> Axis:
    """A regular or rectilinear axis."""
    if zarr_format == 3 and draw(st.integers(0, 3)) == 0:
        lengths = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=6)))
        return VaryingAxis(draw(st.integers(max(sum(lengths[:-1]), 0), sum(lengths))), lengths)
    return RegularAxis(draw(st.integers(0, 40)), draw(st.sampled_from([1, 2, 3, 7, 2**40])))


@st.composite
def array_metas(draw: st.DrawFn, zarr_format: int) -> ArrayMeta:
    """An array's metadata."""
    choice: Any = draw(
        st.sampled_from([*NUMBERS, *ML, *STRUCTS, "string", "bytes", *(BIG if zarr_format == 2 else ())])
    )
    data_type = parse_dtype(choice)
    grid = tuple(draw(st.lists(axes(zarr_format), max_size=3)))
    shape = tuple(axis.extent for axis in grid)
    lengths = tuple(axis.bounds(0)[1] for axis in grid)
    separator: Any = draw(st.sampled_from("./"))
    key_name: Any = "v2" if zarr_format == 2 else draw(st.sampled_from(["default", "v2"]))
    fill = draw(fill_values(data_type, zarr_format))
    make = _codecs_v2 if zarr_format == 2 else _codecs_v3
    named = st.lists(st.none() | names, min_size=len(grid), max_size=len(grid)).map(tuple)
    return ArrayMeta(
        shape=shape,
        data_type=data_type,
        grid=grid,
        keys=KeyEncoding(key_name, separator),
        fill_value=fill,
        codecs=make(draw, data_type, lengths, fill),
        attributes=draw(attributes),
        dimension_names=draw(st.none() | named) if zarr_format == 3 else None,
        zarr_format=3 if zarr_format == 3 else 2,
        extra=draw(unknown_fields),
    )


def _codecs_v2(draw: st.DrawFn, data_type: DataType, lengths: tuple[int, ...], _fill: Any) -> Any:
    vlen = {"string": [{"id": "vlen-utf8"}], "bytes": [{"id": "vlen-bytes"}]}.get(data_type.variable, [])
    chosen = [*vlen, *draw(st.lists(st.sampled_from(FILTERS_V2), max_size=2))]
    compressor = draw(st.sampled_from(COMPRESSORS_V2))
    specs = tuple(parse_codec(c) for c in (*chosen, compressor))
    return v2_chain(specs, data_type, lengths, draw(st.sampled_from("CF")))


def _codecs_v3(draw: st.DrawFn, data_type: DataType, lengths: tuple[int, ...], fill: Any) -> Any:
    serializer = {"string": "vlen-utf8", "bytes": "vlen-bytes"}.get(data_type.variable)
    last: Any = serializer or {"name": "bytes", "configuration": {"endian": draw(st.sampled_from(["little", "big"]))}}
    chosen: list[Any] = [last, *draw(st.lists(st.sampled_from(COMPRESSORS), max_size=2))]
    if draw(st.booleans()):
        order = draw(st.permutations(range(len(lengths))))
        chosen = [{"name": "transpose", "configuration": {"order": list(order)}}, *chosen]
    if draw(st.booleans()):
        location = draw(st.sampled_from(["start", "end"]))
        options = {"chunk_shape": [1] * len(lengths), "codecs": chosen, "index_location": location}
        chosen = [{"name": "sharding_indexed", "configuration": options}]
    return complete(tuple(map(parse_codec, chosen)), ArrayRepr(data_type.dtype, lengths, fill))


@st.composite
def group_metas(draw: st.DrawFn, zarr_format: int) -> GroupMeta:
    """A group's metadata."""
    return GroupMeta(draw(attributes), 3 if zarr_format == 3 else 2, draw(unknown_fields))
