"""CPU functions of the codecs for Python objects: strings of variable length, JSON, MessagePack."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numcodecs.vlen import VLenBytes, VLenUTF8

from gzarr.codecs.registry import registered_factory
from gzarr.codecs.spec import ArrayRepr, Codec, Step, need_array
from gzarr.cpu.codecs.per_chunk import Bytes, Function, per_chunk, reinterpret
from gzarr.cpu.compiled.library import loop
from gzarr.errors import CodecError

Array = np.ndarray[Any, np.dtype[Any]]


def decode_items(data: Any, count: int, first: int, out: Array, *, text: bool) -> bool:
    """Make objects of the items of a buffer, from the first wanted one on, as many as ``out`` has elements.

    count: how many the buffer should hold. out: a new contiguous array of objects.
    Returns: whether that was possible; if not, another decoder says what is wrong with the buffer.
    """
    module = loop()
    return module is not None and module.decode_items(data, count, first, out, text)


def encode_items(objects: Array, *, text: bool) -> bytes | None:
    """Lay out the elements of a contiguous array of objects; None if one is no string (or no bytes)."""
    module = loop()
    return None if module is None else module.encode_items(objects, text)


#: Decodes rows of a stored chunk, a slice of its first axis, into an array of objects of their shape if one is given.
DecodeRows = Callable[[Bytes, slice, Array | None], Array]


def as_objects(array: Array) -> Array:
    """A flat array of objects in C order, writable because numcodecs demands it."""
    flat = np.ascontiguousarray(array.astype(object, copy=False)).reshape(-1)
    return flat if flat.flags.writeable else flat.copy()


def check_items(codec: str, data: Bytes, expected: int) -> None:
    """Raise if a buffer of length-prefixed items does not hold the expected number of them."""
    if len(data) < 4:
        raise ValueError(f"truncated: {len(data)} bytes are too few for the number of items, which takes 4")
    items = int.from_bytes(data[:4], "little")
    if items != expected:
        raise CodecError(f"{codec}: expected {expected} items, got {items}")
    if len(data) < 4 + 4 * items:
        raise ValueError(f"truncated: {len(data)} bytes are too few for the lengths of {items} items")


def vlen_decoder(name: str, codec: Any, chunk: ArrayRepr) -> Function:
    """Decodes items that follow their lengths. numcodecs checks each length against the end of the buffer."""
    n = chunk.nelements
    compiled, text = isinstance(codec, (VLenUTF8, VLenBytes)), isinstance(codec, VLenUTF8)

    def decode(data: Bytes) -> Array:
        check_items(name, data, n)
        items: Any = np.empty(n, object)
        if not compiled or not decode_items(data, n, 0, items, text=text):
            items = codec.decode(data)
        return reinterpret(name, items, chunk.dtype, chunk.shape)

    return decode


def vlen_encoder(codec: Any, *, text: bool) -> Function:
    """Encodes strings (or bytes): Python's own, or what only looks like them to others: NumPy's, bytearrays."""

    def encode(array: Array) -> Any:
        objects = as_objects(array)
        encoded = encode_items(objects, text=text)
        if encoded is not None:
            return encoded
        try:
            return codec.encode(objects)
        except (TypeError, ValueError):
            plain = np.empty(objects.size, object)
            for i, item in enumerate(objects):
                plain[i] = _plain(item, text=text)
            return codec.encode(plain)

    return encode


def _plain(item: Any, *, text: bool) -> Any:
    """An element as Python's own string, or bytes, if it is one."""
    if isinstance(item, np.ndarray) and not item.shape:
        item = item.item()
    if text:
        return str.__str__(item) if isinstance(item, str) else item
    return bytes(item) if isinstance(item, (bytes, bytearray, memoryview)) else item


def make_decode_rows(steps: Sequence[Step], codecs: Sequence[Codec], chunk: ArrayRepr) -> DecodeRows | None:
    """Return what decodes some rows of a stored chunk of strings (or bytes), without objects for the others.

    None if the chain is another one.
    """
    names = [step.spec.name for step in steps]
    if not chunk.shape or chunk.dtype != object or not names or names[0] not in CODECS:
        return None
    if any(registered_factory("cpu", name) is not None for name in names):
        return None
    n, text = chunk.nelements, names[0] == "vlen-utf8"
    row = n // chunk.shape[0] if n else 0

    def decode(data: Bytes, rows: slice, into: Array | None) -> Array:
        for codec in reversed(codecs[1:]):
            (data,) = codec.decode((data,))
        first, stop, step = rows.indices(chunk.shape[0])
        shape = stop - first, *chunk.shape[1:]
        if step == 1 and first < stop:
            items = np.empty(shape, object) if into is None or into.shape != shape else into
            if decode_items(data, n, first * row, items, text=text):
                return items
        whole: Array = codecs[0].decode((data,))[0]
        return whole[rows]

    return decode


def vlen_codec(step: Step) -> Codec:
    """The codecs vlen-utf8 and vlen-bytes; None is stored as an empty string."""
    name = step.spec.name
    codec = VLenUTF8() if name == "vlen-utf8" else VLenBytes()
    decode = vlen_decoder(name, codec, need_array(name, step.decoded))
    return per_chunk(name, decode, vlen_encoder(codec, text=name == "vlen-utf8"))


def json_decoder(config: Mapping[str, Any], chunk: ArrayRepr) -> Function:
    """Decodes numcodecs' json2: the items, the dtype and the shape in one list."""
    encoding, strict = config.get("encoding", "utf-8"), config.get("strict", True)

    def decode(data: Bytes) -> Array:
        return _listed("json2", json.loads(str(data, encoding), strict=strict), chunk)

    return decode


def msgpack_decoder(config: Mapping[str, Any], chunk: ArrayRepr) -> Function:
    """Decodes numcodecs' msgpack2: the items, the dtype and the shape in one list."""
    msgpack: Any = import_module("msgpack")
    raw = config.get("raw", False)
    return lambda data: _listed("msgpack2", msgpack.unpackb(data, raw=raw, strict_map_key=False), chunk)


def _listed(codec: str, document: Any, chunk: ArrayRepr) -> Array:
    if not isinstance(document, list) or len(document) < 2 or not isinstance(document[-1], list):
        raise ValueError("the document is not a list of items, a data type and a shape")
    items = document[:-2]
    # lists within the dimensions of the array are structure, those below are elements; without dimensions: one item
    for length in document[-1][1:]:
        if not all(isinstance(item, list) and len(item) == length for item in items):
            raise ValueError(f"the items do not fit the stored shape {document[-1]}")
        items = [element for item in items for element in item]
    flat = np.empty(len(items), object)
    for i, item in enumerate(items):
        flat[i] = item
    return reinterpret(codec, flat, chunk.dtype, chunk.shape)


CODECS = {"vlen-bytes": vlen_codec, "vlen-utf8": vlen_codec}
