"""Files whose elements lie one after the other without compression: .npy and FITS.

Source: NumPy, "NPY format"; FITS Standard 4.0, sections 3, 4 and 7.1.
"""

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import IO, Any, NamedTuple

import numpy as np

from gzarr.copying.sources import check_name, reading
from gzarr.errors import CopyError, StoreError
from gzarr.indexing.keys import Coords
from gzarr.metadata.conventions import MASK, UNLIMITED, UNREADABLE, as_json
from gzarr.storage.base import Buffer, Request, Store
from gzarr.virtual.documents import array_document, group_document, has_one_order
from gzarr.virtual.store import Chunks, Contents, Reader, one_by_one
from gzarr.virtual.table import RUN_NBYTES, ChunkTable, cut_run

_NPY_HEADERS = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}


def find_in_npy(file: IO[bytes], store: Store, key: str) -> Contents:
    """Find the array of a .npy file. Raises: CopyError."""
    with reading(f"{key!r} as a NumPy file"):
        version, _ = np.lib.format.read_magic(file)
        if version not in _NPY_HEADERS:
            raise CopyError(f"{key!r} is of version {version} of the format; read it with np.load")
        shape, in_fortran_order, dtype = _NPY_HEADERS[version](file)
    if dtype.hasobject or not has_one_order(dtype):
        raise CopyError(f"{key!r} has elements of type {dtype}, which are not read in place; read it with np.load")
    chunks, table = cut_run(shape[::-1] if in_fortran_order else shape, dtype.itemsize, file.tell())
    order = None
    if in_fortran_order:
        chunks, table, order = chunks[::-1], _reversed(table), tuple(reversed(range(len(shape))))
    return Contents({"zarr.json": array_document(shape, dtype, chunks, [], order=order)}, {"": table}, ((store, key),))


def _reversed(table: ChunkTable) -> ChunkTable:
    """A table of chunks whose axes are reversed."""
    order = np.arange(table.objects.size).reshape(table.counts).T.ravel()
    return replace(table, counts=table.counts[::-1], objects=table.objects[order], places=table.places[order])


# -- FITS --------------------------------------------------------------------------------------------------------

_BLOCK_NBYTES, _CARD_NBYTES = 2880, 80
_TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
#: A card with a value: keyword, and a text, a truth value or a number, perhaps with a comment behind it.
_CARD = re.compile(r"([A-Z0-9_-]{1,8}) *= *(?:'((?:[^']|'')*)'|([TF])(?=[ /]|$)|([-+]?[.\d][-+.\dED]*))")
#: Keywords that say how the data are stored.
_STRUCTURE = re.compile(r"SIMPLE|XTENSION|BITPIX|NAXIS\d*|EXTEND|PCOUNT|GCOUNT|EXTNAME|BSCALE|BZERO|BLANK")


def find_in_fits(file: IO[bytes], store: Store, key: str) -> Contents:
    """Find the images of a FITS file: "primary", and extensions by their names.

    Tables and compressed images are left out; the attribute `UNREADABLE` of the group says so.

    ``BSCALE`` and ``BZERO`` become ``scale_factor`` and ``add_offset``, and ``BLANK`` the value for missing data.
    Raises: CopyError.
    """
    documents, arrays, lost = dict[str, bytes](), dict[str, Chunks](), dict[str, str]()
    with reading(f"{key!r} as FITS"):
        nbytes = file.seek(0, 2)
        file.seek(0)
        while file.tell() < nbytes and _begins_here(file):  # there may be other records behind the last header and data
            cards = _cards(file, key)
            if cards.get("GROUPS") is True or int(cards.get("GCOUNT", 1)) != 1:
                raise CopyError(f"{key!r} holds random groups, which are not read in place; use astropy.io.fits")
            shape = tuple(int(cards[f"NAXIS{axis}"]) for axis in range(int(cards["NAXIS"]), 0, -1))
            dtype = np.dtype(_TYPES[int(cards["BITPIX"])])
            begin = file.tell()
            size = (prod(shape) * int(cards.get("GCOUNT", 1)) if shape else 0) + int(cards.get("PCOUNT", 0))
            size *= dtype.itemsize
            if begin + size > nbytes:
                raise CopyError(f"{key!r} is cut off: it has {nbytes} of {begin + size} bytes; get the whole file")
            if shape and cards.get("XTENSION", "IMAGE") == "IMAGE":
                name = _name(str(cards.get("EXTNAME", "primary" if not arrays else "image")), arrays)
                chunks, arrays[name] = cut_run(shape, dtype.itemsize, begin)
                documents[f"{name}/zarr.json"] = _image(shape, dtype, chunks, cards)
            elif shape:
                kind = "a compressed image" if cards.get("ZIMAGE") is True else "a table"
                name = _name(str(cards.get("EXTNAME", "table")), {**arrays, **lost})
                lost[name] = f"{kind} ({cards['XTENSION']}), which Zarr has no array for; read it with astropy.io.fits"
            file.seek(begin + -(-size // _BLOCK_NBYTES) * _BLOCK_NBYTES)
    documents["zarr.json"] = group_document({UNREADABLE: lost} if lost else {})
    return Contents(documents, arrays, ((store, key),))


def _image(shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...], cards: Mapping[str, Any]) -> bytes:
    attributes = {name: value for name, value in cards.items() if not _STRUCTURE.fullmatch(name)}
    if "BSCALE" in cards or "BZERO" in cards:
        attributes |= {"scale_factor": float(cards.get("BSCALE", 1)), "add_offset": float(cards.get("BZERO", 0))}
    blank = cards.get("BLANK") if dtype.kind in "iu" else None
    return array_document(shape, dtype, chunks, [], attributes=attributes, mask_value=blank)


def _name(wanted: str, taken: Mapping[str, Any]) -> str:
    """A name for an image that no other has."""
    wanted = re.sub(r"[/\\\0]", "_", wanted.strip())
    if not wanted.strip(".") or wanted.startswith("__"):
        wanted = "image"
    numbered = (f"{wanted}_{number}" for number in range(1, len(taken) + 2))
    return wanted if wanted not in taken else next(name for name in numbered if name not in taken)


def _begins_here(file: IO[bytes]) -> bool:
    """Whether a header begins where a file is."""
    at = file.tell()
    begin = file.read(8)
    file.seek(at)
    return begin == (b"XTENSION" if at else b"SIMPLE  ")


def _cards(file: IO[bytes], key: str) -> dict[str, Any]:
    """The values of a header, after which the file is at its data."""
    found: dict[str, Any] = {}
    while block := file.read(_BLOCK_NBYTES):
        text = block.decode("ascii", "replace")
        for start in range(0, len(text), _CARD_NBYTES):
            card = text[start : start + _CARD_NBYTES]
            if card.rstrip() == "END":
                return found
            match = _CARD.match(card)
            if match:
                name, string, truth, number = match.groups()
                if string is not None:
                    found[name] = string.replace("''", "'").rstrip()
                else:
                    found[name] = truth == "T" if truth else _number(number)
    raise CopyError(f"{key!r} is cut off within a header; get the whole file")


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("+-").isdigit() else float(text.replace("D", "E"))


# -- netCDF, classic formats: NetCDF Users Guide, "File Format Specifications" -----------------------------------------

MAGIC = b"CDF\x01", b"CDF\x02", b"CDF\x05"
_NETCDF_TYPES = {1: "i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8"}
_NETCDF_TYPES |= {7: "u1", 8: ">u2", 9: ">u4", 10: ">i8", 11: ">u8"}
#: What elements are that nobody has written, but for texts. Source: netcdf.h, NC_FILL_BYTE to NC_FILL_UINT64.
_FILLS = {"i1": -127, "i2": -32767, "i4": 1 - 2**31, "i8": 2 - 2**63, "f4": 15 * 2.0**119, "f8": 15 * 2.0**119}
_FILLS |= {"u1": 255, "u2": 65535, "u4": 2**32 - 1, "u8": 2**64 - 2}
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
            fill_value=_FILLS.get(variable.dtype.str[1:]) if mask is None else _element(mask, variable.dtype),
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
    read = one_by_one(partial(_read_records, variable, store, key, n))
    return (n, *(max(length, 1) for length in shape[1:])), Reader(counts, read, part * shape[0], part * n)


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
        dtype = np.dtype(_NETCDF_TYPES[self._number(">i")])
        self._number()  # the size, which is wrong for large variables
        begin = self._number(">i" if self._version == 1 else ">q")
        shape, names = tuple(length for _, length in axes), tuple(axis for axis, _ in axes)
        return name, Variable(dtype, shape, names, attributes, begin, int(bool(shape) and shape[0] == 0))

    def _attributes(self) -> dict[str, Any]:
        return {self._name(): self._values() for _ in range(self._list())}

    def _values(self) -> Any:
        dtype = np.dtype(_NETCDF_TYPES[self._number(">i")])
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
        (value,) = struct.unpack(form, self._bytes(struct.calcsize(form)))
        return int(value)

    def _bytes(self, nbytes: int) -> bytes:
        data = self._file.read(_padded(nbytes))
        if len(data) < nbytes:
            raise EOFError("the header is cut off")
        return data[:nbytes]


def _text(data: bytes) -> str:
    text = data.rstrip(b"\0")  # with which programs in C end it, and netCDF4 ignores them
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
