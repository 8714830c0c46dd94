"""NetCDF files of the classic formats (CDF-1, CDF-2, CDF-5) in place. They need no library.

Source: NetCDF Users Guide, "File Format Specifications".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from functools import partial
from math import prod
from typing import IO, Any, NamedTuple

import numpy as np

from gzarr.copying.sources import check_name, reading
from gzarr.errors import CopyError, StoreError
from gzarr.indexing.keys import Coords
from gzarr.metadata.conventions import MASK, UNLIMITED, as_json
from gzarr.storage.base import Buffer, Request, Store
from gzarr.virtual.documents import array_document, group_document
from gzarr.virtual.store import Chunks, Contents, Reader
from gzarr.virtual.table import RUN_NBYTES, cut_run

MAGIC = b"CDF\x01", b"CDF\x02", b"CDF\x05"
_TYPES = {1: "i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8"}
_TYPES |= {7: "u1", 8: ">u2", 9: ">u4", 10: ">i8", 11: ">u8"}
#: Names, attribute values and each variable's part of a record are padded to this.
_ALIGNMENT = 4
#: Records whose part of a variable is smaller are read many at a time, with those of the other variables.
_SMALL_NBYTES = 1 << 14


class Variable(NamedTuple):
    """A variable, as the header describes it.

    Attributes
    ----------
    dtype : numpy.dtype
        As stored.
    shape, dimensions
        Lengths and names of the axes.
    attributes : mapping
        As NumPy arrays and texts.
    begin : int
        Where its first byte is.
    record_nbytes : int
        Bytes from a record to the next; 0 for variables without records.
    """

    dtype: np.dtype[Any]
    shape: Coords
    dimensions: tuple[str, ...]
    attributes: Mapping[str, Any]
    begin: int
    record_nbytes: int

    @property
    def end(self) -> int:
        """Where the byte after its last one is."""
        if not self.record_nbytes:
            return self.begin + prod(self.shape) * self.dtype.itemsize
        part = prod(self.shape[1:]) * self.dtype.itemsize
        return self.begin + (self.shape[0] - 1) * self.record_nbytes + part if self.shape[0] else 0


class Header(NamedTuple):
    """What a file holds.

    Attributes
    ----------
    attributes : mapping
        Of the file.
    variables : mapping
        By name.
    unlimited : str or None
        Name of the dimension that records are along.
    end : int
        How many bytes the file should have at least.
    """

    attributes: Mapping[str, Any]
    variables: Mapping[str, Variable]
    unlimited: str | None
    end: int


def find_in_netcdf3(file: IO[bytes], store: Store, key: str) -> Contents:
    """Find what a file of a classic format holds. Raises: CopyError."""
    header = read_header(file, key)
    attributes = {name: _attribute(value, key, name) for name, value in header.attributes.items()}
    if header.unlimited is not None:
        attributes[UNLIMITED] = [header.unlimited]
    documents, arrays = {"zarr.json": group_document(attributes)}, dict[str, Chunks]()
    for name, variable in header.variables.items():
        chunks, arrays[check_name(name, key)] = _chunks(variable, store, key)
        of_array = {
            other: _attribute(value, f"{key}:{name}", other)
            for other, value in variable.attributes.items()
            if other != MASK
        }
        mask = variable.attributes.get(MASK)
        documents[f"{name}/zarr.json"] = array_document(
            variable.shape,
            variable.dtype,
            chunks,
            [],
            fill_value=None if mask is None else _element(mask, variable.dtype),
            attributes=of_array,
            dimension_names=variable.dimensions,
            mask_value=None if mask is None else _element(mask, variable.dtype),
        )
    return Contents(documents, arrays, ((store, key),))


def _element(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value for missing data as an element."""
    if isinstance(value, str):
        return np.bytes_(value.encode("latin-1")[:1])
    return np.asarray(value).astype(dtype.newbyteorder("=")).reshape(-1)[0]


def _attribute(value: Any, where: str, name: str) -> Any:
    try:
        return as_json(value[0] if isinstance(value, np.ndarray) and value.size == 1 else value)
    except (TypeError, ValueError) as error:
        raise CopyError(f"{where}: attribute {name!r} has no form in JSON: {error}; delete it") from error


def _chunks(variable: Variable, store: Store, key: str) -> tuple[Coords, Chunks]:
    """Shape of a virtual chunk, and where the chunks are."""
    shape, itemsize = variable.shape, variable.dtype.itemsize
    part = prod(shape[1:]) * itemsize
    if not variable.record_nbytes or variable.record_nbytes == part:
        return cut_run(shape, itemsize, variable.begin)
    if part >= _SMALL_NBYTES:
        return cut_run(shape, itemsize, variable.begin, stride=variable.record_nbytes)
    n = max(min(RUN_NBYTES // variable.record_nbytes, shape[0]), 1)
    counts = -(-shape[0] // n), *(min(length, 1) for length in shape[1:])
    return (n, *(max(length, 1) for length in shape[1:])), Reader(
        counts, partial(_read_records, variable, store, key, n)
    )


def _read_records(variable: Variable, store: Store, key: str, n: int, coords: Coords) -> Buffer:
    """A variable's part of some records. Raises: StoreError."""
    part = prod(variable.shape[1:]) * variable.dtype.itemsize
    first = coords[0] * n
    count = min(n, variable.shape[0] - first)
    begin, nbytes = variable.begin + first * variable.record_nbytes, (count - 1) * variable.record_nbytes + part
    found = store.get_one(Request(key, begin, nbytes))
    data = np.frombuffer(b"" if found is None else found, np.uint8)
    if data.size != nbytes:
        raise StoreError(f"{store}: {key!r} is cut off: {data.size} of {nbytes} bytes at {begin}; get the whole file")
    chunk = np.zeros((n, part), np.uint8)
    chunk[:count] = np.lib.stride_tricks.as_strided(data, (count, part), (variable.record_nbytes, 1))
    return chunk.reshape(-1)


# -- the header --------------------------------------------------------------------------------------------------


def read_header(file: IO[bytes], name: str) -> Header:
    """Read the header of a file. Raises: CopyError if it is damaged, or the file is cut off."""
    with reading(f"{name!r} as NetCDF"):
        header = _Parser(file).header()
        nbytes = file.seek(0, os.SEEK_END)
    if nbytes < header.end:
        raise CopyError(f"{name!r} is cut off: it has {nbytes} of {header.end} bytes; get the whole file")
    return header


class _Parser:
    """Reads a header from the beginning to its end."""

    def __init__(self, file: IO[bytes]) -> None:
        magic = file.read(4)
        self._file, self._version = file, magic[3]
        self._count = ">q" if self._version == 5 else ">i"

    def header(self) -> Header:
        """The whole header."""
        nrecords = max(self._number(), 0)  # -1 if it was unknown when the header was written
        lengths = [(self._name(), self._number()) for _ in range(self._list())]
        attributes = self._attributes()
        found = [self._variable(lengths) for _ in range(self._list())]
        parts = {
            name: prod(one.shape[1:]) * one.dtype.itemsize for name, one in found if one.shape and one.record_nbytes
        }
        # A single record variable is not padded.
        stride = sum(parts.values()) if len(parts) == 1 else sum(map(_padded, parts.values()))
        variables = {
            name: one._replace(shape=(nrecords, *one.shape[1:]), record_nbytes=stride) if name in parts else one
            for name, one in found
        }
        unlimited = next((name for name, length in lengths if not length), None)
        return Header(attributes, variables, unlimited, max((one.end for one in variables.values()), default=0))

    def _variable(self, lengths: list[tuple[str, int]]) -> tuple[str, Variable]:
        name = self._name()
        axes = [lengths[self._number()] for _ in range(self._number())]
        attributes = self._attributes()
        dtype = np.dtype(_TYPES[self._number(">i")])
        self._number()  # the size, which is wrong for large variables
        begin = self._number(">i" if self._version == 1 else ">q")
        shape, names = tuple(length for _, length in axes), tuple(axis for axis, _ in axes)
        return name, Variable(dtype, shape, names, attributes, begin, int(bool(shape) and shape[0] == 0))

    def _attributes(self) -> dict[str, Any]:
        return {self._name(): self._values() for _ in range(self._list())}

    def _values(self) -> Any:
        dtype = np.dtype(_TYPES[self._number(">i")])
        data = self._bytes(self._number() * dtype.itemsize)
        if dtype.kind == "S":
            return _text(data)
        return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))

    def _name(self) -> str:
        return self._bytes(self._number()).decode()

    def _list(self) -> int:
        self._number(">i")  # the tag of the list; zero if it is empty
        return self._number()

    def _number(self, form: str = "") -> int:
        form = form or self._count
        (value,) = struct.unpack(form, self._file.read(struct.calcsize(form)))
        return int(value)

    def _bytes(self, nbytes: int) -> bytes:
        data = self._file.read(_padded(nbytes))
        if len(data) < nbytes:
            raise EOFError("the header is cut off")
        return data[:nbytes]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
