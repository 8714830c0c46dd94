"""gzarr, zarr-python and TensorStore behind one interface: create, read and change an array that is a dict of bytes."""

import contextlib
import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import gzarr
from gzarr.hierarchy.new_metadata import array_meta
from gzarr.hierarchy.options import ArrayOptions
from gzarr.indexing.grid import is_regular
from gzarr.metadata.documents import documents
from tests.conformance.cases import Case
from tests.conformance.samples import VARIABLE, Dtype, as_dtype

Objects = dict[str, bytes]
Selection = tuple[slice, ...]


@dataclass
class Seen:
    """What a peer sees in an array.

    Attributes:
        values: its elements.
        facts: dtype, shape, chunks, shards, fill value, attributes, dimension names; those that the peer tells.
    """

    values: np.ndarray[Any, Any]
    facts: dict[str, Any]


class Peer(Protocol):
    """An implementation of Zarr."""

    name: str

    def create(self, case: Case) -> Objects:
        """Create the array of a case and write its values."""
        ...

    def read(self, objects: Objects) -> Seen:
        """Open an array and read it whole."""
        ...

    def write(self, objects: Objects, selection: Selection, values: Any) -> Objects:
        """Open an array and change a part of it."""
        ...


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype in little-endian byte order, without padding: what v3 data types do not tell apart."""
    if dtype.names is None:
        return dtype.newbyteorder("<")
    return np.dtype([(name, native(dtype[name])) for name in dtype.names])


def bits(values: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """Values in a form that is equal where all bits are: bytes in little-endian order, or a list of Python objects."""
    array = np.asarray(values, dtype)
    if array.dtype.kind in "OT":
        return [type_and_value(item) for item in array.reshape(-1).tolist()]
    return np.ascontiguousarray(array).astype(native(array.dtype)).tobytes()


def type_and_value(item: Any) -> Any:
    """An object with its type, so that 1, 1.0 and True differ; arrays as bits."""
    if isinstance(item, np.ndarray):
        return ("array", item.dtype.str, item.shape, bits(item))
    if isinstance(item, float):
        return ("float", "nan" if math.isnan(item) else item)
    if isinstance(item, list | tuple):
        return (type(item).__name__, [type_and_value(part) for part in item])
    return (type(item).__name__, item)


def fill_bits(value: Any, dtype: np.dtype[Any]) -> Any:
    """A fill value as `bits`."""
    if value is None:
        return None
    if dtype.kind in "OT":
        return type_and_value(value.item() if isinstance(value, np.generic) else value)
    array = value if isinstance(value, np.generic) else np.asarray(value)
    return bits(array.astype(dtype))


class Gzarr:
    """gzarr itself."""

    name = "gzarr"

    def create(self, case: Case) -> Objects:
        store: Objects = {}
        array = gzarr.create_array(store, dtype=dtype_here(case.dtype), **case.options)
        array[...] = case.values
        return store

    def read(self, objects: Objects) -> Seen:
        array = gzarr.open_array(objects, "r")
        facts = {
            "dtype": str(native(array.dtype)) if array.zarr_format == 3 else str(array.dtype),
            "shape": array.shape,
            "chunks": array.chunks if is_regular(array.metadata.grid) or array.shards else "varying",
            "shards": array.shards if is_regular(array.metadata.grid) or array.shards is None else "varying",
            "chunk_sizes": array.chunk_sizes,
            "fill_value": fill_bits(array.fill_value, array.dtype),
            "attributes": array.attrs.asdict(),
            "dimension_names": array.dimension_names,
        }
        return Seen(np.asarray(array[...], array.dtype), facts)

    def write(self, objects: Objects, selection: Selection, values: Any) -> Objects:
        store = dict(objects)
        gzarr.open_array(store, "r+")[selection] = values
        return store


def dtype_here(dtype: Dtype) -> Any:
    """The dtype of a case as gzarr takes it."""
    return fields_of(dtype) if isinstance(dtype, tuple) else dtype


def fields_of(dtype: Dtype) -> Any:
    """Tuples of fields as NumPy takes them."""
    return [(name, fields_of(item)) for name, item in dtype] if isinstance(dtype, tuple) else dtype


class ZarrPython:
    """zarr-python, of whatever version is installed."""

    def __init__(self) -> None:
        import zarr

        self.zarr = zarr
        self.name = f"zarr-python {zarr.__version__}"

    @contextlib.contextmanager
    def _opened(self, objects: Objects, mode: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        from zarr.core.buffer import cpu
        from zarr.storage import MemoryStore

        store = {key: cpu.Buffer.from_bytes(value) for key, value in objects.items()}
        yield self.zarr.open_array(MemoryStore(store), mode=mode), store

    def create(self, case: Case) -> Objects:
        from zarr.storage import MemoryStore

        store: dict[str, Any] = {}
        with quiet():
            self.zarr.create_array(MemoryStore(store), dtype=self._dtype(case.dtype), **case.options)
            # Opened anew: an array that was just made in another byte order is not what its metadata say.
            array = self.zarr.open_array(MemoryStore(store), mode="r+")
            array[...] = case.values.astype(array.dtype)  # it would store the byte order of what it is given
        return as_bytes(store)

    def read(self, objects: Objects) -> Seen:
        with quiet(), self._opened(objects, "r") as (array, _):
            dtype = array.dtype
            strings = dtype.kind == "T"
            facts = {
                "dtype": "object" if strings else str(native(dtype) if array.metadata.zarr_format == 3 else dtype),
                "shape": array.shape,
                "shards": self._or_varying(array, "shards"),
                "chunks": self._or_varying(array, "chunks"),
                "fill_value": fill_bits(array.fill_value, dtype),
                "attributes": dict(array.attrs),
                "dimension_names": getattr(array.metadata, "dimension_names", None),
            }
            if hasattr(array, "read_chunk_sizes"):  # 3.4
                facts["chunk_sizes"] = array.read_chunk_sizes
            return Seen(np.asarray(array[...], dtype), facts)

    def write(self, objects: Objects, selection: Selection, values: Any) -> Objects:
        with quiet(), self._opened(objects, "r+") as (array, store):
            array[selection] = values.astype(array.dtype)
            return as_bytes(store)

    @staticmethod
    def _or_varying(array: Any, name: str) -> Any:
        try:
            return getattr(array, name)
        except NotImplementedError:
            return "varying"

    @staticmethod
    def _dtype(dtype: Dtype) -> Any:
        if dtype in VARIABLE:
            from zarr.core.dtype import VariableLengthBytes, VariableLengthUTF8

            return VariableLengthUTF8() if dtype == "string" else VariableLengthBytes()
        return fields_of(dtype)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """zarr-python warns that its own codecs and data types are outside the specification."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def as_bytes(store: dict[str, Any]) -> Objects:
    """zarr-python's objects as bytes."""
    return {key: value.to_bytes() for key, value in store.items()}


class TensorStore:
    """TensorStore. It creates from a metadata document, which it parses strictly and writes in its own words."""

    def __init__(self) -> None:
        import tensorstore

        self.ts = tensorstore
        self.name = "tensorstore"

    def _spec(self, zarr_format: int) -> dict[str, Any]:
        return {"driver": "zarr3" if zarr_format == 3 else "zarr", "kvstore": {"driver": "memory", "path": "a/"}}

    def _load(self, objects: Objects) -> tuple[Any, Any]:
        context = self.ts.Context()
        store = self.ts.KvStore.open({"driver": "memory", "path": "a/"}, context=context).result()
        for key, value in objects.items():
            store[key] = value
        return context, store

    def _dump(self, store: Any) -> Objects:
        return {key.decode(): bytes(store[key]) for key in store.list().result()}

    def create(self, case: Case) -> Objects:
        options = ArrayOptions(dtype=dtype_here(case.dtype), **case.options)
        document = json.loads(documents(array_meta(options), "")[-1][1])
        context, store = self._load({})
        spec = self._spec(case.zarr_format) | {"metadata": document}
        array = self.ts.open(spec, create=True, context=context).result()
        array[...] = case.values.astype(native(case.values.dtype))
        return self._dump(store)

    def _open(self, objects: Objects, *, write: bool) -> tuple[Any, Any]:
        context, store = self._load(objects)
        spec = self._spec(3 if "zarr.json" in objects else 2)
        return self.ts.open(spec, open=True, read=True, write=write, context=context).result(), store

    def read(self, objects: Objects) -> Seen:
        array, _ = self._open(objects, write=False)
        layout = array.chunk_layout
        chunks = layout.read_chunk.shape or ()
        shards = layout.write_chunk.shape or ()
        dtype = array.dtype.numpy_dtype
        labels = tuple(label or None for label in array.domain.labels)
        facts = {
            "shape": tuple(array.shape),
            "chunks": tuple(chunks),
            "shards": None if shards == chunks else tuple(shards),
            "dtype": str(dtype),  # without the byte order
            "fill_value": fill_bits(array.fill_value, dtype),
            "dimension_names": labels if any(labels) else None,
        }
        return Seen(np.asarray(array.read().result()), facts)

    def write(self, objects: Objects, selection: Selection, values: Any) -> Objects:
        array, store = self._open(objects, write=True)
        array[selection].write(np.asarray(values).astype(native(np.asarray(values).dtype))).result()
        return self._dump(store)


#: zarr-python tells the chunks within shards only where the sharding codec stands alone.
OWN_SHARDING = frozenset({"chunks", "shards", "chunk_sizes"})


def exchange(writer: Peer, reader: Peer, case: Case) -> list[str]:
    """Write a case with one peer, read and change it with the other, read it back with the first.

    Returns: what is wrong, as sentences; empty if nothing is.
    """
    ignored = OWN_SHARDING if "serializer" in case.layout.options else frozenset()
    if "tensorstore" in (writer.name, reader.name) and case.zarr_format == 2:
        ignored |= {"dtype"}  # it does not tell the byte order
    try:
        stored = writer.create(case)
        own, found = writer.read(stored), reader.read(stored)
        problems = differences(own, found, ignored)
        if case.codecs.lossless and bits(own.values) != bits(case.values):
            problems.append("the writer does not read back what it wrote")
        fill = case.options.get("fill_value")
        if fill is not None and fill == fill:  # Zarr v2 has one NaN only
            dtype = as_dtype(case.dtype)
            if own.facts["fill_value"] != fill_bits(fill, dtype):
                problems.append(f"the writer does not read back the fill value {fill!r}")
        if case.layout.shape and own.values.size:
            selection = tuple(slice(1, max(2, n - 2)) for n in case.layout.shape)
            part = case.values[tuple(slice(None, None, -1) for _ in case.layout.shape)][selection]
            changed = reader.write(stored, selection, part)
            problems += [f"changed: {p}" for p in differences(writer.read(changed), reader.read(changed), ignored)]
            expected = case.values.copy()
            expected[selection] = part
            if case.codecs.lossless and bits(writer.read(changed).values) != bits(expected):
                problems.append("changed: not the values that were written")
    except Exception as error:  # noqa: BLE001  whatever a peer raises is the finding
        problems = [f"{type(error).__name__}: {str(error)[:300]}"]
    return [f"{case}: {writer.name} -> {reader.name}: {problem}" for problem in problems]


def differences(own: Seen, found: Seen, ignored: frozenset[str] = frozenset()) -> list[str]:
    """What two peers see differently."""
    problems = [
        f"{name} {own.facts[name]!r} != {found.facts[name]!r}"
        for name in own.facts
        if name in found.facts and name not in ignored and own.facts[name] != found.facts[name]
    ]
    if bits(own.values) != bits(found.values):
        problems.append(f"values {own.values.reshape(-1)[:6]} != {found.values.reshape(-1)[:6]}")
    return problems
