"""Makes data/zarr3.zip with zarr-python 3.4, from the root of the repository: python -m tests.conformance.make_zarr3.

Needs cast-value-rs. Every data type, codec, layout and fill value that zarr-python 3.4 has, in both formats.
"""

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import zarr
import zarr.codecs
from zarr.core.dtype import VariableLengthBytes, VariableLengthUTF8
from zarr.storage import MemoryStore

from tests.conformance import cases, golden, layouts, samples

warnings.simplefilter("ignore")
zarr.config.set({"array.rectilinear_chunks": True})

SHAPE, CHUNKS = (5, 3), (2, 2)
VARIABLE = {"string": VariableLengthUTF8(), "bytes": VariableLengthBytes()}


def field_list(dtype: Any) -> Any:
    """Tuples of fields as NumPy takes them."""
    return [(name, field_list(item)) for name, item in dtype] if isinstance(dtype, tuple) else dtype


def store(values: Any, dtype: Any, **options: Any) -> dict[str, bytes]:
    """An array in a store of its own."""
    objects: dict[str, Any] = {}
    found = VARIABLE.get(dtype) if isinstance(dtype, str) else None
    zarr.create_array(MemoryStore(objects), dtype=found or field_list(dtype), **options)
    if values is not None:
        array = zarr.open_array(MemoryStore(objects), mode="r+")
        array[...] = values.astype(array.dtype)
    return {key: value.to_bytes() for key, value in objects.items()}


def described(objects: dict[str, bytes]) -> dict[str, Any]:
    """What zarr-python reads in a stored array."""
    from zarr.core.buffer import cpu

    buffers = {key: cpu.Buffer.from_bytes(value) for key, value in objects.items()}
    array = zarr.open_array(MemoryStore(buffers), mode="r")
    dtype = array.dtype
    shown = golden.native(dtype) if array.metadata.zarr_format == 3 else dtype
    facts: dict[str, Any] = {
        "dtype": shown.str if shown.names is None else np.lib.format.dtype_to_descr(shown),
        "fill_value": golden.fill_to_json(array.fill_value, dtype),
        "attributes": dict(array.attrs),
        "dimension_names": getattr(array.metadata, "dimension_names", None),
        "chunk_sizes": array.read_chunk_sizes,
    }
    if dtype.kind == "T":
        facts["dtype"] = "|O"
    codecs = getattr(array.metadata, "codecs", ())
    if len(codecs) > 1 and any(isinstance(codec, zarr.codecs.ShardingCodec) for codec in codecs):
        del facts["chunk_sizes"]  # zarr-python tells those of the shards
        return golden.entry(objects, array[...], **facts)
    for name in ("chunks", "shards"):
        try:
            facts[name] = getattr(array, name)
        except NotImplementedError:  # the chunks of a rectilinear grid
            continue
    undefined = array.fill_value is None and array.nchunks_initialized < array.nchunks
    return golden.entry(objects, None if undefined else np.asarray(array[...], dtype), **facts)


def exchanged(zarr_format: int) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Data types, codecs and layouts, as the exchange with an installed zarr-python has them."""
    big = ("zfpy", "pcodec", "bitround")
    for case in cases.sample(zarr_format, "zarr-python", 25):
        found = samples.as_dtype(case.dtype)
        nested_v2 = zarr_format == 2 and case.dtype == samples.STRUCTS[1]
        if nested_v2 or (found.byteorder == ">" and any(word in case.codecs.name for word in big)):
            continue  # zarr-python cannot
        if (case.dtype == "bytes" and not case.layout.shape) or ("zfpy" in case.codecs.name and zarr_format == 2):
            continue  # zarr-python cannot
        yield f"{case}", store(case.values, case.dtype, **case.options)


def data_types(zarr_format: int) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Every data type, plain."""
    for number, dtype in enumerate(samples.DTYPES_V3 if zarr_format == 3 else samples.DTYPES_V2):
        options = {"shape": SHAPE, "chunks": CHUNKS, "zarr_format": zarr_format}
        if zarr_format == 2 and dtype == samples.STRUCTS[1]:
            options["compressors"] = None
        if zarr_format == 3 and samples.as_dtype(dtype).byteorder == ">":
            options["serializer"] = layouts.v3("bytes", endian="big")
        yield f"v{zarr_format} dtype {dtype}", store(samples.values_of(dtype, SHAPE, number), dtype, **options)


def fill_values(zarr_format: int) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Every fill value of every data type, with nothing stored."""
    for dtype in samples.DTYPES_V3:
        for count, fill in enumerate(samples.fills(dtype)):
            options = {"shape": (3,), "chunks": (2,), "fill_value": fill, "zarr_format": zarr_format}
            try:
                yield f"v{zarr_format} fill {dtype} {count}", store(None, dtype, **options)
            except (TypeError, ValueError, OverflowError) as error:
                print(f"left out, because zarr-python cannot: {dtype} with fill value {fill!r}: {error}")


def extensions() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Rectilinear grids, scale_offset and cast_value, names of dimensions."""
    ints = np.arange(60, dtype="i4").reshape(6, 10)
    grids = (
        {"chunks": [[1, 2, 3], [4, 4, 2]]},
        {"chunks": [[1, 2, 3], 4]},
        {"chunks": [[1, 1, 1, 1, 2], [10]], "fill_value": 7},
        {"chunks": (1, 2), "shards": [[2, 4], [4, 6]]},
        {"chunks": [[6], [1] * 10], "chunk_key_encoding": {"name": "v2", "separator": "."}},
    )
    for number, options in enumerate(grids):
        yield f"rectilinear {number}", store(ints, "i4", shape=(6, 10), **options)
        words = samples.values_of("string", (6, 10), number)
        yield (
            f"rectilinear {number} of strings",
            store(words, "string", shape=(6, 10), **{k: v for k, v in options.items() if k != "fill_value"}),
        )
    scale, cast = zarr.codecs.ScaleOffset, zarr.codecs.CastValue
    floats = np.array([[0.25, 1.5, 3.0], [-3.0, 100.0, 12.25]], "f8")
    mapping = {"encode": [("NaN", -1), ("Infinity", 127)], "decode": [(-1, "NaN")]}
    casts = (
        [scale(offset=1.0, scale=4.0)],
        [scale(offset=-1.0, scale=4.0), cast(data_type="int16")],
        [cast(data_type="float32")],
        [cast(data_type="uint8", rounding="towards-zero", out_of_range="clamp")],
        [cast(data_type="int8", rounding="nearest-away", out_of_range="wrap")],
        [cast(data_type="int8", scalar_map=mapping, out_of_range="clamp", rounding="towards-negative")],
    )
    for (number, codecs), dtype in itertools.product(enumerate(casts), ("f8", "f4")):
        values = floats.astype(dtype)
        if number == 5:
            values[0, 0], values[1, 2] = np.nan, np.inf
        yield f"casts {number} of {dtype}", store(values, dtype, shape=(2, 3), chunks=(1, 2), filters=codecs)
    options = {"dimension_names": ["y", None], "attributes": {"units": "µm", "nested": {"a": [1, None, 2.5]}}}
    yield "names and attributes", store(ints, "i4", shape=(6, 10), chunks=(3, 5), **options)


def hierarchy(zarr_format: int) -> dict[str, Any]:
    """A group with groups, arrays, attributes and consolidated metadata."""
    objects: dict[str, Any] = {}
    memory = MemoryStore(objects)
    root = zarr.create_group(memory, zarr_format=zarr_format, attributes={"title": "golden é", "list": [1, None]})
    inner = root.create_group("a").create_group("b", attributes={"number": 2**60})
    array = inner.create_array("x", shape=(2, 3), chunks=(1, 2), dtype="i8", attributes={"is": "x"})
    array[...] = np.arange(6).reshape(2, 3)
    root.create_array("y", shape=(), dtype="f8")[...] = 0.5
    zarr.consolidate_metadata(memory)
    members = {
        "": {"attributes": dict(root.attrs)},
        "a": {"attributes": {}},
        "a/b": {"attributes": dict(inner.attrs)},
        "a/b/x": {"attributes": dict(array.attrs), "values": golden.values_to_json(array[...])},
        "y": {"attributes": {}, "values": golden.values_to_json(root["y"][...])},
    }
    return golden.entry({k: v.to_bytes() for k, v in objects.items()}, None) | {"members": members}


def main() -> None:
    """Make the file."""
    made = [part(f) for f in (2, 3) for part in (data_types, exchanged, fill_values)]
    arrays: dict[str, Any] = {}
    for name, stored in itertools.chain(*made, extensions()):
        assert name not in arrays, name
        try:
            arrays[name] = described(stored)
        except (TypeError, ValueError) as error:
            print(f"left out, because zarr-python cannot read it: {name}: {str(error)[:100]}")
    groups = {f"v{f} hierarchy": hierarchy(f) for f in (2, 3)}
    golden.write("zarr3", f"zarr-python {zarr.__version__}", arrays, groups)


if __name__ == "__main__":
    main()
