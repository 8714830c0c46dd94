"""Tables that functions make of blocks: rows of each, merged by a key."""

import csv
from collections.abc import Callable, Mapping, Sequence
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gzarr.api.many import read_many
from gzarr.display.progress import ProgressLike, counted
from gzarr.hierarchy.array import Array
from gzarr.images.blocks import BlockGrid
from gzarr.images.filters.inputs import arrays_of
from gzarr.images.filters.where import telling
from gzarr.images.image import Image
from gzarr.images.tasks import limit_of, run_tasks, worker_count
from gzarr.storage.extras import require
from gzarr.tensors import to_hosts

#: What becomes of the values of one key.
Merge = Literal["sum", "min", "max", "first"]
_UFUNCS = {"sum": np.add, "min": np.minimum, "max": np.maximum}
#: Blocks are of about so many elements.
_BLOCK_SIZE = 1 << 21
#: Bytes that a function is taken to need for each element.
_ELEMENT_NBYTES = 48


class Table(dict[str, NDArray[Any]]):
    """Columns by name, in memory.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from gzarr.images import Table
    >>> Table(label=np.array([1, 2]), area=np.array([5, 7])).to_csv("cells.csv")
    >>> Path("cells.csv").read_text().split()
    ['label,area', '1,5', '2,7']
    """

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame."""
        return require("pandas", "", "Table.to_pandas").DataFrame(dict(self))

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write a file of comma-separated values."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self)
            writer.writerows(zip(*(column.tolist() for column in self.values()), strict=True))

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write a Parquet file, with PyArrow."""
        arrow = require("pyarrow", "kerchunk", "Table.to_parquet")
        require("pyarrow.parquet", "kerchunk", "Table.to_parquet").write_table(arrow.table(dict(self)), path)

    def to_anndata(self, key: str = "label") -> Any:
        """Return an anndata.AnnData: a row for each key, a variable for each other column."""
        anndata, pandas = (require(name, "", "Table.to_anndata") for name in ("anndata", "pandas"))
        names = [name for name in self if name != key]
        obs = pandas.DataFrame({key: self[key]}, index=self[key].astype(str))
        values = np.stack([self[name].astype(float) for name in names], 1)
        return anndata.AnnData(values, obs=obs, var=pandas.DataFrame(index=names))


def tabulate(
    func: Callable[..., Mapping[str, Any]],
    inputs: Array | Image | Sequence[Array | Image],
    key: str = "label",
    merge: Merge | Mapping[str, Merge] = "sum",
    *,
    max_nbytes: int | None = None,
    progress: ProgressLike = None,
    device: str | None = None,
) -> Table:
    """Make a table of blocks: a function returns rows of each, and rows of one key are merged.

    Parameters
    ----------
    func : callable
        Called with a block of every input, by several threads at once; with ``where``, of `Where`, if it has such a
        parameter. Returns columns of equal length by name.
    inputs : Array, Image or sequence of these
        The arrays, of one shape; of an image, level 0.
    key : str
        The column that says which rows are merged.
    merge : {"sum", "min", "max", "first"} or mapping
        What becomes of the values of one key, of all columns or by column, otherwise "sum". "first" is in the order of
        the blocks.
    max_nbytes : int, optional
        Memory for blocks; the rows take their own besides. By default 256 MiB, or what one block needs.
    progress : bool or callable, optional
        True for a bar, or a function of (bytes done, bytes in all, name).
    device : str, optional
        Where the function runs. By default where the first input is read to.

    Returns
    -------
    Table
        A row for each key, in order. Sums are the same from run to run.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> z = gzarr.array(np.array([[3, 1, 3], [1, 1, 2]]), chunks=(1, 2))
    >>> def counts(block):
    ...     values, n = np.unique(block, return_counts=True)
    ...     return {"value": values, "n": n}
    >>> gzarr.images.tabulate(counts, z, "value")
    {'value': array([1, 2, 3]), 'n': array([3, 1, 2])}
    """
    rows = rows_of("tabulate", func, inputs, max_nbytes, progress, device)
    if key not in rows:
        raise ValueError(f"tabulate: func returns the columns {list(rows)}, but no {key!r}; name one of them as key=")
    ways = {} if isinstance(merge, str) else dict(merge)
    default = merge if isinstance(merge, str) else "sum"
    keys, grouped = groups_of(rows.pop(key))
    return Table({key: keys} | {name: grouped(column, ways.get(name, default)) for name, column in rows.items()})


def rows_of(
    name: str, func: Callable[..., Any], inputs: Any, max_nbytes: int | None, progress: ProgressLike, device: str | None
) -> dict[str, NDArray[Any]]:
    """The rows of all blocks, in order."""
    given = list(inputs) if isinstance(inputs, Sequence) else [inputs]
    arrays = arrays_of(name, given)
    backend = arrays[0].to(device or arrays[0].backend).backend
    sources, call = [one.to(backend) for one in arrays], telling(func, given[0])
    first, block = sources[0], list(sources[0].chunks)
    while prod(block) < _BLOCK_SIZE and any(b < n for b, n in zip(block, first.shape, strict=True)):
        longer = [n for n in range(first.ndim) if block[n] < first.shape[n]]
        axis = max(longer, key=lambda n: first.chunks[n] / block[n])
        block[axis] *= 2
    grid = BlockGrid(first.shape, tuple(block))
    every = list(grid) or [(0,) * first.ndim]  # a block without elements says what columns there are
    made: dict[int, Mapping[str, Any]] = {}
    cost = prod(map(min, block, first.shape)) * (_ELEMENT_NBYTES + sum(one.itemsize for one in sources))
    with counted(progress, first.nbytes) as add:

        def task(item: tuple[int, tuple[int, ...]]) -> None:
            number, coords = item
            region = grid.region(coords)
            blocks = read_many([(one, region) for one in sources])
            rows = call(region, ((0, 0),) * first.ndim, *blocks)
            made[number] = dict(zip(rows, to_hosts(backend.xp, list(rows.values())), strict=True))
            if len({len(values) for values in made[number].values()}) > 1:
                raise ValueError(f"{name}: func returns columns of unequal lengths for the block {region}")
            add(blocks[0].nbytes, str(first.store_path))

        run_tasks(
            backend,
            task,
            enumerate(every),
            n_items=len(every),
            cost_nbytes=cost,
            max_nbytes=limit_of(max_nbytes, cost),
            workers=worker_count(backend, first.store.concurrency),
        )
    return {column: np.concatenate([made[n][column] for n in range(len(every))]) for column in made[0]}


def groups_of(keys: NDArray[Any]) -> tuple[NDArray[Any], Callable[[NDArray[Any], str], NDArray[Any]]]:
    """The keys, each once, and what merges a column of their rows."""
    order = np.argsort(keys, kind="stable")
    unique, starts = np.unique(keys[order], return_index=True)

    def grouped(column: NDArray[Any], way: str) -> NDArray[Any]:
        column = np.asarray(column)[order]
        if way == "first" or not len(column):
            return column[starts]
        return _UFUNCS[way].reduceat(column, starts)

    return unique, grouped
