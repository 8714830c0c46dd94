"""Faults on request: device memory that runs out, chunks whose stored bytes are damaged."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from gzarr.errors import OutOfMemoryError
from gzarr.profiling import transfers

if TYPE_CHECKING:
    from gzarr.hierarchy.array import Array


class _Full:
    """Refuses device memory after some allocations."""

    def __init__(self, after: int) -> None:
        self._numbers = count()
        self._after = after

    def crossed(self, what: transfers.Transfer, nbytes: int, *, inside: bool) -> None:
        """Raise OutOfMemoryError if it is an allocation, and enough were made."""
        if what == "allocate" and next(self._numbers) >= self._after:
            raise OutOfMemoryError(
                f"no device memory for {nbytes} bytes: gzarr.testing.out_of_memory(after={self._after})"
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
    gzarr.errors.OutOfMemoryError: no device memory for 32 bytes: gzarr.testing.out_of_memory(after=0)
    """
    if after < 0:
        raise ValueError(f"after must be a number of allocations >= 0, got {after}")
    with transfers.observed_by(_Full(after)):
        yield


@contextmanager
def damaged_chunk(array: "Array", coords: Sequence[int]) -> Iterator[None]:
    """Cut what is stored of a chunk in half for a block of code: its reads raise ChunkError, all others go on.

    Afterwards the chunk is whole again, unless the block wrote to it.

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

    Examples
    --------
    >>> import gzarr
    >>> import numpy as np
    >>> from gzarr.testing import damaged_chunk
    >>> z = gzarr.array(np.eye(4), chunks=(2, 2), device="cpu")
    >>> with damaged_chunk(z, (0, 0)):
    ...     try:
    ...         z[:2]
    ...     except gzarr.ChunkError as error:
    ...         print(error.chunk_coords)
    (0, 0)
    >>> z[:2].sum()
    np.float64(2.0)
    """
    from gzarr.storage.base import host_view  # here, as pytest imports this module wherever gzarr is installed

    layout, store = array._io.layout, array.store  # noqa: SLF001 - the parts of gzarr know each other
    number = tuple(coords)
    counts = tuple(axis.nchunks for axis in layout.grid)
    if len(number) != len(counts) or not all(0 <= i < n for i, n in zip(number, counts, strict=True)):
        raise KeyError(f"{array.name} has no chunk {number}: there are {counts} along its axes")
    first = [axis.bounds(i)[0] for axis, i in zip(layout.grid, number, strict=True)]
    holder = tuple(axis.locate(start) for axis, start in zip(layout.objects, first, strict=True))
    key = layout.key(holder)
    sound = store.get(key)
    (chunk,) = [None] if sound is None else layout.extract(sound, holder, [number])
    if sound is None or chunk is None:
        raise KeyError(f"{array.name}: chunk {number} is not stored, so it has the fill value")
    half = _half(host_view(chunk))
    damaged = layout.build(sound, holder, {number: half})
    store[key] = damaged
    try:
        yield
    finally:
        left = store.get(key)
        if left is not None and damaged is not None and host_view(left) == host_view(damaged):
            store[key] = sound
        elif left is not None:  # what was written meanwhile stays
            (now,) = layout.extract(left, holder, [number])
            if now is not None and host_view(now) == half:
                store[key] = layout.build(left, holder, {number: chunk})


def _half(data: memoryview) -> bytes:
    return bytes(data[: data.nbytes // 2])
