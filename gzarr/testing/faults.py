"""Faults on request: device memory that runs out, chunks whose stored bytes are damaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from gzarr.errors import ChunkError, DeviceError
from gzarr.profiling import crossings

if TYPE_CHECKING:
    from gzarr.hierarchy.array import Array
    from gzarr.storage.base import Request


class OutOfMemoryError(DeviceError, MemoryError):
    """Device memory ran out, because `out_of_memory` asked for it."""


class _Full:
    """Refuses device memory after some allocations."""

    def __init__(self, after: int) -> None:
        self._numbers = count()
        self._after = after

    def crossed(self, what: crossings.Crossing, nbytes: int, *, inside: bool) -> None:
        """Raise OutOfMemoryError if it is an allocation, and enough were made."""
        if what == "allocate" and next(self._numbers) >= self._after:
            raise OutOfMemoryError(
                f"no device memory for {nbytes} bytes: gzarr.testing.out_of_memory(after={self._after}) asked for it"
            )


@contextmanager
def out_of_memory(after: int = 0) -> Iterator[None]:
    """Let device memory run out in a block of code.

    Parameters
    ----------
    after : int, optional
        How many allocations succeed before all others fail: results, arrays that code makes, and gzarr's working
        memory, of which it keeps blocks between reads.

    Raises
    ------
    OutOfMemoryError
        In the block, where memory is asked for: a DeviceError, as gzarr raises it, and a MemoryError, as CuPy's is.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.testing import out_of_memory
    >>> z = gzarr.ones(4, device="emulated")
    >>> with out_of_memory():
    ...     z[:]
    Traceback (most recent call last):
    gzarr.testing.faults.OutOfMemoryError: no device memory for 32 bytes: ...
    """
    if after < 0:
        raise ValueError(f"after must be a number of allocations >= 0, got {after}")
    with crossings.observed_by(_Full(after)):
        yield


@contextmanager
def damaged_chunk(array: Array, coords: Sequence[int]) -> Iterator[None]:
    """Damage what is stored of a chunk for a block of code: reads of the chunk raise ChunkError, the others go on.

    Parameters
    ----------
    array : Array
        An array in a store that can be written.
    coords : sequence of int
        Coordinates of the chunk: of the inner one if the array has shards.

    Raises
    ------
    KeyError
        If there is no such chunk in the store.
    ValueError
        If reads would not notice the damage: chunks in shards that have neither a compressor nor a checksum.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.testing import damaged_chunk
    >>> z = gzarr.ones((4, 4), chunks=(2, 2), device="cpu")
    >>> with damaged_chunk(z, (0, 1)):
    ...     z[2:], z[:2]
    Traceback (most recent call last):
    gzarr.errors.ChunkError: ...
    >>> z[:2].sum()
    np.float64(8.0)
    """
    request, store = _place_of(array, tuple(coords)), array.chunk_store
    sound = store[request.key]
    store[request.key] = _damaged(sound, request)
    try:
        if not _is_noticed(array, tuple(coords)):
            raise ValueError(
                f"{array.name}, chunk {tuple(coords)}: reads cannot notice damage; give the array a compressor or the "
                "codec crc32c"
            )
        yield
    finally:
        store[request.key] = sound


def _place_of(array: Array, coords: tuple[int, ...]) -> Request:
    """Where a chunk lies in the store."""
    from gzarr.storage.base import Request

    layout = array._io.layout  # noqa: SLF001 - the parts of gzarr know each other
    if len(coords) != array.ndim or not all(0 <= i < axis.nchunks for axis, i in zip(layout.grid, coords, strict=True)):
        raise KeyError(f"{array.name} has no chunk {coords}; there are {tuple(axis.nchunks for axis in layout.grid)}")
    first = [axis.bounds(number)[0] for axis, number in zip(layout.grid, coords, strict=True)]
    stored = tuple(axis.locate(start) for axis, start in zip(layout.objects, first, strict=True))
    (place,) = layout.locate(array.chunk_store, stored, [coords], may_fetch=False)
    if not isinstance(place, Request) or place.key not in array.chunk_store:
        raise KeyError(f"{array.name}: chunk {coords} is not stored, so it has the fill value")
    return place


def _damaged(data: bytes, request: Request) -> bytes:
    """An object that is cut in half, or with a range of its bytes inverted."""
    if request.start is None:
        return data[: len(data) // 2]
    start = request.start % len(data)
    stop = len(data) if request.length is None else start + request.length
    return data[:start] + bytes(byte ^ 0xFF for byte in data[start:stop]) + data[stop:]


def _is_noticed(array: Array, coords: tuple[int, ...]) -> bool:
    bounds = [axis.bounds(number) for axis, number in zip(array._io.layout.grid, coords, strict=True)]  # noqa: SLF001
    selection: Any = tuple(slice(low, high) for low, high in bounds)
    from gzarr.api.open import open_array

    reader = open_array(array.store, path=array.path, chunk_store=array.chunk_store, mode="r", device="cpu")
    try:
        reader[selection]
    except ChunkError:
        return True
    return False
