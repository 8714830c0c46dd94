"""`gzarr.Ragged` and `gzarr.SparseRows`: samples of varying length, as they lie one after the other in flat arrays.

Theory of operation. To samples and planners, ragged rows are an array of rows of equal length. A row is cut along the
chunks of the flat array, and what lies behind its end is left out: there, batches have been filled with a value. Or
batches are *packed*: their rows lie one after the other from the beginning of their memory on, as they were read. The
rows of a sparse matrix are two packed arrays, of which a matrix is made for every batch without a copy.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from gzarr.api.create import array as new_array
from gzarr.api.namespaces import array_namespace, scipy_namespace
from gzarr.backend import Array as AnyArray
from gzarr.chunk_io.reference import ReadJob
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.copies import Fragments, chunk_coords, cut_boxes
from gzarr.indexing.grid import RegularAxis, nchunks
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import CHUNK, COUNT, IN_START, OUT_START
from gzarr.loader.arrays import JoinedAxis, Reader, io_of, read_job, stored_dtype
from gzarr.loader.windows import positive
from gzarr.tensors import DeviceArray, to_host


class Ragged:
    """Samples of varying length along axis 0 of one array, for a `gzarr.Loader`.

    In a batch, they are a dict: "values", each sample filled up to one length, and "lengths"; or with ``padded=False``
    "values", one sample after the other, and "offsets", as ``torch.nested.nested_tensor_from_jagged`` takes them.

    Parameters
    ----------
    values : Array or numpy.ndarray
        The elements of all samples, one sample after the other.
    offsets : array of int
        Where each sample begins, and where the last one ends: one more than there are samples.
    length : int, optional
        The length in batches, by default that of the longest sample. Longer samples are cut off there, and all are
        filled up to it.
    pad : scalar
        What samples are filled up with.
    padded : bool
        Whether samples are filled up.

    Raises
    ------
    ValueError
        If the offsets do not ascend, or lead past the end of the values.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> texts = gzarr.Ragged(gzarr.array(np.arange(1, 7)), [0, 3, 3, 6])
    >>> batch = next(iter(gzarr.Loader({"text": texts}, batch_size=3)))
    >>> batch["text"]["values"]
    array([[1, 2, 3],
           [0, 0, 0],
           [4, 5, 6]])
    >>> batch["text"]["lengths"]
    array([3, 0, 3])
    """

    def __init__(
        self, values: Any, offsets: Any, *, length: int | None = None, pad: Any = 0, padded: bool = True
    ) -> None:
        offsets = np.asarray(to_host(offsets[...] if isinstance(offsets, Array) else offsets))
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
            raise ValueError(
                f"Ragged: offsets must be integers, one more than there are samples, got {offsets.dtype}{offsets.shape}"
            )
        self.offsets = offsets.astype(np.int64)
        self.values: Array = values if isinstance(values, Array) else new_array(values, compressors=None, device="cpu")
        bad = np.flatnonzero(np.diff(self.offsets, prepend=0) < 0)
        if len(bad) or self.offsets[-1] > len(self.values):
            at = bad[0] if len(bad) else len(self.offsets) - 1
            raise ValueError(
                f"Ragged: offsets must ascend from 0 to {len(self.values)}, the length of the values; "
                f"offset {at} is {self.offsets[at]}"
            )
        longest = int(np.diff(self.offsets).max())
        self.length = max(longest, 1) if length is None else positive(length, "length of Ragged")
        self.lengths = np.minimum(np.diff(self.offsets), self.length)
        self.pad, self.dtype, self.stored = pad, self.values.dtype, stored_dtype(self.values)
        self.padded = padded
        self.shape = len(self.lengths), self.length, *self.values.shape[1:]
        self.ndim, self.nbytes, self.backend = len(self.shape), self.values.nbytes, self.values.backend
        self.arrays = (self.values,)
        grid = io_of(self.values).layout.grid
        self.nchunks = nchunks(grid)
        starts = np.searchsorted(self.offsets[:-1], np.asarray(grid[0].edges(), np.int64)[:-1])
        rows = JoinedAxis(np.unique(np.append(starts[starts < len(self.lengths)], 0)), len(self.lengths))
        self.grid: Any = rows, RegularAxis(self.length, self.length), *grid[1:]

        #: What makes something else of what stands for it in a batch.
        self.maker: Ragged | SparseRows | None = None if padded else self

    def __len__(self) -> int:
        return len(self.lengths)

    def parts(self) -> dict[str, Any]:
        """What stands for it in a batch."""
        return {"values": self, "lengths": self.lengths}

    def made(self, parts: Mapping[str, AnyArray], *, packed: bool) -> Any:
        """The samples of a batch one after the other, and where each begins. parts: also the lengths of samples."""
        (values,), offsets = _joined([parts["values"]], parts["lengths"], packed=packed)
        return {"values": values, "offsets": offsets}

    def reader(self, name: str, backend: Any, size: tuple[int, ...], packing: tuple[int, int] | None) -> Reader:
        """How rows are read. Raises: ValueError for samples that are no rows.

        size: of a row, one on axis 0. packing: of `_places`, if batches are packed: cuts then begin with a batch.
        """
        if size != (1, *self.shape[1:]):
            raise ValueError(f"arrays: samples of {name!r}, which is ragged, are rows; leave window= and crops= out")
        io = io_of(self.values if self.values.backend is backend else self.values.to(backend))
        grid, size = io.layout.grid, size[1:]
        longer = grid[0].resized(grid[0].extent + self.length), *grid[1:]

        def cut(boxes: Indices) -> Fragments:
            starts = np.zeros((len(boxes), len(grid) + 1), np.int64)
            starts[:, 0], lengths = self.offsets[boxes[:, 0]], self.lengths[boxes[:, 0]]
            if packing is not None:  # what is cut carries it to where it is planned
                starts[:, -1] = _places(lengths, self.length, *packing)
            found = cut_boxes(starts, size, longer)
            lows = longer[0].starts_of(chunk_coords(found.chunk, longer)[:, 0])
            ends = starts[:, 0] + lengths
            return found.take(np.maximum(lows, found.start[:, 0]) < ends[found.box])

        def jobs(fragments: Fragments, slots: Indices, blocks: tuple[AnyArray, ...]) -> Mapping[str, ReadJob]:
            shape = len(blocks[0]), *size
            if packing is not None:
                shape, n = (1, len(blocks[0]) * self.length, *size[1:]), packing[0] * packing[1]
                slots = slots // n * n * self.length + fragments.start[:, -1]
            flat = tuple([block.reshape(shape) for block in blocks])
            job = read_job(io, fragments, slots, flat, size)
            plan: Any = job.plan
            spans = plan.spans[:, 0]
            first = grid[0].starts_of(spans[:, CHUNK]) + spans[:, IN_START]
            ends = self.offsets[np.searchsorted(self.offsets, first, side="right")]
            np.minimum(spans[:, COUNT], ends - first, out=spans[:, COUNT])
            if packing is not None:
                block, place = np.divmod(plan.slots, shape[1])
                spans[:, OUT_START] += place
                job = job._replace(plan=plan._replace(slots=block, shape=(len(flat), *shape[1:])))
            return {name: job}

        return Reader(cut, jobs, io)


class SparseRows:
    """The rows of a sparse matrix in CSR form, for a `gzarr.Loader`: batches are matrices of SciPy, on a GPU of CuPy.

    A loader takes a group of this form, as AnnData writes it, without this class.

    Parameters
    ----------
    group : Group
        Has the arrays ``data``, ``indices`` and ``indptr``.
    n_columns : int, optional
        Number of columns, by default that of the group's attribute ``shape``.

    Raises
    ------
    ValueError
        If the group has other arrays, or columns instead of rows, or the number of columns is unknown.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> group = gzarr.create_group()
    >>> for name, values in {"data": [1.0, 2, 3], "indices": [0, 2, 1], "indptr": [0, 2, 2, 3]}.items():
    ...     _ = group.create_array(name, data=np.array(values))
    >>> loader = gzarr.Loader({"x": gzarr.SparseRows(group, n_columns=3)}, batch_size=3)
    >>> next(iter(loader))["x"].toarray()
    array([[1., 0., 2.],
           [0., 0., 0.],
           [0., 3., 0.]])
    """

    def __init__(self, group: Group, n_columns: int | None = None) -> None:
        kind, shape = group.attrs.get("encoding-type", "csr_matrix"), group.attrs.get("shape")
        if kind != "csr_matrix" or not {"data", "indices", "indptr"} <= set(group):
            raise ValueError(
                f"SparseRows: {group!r} must have data, indices and indptr of rows (csr_matrix), is {kind!r}"
            )
        if n_columns is None:
            if shape is None:
                raise ValueError(f"SparseRows: the attributes of {group!r} have no shape; give n_columns=")
            n_columns = shape[1]
        self.n_columns = int(n_columns)
        self.data = Ragged(group["data"], group["indptr"], padded=False)
        self.indices = Ragged(group["indices"], self.data.offsets, padded=False)
        self.data.maker, self.indices.maker, self.indices.offsets = self, None, self.data.offsets
        self._empty: dict[int, Any] = {}  # matrices by number of rows

    def parts(self) -> dict[str, Any]:
        """What stands for it in a batch, until a matrix is made of it."""
        return {"data": self.data, "indices": self.indices, "lengths": self.data.lengths}

    @staticmethod
    def is_stored_in(item: Any) -> bool:
        """Whether something is a group with rows or columns of a sparse matrix."""
        return isinstance(item, Group) and item.attrs.get("encoding-type") in ("csr_matrix", "csc_matrix")

    def made(self, parts: Mapping[str, AnyArray], *, packed: bool) -> Any:
        """A matrix of the rows of a batch."""
        host = [
            to_host(part) if isinstance(part, DeviceArray) else part for part in (parts[name] for name in self.parts())
        ]
        (data, columns), ends = _joined(host[:2], host[2], packed=packed)
        if len(columns) and not 0 <= columns.min() <= columns.max() < self.n_columns:
            raise ValueError(
                f"SparseRows: {self.indices.values} has columns {columns.min()} to {columns.max()} in a batch; "
                f"expected 0 to {self.n_columns - 1}: give another n_columns="
            )
        make, shape = scipy_namespace(data).sparse.csr_matrix, (len(host[2]), self.n_columns)
        if columns.dtype == np.int32 and max(host[0].size, self.n_columns) <= np.iinfo(np.int32).max:
            ends = ends.astype(np.int32)  # as SciPy would, in twice the time of all else
        if ends.dtype != np.int32 or not isinstance(data, np.ndarray):
            return make((data, columns, ends), shape)
        if shape[0] not in self._empty:
            self._empty[shape[0]] = make(shape)
        matrix = copy(self._empty[shape[0]])  # a tenth of the time in which SciPy makes one and checks it
        matrix.data, matrix.indices, matrix.indptr = data, columns, ends
        return matrix


def are_like(one: Any, other: Any) -> bool:
    """Whether two arrays are samples of varying length that lie in the same places, so that they are read alike."""
    if not isinstance(one, Ragged) or not isinstance(other, Ragged) or one.offsets is not other.offsets:
        return False
    layout, others = io_of(one.values).layout, io_of(other.values).layout
    return bool(layout.grid == others.grid and layout.objects == others.objects)


def _places(lengths: Indices, longest: int, rows: int, parts: int) -> Indices:
    """Where rows lie in the memory of their batch, if batches are packed.

    lengths: of the rows of successive batches. longest: what there is memory for, for each. rows, parts: a batch is
    that of so many ranks, and each has as many rows; the last batch may have fewer. Each rank's begin where they would
    if all were the longest.
    """
    n, size = len(lengths), rows * parts
    whole = n - n % size
    firsts = np.concatenate([np.arange(0, whole, rows), np.arange(whole, n, max((n - whole) // parts, 1))])
    part = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=n))
    before = np.cumsum(lengths) - lengths
    places: Indices = before + (firsts % size * longest - before[firsts])[part]
    return places


def _joined(rows: Sequence[AnyArray], lengths: Any, *, packed: bool) -> tuple[list[Any], Any]:
    """The rows of a batch, each of its length and one after the other, and where each begins. packed: they are."""
    xp = array_namespace(lengths)
    ends = xp.zeros(len(lengths) + 1, lengths.dtype)
    ends[1:] = xp.cumsum(lengths)
    if packed:
        return [row.reshape(-1, *row.shape[2:])[: int(ends[-1])] for row in rows], ends
    there = xp.arange(rows[0].shape[1]) < lengths[:, None]
    return [row[there] for row in rows], ends
