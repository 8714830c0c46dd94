"""What the property tests draw: arrays in every layout, values of every dtype, selections of every kind.

Every selection comes with a NumPy index that means the same, so that a test is two lines: read and compare, or write
to both and compare.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import (
    BytesCodec,
    GzipCodec,
    NumcodecsCodec,
    ShardingCodec,
    TransposeCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
)
from gzarr.storage import MemoryStore
from tests.properties.memory import on_host

STRUCT = np.dtype([("a", "<i4"), ("b", [("x", "<f4"), ("y", "S2")]), ("c", "u1", (2,)), ("d", "<M8[s]")])

#: NumPy dtypes, and the two data types of variable length that NumPy has as Python objects.
NUMBERS = ("|b1", "|i1", ">u2", "<i4", "<f4", ">f8", "<c8")
DTYPES: tuple[Any, ...] = (
    *NUMBERS,
    "<M8[D]",
    ">m8[ms]",
    "|S3",
    "<U2",
    ">U2",
    STRUCT,
    "string",
    "variable_length_bytes",
)


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    return np.dtype(object) if dtype in ("string", "variable_length_bytes") else np.dtype(dtype)


def sample(dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random values, few enough distinct ones that equal chunks and fill values occur."""
    if dtype in ("string", "variable_length_bytes"):
        words = np.empty(5, object)
        words[:] = ["", "a", "żółć", "b" * 40, "c"] if dtype == "string" else [b"", b"a", b"\0", b"b" * 40, b"c"]
        return words[rng.integers(0, 5, shape)]
    dtype = np.dtype(dtype)
    if dtype.names is not None:
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            field = dtype[name]
            out[name] = sample(field.base, shape + field.shape, rng)
        return out
    if dtype.kind in "SU":
        return np.asarray(rng.choice(["", "a", "bc"], shape), dtype)
    numbers = np.asarray(rng.integers(0, 4, shape))
    if dtype.kind in "fc" and rng.random() < 0.3:
        with_nan = np.array([0.0, -0.0, np.nan, np.inf])
        return with_nan[numbers].astype(dtype)
    return numbers.astype(dtype)


def fill_values(dtype: Any) -> list[Any]:
    if dtype in ("string", "variable_length_bytes"):
        return ["", "none"] if dtype == "string" else [b"", b"none"]
    dtype = np.dtype(dtype)
    if dtype.names is not None:
        return [np.zeros((), dtype)[()], sample(dtype, (), np.random.default_rng(3))[()]]
    more: list[Any] = {"f": [np.nan, -0.0, np.inf], "c": [complex(np.nan, 1)], "M": ["NaT"], "m": ["NaT"]}.get(
        dtype.kind, []
    )
    return [np.zeros((), dtype)[()], np.ones((), dtype)[()] if dtype.kind not in "SU" else "a", *more]


# -- arrays ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """How an array is stored; ``make`` creates it, in memory unless a store is given.

    ``chunks`` are the chunks of the innermost level; each of the two factors makes a level of shards above them.
    """

    layout: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    factors: tuple[tuple[int, ...], tuple[int, ...]]
    dtype: Any = "<i4"
    fill: Any = 0
    compress: bool = False
    write_empty: bool = False
    cuts: tuple[tuple[int, ...], ...] = ()

    def make(self, store: Any = None) -> gzarr.Array:
        keywords: dict[str, Any] = {
            "shape": self.shape,
            "chunks": self.chunks,
            "dtype": self.dtype,
            "fill_value": self.fill,
            "compressor": ZstdCodec(1) if self.compress else None,
            "write_empty_chunks": self.write_empty,
        }
        return gzarr.create_array(MemoryStore() if store is None else store, **(keywords | self._of_layout()))

    def model(self) -> np.ndarray:
        model = np.empty(self.shape, numpy_dtype(self.dtype))
        if self.fill is None:
            model[...] = np.zeros((), model.dtype)
        else:
            model[...] = np.asarray(self.fill, model.dtype) if model.dtype != object else self.fill
        return model

    @property
    def shard(self) -> tuple[int, ...]:
        return tuple(c * f for c, f in zip(self.chunks, self.factors[0], strict=True))

    def _of_layout(self) -> dict[str, Any]:
        return _LAYOUTS[self.layout](self)

    def _codecs(self, endian: str = "little") -> list[Any]:
        variable = {"string": VLenUTF8Codec(), "variable_length_bytes": VLenBytesCodec()}
        serializer = variable.get(self.dtype) if isinstance(self.dtype, str) else None
        return [serializer or BytesCodec(endian), *([ZstdCodec(1)] if self.compress else [])]


def _nested(case: Case, location: str, outer: tuple[Any, ...] = (), between: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Shards within shards, with codecs around the outer ones and around the inner ones."""
    inner = ShardingCodec(case.chunks, codecs=case._codecs(), index_location=location)
    whole = ShardingCodec(case.shard, codecs=[inner, *between], index_location="start" if outer else location)
    shape = tuple(n * f for n, f in zip(case.shard, case.factors[1], strict=True))
    return {"compressor": "default", "chunks": shape, "codecs": [whole, *outer]}


def _sharded(case: Case, location: str, before: tuple[Any, ...] = (), after: tuple[Any, ...] = ()) -> dict[str, Any]:
    codec = ShardingCodec(case.chunks, codecs=case._codecs(), index_location=location)
    return {"compressor": "default", "chunks": case.shard, "codecs": [*before, codec, *after]}


def _transposed(case: Case) -> dict[str, Any]:
    order = tuple(range(1, len(case.shape))) + ((0,) if case.shape else ())
    inner = tuple(case.chunks[axis] for axis in order)
    # A second transpose within the shard: both must be folded together.
    codecs = [TransposeCodec(tuple(reversed(range(len(order))))), *case._codecs("big")]
    return {
        "compressor": "default",
        "chunks": case.shard,
        "codecs": [TransposeCodec(order), ShardingCodec(inner, codecs=codecs)],
    }


def _cut(case: Case, unit: tuple[int, ...]) -> list[list[int]]:
    """Chunk lengths for every axis, multiples of a unit, that cover the extents."""
    axes = []
    for extent, cuts, n in zip(case.shape, case.cuts, unit, strict=True):
        lengths: list[int] = []
        while sum(lengths) < extent or not lengths:
            lengths.append(n * cuts[len(lengths) % len(cuts)])
        axes.append(lengths)
    return axes


_LAYOUTS: dict[str, Any] = {
    "v2": lambda _: {"zarr_format": 2},
    "v2 F /": lambda _: {"zarr_format": 2, "order": "F", "dimension_separator": "/"},
    "v2 filter": lambda c: {"zarr_format": 2, "filters": [NumcodecsCodec("delta", {"dtype": c.dtype})]},
    "v3": lambda _: {},
    "v3 F": lambda _: {"order": "F", "chunk_key_encoding": {"name": "v2", "separator": "."}},
    "shards": lambda c: {"shards": c.shard},
    "shards F, index first": lambda c: {"shards": {"shape": c.shard, "index_location": "start"}, "order": "F"},
    "wrapped shards": lambda c: _sharded(c, "end", after=(GzipCodec(1),)),
    "transpose, shards": _transposed,
    "nested": lambda c: _nested(c, "end"),
    "nested, index first": lambda c: _nested(c, "start"),
    "nested, wrapped within": lambda c: _nested(c, "end", between=(ZstdCodec(1),)),
    "nested, wrapped around": lambda c: _nested(c, "end", outer=(ZstdCodec(1),)),
    "delta, shards": lambda c: _sharded(c, "end", before=(NumcodecsCodec("delta", {"dtype": c.dtype}),)),
    "rectilinear": lambda c: {"chunks": _cut(c, (1,) * len(c.shape))},
    "rectilinear shards": lambda c: {"shards": _cut(c, c.chunks)},
}
LAYOUTS = tuple(_LAYOUTS)
_INTEGERS_ONLY = {"v2 filter", "delta, shards"}
_NEEDS_AXES = {"v2 filter", "delta, shards", "rectilinear", "rectilinear shards"}


@st.composite
def cases(draw: Any, layouts: tuple[str, ...] = LAYOUTS, dtypes: tuple[Any, ...] = DTYPES, min_ndim: int = 0) -> Case:
    """Arrays of 0 to 4 dimensions, some with axes of no elements."""
    layout = draw(st.sampled_from(layouts))
    ndim = draw(st.integers(max(min_ndim, 1 if layout in _NEEDS_AXES else 0), 4))
    longest = {0: 1, 1: 20, 2: 9, 3: 6, 4: 4}[ndim]
    shape = tuple(
        draw(st.integers(0, longest)) if draw(st.integers(0, 9)) == 0 else draw(st.integers(1, longest))
        for _ in range(ndim)
    )
    chunks = tuple(draw(st.integers(1, min(max(n, 1), 4))) for n in shape)
    factors = tuple(tuple(draw(st.integers(1, 3)) for _ in shape) for _ in range(2))
    cuts = tuple(tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))) for _ in shape)
    dtype = draw(st.sampled_from(("<i4",) if layout in _INTEGERS_ONLY else dtypes))
    fills = fill_values(dtype)
    if layout.startswith("v2") and numpy_dtype(dtype).kind != "O":
        fills = [*fills, None]
    fill, flags = draw(st.sampled_from(fills)), (draw(st.booleans()), draw(st.booleans()))
    return Case(layout, shape, chunks, factors, dtype, fill, *flags, cuts)


@st.composite
def filled(draw: Any, **kwargs: Any) -> tuple[Case, gzarr.Array, np.ndarray]:
    """A case, its array with some of the elements written, and the NumPy array that equals it."""
    case = draw(cases(**kwargs))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    array, model = case.make(), case.model()
    box = tuple(slice(*sorted(rng.integers(0, n + 1, 2).tolist())) for n in case.shape)
    if draw(st.integers(0, 3)) == 0:
        box = (slice(None),) * len(case.shape)
    model[box] = sample(case.dtype, np.shape(model[box]), rng)
    array[box] = model[box]
    return case, array, model


# -- selections ------------------------------------------------------------------------------------------------------


def positions(extent: int) -> st.SearchStrategy[int]:
    return st.integers(-extent, extent - 1)


@st.composite
def slices(draw: Any, extent: int) -> slice:
    bounds = st.none() | st.integers(-extent - 2, extent + 2)
    step = draw(st.none() | st.sampled_from([1, 2, 3, 5, 100, -1, -2, -3, -7]))
    return slice(draw(bounds), draw(bounds), step)


@st.composite
def basic_keys(draw: Any, shape: tuple[int, ...]) -> Any:
    """Integers and slices, with an ellipsis and new axes here and there; not always a tuple."""
    items: list[Any] = [
        draw(positions(n).map(lambda i: np.int16(i) if i % 3 == 0 else i) | slices(n)) if n else draw(slices(n))
        for n in shape
    ]
    kept = draw(st.integers(0, len(items)))
    at = draw(st.integers(0, kept))
    # An ellipsis stands for all axes between the first ones and the last ones.
    around = [*items[:at], ..., *items[len(items) - (kept - at) :]]
    items = around if draw(st.booleans()) else items[:kept]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        items.insert(draw(st.integers(0, len(items))), None)
    if len(items) == 1 and draw(st.booleans()):
        return items[0]
    return tuple(items)


@st.composite
def index_lists(draw: Any, extent: int) -> Any:
    """Index lists of one dimension: unsorted, repeated, negative, empty, of any integer dtype, or a range."""
    if extent and draw(st.integers(0, 3)) == 0:
        start, stop = sorted(draw(st.tuples(st.integers(0, extent - 1), st.integers(0, extent - 1))))
        return range(start, stop + 1) if draw(st.booleans()) else range(stop, start - 1, -1)
    found = draw(st.lists(positions(extent), max_size=6)) if extent else []
    found *= draw(st.sampled_from([1, 1, 5]))  # long ones are planned as columns
    if draw(st.booleans()):
        return found
    wide = np.array(found, draw(st.sampled_from(["i8", "i2", ">i4"])))
    if draw(st.booleans()):
        return (wide % max(extent, 1)).astype(draw(st.sampled_from(["i8", "u8", ">u2", "u1"])))
    return wide


@st.composite
def boolean_lists(draw: Any, extent: int) -> Any:
    found = draw(st.lists(st.booleans(), min_size=extent, max_size=extent))
    return np.array(found, bool) if draw(st.booleans()) or not found else found


@st.composite
def orthogonal_keys(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    items = []
    for n in shape:
        kinds = [slices(n), index_lists(n), boolean_lists(n)] + ([positions(n)] if n else [])
        items.append(draw(st.one_of(kinds)))
    return tuple(items)


def orthogonal_index(key: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """(an index that pairs nothing up, the shape of what it selects without the axes of integers)."""
    rows, out = [], []
    for item, n in zip(key, shape, strict=True):
        everything = np.arange(n)
        if isinstance(item, int):
            rows.append(everything[item : item + 1 or None])
            continue
        if isinstance(item, slice):
            rows.append(everything[item])
        else:
            empty = np.zeros(0, bool if np.asarray(item).dtype == bool else int)
            rows.append(everything[np.asarray(item) if len(item) else empty])
        out.append(len(rows[-1]))
    return (np.ix_(*rows) if rows else ()), tuple(out)


@st.composite
def coordinate_keys(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """One integer array for every axis, of shapes that broadcast together; duplicates are common."""
    full = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    if 0 in shape:
        full = (0, *full[1:])
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    items: list[Any] = []
    for n in shape:
        own = full
        if math.prod(full) and draw(st.booleans()):
            own = tuple(1 if draw(st.booleans()) else length for length in full)
            own = own[draw(st.integers(0, len(own))) :]
        found = rng.integers(-n, n, own) if n else np.zeros(own, int)
        as_list = found.ndim and found.size and draw(st.booleans())
        items.append(found.tolist() if as_list or not found.ndim else found.astype(draw(st.sampled_from(["i8", "i4"]))))
    return tuple(items)


@st.composite
def masks(draw: Any, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))


@st.composite
def block_keys(draw: Any, array: gzarr.Array) -> tuple[tuple[Any, ...], tuple[slice, ...]]:
    """(chunk coordinates, the slices of elements that they mean)."""
    key: list[Any] = []
    means: list[slice] = []
    for lengths in array.chunk_sizes:
        edges = np.concatenate([[0], np.cumsum(lengths, dtype=int)]).tolist()
        n = len(lengths)
        if n and draw(st.booleans()):
            at = draw(positions(n))
            key.append(at)
            means.append(slice(edges[at % n], edges[at % n + 1]))
        else:
            low, high = sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))
            key.append(slice(low, high - n if high < n and draw(st.booleans()) else high))
            means.append(slice(edges[low], edges[high]))
    kept = draw(st.integers(0, len(key)))
    return tuple(key[:kept]), tuple(means[:kept])


# -- values ----------------------------------------------------------------------------------------------------------


@st.composite
def values_for(draw: Any, dtype: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """(a value to write, the same as a NumPy array that broadcasts): arrays, lists, scalars, gzarr arrays."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    own = shape
    if draw(st.integers(0, 3)) == 0:
        own = tuple(1 if draw(st.booleans()) else n for n in shape)[draw(st.integers(0, len(shape))) :]
    value = sample(dtype, own, rng) if own or dtype not in ("string", "variable_length_bytes") else None
    if value is None:
        single = sample(dtype, (1,), rng)
        return single[0], single[0]
    kind = draw(st.sampled_from(["array", "array", "strided", "lazy", "scalar", "list", "fill"]))
    if kind == "scalar" and own:
        value = sample(dtype, (1,), rng)[0]
        return value, value
    if kind == "list" and np.dtype(numpy_dtype(dtype)).kind in "biufO" and own and value.size:
        return value.tolist(), value
    if kind == "lazy" and own and 0 not in own:
        return gzarr.array(value, dtype=dtype, chunks=tuple(max(n // 2, 1) for n in own)), value
    if kind == "strided" and own:
        value = np.flip(np.repeat(value, 2, axis=-1), axis=0)[..., ::2]
    return value, value


def as_array(value: Any) -> np.ndarray:
    """NumPy's own scalars as arrays of their dtype, Python's strings as objects, a device's arrays on the host."""
    value = on_host(value)
    if type(value) not in (str, bytes):
        return np.asarray(value)
    single = np.empty((), object)
    single[()] = value
    return single


def same(found: Any, wanted: Any) -> None:
    """Equal in shape, dtype (but for its byte order) and values; NaNs are equal."""
    found, wanted = as_array(found), as_array(wanted)
    assert found.shape == wanted.shape
    if wanted.dtype.names is None:
        if found.shape or wanted.dtype.kind not in "SU":  # NumPy's text scalars forget how long they may be
            assert found.dtype.newbyteorder("=") == wanted.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, wanted)
        return
    assert found.dtype.names == wanted.dtype.names
    for name in wanted.dtype.names:
        same(found[name], wanted[name])
