"""The arrays that a loader reads: a single one, or many of unequal extents and chunks, joined along axis 0.

Theory of operation. Joined arrays are one array to the samples and the planners: rows of all arrays follow each other,
and so do their rows of chunks (`JoinedAxis`). Chunks of other axes may be cut differently in each array, so boxes are
cut in groups of arrays whose chunks are equally long there (`JoinedCutter`). What is read is then told array by array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.reference import ReadJob
from gzarr.hierarchy.array import Array
from gzarr.indexing.copies import Fragments, chunk_coords, chunk_numbers, cut_boxes, make_copies
from gzarr.indexing.grid import Axis, Grid, RegularAxis, nchunks
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import CHUNK, COUNT, IN_START

#: Further along an axis than any element.
_FAR = 1 << 60


def stored_dtype(array: Any) -> np.dtype[Any]:
    """The data type that chunks are decoded to, in native byte order."""
    if isinstance(array, JoinedArrays):
        return array.stored
    dtype: np.dtype[Any] = array.metadata.data_type.dtype if isinstance(array, Array) else array.dtype
    return dtype.newbyteorder("=")


def io_of(array: Array) -> ArrayIO:
    """How an array is read. Raises: UnknownCodecError, MissingExtraError."""
    return array._io  # noqa: SLF001 - of the same package


def grid_of(array: Array | JoinedArrays) -> Grid:
    """The chunk grid; of joined arrays one with the shortest chunks, which tells what samples cost at most."""
    return array.grid if isinstance(array, JoinedArrays) else io_of(array).layout.grid


def nchunks_of(array: Array | JoinedArrays) -> int:
    """Number of chunks."""
    return array.nchunks if isinstance(array, JoinedArrays) else nchunks(grid_of(array))


def chunk_nbytes_of(array: Array | JoinedArrays) -> int:
    """Size of a decoded chunk, of joined arrays that of the first."""
    return io_of(array.arrays[0] if isinstance(array, JoinedArrays) else array).chunk_nbytes


class JoinedAxis:
    """Axis 0 of joined arrays: the runs of rows that lie in one row of chunks, like the chunks of an axis.

    Parameters
    ----------
    starts : array of int64
        First row of each run.
    extent : int
        Number of rows.
    """

    def __init__(self, starts: Indices, extent: int) -> None:
        self.extent, self.nchunks = extent, len(starts)
        self._edges = np.concatenate([starts, [extent, _FAR]])
        self.length = int(np.diff(self._edges[:-1]).max(initial=1))

    def locate_all(self, indices: Indices) -> Indices:
        """The runs that hold many rows; one more for rows past the end."""
        return np.searchsorted(self._edges, indices, side="right") - 1

    def starts_of(self, chunks: Indices) -> Indices:
        """First rows of many runs."""
        found: Indices = self._edges[chunks]
        return found

    def edges(self) -> Indices:
        """Boundaries of runs, from 0 to the extent."""
        return self._edges[:-1]


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
    axis : JoinedAxis
        Axis 0.
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
        self._grids = [_grid_of(array) for array in self.arrays]
        self.axis, self.first_chunks = self._join()
        #: By array, its group: those whose chunks are equally long along the other axes.
        self.group_of, self.groups = self._group()
        shortest = [
            min(axes, key=lambda axis: axis.extent / max(axis.nchunks, 1)) for axes in zip(*self.groups, strict=True)
        ]
        self.grid: Any = self.axis, *[axis.resized(n) for axis, n in zip(shortest, self.shape[1:], strict=True)]
        self.nchunks: int = sum(map(nchunks, self._grids))
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

    def _join(self) -> tuple[JoinedAxis, Indices]:
        axes = [grid[0] for grid in self._grids]
        counts = np.array([axis.nchunks for axis in axes])
        firsts = np.concatenate([[0], np.cumsum(counts)])
        numbers = np.arange(firsts[-1]) - np.repeat(firsts[:-1], counts)
        lengths = np.array([axis.length if isinstance(axis, RegularAxis) else 0 for axis in axes])
        starts = np.repeat(self.offsets[:-1], counts) + numbers * np.repeat(lengths, counts)
        for number, axis in enumerate(axes):
            if not isinstance(axis, RegularAxis):
                starts[firsts[number] : firsts[number + 1]] += np.array(axis.edges()[:-1], np.int64)
        return JoinedAxis(starts, self.shape[0]), firsts

    def _group(self) -> tuple[Indices, list[tuple[Axis, ...]]]:
        groups: dict[Any, int] = {}
        found: list[tuple[Axis, ...]] = []
        numbers = np.empty(len(self.arrays), np.int64)
        for number, grid in enumerate(self._grids):
            key = tuple([axis.length if isinstance(axis, RegularAxis) else axis for axis in grid[1:]])
            numbers[number] = groups.setdefault(key, len(groups))
            if len(found) < len(groups):
                found.append(grid[1:])
        largest = [self.extents[numbers == group, 1:].max(0).tolist() for group in range(len(found))]
        return numbers, [
            tuple(
                [
                    axis.resized(n) if isinstance(axis, RegularAxis) else axis
                    for axis, n in zip(axes, extents, strict=True)
                ]
            )
            for axes, extents in zip(found, largest, strict=True)
        ]

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
    padded : bool
        Whether samples may reach past the end of their arrays; there, they have no fragments.
    """

    def __init__(self, arrays: JoinedArrays, size: tuple[int, ...], *, padded: bool) -> None:
        self._arrays, self._size, self._padded = arrays, size, padded
        more = size[1:] if padded else (0,) * len(size[1:])
        self._grids: list[Any] = [
            (arrays.axis, *[axis.resized(axis.extent + n) if n else axis for axis, n in zip(axes, more, strict=True)])
            for axes in arrays.groups
        ]
        self._bases = np.concatenate([[0], np.cumsum([nchunks(grid) for grid in self._grids])])

    def cut(self, boxes: Indices) -> Fragments:
        """Fragments of samples. boxes: (n, ndim), their first elements."""
        which = self._arrays.which(boxes[:, 0])
        groups = self._arrays.group_of[which]
        parts = []
        for group in np.unique(groups) if len(groups) else [0]:
            rows, grid = np.flatnonzero(groups == group), self._grids[group]
            part = cut_boxes(boxes[rows], self._size, grid)
            if self._padded:
                part = part.take(self._exists(part.chunk, grid, which[rows[part.box]]))
            parts.append(part._replace(box=rows[part.box], chunk=part.chunk + self._bases[group]))
        if len(parts) == 1:
            return parts[0]
        found = Fragments(*map(np.concatenate, zip(*parts, strict=True)))
        return found.take(np.argsort(found.box, kind="stable"))

    def _exists(self, chunks: Indices, grid: Grid, which: Indices) -> Any:
        """Whether chunks are those of an array, and not beyond its end."""
        arrays, coords = self._arrays, chunk_coords(chunks, grid)
        ends = arrays.extents[which]
        ends[:, 0] += arrays.offsets[which]
        lows = np.stack([axis.starts_of(coords[:, i]) for i, axis in enumerate(grid)], 1)
        return (lows < ends).all(1) & (chunks < nchunks(grid))

    def jobs(
        self, fragments: Fragments, slots: Indices, blocks: tuple[AnyArray, ...], backend: Any
    ) -> Mapping[int, ReadJob]:
        """What has to be read, by number of array."""
        groups = np.searchsorted(self._bases, fragments.chunk, side="right") - 1
        block_of, row_of = np.divmod(slots, len(blocks[0]))
        jobs: dict[int, ReadJob] = {}
        for group in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == group)
            coords = chunk_coords(fragments.chunk[rows] - self._bases[group], self._grids[group])
            which = np.searchsorted(self._arrays.first_chunks, coords[:, 0], side="right") - 1
            coords[:, 0] -= self._arrays.first_chunks[which]
            order = np.argsort(which, kind="stable")
            for at in np.split(order, np.flatnonzero(np.diff(which[order])) + 1):
                number = int(which[at[0]])
                io = self._arrays.io(number, backend)
                mine = fragments.take(rows[at])._replace(chunk=chunk_numbers(coords[at], io.layout.grid))
                mine.start[:, 0] -= self._arrays.offsets[number]
                # What reads a job looks at all of its blocks, which are many, and those of one array are few.
                used, block = np.unique(block_of[rows[at]], return_inverse=True)
                own = tuple([blocks[one] for one in used.tolist()])
                jobs[number] = read_job(io, mine, block * len(own[0]) + row_of[rows[at]], own, self._size)
                if self._padded:
                    _clip(jobs[number].plan, self._arrays.extents[number])
        return jobs


def read_job(
    io: ArrayIO, fragments: Fragments, slots: Indices, blocks: tuple[AnyArray, ...], size: tuple[int, ...]
) -> ReadJob:
    """The read of fragments of one array into the slots of some blocks."""
    shape = (len(blocks) * len(blocks[0]), *size)
    plan = make_copies(fragments, slots, shape, len(blocks[0]), io.layout.grid, io.layout.objects)
    return ReadJob(io, plan, blocks)


def _clip(plan: Any, extents: Indices) -> None:
    """Let copies end where the array ends."""
    for i, axis in enumerate(plan.grid):
        spans = plan.spans[:, i]
        first = axis.starts_of(spans[:, CHUNK]) + spans[:, IN_START]
        np.minimum(spans[:, COUNT], extents[i] - first, out=spans[:, COUNT])


class Reader(NamedTuple):
    """How samples of an array are read.

    Attributes
    ----------
    cut : callable
        From the first elements of samples to `Fragments`.
    jobs : callable
        From fragments, their slots, and the blocks of these to jobs, by the name that `gzarr.loader.watch` knows.
    """

    cut: Callable[[Indices], Fragments]
    jobs: Callable[[Fragments, Indices, tuple[AnyArray, ...]], Mapping[str, ReadJob]]


def make_reader(
    name: str, array: Array | JoinedArrays, backend: Any, size: tuple[int, ...], *, padded: bool = False
) -> Reader:
    """How samples of an array are read to a device."""
    if isinstance(array, JoinedArrays):
        cutter = JoinedCutter(array, size, padded=padded)
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
