"""Batches of a `gzarr.Loader`, and rows of arrays, for the pipelines of Grain.

`dataset` is an `IterDataset` of whole batches, whose place Grain saves with its own. `ArraySource` is a
`RandomAccessDataSource` of rows, for Grain's samplers: Grain asks it for rows of a batch at once, but a chunk is
decoded again for every batch that wants rows of it.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gzarr.errors import MissingExtraError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.loader.loader import Loader
from gzarr.loader.sources import collect, nested

try:
    import grain.python as grain
except ImportError as error:
    raise MissingExtraError("gzarr.interop.grain needs Grain: pip install grain") from error


def dataset(loader: Loader) -> grain.IterDataset:
    """Return a loader as an `IterDataset` of Grain, whose elements are batches.

    Parameters
    ----------
    loader : Loader
        The loader. Every iterator of the data set is another epoch of it, and its state is the loader's.

    Returns
    -------
    grain.IterDataset
        The data set.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> from gzarr.interop import grain
    >>> loader = gzarr.Loader(gzarr.array(np.arange(6), chunks=2), batch_size=3)
    >>> list(grain.dataset(loader).map(lambda batch: batch.sum().item()))
    [3, 12]
    """
    return _LoaderDataset(loader)


class _LoaderDataset(grain.IterDataset):
    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader

    def __iter__(self) -> grain.DatasetIterator:
        return _Batches(self._loader)

    def __str__(self) -> str:
        return str(self._loader)


class _Batches(grain.DatasetIterator):
    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader

    @cached_property
    def _batches(self) -> Iterator[Any]:
        return iter(self._loader)

    def __next__(self) -> Any:
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        _ = self._batches  # begun, or else the place would be that of an iterator before this one
        return self._loader.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)
        self.__dict__.pop("_batches", None)


class ArraySource(Sequence[Any]):
    """Rows of arrays as a `RandomAccessDataSource` of Grain, and as a data set of PyTorch with ``__getitems__``.

    Parameters
    ----------
    arrays : Array, dict or Group
        An array, or arrays by name, equally long.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> import grain.python
    >>> from gzarr.interop.grain import ArraySource
    >>> source = ArraySource({"x": gzarr.array(np.arange(6) ** 2, chunks=2), "y": np.arange(6)})
    >>> data = grain.python.MapDataset.source(source).shuffle(seed=0).batch(3)
    >>> sorted(np.concatenate([batch["x"] for batch in data]).tolist())
    [0, 1, 4, 9, 16, 25]
    """

    def __init__(self, arrays: Any) -> None:
        self._arrays, self._names = collect(arrays)
        if refused := [name for name, a in self._arrays.items() if not isinstance(a, (Array, LazyView, np.ndarray))]:
            raise TypeError(f"arrays: {refused} are lists or ragged, and have no rows of one shape; use a gzarr.Loader")
        lengths = {name: len(array) for name, array in self._arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"arrays: they must be equally long, got {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values())))

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Rows by their numbers, read together."""
        at = np.asarray(indices) if len(indices) else np.zeros(0, np.int64)
        read = {name: (a.oindex[at] if isinstance(a, Array) else a[at]) for name, a in self._arrays.items()}
        if self._names is None:
            (rows,) = read.values()
            return list(rows)
        return [nested({name: rows[n] for name, rows in read.items()}, self._names, {}) for n in range(len(at))]

    _getitems = __getitems__  # by which Grain asks for many

    def __repr__(self) -> str:
        return f"ArraySource({self._arrays!r})"
