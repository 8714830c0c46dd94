"""Files whose elements lie one after the other without compression: .npy and FITS.

Source: NumPy, "NPY format"; FITS Standard 4.0, sections 3, 4 and 7.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import IO, Any

import numpy as np

from gzarr.copying.sources import reading
from gzarr.errors import CopyError
from gzarr.metadata.conventions import UNREADABLE
from gzarr.storage.base import Store
from gzarr.virtual.documents import array_document, group_document, has_one_order
from gzarr.virtual.store import Chunks, Contents
from gzarr.virtual.table import ChunkTable, cut_run

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
