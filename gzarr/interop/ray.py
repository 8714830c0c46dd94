"""Datasets of Ray Data over arrays: rows, windows or tiles, in blocks of whole chunks; and arrays that Ray writes."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from gzarr.api.many import read_many
from gzarr.api.open import open as open_node
from gzarr.errors import MissingExtraError, SelectionError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.loader.samples import make_samples
from gzarr.loader.windows import Crops, Window

try:
    import ray.data
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import Datasink, Datasource, ReadTask
except ImportError as error:
    raise MissingExtraError("gzarr.interop.ray needs Ray Data: pip install 'gzarr[ray]'") from error

__all__ = ["ZarrDatasink", "ZarrDatasource", "read_zarr"]


def read_zarr(
    arrays: Any,
    *,
    window: Window | None = None,
    crops: Crops | None = None,
    index: str | None = None,
    nbytes: int = 64 << 20,
    **kwargs: Any,
) -> ray.data.Dataset:
    """Return a dataset of Ray Data with a row for every sample of arrays, as `gzarr.Loader` has them.

    Columns are tensors, without a copy. Blocks hold the samples of whole chunks or shards, so each of these is decoded
    once, unless windows reach into the next one.

    Parameters
    ----------
    arrays : path, URL, Group, Array or mapping of str to arrays and paths
        The columns, by name. Those of a group are its arrays; that of a single array is ``data``.
    window, crops : optional
        What a sample is, as for `gzarr.Loader`: by default a row.
    index : str, optional
        Name of a column with the number of each sample, for `ZarrDatasink`.
    nbytes : int
        Decoded bytes of a block, about.
    **kwargs
        See `ray.data.read_datasource`.

    Raises
    ------
    ValueError, TypeError
        If arrays have different extents, or there are no such samples.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.interop.ray import read_zarr
    >>> gzarr.save("rows.zarr", [[1, 2], [3, 4], [5, 6]])
    >>> read_zarr("rows.zarr").take(1)[0]["data"]
    array([1, 2])
    """
    return ray.data.read_datasource(ZarrDatasource(arrays, window, crops, index, nbytes), **kwargs)


class ZarrDatasource(Datasource):
    """What `read_zarr` reads.

    Parameters
    ----------
    arrays, window, crops, index, nbytes
        As of `read_zarr`.
    """

    def __init__(
        self,
        arrays: Any,
        window: Window | None = None,
        crops: Crops | None = None,
        index: str | None = None,
        nbytes: int = 64 << 20,
    ) -> None:
        super().__init__()
        if crops is not None and crops.is_padded:
            raise ValueError("crops=: Crops(pad=) is for gzarr.Loader alone; leave pad= out")
        self._arrays, self._index, self._nbytes = _columns(arrays), index, nbytes
        shapes = {name: tuple(array.shape) for name, array in self._arrays.items()}
        self._samples = make_samples(shapes, window=window, crops=crops)
        boxes = [prod(self._samples.box(array.shape)) * array.itemsize for array in self._arrays.values()]
        self._sample_nbytes = max(sum(boxes), 1)

    def get_name(self) -> str:
        """How Ray calls the reading."""
        return "Zarr"

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all samples."""
        return self._samples.n * self._sample_nbytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks, each of whole chunks of the first array."""
        if not self._samples.n:
            return []
        edges, share = self._edges(), self._samples.n / max(parallelism, 1)
        cuts = np.unique(edges[np.searchsorted(edges, np.arange(0, self._samples.n, max(share, 1)), "right") - 1])
        tasks = []
        for start, stop in zip(cuts.tolist(), [*cuts[1:].tolist(), self._samples.n], strict=True):
            n = stop - start
            metadata = BlockMetadata(n, n * self._sample_nbytes, exec_stats=None)
            read = partial(self._read, edges[(edges > start) & (edges < stop)], start, stop)
            tasks.append(ReadTask(read, metadata, per_task_row_limit=per_task_row_limit))
        return tasks

    def _edges(self) -> Any:
        """Samples at which blocks may begin: the first ones of chunks or shards, that lie far enough apart."""
        samples, first = self._samples, next(iter(self._arrays.values()))
        runs: Any = 1 if samples.draws else samples.runs(first.metadata.grid[0])
        edges = np.arange(0, samples.n, runs) if isinstance(runs, int) else np.asarray(runs)[:-1]
        blocks = edges * self._sample_nbytes // max(self._nbytes, 1)
        return edges[np.flatnonzero(np.diff(blocks, prepend=-1))]

    def _read(self, edges: Any, start: int, stop: int) -> Iterator[Any]:
        for low, high in zip([start, *edges.tolist()], [*edges.tolist(), stop], strict=True):
            columns = {name: self._column(array, low, high) for name, array in self._arrays.items()}
            if self._index is not None:
                columns[self._index] = np.arange(low, high)
            yield BlockAccessor.batch_to_block(columns)

    def _column(self, array: Array, low: int, high: int) -> Any:
        if self._samples.kind == "rows":
            return array[low:high]
        starts, box = self._samples.boxes(np.arange(low, high), array.ndim), self._samples.box(array.shape)
        made = np.empty((high - low, *box), array.dtype)
        regions = [tuple(slice(o, o + n) for o, n in zip(start, box, strict=True)) for start in starts.tolist()]
        read_many([(array, region, out) for region, out in zip(regions, made, strict=True)])
        return made


class ZarrDatasink(Datasink):
    """Writes columns of a dataset to rows of arrays that exist: for ``dataset.write_datasink``.

    Rows go where the column ``index`` says, in any order, so a write that was interrupted may be repeated. Blocks that
    share a chunk or a shard take turns.

    Parameters
    ----------
    arrays : path, URL, Group, Array or mapping of str to arrays and paths
        Where columns go, by name: as of `read_zarr`. Other columns are left out.
    index : str
        The column with the numbers of rows.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.interop.ray import ZarrDatasink, read_zarr
    >>> gzarr.save("in.zarr", [[1, 2], [3, 4], [5, 6]])
    >>> out = gzarr.create_array("out.zarr", shape=(3, 2), chunks=(2, 2), dtype="i8")
    >>> def double(batch):
    ...     return {**batch, "data": 2 * batch["data"]}
    >>> dataset = read_zarr("in.zarr", index="row").map_batches(double)
    >>> dataset.write_datasink(ZarrDatasink(out, "row"))
    >>> out[2]
    array([10, 12])
    """

    def __init__(self, arrays: Any, index: str) -> None:
        self._arrays, self._index = _columns(arrays, "r+"), index

    def write(self, blocks: Iterable[Any], ctx: Any) -> None:
        """Write blocks. Raises: SelectionError if they have no numbers of rows."""
        for block in blocks:
            batch = BlockAccessor.for_block(block).to_numpy()
            rows = batch.get(self._index)
            if rows is None or not len(rows):
                raise SelectionError(f"index={self._index!r} is no column of the dataset: read_zarr(index=) makes one")
            order = np.argsort(rows, kind="stable")
            runs = np.split(order, np.flatnonzero(np.diff(rows[order]) != 1) + 1)
            for (name, array), run in ((item, run) for item in self._arrays.items() for run in runs):
                array[int(rows[run[0]]) : int(rows[run[-1]]) + 1] = batch[name][run]


def _columns(given: Any, mode: Any = "r") -> dict[str, Array]:
    """The arrays by name. Raises: TypeError, ValueError."""
    node = given if isinstance(given, (Array, Group, Mapping)) else open_node(given, mode=mode)
    if isinstance(node, Array):
        return {"data": node}
    found = dict(node.arrays()) if isinstance(node, Group) else node
    opened = {name: one if isinstance(one, Array) else open_node(one, mode=mode) for name, one in found.items()}
    if not opened or not all(isinstance(one, Array) and one.ndim for one in opened.values()):
        raise ValueError(f"{given!r} has no arrays with rows: give an array, a group of arrays, or a mapping of them")
    return {name: one for name, one in opened.items() if isinstance(one, Array)}
