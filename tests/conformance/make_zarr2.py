"""Makes data/zarr2.zip with zarr 2.18, from the root of the repository: python -m tests.conformance.make_zarr2.

Every data type, codec, object codec, order, separator and fill value that zarr 2 has.
"""

import itertools
from typing import Any

import numcodecs
import numpy as np
import zarr

from tests.conformance import codec_chains, golden, layouts, samples

SHAPE, CHUNKS = (5, 3), (2, 2)
WORDS = ["", "a", "bé", "日本語", "nul\0inside"]


def field_list(dtype: Any) -> Any:
    """Tuples of fields as NumPy takes them."""
    return [(name, field_list(item), *more) for name, item, *more in dtype] if isinstance(dtype, tuple) else dtype


def store(make: Any, values: Any, **options: Any) -> dict[str, Any]:
    """An array in a store of its own."""
    objects: dict[str, bytes] = {}
    array = make(store=objects, **options)
    if values is not None:
        array[...] = values
    return {key: bytes(value) for key, value in objects.items()}


def described(objects: dict[str, bytes]) -> dict[str, Any]:
    """What zarr 2 reads in a stored array."""
    array = zarr.open_array(dict(objects), mode="r")
    facts = {
        "dtype": array.dtype.str if array.dtype.names is None else np.lib.format.dtype_to_descr(array.dtype),
        "chunks": list(array.chunks),
        "order": array.order,
        "fill_value": golden.fill_to_json(array.fill_value, array.dtype),
        "attributes": array.attrs.asdict(),
    }
    pickled = any(codec.codec_id == "pickle" for codec in array.filters or ())
    undefined = array.fill_value is None and array.nchunks_initialized < array.nchunks
    values = None if pickled or undefined else array[...]
    return golden.entry(objects, values, **facts, pickled=pickled)


def data_types() -> Any:
    """Every data type, raw and through the default compressor."""
    sub = (("m", "<f4", (2, 2)), ("n", "|i1"))
    for number, dtype in enumerate((*samples.DTYPES_V2[:-2], sub)):
        found = np.dtype(field_list(dtype))
        values = np.zeros(SHAPE, found)
        if dtype is sub:
            values["m"] = np.arange(60, dtype="f4").reshape(5, 3, 2, 2)
            values["n"] = 3
        else:
            values = samples.values_of(dtype, SHAPE, number)
        compressor = {} if number % 2 else {"compressor": None}
        name = f"dtype {dtype if isinstance(dtype, str) else number}"
        yield name, store(zarr.create, values, shape=SHAPE, chunks=CHUNKS, dtype=found, **compressor)


def codecs() -> Any:
    """Every compressor and filter, over data types that it takes."""
    for number, codec in enumerate(codec_chains.CODECS_V2):
        fitting = [d for d in samples.DTYPES_V2[:-2] if codec.fits(d, layouts.EDGE)]
        if codec.name in ("zfpy", "pcodec", "bitround"):
            fitting = [d for d in fitting if d[0] != ">"]
        fitting = [d for d in fitting if not isinstance(d, tuple)]
        dtype = fitting[(7 * number) % len(fitting)]
        found = np.dtype(dtype)
        options = {k: v(found) if callable(v) else v for k, v in codec.options.items()}
        values = samples.values_of(dtype, SHAPE, number, smooth=True)
        made = store(
            zarr.create,
            values,
            shape=SHAPE,
            chunks=CHUNKS,
            dtype=found,
            compressor=options["compressors"],
            filters=options.get("filters"),
        )
        yield f"codec {codec.name} of {dtype}", made


def all_layouts() -> Any:
    """Orders, separators, shapes; chunks that are missing; with a filter, so that the order of elements matters."""
    shapes = (((), ()), ((7,), (3,)), ((0, 3), (2, 2)), (SHAPE, CHUNKS), ((3, 4, 5), (2, 2, 3)))
    filters = (None, [numcodecs.Delta("<i4")])
    for (shape, chunks), order, separator, filter_ in itertools.product(shapes, "CF", "./", filters):
        values = np.arange(int(np.prod(shape)), dtype="i4").reshape(shape)
        options = {"order": order, "dimension_separator": separator, "filters": filter_, "fill_value": 9}
        made = store(zarr.create, values, shape=shape, chunks=chunks, dtype="i4", **options)
        if len(shape) == 2 and made:
            made.pop(f"0{separator}0", None)
        yield f"layout {shape} {order} {separator} {'delta' if filter_ else 'plain'}", made


def objects() -> Any:
    """Every object codec, in both orders, with chunks that are missing."""
    text = np.array([WORDS[(3 * i) % 5] for i in range(15)], object).reshape(SHAPE)
    raw = np.empty(SHAPE, object)
    arrays = np.empty(SHAPE, object)
    mixed = np.empty(SHAPE, object)
    things = [1, 2.5, None, True, "text", [1, [2, "x"]], {"a": {"b": 1}}, -(2**40), 1e300, [], {}, "é", 0, False, ""]
    for number, index in enumerate(np.ndindex(*SHAPE)):
        raw[index] = WORDS[number % 5].encode() + bytes([number])
        arrays[index] = np.arange(number % 4, dtype="i8") * number
        mixed[index] = things[number]
    floats = np.empty(SHAPE, object)
    for number, index in enumerate(np.ndindex(*SHAPE)):
        floats[index] = np.arange(number % 3, dtype="f4") / 3
    made = (
        ("VLenUTF8", text, numcodecs.VLenUTF8()),
        ("VLenBytes", raw, numcodecs.VLenBytes()),
        ("VLenArray i8", arrays, numcodecs.VLenArray("i8")),
        ("VLenArray f4", floats, numcodecs.VLenArray("<f4")),
        ("JSON", mixed, numcodecs.JSON()),
        ("MsgPack", mixed, numcodecs.MsgPack()),
        ("Categorize", text, numcodecs.Categorize(WORDS, dtype=object)),
        ("Pickle", mixed, numcodecs.Pickle()),
    )
    for (name, values, codec), order in itertools.product(made, "CF"):
        options = {"shape": SHAPE, "chunks": CHUNKS, "dtype": object, "object_codec": codec, "order": order}
        stored = store(zarr.create, values, **options)
        if name.startswith("VLen") and order == "C":
            del stored["1.0"]
        yield f"object {name} {order}", stored
    for dtype in (str, bytes, "array:i4"):
        values = {str: text, bytes: raw}.get(dtype, arrays)
        yield f"object dtype {dtype}", store(zarr.create, values, shape=SHAPE, chunks=CHUNKS, dtype=dtype)
    fixed = np.array(WORDS, "U11")
    yield (
        "categories of U11",
        store(
            zarr.create, fixed, shape=(5,), chunks=(2,), dtype="U11", filters=[numcodecs.Categorize(WORDS[1:4], "U11")]
        ),
    )


def fill_values() -> Any:
    """Every fill value of every data type, with nothing stored."""
    for number, dtype in enumerate(samples.DTYPES_V2[:-2]):
        found = np.dtype(field_list(dtype))
        for count, fill in enumerate([None, *samples.fills(dtype)]):
            options = {"shape": (3,), "chunks": (2,), "dtype": found, "fill_value": fill}
            try:
                stored = store(zarr.create, None, **options)
                read = zarr.open_array(dict(stored), mode="r").fill_value
            except (TypeError, ValueError, OverflowError) as error:
                print(f"left out, because zarr 2 cannot: {found} with fill value {fill!r}: {error}")
                continue
            if fill is not None and golden.fill_to_json(read, found) != golden.fill_to_json(fill, found):
                print(f"left out, because zarr 2 reads another: {found} with fill value {fill!r}: {read!r}")
                continue
            yield f"fill {found.str} {number}.{count}", stored


def hierarchy() -> dict[str, Any]:
    """A group with groups, arrays, attributes and consolidated metadata."""
    stored: dict[str, bytes] = {}
    root = zarr.group(store=stored)
    root.attrs.update({"title": "golden é", "list": [1, 2.5, None], "deep": {"a": []}})
    inner = root.create_group("a/b")
    inner.attrs["number"] = 2**60
    array = inner.create_dataset("x", data=np.arange(6).reshape(2, 3), chunks=(1, 2))
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    root.create_dataset("y", data=np.array(["a", "bb"], "U2"))
    zarr.consolidate_metadata(stored)
    objects = {key: bytes(value) for key, value in stored.items()}
    members = {
        "": {"attributes": root.attrs.asdict()},
        "a": {"attributes": {}},
        "a/b": {"attributes": inner.attrs.asdict()},
        "a/b/x": {"attributes": array.attrs.asdict(), "values": golden.values_to_json(array[...])},
        "y": {"attributes": {}, "values": golden.values_to_json(root["y"][...])},
    }
    return golden.entry(objects, None) | {"members": members}


def main() -> None:
    """Make the file."""
    arrays = {}
    for name, stored in itertools.chain(data_types(), codecs(), all_layouts(), objects(), fill_values()):
        assert name not in arrays, name
        arrays[name] = described(stored)
    golden.write("zarr2", f"zarr {zarr.__version__}", arrays, {"hierarchy": hierarchy()})


if __name__ == "__main__":
    main()
