"""Where the chunks of an array are that are parts of other objects: a row for each, with object, offset and length."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from math import prod
from tempfile import TemporaryFile, gettempdir
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import StoreError
from gzarr.storage.capabilities import Buffer

#: In place of an object's number: the chunk is not stored, or its bytes are in `ChunkTable.inline`.
MISSING: Final = -1
INLINE: Final = -2

#: Rows of a table that is kept in memory. Larger ones are in a file here: ``/tmp`` may be memory itself.
MAX_IN_MEMORY, _FOLDER = 10**7, "/var/tmp"  # noqa: S108 - the file has no name

#: Bytes of an encoded chunk, or a function that makes them.
Inline: TypeAlias = "Buffer | Callable[[], Buffer]"


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Where the chunks of an array are. It takes 20 bytes for each, of memory up to 10 million chunks.

    Attributes
    ----------
    counts : tuple of int
        Number of chunks along each axis. Rows are in C order.
    objects : numpy.ndarray
        For each chunk, the number of the object that it is in (int32); `MISSING` or `INLINE`.
    places : numpy.ndarray
        Its first byte there, and how many there are, (n, 2) of int64. -1 bytes stand for the whole object.
    inline : mapping
        Encoded chunks that are in no object, by row: each an `Inline`.
    padded_nbytes : int
        Shorter chunks are filled up with zeros to this: the last ones of data that are stored without gaps, whose
        elements outside the array are not stored.
    chains : numpy.ndarray, optional
        For each chunk, which of `Tables.chains` it is encoded by (uint8).
    """

    counts: tuple[int, ...]
    objects: NDArray[np.int32]
    places: NDArray[np.int64]
    inline: MutableMapping[int, Any] = field(default_factory=dict)
    padded_nbytes: int = 0
    chains: NDArray[np.uint8] | None = None

    @classmethod
    def empty(cls, counts: tuple[int, ...], *, padded_nbytes: int = 0) -> "ChunkTable":
        """A table without chunks, to be filled."""
        n = prod(counts)
        return cls(counts, _column((n,), np.int32), _column((n, 2), np.int64), {}, padded_nbytes)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The first byte of each chunk, a view."""
        return self.places[:, 0]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The bytes of each chunk, a view."""
        return self.places[:, 1]

    def row(self, coords: tuple[int, ...]) -> int | None:
        """The row of a chunk; None if the grid does not have it."""
        number = 0
        for at, count in zip(coords, self.counts, strict=True):
            if at >= count:
                return None
            number = number * count + at
        return number

    @property
    def steps(self) -> NDArray[np.int64]:
        """How many rows further the next chunk along each axis is."""
        return np.array([prod(self.counts[axis + 1 :]) for axis in range(len(self.counts))], np.int64)


def _column(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """A column without chunks; of a large table, in a file without a name, which the system pages in and out."""
    if shape[0] <= MAX_IN_MEMORY:
        return np.full(shape, MISSING, dtype)
    folder = _FOLDER if os.path.isdir(_FOLDER) else gettempdir()  # noqa: PTH112
    try:
        column = mapped_file(shape, dtype, folder)
    except OSError as error:
        raise StoreError(f"{folder!r} cannot hold the places of {shape[0]} chunks: {error}") from error
    for start in range(0, shape[0], MAX_IN_MEMORY):
        column[start : start + MAX_IN_MEMORY] = MISSING
    return column


def mapped_file(shape: tuple[int, ...], dtype: Any, folder: str | None = None) -> NDArray[Any]:
    """An array in a file without a name, of zeros.

    The disk has room for it: a write through the map ended the process otherwise. Raises: OSError.
    """
    with TemporaryFile(prefix="gzarr-", dir=folder) as file:
        _allocate(file.fileno(), prod(shape) * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype, "r+", shape=shape)


def _allocate(file: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, nbytes)
        return
    block = bytes(1 << 20)
    while nbytes > 0:
        nbytes -= os.write(file, block[:nbytes])


class Tables(ABC):
    """A capability: chunks that are ranges of other objects, which others may read without asking the store."""

    @abstractmethod
    def table(self, path: str) -> ChunkTable | None:
        """Where the chunks of an array are; None if only the store reads them. Raises: StoreError, CopyError."""

    def chains(self, path: str) -> Sequence[bytes]:
        """Documents of Zarr v3 with the codecs and fill values of chunks, by number; none if all have the array's."""
        return ()

    @abstractmethod
    def file(self, number: int) -> tuple[str, Any] | None:
        """The file that an object is: its path, and the token of the version that is read (None: there is none).

        None if the object is no local file.
        """


def chains_of(tables: Tables | None, path: str) -> Sequence[bytes]:
    """As `Tables.chains`, of a store that may have no tables."""
    return () if tables is None else tables.chains(path)
