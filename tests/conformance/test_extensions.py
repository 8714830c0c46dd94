"""What only some peers and versions have: varying chunks, casts, raw types, fields of structs, codec objects."""

import json

import numpy as np
import pytest

import gzarr
from gzarr.codecs import CastValueCodec, ScaleOffsetCodec
from tests.conformance.cases import Case
from tests.conformance.codec_chains import CODECS_V3, Codecs
from tests.conformance.layouts import EDGE, Layout
from tests.conformance.peers import Gzarr, TensorStore, ZarrPython, as_bytes, bits, exchange

RAW, DEFAULT = (next(c for c in CODECS_V3 if c.name == name) for name in ("raw", "default"))


def both_ways(peer, cases) -> None:
    ours = Gzarr()
    problems = [p for case in cases for pair in ((ours, peer), (peer, ours)) for p in exchange(*pair, case)]
    assert not problems, "\n".join(problems)


# -- chunks of varying length ----------------------------------------------------------------------------------------

RECTILINEAR = (
    Layout("varying", (6, 10), {"chunks": [[1, 2, 3], [4, 4, 2]]}),
    Layout("varying and regular", (6, 10), {"chunks": [[1, 2, 3], 4]}),
    Layout("long runs", (20, 3), {"chunks": [[1] * 12 + [4, 4], [3]]}),
    Layout(
        "varying line, v2 keys", (9,), {"chunks": [[5, 1, 3]], "chunk_key_encoding": {"name": "v2", "separator": "."}}
    ),
    Layout("varying shards", (6, 10), {"chunks": (1, 2), "shards": [[2, 4], [4, 6]]}),
)


def test_chunks_of_varying_length_pass_both_ways(zarr_python: ZarrPython) -> None:
    config = zarr_python.zarr.config
    if "rectilinear_chunks" not in config.get("array"):
        pytest.skip(f"{zarr_python.name} has no rectilinear chunk grids (3.4 has)")
    cases = [
        Case(dtype, codecs, layout, 3, seed)
        for layout in RECTILINEAR
        for seed, (dtype, codecs) in enumerate([("<i4", DEFAULT), (">f8", RAW), ("string", DEFAULT), ("|V7", DEFAULT)])
    ]
    with config.set({"array.rectilinear_chunks": True}):
        both_ways(zarr_python, cases)


def test_chunks_that_reach_past_the_end_are_read_by_zarr_python(zarr_python: ZarrPython) -> None:
    config = zarr_python.zarr.config
    if "rectilinear_chunks" not in config.get("array"):
        pytest.skip(f"{zarr_python.name} has no rectilinear chunk grids (3.4 has)")
    layout = Layout("a chunk past the end", (5, 10), {"chunks": [[2, 2, 2], [7, 7]]})  # zarr-python makes no such array
    case = Case("<i4", DEFAULT, layout, 3)
    with config.set({"array.rectilinear_chunks": True}):
        stored = Gzarr().create(case)
        assert bits(zarr_python.read(stored).values) == bits(case.values)
        changed = zarr_python.write(stored, (slice(3, 5), slice(5, 9)), np.full((2, 4), 7, "i4"))
    expected = case.values
    expected[3:5, 5:9] = 7
    assert np.array_equal(gzarr.open_array(changed)[...], expected)


# -- casts -----------------------------------------------------------------------------------------------------------


def _zarr_codec(zarr_python: ZarrPython, name: str):
    codec = getattr(zarr_python.zarr.codecs, name, None)
    if codec is None:
        pytest.skip(f"{zarr_python.name} has no {name} codec (3.4 has)")
    return codec


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i4", "|u1"])
def test_scale_offset_passes_both_ways(zarr_python: ZarrPython, dtype: str) -> None:
    _zarr_codec(zarr_python, "ScaleOffset")
    scales = [{"offset": 0, "scale": 2}, {}] if dtype[1] != "f" else [{"offset": 1.5, "scale": 4.0}, {"scale": 0.5}, {}]
    layouts = (EDGE, Layout("shards", (11, 13), {"chunks": (4, 5), "shards": (8, 10)}))
    codecs = [
        Codecs(str(c), {"filters": [{"name": "scale_offset", "configuration": c}]}, "fiu", lossless=True)
        for c in scales
    ]
    # without a fill value of its own: the numbers of a case, scaled, must fit the type
    both_ways(zarr_python, [Case(dtype, c, layout, 3, 2) for c in codecs for layout in layouts])


CASTS = (
    ("<f8", {"data_type": "int16"}),
    ("<f4", {"data_type": "uint8", "rounding": "towards-zero", "out_of_range": "clamp"}),
    ("<i8", {"data_type": "int8", "out_of_range": "wrap"}),
    ("<f8", {"data_type": "float32"}),
    ("<f8", {"data_type": "int8", "scalar_map": {"encode": [["NaN", -1]], "decode": [[-1, "NaN"]]}}),
)


@pytest.mark.parametrize(("dtype", "configuration"), CASTS, ids=str)
def test_cast_value_passes_both_ways(zarr_python: ZarrPython, dtype: str, configuration: dict) -> None:
    _zarr_codec(zarr_python, "CastValue")
    pytest.importorskip("cast_value_rs", reason="zarr-python casts with cast-value-rs, which is not installed")
    codecs = Codecs(str(configuration), {"filters": [{"name": "cast_value", "configuration": configuration}]}, "fiu")
    both_ways(zarr_python, [Case(dtype, codecs, EDGE, 3, seed) for seed in (0, 1)])


def test_scale_and_cast_together_are_read_here_as_written_there(zarr_python: ZarrPython) -> None:
    scale = _zarr_codec(zarr_python, "ScaleOffset")
    cast = _zarr_codec(zarr_python, "CastValue")
    pytest.importorskip("cast_value_rs", reason="zarr-python casts with cast-value-rs, which is not installed")
    from zarr.storage import MemoryStore

    values = np.array([[0.25, 1.5, np.nan], [-3.0, 100.0, 1e9]], "f8")
    mapping = {"encode": [("NaN", -(2**15))], "decode": [(-(2**15), "NaN")]}
    theirs = [scale(offset=-1.0, scale=10.0), cast(data_type="int16", out_of_range="clamp", scalar_map=mapping)]
    store: dict = {}
    array = zarr_python.zarr.create_array(MemoryStore(store), shape=(2, 3), chunks=(1, 2), dtype="f8", filters=theirs)
    array[...] = values
    stored = as_bytes(store)
    found = gzarr.open_array(stored)
    assert bits(found[...]) == bits(array[...])
    assert isinstance(found.filters[0], ScaleOffsetCodec)
    assert isinstance(found.filters[1], CastValueCodec)
    # and the same array made here, from their codec objects, is stored in the same bytes
    ours: dict = {}
    made = gzarr.create_array(ours, shape=(2, 3), chunks=(1, 2), dtype="f8", filters=theirs)
    made[...] = values
    assert {key: ours[key] for key in ours if key != "zarr.json"} == {k: stored[k] for k in stored if k != "zarr.json"}


# -- TensorStore -----------------------------------------------------------------------------------------------------


def _field(tensorstore: TensorStore, stored: dict, field: str, values=None):
    """A field of a struct: read, or written if values are given (then the objects are returned)."""
    context, store = tensorstore._load(stored)
    spec = tensorstore._spec(3 if "zarr.json" in stored else 2) | {"field": field}
    array = tensorstore.ts.open(spec, open=True, context=context).result()
    if values is None:
        return np.asarray(array.read().result())
    array.write(values).result()
    return tensorstore._dump(store)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_structs_are_read_and_written_field_by_field_by_tensorstore(tensorstore, zarr_format: int, order: str) -> None:
    dtype = np.dtype([("a", order + "i4"), ("b", order + "f8"), ("c", "|u1")])
    values = np.zeros((5, 3), dtype)
    for name in dtype.names:
        values[name] = np.arange(15).reshape(5, 3) * 3
    stored: dict = {}
    options = {"compressors": None} if zarr_format == 3 else {"compressor": None}
    gzarr.create_array(stored, shape=(5, 3), chunks=(2, 2), dtype=dtype, zarr_format=zarr_format, **options)[...] = (
        values
    )
    for name in dtype.names:
        assert bits(_field(tensorstore, stored, name)) == bits(values[name]), name
    changed = _field(tensorstore, stored, "b", np.full((5, 3), -1.5))
    found = gzarr.open_array(changed)[...]
    assert np.array_equal(found["b"], np.full((5, 3), -1.5))
    for name in ("a", "c"):
        assert np.array_equal(found[name], values[name]), name


@pytest.mark.parametrize("dtype", ["S4", "V3"])
def test_fixed_length_bytes_are_copied_by_tensorstore(tensorstore, dtype: str) -> None:
    """NumPy cannot take its char and byte elements, so it copies from an array made here to one of its own."""
    values = np.array([b"ab", b"", b"abcd", b"\xff\0c", b"z"]).astype(dtype) if dtype[0] == "S" else None
    if values is None:
        values = np.arange(15, dtype="u1").view(dtype)
    stored: dict = {}
    gzarr.create_array(stored, shape=(5,), chunks=(2,), dtype=dtype, zarr_format=2, fill_value=None)[...] = values
    source, _ = tensorstore._open(stored, write=False)
    document = {
        "shape": [5],
        "chunks": [3],
        "dtype": f"|{dtype}",
        "fill_value": None,
        "compressor": {"id": "zlib", "level": 1},
    }
    context, store = tensorstore._load({})
    spec = tensorstore._spec(2) | {"metadata": document}
    tensorstore.ts.open(spec, create=True, context=context).result().write(source).result()
    found = gzarr.open_array(tensorstore._dump(store))
    assert found.dtype == np.dtype(dtype)
    assert found.fill_value is None
    assert found[...].tobytes() == values.tobytes()


def test_labels_of_tensorstore_are_dimension_names(tensorstore) -> None:
    case = Case("<i4", RAW, EDGE, 3, extra={"dimension_names": ["x", None]})
    both_ways(tensorstore, [case])
    assert gzarr.open_array(tensorstore.create(case)).dimension_names == ("x", None)


# -- codec objects of zarr-python ------------------------------------------------------------------------------------


def test_codec_objects_of_zarr_python_make_the_same_array_here(zarr_python: ZarrPython) -> None:
    from zarr import codecs as z
    from zarr.codecs import numcodecs as zn
    from zarr.storage import MemoryStore

    sharding = z.ShardingCodec(
        chunk_shape=(2, 3), codecs=[z.BytesCodec(), z.GzipCodec(level=1)], index_location="start"
    )
    for options in (
        {"compressors": z.BloscCodec(cname="lz4", clevel=3, shuffle="bitshuffle")},
        *({"compressors": z.BloscCodec(), "dtype": dtype} for dtype in ("i1", "f8", "c16")),
        {"compressors": [z.GzipCodec(level=2), z.Crc32cCodec()]},
        {"compressors": z.ZstdCodec(level=3, checksum=True), "filters": [z.TransposeCodec(order=(1, 0))]},
        {"compressors": None, "serializer": z.BytesCodec(endian="big")},
        {"compressors": None, "serializer": sharding},
        {"compressors": zn.BZ2(level=2), "filters": [zn.Delta(dtype="<i4")]},
        {"compressors": [zn.Shuffle(elementsize=4), zn.Zlib(level=2)]},
    ):
        keywords = {"shape": (8, 9), "chunks": (4, 9), "dtype": "i4", "fill_value": 7, **options}
        values = np.arange(72, dtype=keywords["dtype"]).reshape(8, 9)
        ours: dict = {}
        theirs: dict = {}
        gzarr.create_array(ours, **keywords)[...] = values
        zarr_python.zarr.create_array(MemoryStore(theirs), **keywords)[...] = values
        stored = as_bytes(theirs)
        assert json.loads(ours["zarr.json"])["codecs"] == json.loads(stored["zarr.json"])["codecs"], options
        assert sorted(ours) == sorted(stored), options
        assert np.array_equal(gzarr.open_array(stored)[...], values), options
        assert np.array_equal(zarr_python.read(dict(ours)).values, values), options
