"""Reads a selection of zarr-python as a whole, before zarr-python makes an entry for each of its chunks.

This replaces a function that is private to zarr-python, so it is done on request only.
"""

import logging
import math
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np
import zarr.core.array
from zarr.core.indexing import (
    BasicIndexer,
    BlockIndexer,
    BoolArrayDimIndexer,
    CoordinateIndexer,
    IntArrayDimIndexer,
    IntDimIndexer,
    OrthogonalIndexer,
    SliceDimIndexer,
    check_fields,
)

from gzarr.indexing.selection import Box, Indices, Points, Range
from gzarr.interop.zarr.batches import NotHandledError, Taken, scattered

_logger = logging.getLogger("gzarr.interop.zarr")
#: Parameters of the function that is replaced, as far as they are used here.
_EXPECTED = ("store_path", "metadata", "codec_pipeline", "config", "indexer", "prototype", "out", "fields")


def replace_planning(pipeline: type) -> None:
    """Replace zarr-python's function, once, for arrays with a pipeline of gzarr.

    Raises: NotHandledError if it is not the function that is known here.
    """
    own = getattr(zarr.core.array, "_get_selection", None)
    if own is None or not set(_EXPECTED) <= set(signature(own).parameters):
        raise NotHandledError(f"zarr-python {zarr.__version__} plans reads in another way")
    if not hasattr(own, "__wrapped__"):
        zarr.core.array._get_selection = _replacement(own, pipeline)  # noqa: SLF001


def _replacement(own: Callable[..., Any], pipeline: type) -> Callable[..., Any]:
    @wraps(own)
    async def get_selection(
        store_path: Any, metadata: Any, codec_pipeline: Any, config: Any, *grid_and_indexer: Any, **how: Any
    ) -> Any:
        indexer = how["indexer"] if "indexer" in how else grid_and_indexer[-1]
        usable = type(codec_pipeline) is pipeline and how.get("out") is None
        if usable and math.prod(indexer.shape):
            asked = store_path, metadata, config, indexer, how["prototype"], how.get("fields")
            try:
                return await _read(codec_pipeline, *asked)
            except Exception as error:  # noqa: BLE001  # zarr-python does it over, and raises its own errors
                _logger.debug("zarr-python plans and reads %r: %s", store_path, error)
        return await own(store_path, metadata, codec_pipeline, config, *grid_and_indexer, **how)

    return get_selection


async def _read(
    pipeline: Any, store_path: Any, metadata: Any, config: Any, indexer: Any, prototype: Any, fields: Any
) -> Any:
    """Read what an indexer takes. Returns: what zarr-python returns."""
    dtype = check_fields(fields, metadata.dtype.to_native_dtype())
    order = metadata.order if metadata.zarr_format == 2 else config.order
    buffer = prototype.nd_buffer.empty(shape=indexer.shape, dtype=dtype, order=order)

    def read(loop: Any) -> None:
        taken = _taken(indexer, store_path.path)
        names = fields if isinstance(fields, str) else [*(fields or ())] or None
        pipeline.bound(metadata).read_taken(taken, (store_path.store, config, prototype), buffer, names, loop)

    if pipeline.bound(metadata).is_quick and indexer.shape == ():
        read(None)
    else:
        await pipeline.in_thread(read)
    is_scalar = isinstance(indexer, BasicIndexer) and indexer.shape == ()
    return buffer.as_scalar() if is_scalar else buffer.as_ndarray_like()


def _taken(indexer: Any, path: str) -> Taken:
    """Return what an indexer takes."""
    if isinstance(indexer, CoordinateIndexer):
        coords = [np.asarray(s, np.int64) for s in indexer.selection]
        if indexer.sel_sort is not None:
            coords = [scattered(c, indexer.sel_sort) for c in coords]
        return Taken(path, Points(tuple(coords), indexer.shape), None, (0,) * len(coords), (None,) * len(coords))
    if not isinstance(indexer, (BasicIndexer, BlockIndexer, OrthogonalIndexer)):
        raise NotHandledError(f"indexer {type(indexer).__name__}")
    axes = tuple([_axis(d) for d in indexer.dim_indexers])
    view = (*(None if isinstance(d, IntDimIndexer) else slice(None) for d in indexer.dim_indexers), ...)
    return Taken(path, Box(axes, tuple([a.size for a in axes]), None), view, (0,) * len(axes), (None,) * len(axes))


def _axis(indexer: Any) -> Range | Indices:
    if isinstance(indexer, IntDimIndexer):
        return Range(indexer.dim_sel, 1, 1)
    if isinstance(indexer, SliceDimIndexer):
        return Range(indexer.start, indexer.step if indexer.nitems > 1 else 1, indexer.nitems)
    if isinstance(indexer, BoolArrayDimIndexer):
        return np.flatnonzero(indexer.dim_sel).astype(np.int64, copy=False)
    if isinstance(indexer, IntArrayDimIndexer):
        indices = np.asarray(indexer.dim_sel, np.int64)
        return indices if indexer.dim_out_sel is None else scattered(indices, indexer.dim_out_sel)
    raise NotHandledError(f"indexer {type(indexer).__name__}")
