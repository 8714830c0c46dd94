"""Reads and writes selections of an array: as jobs of the engine, as rows, and by the brackets of accessors."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Fields
from gzarr.chunk_io import engine
from gzarr.chunk_io.reference import ReadJob, WriteJob
from gzarr.errors import MetadataError
from gzarr.hierarchy.array_info import boundaries
from gzarr.hierarchy.node import GzarrArray
from gzarr.hierarchy.values import broadcast_value, check_out, fields_dtype, native_times, to_array_axes
from gzarr.indexing.plan import make_plan
from gzarr.indexing.selection import Box, Points, Selection, normalize_basic, normalize_blocks, split_fields


def read_selection(
    array: GzarrArray, selection: Selection, fields: Fields = None, out: AnyArray = None, *, is_whole: bool = False
) -> AnyArray:
    """Read a selection.

    is_whole: whether it is ``array[...]``, which is an array even if there are no axes, as in NumPy.
    """
    if is_whole and out is None and not array.shape:
        out = array.backend.empty((), array.dtype)
    job, result = read_job(array, selection, fields, out)
    engine.read((job,))
    return finish_read(selection, job, result, out)


def read_job(array: GzarrArray, selection: Selection, fields: Fields, out: AnyArray) -> tuple[ReadJob, AnyArray]:
    """Prepare a read. Returns: what the engine reads, and the result, which `finish_read` finishes."""
    dtype = array.dtype
    if fields:
        dtype = fields_dtype(dtype, fields)
    io = array._io
    if out is None:
        result = io.backend.empty(selection.shape, dtype)
    else:
        result = check_out(io.backend.adopt_out(out), selection.shape, dtype)
        if result.dtype.kind in "mM":
            result = native_times(result)
    plan = make_plan(selection, io.layout.grid)
    return ReadJob(io, plan, to_array_axes(result, selection), fields or None), result


def finish_read(selection: Selection, job: ReadJob, result: AnyArray, out: AnyArray) -> AnyArray:
    """Return what a caller gets, once the engine has done a job of `read_job`. out: of that."""
    if out is not None:
        if isinstance(selection, Points) and not np.may_share_memory(job.out, result):
            result[...] = job.out.reshape(result.shape)
        if result.dtype.kind in "mM" and result.dtype != out.dtype:
            result[...] = result.byteswap()
        return out
    return result[()] if not selection.shape and isinstance(result, np.ndarray) else result


def write_selection(array: GzarrArray, selection: Selection, value: Any, fields: Fields = None) -> None:
    """Write a selection."""
    engine.write((write_job(array, selection, value, fields),))


def write_job(array: GzarrArray, selection: Selection, value: Any, fields: Fields) -> WriteJob:
    """Prepare a write."""
    array.check_writable()
    dtype = array.dtype
    if dtype != array.metadata.data_type.dtype:
        raise MetadataError(f"{array.store_path}: a view made by astype is read-only; write to the array")
    if fields:
        dtype = fields_dtype(dtype, fields)
    io = array._io
    plan = make_plan(selection, io.layout.grid)
    value = broadcast_value(value, dtype, selection, array)
    return WriteJob(io, plan, value, fields or None, array.write_empty_chunks)


def blocks_selected(array: GzarrArray, selection: Any) -> Box:
    """Return the elements of whole chunks, which are selected by their coordinates."""
    return normalize_blocks(selection, array.shape, boundaries(array.metadata.chunk_grid))


def host_copy(array: GzarrArray) -> Any:
    """Read all elements, and copy them to the host."""
    data = read_selection(array, normalize_basic((), array.shape))
    return data.get() if hasattr(data, "get") else data


def rows_between(array: GzarrArray, start: int | None, end: int | None) -> Iterator[AnyArray]:
    """Iterate over rows as `gzarr.Array.islice` does."""
    nrows = len(array)
    start, end = 0 if start is None else start, nrows if end is None else min(end, nrows)
    if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in (start, end)):
        raise ValueError(f"islice from {start} to {end} of an array of {nrows} rows; expected integers, at least 0")
    return iterate_rows(array, start, end)


def iterate_rows(array: GzarrArray, start: int, end: int) -> Iterator[AnyArray]:
    """Iterate over sub-arrays along the first axis; the chunks of each row of chunks are read once."""
    bounds = array.metadata.chunk_grid[0].bounds
    parts = (bounds(i) for i in range(array.metadata.chunk_grid[0].nchunks))
    return (row for low, high in parts if low < end and high > start for row in array[max(low, start) : min(high, end)])


class Accessor:
    """One way to select, with brackets. Made by `Array.vindex`, `Array.oindex` and `Array.blocks`."""

    __slots__ = ("_read", "_write")

    def __init__(self, read: Callable[..., AnyArray], write: Callable[..., None]) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, key: Any) -> AnyArray:
        key, fields = split_fields(key)
        return self._read(key, fields=fields)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, fields = split_fields(key)
        self._write(key, value, fields=fields)

    def __repr__(self) -> str:
        return f"<Accessor: {self._read.__name__} of {getattr(self._read, '__self__', 'a view')!r}>"
