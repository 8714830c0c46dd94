"""Makes data/tensorstore.zip with TensorStore, from the root of the repository.

python -m tests.conformance.make_tensorstore

Every data type that NumPy can hold, every codec and layout that TensorStore has, in both formats.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorstore

from tests.conformance import codec_chains, golden, layouts, samples

SHAPE, CHUNKS = (5, 3), (2, 2)


def store(driver: str, metadata: dict[str, Any], values: Any, selection: Any = ...) -> dict[str, Any]:
    """Create an array, write it, and say what is stored and read back."""
    context = tensorstore.Context()
    keys = {"driver": "memory", "path": "a/"}
    spec = {"driver": driver, "kvstore": keys, "metadata": metadata}
    array = tensorstore.open(spec, create=True, context=context).result()
    if values is not None:
        array[selection].write(values).result()
    objects = tensorstore.KvStore.open(keys, context=context).result()
    stored = {key.decode(): bytes(objects[key]) for key in objects.list().result()}
    array = tensorstore.open({"driver": driver, "kvstore": keys}, open=True, context=context).result()
    found = array.dtype.numpy_dtype
    layout = array.chunk_layout
    chunks, shards = list(layout.read_chunk.shape or ()), list(layout.write_chunk.shape or ())
    labels = [label or None for label in array.domain.labels]
    fill = array.fill_value
    facts = {
        "name": found.name,
        "chunks": chunks,
        "shards": None if shards == chunks else shards,
        "fill_value": golden.fill_to_json(np.zeros((), found)[()] if fill is None else fill, found),
        "dimension_names": labels if any(labels) else None,
        "attributes": metadata.get("attributes", {}),
    }
    if driver == "zarr" and metadata.get("fill_value") is None:
        facts["fill_value"] = None
    missing = driver == "zarr" and metadata.get("fill_value") is None and values is None
    return golden.entry(stored, None if missing else np.asarray(array.read().result()), **facts)


def v3(dtype: Any, codecs: Any = (), **changed: Any) -> dict[str, Any]:
    """A zarr.json; ``codecs`` follow the bytes codec."""
    found = samples.as_dtype(dtype)
    endian = {"endian": "big" if found.byteorder == ">" else "little"} if found.itemsize > 1 else {}
    return {
        "shape": SHAPE,
        "data_type": found.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNKS}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": changed.pop("fill_value", 0 if found.kind != "c" else [0, 0]) if found.kind != "b" else False,
        "codecs": [*changed.pop("first", ()), layouts.v3("bytes", **endian), *codecs],
        **changed,
    }


def v2(dtype: Any, compressor: Any = None, **changed: Any) -> dict[str, Any]:
    """A .zarray."""
    name = dtype if dtype in samples.ML else samples.as_dtype(dtype).str
    document = {"shape": SHAPE, "chunks": CHUNKS, "dtype": name, "compressor": compressor, "fill_value": None}
    return document | changed


def native_values(dtype: Any, shape: Any, seed: int) -> Any:
    """Values in the byte order of this machine."""
    values = samples.values_of(dtype, shape, seed)
    return values.astype(values.dtype.newbyteorder("=")) if dtype not in samples.ML else values


def data_types() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every data type, plain, with fill values."""
    for number, dtype in enumerate((*samples.NUMBERS, *samples.ML)):
        values = native_values(dtype, SHAPE, number)
        yield f"v3 {dtype}", store("zarr3", v3(dtype), values)
        yield f"v2 {dtype}", store("zarr", v2(dtype), values)
        found = samples.as_dtype(dtype)
        if found.kind in "iuf" or (dtype in samples.ML and dtype != "float8_e8m0fnu"):
            yield f"v3 {dtype} of ones", store("zarr3", v3(dtype, fill_value=1), None)
            yield f"v2 {dtype} of ones", store("zarr", v2(dtype, fill_value=_one(dtype)), None)
        if found.kind == "f":
            for word in ("NaN", "Infinity", "-Infinity"):
                yield f"v3 {dtype} of {word}", store("zarr3", v3(dtype, fill_value=word), None)
                yield f"v2 {dtype} of {word}", store("zarr", v2(dtype, fill_value=word), None)
            payload = np.array(math.nan, found.newbyteorder(">")).tobytes()[:-1].hex() + "01"
            yield f"v3 {dtype} of a NaN", store("zarr3", v3(dtype, fill_value=f"0x{payload}"), None)


def _one(dtype: Any) -> Any:
    return "Ag==" if dtype == "float4_e2m1fn" else 1  # written as base64 in v2


def codecs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every codec, over data types of all sizes."""
    dtypes = ("|u1", "<i2", "<f4", ">f8", "<c16", "bfloat16")
    for number, codec in enumerate(codec_chains.codecs_of(3, "tensorstore")):
        dtype = dtypes[number % len(dtypes)]
        extra = codec.options.get("compressors") or ()
        yield f"v3 {codec.name} of {dtype}", store("zarr3", v3(dtype, extra), native_values(dtype, SHAPE, number))
    for number, codec in enumerate(codec_chains.codecs_of(2, "tensorstore")):
        compressor = codec.options["compressors"]
        config = None if compressor is None else compressor.get_config()
        if config and config["id"] == "zstd":
            config.pop("checksum", None)
        dtype = dtypes[number % len(dtypes)]
        yield f"v2 {codec.name} of {dtype}", store("zarr", v2(dtype, config), native_values(dtype, SHAPE, number))


def all_layouts() -> Iterator[tuple[str, dict[str, Any]]]:
    """Keys, orders, shards, names, missing chunks."""
    values = np.arange(15, dtype="i4").reshape(SHAPE)
    for name, separator in itertools.product(("default", "v2"), "./"):
        keys = {"name": name, "configuration": {"separator": separator}}
        yield f"v3 keys {name} {separator}", store("zarr3", v3("<i4", chunk_key_encoding=keys), values)
        document = v3("<i4", shape=[], chunk_key_encoding=keys)
        document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": []}}
        yield f"v3 keys {name} {separator} without dimensions", store("zarr3", document, np.int32(7))
    for order, separator in itertools.product("CF", "./"):
        document = v2("<i4", order=order, dimension_separator=separator, fill_value=5)
        yield f"v2 {order} {separator}", store("zarr", document, values[:2], np.s_[:2])
    names = {"dimension_names": ["y", None], "attributes": {"units": "µm", "deep": {"a": [1, None]}}}
    yield "v3 names and attributes", store("zarr3", v3("<i4", **names), values)
    first = [layouts.transpose(1, 0)]
    yield "v3 transposed", store("zarr3", v3("<i4", first=first, fill_value=5), values[:2], np.s_[:2])
    for location, order in itertools.product(("start", "end"), (None, [1, 0])):
        inner = [layouts.v3("bytes", endian="big"), layouts.v3("gzip", level=1), {"name": "crc32c"}]
        index = [layouts.v3("bytes", endian="little"), {"name": "crc32c"}]
        options = {"chunk_shape": [1, 2], "codecs": inner, "index_codecs": index, "index_location": location}
        outer = [layouts.v3("sharding_indexed", **options)]
        if order is not None:
            options["codecs"] = [layouts.transpose(*order), *inner]
        document = v3("<i4", fill_value=9) | {"codecs": outer}
        document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [4, 4]}}
        label = f"v3 shards {location} {order}"
        yield label, store("zarr3", document, values)
        yield f"{label}, a part", store("zarr3", document, values[1:3, :1], np.s_[1:3, :1])
        deep = dict(options) | {"chunk_shape": [2, 2], "codecs": outer, "index_codecs": index}
        document = document | {"codecs": [layouts.v3("sharding_indexed", **deep)]}
        made = store("zarr3", document, values[:, 1:], np.s_[:, 1:])
        del made["facts"]["chunks"]  # of the innermost level, where zarr-python and gzarr tell the next
        yield f"{label} in shards", made


def main() -> None:
    """Make the file."""
    arrays: dict[str, Any] = {}
    for name, made in itertools.chain(data_types(), codecs(), all_layouts()):
        assert name not in arrays, name
        arrays[name] = made
    golden.write("tensorstore", f"tensorstore {importlib.metadata.version('tensorstore')}", arrays, {})


if __name__ == "__main__":
    main()
