"""The arrays that a loader reads: a single one, or many of unequal extents and chunks, joined along axis 0.

Theory of operation. Joined arrays are one array to samples and planners: rows of all arrays follow each other, and so
do their rows of chunks (`JoinedAxis`). Each is cut by its own grid. Chunks are numbered one array after the other, so
that a number tells the array, too.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.reference import ReadJob
from gzarr.hierarchy.array import Array
from gzarr.indexing.copies import CopyPlan, Fragments, box_spans, cut_boxes, make_copies
from gzarr.indexing.grid import Grid, RegularAxis, nchunks
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import sort_by_chunk


def stored_dtype(array: Any) -> np.dtype[Any]:
    """The data type that chunks are decoded to, in native byte order."""
    if not isinstance(array, (Array, np.ndarray)):
        return array.stored
    dtype: np.dtype[Any] = array.metadata.data_type.dtype if isinstance(array, Array) else array.dtype
    return dtype.newbyteorder("=")


def io_of(array: Array) -> ArrayIO:
    """How an array is read. Raises: UnknownCodecError, MissingExtraError."""
    return array._io  # noqa: SLF001 - of the same package


def grid_of(array: Any) -> Grid:
    """The chunk grid; of joined arrays one with the other axes of the first of them."""
    return io_of(array).layout.grid if isinstance(array, Array) else array.grid


def nchunks_of(array: Any) -> int:
    """Number of chunks."""
    return nchunks(grid_of(array)) if isinstance(array, Array) else array.nchunks


def chunk_nbytes_of(array: Any) -> int:
    """Size of a decoded chunk, of joined arrays that of the first."""
    return io_of(array if isinstance(array, Array) else array.arrays[0]).chunk_nbytes


class JoinedAxis:
    """An axis of joined arrays: the runs of rows that lie in one row of chunks, like the chunks of an axis.

    Parameters
    ----------
    starts : array of int64
        First row of each run.
    extent : int
        Number of rows.
    """

    def __init__(self, starts: Indices, extent: int) -> None:
        self.extent, self.nchunks = extent, len(starts)
        self._edges = np.append(starts, extent)
        self.length = int(np.diff(self._edges).max(initial=1))

    def locate_all(self, indices: Indices) -> Indices:
        """The runs that hold many rows."""
        return np.searchsorted(self._edges, indices, side="right") - 1

    def edges(self) -> Indices:
        """Boundaries of runs, from 0 to the extent."""
        return self._edges


class JoinedArrays:
    """Arrays as one, joined along axis 0.

    Parameters
    ----------
    name : str
        Of all of them, for errors.
    arrays : sequence of Array
        At least one.

    Attributes
    ----------
    extents : array of int64
        (n, ndim): the shape of each.
    offsets : array of int64
        (n + 1,): the first row of each, and the number of all rows.
    shape : tuple of int
        As one: of other axes the largest extent.
    axes : list of JoinedAxis
        Each axis of all arrays, as if they followed each other along it.
    """

    def __init__(self, name: str, arrays: Sequence[Array]) -> None:
        self.arrays = tuple(arrays)
        ndims = {array.ndim for array in self.arrays}
        if len(ndims) > 1:
            raise ValueError(f"arrays: those of {name!r} have {sorted(ndims)} axes; expected equally many")
        self.ndim, self.extents = ndims.pop(), np.array([array.shape for array in self.arrays], np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(self.extents[:, 0])])
        self.shape = int(self.offsets[-1]), *self.extents[:, 1:].max(0).tolist()
        self.dtype, self.stored = self._dtypes(name)
        self.nbytes = int(self.extents.prod(1).sum()) * self.stored.itemsize
        grids = [_grid_of(array) for array in self.arrays]
        counts = np.array([[axis.nchunks for axis in grid] for grid in grids], np.int64)
        self.counts, self.first_chunks = counts, np.concatenate([[0], np.cumsum(counts.prod(1))])
        #: Of each axis, where arrays begin that follow each other along it, and their chunks.
        self.begins, self.begin_chunks = self.extents.cumsum(0) - self.extents, counts.cumsum(0) - counts
        self.axes = [self._join(i, [grid[i] for grid in grids]) for i in range(self.ndim)]
        others = [axis.resized(n) for axis, n in zip(grids[0][1:], self.shape[1:], strict=True)]
        self.grid: Any = self.axes[0], *others
        self.nchunks = int(self.first_chunks[-1])
        self._ios: dict[int, ArrayIO] = {}

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def _dtypes(self, name: str) -> tuple[np.dtype[Any], np.dtype[Any]]:
        dtypes, stored = (
            {get(array) for array in self.arrays} for get in (lambda a: a.dtype.newbyteorder("="), stored_dtype)
        )
        if len(dtypes) > 1:
            raise ValueError(
                f"arrays: those of {name!r} have the types {', '.join(sorted(map(str, dtypes)))}; expected one: "
                "use views, array.astype(...)"
            )
        dtype = dtypes.pop()
        return dtype, (stored.pop() if len(stored) == 1 else dtype)

    def _join(self, i: int, axes: Sequence[Any]) -> JoinedAxis:
        """An axis of all arrays."""
        counts, begins = self.counts[:, i], self.begins[:, i]
        numbers = np.arange(counts.sum()) - np.repeat(self.begin_chunks[:, i], counts)
        lengths = np.array([axis.length if isinstance(axis, RegularAxis) else 0 for axis in axes])
        starts = np.repeat(begins, counts) + numbers * np.repeat(lengths, counts)
        varying = [axis.edges()[:-1] for axis in axes if not isinstance(axis, RegularAxis)]
        starts[np.repeat(lengths, counts) == 0] += np.array([edge for edges in varying for edge in edges], np.int64)
        return JoinedAxis(starts, int(self.extents[:, i].sum()))

    def which(self, rows: Indices) -> Indices:
        """The numbers of the arrays that have some rows."""
        return np.searchsorted(self.offsets, rows, side="right") - 1

    def io(self, number: int, backend: Any) -> ArrayIO:
        """How an array is read to a device."""
        io = self._ios.get(number)
        if io is None or io.backend is not backend:
            array = self.arrays[number]
            io = self._ios[number] = io_of(array if array.backend is backend else array.to(backend))
        return io


def _grid_of(array: Array) -> Grid:
    """The chunk grid; without the codecs, which take as long as to open an array, unless they say where chunks are."""
    return array.metadata.grid if array.shards is None else io_of(array).layout.grid


class JoinedCutter:
    """Cuts samples of joined arrays along their chunks.

    Parameters
    ----------
    arrays : JoinedArrays
        The arrays.
    size : tuple of int
        Elements of a sample along each axis.
    skip : bool
        Whether samples of damaged chunks are left out.
    """

    def __init__(self, arrays: JoinedArrays, size: tuple[int, ...], *, skip: bool) -> None:
        self._arrays, self._size, self._skip = arrays, size, skip

    def cut(self, boxes: Indices) -> Fragments:
        """Fragments of samples. boxes: (n, ndim), their first elements."""
        arrays, boxes = self._arrays, boxes if 0 not in self._size else boxes[:0]
        which, box = arrays.which(boxes[:, 0]), np.arange(len(boxes))
        starts = boxes.copy()
        starts[:, 0] -= arrays.offsets[which]
        ends = np.minimum(starts + self._size, arrays.extents[which])  # of padded samples: those have no more
        lows, spans = np.empty_like(starts), np.empty_like(starts)
        for i, axis in enumerate(arrays.axes):
            begin = arrays.begins[which, i]
            lows[:, i] = axis.locate_all(begin + starts[:, i]) - arrays.begin_chunks[which, i]
            spans[:, i] = axis.locate_all(begin + ends[:, i] - 1) - arrays.begin_chunks[which, i] - lows[:, i] + 1
        per_box = spans.prod(1)
        box = np.repeat(box, per_box)
        number = np.arange(len(box)) - np.repeat(np.cumsum(per_box) - per_box, per_box)
        chunk, scale = arrays.first_chunks[which[box]], np.ones(len(box), np.int64)
        for i in reversed(range(arrays.ndim)):
            number, nth = np.divmod(number, spans[box, i])
            chunk += (lows[box, i] + nth) * scale
            scale *= arrays.counts[which[box], i]
        return Fragments(box, chunk, starts[box])

    def jobs(
        self, fragments: Fragments, slots: Indices, blocks: tuple[AnyArray, ...], backend: Any
    ) -> Mapping[int, ReadJob]:
        """What has to be read, by number of array."""
        arrays, n_rows, jobs = self._arrays, len(blocks[0]), {}
        order, firsts = sort_by_chunk(fragments.chunk, arrays.nchunks)
        chunk, slots = fragments.chunk[order], slots[order]
        which = np.searchsorted(arrays.first_chunks, chunk, side="right") - 1
        spans = self._spans(which, chunk - arrays.first_chunks[which], fragments.start[order])
        whole = CopyPlan(spans, firsts, slots, (), n_rows, ())
        # What reads a job looks at all of its blocks, which are many, and those of one array are few.
        block_of, row_of = np.divmod(slots, n_rows)
        used, rank = np.unique(which * len(blocks) + block_of, return_inverse=True)
        owners = which[firsts[:-1]]
        cuts = np.concatenate([[0], np.flatnonzero(np.diff(owners)) + 1, [len(owners)]])
        numbers = owners[cuts[:-1]]
        begins = np.append(np.searchsorted(used, numbers * len(blocks)), len(used))
        used %= len(blocks)
        runs = zip(numbers.tolist(), pairwise(cuts.tolist()), pairwise(begins.tolist()), strict=True)
        for number, (first, last), (begin, end) in runs if len(chunk) else ():
            own, plan, io = blocks, whole.some(first, last), arrays.io(number, backend)
            if not self._skip:  # the slots of damaged samples are those of the feed
                own = tuple([blocks[one] for one in used[begin:end].tolist()])
                copies = slice(firsts[first], firsts[last])
                plan = plan._replace(slots=(rank[copies] - begin) * n_rows + row_of[copies])
            plan = plan._replace(shape=(len(own) * n_rows, *self._size), grid=io.layout.grid)
            jobs[number] = ReadJob(io, plan.by_object(io.layout.objects), own)
        return jobs

    def _spans(self, which: Indices, chunk: Indices, starts: Indices) -> Indices:
        """What samples have of a chunk each. which: the array of each, (f,). chunk: its number there."""
        arrays, coords = self._arrays, np.empty_like(starts)
        bounds: list[tuple[Indices, Indices]] = []
        for i in reversed(range(arrays.ndim)):
            chunk, coords[:, i] = np.divmod(chunk, arrays.counts[which, i])
            run, edges = coords[:, i] + arrays.begin_chunks[which, i], arrays.axes[i].edges()
            bounds.insert(0, (edges[run] - arrays.begins[which, i], edges[run + 1] - arrays.begins[which, i]))
        return box_spans(coords, starts, self._size, bounds)


def read_job(
    io: ArrayIO, fragments: Fragments, slots: Indices, blocks: tuple[AnyArray, ...], size: tuple[int, ...]
) -> ReadJob:
    """The read of fragments of one array into the slots of some blocks."""
    shape = (len(blocks) * len(blocks[0]), *size)
    plan = make_copies(fragments, slots, shape, len(blocks[0]), io.layout.grid, io.layout.objects)
    return ReadJob(io, plan, blocks)


class Reader(NamedTuple):
    """How samples of an array are read.

    Attributes
    ----------
    cut : callable
        From the first elements of samples to `Fragments`.
    jobs : callable
        From fragments, their slots, and the blocks of these to jobs, by the name that `gzarr.loader.watch` knows.
    io : ArrayIO, optional
        The array, if it is a single one.
    """

    cut: Callable[[Indices], Fragments]
    jobs: Callable[[Fragments, Indices, tuple[AnyArray, ...]], Mapping[str, ReadJob]]
    io: Any = None


def make_reader(name: str, array: Array | JoinedArrays, backend: Any, size: tuple[int, ...], *, skip: bool) -> Reader:
    """How samples of an array are read to a device."""
    if isinstance(array, JoinedArrays):
        cutter = JoinedCutter(array, size, skip=skip)
        return Reader(
            cutter.cut,
            lambda fragments, slots, blocks: {
                watched(name, number): job for number, job in cutter.jobs(fragments, slots, blocks, backend).items()
            },
        )
    io = io_of(array if array.backend is backend else array.to(backend))
    return Reader(
        lambda boxes: cut_boxes(boxes, size, io.layout.grid),
        lambda fragments, slots, blocks: {name: read_job(io, fragments, slots, blocks, size)},
    )


def watched(name: str, number: int) -> str:
    """What an array of a list is called in errors."""
    return f"{name}[{number}]"
