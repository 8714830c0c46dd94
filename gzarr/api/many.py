"""`gzarr.read_many` and `gzarr.write_many`: several selections, of one array or of many, as one queue."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from gzarr.backend import Array as AnyArray
from gzarr.chunk_io import engine
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.boxes import box_jobs
from gzarr.hierarchy.selecting import finish_read, read_job, write_job
from gzarr.hierarchy.values import computed, meets
from gzarr.indexing.selection import Selection, normalize, split_fields

#: An array, what to read of it, and an array to read into.
Wanted: TypeAlias = tuple[Array, Any] | tuple[Array, Any, AnyArray]


def read_many(wanted: Iterable[Wanted]) -> list[AnyArray]:
    """Read several selections at once, of one array or of many.

    All chunks are one queue: threads, and requests to a store, are shared by all the reads, so that none waits for the
    end of another. A chunk that several boxes of one array and of one size touch is read once, and otherwise for each
    of the selections that touch it.

    Parameters
    ----------
    wanted : iterable of tuple
        For every read (array, selection) or (array, selection, out). The selection is what ``array[selection]`` takes.
        The array ``out``, of the result's shape, is read into; None makes a new one. No two may share memory.

    Returns
    -------
    list of numpy.ndarray or cupy.ndarray
        For every read what ``array[selection]`` gives, or its ``out``.

    Raises
    ------
    SelectionError
        If a selection does not fit its array. Then nothing is read.
    ChunkError
        If a stored chunk is damaged.
    StoreError
        If a store cannot be read.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
    >>> labels = gzarr.array([7, 8, 9])
    >>> gzarr.read_many([(z, 1), (z, (slice(None), -1)), (labels, [2, 0])])
    [array([4, 5, 6, 7]), array([ 3,  7, 11]), array([9, 7])]
    """
    items = [_unpacked(number, item) for number, item in enumerate(wanted)]
    jobs, results = box_jobs(items)
    finished: list[Callable[[], AnyArray]] = []
    for number, (array, key, out) in enumerate(items):
        if number in results:
            finished.append(partial(results.__getitem__, number))
            continue
        try:
            selection, fields = _selected(array, key)
            job, result = read_job(array, selection, fields, out)
        except Exception as error:
            error.add_note(f"read_many: item {number}, of {array}")
            raise
        jobs.append(job)
        finished.append(partial(finish_read, selection, job, result, out))
    engine.read(jobs)
    return [finish() for finish in finished]


def write_many(values: Iterable[tuple[Array, Any, Any]]) -> None:
    """Write several selections at once, of one array or of many.

    All chunks are one queue: threads, and requests to a store, are shared by all the writes, so that none waits for the
    end of another. An element that several of the selections hold gets one of the values.

    Parameters
    ----------
    values : iterable of tuple
        For every write (array, selection, value), as in ``array[selection] = value``.

    Raises
    ------
    SelectionError
        If a selection does not fit its array. Then nothing is written, as if a value does not fit its selection.
    ReadOnlyError
        If an array was opened for reading. Then nothing is written.
    ChunkError
        If a stored chunk of which a part is written is damaged.
    StoreError
        If a store cannot be written.

    Examples
    --------
    >>> import gzarr
    >>> z, labels = gzarr.zeros((3, 4), chunks=(2, 2)), gzarr.zeros(3)
    >>> gzarr.write_many([(z, 1, 5), (z, (slice(None), -1), [7, 8, 9]), (labels, [2, 0], [1, 2])])
    >>> labels[...]
    array([2., 0., 1.])
    """
    items = list(values)
    for number, item in enumerate(items):
        if not isinstance(item, tuple) or len(item) != 3 or not isinstance(item[0], Array):
            raise TypeError(f"write_many: item {number} must be (array, selection, value), got {item!r}")
    jobs = []
    for number, (array, key, value) in enumerate(items):
        try:
            selection, fields = _selected(array, key)
            jobs.append(write_job(array, selection, _unchanging(value, array, items), fields))
        except Exception as error:
            error.add_note(f"write_many: item {number}, of {array}")
            raise
    engine.write(jobs)


def _unchanging(value: Any, array: Array, items: Iterable[tuple[Array, Any, Any]]) -> Any:
    """Return a value that none of the writes changes."""
    if isinstance(value, Array) and any(
        meets((value.store, value.path), (written.store, written.path)) for written, _, _ in items
    ):
        return computed(value, array.dtype, array.backend)
    return value


def _unpacked(number: int, item: Any) -> tuple[Array, Any, AnyArray]:
    if not isinstance(item, tuple) or len(item) not in (2, 3):
        raise TypeError(f"read_many: item {number} must be (array, selection) or (array, selection, out), got {item!r}")
    array, key, out = (*item, None)[:3]
    if not isinstance(array, Array):
        raise TypeError(f"read_many: item {number} must begin with a gzarr.Array, got {type(array).__name__}")
    return array, key, out


def _selected(array: Array, key: Any) -> tuple[Selection, Any]:
    key, fields = split_fields(key)
    return normalize(key, array.shape), fields
