"""Finds the Zarr arrays that lazy data read, so that what is about to be overwritten is computed first."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from gzarr.hierarchy.array import Array
from gzarr.hierarchy.values import meets
from gzarr.storage import LocalStore, Store

try:
    from cloudpickle import Pickler  # comes with Dask, whose graphs hold functions that only it can pickle
except ImportError:
    from pickle import Pickler


def reads(objects: Iterable[Any], places: Sequence[tuple[Store, str]]) -> bool:
    """Return whether one of several objects reads from one of several places, as far as it can be pickled."""
    return bool(places) and any(meets(place, found) for found in _places(objects) for place in places)


class _Finder(Pickler):
    """Finds the arrays in everything that pickling reaches, closures of functions too."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.found: list[Any] = []

    def persistent_id(self, obj: Any) -> str | None:
        """Leave out arrays: those in stores are noted, data are not copied."""
        module = type(obj).__module__.partition(".")[0]
        if isinstance(obj, Array) or (module == "zarr" and hasattr(obj, "store_path") and hasattr(obj, "shape")):
            self.found.append(obj)
            return "array"
        return "data" if isinstance(obj, np.ndarray) or module == "h5py" else None


def _places(objects: Iterable[Any]) -> Iterator[tuple[Store, str]]:
    """Yield the places of the gzarr and zarr arrays in objects, as far as they can be pickled."""
    finder = _Finder()
    for one in objects:
        with suppress(Exception):
            finder.dump(one)
    for found in finder.found:
        if isinstance(found, Array):
            yield found.store, found.path
            continue
        root = getattr(found.store, "root", None) or getattr(found.store, "path", None)
        if isinstance(root, (str, os.PathLike)) and Path(root).is_dir():
            yield LocalStore(root), found.path
