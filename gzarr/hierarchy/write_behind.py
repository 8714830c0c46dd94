"""Writes of an array that the caller does not wait for: `Array.write_behind` and `Array.flush`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from gzarr.backend import Fields
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.behind import Behind, Bounds
from gzarr.chunk_io.waves import WriteJob
from gzarr.concurrency import new_lock
from gzarr.hierarchy.array_resizing import ResizableArray
from gzarr.indexing.selection import Box, Range, Selection, normalize, split_fields

#: Bytes of values that wait to be written, unless the caller says otherwise.
MAX_NBYTES = 256 << 20

_changing = new_lock()


class WritesBehind(ResizableArray):
    """The methods of an array that write later."""

    __slots__ = ()

    @abstractmethod
    def _write_job(self, selection: Selection, value: Any, fields: Fields, io: ArrayIO | None = None) -> WriteJob:
        """Prepare a write. io: the array as it is opened; if not given, earlier writes are waited for."""

    def write_behind(self, selection: Any, value: Any, *, max_nbytes: int = MAX_NBYTES) -> None:
        """Write a selection without waiting for it: ``array[selection] = value``, some time before `flush` returns.

        The value is copied and may be changed afterwards. Copies are gathered until chunks, or shards, are whole, so
        that none is stored twice; then other threads encode and store them. What this array object reads or writes
        otherwise comes after the writes: it waits for them, and so does whatever changes its shape. Other objects of
        the same array, and other processes, see the values after `flush`. What is not flushed is written when the array
        object is collected or the program ends; a forked child leaves it to its parent.

        Parameters
        ----------
        selection : object
            What ``array[selection]`` takes. Index lists, masks, steps and fields are written at once, as are values of
            data types with objects.
        value : array-like
            The value, on the host or on the array's device, where its copy stays.
        max_nbytes : int
            Bytes that copies may occupy. If there is no room, this waits; if nothing can be waited for, objects that
            are not whole yet are stored. A single object may exceed the limit.

        Raises
        ------
        SelectionError
            If the selection does not fit the array.
        ReadOnlyError
            If the array was opened for reading.
        ChunkError, StoreError
            What an earlier write behind has raised. Nothing of this one is written then. Every call raises it until
            `flush` has.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.zeros((4, 6), chunks=(4, 3))
        >>> for number in range(4):
        ...     z.write_behind(number, np.full(6, number))
        >>> z.flush()
        >>> z[:, 0]
        array([0., 1., 2., 3.])
        """
        key, fields = split_fields(selection)
        wanted = normalize(key, self.shape)
        bounds = _bounds(wanted)
        if bounds is None or fields is not None or self.dtype.hasobject or self.dtype.shape:
            self._write(wanted, value, fields)
            return
        behind = self._behind()
        job = self._write_job(wanted, value, None, behind.io)
        behind.put(bounds, job.value, max_nbytes, write_empty=self.write_empty_chunks)

    def flush(self) -> None:
        """Wait until everything that was written behind is stored.

        Raises
        ------
        ChunkError, StoreError
            The first error of a write behind since the last call. It is then forgotten.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros(3)
        >>> z.write_behind(..., [1, 2, 3])
        >>> z.flush()
        """
        if isinstance(self._bound, Behind):
            self._bound.flush()

    def _behind(self) -> Behind:
        with _changing:
            if not isinstance(self._bound, Behind):
                self._bound = Behind(self._io)
            return self._bound


def _bounds(selection: Selection) -> Bounds | None:
    """The bounds of a selection; None if it is not a box without gaps."""
    if not isinstance(selection, Box):
        return None
    axes = [axis for axis in selection.axes if isinstance(axis, Range) and (axis.step == 1 or axis.size <= 1)]
    if len(axes) < len(selection.axes):
        return None
    return tuple([axis.start for axis in axes]), tuple([axis.start + axis.size for axis in axes])
